//! What the overriders of one object may use.
//!
//! Tenants write override policies, and the controller applies them again for each cluster. Each step charges what it
//! adds and what it visits, so that no policy can make a result that does not fit into memory, or take seconds.

use serde_json::Value;

use super::problem::Problem;
use crate::nesting;

/// Overriders and operations on embedded documents, of all policies that select an object.
const OPERATIONS_MAX: usize = 1024;
/// Bytes that all overriders of an object add, read from embedded documents and write to them. A Work has room for
/// less than a third.
const BYTES_MAX: usize = 4_000_000;
/// Values visited: each overrider of containers visits the whole object.
pub(super) const VISITS_MAX: usize = 1_000_000;

/// What is left.
pub(super) struct Allowance {
    operations: usize,
    bytes: usize,
    visits: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { operations: OPERATIONS_MAX, bytes: BYTES_MAX, visits: VISITS_MAX }
    }
}

impl Allowance {
    /// One more overrider or operation.
    pub fn operation(&mut self, field: &str) -> Result<(), Problem> {
        let found = "more overriders";
        spend(
            &mut self.operations,
            1,
            field,
            found,
            "1024 overriders and operations of all policies of the object",
        )
    }

    /// Bytes added, read or written.
    pub fn bytes(&mut self, field: &str, bytes: usize) -> Result<(), Problem> {
        spend(
            &mut self.bytes,
            bytes,
            field,
            "more bytes",
            "4000000 bytes added by all policies of the object",
        )
    }

    /// Values visited.
    pub fn visits(&mut self, field: &str, values: usize) -> Result<(), Problem> {
        let found = "too many overriders for the size of the object";
        spend(&mut self.visits, values, field, found, "1000000 values visited by all policies of the object")
    }

    /// A value that is added `above` levels below the root.
    pub fn value(&mut self, field: &str, above: usize, value: &Value) -> Result<(), Problem> {
        if above > nesting::MAX || !nesting::fits(value, nesting::MAX - above) {
            let found = format!("{} levels of nested objects and lists", above + nesting::levels(value));
            return Err(Problem::new(shown(field), found, "64 levels"));
        }
        self.bytes(field, size(value))
    }
}

fn spend(
    left: &mut usize,
    amount: usize,
    field: &str,
    found: &'static str,
    allowed: &'static str,
) -> Result<(), Problem> {
    match left.checked_sub(amount) {
        Some(rest) => {
            *left = rest;
            Ok(())
        }
        None => Err(Problem::new(shown(field), found, allowed)),
    }
}

/// A path without its end, if it is long.
fn shown(field: &str) -> &str {
    field.char_indices().nth(160).map_or(field, |(at, _)| &field[..at])
}

/// About the bytes of a value as JSON. Called for values that are not nested too deeply.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>()
        }
    }
}

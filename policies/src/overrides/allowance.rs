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
/// Values visited for one cluster.
pub(super) const VISITS_MAX: usize = 1_000_000;
/// What an overrider costs at least, in values visited.
const VISITS_OF_OPERATION: usize = 32;
/// Bytes that cost as much as a value.
const BYTES_OF_VISIT: usize = 64;

/// What the overrides of an object and of all that it depends on may still visit for one cluster. Its unit is a value of an
/// object, which an overrider reads in some 20 ns; policies, rules, overriders and bytes count as so many of them.
pub struct Visits {
    left: usize,
    used: usize,
}

impl Default for Visits {
    fn default() -> Self {
        Self::of(VISITS_MAX)
    }
}

impl Visits {
    /// So many at most.
    pub fn of(most: usize) -> Self {
        Self { left: most, used: 0 }
    }

    /// What has been used.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Takes what is left for one more cluster; [`Self::give_back`] takes account of what that has used.
    pub fn for_one(&self) -> Self {
        Self::of(self.left.min(VISITS_MAX))
    }

    pub fn give_back(&mut self, one: &Self) {
        self.left = self.left.saturating_sub(one.used);
        self.used = self.used.saturating_add(one.used);
    }
}

/// What is left.
pub(super) struct Allowance<'v> {
    operations: usize,
    bytes: usize,
    visits: &'v mut Visits,
}

impl<'v> Allowance<'v> {
    pub fn of(visits: &'v mut Visits) -> Self {
        Self { operations: OPERATIONS_MAX, bytes: BYTES_MAX, visits }
    }

    /// One more overrider or operation.
    pub fn operation(&mut self, field: &str) -> Result<(), Problem> {
        let found = "more overriders";
        spend(
            &mut self.operations,
            1,
            field,
            found,
            "1024 overriders and operations of all policies of the object",
        )?;
        self.visits(field, VISITS_OF_OPERATION)
    }

    /// Bytes added, read or written.
    pub fn bytes(&mut self, field: &str, bytes: usize) -> Result<(), Problem> {
        self.visits(field, bytes / BYTES_OF_VISIT)?;
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
        let found = "too many overriders for the size of the object and of what it depends on";
        let visits = &mut *self.visits;
        visits.used = visits.used.saturating_add(values.min(visits.left));
        spend(&mut visits.left, values, field, found, "1000000 values visited by all policies of the object")
    }

    /// A look at the whole object.
    pub fn whole(&mut self, field: &str, object: &Value) -> Result<(), Problem> {
        self.visits(field, nesting::values(object))
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

//! YAML bodies: their value, and keys that a map has twice.
//!
//! Inputs: bytes. As in the real server, the last of two keys counts, and both are named only where the client asks for it.
//! Absent on purpose: JSON, whose repeated keys have paths instead of lines (see `tree::parse`).

use crate::error::{ApiError, ApiResult};
use fleet_apiserver_cel::go_text;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Spanned};
use std::collections::HashSet;
use std::fmt;

/// Most repeated keys that are told, so that a hostile body cannot make an answer arbitrarily long.
const TOLD: usize = 100;

fn options(text: &str) -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    // Aliases may not make more of a document than its own length.
    options.alias_limits.max_total_replayed_events = text.len();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    options
}

/// Parses a body in a YAML or JSON document.
///
/// # Errors
/// 400 for what is no such document.
pub fn parse(bytes: &[u8]) -> ApiResult<Value> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| ApiError::bad_request(format!("the body is not UTF-8: {e}")))?;
    serde_saphyr::from_str_with_options(text, options(text))
        .map_err(|e| ApiError::bad_request(format!("yaml: {e}")))
}

/// The keys of a body that a map of it has twice: one text for each, with the line of its value. Nothing for what is no
/// document.
pub fn repeated(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let found: Result<Repeated, _> = serde_saphyr::from_str_with_options(text, options(text));
    found.map(|found| found.0).unwrap_or_default()
}

/// Repeated keys as one error of a YAML decoder.
pub fn as_error(repeated: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  "))
}

/// What is told of the maps of a value.
struct Repeated(Vec<String>);

impl<'de> Deserialize<'de> for Repeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk).map(Repeated)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_i128<E>(self, _: i128) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_u128<E>(self, _: u128) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut told = Vec::new();
        while let Some(Repeated(below)) = seq.next_element()? {
            add(&mut told, below);
        }
        Ok(told)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut told, mut seen) = (Vec::new(), HashSet::new());
        while let Some(key) = map.next_key::<String>()? {
            let value: Spanned<Repeated> = map.next_value()?;
            add(&mut told, value.value.0);
            if seen.contains(&key) {
                let line = value.referenced.line();
                let key = go_text::quoted(&key);
                add(&mut told, vec![format!("line {line}: key {key} already set in map")]);
            } else {
                seen.insert(key);
            }
        }
        Ok(told)
    }
}

fn add(told: &mut Vec<String>, more: Vec<String>) {
    let room = TOLD.saturating_sub(told.len());
    told.extend(more.into_iter().take(room));
}

#[cfg(test)]
mod tests;

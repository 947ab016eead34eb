//! Patterns of schemas (`pattern`), in the syntax of RE2.
//!
//! Many fields have the same pattern, and most schemas judge few objects: a pattern is compiled once for its text, when
//! the first value meets it.

use regex::Regex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// A pattern, shared by all fields that have it.
#[derive(Debug, Clone)]
pub struct Pattern(Arc<Source>);

#[derive(Debug)]
struct Source {
    text: Box<str>,
    compiled: OnceLock<Option<Regex>>,
}

static KNOWN: LazyLock<Mutex<HashMap<Box<str>, Pattern>>> = LazyLock::new(Mutex::default);
/// From here on, those that no schema has any more are forgotten.
const MOST_KNOWN: usize = 1_000;

impl Pattern {
    pub fn new(text: &str) -> Self {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = known.get(text) {
            return pattern.clone();
        }
        if known.len() >= MOST_KNOWN {
            known.retain(|_, pattern| Arc::strong_count(&pattern.0) > 1);
        }
        let pattern = Self(Arc::new(Source { text: text.into(), compiled: OnceLock::new() }));
        known.insert(text.into(), pattern.clone());
        pattern
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether it matches somewhere in the text. What is no pattern holds nothing back: a definition with one is refused.
    pub fn is_match(&self, text: &str) -> bool {
        let compiled =
            self.0.compiled.get_or_init(|| fleet_apiserver_cel::compile_pattern(&self.0.text).ok());
        compiled.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

#[cfg(test)]
mod tests;

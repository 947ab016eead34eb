//! What is wrong with a workload, and numbers of pods as they are read.

use fleet_resources::QuantityError;
use serde_json::Value;
use thiserror::Error;

/// A workload whose request cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadError {
    #[error("{path}: {source}")]
    Quantity {
        path: String,
        #[source]
        source: QuantityError,
    },
    #[error("{path}: found {found}; allowed: {allowed}")]
    Field { path: String, found: String, allowed: &'static str },
}

/// A number of pods, which every API of Kubernetes keeps in 32 bits; some templating tools write it as text.
pub(super) fn count(value: &Value, absent: i64, path: impl Fn() -> String) -> Result<i64, WorkloadError> {
    let number = match value {
        Value::Null => Some(absent),
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|n| (0..=i64::from(i32::MAX)).contains(n)).ok_or_else(|| WorkloadError::Field {
        path: path(),
        found: value.to_string(),
        allowed: "a whole number of 0 or more, at most 2147483647",
    })
}

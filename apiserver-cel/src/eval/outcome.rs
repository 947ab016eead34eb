//! What an evaluation comes to: a value, or why there is none.

use super::value::Value;

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No function takes values of these types.
    NoOverload,
    /// Anything else.
    Other(String),
}

impl Failure {
    /// What went wrong with an expression that is shown by a name or its text.
    pub fn message(&self, rule: &str) -> String {
        match self {
            Failure::NoOverload => {
                let what = "call arguments did not match a supported operator, function or macro signature";
                format!("'no such overload': {what} for rule: {rule}")
            }
            Failure::Other(why) => format!("{why} evaluating rule: {rule}"),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::NoOverload => f.write_str("no such overload"),
            Failure::Other(why) => f.write_str(why),
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Other(why)
    }
}

/// A value, or why there is none.
pub type Outcome = Result<Value, Failure>;

/// A failure with these words.
///
/// # Errors
/// Always.
pub fn failed<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Other(why.into()))
}

//! Why a field is not acceptable.

use crate::go_text;
use serde_json::Value;

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueRequired`.
    pub reason: &'static str,
    /// Human text without the field path.
    pub message: String,
    /// JSON path of the field.
    pub field: String,
}

impl Cause {
    /// A cause with the given reason, field and message.
    pub fn new(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Cause {
        Cause { reason, message: message.into(), field: field.into() }
    }

    /// A value that is not acceptable.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Cause {
        Cause::new("FieldValueInvalid", field, format!("Invalid value: {}: {why}", go_text::shown(value)))
    }

    /// A field that must be there and is not.
    pub fn required(field: impl Into<String>, why: &str) -> Cause {
        let message =
            if why.is_empty() { "Required value".to_string() } else { format!("Required value: {why}") };
        Cause::new("FieldValueRequired", field, message)
    }

    /// A change or a value that is never allowed.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Cause {
        Cause::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_as_json() {
        let labels = Cause::invalid("spec.template.metadata.labels", &json!({"app": "x"}), "why");
        assert_eq!(labels.message, "Invalid value: {\"app\":\"x\"}: why");
        assert_eq!(Cause::invalid("l", &json!(["a"]), "why").message, "Invalid value: [\"a\"]: why");
        assert!(Cause::invalid("l", &json!("a".repeat(1000)), "why").message.chars().count() < 250);
        let hidden = Cause::invalid("l", &json!("a\u{200b}"), "why");
        assert_eq!(hidden.message, "Invalid value: \"a\\u200b\": why");
    }
}

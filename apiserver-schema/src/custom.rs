//! What is wrong with a custom resource: its values, the numbers of its scale, embedded objects and lists, rules.
//!
//! Inputs: a custom resource with defaults, and for a change the one before. Order, texts and places: those of Kubernetes 1.36.
//! Absent on purpose: metadata (see `validate`), and what definitions may say (see `definition`).

use crate::resource::{Resource, ScalePaths};
use crate::values::Path;
use crate::{keyed, values};
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::go_text;
use serde_json::Value;

/// Adds what is wrong with a custom resource. Unchanged invalid parts of an object before are tolerated. `causes` has what is
/// wrong with the metadata.
pub fn check(r: &Resource, old: Option<&Value>, value: &Value, subresource: &str, causes: &mut Vec<Cause>) {
    let of_status = subresource == "status";
    if of_status {
        status(r, old, value, causes);
    } else {
        values::judge(&r.schema, value, old, &Path::Whole(""), causes);
    }
    if let Some(paths) = &r.scale {
        scale(paths, value, of_status, causes);
    }
    keyed::check(&r.schema, value, old, causes);
    let Some(rules) = &r.rules else { return };
    if causes.iter().any(blocks_rules) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        causes.push(Cause::invalid("<nil>", &Value::Null, why));
    } else {
        causes.extend(rules.broken(value, old));
    }
}

/// Rules are judged on objects of the right shape and of bounded size only.
fn blocks_rules(cause: &Cause) -> bool {
    matches!(
        cause.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

/// Judges the status alone. As the real server's, messages name places below the status.
fn status(r: &Resource, old: Option<&Value>, value: &Value, causes: &mut Vec<Cause>) {
    const KEY: &str = "status";
    let (Some(schema), Some(status)) = (r.schema.field(KEY), value.get(KEY)) else { return };
    let mut found = Vec::new();
    values::judge(schema, status, old.and_then(|old| old.get(KEY)), &Path::Whole(KEY), &mut found);
    for mut cause in found {
        if cause.field == "<nil>" {
            cause.field = KEY.into();
            for mark in ["\"", " in "] {
                let (whole, below) = (format!("{mark}{KEY}."), mark);
                cause.message = cause.message.replacen(&whole, below, 1);
            }
        } else {
            let below = cause.field.strip_prefix(KEY).unwrap_or(&cause.field);
            let below = format!(": {} in body", below.strip_prefix('.').unwrap_or(below));
            let whole = format!(": {} in body", cause.field);
            cause.message = cause.message.replacen(&whole, &below, 1);
        }
        causes.push(cause);
    }
}

/// The value at a path; None if there is nothing on the way.
///
/// # Errors
/// Something on the way is not a map.
fn nested<'v>(value: &'v Value, path: &[String]) -> Result<Option<&'v Value>, String> {
    let mut at = value;
    for (i, key) in path.iter().enumerate() {
        at = match at {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(key) {
                Some(below) => below,
                None => return Ok(None),
            },
            other => return Err(another(&path[..=i], other, "map[string]interface {}")),
        };
    }
    Ok(Some(at))
}

fn another(path: &[String], found: &Value, wanted: &str) -> String {
    format!(
        ".{} accessor error: {} is of the type {}, expected {wanted}",
        path.join("."),
        go_text::printed(found),
        go_text::type_name(found)
    )
}

/// The whole number at a path, if one is there.
///
/// # Errors
/// Something else is there.
pub fn count_at(value: &Value, path: &[String]) -> Result<Option<i64>, String> {
    let Some(found) = nested(value, path)? else { return Ok(None) };
    found.as_i64().map(Some).ok_or_else(|| another(path, found, "int64"))
}

/// The text at a path, or "".
///
/// # Errors
/// Something else is there.
pub fn text_at<'v>(value: &'v Value, path: &[String]) -> Result<&'v str, String> {
    let Some(found) = nested(value, path)? else { return Ok("") };
    found.as_str().ok_or_else(|| another(path, found, "string"))
}

/// Checks the numbers of a scale, and its selector.
fn scale(paths: &ScalePaths, value: &Value, of_status: bool, causes: &mut Vec<Cause>) {
    let mut count = |path: &[String]| {
        let field = format!(".{}", path.join("."));
        let invalid = |n: i64, why: &str| Cause::invalid(field.as_str(), &Value::from(n), why);
        causes.extend(match count_at(value, path) {
            Err(why) => Some(invalid(0, &why)),
            Ok(Some(n)) if n < 0 => Some(invalid(n, "should be a non-negative integer")),
            Ok(Some(n)) if n > i64::from(i32::MAX) => {
                Some(invalid(n, &format!("should be less than or equal to {}", i32::MAX)))
            }
            Ok(_) => None,
        });
    };
    if !of_status {
        count(&paths.spec);
    }
    count(&paths.status);
    if paths.selector.is_empty() {
        return;
    }
    if let Err(why) = text_at(value, &paths.selector) {
        let field = format!(".{}", paths.selector.join("."));
        causes.push(Cause::invalid(field, &Value::String(String::new()), &why));
    }
}

#[cfg(test)]
mod tests;

//! The identity of an object, which no override may change.
//!
//! The agent of a member applies objects with its own rights. If an override could change kind, namespace or name,
//! everybody who may write an override policy in one namespace of the hub could write anything anywhere in every
//! member. The result is checked, not the paths of the overriders, so that no notation of a path gets around the
//! check.

use serde_json::{Map, Value};

use super::path::{Path, Step};
use super::problem::Problem;
use crate::names::{is_reserved, names_a_quota, names_devices};

/// The parts of `metadata` that are content, not identity.
const CONTENT: [&str; 2] = ["labels", "annotations"];

/// Compares an object with the result of the overriders.
pub(super) fn check(before: &Value, after: &Value) -> Result<(), Problem> {
    for field in ["apiVersion", "kind"] {
        same(&format!("/{field}"), &before[field], &after[field], "the value on the hub")?;
    }
    let none = Map::new();
    let known = before["metadata"].as_object().unwrap_or(&none);
    let found = after["metadata"].as_object().unwrap_or(&none);
    for field in known.keys().chain(found.keys()).filter(|field| !CONTENT.contains(&field.as_str())) {
        let (known, found) = (known.get(field), found.get(field));
        if known != found {
            let (known, found) = (known.unwrap_or(&Value::Null), found.unwrap_or(&Value::Null));
            same(&format!("/metadata/{field}"), known, found, "the value on the hub")?;
        }
    }
    // One that is other than before or new, or else one that is gone.
    let found = changed(Some(before), after, &mut Path::default());
    match found.or_else(|| changed(Some(after), before, &mut Path::default())) {
        Some((path, name, value)) => {
            let allowed = if names_devices(name) {
                "no change: annotations with the devices of a pod are its scheduler's own"
            } else {
                "no change: labels and annotations under fleet.dev/ and those that name a quota are Fleet's own"
            };
            Err(Problem::new(&path, value, allowed))
        }
        None => Ok(()),
    }
}

fn same(path: &str, before: &Value, after: &Value, allowed: &'static str) -> Result<(), Problem> {
    if before == after { Ok(()) } else { Err(Problem::new(path, after, allowed)) }
}

/// The first reserved label or annotation, of the object or of any template in it, that the other object does not have with
/// the same value at the same place: where it stands, its name and its value. Both are walked together, and only this place
/// is written: an object may have a hundred thousand of them below a name of a megabyte.
fn changed<'v>(
    other: Option<&Value>,
    value: &'v Value,
    path: &mut Path<'v>,
) -> Option<(String, &'v str, &'v Value)> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let other = other.and_then(|other| other.get(name));
            path.push(Step::Field(name));
            let is_changed = (is_reserved(name) || names_a_quota(name)) && other != Some(value);
            let found = match is_changed {
                true => Some((path.pointer(), name.as_str(), value)),
                false => changed(other, value, path),
            };
            path.pop();
            found
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, item)| {
            path.push(Step::Item(at));
            let found = changed(other.and_then(|other| other.get(at)), item, path);
            path.pop();
            found
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marks_below_a_long_name_are_compared_without_writing_their_places() {
        let object = |last: i64| {
            let mark = |i: i64| (format!("fleet.dev/m{i}"), json!(if i == 99_999 { last } else { i }));
            let marks: Map<String, Value> = (0..100_000).map(mark).collect();
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"},
                "spec": {"n".repeat(1_000_000): [{"labels": marks}]}})
        };
        // With the place of each written out, they have 100 GB.
        assert_eq!(check(&object(1), &object(1)), Ok(()));
        let refused = |before: &Value, after: &Value| check(before, after).expect_err("a mark").field;
        let place = format!("/spec/{}/0/labels/fleet.dev~1m99999", "n".repeat(1_000_000));
        assert!(refused(&object(1), &object(2)) == place);
        let mut none = object(1);
        none["spec"] = json!({});
        assert!(refused(&none, &object(1)).ends_with("/labels/fleet.dev~1m0"), "it is new");
        assert!(refused(&object(1), &none).ends_with("/labels/fleet.dev~1m0"), "it is gone");
    }
}

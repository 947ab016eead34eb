//! The identity of an object, which no override may change.
//!
//! The agent of a member applies objects with its own rights. If an override could change kind, namespace or name,
//! everybody who may write an override policy in one namespace of the hub could write anything anywhere in every
//! member. The result is checked, not the paths of the overriders, so that no notation of a path gets around the
//! check.

use std::collections::BTreeMap;

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
    let (mut marks, mut found) = (BTreeMap::new(), BTreeMap::new());
    reserved(before, &mut Path::default(), &mut marks);
    reserved(after, &mut Path::default(), &mut found);
    let changed = found.iter().find(|(path, value)| marks.get(*path) != Some(value));
    match changed.or_else(|| marks.iter().find(|(path, _)| !found.contains_key(*path))) {
        Some((path, (name, value))) => {
            let allowed = if names_devices(name) {
                "no change: annotations with the devices of a pod are its scheduler's own"
            } else {
                "no change: labels and annotations under fleet.dev/ and those that name a quota are Fleet's own"
            };
            Err(Problem::new(path, value, allowed))
        }
        None => Ok(()),
    }
}

fn same(path: &str, before: &Value, after: &Value, allowed: &'static str) -> Result<(), Problem> {
    if before == after { Ok(()) } else { Err(Problem::new(path, after, allowed)) }
}

/// A name and its value.
type Mark<'v> = (&'v str, &'v Value);

/// Reserved labels and annotations of the object and of every template in it, by their paths.
fn reserved<'v>(value: &'v Value, path: &mut Path<'v>, found: &mut BTreeMap<String, Mark<'v>>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(Step::Field(name));
                if is_reserved(name) || names_a_quota(name) {
                    found.insert(path.pointer(), (name, value));
                }
                reserved(value, path, found);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push(Step::Item(at));
                reserved(item, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

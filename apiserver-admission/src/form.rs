//! The stored form of an object that admission changed.
//!
//! Inputs: an object and the resource as which it was written. Absent on purpose: the bodies of requests.

use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds as kinds;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::{convert, decode};
use serde_json::Value;

/// Converts an object that was changed back to the stored form, with its defaults. Fields that no schema knows are
/// dropped, and named in the report.
pub fn renormalize(base: &Base, r: &Resource, value: &mut Value) -> decode::Report {
    let mut report = decode::Report::default();
    if r.custom {
        decode::custom(&r.schema, value, &mut report);
    } else {
        decode::builtin(&r.schema, value, &mut report);
        kinds::apply(r, value);
    }
    complete(base, r, value);
    report
}

/// Defaults of the version asked for, then of the version stored.
pub fn complete(base: &Base, r: &Resource, value: &mut Value) {
    if r.custom {
        decode::defaults(&r.schema, value);
    }
    convert::to_stored(r, value);
    if r.custom && r.converts() && r.webhook.is_none() {
        let registry = base.registry.load();
        if let Some(stored) = registry.find(&r.stored_as, &r.plural) {
            decode::defaults(&stored.resource.schema, value);
        }
    }
}

/// What identifies an object is not admission's to change.
pub fn keep_identity(before: &Value, object: &mut Value) {
    keep_kind(before, object);
    for key in ["name", "namespace", "uid", "resourceVersion"] {
        let kept = tree::at(before, &["metadata", key]).cloned();
        tree::put(tree::meta(object), key, kept);
    }
}

/// Nor is the kind of what is done to an object.
pub fn keep_kind(before: &Value, object: &mut Value) {
    for key in ["apiVersion", "kind"] {
        tree::put(tree::object(object), key, before.get(key).cloned());
    }
}

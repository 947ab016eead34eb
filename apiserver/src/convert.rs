//! Between stored and served versions.
//!
//! Inputs: an object and the resource it is served as. Custom resources only change their apiVersion, and get the
//! defaults that came after them; events are stored in the core form. Absent on purpose: webhook conversion.

use crate::decode;
use crate::registry::Resource;
use serde_json::{Map, Value};

const EVENT_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(v) = map.remove(from) {
        map.insert(to.to_string(), v);
    }
}

/// From the form of the request to the stored form.
pub fn to_stored(resource: &Resource, value: &mut Value) {
    if !resource.converts() {
        return;
    }
    if let Value::Object(map) = value {
        map.insert("apiVersion".into(), resource.stored_as.as_str().into());
        if !resource.custom {
            EVENT_FIELDS.iter().for_each(|(new, core)| rename(map, new, core));
        }
    }
}

/// True when an object of this revision is not answered as it is stored: it is of another version, or older than
/// the defaults of its definition.
pub fn needed(resource: &Resource, rv: u64) -> bool {
    resource.converts() || (resource.custom && resource.schema.has_defaults && rv < resource.crd_revision)
}

/// From the stored form to the form of the request.
pub fn to_served(resource: &Resource, value: &mut Value) {
    if resource.custom && resource.schema.has_defaults {
        decode::defaults(&resource.schema, value);
    }
    if !resource.converts() {
        return;
    }
    if let Value::Object(map) = value {
        map.insert("apiVersion".into(), resource.api_version().into());
        if !resource.custom {
            EVENT_FIELDS.iter().for_each(|(new, core)| rename(map, core, new));
        }
    }
}

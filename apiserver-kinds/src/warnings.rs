//! What a client is told who writes an object that is accepted, and is likely not what was meant.
//!
//! Inputs: the object before and after. Absent on purpose: warnings of the admission wing, and those of fields that are
//! not known.

use fleet_apiserver_devices as devices;
use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::warnings;
use fleet_apiserver_registration as registration;
use fleet_apiserver_schema::resource::Resource;
use serde_json::Value;

/// What is to be said of a new or changed object, which came through this subresource.
pub fn of(r: &Resource, old: Option<&Value>, value: &Value, subresource: &str) -> Vec<String> {
    match r.group.as_str() {
        registration::GROUP | devices::GROUP if !subresource.is_empty() => Vec::new(),
        registration::GROUP => registration::warning(tree::meta_text(value, "name")).into_iter().collect(),
        devices::GROUP => devices::warning(&r.plural, value).into_iter().collect(),
        _ => warnings::of(r, old, value),
    }
}

//! Defaults of the kinds of this group, and fields that this version takes from nobody.
//!
//! Inputs: decoded objects. Absent on purpose: what may be written (see `claim`, `slice`).

use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::defaults::{Obj, inner, items};
use serde_json::{Value, json};

/// Values of attributes that are lists: a feature that is off in this version.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Fills in the defaults of an object.
pub fn defaults(plural: &str, value: &mut Value) {
    match plural {
        "resourceclaims" => claim(tree::child(value, "spec")),
        "resourceclaimtemplates" => claim(inner(tree::child(value, "spec"), "spec")),
        "resourceslices" => {
            let made = tree::meta_text(value, "creationTimestamp").to_string();
            slice(value);
            if !made.is_empty() {
                stamp(value, &made);
            }
        }
        _ => {}
    }
}

fn claim(spec: &mut Obj) {
    let Some(Value::Object(devices)) = spec.get_mut("devices") else { return };
    let asked = |request: &mut Obj| {
        tree::default_to(request, "allocationMode", "ExactCount");
        if request.get("allocationMode") == Some(&json!("ExactCount")) {
            tree::default_to(request, "count", 1);
        }
        items(request, "tolerations").for_each(|one| tree::default_to(one, "operator", "Equal"));
    };
    for request in items(devices, "requests") {
        if let Some(Value::Object(exactly)) = request.get_mut("exactly") {
            asked(exactly);
        }
        items(request, "firstAvailable").for_each(asked);
    }
}

fn slice(value: &mut Value) {
    for device in items(tree::child(value, "spec"), "devices") {
        device.remove("nodeAllocatableResourceMappings");
        let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
        for attribute in attributes.into_iter().flat_map(|map| map.values_mut()) {
            if let Value::Object(attribute) = attribute {
                attribute.retain(|key, _| !LISTS.contains(&key.as_str()));
            }
        }
    }
}

/// Fills in since when the devices of a slice are tainted, where it does not say.
pub fn stamp(slice: &mut Value, now: &str) {
    for device in items(tree::child(slice, "spec"), "devices") {
        items(device, "taints").for_each(|taint| tree::default_to(taint, "timeAdded", now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_ask_for_one_device() {
        let mut claim = json!({"spec": {"devices": {"requests": [
            {"exactly": {"tolerations": [{"key": "k"}]}},
            {"firstAvailable": [{"allocationMode": "All"}]}]}}});
        defaults("resourceclaims", &mut claim);
        let requests = &claim["spec"]["devices"]["requests"];
        let exactly = json!({"allocationMode": "ExactCount", "count": 1, "tolerations": [{"key": "k", "operator": "Equal"}]});
        assert_eq!(requests[0]["exactly"], exactly);
        assert_eq!(requests[1]["firstAvailable"], json!([{"allocationMode": "All"}]));
    }

    #[test]
    fn slices_lose_what_is_off_and_know_since_when() {
        let mut slice = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"devices": [
            {"name": "d", "attributes": {"x": {"ints": [1], "int": 1}}, "nodeAllocatableResourceMappings": {"cpu": {}},
                "taints": [{"key": "a"}, {"key": "b", "timeAdded": "2025-01-01T00:00:00Z"}]}]}});
        defaults("resourceslices", &mut slice);
        assert_eq!(
            slice["spec"]["devices"][0],
            json!({"name": "d", "attributes": {"x": {"int": 1}}, "taints": [
                {"key": "a", "timeAdded": "2026-01-01T00:00:00Z"}, {"key": "b", "timeAdded": "2025-01-01T00:00:00Z"}]})
        );
    }
}

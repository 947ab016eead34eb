//! Conversion between stored and served versions.
//!
//! Inputs: an object and the resource as which it is served. Custom resources only change their apiVersion, and get
//! defaults that were added later. Events are stored in the core form, autoscalers as v2. Absent on purpose:
//! conversion by webhooks; their objects stay in the version they have.

use crate::resource::Resource;
use crate::{canonical, decode};
use fleet_apiserver_ground::tree;
use serde_json::{Map, Value, json};

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
    if !resource.converts() || resource.webhook.is_some() {
        return;
    }
    if let Value::Object(map) = value {
        map.insert("apiVersion".into(), resource.stored_as.as_str().into());
        match resource.plural.as_str() {
            _ if resource.custom => {}
            "events" => EVENT_FIELDS.iter().for_each(|(new, core)| rename(map, new, core)),
            _ => autoscaler_to_stored(value),
        }
    }
}

/// True if an object of this revision must be converted: it has another version, or is older than the defaults of
/// its CRD.
pub fn needed(resource: &Resource, rv: u64) -> bool {
    resource.converts() || (resource.custom && resource.schema.has_defaults && rv < resource.crd_revision)
}

/// Whether an object is in another version than the one served.
pub fn is_foreign(resource: &Resource, value: &Value) -> bool {
    tree::text(value, &["apiVersion"]) != resource.api_version()
}

/// From the stored form to the form of the request.
pub fn to_served(resource: &Resource, value: &mut Value) {
    if resource.webhook.is_some() && is_foreign(resource, value) {
        return;
    }
    if resource.custom && resource.schema.has_defaults {
        decode::defaults(&resource.schema, value);
    }
    if !resource.converts() {
        return;
    }
    if let Value::Object(map) = value {
        map.insert("apiVersion".into(), resource.api_version().into());
        match resource.plural.as_str() {
            _ if resource.custom => {}
            "events" => EVENT_FIELDS.iter().for_each(|(new, core)| rename(map, core, new)),
            _ => autoscaler_to_served(value),
        }
    }
    if !resource.custom {
        canonical::complete(value);
    }
}

/// Annotations in which version v1 of an autoscaler keeps the metrics and the behavior for which it has no fields.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn is_cpu_share(metric: &Value) -> bool {
    tree::text(metric, &["resource", "name"]) == "cpu"
        && tree::at(metric, &["resource", "target", "averageUtilization"]).is_some()
}

fn take_annotation(value: &mut Value, key: &str) -> Option<Value> {
    let annotations = tree::meta(value).get_mut("annotations").and_then(Value::as_object_mut)?;
    let text = annotations.remove(key)?;
    serde_json::from_str(text.as_str()?).ok()
}

/// The share of cpu is one metric among others in v2.
fn autoscaler_to_stored(value: &mut Value) {
    let (others, behavior) = (take_annotation(value, METRICS), take_annotation(value, BEHAVIOR));
    let spec = tree::child(value, "spec");
    let mut metrics = Vec::new();
    if let Some(share) = spec.remove("targetCPUUtilizationPercentage").filter(|v| !v.is_null()) {
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": share}}}));
    }
    if let Some(Value::Array(others)) = others {
        metrics.extend(others);
    }
    if !metrics.is_empty() {
        spec.insert("metrics".into(), Value::Array(metrics));
    }
    if let Some(behavior) = behavior {
        spec.insert("behavior".into(), behavior);
    }
    if let Some(Value::Object(status)) = tree::object(value).get_mut("status")
        && let Some(share) = status.remove("currentCPUUtilizationPercentage")
    {
        status.insert(
            "currentMetrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": share}}}]),
        );
    }
}

fn autoscaler_to_served(value: &mut Value) {
    let spec = tree::child(value, "spec");
    let mut others = match spec.remove("metrics") {
        Some(Value::Array(metrics)) => metrics,
        _ => Vec::new(),
    };
    let share = others.iter().position(is_cpu_share).map(|i| others.remove(i));
    if let Some(share) = share {
        let target = tree::at(&share, &["resource", "target", "averageUtilization"]).cloned();
        tree::put(spec, "targetCPUUtilizationPercentage", target);
    }
    let behavior = spec.remove("behavior").filter(|b| !b.is_null());
    let kept = [
        (METRICS, (!others.is_empty()).then(|| Value::Array(others).to_string())),
        (BEHAVIOR, behavior.map(|b| b.to_string())),
    ];
    for (key, text) in kept {
        let Some(text) = text else { continue };
        let annotations = tree::object(tree::meta(value).entry("annotations").or_insert_with(|| json!({})));
        annotations.insert(key.into(), text.into());
    }
    if let Some(Value::Object(status)) = tree::object(value).get_mut("status") {
        let seen = status.remove("currentMetrics");
        let list = seen.as_ref().and_then(Value::as_array).into_iter().flatten();
        let share = list.filter_map(|m| tree::at(m, &["resource", "current", "averageUtilization"])).next();
        tree::put(status, "currentCPUUtilizationPercentage", share.cloned());
        status.remove("conditions");
    }
}

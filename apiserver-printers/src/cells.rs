//! Names, and cells of the core kinds that have no file of their own.

use super::text::{age, join};
use super::{pods, workloads};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const DEFAULT_INGRESS_CLASS: &[&str] = &["ingressclass.kubernetes.io/is-default-class"];
const DEFAULT_STORAGE_CLASS: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The cell of the name.
pub fn name(r: &Resource, v: &Value) -> Value {
    let marks: &[&str] = match r.plural.as_str() {
        _ if r.custom => &[],
        "ingressclasses" => DEFAULT_INGRESS_CLASS,
        "storageclasses" => DEFAULT_STORAGE_CLASS,
        _ => &[],
    };
    let name = meta_text(v, "name");
    let is_default = marks.iter().any(|mark| text(v, &["metadata", "annotations", mark]) == "true");
    json!(if is_default { format!("{name} (default)") } else { name.to_string() })
}

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    let count = |path: &[&str]| at(v, path).and_then(Value::as_object).map_or(0, |m| m.len());
    match r.plural.as_str() {
        "pods" => pods::fill(v, now, out),
        "nodes" => node(v, now, out),
        "namespaces" => out.extend([json!(text(v, &["status", "phase"])), old()]),
        "configmaps" => out.extend([json!(count(&["data"]) + count(&["binaryData"])), old()]),
        "secrets" => out.extend([json!(text(v, &["type"])), json!(count(&["data"])), old()]),
        "events" => event(v, now, out),
        "resourcequotas" => {
            let (mut requests, mut limits) = (Vec::new(), Vec::new());
            for (k, hard) in at(v, &["status", "hard"]).and_then(Value::as_object).into_iter().flatten() {
                let used = text(v, &["status", "used", k]);
                let used = if used.is_empty() { "0" } else { used };
                let item = format!("{k}: {used}/{}", hard.as_str().unwrap_or_default());
                if k.starts_with("limits.") { limits.push(item) } else { requests.push(item) }
            }
            out.extend([json!(requests.join(", ")), json!(limits.join(", ")), old()]);
        }
        "limitranges" | "roles" | "clusterroles" | "customresourcedefinitions" | "csistoragecapacities" => {
            out.push(json!(meta_text(v, "creationTimestamp")));
        }
        _ => workloads::fill(r, v, now, out),
    }
}

fn node(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let ready = list(v, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "Ready");
    let mut status = match ready.map(|c| text(c, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_string();
    if at(v, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = at(v, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .collect();
    let address = |kind: &str| {
        let hit = list(v, &["status", "addresses"]).iter().find(|a| text(a, &["type"]) == kind);
        hit.map_or("<none>", |a| text(a, &["address"]))
    };
    let info = |k: &str| match text(v, &["status", "nodeInfo", k]) {
        "" => "<unknown>",
        known => known,
    };
    let kernel = match text(v, &["status", "nodeInfo", "architecture"]) {
        "" => info("kernelVersion").to_string(),
        architecture => format!("{} ({architecture})", info("kernelVersion")),
    };
    out.extend([
        json!(status),
        join(roles.into_iter(), "<none>"),
        json!(age(meta_text(v, "creationTimestamp"), now)),
        json!(text(v, &["status", "nodeInfo", "kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]);
}

fn event(v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    // Served from either group: most fields have two names.
    let first_of = |paths: &[&[&str]]| {
        paths.iter().map(|path| text(v, path)).find(|found| !found.is_empty()).unwrap_or_default()
    };
    let object = |field: &str| first_of(&[&["involvedObject", field], &["regarding", field]]);
    let source = |field: &str| first_of(&[&["source", field], &["deprecatedSource", field]]);
    let began = first_of(&[&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]]);
    let series = at(v, &["series"]).filter(|series| series.is_object());
    let (last, count) = match series {
        Some(series) => (text(series, &["lastObservedTime"]), number(series, &["count"])),
        None => {
            let last = first_of(&[&["lastTimestamp"], &["deprecatedLastTimestamp"]]);
            let count = number(v, &["count"]).max(number(v, &["deprecatedCount"])).max(1);
            (if last.is_empty() { began } else { last }, count)
        }
    };
    let kind = object("kind").to_lowercase();
    let component = match source("component") {
        "" => first_of(&[&["reportingComponent"], &["reportingController"]]),
        component => component,
    };
    let host = match source("host") {
        "" => text(v, &["reportingInstance"]),
        host => host,
    };
    out.extend([
        json!(age(last, now)),
        json!(text(v, &["type"])),
        json!(text(v, &["reason"])),
        json!(if object("name").is_empty() { kind } else { format!("{kind}/{}", object("name")) }),
        json!(object("fieldPath")),
        json!(if host.is_empty() { component.to_string() } else { format!("{component}, {host}") }),
        json!(first_of(&[&["message"], &["note"]]).trim()),
        json!(age(began, now)),
        json!(count),
        json!(meta_text(v, "name")),
    ]);
}

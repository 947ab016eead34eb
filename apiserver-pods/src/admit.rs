//! What the default admission plugins add to a pod, or refuse.
//!
//! Inputs: pods in the stored form; ServiceAccounts in the store. Absent on purpose: volumes with tokens.

use super::classes;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use serde_json::{Map, Value, json};

/// Annotation of a copy of what a kubelet runs by itself.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
/// Labels of a node that its pods have, too.
const PLACES: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// What the default admission plugins do with a new pod: tolerations, its priority by its class, and where it is.
pub fn admit(base: &Base, value: &mut Value) -> ApiResult<()> {
    let mirror = tree::at(value, &["metadata", "annotations", MIRROR]).is_some();
    if mirror && !tree::text(value, &["spec", "serviceAccountName"]).is_empty() {
        return Err(refused(value, "a mirror pod may not reference service accounts"));
    }
    let mut sources = tree::list(value, &["spec", "volumes"])
        .iter()
        .flat_map(|volume| tree::list(volume, &["projected", "sources"]));
    if mirror && sources.any(|s| s.get("serviceAccountToken").is_some_and(|token| !token.is_null())) {
        return Err(refused(value, "a mirror pod may not use ServiceAccountToken volume projections"));
    }
    classes::prioritize(base, value)?;
    tolerate(tree::child(value, "spec"));
    let node = tree::text(value, &["spec", "nodeName"]).to_string();
    if !node.is_empty() {
        place(base, &node, value);
    }
    Ok(())
}

/// What the default admission plugins do with a changed pod: it is tolerant as before, and keeps the priority that its
/// class gave it.
pub fn admit_change(live: &Value, pod: &mut Value) {
    let spec = tree::child(pod, "spec");
    tolerate(spec);
    for key in ["priority", "preemptionPolicy"] {
        if let Some(before) = tree::at(live, &["spec", key]).cloned() {
            tree::default_to(spec, key, before);
        }
    }
}

/// A pod has the zone and the region of its node as labels.
pub fn place(base: &Base, node: &str, pod: &mut Value) {
    let Some(node) = base.store.table("/nodes").get(node) else { return };
    for key in PLACES {
        // A label may be empty, and is one all the same.
        if let Some(found) = node.at(&["metadata", "labels", key]) {
            let labels = tree::object(tree::meta(pod).entry("labels").or_insert_with(|| json!({})));
            labels.insert(key.into(), found);
        }
    }
}

pub(crate) fn refused(pod: &Value, why: &str) -> ApiError {
    ApiError::forbidden(fleet_apiserver_schema::builtins::find("", "pods"), tree::meta_text(pod, "name"), why)
}

/// The ServiceAccount plugin: a pod runs as an account that exists.
pub fn check_account(base: &Base, namespace: &str, pod: &Value) -> ApiResult<()> {
    // Copies of what a kubelet runs by itself have no account.
    if tree::at(pod, &["metadata", "annotations", MIRROR]).is_some() {
        return Ok(());
    }
    let account = tree::text(pod, &["spec", "serviceAccountName"]);
    if base.store.table("/serviceaccounts").get(&format!("{namespace}/{account}")).is_some() {
        return Ok(());
    }
    let why = format!(
        "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
    );
    Err(refused(pod, &why))
}

/// The DefaultTolerationSeconds plugin, for new and changed pods.
fn tolerate(spec: &mut Map<String, Value>) {
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            let k = tree::text(t, &["key"]);
            let e = tree::text(t, &["effect"]);
            (k == key || k.is_empty()) && (e.is_empty() || e == "NoExecute")
        };
        if !list.iter().any(covers) {
            list.push(
                json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}),
            );
        }
    }
}

/// A pod that gates hold back is born with the condition that says so.
pub fn gate(pod: &mut Value) {
    if tree::list(pod, &["spec", "schedulingGates"]).is_empty() {
        return;
    }
    let made = tree::meta_text(pod, "creationTimestamp").to_string();
    let conditions = tree::child(pod, "status").entry("conditions").or_insert_with(|| json!([]));
    if let Value::Array(list) = conditions
        && !list.iter().any(|c| tree::text(c, &["type"]) == "PodScheduled")
    {
        let mut gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "lastProbeTime": null, "message": "Scheduling is blocked due to non-empty scheduling gates"});
        if !made.is_empty() {
            tree::object(&mut gated).insert("lastTransitionTime".into(), made.into());
        }
        list.push(gated);
    }
}

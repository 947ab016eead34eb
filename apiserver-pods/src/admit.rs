//! What the default admission plugins add to a pod, or refuse.
//!
//! Inputs: pods in the stored form; ServiceAccounts in the store. Absent on purpose: volumes with tokens.

use super::classes;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use serde_json::{Map, Value, json};

/// What the default admission plugins do with a new pod: tolerations, and its priority by its class.
pub fn admit(base: &Base, value: &mut Value) -> ApiResult<()> {
    let mirror = tree::at(value, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some();
    if mirror && !tree::text(value, &["spec", "serviceAccountName"]).is_empty() {
        return Err(refused(value, "a mirror pod may not reference service accounts"));
    }
    classes::prioritize(base, value)?;
    tolerate(tree::child(value, "spec"));
    Ok(())
}

pub(crate) fn refused(pod: &Value, why: &str) -> ApiError {
    ApiError::forbidden(fleet_apiserver_schema::builtins::find("", "pods"), tree::meta_text(pod, "name"), why)
}

/// The ServiceAccount plugin: a pod runs as an account that exists.
pub fn check_account(base: &Base, namespace: &str, pod: &Value) -> ApiResult<()> {
    // Copies of what a kubelet runs by itself have no account.
    if tree::at(pod, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
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
pub fn tolerate(spec: &mut Map<String, Value>) {
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
    let conditions = tree::child(pod, "status").entry("conditions").or_insert_with(|| json!([]));
    if let Value::Array(list) = conditions
        && !list.iter().any(|c| tree::text(c, &["type"]) == "PodScheduled")
    {
        list.push(json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates"}));
    }
}

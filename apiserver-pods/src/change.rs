//! What of a pod may change, and through which endpoint.
//!
//! Inputs: the live pod and the changed one, in the stored form.

use super::resize;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use serde_json::{Value, json};

/// Checks what of a pod changes, through which endpoint.
pub fn check_change(old: Option<&Value>, pod: &Value, subresource: &str, causes: &mut Vec<Cause>) {
    if let Some(old) = old
        && old.get("spec") != pod.get("spec")
    {
        check_update(old, pod, subresource, causes);
    }
}

fn check_update(old: &Value, new: &Value, subresource: &str, causes: &mut Vec<Cause>) {
    let gated = !tree::list(old, &["spec", "schedulingGates"]).is_empty();
    let gates = tree::list(old, &["spec", "schedulingGates"]);
    if tree::list(new, &["spec", "schedulingGates"]).iter().any(|g| !gates.contains(g)) {
        let why = "only deletion is allowed, but found new scheduling gate";
        causes.push(Cause::forbidden("spec.schedulingGates", why));
    }
    check_tolerations(old, new, causes);
    if gated {
        check_tightened(old, new, causes);
    }
    let deadline = |pod| tree::at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64);
    match (deadline(old), deadline(new)) {
        (Some(before), Some(now)) if now > before => {
            let why = "must be less than or equal to previous value";
            causes.push(Cause::invalid("spec.activeDeadlineSeconds", &json!(now), why));
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            causes.push(Cause::invalid("spec.activeDeadlineSeconds", &Value::Null, why));
        }
        _ => {}
    }
    if subresource == "resize" {
        resize::check(old, new, causes);
        return;
    }
    if subresource == "ephemeralcontainers" {
        let now = tree::list(new, &["spec", "ephemeralContainers"]);
        for before in tree::list(old, &["spec", "ephemeralContainers"]) {
            let name = tree::text(before, &["name"]);
            match now.iter().find(|c| tree::text(c, &["name"]) == name) {
                Some(c) if c == before => {}
                found => {
                    let what = if found.is_some() { "changed" } else { "removed" };
                    let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
                    causes.push(Cause::forbidden("spec.ephemeralContainers", &why));
                }
            }
        }
    }
    for key in ["containers", "initContainers"] {
        if tree::list(old, &["spec", key]).len() != tree::list(new, &["spec", key]).len() {
            // With other containers the fields cannot be compared.
            let why = "pod updates may not add or remove containers";
            causes.push(Cause::forbidden(format!("spec.{key}"), why));
            return;
        }
    }
    if frozen(old, gated, subresource) != frozen(new, gated, subresource) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
             additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
             to 1 if it was previously negative)";
        causes.push(Cause::forbidden("spec", why));
    }
}

/// Tolerations may come; those that are there stay, all but how long they hold.
fn check_tolerations(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let without_time = |t: &Value| {
        let mut t = t.clone();
        tree::object(&mut t).remove("tolerationSeconds");
        t
    };
    let now: Vec<Value> = tree::list(new, &["spec", "tolerations"]).iter().map(without_time).collect();
    if tree::list(old, &["spec", "tolerations"]).iter().any(|t| !now.contains(&without_time(t))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", why));
    }
}

/// A pod that is held by gates may be tied to fewer nodes, not to others.
fn check_tightened(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let selector = |pod| tree::at(pod, &["spec", "nodeSelector"]).and_then(Value::as_object);
    let now = selector(new);
    let kept = |(key, value): (&String, &Value)| now.and_then(|n| n.get(key)) == Some(value);
    if !selector(old).into_iter().flatten().all(kept) {
        let found = tree::at(new, &["spec", "nodeSelector"]).cloned().unwrap_or_default();
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        causes.push(Cause::invalid("spec.nodeSelector", &found, why));
    }
}

/// What of a pod's spec may not change through an endpoint.
fn frozen(pod: &Value, gated: bool, subresource: &str) -> Value {
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    let Value::Object(map) = &mut spec else { return spec };
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        map.remove(key);
    }
    if subresource == "ephemeralcontainers" {
        map.remove("ephemeralContainers");
    }
    let negative = map.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0);
    if negative {
        map.insert("terminationGracePeriodSeconds".into(), 1.into());
    }
    // Gated pods may have their scheduling constraints tightened.
    if gated {
        map.remove("affinity");
        map.remove("nodeSelector");
    }
    for key in ["containers", "initContainers"] {
        let list = map.get_mut(key).and_then(Value::as_array_mut);
        for c in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            c.remove("image");
            c.remove("imagePullPolicy");
        }
    }
    spec
}

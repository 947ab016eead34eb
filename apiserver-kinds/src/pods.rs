//! Rules of pods: what the default admission plugins add or refuse, what a pod may ask for, and what may change.
//!
//! Inputs: pods and pod templates in the stored form; PriorityClasses and ServiceAccounts in the store. Absent on purpose:
//! volumes with tokens, and the long tail of validation.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use serde_json::{Map, Value, json};

pub mod amounts;
mod resize;

pub use resize::through;

/// Table of the priority classes.
pub const CLASSES: &str = "scheduling.k8s.io/priorityclasses";
/// Greatest value of a class that is not the system's.
const HIGHEST_OF_USERS: i64 = 1_000_000_000;
/// Classes every cluster has, for what a cluster cannot do without.
pub const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// A class every cluster has, as an object.
pub fn system_class(name: &str, value: i64, description: &str) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
        "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"})
}

/// What the default admission plugins do with a new pod: tolerations, and its priority by its class.
pub fn admit(base: &Base, value: &mut Value) -> ApiResult<()> {
    let mirror = tree::at(value, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some();
    if mirror && !tree::text(value, &["spec", "serviceAccountName"]).is_empty() {
        return Err(refused(value, "a mirror pod may not reference service accounts"));
    }
    prioritize(base, value)?;
    tolerate(tree::child(value, "spec"));
    Ok(())
}

fn refused(pod: &Value, why: &str) -> ApiError {
    ApiError::forbidden(fleet_apiserver_schema::builtins::find("", "pods"), tree::meta_text(pod, "name"), why)
}

/// The Priority plugin: the class sets the priority; a pod cannot set another one.
fn prioritize(base: &Base, pod: &mut Value) -> ApiResult<()> {
    let classes = base.store.table(CLASSES);
    let named = tree::text(pod, &["spec", "priorityClassName"]).to_string();
    let class = if named.is_empty() {
        // The lowest of several defaults, as in the real server.
        let defaults =
            classes.objects().into_iter().filter(|c| c.at(&["globalDefault"]) == Some(json!(true)));
        defaults.min_by_key(|c| c.number(&["value"]))
    } else {
        let found = classes.get(&named);
        Some(found.ok_or_else(|| refused(pod, &format!("no PriorityClass with name {named} was found")))?)
    };
    let priority = class.as_ref().map_or(0, |c| c.number(&["value"]));
    let preempts = class.as_ref().map(|c| c.text(&["preemptionPolicy"])).filter(|p| !p.is_empty());
    let preempts = preempts.unwrap_or_else(|| "PreemptLowerPriority".into());
    let computed = "must not be provided in pod spec; priority admission controller computed";
    let from = "from the given PriorityClass name";
    if let Some(given) =
        tree::at(pod, &["spec", "priority"]).filter(|p| !p.is_null() && **p != json!(priority))
    {
        return Err(refused(
            pod,
            &format!("the integer value of priority ({given}) {computed} {priority} {from}"),
        ));
    }
    let given = tree::text(pod, &["spec", "preemptionPolicy"]);
    if !given.is_empty() && given != preempts {
        let why = format!("the string value of PreemptionPolicy ({given}) {computed} {preempts} {from}");
        return Err(refused(pod, &why));
    }
    let spec = tree::child(pod, "spec");
    if let Some(class) = class {
        spec.insert("priorityClassName".into(), (*class.key).into());
    }
    spec.insert("priority".into(), priority.into());
    spec.insert("preemptionPolicy".into(), preempts.into());
    Ok(())
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

/// Checks a new or changed PriorityClass.
pub fn check_class(old: Option<&Value>, class: &Value, causes: &mut Vec<Cause>) {
    let (name, value) = (tree::meta_text(class, "name"), tree::number(class, &["value"]));
    let system = SYSTEM_CLASSES.iter().find(|(known, _, _)| *known == name);
    if name.starts_with("system-") && system.is_none_or(|(_, known, _)| *known != value) {
        let why = "priority class names with 'system-' prefix are reserved for system use only. error: system-prefixed classes are made by the server";
        causes.push(Cause::forbidden("metadata.name", why));
    } else if system.is_none() && value > HIGHEST_OF_USERS {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
        causes.push(Cause::forbidden("value", &why));
    }
    let policy = tree::text(class, &["preemptionPolicy"]);
    if !matches!(policy, "" | "PreemptLowerPriority" | "Never") {
        let message =
            format!("Unsupported value: {policy:?}: supported values: \"Never\", \"PreemptLowerPriority\"");
        causes.push(Cause::new("FieldValueNotSupported", "preemptionPolicy", message));
    }
    let Some(old) = old else { return };
    if tree::number(old, &["value"]) != value {
        causes.push(Cause::forbidden("value", "may not be changed in an update."));
    }
    if tree::text(old, &["preemptionPolicy"]) != policy {
        causes.push(Cause::invalid("preemptionPolicy", &json!(policy), "field is immutable"));
    }
}

/// At most one class is the default.
pub fn admit_class(base: &Base, class: &Value) -> ApiResult<()> {
    if class.get("globalDefault") != Some(&json!(true)) {
        return Ok(());
    }
    let name = tree::meta_text(class, "name");
    let classes = base.store.table(CLASSES);
    let other = classes
        .objects()
        .into_iter()
        .find(|c| *c.key != *name && c.at(&["globalDefault"]) == Some(json!(true)));
    match other {
        None => Ok(()),
        Some(other) => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                other.key
            );
            Err(ApiError::forbidden(
                fleet_apiserver_schema::builtins::find("scheduling.k8s.io", "priorityclasses"),
                name,
                &why,
            ))
        }
    }
}

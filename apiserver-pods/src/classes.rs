//! Priority classes: the system's own, the check of a class, and the priority that a class gives a pod.
//!
//! Inputs: PriorityClasses in the store; pods in the stored form.

use super::admit::refused;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use serde_json::{Value, json};

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

/// The Priority plugin: the class sets the priority; a pod cannot set another one.
pub(crate) fn prioritize(base: &Base, pod: &mut Value) -> ApiResult<()> {
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

/// Checks a new or changed PriorityClass.
pub fn check_class(old: Option<&Value>, class: &Value, causes: &mut Vec<Cause>) {
    let (name, value) = (tree::meta_text(class, "name"), tree::number(class, &["value"]));
    if name.starts_with("system-") {
        if let Some(why) = not_of_the_system(name, value, class.get("globalDefault") == Some(&json!(true))) {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            causes.push(Cause::forbidden("metadata.name", &why));
        }
    } else if value > HIGHEST_OF_USERS {
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

/// Why a class is none of the system's own.
fn not_of_the_system(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some((_, known, _)) = SYSTEM_CLASSES.iter().find(|(known, _, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if *known != value {
        return Some(format!("value of {name} PriorityClass must be {known}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
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

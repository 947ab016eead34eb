//! What of a pod may change, and through which endpoint.
//!
//! Inputs: the live pod and the changed one, in the stored form. Absent on purpose: what a pod may say at all (see
//! `spec`), and the rules of single endpoints (see `resize`, `debuggers`, `status`).

use super::admit::MIRROR;
use super::{annotations, debuggers, gated, resize, shown, status};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes, same_but};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Start of the annotations that named AppArmor profiles before there was a field.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Longest deadline: what 32 bits hold.
const LONGEST_S: i64 = i32::MAX as i64;
/// What an update of a pod may change.
const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks what of a pod changes, through which endpoint. The causes found so far are those of the pod itself.
pub fn check_change(old: Option<&Value>, pod: &Value, subresource: &str, causes: &mut Vec<Cause>) {
    let Some(old) = old else { return };
    if subresource != "resize" {
        check_annotations(old, pod, causes);
    }
    match subresource {
        "status" => status::check(old, pod, causes),
        "resize" => resize::check(old, pod, causes),
        "ephemeralcontainers" => debuggers::check(old, pod, causes),
        _ if old.get("spec") != pod.get("spec") => check_update(old, pod, causes),
        _ => {}
    }
}

/// Some annotations are those a pod was made with.
fn check_annotations(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let none = Map::new();
    let of = |pod| tree::at(pod, &["metadata", "annotations"]).and_then(Value::as_object);
    let (before, now) = (of(old).unwrap_or(&none), of(new).unwrap_or(&none));
    let mut refuse = |key: &str, what: &str| {
        let of_what = if key == MIRROR {
            "mirror pod annotation"
        } else if key.starts_with(APP_ARMOR) {
            "AppArmor annotations"
        } else {
            return;
        };
        let why = format!("may not {what} {of_what}");
        causes.push(Cause::forbidden(format!("metadata.annotations[{key}]"), &why));
    };
    for (key, value) in before {
        if now.get(key) != Some(value) {
            refuse(key, "remove or update");
        }
    }
    for key in now.keys().filter(|key| !before.contains_key(*key)) {
        refuse(key, "add");
    }
    if before == now {
        return;
    }
    // A real server looks through changed annotations once more here.
    let found = Causes::default();
    {
        let root = At::root(new, &found);
        let (meta, spec) = (root.at("metadata"), root.at("spec"));
        annotations::check(&meta.at("annotations"), &spec);
    }
    causes.extend(found.into_inner());
}

/// Containers stay as many as they are, and each has an image. False: they cannot be compared.
fn check_images(old: &Value, new: &Value, list: &str, causes: &mut Vec<Cause>) -> bool {
    let now = tree::list(new, &["spec", list]);
    if tree::list(old, &["spec", list]).len() != now.len() {
        let why = "pod updates may not add or remove containers";
        causes.push(Cause::forbidden(format!("spec.{list}"), why));
        return false;
    }
    for (i, container) in now.iter().enumerate() {
        let (image, field) = (tree::text(container, &["image"]), format!("spec.{list}[{i}].image"));
        if image.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if image.trim() != image {
            let why = "must not have leading or trailing whitespace";
            causes.push(Cause::invalid(field, &json!(image), why));
        }
    }
    true
}

/// A deadline may be set, or come nearer. False: nothing more is to be said.
fn check_deadline(old: &Value, new: &Value, causes: &mut Vec<Cause>) -> bool {
    const FIELD: &str = "spec.activeDeadlineSeconds";
    let deadline = |pod| tree::at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64);
    match (deadline(old), deadline(new)) {
        (_, Some(now)) if !(0..=LONGEST_S).contains(&now) => {
            let why = format!("must be between 0 and {LONGEST_S}, inclusive");
            causes.push(Cause::invalid(FIELD, &json!(now), &why));
            false
        }
        (Some(before), Some(now)) if now > before => {
            causes.push(Cause::invalid(FIELD, &json!(now), "must be less than or equal to previous value"));
            false
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            causes.push(Cause::invalid(FIELD, &Value::Null, why));
            true
        }
        _ => true,
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
        return;
    }
    // A real server looks through the tolerations once more, and tells what is wrong with them twice.
    let again: Vec<Cause> =
        causes.iter().filter(|c| c.field.starts_with("spec.tolerations")).cloned().collect();
    causes.extend(again);
}

/// Gates are only taken away.
fn check_gates(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let gates = |pod| tree::list(pod, &["spec", "schedulingGates"]);
    let before: Vec<&str> = gates(old).iter().map(|gate| tree::text(gate, &["name"])).collect();
    let mut added = BTreeMap::new();
    for (i, gate) in gates(new).iter().enumerate() {
        added.insert(tree::text(gate, &["name"]), i);
    }
    for (name, i) in added.iter().filter(|(name, _)| !before.contains(*name)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        causes.push(Cause::forbidden(format!("spec.schedulingGates[{i}].name"), &why));
    }
}

fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for list in ["containers", "initContainers"] {
        if !check_images(old, new, list, causes) {
            return;
        }
    }
    if !check_deadline(old, new, causes) {
        return;
    }
    check_tolerations(old, new, causes);
    check_gates(old, new, causes);
    let (Some(before), Some(Value::Object(now))) = (old.get("spec"), new.get("spec")) else { return };
    let mut rest = now.clone();
    restore(before, &mut rest);
    if !tree::list(before, &["schedulingGates"]).is_empty() {
        gated::check(before, &mut rest, causes);
    }
    let rest = Value::Object(rest);
    if !same_but(before, &rest, &[]) {
        let why = format!("{CHANGEABLE}\n{}", shown::difference(shown::SPEC, before, &rest));
        causes.push(Cause::forbidden("spec", &why));
    }
}

/// Takes back what may be changed, so that what is left shows what may not.
fn restore(before: &Value, now: &mut Map<String, Value>) {
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        tree::put(now, key, before.get(key).cloned());
    }
    for key in ["containers", "initContainers"] {
        let list = now.get_mut(key).and_then(Value::as_array_mut);
        for (container, was) in list.into_iter().flatten().zip(tree::list(before, &[key])) {
            tree::put(tree::object(container), "image", was.get("image").cloned());
        }
    }
    let grace = "terminationGracePeriodSeconds";
    let was = before.get(grace).and_then(Value::as_i64);
    if was.is_some_and(|was| was < 0) && now.get(grace).and_then(Value::as_i64) == Some(1) {
        tree::put(now, grace, before.get(grace).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(change: impl Fn(&mut Value)) -> Vec<(String, String)> {
        let old = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}],
            "terminationGracePeriodSeconds": -5, "activeDeadlineSeconds": 10,
            "tolerations": [{"key": "a", "operator": "Exists"}]}});
        let mut new = old.clone();
        change(&mut new);
        let mut causes = Vec::new();
        check_change(Some(&old), &new, "", &mut causes);
        causes.into_iter().map(|c| (c.field, c.message)).collect()
    }

    fn field(found: &[(String, String)]) -> Vec<&str> {
        found.iter().map(|(field, _)| field.as_str()).collect()
    }

    #[test]
    fn some_of_a_spec_may_be_changed() {
        let tolerations =
            json!([{"operator": "Exists"}, {"key": "a", "operator": "Exists", "tolerationSeconds": 3}]);
        for (key, value) in [
            ("containers", json!([{"name": "c", "image": "j"}])),
            ("terminationGracePeriodSeconds", json!(1)),
            ("activeDeadlineSeconds", json!(9)),
            ("tolerations", tolerations),
        ] {
            let found = told(|pod| pod["spec"][key] = value.clone());
            assert!(found.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn the_rest_may_not() {
        let found = told(|pod| pod["spec"]["terminationGracePeriodSeconds"] = json!(2));
        assert_eq!(field(&found), ["spec"]);
        assert!(found[0].1.contains("previously negative)\n@@ -"), "{found:?}");
        let found = told(|pod| pod["spec"]["containers"][0]["image"] = json!(""));
        assert_eq!(found, [("spec.containers[0].image".to_string(), "Required value".to_string())]);
        let found = told(|pod| pod["spec"]["tolerations"] = json!([]));
        assert_eq!(field(&found), ["spec.tolerations"]);
        let found = told(|pod| pod["spec"]["schedulingGates"] = json!([{"name": "b"}]));
        assert_eq!(field(&found), ["spec.schedulingGates[0].name"]);
        let found = told(|pod| pod["spec"]["activeDeadlineSeconds"] = json!(11));
        assert_eq!(field(&found), ["spec.activeDeadlineSeconds"]);
        let found = told(|pod| pod["metadata"]["annotations"] = json!({MIRROR: "x"}));
        let added = "Forbidden: may not add mirror pod annotation";
        assert_eq!(
            (found[0].0.as_str(), found[0].1.as_str()),
            ("metadata.annotations[kubernetes.io/config.mirror]", added)
        );
        // It names no node, either.
        assert_eq!(found.len(), 2, "{found:?}");
    }
}

//! Endpoints that change one part of a pod's spec: `resize` and `ephemeralcontainers`.
//!
//! Inputs: the live pod and what was sent. Absent on purpose: whether a node has room for what is asked.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use serde_json::{Value, json};

/// What may be resized.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// The live pod with that part of what was sent which the endpoint may change; the rest of it is dropped.
pub fn through(subresource: &str, live: &Value, sent: &Value) -> Value {
    let mut pod = live.clone();
    let meta = tree::meta(&mut pod);
    for key in ["name", "namespace", "uid", "resourceVersion"] {
        tree::put(meta, key, tree::at(sent, &["metadata", key]).cloned());
    }
    let spec = tree::child(&mut pod, "spec");
    let part = |key: &str| tree::at(sent, &["spec", key]).cloned();
    if subresource == "ephemeralcontainers" {
        tree::put(spec, "ephemeralContainers", part("ephemeralContainers"));
        return pod;
    }
    if let Some(resources) = part("resources") {
        spec.insert("resources".into(), resources);
    }
    for list in ["containers", "initContainers"] {
        let sent = tree::list(sent, &["spec", list]);
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = tree::text(container, &["name"]).to_string();
            let Some(new) = sent.iter().find(|c| tree::text(c, &["name"]) == name) else { continue };
            for key in ["resources", "resizePolicy"] {
                tree::put(tree::object(container), key, new.get(key).cloned());
            }
        }
    }
    pod
}

/// What of a container's resources stays as it is.
fn fixed(container: &Value) -> Value {
    let mut resources = container.get("resources").cloned().unwrap_or_else(|| json!({}));
    for part in ["requests", "limits"] {
        let Some(Value::Object(map)) = resources.get_mut(part) else { continue };
        RESIZABLE.iter().for_each(|name| drop(map.remove(*name)));
        if map.is_empty() {
            tree::object(&mut resources).remove(part);
        }
    }
    resources
}

fn is_sidecar(container: &Value) -> bool {
    tree::text(container, &["restartPolicy"]) == "Always"
}

/// Checks a resize: cpu and memory of containers that go on, none of them taken away, in the same class of service.
pub fn check(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let class = |pod: &Value| pod.get("spec").and_then(Value::as_object).map(crate::defaults::qos);
    if class(old) != class(new) {
        let why = "Pod QOS Class may not change as a result of resizing";
        causes.push(Cause::invalid("spec", &json!(class(new).unwrap_or_default()), why));
    }
    if tree::text(old, &["spec", "os", "name"]) == "windows" {
        causes.push(Cause::forbidden("spec", "windows pods cannot be resized"));
    }
    let mut other = fixed(&old["spec"]) != fixed(&new["spec"]);
    for list in ["containers", "initContainers"] {
        let pairs = tree::list(old, &["spec", list]).iter().zip(tree::list(new, &["spec", list]));
        for (i, (before, now)) in pairs.enumerate() {
            let at = format!("spec.{list}[{i}].resources");
            if list == "initContainers" && !is_sidecar(before) {
                if before.get("resources") != now.get("resources") {
                    let why = "resources for non-sidecar init containers are immutable";
                    causes.push(Cause::forbidden(at, why));
                }
                continue;
            }
            other |= fixed(before) != fixed(now);
            for part in ["requests", "limits"] {
                let known = |c: &Value, name: &str| tree::at(c, &["resources", part, name]).is_some();
                if RESIZABLE.iter().any(|name| known(before, name) && !known(now, name)) {
                    let why = format!("resource {part} cannot be removed");
                    causes.push(Cause::forbidden(format!("{at}.{part}"), &why));
                }
            }
        }
    }
    if other {
        causes.push(Cause::forbidden("spec", "only cpu and memory resources are mutable"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(image: &str, resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image, "resources": resources}]}})
    }

    #[test]
    fn a_resize_changes_resources_and_nothing_else() {
        let live = pod("i", json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}));
        let mut sent = pod("other", json!({"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}));
        sent["metadata"]["labels"] = json!({"a": "b"});
        let made = through("resize", &live, &sent);
        assert_eq!(made, pod("i", json!({"limits": {"cpu": "2"}, "requests": {"cpu": "2"}})));
    }

    #[test]
    fn only_cpu_and_memory_are_resized_and_neither_is_taken_away() {
        let says = |old: Value, new: Value| {
            let mut causes = Vec::new();
            check(&pod("i", old), &pod("i", new), &mut causes);
            causes.into_iter().map(|c| c.field).collect::<Vec<_>>()
        };
        let old = json!({"limits": {"cpu": "2", "memory": "1"}, "requests": {"cpu": "1"}});
        let disk = json!({"limits": {"cpu": "2", "memory": "1", "ephemeral-storage": "1"}, "requests": {"cpu": "1"}});
        assert_eq!(says(old.clone(), disk), ["spec"]);
        assert_eq!(
            says(old.clone(), json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}})),
            ["spec.containers[0].resources.limits"]
        );
        assert!(
            says(old, json!({"limits": {"cpu": "3", "memory": "2"}, "requests": {"cpu": "1"}})).is_empty()
        );
    }
}

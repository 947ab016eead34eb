//! Endpoints that change one part of a pod's spec: `resize` and `ephemeralcontainers`; and the rules of a resize.
//!
//! Inputs: the live pod and what was sent. Absent on purpose: whether a node has room for what is asked.

use super::admit::MIRROR;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{same, same_but};
use serde_json::{Value, json};

/// What may be resized.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const LISTS: [&str; 2] = ["containers", "initContainers"];

fn names(pod: &Value, list: &str) -> Vec<String> {
    tree::list(pod, &["spec", list]).iter().map(|c| tree::text(c, &["name"]).to_string()).collect()
}

/// The live pod with that part of what was sent which the endpoint may change; the rest of it is dropped. A resize
/// that names other containers is left as it was sent: validation says what is wrong with it.
pub fn through(subresource: &str, live: &Value, sent: &Value) -> Value {
    let debugging = subresource == "ephemeralcontainers";
    let count = |pod: &Value, list: &str| tree::list(pod, &["spec", list]).len();
    if !debugging && LISTS.iter().any(|list| count(live, list) != count(sent, list)) {
        return sent.clone();
    }
    let mut pod = live.clone();
    let meta = tree::meta(&mut pod);
    for key in ["name", "namespace", "uid", "resourceVersion"] {
        tree::put(meta, key, tree::at(sent, &["metadata", key]).cloned());
    }
    let spec = tree::child(&mut pod, "spec");
    let part = |key: &str| tree::at(sent, &["spec", key]).cloned();
    if debugging {
        tree::put(spec, "ephemeralContainers", part("ephemeralContainers"));
        return pod;
    }
    tree::put(spec, "resources", part("resources"));
    for list in LISTS {
        if names(live, list) != names(sent, list) {
            tree::put(spec, list, part(list));
            continue;
        }
        let now = tree::list(sent, &["spec", list]);
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for (container, now) in containers.into_iter().flatten().zip(now) {
            for key in ["resources", "resizePolicy"] {
                tree::put(tree::object(container), key, now.get(key).cloned());
            }
        }
    }
    pod
}

/// Checks a resize: cpu and memory, none of what is there taken away, in the same class of service.
pub(crate) fn check(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let refusal = if tree::at(old, &["metadata", "annotations", MIRROR]).is_some() {
        "static pods cannot be resized"
    } else if tree::text(old, &["spec", "os", "name"]) == "windows" {
        "windows pods cannot be resized"
    } else {
        ""
    };
    if !refusal.is_empty() {
        // Nothing else is told of such a pod.
        causes.clear();
        causes.push(Cause::forbidden("[]", refusal));
        return;
    }
    check_class(old, new, causes);
    let mut statuses = tree::list(old, &["status", "containerStatuses"]).iter();
    let running = statuses.find(|s| tree::at(s, &["state", "running"]).is_some_and(|r| !r.is_null()));
    // A kubelet that can resize says what each running container has.
    if running.is_some_and(|s| s.get("resources").is_none_or(Value::is_null)) {
        causes.push(Cause::forbidden("spec", "Pod running on node without support for resize"));
    }
    check_whole(&old["spec"], &new["spec"], causes);
    if !check_order(old, new, causes) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (i, (before, now)) in pairs(old, new, list) {
            for part in ["requests", "limits"] {
                if removed(before.get("resources"), now.get("resources"), part) {
                    let field = format!("spec.{list}[{i}].resources.{part}");
                    causes.push(Cause::forbidden(field, &format!("resource {part} cannot be removed")));
                }
            }
        }
    }
    for (_, (before, now)) in pairs(old, new, "containers") {
        if !only_resized(before, now) {
            causes.push(Cause::forbidden("spec", "only cpu and memory resources are mutable"));
        }
    }
    for (i, (before, now)) in pairs(old, new, "initContainers") {
        check_init(before, now, &format!("spec.initContainers[{i}]"), causes);
    }
    let compared = ["containers", "initContainers", "resources"];
    if causes.is_empty() && !same_but(&old["spec"], &new["spec"], &compared) {
        causes.push(Cause::forbidden("spec", "only cpu and memory resources are mutable"));
    }
}

fn pairs<'a>(
    old: &'a Value,
    new: &'a Value,
    list: &str,
) -> impl Iterator<Item = (usize, (&'a Value, &'a Value))> + use<'a> {
    tree::list(old, &["spec", list]).iter().zip(tree::list(new, &["spec", list])).enumerate()
}

fn check_class(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let computed = |pod: &Value| pod.get("spec").and_then(Value::as_object).map_or("", crate::defaults::qos);
    let known = tree::text(old, &["status", "qosClass"]);
    let before = if known.is_empty() { computed(old) } else { known };
    if before != computed(new) {
        let why = "Pod QOS Class may not change as a result of resizing";
        causes.push(Cause::invalid("spec", &json!(known), why));
    }
}

/// Containers are resized as they stand: none comes, goes, or changes its place or name.
fn check_order(old: &Value, new: &Value, causes: &mut Vec<Cause>) -> bool {
    let told = causes.len();
    for list in LISTS {
        let (before, now) = (names(old, list), names(new, list));
        if before.len() != now.len() {
            let why = format!("{list} may not be added or removed on resize");
            causes.push(Cause::forbidden(format!("spec.{list}"), &why));
            continue;
        }
        for (i, _) in before.iter().zip(&now).enumerate().filter(|(_, (before, now))| before != now) {
            let why = format!("{list} may not be renamed or reordered on resize");
            causes.push(Cause::forbidden(format!("spec.{list}[{i}].name"), &why));
        }
    }
    causes.len() == told
}

/// True if a list of amounts lacks one that it had.
fn removed(before: Option<&Value>, now: Option<&Value>, part: &str) -> bool {
    let had = before.and_then(|r| r.get(part)).and_then(Value::as_object);
    let has = now.and_then(|r| r.get(part)).and_then(Value::as_object);
    had.is_some_and(|had| had.keys().any(|name| has.is_none_or(|has| !has.contains_key(name))))
}

/// True if a list of amounts is the same but for cpu and memory.
fn same_rest(before: &Value, now: &Value, part: &str) -> bool {
    let of = |resources: &Value| resources.get(part).cloned().unwrap_or_default();
    same_but(&of(before), &of(now), &RESIZABLE)
}

/// True if nothing of a container changes but its cpu and memory. One that has claims is not resized at all.
fn only_resized(before: &Value, now: &Value) -> bool {
    let none = Value::Null;
    let of = |container: &'_ Value| container.get("resources").cloned().unwrap_or_default();
    let (was, is) = (of(before), of(now));
    same_but(before, now, &["resources"])
        && same_rest(&was, &is, "limits")
        && same_rest(&was, &is, "requests")
        && same(was.get("claims").unwrap_or(&none), &none)
}

fn check_init(before: &Value, now: &Value, field: &str, causes: &mut Vec<Cause>) {
    if !only_resized(before, now) {
        let why = "only cpu and memory resources for init or sidecar containers are mutable";
        causes.push(Cause::forbidden(field, why));
    }
    if tree::text(now, &["restartPolicy"]) == "Always" || same_but(before, now, &[]) {
        return;
    }
    for policy in tree::list(now, &["resizePolicy"]) {
        if tree::text(policy, &["restartPolicy"]) == "RestartContainer" {
            let why =
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            causes.push(Cause::forbidden(field, why));
        }
    }
}

/// Checks the amounts of the pod as a whole, if it has any.
fn check_whole(before: &Value, now: &Value, causes: &mut Vec<Cause>) {
    let stated = |spec: &Value| {
        let amounts = |part| tree::at(spec, &["resources", part]).and_then(Value::as_object);
        ["requests", "limits"].into_iter().any(|part| amounts(part).is_some_and(|list| !list.is_empty()))
    };
    if !stated(before) && !stated(now) {
        return;
    }
    let of = |spec: &Value| spec.get("resources").filter(|r| !r.is_null()).cloned();
    let (was, is) = (of(before), of(now));
    if was.is_some() && is.is_none() {
        causes.push(Cause::forbidden("spec.resources", "pod-level resources cannot be removed"));
        return;
    }
    for part in ["requests", "limits"] {
        if removed(was.as_ref(), is.as_ref(), part) {
            let why = format!("pod-level resource {part} cannot be removed");
            causes.push(Cause::forbidden(format!("spec.resources.{part}"), &why));
        }
    }
    let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
    let same_claims =
        same(was.get("claims").unwrap_or(&Value::Null), is.get("claims").unwrap_or(&Value::Null));
    if !same_claims || !same_rest(&was, &is, "limits") || !same_rest(&was, &is, "requests") {
        causes.push(Cause::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(image: &str, resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image, "resources": resources}]}})
    }

    fn told(old: &Value, new: &Value) -> Vec<(String, String)> {
        let mut causes = Vec::new();
        check(old, new, &mut causes);
        causes.into_iter().map(|c| (c.field, c.message)).collect()
    }

    fn one(field: &str, why: &str) -> [(String, String); 1] {
        [(field.to_string(), format!("Forbidden: {why}"))]
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
        let says = |old: Value, new: Value| told(&pod("i", old), &pod("i", new));
        let old = json!({"limits": {"cpu": "2", "memory": "1"}, "requests": {"cpu": "1"}});
        let disk = json!({"limits": {"cpu": "2", "memory": "1", "ephemeral-storage": "1"}, "requests": {"cpu": "1"}});
        let mutable = "only cpu and memory resources are mutable";
        assert_eq!(says(old.clone(), disk), one("spec", mutable));
        assert_eq!(
            says(old.clone(), json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}})),
            one("spec.containers[0].resources.limits", "resource limits cannot be removed")
        );
        assert!(
            says(old, json!({"limits": {"cpu": "3", "memory": "2"}, "requests": {"cpu": "1"}})).is_empty()
        );
    }

    #[test]
    fn containers_keep_their_places() {
        let two =
            |names: [&str; 2]| json!({"spec": {"containers": [{"name": names[0]}, {"name": names[1]}]}});
        let why = "containers may not be added or removed on resize";
        let one_container = json!({"spec": {"containers": [{"name": "a"}]}});
        let sent = through("resize", &two(["a", "b"]), &one_container);
        assert_eq!(told(&two(["a", "b"]), &sent), one("spec.containers", why));
        let sent = through("resize", &two(["a", "b"]), &two(["b", "a"]));
        let fields: Vec<String> = told(&two(["a", "b"]), &sent).into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["spec.containers[0].name", "spec.containers[1].name"]);
    }

    #[test]
    fn some_pods_are_not_resized() {
        let mut old = pod("i", json!({"requests": {"cpu": "1"}}));
        let new = pod("i", json!({"requests": {"cpu": "2"}}));
        old["status"] = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
        assert_eq!(told(&old, &new), one("spec", "Pod running on node without support for resize"));
        old["status"]["containerStatuses"][0]["resources"] = json!({});
        assert!(told(&old, &new).is_empty());
        old["spec"]["os"] = json!({"name": "windows"});
        assert_eq!(told(&old, &new), one("[]", "windows pods cannot be resized"));
        old["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert_eq!(told(&old, &new), one("[]", "static pods cannot be resized"));
        let mut classed = pod("i", json!({"requests": {"cpu": "1"}}));
        classed["status"] = json!({"qosClass": "BestEffort"});
        let why = "Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing";
        assert_eq!(told(&classed, &new), [("spec".to_string(), why.to_string())]);
    }

    #[test]
    fn what_a_pod_has_as_a_whole_is_resized_too() {
        let whole =
            |resources: Value| json!({"spec": {"resources": resources, "containers": [{"name": "c"}]}});
        let old = whole(json!({"requests": {"cpu": "1"}}));
        assert!(told(&old, &whole(json!({"requests": {"cpu": "2"}}))).is_empty());
        let gone = told(&old, &whole(Value::Null));
        assert!(
            gone.contains(&one("spec.resources", "pod-level resources cannot be removed")[0]),
            "{gone:?}"
        );
        let pages = told(&old, &whole(json!({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}})));
        assert_eq!(pages, one("spec", "only cpu and memory resources are mutable at pod-level"));
    }
}

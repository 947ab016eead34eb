//! What a pod requests, or may use, in all.
//!
//! Inputs: the spec of a pod, defaults applied. The rule itself is `fleet_resources::PodSum`. What cannot be read
//! counts as nothing, because validation has refused it.

use fleet_apiserver_ground::tree;
use fleet_resources::{PodSum, Resources, pod::is_of_whole_pod, quantity};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// One of the two lists of amounts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Requests,
    Limits,
}

impl Part {
    fn key(self) -> &'static str {
        match self {
            Part::Requests => "requests",
            Part::Limits => "limits",
        }
    }

    fn of(self, owner: &Value) -> impl Iterator<Item = (&String, &Value)> {
        tree::at(owner, &["resources", self.key()]).and_then(Value::as_object).into_iter().flatten()
    }
}

/// All names, or only one.
fn vector<'a>(amounts: impl Iterator<Item = (&'a String, &'a Value)>, only: Option<&str>) -> Resources {
    let read = |(name, value): (&'a String, &'a Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        Some((name.as_str(), quantity::parse(name, &text).ok()?))
    };
    Resources::from_pairs(amounts.filter(|(name, _)| only.is_none_or(|only| only == *name)).filter_map(read))
}

fn sum(spec: &Value, part: Part, only: Option<&str>) -> PodSum {
    let mut sum = PodSum::default();
    for container in tree::list(spec, &["containers"]) {
        sum.container(&vector(part.of(container), only));
    }
    for container in tree::list(spec, &["initContainers"]) {
        let amounts = vector(part.of(container), only);
        match tree::text(container, &["restartPolicy"]) {
            "Always" => sum.sidecar(&amounts),
            _ => sum.init(&amounts),
        }
    }
    sum
}

/// What the containers ask for, whatever the pod as a whole does.
pub fn of_containers(spec: &Value, part: Part) -> Resources {
    sum(spec, part, None).of_containers()
}

/// How much of one resource the pod asks for, with its overhead.
pub fn of_pod(spec: &Value, part: Part, name: &str) -> i64 {
    let (sum, of_pod) = (sum(spec, part, Some(name)), vector(part.of(spec), Some(name)));
    let overhead = spec.get("overhead").and_then(Value::as_object).into_iter().flatten();
    let overhead = vector(overhead, Some(name));
    let all = match part {
        Part::Requests => sum.requests(&of_pod, &overhead),
        Part::Limits => sum.limits(&of_pod, &overhead),
    };
    all.get(name)
}

/// What the pod requests of a resource and what there is of it, if that is less.
pub fn beyond(spec: &Value, name: &str, most: &str) -> Option<(i64, i64)> {
    let requested = of_pod(spec, Part::Requests, name);
    let most = quantity::parse(name, most).unwrap_or(0);
    (requested > most).then_some((requested, most))
}

/// What the pod asks for without its overhead, by each name it states, also where that is nothing.
pub fn stated(spec: &Value, part: Part) -> Vec<(&str, i64)> {
    let amounts = sum(spec, part, None).without_overhead(&vector(part.of(spec), None));
    let lists = ["containers", "initContainers"].map(|list| tree::list(spec, &[list]));
    let owners = lists.into_iter().flatten().chain([spec]);
    let names: BTreeSet<&str> = owners.flat_map(|o| part.of(o)).map(|(name, _)| name.as_str()).collect();
    names.into_iter().map(|name| (name, amounts.get(name))).collect()
}

/// True if the pod as a whole asks for something.
pub fn is_whole(spec: &Map<String, Value>) -> bool {
    let amounts = |part: &str| spec.get("resources").and_then(|r| r.get(part)).and_then(Value::as_object);
    let mut lists = ["requests", "limits"].into_iter().filter_map(amounts);
    lists.any(|list| list.keys().any(|name| is_of_whole_pod(name)))
}

/// Requests of the pod as a whole that are not written: the containers' sum, or the limit of what none of them asks
/// for.
pub(crate) fn fill(spec: &mut Value) {
    if !spec.as_object().is_some_and(is_whole) {
        return;
    }
    let mut defaults: Map<String, Value> =
        Part::Limits.of(spec).map(|(n, v)| (n.clone(), v.clone())).collect();
    for (name, amount) in of_containers(spec, Part::Requests).iter() {
        if matches!(name.as_str(), "cpu" | "memory") {
            defaults.insert(name.to_string(), quantity::format(name.as_str(), amount).into());
        }
    }
    let resources = tree::child(spec, "resources");
    let requests = tree::object(resources.entry("requests").or_insert_with(|| json!({})));
    for (name, amount) in defaults {
        requests.entry(name).or_insert(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_whole_pod_default_to_the_containers_or_the_limits() {
        let check = |resources: Value, want: Value| {
            let container = json!({"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}});
            let mut spec = json!({"containers": [container.clone(), container], "resources": resources});
            fill(&mut spec);
            assert_eq!(spec["resources"]["requests"], want);
        };
        check(json!({}), Value::Null);
        check(json!({"limits": {"cpu": "4", "memory": "1Gi"}}), json!({"cpu": "2", "memory": "1Gi"}));
        check(json!({"limits": {"cpu": "4"}, "requests": {"cpu": "3"}}), json!({"cpu": "3"}));
        check(json!({"requests": {"memory": "1Gi"}}), json!({"cpu": "2", "memory": "1Gi"}));
    }

    #[test]
    fn what_is_requested_may_be_more_than_there_is() {
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": "2"}}}]});
        assert_eq!(beyond(&spec, "cpu", "1500m"), Some((2000, 1500)));
        assert_eq!(beyond(&spec, "cpu", "2"), None);
        assert_eq!(beyond(&spec, "memory", ""), None);
    }

    #[test]
    fn what_is_stated_counts_also_where_it_is_nothing() {
        let spec = json!({"containers": [{"resources": {"limits": {"cpu": "0"}}}],
            "initContainers": [{"restartPolicy": "Always", "resources": {"limits": {"memory": "1"}}}],
            "resources": {"limits": {"memory": "5"}}, "overhead": {"memory": "1"}});
        assert_eq!(stated(&spec, Part::Limits), [("cpu", 0), ("memory", 5)]);
        assert_eq!((of_pod(&spec, Part::Limits, "memory"), of_pod(&spec, Part::Requests, "memory")), (6, 1));
    }
}

//! What a pod asks for, as Kubernetes counts it (`PodRequests` of `k8s.io/component-helpers/resource`): the
//! containers that run side by side, or an init container with the sidecars before it where that is more, and the
//! runtime's overhead. A request that is not written is the limit.

use fleet_resources::{Resources, quantity};
use serde_json::Value;

/// What the spec of a pod asks for in all.
pub(super) fn of_pod(spec: &Value) -> Resources {
    let mut side_by_side = Resources::new();
    for container in list(&spec["containers"]) {
        side_by_side.add(&of_container(container));
    }
    let mut sidecars = Resources::new();
    let mut at_start = Resources::new();
    for container in list(&spec["initContainers"]) {
        let asked = of_container(container);
        if container["restartPolicy"] == "Always" {
            sidecars.add(&asked);
            at_start.raise_to(&sidecars);
        } else {
            at_start.raise_to(&asked.plus(&sidecars));
        }
    }
    let mut asked = side_by_side.plus(&sidecars);
    asked.raise_to(&at_start);
    // Requests of the pod as a whole stand for what its containers say.
    for (name, amount) in of_container(spec).iter() {
        asked.set(name.clone(), amount);
    }
    asked.plus(&amounts(&spec["overhead"]))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn of_container(container: &Value) -> Resources {
    let mut asked = amounts(&container["resources"]["limits"]);
    for (name, amount) in amounts(&container["resources"]["requests"]).iter() {
        asked.set(name.clone(), amount);
    }
    asked
}

/// Resource amounts of an object; what cannot be read counts as nothing.
pub fn amounts(map: &Value) -> Resources {
    let mut found = Resources::new();
    for (name, value) in map.as_object().into_iter().flatten() {
        found.set(name.as_str(), amount(name, value));
    }
    found
}

pub(super) fn amount(name: &str, value: &Value) -> i64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    quantity::parse(name, &text).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn asks(spec: Value, expected: &[(&str, i64)]) {
        let asked = of_pod(&spec);
        let mut all = Resources::new();
        for (name, amount) in expected {
            all.set(*name, *amount);
        }
        assert_eq!(asked, all, "{spec}");
    }

    fn container(gpus: u64) -> Value {
        json!({"resources": {"requests": {"nvidia.com/gpu": gpus}}})
    }

    fn sidecar(gpus: u64) -> Value {
        json!({"restartPolicy": "Always", "resources": {"requests": {"nvidia.com/gpu": gpus}}})
    }

    #[test]
    fn containers_init_containers_and_sidecars_count_as_they_run() {
        const GPU: &str = "nvidia.com/gpu";
        asks(json!({"containers": [container(1), container(2)]}), &[(GPU, 3)]);
        // An init container runs before the others, so the larger counts.
        asks(json!({"containers": [container(1)], "initContainers": [container(8)]}), &[(GPU, 8)]);
        asks(
            json!({"containers": [container(4)], "initContainers": [container(3), container(2)]}),
            &[(GPU, 4)],
        );
        // A sidecar runs beside the containers, and beside the init containers that follow it.
        asks(json!({"containers": [container(4)], "initContainers": [sidecar(2)]}), &[(GPU, 6)]);
        asks(
            json!({"containers": [container(1)], "initContainers": [sidecar(2), container(5)]}),
            &[(GPU, 7)],
        );
        asks(
            json!({"containers": [container(1)], "initContainers": [container(5), sidecar(2)]}),
            &[(GPU, 5)],
        );
    }

    #[test]
    fn limits_overhead_and_the_pods_own_requests_count() {
        let limited =
            json!({"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "2"}, "requests": {"cpu": "1"}}});
        asks(json!({"containers": [limited]}), &[("nvidia.com/gpu", 2), ("cpu", 1000)]);
        let overhead =
            json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}], "overhead": {"cpu": "250m"}});
        asks(overhead, &[("cpu", 1250)]);
        let whole = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}],
            "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}});
        asks(whole, &[("cpu", 5000)]);
    }
}

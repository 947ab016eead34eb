//! The status patches a hollow kubelet writes, one per transition: pure functions of a pod and a time.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::{Container, Pod, RESIZE_PENDING};
use fleet_simulator::run_plan::Ending;

/// Kubernetes times have whole seconds.
pub fn time_text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Pending to Running.
pub fn running(pod: &Pod, node_index: usize, at: Timestamp) -> Value {
    let now = time_text(at);
    let host_ip = host_ip(node_index);
    let pod_ip = pod_ip(pod.uid());
    let mut patch = json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": "Running",
            "conditions": conditions(pod, &now, true, None),
            "hostIP": host_ip,
            "hostIPs": [{"ip": host_ip}],
            "podIP": pod_ip,
            "podIPs": [{"ip": pod_ip}],
            "startTime": now,
            "observedGeneration": pod.metadata.generation,
            "containerStatuses": pod.spec.containers.iter().map(|container| {
                container_status(pod, container, true, json!({"running": {"startedAt": now}}))
            }).collect::<Vec<_>>(),
        },
    });
    if !pod.spec.init_containers.is_empty() {
        patch["status"]["initContainerStatuses"] = init_statuses(pod, &now, &now, true).into();
    }
    patch
}

/// Running to Succeeded or Failed.
pub fn finished(pod: &Pod, ending: Ending, at: Timestamp) -> Value {
    let now = time_text(at);
    let (phase, exit_code, reason) = match ending {
        Ending::Succeeds => ("Succeeded", 0, "Completed"),
        Ending::Fails => ("Failed", 1, "Error"),
    };
    let started = pod.status.start_time.clone().unwrap_or_else(|| now.clone());
    let mut patch = json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": phase,
            "conditions": conditions(pod, &now, false, Some(match ending {
                Ending::Succeeds => "PodCompleted",
                Ending::Fails => "PodFailed",
            })),
            "containerStatuses": pod.spec.containers.iter().map(|container| {
                container_status(pod, container, false, json!({"terminated": {
                    "exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}}))
            }).collect::<Vec<_>>(),
        },
    });
    // Sidecars end after the containers they served.
    if pod.spec.init_containers.iter().any(Container::is_sidecar) {
        patch["status"]["initContainerStatuses"] = init_statuses(pod, &started, &now, false).into();
    }
    patch
}

/// A running pod gets what its spec asks for now, at once, or says that its node lacks something for that. `standing` is
/// its status, `version` that of the pod with this status. None for a pod that no longer runs.
pub fn resized(
    pod: &Pod,
    standing: &Value,
    version: Option<&str>,
    short: Option<&str>,
    at: Timestamp,
) -> Option<Value> {
    if standing["phase"] != "Running" {
        return None;
    }
    let now = time_text(at);
    let list = |field: &str| standing[field].as_array().cloned().unwrap_or_default();
    let (mut pending, mut conditions): (Vec<Value>, Vec<Value>) =
        list("conditions").into_iter().partition(|condition| condition["type"] == RESIZE_PENDING);
    let mut status = json!({"observedGeneration": pod.metadata.generation});
    if let Some(short) = short {
        let since = pending.pop().map_or_else(|| json!(now), |mut known| known["lastTransitionTime"].take());
        conditions.push(json!({"type": RESIZE_PENDING, "status": "True", "reason": "Deferred",
            "message": format!("Node didn't have enough resource: {short}"), "lastProbeTime": null,
            "lastTransitionTime": since, "observedGeneration": pod.metadata.generation}));
    } else {
        for (field, containers) in [
            ("containerStatuses", &pod.spec.containers),
            ("initContainerStatuses", &pod.spec.init_containers),
        ] {
            let mut statuses = list(field);
            for status in &mut statuses {
                if let Some(container) = containers.iter().find(|container| status["name"] == container.name)
                {
                    resize(status, container, &now);
                }
            }
            if !statuses.is_empty() {
                status[field] = statuses.into();
            }
        }
    }
    status["conditions"] = conditions.into();
    Some(json!({"metadata": {"uid": pod.uid(), "resourceVersion": version}, "status": status}))
}

/// Writes what a container has now into its status. Some resources change only by a restart.
fn resize(status: &mut Value, container: &Container, now: &str) {
    let before = status["resources"].take();
    let differs = |resource: &Value| {
        let name = resource.as_str().unwrap_or_default();
        ["requests", "limits"].iter().any(|part| before[*part][name] != container.resources[*part][name])
    };
    let restarts = container
        .resize_policy
        .iter()
        .any(|policy| policy["restartPolicy"] == "RestartContainer" && differs(&policy["resourceName"]));
    if restarts && status["state"]["running"].is_object() {
        let started = status["state"]["running"]["startedAt"].take();
        status["lastState"] = json!({"terminated": {"exitCode": 137, "reason": "Error", "startedAt": started,
            "finishedAt": now, "containerID": status["containerID"]}});
        status["state"] = json!({"running": {"startedAt": now}});
        status["restartCount"] = (status["restartCount"].as_i64().unwrap_or_default() + 1).into();
    }
    allocate(status, container);
}

/// A container has what its spec asks for. A server takes a resize only where a kubelet says so.
fn allocate(status: &mut Value, container: &Container) {
    let requests = &container.resources["requests"];
    status["resources"] =
        if container.resources.is_object() { container.resources.clone() } else { json!({}) };
    if requests.as_object().is_some_and(|requests| !requests.is_empty()) {
        status["allocatedResources"] = requests.clone();
    }
}

/// Pending to Failed: the node lacks resources for it.
pub fn refused(pod: &Pod, short: &str) -> Value {
    json!({
        "metadata": {"uid": pod.uid()},
        "status": {"phase": "Failed", "reason": format!("OutOf{short}"),
            "message": format!("Pod was rejected: Node didn't have enough resource: {short}")},
    })
}

/// Init containers have completed; sidecars among them run as long as the pod does.
fn init_statuses(pod: &Pod, started: &str, now: &str, running: bool) -> Vec<Value> {
    let status = |container: &Container| {
        if running && container.is_sidecar() {
            return container_status(pod, container, true, json!({"running": {"startedAt": started}}));
        }
        let completed =
            json!({"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now});
        container_status(pod, container, false, json!({"terminated": completed}))
    };
    pod.spec.init_containers.iter().map(status).collect()
}

/// The four conditions of a kubelet. A condition whose status does not change keeps its transition time.
fn conditions(pod: &Pod, now: &str, ready: bool, reason: Option<&str>) -> Vec<Value> {
    let wanted =
        [("PodScheduled", true), ("Initialized", true), ("ContainersReady", ready), ("Ready", ready)];
    let mut all: Vec<Value> = wanted
        .into_iter()
        .map(|(kind, is_true)| {
            let status = if is_true { "True" } else { "False" };
            let standing = pod.status.conditions.iter().find(|condition| condition["type"] == kind);
            if let Some(standing) = standing.filter(|condition| condition["status"] == status) {
                return standing.clone();
            }
            let mut condition = json!({
                "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now});
            if let (false, Some(reason)) = (is_true, reason) {
                condition["reason"] = reason.into();
            }
            condition
        })
        .collect();
    let others = pod
        .status
        .conditions
        .iter()
        .filter(|condition| !wanted.iter().any(|(kind, _)| condition["type"] == *kind));
    all.extend(others.cloned());
    all
}

fn container_status(pod: &Pod, container: &Container, ready: bool, state: Value) -> Value {
    let id = format!("hollow://{}/{}", pod.uid(), container.name);
    let mut status = json!({
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": id,
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    });
    allocate(&mut status, container);
    status
}

pub fn host_ip(node_index: usize) -> String {
    format!("192.168.{}.{}", (node_index / 250) % 256, node_index % 250 + 1)
}

/// An address in 10.0.0.0/8 derived from the uid, so that it is the same after a restart.
fn pod_ip(uid: &str) -> String {
    // FNV-1a: good enough for addresses that are never routed.
    let hash =
        uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [_, a, b, c] = hash.to_be_bytes();
    format!("10.{a}.{b}.{}", c.clamp(1, 254))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u-1"},
            "spec": {"nodeName": "east-node-0", "containers": [{"name": "main", "image": "busybox"}]},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "example.com/gate", "status": "True"}]},
        }))
        .expect("a pod")
    }

    #[test]
    fn a_running_pod_keeps_what_its_scheduler_wrote() {
        let at: Timestamp = "2026-01-01T00:00:05.7Z".parse().expect("a time");
        let patch = running(&pod(), 1, at);
        let status = &patch["status"];
        assert_eq!(status["startTime"], "2026-01-01T00:00:05Z");
        assert_eq!(status["hostIP"], "192.168.0.2");
        let kinds: Vec<_> = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|condition| format!("{}={}", condition["type"], condition["status"]).replace('"', ""))
            .collect();
        assert_eq!(
            kinds,
            [
                "PodScheduled=True",
                "Initialized=True",
                "ContainersReady=True",
                "Ready=True",
                "example.com/gate=True"
            ]
        );
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(status["containerStatuses"][0]["ready"], true);
    }

    fn sized(cpu: &str) -> Pod {
        let mut pod = pod();
        pod.metadata.generation = Some(2);
        pod.spec.containers[0].resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": "2"}});
        pod.spec.containers[0].resize_policy =
            vec![json!({"resourceName": "cpu", "restartPolicy": "RestartContainer"})];
        pod
    }

    #[test]
    fn a_resize_gives_a_container_what_its_spec_asks_for_now() {
        let at: Timestamp = "2026-01-01T00:00:05Z".parse().expect("a time");
        let standing = running(&sized("1"), 1, at)["status"].clone();
        let container = &standing["containerStatuses"][0];
        assert_eq!(container["allocatedResources"], json!({"cpu": "1"}));
        assert_eq!(container["resources"]["limits"], json!({"cpu": "2"}));
        let resized = |pod: &Pod, standing: &Value, short: Option<&str>| {
            super::resized(pod, standing, Some("7"), short, at).map(|patch| patch["status"].clone())
        };
        let now = resized(&sized("1500m"), &standing, None).expect("a status");
        let container = &now["containerStatuses"][0];
        assert_eq!(container["allocatedResources"], json!({"cpu": "1500m"}));
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1500m"}));
        assert_eq!((&container["restartCount"], &now["observedGeneration"]), (&json!(1), &json!(2)));
        // What does not change needs no restart.
        let same = resized(&sized("1"), &standing, None).expect("a status");
        assert_eq!(same["containerStatuses"][0]["restartCount"], 0);
        let ended = finished(&sized("1"), Ending::Succeeds, at)["status"].clone();
        assert_eq!(resized(&sized("2"), &ended, None), None);
    }

    #[test]
    fn a_resize_without_a_place_waits_and_says_so() {
        let at: Timestamp = "2026-01-01T00:00:05Z".parse().expect("a time");
        let standing = running(&sized("1"), 1, at)["status"].clone();
        let patch = resized(&sized("2"), &standing, Some("7"), Some("cpu"), at).expect("a patch");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert!(patch["status"].get("containerStatuses").is_none());
        let mut waits = sized("2");
        waits.status.phase = Some("Running".into());
        waits.status.conditions = patch["status"]["conditions"].as_array().cloned().expect("conditions");
        let pending = waits.status.conditions.last().expect("a condition");
        assert_eq!((&pending["type"], &pending["reason"]), (&json!(RESIZE_PENDING), &json!("Deferred")));
        assert!(waits.waits_for_resize());
        let mut standing = standing;
        standing["conditions"] = patch["status"]["conditions"].clone();
        let done = resized(&waits, &standing, None, None, at).expect("a patch");
        let left = done["status"]["conditions"].as_array().expect("conditions");
        assert!(left.iter().all(|condition| condition["type"] != RESIZE_PENDING), "{left:?}");
    }

    #[test]
    fn endings_carry_exit_code_and_reason() {
        let at: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let terminated = |ending| {
            finished(&pod(), ending, at)["status"]["containerStatuses"][0]["state"]["terminated"].clone()
        };
        assert_eq!(terminated(Ending::Succeeds)["reason"], "Completed");
        assert_eq!(terminated(Ending::Fails)["exitCode"], 1);
        assert_eq!(finished(&pod(), Ending::Fails, at)["status"]["phase"], "Failed");
    }
}

//! A member in a small text form, for tests of the pure parts.
//!
//! A node is `name gpus`; a pod is `namespace-less name: key=value ...` with the keys `gpu`, `gang`,
//! `size`, `component`, `reservation`, `node`, `phase`, `gate`, `uid`, `priority`, `created` and `started` (seconds).

use fleet_api::{Reservation, ReservationSpec, ReservationStatus, binding::Component, names};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{MemberState, PodKey};
use fleet_agent_ground::lean::{LeanNode, LeanPod};

pub fn state(nodes: &[&str]) -> MemberState {
    let mut state = MemberState::new(["fleet".to_owned()].into());
    for text in nodes {
        state.apply_node(&node(text));
    }
    state
}

pub fn node(text: &str) -> LeanNode {
    let (name, gpus) = text.split_once(' ').unwrap();
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "status": {"allocatable": {"nvidia.com/gpu": gpus, "pods": "10"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

pub fn key(name: &str) -> PodKey {
    PodKey { namespace: "default".into(), name: name.into() }
}

pub fn pod(text: &str) -> LeanPod {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
                     "labels": {}, "annotations": {}, "creationTimestamp": time("0")},
        "spec": {"schedulerName": "fleet", "containers": [{"resources": {"requests": {}}}]},
        "status": {"phase": "Pending"},
    });
    for pair in rest.split_whitespace() {
        let (field, value) = pair.split_once('=').unwrap();
        match field {
            "gpu" => pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = json!(value),
            "gang" => pod["metadata"]["annotations"][names::GANG_ANNOTATION] = json!(value),
            "size" => pod["metadata"]["annotations"][names::GANG_SIZE_ANNOTATION] = json!(value),
            "reservation" => pod["metadata"]["annotations"][names::RESERVATION_ANNOTATION] = json!(value),
            "cells" => pod["metadata"]["annotations"][names::ON_CELLS_ANNOTATION] = json!(value),
            "component" => pod["metadata"]["labels"][names::COMPONENT_LABEL] = json!(value),
            "node" => pod["spec"]["nodeName"] = json!(value),
            "phase" => pod["status"]["phase"] = json!(value),
            "priority" => pod["spec"]["priority"] = json!(value.parse::<i32>().unwrap()),
            "created" => pod["metadata"]["creationTimestamp"] = time(value),
            "deleting" => pod["metadata"]["deletionTimestamp"] = time(value),
            "started" => pod["status"]["startTime"] = time(value),
            "gate" => pod["spec"]["schedulingGates"] = json!([{"name": value}]),
            "uid" => pod["metadata"]["uid"] = json!(value),
            "cooldown" => pod["metadata"]["labels"]["volcano.sh/cooldown-time"] = json!(value),
            "topology" => pod["metadata"]["annotations"]["volcano.sh/network-topology-mode"] = json!(value),
            "tier" => {
                pod["metadata"]["annotations"]["volcano.sh/network-topology-highest-tier"] = json!(value)
            }
            other => panic!("unknown field {other}"),
        }
    }
    serde_json::from_value(pod).unwrap()
}

fn time(seconds: &str) -> Value {
    json!(Timestamp::from_second(seconds.parse().unwrap()).unwrap().to_string())
}

/// A hub's reservation for binding `uid`, with components `name replicas gpus`.
pub fn reservation(name: &str, uid: &str, epoch: i64, components: &[&str]) -> Reservation {
    let component = |text: &&str| {
        let mut parts = text.split(' ');
        let mut next = || parts.next().unwrap().to_owned();
        Component {
            name: next(),
            replicas: next().parse().unwrap(),
            request: [("nvidia.com/gpu".to_owned(), next())].into(),
            ..Component::default()
        }
    };
    let mut spec = ReservationSpec {
        epoch,
        components: components.iter().map(component).collect(),
        ttl_seconds: 30,
        ..ReservationSpec::default()
    };
    spec.binding.uid = uid.to_owned();
    let mut reservation = Reservation::new(name, spec);
    reservation.metadata.uid = Some(format!("hub-{name}"));
    reservation
}

pub fn status(
    phase: fleet_api::reservation::ReservationPhase,
    nodes: &[(&str, &[&str])],
) -> ReservationStatus {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    ReservationStatus {
        phase: Some(phase),
        nodes: nodes.iter().map(|(component, nodes)| ((*component).to_owned(), names(nodes))).collect(),
        ..ReservationStatus::default()
    }
}

/// `node used/pods ...`
pub fn used(state: &MemberState) -> String {
    let node = |node: &fleet_placement::Node| {
        format!("{} {}/{}", node.name, node.used.get("nvidia.com/gpu"), node.pods)
    };
    state.nodes().iter().map(node).collect::<Vec<_>>().join(", ")
}

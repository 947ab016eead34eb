//! Less common constraints of pods: pod affinity, topology spread, ports, preferences.
//!
//! Deliberately absent: namespace selectors (a term with one applies to the pod's own namespace) and volumes.

use fleet_placement::NodeSelectorTerm;
use fleet_resources::{NodeSelectorOperator, NodeSelectorRequirement};
use fleet_scheduler::{Extras, PodTerm, Port, Spread};
use serde::Deserialize;
use serde_json::Value;

use crate::numa;
use fleet_agent_ground::lean::LeanPodSpec;

const REVOCABLE_ZONE_ANNOTATION: &str = "volcano.sh/revocable-zone";

/// Parses the extras of a pod of `namespace`; `annotation` looks up its annotations.
pub fn read<'a>(
    spec: &LeanPodSpec,
    namespace: &str,
    annotation: impl Fn(&str) -> Option<&'a String>,
) -> Extras {
    let affinity = spec.affinity.as_ref();
    let list = |path: &str| {
        affinity.and_then(|affinity| affinity.pointer(path)).and_then(Value::as_array).into_iter().flatten()
    };
    let required = |kind: &str| -> Vec<PodTerm> {
        let path = format!("/{kind}/requiredDuringSchedulingIgnoredDuringExecution");
        list(&path).map(|term| pod_term(term, namespace)).collect()
    };
    let preferred = |kind: &str, sign: i64| -> Vec<(i64, PodTerm)> {
        let path = format!("/{kind}/preferredDuringSchedulingIgnoredDuringExecution");
        let weighted = |term: &Value| {
            (sign * term["weight"].as_i64().unwrap_or(0), pod_term(&term["podAffinityTerm"], namespace))
        };
        list(&path).map(weighted).collect()
    };
    let nodes = list("/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution").map(|term| {
        let preference = NodeSelectorTerm::deserialize(&term["preference"]).unwrap_or_default();
        (term["weight"].as_i64().unwrap_or(0), preference)
    });
    let mut preferred_pods = preferred("podAffinity", 1);
    preferred_pods.extend(preferred("podAntiAffinity", -1));
    Extras {
        preferred_nodes: nodes.collect(),
        affinity: required("podAffinity"),
        anti_affinity: required("podAntiAffinity"),
        preferred_pods,
        spread: spec.topology_spread_constraints.iter().map(|rule| spread(rule, namespace)).collect(),
        ports: ports(spec),
        volumes: Vec::new(),
        revocable_zone: annotation(REVOCABLE_ZONE_ANNOTATION).cloned(),
        devices: crate::devices::asks(spec),
        numa: numa::ask(spec, annotation(numa::POLICY_ANNOTATION).map(String::as_str)),
    }
}

fn ports(spec: &LeanPodSpec) -> Vec<Port> {
    let all = spec.containers.iter().flat_map(|container| &container.ports);
    all.filter_map(|port| {
        let number =
            if spec.host_network && port.host_port == 0 { port.container_port } else { port.host_port };
        let address = if port.host_ip == "0.0.0.0" { String::new() } else { port.host_ip.clone() };
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        (number > 0).then_some(Port { protocol, address, port: number })
    })
    .collect()
}

fn pod_term(term: &Value, namespace: &str) -> PodTerm {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut namespaces: Vec<String> = term["namespaces"].as_array().into_iter().flatten().map(text).collect();
    // An empty namespace selector selects all namespaces.
    let all = term["namespaceSelector"].as_object().is_some_and(|selector| {
        selector.values().all(|part| {
            part.as_object().is_none_or(|m| m.is_empty()) && part.as_array().is_none_or(Vec::is_empty)
        })
    });
    if namespaces.is_empty() && !all {
        namespaces.push(namespace.to_owned());
    }
    PodTerm {
        namespaces,
        selector: selector(&term["labelSelector"]),
        topology_key: text(&term["topologyKey"]),
    }
}

fn spread(rule: &Value, namespace: &str) -> Spread {
    Spread {
        term: PodTerm {
            namespaces: vec![namespace.to_owned()],
            selector: selector(&rule["labelSelector"]),
            topology_key: rule["topologyKey"].as_str().unwrap_or_default().to_owned(),
        },
        max_skew: rule["maxSkew"].as_i64().unwrap_or(1),
        hard: rule["whenUnsatisfiable"] != "ScheduleAnyway",
    }
}

/// A label selector as requirements. Without a selector nothing is selected.
fn selector(selector: &Value) -> Vec<NodeSelectorRequirement> {
    let Some(parts) = selector.as_object() else {
        return vec![NodeSelectorRequirement {
            key: String::new(),
            operator: NodeSelectorOperator::Exists,
            values: Vec::new(),
        }];
    };
    let labels = parts.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut found: Vec<NodeSelectorRequirement> = labels
        .map(|(key, value)| NodeSelectorRequirement {
            key: key.clone(),
            operator: NodeSelectorOperator::In,
            values: vec![value.as_str().unwrap_or_default().to_owned()],
        })
        .collect();
    let expressions = parts.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    found.extend(expressions.filter_map(|expression| NodeSelectorRequirement::deserialize(expression).ok()));
    found
}

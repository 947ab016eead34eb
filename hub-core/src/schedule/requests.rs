//! The scheduler's writes: reservations and binds.

use std::collections::BTreeMap;

use fleet_api::{
    binding::{Admission, Component, TargetCluster, TargetComponent},
    cell_places::CellGroup,
    cells::CellBinding,
};
use fleet_policies::reason::Reason;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    binding::{BindingEntry, cluster_namespace},
    events,
    options::Options,
    planner::Job,
    writes::{Target, Verb, Write},
};

/// A job's requests as it is sent to one cluster.
pub(super) struct Requests {
    pub components: Vec<Component>,
    pub cells: Vec<CellGroup>,
    pub without_cells: Vec<String>,
    pub completions: BTreeMap<String, i64>,
}

/// Requests places for the components.
pub(super) fn ask(
    entry: &BindingEntry,
    requests: Requests,
    cluster: &str,
    options: &Options,
    term: Option<i64>,
) -> Write {
    let namespace = cluster_namespace(cluster);
    let name = entry.reservation_name();
    let mut body = json!({
        "apiVersion": crate::binding::API_VERSION,
        "kind": "Reservation",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "binding": {"namespace": entry.namespace(), "name": entry.name(), "uid": entry.uid()},
            "epoch": entry.object.spec.epoch + 1,
            "components": requests.components,
            "ttlSeconds": options.reservation_ttl.as_secs(),
        },
    });
    if !requests.cells.is_empty() {
        body["spec"]["cells"] = json!(requests.cells);
        if !requests.without_cells.is_empty() {
            body["spec"]["withoutCells"] = json!(requests.without_cells);
        }
        if !requests.completions.is_empty() {
            body["spec"]["completions"] = json!(requests.completions);
        }
    }
    if let Some(topology) = &entry.object.spec.network_topology {
        body["spec"]["networkTopology"] = json!(topology);
    }
    if let Some(term) = term {
        body["spec"]["term"] = json!(term);
    }
    Write::new(Target::Reservation, &namespace, &name, Verb::Create(body))
}

/// The target of a gang: one cluster with all components.
pub(super) fn whole(components: &[Component], cluster: &str) -> Vec<TargetCluster> {
    vec![TargetCluster {
        name: cluster.to_string(),
        replicas: 0,
        components: components
            .iter()
            .map(|c| TargetComponent { name: c.name.clone(), replicas: c.replicas })
            .collect(),
    }]
}

/// What a job is admitted as. The planner's form of it is meant: its object may have changed since.
pub(super) fn admitted(job: &Job) -> Admission {
    Admission { preemptible: job.preemptible, run_time_seconds: job.runtime_ms.map(|ms| ms / 1000) }
}

/// Sets the targets and raises the epoch in one compare-and-swap. It tests the epoch and the binding that was
/// planned for, because an edit meanwhile may change the requests. `queue` is the leaf that admitted it.
pub(super) fn bind(
    entry: &BindingEntry,
    targets: Vec<TargetCluster>,
    cells: Option<CellBinding>,
    (queue, admitted): (Option<&String>, Option<Admission>),
    now: Timestamp,
) -> Write {
    let spec = &entry.object.spec;
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": entry.uid()}),
        json!({"op": "test", "path": "/metadata/generation", "value": entry.object.metadata.generation}),
        json!({"op": "test", "path": "/spec/epoch", "value": spec.epoch}),
        json!({"op": "replace", "path": "/spec/epoch", "value": spec.epoch + 1}),
        json!({"op": "add", "path": "/spec/clusters", "value": targets}),
    ];
    if let Some(cells) = cells {
        operations.push(json!({"op": "add", "path": "/spec/cells", "value": cells}));
    }
    match (queue, &spec.queue) {
        (Some(leaf), known) if known.as_ref() != Some(leaf) => {
            operations.push(json!({"op": "add", "path": "/spec/queue", "value": leaf}));
        }
        (None, Some(_)) => operations.push(json!({"op": "remove", "path": "/spec/queue"})),
        _ => {}
    }
    if let Some(admitted) = admitted {
        operations.push(json!({"op": "add", "path": "/spec/admitted", "value": admitted}));
    }
    if entry.is_suspended() {
        operations.push(json!({"op": "replace", "path": "/spec/suspension/scheduling", "value": false}));
    }
    let message = events::bound_message(&targets);
    // The event is on the object, where its owner looks; the binding shows the same.
    let (subject, reason) = (entry.object_subject(), Reason::ScheduleBindingSucceed);
    let told = events::normal(&subject, entry.source(), reason, &message, now);
    let verb = Verb::Patch(Value::Array(operations));
    Write::new(Target::Binding, entry.namespace(), entry.name(), verb).then([told])
}

/// Removes an object that is not a gang from all its clusters.
pub(super) fn withdraw(entry: &BindingEntry, why: &str, now: Timestamp) -> Write {
    let spec = &entry.object.spec;
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": entry.uid()},
        {"op": "test", "path": "/spec/epoch", "value": spec.epoch},
        {"op": "replace", "path": "/spec/epoch", "value": spec.epoch + 1},
        {"op": "add", "path": "/spec/clusters", "value": []},
    ]);
    let names: Vec<&str> = spec.clusters.iter().map(|target| target.name.as_str()).collect();
    let message = format!("taken off {}; {why}", names.join(", "));
    let told = events::warning(&entry.object_subject(), entry.source(), Reason::Drained, &message, now);
    Write::new(Target::Binding, entry.namespace(), entry.name(), Verb::Patch(operations)).then([told])
}

//! Member clusters: their hub namespace, whether they are ready, and what the rules of choice know of them.

use std::collections::BTreeMap;

use fleet_api::{
    Cluster,
    cluster::{CORDON_TAINT, ClusterTaint},
    convert, names,
};
use fleet_policies::{affinity::ClusterFacts, reason::Reason};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    options::Options,
    status::{condition, find_condition},
    world::{World, ready},
    writes::{Target, Verb, Write},
};

/// When each cluster's agent was last heard, on this process's own monotonic clock. A restarted controller
/// starts every count anew, never shorter.
#[derive(Debug)]
pub struct LeaseClock {
    started: Instant,
    heard: BTreeMap<String, Instant>,
}

impl LeaseClock {
    pub fn new(now: Instant) -> Self {
        Self { started: now, heard: BTreeMap::new() }
    }

    pub fn hear(&mut self, cluster: &str, now: Instant) {
        self.heard.insert(cluster.to_string(), now);
    }

    /// When the cluster counts as lost unless it is heard again.
    pub fn deadline(&self, cluster: &str, options: &Options) -> Instant {
        let since = self.heard.get(cluster).copied().unwrap_or(self.started);
        since + options.lease_duration + options.lease_margin
    }

    fn ever_heard(&self, cluster: &str) -> bool {
        self.heard.contains_key(cluster)
    }
}

/// Makes the cluster's namespace and keeps its condition Ready.
pub fn plan(
    world: &World,
    name: &str,
    clock: &LeaseClock,
    options: &Options,
    at: Instant,
    now: Timestamp,
) -> Vec<Write> {
    let Some(cluster) = world.clusters.get(name) else { return Vec::new() };
    let mut writes = Vec::new();
    let namespace = names::cluster_namespace(name);
    if !world.namespaces.contains(&namespace) {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        writes.push(Write::new(Target::Namespace, "", &namespace, Verb::Create(body)));
    }
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let known = find_condition(conditions, "Ready");
    let reported = cluster.status.as_ref().is_some_and(|status| status.report_sequence.is_some());
    let alive = at < clock.deadline(name, options);
    let (status, message) = match (alive, reported) {
        (true, true) if clock.ever_heard(name) || ready(cluster) => {
            ("True", "the agent renews its lease and reports capacity")
        }
        (true, _) if known.is_none() => ("Unknown", "the agent has not reported yet"),
        (true, _) => return writes,
        (false, _) => ("Unknown", "the agent has not renewed its lease in time"),
    };
    if known.is_some_and(|known| known.status == status && known.message == message) {
        return writes;
    }
    let reason = Reason::ClusterNotReady;
    let mut fresh = condition("Ready", status, reason, message, known, now);
    if status == "True" {
        fresh["reason"] = json!("ClusterReady");
    }
    let mut all: Vec<Value> = conditions.iter().filter(|c| c.type_ != "Ready").map(|c| json!(c)).collect();
    all.insert(0, fresh);
    writes.push(Write::new(
        Target::Cluster,
        "",
        name,
        Verb::MergeStatus(json!({"status": {"conditions": all}})),
    ));
    writes
}

/// What the rules of cluster choice know of a cluster.
pub fn facts(cluster: &Cluster) -> ClusterFacts {
    let spec = &cluster.spec;
    ClusterFacts {
        name: cluster.name_any(),
        labels: cluster.labels().clone(),
        provider: spec.provider.clone().unwrap_or_default(),
        region: spec.region.clone().unwrap_or_default(),
        zones: spec.zones.clone(),
        taints: spec.taints.iter().filter(|t| t.key != CORDON_TAINT).filter_map(taint).collect(),
        ready: ready(cluster) && cluster.metadata.deletion_timestamp.is_none(),
        unschedulable: spec.taints.iter().any(|t| t.key == CORDON_TAINT),
    }
}

/// `NoSelect` keeps new work away as `NoSchedule` does.
fn taint(taint: &ClusterTaint) -> Option<fleet_placement::Taint> {
    if taint.effect == "NoSelect" {
        return convert::taint_from_wire(&ClusterTaint { effect: "NoSchedule".to_string(), ..taint.clone() });
    }
    convert::taint_from_wire(taint)
}

//! Member clusters: their namespace on the hub, whether they are ready, and the facts for cluster selection.

use core::time::Duration;
use std::collections::BTreeMap;

use fleet_api::mutation::{self, Mutation};
use fleet_api::{
    Cluster,
    cluster::{CORDON_TAINT, ClusterTaint, DRAIN_TAINT, GONE_TAINT},
    convert, names,
};
use fleet_policies::{affinity::ClusterFacts, reason::Reason};
use jiff::Timestamp;
use kube_core::ResourceExt;
use serde_json::{Value, json};

use crate::{
    intents::Intents,
    options::Options,
    status::{condition, find_condition, rfc3339},
    world::{AgentLease, World, is_gone, ready},
    writes::{Target, Verb, Write},
};

/// When each agent's lease was last seen renewed, on this process's monotonic clock. Times are measured from
/// the start of the process. A restarted controller starts all counts again, so they are never too short.
#[derive(Debug)]
pub struct LeaseClock {
    /// When the leases were first listed: each may have been renewed until then.
    started: Duration,
    heard: BTreeMap<String, Duration>,
}

impl LeaseClock {
    /// `started`: no earlier than the first list of the leases.
    pub fn new(started: Duration) -> Self {
        Self { started, heard: BTreeMap::new() }
    }

    pub fn hear(&mut self, cluster: &str, now: Duration) {
        self.heard.insert(cluster.to_string(), now);
    }

    /// When the cluster stops getting new work, unless a renewal is seen.
    pub fn unready_at(&self, cluster: &str, lease: Option<&AgentLease>, options: &Options) -> Duration {
        self.since(cluster) + duration(lease, options) + options.lease_margin
    }

    /// When the cluster counts as lost, unless a renewal is seen: from then on nothing of a fenced job runs there.
    pub fn lost_at(&self, cluster: &str, lease: Option<&AgentLease>, options: &Options) -> Duration {
        if mutation::is_on(Mutation::GraceForgotten) {
            return self.since(cluster) + duration(lease, options) / 2;
        }
        let grace = lease.and_then(|lease| lease.grace).unwrap_or(options.fence_grace);
        self.unready_at(cluster, lease, options) + grace
    }

    fn since(&self, cluster: &str) -> Duration {
        self.heard.get(cluster).copied().unwrap_or(self.started)
    }

    fn ever_heard(&self, cluster: &str) -> bool {
        self.heard.contains_key(cluster)
    }
}

/// The duration in the agent's own lease applies if it is longer than the configured one.
fn duration(lease: Option<&AgentLease>, options: &Options) -> Duration {
    let said = lease.and_then(|lease| lease.duration).unwrap_or_default();
    said.max(options.lease_duration)
}

/// Creates the cluster's namespace, maintains its condition Ready, sets `timeAdded` of taints that evict
/// jobs, and marks the lease while jobs are moved off the cluster.
pub fn plan(
    world: &World,
    intents: &Intents,
    name: &str,
    clock: &LeaseClock,
    options: &Options,
    at: Duration,
    now: Timestamp,
) -> Vec<Write> {
    let Some(cluster) = world.clusters.get(name) else { return Vec::new() };
    let mut writes = Vec::new();
    let namespace = names::cluster_namespace(name);
    if !world.namespaces.contains_key(&namespace) {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        writes.push(Write::new(Target::Namespace, "", &namespace, Verb::Create(body)));
    }
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let known = find_condition(conditions, "Ready");
    let reported = cluster.status.as_ref().is_some_and(|status| status.report_sequence.is_some());
    writes.extend(date_taints(cluster, now));
    writes.extend(mark_lease(world, intents, name));
    writes.extend(record_sorted(world, name));
    let lease = world.leases.get(name);
    let alive = at < clock.unready_at(name, lease, options);
    // A lease that is older than this process counts for a cluster without a condition Ready; a cluster that
    // was not ready must renew first.
    let heard = clock.ever_heard(name) || ready(cluster) || (known.is_none() && lease.is_some());
    let unsorted = world.is_unsorted(name);
    let (status, message) = match (alive, reported) {
        (true, _) if unsorted && world.was_sorted(name) => {
            ("Unknown", "the agent's lease names an incarnation of the hub that is not this one")
        }
        (true, _) if unsorted => (
            "Unknown",
            "the hub was restored, and the agent has not yet removed the runs that the hub does not know",
        ),
        (true, true) if heard => ("True", "the agent renews its lease and reports capacity"),
        (true, _) if known.is_none() => ("Unknown", "the agent has not reported yet"),
        (true, _) => return writes,
        (false, _) => ("Unknown", "the agent has not renewed its lease in time"),
    };
    let message = if status == "True" { planned(cluster, message) } else { message.to_owned() };
    if known.is_some_and(|known| known.status == status && known.message == message) {
        return writes;
    }
    let reason = Reason::ClusterNotReady;
    let mut fresh = condition("Ready", status, reason, &message, known, now);
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

/// The message with what of the member's report is left out.
fn planned(cluster: &Cluster, message: &str) -> String {
    let shapes = cluster.status.as_ref().map_or(&[][..], |status| &status.node_shapes);
    match convert::planned_names(convert::lists_of(shapes)).1 {
        0 => message.to_owned(),
        left_out => format!(
            "{message}; {left_out} names of resources in its report are not planned with: found {}; allowed: at most {}",
            left_out + convert::MOST_RESOURCES,
            convert::MOST_RESOURCES
        ),
    }
}

/// Sets `timeAdded` of taints that evict jobs, because tolerations count from it and its author may have omitted it.
fn date_taints(cluster: &Cluster, now: Timestamp) -> Option<Write> {
    let undated = |taint: &ClusterTaint| taint.effect == "NoExecute" && taint.time_added.is_none();
    if !cluster.spec.taints.iter().any(undated) {
        return None;
    }
    let now = rfc3339(now);
    let dated = cluster.spec.taints.iter().map(|taint| {
        let time_added = if undated(taint) { Some(now.clone()) } else { taint.time_added.clone() };
        ClusterTaint { time_added, ..taint.clone() }
    });
    let taints: Vec<ClusterTaint> = dated.collect();
    let patch = json!({
        "metadata": {"resourceVersion": cluster.resource_version()},
        "spec": {"taints": taints},
    });
    Some(Write::new(Target::Cluster, "", &cluster.name_any(), Verb::Merge(patch)))
}

/// Records on the Cluster, which its agent cannot write, that the agent has reported to this incarnation of the hub.
fn record_sorted(world: &World, name: &str) -> Option<Write> {
    let sorted = world.leases.get(name)?.sorted.as_ref()?;
    if world.incarnation.as_ref() != Some(sorted) || world.was_sorted(name) {
        return None;
    }
    let patch = json!({"metadata": {"annotations": {names::SORTED_ANNOTATION: sorted}}});
    Some(Write::new(Target::Cluster, "", name, Verb::Merge(patch)))
}

/// The mark of loss on the agent's lease. It is set by compare-and-swap on the lease as last seen, so an agent that
/// renews at the same moment wins. It is removed when a renewal is seen again and no run there is half moved.
fn mark_lease(world: &World, intents: &Intents, name: &str) -> Option<Write> {
    let lease = world.leases.get(name)?;
    let lost = world.lost.contains(name);
    let wanted = match (lease.declared_lost, lost) {
        (false, true) if intents.to_declare.contains(name) => json!("true"),
        (true, false) if !half_moved(world, name) => Value::Null,
        _ => return None,
    };
    let patch = json!({"metadata": {
        "resourceVersion": lease.version,
        "annotations": {names::DECLARED_LOST_ANNOTATION: wanted},
    }});
    let namespace = names::cluster_namespace(name);
    Some(Write::new(Target::Lease, &namespace, names::LEASE_NAME, Verb::Merge(patch)))
}

/// Whether a run that was given up still has a Work in the cluster that is not being deleted.
fn half_moved(world: &World, name: &str) -> bool {
    let namespace = names::cluster_namespace(name);
    let given_up = world.bindings.iter().filter(|(_, entry)| {
        entry.is_given_up() && entry.object.spec.clusters.iter().any(|target| target.name == name)
    });
    given_up.into_iter().any(|(key, _)| {
        let mut works = world.works_of(key).filter(|((at, _), _)| *at == namespace);
        works.any(|(_, work)| work.metadata.deletion_timestamp.is_none())
    })
}

/// The facts about a cluster that cluster selection uses.
pub fn facts(cluster: &Cluster) -> ClusterFacts {
    let spec = &cluster.spec;
    ClusterFacts {
        name: cluster.name_any(),
        labels: cluster.labels().clone(),
        provider: spec.provider.clone().unwrap_or_default(),
        region: spec.region.clone().unwrap_or_default(),
        zones: spec.zones.clone(),
        taints: spec.taints.iter().filter(|t| !is_own(&t.key)).filter_map(taint).collect(),
        ready: ready(cluster) && cluster.metadata.deletion_timestamp.is_none() && !is_gone(cluster),
        unschedulable: spec.taints.iter().any(|t| is_own(&t.key)),
    }
}

/// Fleet's own taints, which cannot be tolerated.
fn is_own(key: &str) -> bool {
    matches!(key, CORDON_TAINT | DRAIN_TAINT | GONE_TAINT)
}

/// `NoSelect` keeps new work away like `NoSchedule`.
fn taint(taint: &ClusterTaint) -> Option<fleet_placement::Taint> {
    if taint.effect == "NoSelect" {
        return convert::taint_from_wire(&ClusterTaint { effect: "NoSchedule".to_string(), ..taint.clone() });
    }
    convert::taint_from_wire(taint)
}

#[cfg(test)]
mod tests;

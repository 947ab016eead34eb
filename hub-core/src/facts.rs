//! Converts the hub's objects to the facts that views and run logs are made of.

use std::collections::BTreeMap;

use fleet_api::{
    Cluster, ElasticQuotaTree, QueueUnit, ResourceBinding, VirtualCluster,
    cluster::{CORDON_TAINT, ClusterTaint, DRAIN_TAINT, GONE_TAINT, ReportedNodes},
    convert,
    names::VIRTUAL_CLUSTER_LABEL,
    quota_tree::{self, QuotaNode, QuotaNodeStatus},
};
use fleet_policies::{
    reason::Reason,
    workload::{self, WorkloadKind},
};
use fleet_resources::quantity;
use fleet_views::{
    AttemptFacts, BindingFacts, ClaimFacts, ClusterFacts, End, Id, NodeGroup, QuotaFacts, RunFacts, Said,
    TaintFacts, TreeFacts, UnitFacts, VirtualClusterFacts, amounts::GPU,
};
use jiff::Timestamp;
use kube_core::ResourceExt;

use crate::{binding::BindingEntry, cluster, kinds::KindRef, status::cut};

fn seconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

fn amount_of(name: &str, text: &str) -> i64 {
    quantity::parse(name, text).unwrap_or(0)
}

/// In base units; what cannot be read is nothing.
pub fn amounts(all: &BTreeMap<String, String>) -> BTreeMap<String, i64> {
    all.iter().map(|(name, text)| (name.clone(), amount_of(name, text))).collect()
}

/// A job or another object with pods; `None` for objects without pods, such as a ConfigMap.
pub fn binding(object: ResourceBinding) -> Option<BindingFacts> {
    let reference = &object.spec.resource;
    let workload = WorkloadKind::of(&reference.api_version, &reference.kind);
    if workload == WorkloadKind::Other && object.spec.components.is_empty() {
        return None;
    }
    entry(&BindingEntry::read(object, None))
}

/// The same for a parsed binding.
pub fn entry(entry: &BindingEntry) -> Option<BindingFacts> {
    let created_s = entry.created_s();
    let kind = entry.workload;
    if kind == WorkloadKind::Other && entry.object.spec.components.is_empty() {
        return None;
    }
    let (spec, status) = (&entry.object.spec, entry.object.status.clone().unwrap_or_default());
    let reference = &spec.resource;
    let requests = entry.total.to_quantities();
    let items = entry.object.status.iter().flat_map(|status| &status.aggregated_status);
    let reported = |of: &str| items.clone().find(|item| item.cluster_name == of).map(|item| &item.status);
    let again = |said| workload::restarts(kind, said);
    let unscheduled = status.conditions.iter().find(|c| c.type_ == "Scheduled" && c.status == "False");
    Some(BindingFacts {
        resource: resource(&entry.kind),
        api_version: reference.api_version.clone(),
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        is_job: kind != WorkloadKind::Deployment,
        priority: spec.priority,
        user: spec.user.clone().unwrap_or_default(),
        virtual_cluster: spec.virtual_cluster().to_owned(),
        created_s,
        place_ms: entry.place_ms(),
        clusters: spec.clusters.iter().map(|target| target.name.clone()).collect(),
        epoch: spec.epoch,
        requests: amounts(&requests),
        pods: spec.replicas,
        unscheduled: unscheduled.map(|said| Said {
            reason: said.reason.clone(),
            message: said.message.clone(),
            since_s: said.last_transition_time.0.as_second(),
        }),
        run: status.run.filter(|run| run.epoch == spec.epoch).map(|run| RunFacts {
            since_s: seconds(&run.since).unwrap_or(created_s),
            started_s: run.started_at.as_deref().and_then(seconds),
            lost_since_s: run.lost_since.as_deref().and_then(seconds),
        }),
        attempts: status
            .attempts
            .into_iter()
            .map(|attempt| AttemptFacts {
                started_s: attempt.started_at.as_deref().and_then(seconds),
                ended_s: seconds(&attempt.ended_at).unwrap_or(created_s),
                cluster: attempt.cluster,
                epoch: attempt.epoch,
                reason: attempt.reason,
                message: attempt.message,
            })
            .collect(),
        restarts: spec.clusters.first().and_then(|target| reported(&target.name)).map_or(0, again),
        end: status.result.map(|result| {
            // Where Fleet did not end the job, its own status says why it failed. Fleet alone stops jobs.
            let failed = reported(&result.cluster).and_then(|said| workload::failure(kind, said));
            let is_own = result.outcome != "Succeeded" && result.reason.is_none();
            let failed = failed.filter(|(reason, _)| is_own && *reason != Reason::Stopped.as_str());
            let (reason, message) =
                failed.map(|(reason, message)| (reason.to_owned(), cut(message).to_owned())).unzip();
            End {
                is_success: result.outcome == "Succeeded",
                at_s: seconds(&result.recorded_at).unwrap_or(created_s),
                reason: result.reason.or(reason).filter(|reason| !reason.is_empty()),
                message: result.message.or(message).filter(|message| !message.is_empty()),
                cluster: result.cluster,
            }
        }),
    })
}

/// Resource name of a kind, such as `jobs.batch.volcano.sh`.
pub fn resource(kind: &KindRef) -> String {
    match kind.api_version.split_once('/') {
        Some((group, _)) => format!("{}.{group}", kind.plural),
        None => kind.plural.clone(),
    }
}

/// The waiting binding and the facts of its unit.
pub fn unit(object: QueueUnit) -> (Id, UnitFacts) {
    let created_s = object.creation_timestamp().map_or(0, |time| time.0.as_second());
    let status = object.status.unwrap_or_default();
    let spec = object.spec;
    let phase = status.phase.as_deref();
    let said = status.reason.map(|reason| Said {
        reason,
        message: status.message.clone().unwrap_or_default(),
        since_s: status.last_update_time.as_deref().and_then(seconds).unwrap_or(created_s),
    });
    let facts = UnitFacts {
        queue: spec.queue.unwrap_or_default(),
        priority: spec.priority,
        created_s,
        waits: matches!(phase, None | Some("Enqueued" | "Reserved")),
        runs: phase == Some("Running"),
        preemptible: spec.preemptible.unwrap_or(true),
        said,
        claim: status.claim.map(|claim| ClaimFacts {
            since_s: seconds(&claim.since).unwrap_or(created_s),
            start_s: claim.start.as_deref().and_then(seconds),
            until_s: seconds(&claim.until),
            cluster: claim.cluster,
        }),
    };
    ((spec.consumer_ref.namespace, spec.consumer_ref.name), facts)
}

pub fn cluster(object: &Cluster) -> ClusterFacts {
    let mut status = object.status.clone().unwrap_or_default();
    let nodes_reported = status.take_nodes();
    let has = |key: &str| object.spec.taints.iter().any(|taint| taint.key == key);
    let nodes = status.node_summary.unwrap_or_default();
    let summary = status.resource_summary.unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ClusterFacts {
        version: status.kubernetes_version.unwrap_or_default(),
        region: object.spec.region.clone().unwrap_or_default(),
        provider: object.spec.provider.clone().unwrap_or_default(),
        ready: ready.map(|_| cluster::facts(object).ready),
        ready_said: ready.map_or_else(Said::default, |said| Said {
            reason: said.reason.clone(),
            message: said.message.clone(),
            since_s: said.last_transition_time.0.as_second(),
        }),
        cordoned: has(CORDON_TAINT),
        draining: has(DRAIN_TAINT),
        gone: has(GONE_TAINT),
        taints: object.spec.taints.iter().map(taint).collect(),
        nodes: nodes.total_num.clamp(0, convert::MOST_NODES),
        nodes_ready: nodes.ready_num.clamp(0, convert::MOST_NODES),
        allocatable: reported(&summary.allocatable),
        allocated: reported(&summary.allocated),
        groups: nodes_reported.into_iter().map(group).collect(),
    }
}

/// Amounts that a member reports, of as many names as are planned with.
fn reported(all: &BTreeMap<String, String>) -> BTreeMap<String, i64> {
    let (names, _) = convert::planned_names(std::iter::once(all));
    let mut amounts = amounts(all);
    amounts.retain(|name, _| names.contains(name.as_str()));
    amounts
}

fn group(ReportedNodes { shape, of_cells, unusable }: ReportedNodes) -> NodeGroup {
    NodeGroup {
        // As the planner counts them, whatever the member reports.
        count: shape.count.clamp(0, convert::MOST_NODES),
        gpus: shape.allocatable.get(GPU).map_or(0, |text| amount_of(GPU, text).max(0)),
        gpus_free: shape.free.get(GPU).map_or(0, |text| amount_of(GPU, text).max(0)),
        domain: shape.domain().to_owned(),
        taints: shape.taints.iter().map(|one| taint(one).text()).collect(),
        names: shape.nodes,
        of_cells,
        unusable,
    }
}

fn taint(taint: &ClusterTaint) -> TaintFacts {
    TaintFacts {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    }
}

pub fn virtual_cluster(object: &VirtualCluster) -> VirtualClusterFacts {
    let status = object.status.clone().unwrap_or_default();
    VirtualClusterFacts {
        name: object.spec.name.clone(),
        allocation: status.allocation.unwrap_or_default(),
        gpu: status.gpu.unwrap_or_default(),
        cpu: status.cpu.unwrap_or_default(),
        memory: status.memory.unwrap_or_default(),
        guaranteed: status.guaranteed,
        used: status.used,
        bad: status.bad,
        lent: status.borrowed_out,
        borrowed: status.borrowed_in,
        waiting: status.waiting,
        running: status.running,
    }
}

/// The tree in force among all trees.
pub fn tree(trees: &[ElasticQuotaTree]) -> TreeFacts {
    let problems = trees.iter().filter_map(|tree| {
        let wrong = quota_tree::invalid(tree)?;
        Some(format!("ElasticQuotaTree {} is not in force: {wrong}", tree.name_any()))
    });
    let root = quota_tree::in_force(trees).map(|view| {
        let status = view.object.status.as_ref().and_then(|status| status.root.as_ref());
        quota(view.root, status)
    });
    TreeFacts { root, problems: problems.collect() }
}

fn quota(node: &QuotaNode, status: Option<&QuotaNodeStatus>) -> QuotaFacts {
    let written = |all: &BTreeMap<String, serde_json::Value>| {
        let one = |(name, amount): (&String, &serde_json::Value)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            (name.clone(), amount_of(name, &text))
        };
        all.iter().map(one).collect()
    };
    let of_child =
        |name: &str| status.and_then(|status| status.children.iter().find(|found| found.name == name));
    QuotaFacts {
        name: node.name.clone(),
        namespaces: node.namespaces.clone(),
        virtual_cluster: node.attributes.get(VIRTUAL_CLUSTER_LABEL).cloned().unwrap_or_default(),
        min: written(&node.min),
        max: written(&node.max),
        used: status.map(|status| amounts(&status.used)).unwrap_or_default(),
        unqueued: status.map(|status| amounts(&status.unqueued)).unwrap_or_default(),
        children: node.children.iter().map(|child| quota(child, of_child(&child.name))).collect(),
    }
}

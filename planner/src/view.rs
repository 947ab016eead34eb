//! Read-only snapshot of a planner's state.
//!
//! Times are milliseconds of the caller's clock; amounts are Kubernetes quantities. Deliberately absent:
//! details that no reader needs, such as verdicts by class.

use std::collections::BTreeMap;

use fleet_policies::reason::Reason;
use fleet_quota::{Claim, JobId};
use fleet_quota_tree::{MAX_JOBS, NodeId, QuotaTree};
use fleet_resources::{Resources, quantity};
use serde::{Deserialize, Serialize};

use crate::{
    job::{Job, JobPhase, Waiting},
    planner::Planner,
    room::Room,
};

/// Waiting jobs listed for each queue; the others are only counted.
pub const LINE_LISTED: usize = 1_000;
/// Jobs with places that are listed; the others are only counted.
pub const HOLDERS_LISTED: usize = 10_000;

/// Name of a resource to a quantity.
pub type Amounts = BTreeMap<String, String>;

/// The planner's state after one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Number of the plan before the snapshot; 0: before the first plan.
    pub sequence: u64,
    pub at_ms: i64,
    /// Nodes of the quota tree, from the root on.
    pub queues: Vec<QueueView>,
    /// Jobs that wait without a queue, in their order.
    pub unqueued: Vec<WaitingView>,
    pub claims: Vec<ClaimView>,
    pub members: Vec<MemberView>,
    /// Jobs with places: requested, bound, running or ending.
    pub holders: Vec<HolderView>,
    /// Number of all of them.
    pub holder_count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    pub path: String,
    /// Jobs wait in leaves only; above them they are counted.
    pub is_leaf: bool,
    pub waiting: usize,
    /// Jobs that hold quota.
    pub admitted: i64,
    pub used: Amounts,
    pub min: Amounts,
    /// Unlimited resources are left out.
    pub max: Amounts,
    /// The first [`LINE_LISTED`] jobs of a leaf, in the order in which they are considered.
    pub line: Vec<WaitingView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingView {
    pub job: JobId,
    pub priority: i64,
    pub enqueued_at_ms: i64,
    /// `None`: no plan has considered it yet.
    pub reason: Option<Reason>,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimView {
    pub job: JobId,
    pub cluster: String,
    /// The leaf; quota is reserved on each node of its path.
    pub path: String,
    pub since_ms: i64,
    /// Expected start of the job; `None` if the end of some other job is unknown.
    pub start_ms: Option<i64>,
    pub until_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    pub name: String,
    pub ready: bool,
    /// Cordoned or drained: it gets no new jobs.
    pub unschedulable: bool,
    /// Whether it supports reservations.
    pub reserves: bool,
    pub allocatable: Amounts,
    /// As reported, less what no report includes yet.
    pub free: Amounts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderView {
    pub job: JobId,
    pub cluster: String,
    /// Path of the leaf in which its use counts; `None` without a quota tree.
    pub queue: Option<String>,
    pub request: Amounts,
    pub priority: i64,
    pub preemptible: bool,
    /// `None`: requested or bound, and not seen running.
    pub started_at_ms: Option<i64>,
    /// The run is ending.
    pub ending: bool,
}

impl View {
    /// The current state of `planner`.
    pub fn of(planner: &Planner, now_ms: i64) -> Self {
        let holders = planner.jobs().filter_map(|job| holder(planner, job));
        let mut view = Self {
            sequence: planner.sequence(),
            at_ms: now_ms,
            queues: planner.quota().map(|quota| queues(planner, quota)).unwrap_or_default(),
            unqueued: planner.unqueued().map(|job| waiting(planner, job)).take(LINE_LISTED).collect(),
            claims: Vec::new(),
            members: planner.rooms().iter().map(|(name, room)| member(name, room)).collect(),
            holders: Vec::new(),
            holder_count: 0,
        };
        for holder in holders {
            view.holder_count += 1;
            if view.holders.len() < HOLDERS_LISTED {
                view.holders.push(holder);
            }
        }
        let claims = planner.quota().into_iter().flat_map(fleet_quota::Planner::claims);
        view.claims.extend(claims.map(|(job, claim)| of_claim(job, claim)));
        view
    }
}

fn queues(planner: &Planner, quota: &fleet_quota::Planner) -> Vec<QueueView> {
    let (tree, ledger) = (quota.tree(), quota.ledger());
    let mut waiting_below: BTreeMap<NodeId, usize> = BTreeMap::new();
    for leaf in tree.leaves() {
        for node in tree.path_to_root(leaf) {
            *waiting_below.entry(node).or_default() += quota.queues().waiting_in(leaf);
        }
    }
    let queue = |id: NodeId| {
        let node = tree.node(id);
        let first = if node.is_leaf() { quota.queues().first(id, LINE_LISTED) } else { Vec::new() };
        QueueView {
            path: node.path.clone(),
            is_leaf: node.is_leaf(),
            waiting: waiting_below.get(&id).copied().unwrap_or(0),
            admitted: ledger.job_count(id),
            used: amounts(&ledger.used(id)),
            min: bounds(tree, |name| Some(tree.min(id, name)).filter(|min| *min > 0)),
            max: bounds(tree, |name| tree.max(id, name)),
            line: first.into_iter().filter_map(|job| Some(waiting(planner, planner.job(&job.id)?))).collect(),
        }
    };
    tree.ids().map(queue).collect()
}

fn bounds(tree: &QuotaTree, bound: impl Fn(&str) -> Option<i64>) -> Amounts {
    let named = tree.resources().iter().map(|name| name.as_str());
    named.filter_map(|name| Some((name.to_string(), quantity::format(name, bound(name)?)))).collect()
}

fn amounts(resources: &Resources) -> Amounts {
    let mut amounts = resources.to_quantities();
    amounts.remove(MAX_JOBS);
    amounts
}

fn waiting(planner: &Planner, job: &Job) -> WaitingView {
    let told = planner.waiting(&job.id);
    WaitingView {
        job: job.id.clone(),
        priority: job.priority,
        enqueued_at_ms: job.enqueued_at_ms,
        reason: told.map(|told| told.reason),
        message: told.map_or_else(String::new, |Waiting { message, .. }| message.clone()),
    }
}

fn of_claim(job: &JobId, claim: Claim) -> ClaimView {
    ClaimView {
        job: job.clone(),
        cluster: claim.cluster.as_str().to_string(),
        path: claim.path,
        since_ms: claim.since_ms,
        start_ms: claim.start_ms,
        until_ms: claim.until_ms,
    }
}

fn member(name: &str, room: &Room) -> MemberView {
    MemberView {
        name: name.to_string(),
        ready: room.facts.ready,
        unschedulable: room.facts.unschedulable,
        reserves: room.reserves,
        allocatable: amounts(&room.allocatable),
        free: amounts(&room.free),
    }
}

fn holder(planner: &Planner, job: &Job) -> Option<HolderView> {
    let JobPhase::Holds(held) = &job.phase else { return None };
    Some(HolderView {
        job: job.id.clone(),
        cluster: held.cluster.clone(),
        queue: planner.leaf_path(&job.id).map(str::to_string),
        request: amounts(&job.shape.total),
        priority: job.priority,
        preemptible: job.preemptible,
        started_at_ms: job.started_at_ms,
        ending: held.ending,
    })
}

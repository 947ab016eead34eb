//! The planner's state: jobs, members, the quota tree, and the members' answers.

mod cells;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::mutation::{self, Mutation};
use fleet_policies::reason::Reason;
use fleet_quota::{AdmittedJob, ClusterName, JobId, Ledger, QueuePolicy, WaitingJob};
use fleet_quota_tree::{LeafError, NodeId, QuotaTree};

use crate::{
    cells::CellRoom,
    decision::{Answer, Decision},
    entry::{DirectOrder, JobEntry, direct_order},
    job::{Job, JobPhase, Waiting, name_of, namespace_of},
    learnt::Learnt,
    place::OpenClusters,
    refusals::{Excluded, Refusals},
    room::{CapacityChange, Member, News, Rooms},
    settings::Settings,
    verdicts::{ClassId, Verdicts},
};

pub use cells::{VcJobs, VcUse};

/// Distinct sets of clusters that refused or failed jobs; beyond this number, equal jobs count as different.
const CLASSES_KEPT: usize = 65_536;

/// The planner's state. It is a function of its inputs.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    settings: Settings,
    quota: Option<fleet_quota::Planner>,
    /// The tree as set by the caller, without draining leaves.
    tree: Option<Arc<QuotaTree>>,
    /// A deleted leaf has lost its last job.
    drained: bool,
    /// Why no tree is in force although one exists.
    tree_trouble: Option<String>,
    jobs: BTreeMap<JobId, JobEntry>,
    /// Jobs that wait without a queue.
    direct: BTreeSet<DirectOrder>,
    /// All jobs without a queue, waiting or not.
    unqueued: BTreeSet<JobId>,
    rooms: Rooms,
    open: OpenClusters,
    learnt: Learnt,
    /// Numbers of classes: shape, clusters that refused it, that it failed on, and that it is barred from with the reason.
    classes: BTreeMap<(u64, [Vec<String>; 3]), u64>,
    class_count: u64,
    verdicts: Verdicts,
    cells: CellRoom,
    /// Jobs that have left pods behind which end only when they are told to.
    lingering: BTreeSet<JobId>,
    /// [`Rooms::empty_version`] for which waiting jobs were told whether a cluster could hold them.
    sizes_told_at: u64,
    /// Something changed since the last plan.
    moved: bool,
    /// Plans made.
    sequence: u64,
}

impl Planner {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether a change since the last plan might let a job start.
    pub fn needs_plan(&self) -> bool {
        self.moved
    }

    /// The quota planner; `None` without a quota tree.
    pub fn quota(&self) -> Option<&fleet_quota::Planner> {
        self.quota.as_ref()
    }

    /// Use of admitted jobs; `None` without a quota tree.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.quota.as_ref().map(fleet_quota::Planner::ledger)
    }

    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id).map(|entry| &entry.job)
    }

    /// All jobs, by name.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().map(|entry| &entry.job)
    }

    /// Jobs that wait without a queue, in the order in which they are placed.
    pub fn unqueued(&self) -> impl Iterator<Item = &Job> {
        self.direct.iter().filter_map(|(_, _, id)| self.job(id))
    }

    /// How many plans were made.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Path of the job's quota leaf, or of the draining leaf in which it counts.
    pub fn leaf_path(&self, id: &JobId) -> Option<&str> {
        let quota = self.quota.as_ref()?;
        let leaf = self.jobs.get(id)?.leaf.as_ref().ok().copied();
        let leaf = leaf.or_else(|| quota.ledger().job(id).map(|held| held.leaf))?;
        Some(&quota.tree().node(leaf).path)
    }

    /// Why a job waits, as of the last plan.
    pub fn waiting(&self, id: &JobId) -> Option<&Waiting> {
        self.verdicts.get(id)
    }

    /// Why pods of a running job wait for cells, as last seen.
    pub fn partly_waiting(&self, id: &JobId) -> Option<&Waiting> {
        self.verdicts.partial(id)
    }

    /// How many jobs wait for each reason.
    pub fn waiting_by_reason(&self) -> &BTreeMap<Reason, i64> {
        self.verdicts.by_reason()
    }

    /// Why no tree is in force although one exists; applies from the next [`Self::set_tree`] on.
    pub fn set_tree_trouble(&mut self, trouble: Option<&str>) {
        self.tree_trouble = trouble.map(str::to_string);
    }

    /// Sets a new tree, or none. Jobs keep what they hold: a deleted leaf with running jobs stays until they
    /// have ended, and admits no others.
    pub fn set_tree(&mut self, tree: Option<Arc<QuotaTree>>, now_ms: i64) {
        self.drained = false;
        self.tree = tree;
        self.verdicts.forget_classes();
        match (self.quota.as_mut(), &self.tree) {
            (Some(quota), Some(tree)) => {
                let jobs = &self.jobs;
                quota.set_tree(QuotaTree::clone(tree), &mut |tree, id| {
                    let labels = &jobs.get(id)?.job.quota_labels;
                    tree.leaf_for(labels, namespace_of(id)).ok()
                });
            }
            (_, tree) => self.quota = tree.clone().map(fleet_quota::Planner::new),
        }
        let ids: Vec<JobId> = self.jobs.keys().cloned().collect();
        for id in ids {
            self.find_leaf(&id);
            self.settle(&id, now_ms);
        }
        self.moved = true;
    }

    /// Sets the queue policy of the node at `path`.
    pub fn set_policy(&mut self, path: &str, policy: QueuePolicy) {
        let Some(quota) = self.quota.as_mut() else { return };
        let Some(node) = quota.tree().find(path) else { return };
        quota.set_policy(node, policy);
    }

    /// Sets a member's report and facts.
    pub fn set_cluster(&mut self, name: &str, member: Member) {
        let fresh = self.rooms.get(name).is_none();
        let news = self.rooms.set(name, member);
        if fresh {
            for (id, entry) in &self.jobs {
                if let JobPhase::Holds(held) = &entry.job.phase
                    && held.cluster == name
                    && !self.cells.has(id, &entry.job)
                {
                    self.rooms.hold(id, &entry.job.shape, held);
                }
            }
        }
        if let Some(quota) = self.quota.as_mut() {
            match news {
                News::Report => quota.places_freed(&ClusterName::new(name)),
                News::Facts => quota.places_changed(),
            }
        }
        self.moved = true;
    }

    pub fn remove_cluster(&mut self, name: &str) {
        if self.rooms.remove(name) {
            self.moved = true;
            if let Some(quota) = self.quota.as_mut() {
                quota.places_changed();
            }
        }
    }

    /// Frees a job's places in a cluster.
    fn give_back(&mut self, cluster: &str, id: &JobId) {
        self.release_cells(id);
        let change = self.rooms.give_back(cluster, id);
        self.note(cluster, change);
    }

    fn note(&mut self, cluster: &str, change: CapacityChange) {
        if let (CapacityChange::Grown, Some(quota)) = (change, self.quota.as_mut()) {
            quota.places_freed(&ClusterName::new(cluster));
        }
    }

    /// Adds or updates a job.
    pub fn set_job(&mut self, mut job: Job, now_ms: i64) {
        let id = job.id.clone();
        if let Some(entry) = self.jobs.get(&id) {
            job.keep_admission(&entry.job);
        }
        match &job.phase {
            JobPhase::Holds(held) if held.lingers => self.lingering.insert(id.clone()),
            _ => self.lingering.remove(&id),
        };
        match job.queued || job.left_queue {
            true => self.unqueued.remove(&id),
            false => self.unqueued.insert(id.clone()),
        };
        if let Some(entry) = self.jobs.get_mut(&id) {
            if entry.job == job {
                return;
            }
            let other_cells = entry.job.cells != job.cells;
            let left = match (&entry.job.phase, &job.phase) {
                (JobPhase::Holds(old), JobPhase::Holds(new)) if old.cluster == new.cluster => None,
                (JobPhase::Holds(old), _) => Some(old.cluster.clone()),
                _ => None,
            };
            // A job that still waits keeps its preemption or claim.
            let waits = |job: &Job| job.phase == JobPhase::Waits && job.queued && job.blocked.is_none();
            let stays = waits(&entry.job) && waits(&job);
            // What stopped it, or jobs of its old shape, no longer applies.
            let other =
                entry.job.shape != job.shape || (entry.job.blocked.is_some() && job.blocked.is_none());
            if let Some(cluster) = left {
                self.give_back(&cluster, &id);
            }
            if let Some(entry) = self.jobs.get(&id) {
                // Its place there may be another one now.
                self.cells.leave_queue(&entry.job);
            }
            match stays && !other_cells {
                true => self.leave_class(&id),
                false => self.unqueue(&id),
            }
            if job.phase == JobPhase::Waits && (job.blocked.is_some() || other_cells) {
                self.release_cells(&id);
            }
            if other {
                self.verdicts.remove(&id);
            }
            if let Some(entry) = self.jobs.get_mut(&id) {
                if entry.job.shape != job.shape {
                    entry.refusals.excluded = Excluded::default();
                }
                entry.job = job;
            }
        } else {
            let entry = JobEntry { job, refusals: Refusals::default(), leaf: Ok(NodeId::ROOT), class: None };
            self.jobs.insert(id.clone(), entry);
        }
        self.find_leaf(&id);
        if self.jobs.get(&id).is_some_and(|entry| entry.leaf.is_err())
            && let Some(quota) = self.quota.as_mut()
        {
            quota.remove(&id);
        }
        self.settle(&id, now_ms);
        self.moved = true;
    }

    /// The job has ended or is gone: it neither waits nor holds anything.
    pub fn remove_job(&mut self, id: &JobId, now_ms: i64) {
        self.unqueue(id);
        let Some(entry) = self.jobs.remove(id) else { return };
        self.unqueued.remove(id);
        self.lingering.remove(id);
        if matches!(entry.job.phase, JobPhase::Holds(_)) {
            self.learnt.ended(&entry.job, now_ms);
        }
        self.release(id);
        match &entry.job.phase {
            JobPhase::Holds(held) => self.give_back(&held.cluster, id),
            JobPhase::Waits => self.release_cells(id),
        }
        self.verdicts.remove(id);
        self.moved = true;
    }

    /// A member's answer to [`Decision::Ask`].
    pub fn answer(&mut self, id: &JobId, cluster: &str, answer: Answer, now_ms: i64) -> Option<Decision> {
        match answer {
            Answer::Reserved => {
                let refusals = &mut self.jobs.get_mut(id)?.refusals;
                let excluded = std::mem::take(&mut refusals.excluded);
                *refusals = Refusals { excluded, ..Refusals::default() };
                Some(Decision::Bind { job: id.clone(), cluster: cluster.to_string() })
            }
            Answer::Refused { message } => {
                let entry = self.jobs.get_mut(id)?;
                entry.refusals.tried.insert(cluster.to_string());
                entry.refusals.message = format!("{cluster}: {message}");
                // The places are asked for elsewhere by now, and this refusal is still to be deleted.
                if matches!(&entry.job.phase, JobPhase::Holds(held) if held.cluster != cluster) {
                    return None;
                }
                if self.cells.takes(&entry.job) {
                    // The same cells would be requested from the same member again.
                    entry.refusals.hold_back(id, &self.settings, now_ms);
                }
                self.wait_again(id, now_ms);
                None
            }
        }
    }

    /// A reservation or a binding could not be written: the job waits again, and is not tried before
    /// `until_ms`.
    pub fn hold_back(&mut self, id: &JobId, until_ms: i64, now_ms: i64) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        // Its cells are in its reservation, whether or not the change was written.
        if matches!(&entry.job.phase, JobPhase::Holds(held) if !held.cells.is_empty()) {
            return;
        }
        entry.refusals.until_ms = Some(until_ms);
        if entry.refusals.message.is_empty() {
            entry.refusals.message = "the hub refused the write; it will be retried".to_string();
        }
        self.wait_again(id, now_ms);
    }

    /// A job whose places are only requested goes back to its position in the queue; a waiting job is queued
    /// again.
    fn wait_again(&mut self, id: &JobId, now_ms: i64) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        if let JobPhase::Holds(held) = std::mem::replace(&mut entry.job.phase, JobPhase::Waits) {
            self.give_back(&held.cluster, id);
        }
        self.unqueue(id);
        self.settle(id, now_ms);
        self.moved = true;
    }

    fn find_leaf(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        entry.leaf = match &self.quota {
            None => {
                let none = "there is no usable ElasticQuotaTree in kube-system".to_string();
                let message = match &self.tree_trouble {
                    Some(trouble) => format!("{none}; {trouble}"),
                    None => none,
                };
                Err(Waiting::new(Reason::NotInQuotaTree, message))
            }
            // Use stays where it was admitted: editing a label does not move it to a leaf that never admitted
            // the job.
            Some(quota) if let Some(leaf) = admitted_in(quota, &entry.job) => Ok(leaf),
            Some(quota) => quota
                .tree()
                .leaf_for(&entry.job.quota_labels, namespace_of(id))
                .map_err(|error| Waiting::new(reason_of(&error), error.to_string())),
        };
    }

    /// Removes a waiting job from its queue.
    fn unqueue(&mut self, id: &JobId) {
        if let Some(quota) = self.quota.as_mut() {
            quota.remove(id);
        }
        if let Some(entry) = self.jobs.get(id) {
            self.direct.remove(&direct_order(&entry.job));
            self.cells.leave_queue(&entry.job);
        }
        self.leave_class(id);
    }

    fn leave_class(&mut self, id: &JobId) {
        if let Some(class) = self.jobs.get_mut(id).and_then(|entry| entry.class.take()) {
            self.verdicts.leave(id, class);
        }
    }

    /// Updates queues, ledger and capacity to the state of the job.
    fn settle(&mut self, id: &JobId, now_ms: i64) {
        self.settle_cells(id, now_ms);
        let Some(entry) = self.jobs.get(id) else { return };
        match &entry.job.phase {
            JobPhase::Holds(held) => {
                // Nodes of cells are not part of a member's capacity.
                let change = match self.cells.has(id, &entry.job) {
                    true => CapacityChange::None,
                    false => self.rooms.hold(id, &entry.job.shape, held),
                };
                self.verdicts.remove(id);
                if let Some(quota) = self.quota.as_mut()
                    && let Some(leaf) = leaf_of_use(quota, entry)
                    && !mutation::is_on(Mutation::QuotaNotCounted)
                {
                    admit(quota, &entry.job, leaf, now_ms);
                    if held.ending {
                        quota.ending(id);
                    }
                }
                let cluster = held.cluster.clone();
                self.note(&cluster, change);
            }
            JobPhase::Waits => {
                self.release(id);
                self.enqueue(id);
            }
        }
    }

    /// Releases the job's quota.
    fn release(&mut self, id: &JobId) {
        let Some(quota) = self.quota.as_mut() else { return };
        if let Some(held) = quota.release(id) {
            self.drained |= quota.tree().node(held.leaf).draining && quota.ledger().job_count(held.leaf) == 0;
        }
    }

    fn enqueue(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.get(id) else { return };
        let job = &entry.job;
        if let Some(waiting) = &job.blocked {
            self.verdicts.tell(id, waiting.clone());
        }
        let leaf = match &entry.leaf {
            // Whether or not it queues: it requests something it is not admitted to.
            Err(waiting) if job.queued || waiting.reason == Reason::NotAdmittedToQueue => {
                self.direct.remove(&direct_order(job));
                self.verdicts.tell(id, waiting.clone());
                return;
            }
            _ if self.cells.takes(job) => {
                self.direct.remove(&direct_order(job));
                if job.blocked.is_none() {
                    self.cells.join_queue(job);
                }
                return;
            }
            Ok(leaf) if job.queued => *leaf,
            _ => {
                self.direct.insert(direct_order(job));
                return;
            }
        };
        // Set aside without end while it is blocked, so that it keeps its position and blocks no equal job.
        let until_ms = entry.refusals.until_ms.unwrap_or(0);
        let not_before_ms = if job.blocked.is_some() { i64::MAX } else { until_ms };
        let shape = self.class(id);
        let Some(entry) = self.jobs.get_mut(id) else { return };
        let job = &entry.job;
        let class = ClassId { leaf, shape, preemptible: job.preemptible, run_time_ms: job.runtime_ms };
        entry.class = Some(class);
        let Some(quota) = self.quota.as_mut() else { return };
        quota.enqueue(WaitingJob {
            id: id.clone(),
            name: Arc::from(name_of(id)),
            leaf,
            request: job.shape.total.clone(),
            preemptible: job.preemptible,
            priority: job.priority,
            enqueued_at_ms: job.enqueued_at_ms,
            not_before_ms,
            run_time_ms: job.runtime_ms,
            preemptions: job.preemptions,
            shape,
        });
        self.verdicts.join(id, class);
    }

    /// Jobs of one class are placed alike: same components, same constraints, refused by the same clusters.
    fn class(&mut self, id: &JobId) -> u64 {
        let Some(entry) = self.jobs.get(id) else { return 0 };
        let job = &entry.job;
        // Even numbers are shapes without refusals, odd ones are counted here.
        if entry.refusals.tried.is_empty() && job.avoided.is_empty() && job.barred.is_empty() {
            return job.shape.id << 1;
        }
        if self.classes.len() > CLASSES_KEPT {
            self.classes.clear();
        }
        let tried = entry.refusals.tried.iter().cloned().collect();
        let avoided = job.avoided.iter().cloned().collect();
        // The reason may speak of the job alone, and what one job of a class is told all of them are.
        let barred =
            job.barred.iter().map(|(name, why)| format!("{name} {} {}", why.reason, why.message)).collect();
        *self.classes.entry((job.shape.id, [tried, avoided, barred])).or_insert_with(|| {
            self.class_count += 1;
            self.class_count << 1 | 1
        })
    }
}

fn reason_of(error: &LeafError) -> Reason {
    match error {
        LeafError::NotAdmitted { .. } => Reason::NotAdmittedToQueue,
        LeafError::UnknownName { .. } | LeafError::NotALeaf { .. } | LeafError::UnknownNamespace { .. } => {
            Reason::NotInQuotaTree
        }
    }
}

/// The leaf in which a job that holds quota was admitted, if the tree still has it.
fn admitted_in(quota: &fleet_quota::Planner, job: &Job) -> Option<NodeId> {
    if job.phase == JobPhase::Waits {
        return None;
    }
    let tree = quota.tree();
    tree.find(job.last_leaf.as_ref()?).filter(|leaf| tree.node(*leaf).is_leaf())
}

/// The leaf in which the use of a job counts: its own leaf; or, if the tree has none for it any more, the
/// leaf that admitted it, so that a restarted controller also counts the jobs of deleted leaves. A job that
/// names a leaf which does not admit it never counts there, but in the leaf of its namespace.
fn leaf_of_use(quota: &mut fleet_quota::Planner, entry: &JobEntry) -> Option<NodeId> {
    let held = |quota: &fleet_quota::Planner| quota.ledger().job(&entry.job.id).map(|held| held.leaf);
    match (&entry.leaf, &entry.job.last_leaf) {
        (Ok(leaf), _) => Some(*leaf),
        (Err(_), Some(path)) => Some(held(quota).unwrap_or_else(|| quota.drain(path))),
        (Err(_), None) => held(quota).or_else(|| quota.tree().leaf_of_namespace(namespace_of(&entry.job.id))),
    }
}

fn admit(quota: &mut fleet_quota::Planner, job: &Job, leaf: NodeId, now_ms: i64) {
    let fresh = AdmittedJob {
        id: job.id.clone(),
        leaf,
        request: job.shape.total.clone(),
        preemptible: job.preemptible,
        priority: job.priority,
        enqueued_at_ms: job.enqueued_at_ms,
        admitted_at_ms: job.started_at_ms.unwrap_or(now_ms),
        preemptions: job.preemptions,
    };
    let admitted_at_ms = quota.ledger().job(&job.id).map(|known| known.admitted_at_ms);
    quota.admit(AdmittedJob { admitted_at_ms: admitted_at_ms.unwrap_or(fresh.admitted_at_ms), ..fresh });
}

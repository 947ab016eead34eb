//! Who is admitted next, and where to: admission and placement as one decision.
//!
//! Inputs: jobs, members, the quota tree and queue policies as plain data, the members' answers, and the
//! time in milliseconds. Output: typed decisions, and for each waiting job why it waits. The controller's
//! `schedule` turns its world into inputs and decisions into writes; simulations drive the
//! same planner without either. Deliberately absent: API objects, clocks, IO, and anything that depends on
//! hash order. A change costs by what changed.

mod cells;
mod job;
mod learnt;
mod place;
mod room;
#[cfg(test)]
mod tests;
mod verdicts;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::mutation::{self, Mutation};
use fleet_policies::reason::Reason;
use fleet_quota::{
    AdmittedJob, Claim, ClusterName, JobId, LeafError, Ledger, NodeId, Outcome, PlanLimits, QueuePolicy,
    QuotaTree, Take, TakeRule, WaitReason, WaitingJob,
};
use fleet_resources::quantity;

pub use cells::{CellGroupAsk, CellJob, CellNodes, SharedCellJob, VcJobs, VcUse};
pub use job::{Counted, Held, Job, JobShape, Stand, Waiting};
pub use place::unfit_text;
pub use room::{Member, Room, Rooms};

use learnt::Learnt;
use place::{OpenClusters, Oracle, Refusals};
use room::{Change, News};
use verdicts::{ClassId, Verdicts};

/// Jobs looked at in one plan; the rest follow in the next.
const PLAN_LIMITS: PlanLimits = PlanLimits { admissions: 256, probes: 4096, searches: 16 };
/// Distinct sets of clusters that refused or failed jobs; beyond it equal jobs count as different.
const CLASSES_KEPT: usize = 65_536;

/// Victims named in the reason of a taker; the rest are only counted.
const VICTIMS_NAMED: usize = 5;

/// How a planner plans.
#[derive(Clone, Debug)]
pub struct Settings {
    /// First pause after every candidate refused a job; doubles up to `backoff_max_ms`.
    pub backoff_base_ms: i64,
    pub backoff_max_ms: i64,
    pub limits: PlanLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self { backoff_base_ms: 500, backoff_max_ms: 30_000, limits: PLAN_LIMITS }
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Ask the member to reserve places for the whole job. It holds quota and room from now on, until it is
    /// told otherwise.
    Ask { job: JobId, cluster: String },
    /// Bind the job to the cluster: its places are reserved, or the member does not reserve.
    Bind { job: JobId, cluster: String },
    /// End the job's run to make room for `taker`, which starts in `cluster` once all its victims have ended.
    /// Until the planner is told that the run is ending, the decision may come again.
    Evict { job: JobId, taker: JobId, cluster: String, rule: TakeRule, lost_work_ms: i64 },
    /// The cells of a job that holds places have changed: its reservation is to say so.
    Regroup { job: JobId, cluster: String },
}

/// What a member said to the question for places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Reserved,
    Refused { message: String },
}

/// What a plan came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub decisions: Vec<Decision>,
    /// Jobs whose reason for waiting changed.
    pub told: BTreeSet<JobId>,
    /// Plan again then, if nothing else happens before.
    pub wake_ms: Option<i64>,
    /// A bound was hit: plan again at once.
    pub more: bool,
}

/// A job as the planner keeps it.
#[derive(Debug)]
struct Entry {
    job: Job,
    refusals: Refusals,
    /// Its leaf in the present tree, or why it has none.
    leaf: Result<NodeId, Waiting>,
    class: Option<ClassId>,
}

/// Priority high to low, then age, then name.
type DirectOrder = (Reverse<i64>, i64, JobId);

/// The planner's memory. All of it follows from its inputs.
#[derive(Debug, Default)]
pub struct Planner {
    settings: Settings,
    quota: Option<fleet_quota::Planner>,
    /// The tree as it was given, without leaves that drain.
    tree: Option<Arc<QuotaTree>>,
    /// A deleted leaf has lost its last job.
    drained: bool,
    /// Why no tree is in force although there is one.
    tree_trouble: Option<String>,
    jobs: BTreeMap<JobId, Entry>,
    /// Jobs that wait without a queue.
    direct: BTreeSet<DirectOrder>,
    rooms: Rooms,
    open: OpenClusters,
    learnt: Learnt,
    /// Numbers of (shape, clusters that refused it, that it failed on, that it is barred from).
    classes: BTreeMap<(u64, [Vec<String>; 3]), u64>,
    class_count: u64,
    verdicts: Verdicts,
    cells: cells::CellRoom,
    /// Something changed since the last plan.
    moved: bool,
}

impl Planner {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether something changed since the last plan that may let a job start.
    pub fn needs_plan(&self) -> bool {
        self.moved
    }

    /// What waits and what is held below the quota tree; `None` without one.
    pub fn quota(&self) -> Option<&fleet_quota::Planner> {
        self.quota.as_ref()
    }

    /// What admitted jobs hold; `None` without a quota tree.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.quota.as_ref().map(fleet_quota::Planner::ledger)
    }

    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id).map(|entry| &entry.job)
    }

    /// Path of the job's quota leaf; of the one it drains from, when its own was deleted.
    pub fn leaf_path(&self, id: &JobId) -> Option<&str> {
        let quota = self.quota.as_ref()?;
        let leaf = self.jobs.get(id)?.leaf.as_ref().ok().copied();
        let leaf = leaf.or_else(|| quota.ledger().job(id).map(|held| held.leaf))?;
        Some(&quota.tree().node(leaf).path)
    }

    /// Why a job waits, as last seen.
    pub fn waiting(&self, id: &JobId) -> Option<&Waiting> {
        self.verdicts.get(id)
    }

    /// How many jobs wait for each reason.
    pub fn waiting_by_reason(&self) -> &BTreeMap<Reason, i64> {
        self.verdicts.by_reason()
    }

    /// Why no tree is in force although there is one; told with the next [`Self::set_tree`].
    pub fn set_tree_trouble(&mut self, trouble: Option<&str>) {
        self.tree_trouble = trouble.map(str::to_string);
    }

    /// A new tree, or none. Jobs keep what they hold: a deleted leaf with running jobs stays until they have
    /// ended, and takes no more.
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

    /// How the queue of the node at `path` treats a head that cannot start.
    pub fn set_policy(&mut self, path: &str, policy: QueuePolicy) {
        let Some(quota) = self.quota.as_mut() else { return };
        let Some(node) = quota.tree().find(path) else { return };
        quota.set_policy(node, policy);
    }

    /// A member's report, or other news of it.
    pub fn set_cluster(&mut self, name: &str, member: Member) {
        let fresh = self.rooms.get(name).is_none();
        let news = self.rooms.set(name, member);
        if fresh {
            for (id, entry) in &self.jobs {
                if let Stand::Holds(held) = &entry.job.stand
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

    /// A job's places in a cluster are free.
    fn give_back(&mut self, cluster: &str, id: &JobId) {
        self.release_cells(id);
        let change = self.rooms.give_back(cluster, id);
        self.note(cluster, change);
    }

    fn note(&mut self, cluster: &str, change: Change) {
        if let (Change::Grown, Some(quota)) = (change, self.quota.as_mut()) {
            quota.places_freed(&ClusterName::new(cluster));
        }
    }

    /// Takes in a job as it stands now, new or changed.
    pub fn set_job(&mut self, job: Job, now_ms: i64) {
        let id = job.id.clone();
        if let Some(entry) = self.jobs.get_mut(&id) {
            if entry.job == job {
                return;
            }
            let other_cells = entry.job.cells != job.cells;
            let left = match (&entry.job.stand, &job.stand) {
                (Stand::Holds(old), Stand::Holds(new)) if old.cluster == new.cluster => None,
                (Stand::Holds(old), _) => Some(old.cluster.clone()),
                _ => None,
            };
            // One that goes on waiting keeps what is under way for it: a taking, a claim.
            let waits = |job: &Job| job.stand == Stand::Waits && job.queued && job.blocked.is_none();
            let stays = waits(&entry.job) && waits(&job);
            // What stopped it, or stopped jobs of the shape it had, is no reason any more.
            let other =
                entry.job.shape != job.shape || (entry.job.blocked.is_some() && job.blocked.is_none());
            if let Some(cluster) = left {
                self.give_back(&cluster, &id);
            }
            match stays && !other_cells {
                true => self.leave_class(&id),
                false => self.unqueue(&id),
            }
            if job.stand == Stand::Waits && (job.blocked.is_some() || other_cells) {
                self.release_cells(&id);
            }
            if other {
                self.verdicts.remove(&id);
            }
            if let Some(entry) = self.jobs.get_mut(&id) {
                entry.job = job;
            }
        } else {
            let entry = Entry { job, refusals: Refusals::default(), leaf: Ok(NodeId::ROOT), class: None };
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

    /// The job is over or gone: it waits for nothing and holds nothing.
    pub fn remove_job(&mut self, id: &JobId, now_ms: i64) {
        self.unqueue(id);
        let Some(entry) = self.jobs.remove(id) else { return };
        if matches!(entry.job.stand, Stand::Holds(_)) {
            self.learnt.ended(&entry.job, now_ms);
        }
        self.release(id);
        match &entry.job.stand {
            Stand::Holds(held) => self.give_back(&held.cluster, id),
            Stand::Waits => self.release_cells(id),
        }
        self.verdicts.remove(id);
        self.moved = true;
    }

    /// A member's answer to [`Decision::Ask`].
    pub fn answer(&mut self, id: &JobId, cluster: &str, answer: Answer, now_ms: i64) -> Option<Decision> {
        match answer {
            Answer::Reserved => {
                self.jobs.get_mut(id)?.refusals = Refusals::default();
                Some(Decision::Bind { job: id.clone(), cluster: cluster.to_string() })
            }
            Answer::Refused { message } => {
                let entry = self.jobs.get_mut(id)?;
                entry.refusals.tried.insert(cluster.to_string());
                entry.refusals.message = format!("{cluster}: {message}");
                if self.cells.takes(&entry.job) {
                    // The same cells would be asked of the same member.
                    entry.refusals.hold_back(id, &self.settings, now_ms);
                }
                self.wait_again(id, now_ms);
                None
            }
        }
    }

    /// The question to a member, or a binding, could not be written: the job waits again, until then.
    pub fn hold_back(&mut self, id: &JobId, until_ms: i64, now_ms: i64) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        // Its cells stand in its reservation, whatever became of a change to them.
        if matches!(&entry.job.stand, Stand::Holds(held) if !held.cells.is_empty()) {
            return;
        }
        entry.refusals.until_ms = Some(until_ms);
        if entry.refusals.message.is_empty() {
            entry.refusals.message = "the hub did not take the request; it is made again".to_string();
        }
        self.wait_again(id, now_ms);
    }

    /// A job that holds places only because they were asked for goes back to its place in line; one that
    /// waits is put in line anew.
    fn wait_again(&mut self, id: &JobId, now_ms: i64) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        if let Stand::Holds(held) = std::mem::replace(&mut entry.job.stand, Stand::Waits) {
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
            // What is held stays where it was admitted: a label that is edited moves no use to a leaf that never let it in.
            Some(quota) if let Some(leaf) = admitted_in(quota, &entry.job) => Ok(leaf),
            Some(quota) => quota
                .tree()
                .leaf_for(&entry.job.quota_labels, namespace_of(id))
                .map_err(|error| Waiting::new(reason_of(&error), error.to_string())),
        };
    }

    /// Takes a waiting job out of line.
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

    /// Brings queues, ledger and room in line with where the job stands.
    fn settle(&mut self, id: &JobId, now_ms: i64) {
        self.settle_cells(id);
        let Some(entry) = self.jobs.get(id) else { return };
        match &entry.job.stand {
            Stand::Holds(held) => {
                // Nodes of cells are no part of a member's room.
                let change = match self.cells.has(id, &entry.job) {
                    true => Change::None,
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
            Stand::Waits => {
                self.release(id);
                self.enqueue(id);
            }
        }
    }

    /// The job holds no quota any more.
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
            // Whether it queues or not: it asks for what is another's.
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
        // Held back without end while it is blocked, so that it keeps its place and stops no equal job.
        let until_ms = entry.refusals.until_ms.unwrap_or(0);
        let not_before_ms = if job.blocked.is_some() { i64::MAX } else { until_ms };
        let shape = self.class(id);
        let Some(entry) = self.jobs.get_mut(id) else { return };
        let job = &entry.job;
        let class = ClassId { leaf, shape, preemptible: job.preemptible };
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

    /// Jobs of one class are placed alike: same components, same rules, refused by the same clusters.
    fn class(&mut self, id: &JobId) -> u64 {
        let Some(entry) = self.jobs.get(id) else { return 0 };
        let job = &entry.job;
        // Even numbers are shapes without a history, odd ones counted here.
        if entry.refusals.tried.is_empty() && job.avoided.is_empty() && job.barred.is_empty() {
            return job.shape.id << 1;
        }
        if self.classes.len() > CLASSES_KEPT {
            self.classes.clear();
        }
        let tried = entry.refusals.tried.iter().cloned().collect();
        let avoided = job.avoided.iter().cloned().collect();
        let barred = job.barred.keys().cloned().collect();
        *self.classes.entry((job.shape.id, [tried, avoided, barred])).or_insert_with(|| {
            self.class_count += 1;
            self.class_count << 1 | 1
        })
    }

    /// Decides on everything that waits.
    pub fn plan(&mut self, now_ms: i64) -> Plan {
        if self.drained {
            self.set_tree(self.tree.clone(), now_ms);
        }
        self.moved = false;
        let (changed, due) = self.rooms.give_up_leaving(now_ms);
        for cluster in changed {
            self.note(&cluster, Change::Grown);
        }
        let mut plan = Plan { wake_ms: due, ..Plan::default() };
        self.plan_cells(now_ms, &mut plan);
        // Jobs without a queue come first, and count in the tree before its own are asked.
        let direct: Vec<JobId> = self.direct.iter().map(|(_, _, id)| id.clone()).collect();
        let mut oracle = self.oracle(now_ms);
        let none = BTreeSet::new();
        let placed: Vec<(JobId, String)> = direct
            .into_iter()
            .filter_map(|id| oracle.place(&id, &none).map(|cluster| (id, cluster)))
            .collect();
        let refused = oracle.no_place;
        for (id, cluster) in placed {
            self.start(&id, cluster, now_ms, &mut plan);
        }
        self.hold_back_refused(&refused, now_ms, &mut plan);
        for (id, waiting) in refused {
            self.verdicts.tell(&id, waiting);
        }
        if let Some(mut quota) = self.quota.take() {
            let limits = self.settings.limits;
            let mut oracle = self.oracle(now_ms);
            let found = quota.plan(now_ms, limits, &mut oracle);
            let no_place = oracle.no_place;
            self.quota = Some(quota);
            self.act(found, no_place, now_ms, &mut plan);
        }
        plan.told = self.verdicts.take_told(now_ms);
        plan.wake_ms = earliest(plan.wake_ms, self.verdicts.next_sweep_ms());
        plan
    }

    fn oracle(&mut self, now_ms: i64) -> Oracle<'_> {
        Oracle {
            rooms: &mut self.rooms,
            open: &mut self.open,
            jobs: &self.jobs,
            learnt: &self.learnt,
            now_ms,
            no_place: BTreeMap::new(),
        }
    }

    /// Carries out what the rules of quota decided.
    fn act(
        &mut self,
        found: fleet_quota::Plan,
        mut no_place: BTreeMap<JobId, Waiting>,
        now_ms: i64,
        plan: &mut Plan,
    ) {
        plan.more = found.more;
        plan.wake_ms = earliest(plan.wake_ms, found.wake_at_ms.filter(|wake| *wake != i64::MAX));
        self.hold_back_refused(&no_place, now_ms, plan);
        let mut given_up = BTreeSet::new();
        for fleet_quota::Decision { job, outcome, .. } in found.decisions {
            match outcome {
                Outcome::Admit { cluster } => self.start(&job, cluster.as_str().to_string(), now_ms, plan),
                Outcome::Take(take) => evict(&job, take, plan),
                Outcome::Claim(claim) => {
                    let start = match claim.start_ms {
                        Some(at) => format!("in about {} s", (at - now_ms).max(0) / 1000),
                        None => format!(
                            "when enough jobs there have ended, or gives the claim up in {} s",
                            (claim.until_ms - now_ms).max(0) / 1000
                        ),
                    };
                    let message = format!(
                        "holds a claim on {}: others have passed it for {} s; room in {} is kept for it and it \
                         starts {start}",
                        claim.cluster,
                        (now_ms - claim.passed_since_ms).max(0) / 1000,
                        claim.path
                    );
                    self.verdicts.tell(&job, Waiting::new(Reason::Claimed, message));
                }
                Outcome::GiveUp(claim) => {
                    self.verdicts
                        .tell(&job, Waiting::new(Reason::ClaimGivenUp, given_up_text(&claim, now_ms)));
                    given_up.insert(job);
                }
                // That it has lost its claim is said first.
                Outcome::Wait(_) if given_up.contains(&job) => {}
                Outcome::Wait(reason) => self.explain(&job, reason, now_ms, &mut no_place),
            }
        }
        // Decisions tell a reason when its kind changes; what a cluster lacks changes within one kind.
        for (id, waiting) in no_place {
            let told = self.verdicts.get(&id).map(|told| told.reason);
            let kept = matches!(
                told,
                Some(
                    Reason::WaitingForVictims
                        | Reason::Claimed
                        | Reason::ClaimGivenUp
                        | Reason::VictimProtected
                )
            );
            let class = self.jobs.get(&id).filter(|entry| entry.job.stand == Stand::Waits).map(|e| e.class);
            let Some(class) = class.filter(|_| !kept) else { continue };
            if let Some(class) = class {
                self.verdicts.tell_class(class, &waiting);
            }
            self.verdicts.tell(&id, waiting);
        }
    }

    /// Room and quota are taken: the job leaves its line.
    fn start(&mut self, id: &JobId, cluster: String, now_ms: i64, plan: &mut Plan) {
        self.unqueue(id);
        self.verdicts.remove(id);
        let Some(entry) = self.jobs.get_mut(id) else { return };
        entry.job.stand = Stand::holds(&cluster);
        if let (Some(quota), Ok(leaf)) = (self.quota.as_mut(), &entry.leaf) {
            admit(quota, &entry.job, *leaf, now_ms);
        }
        let reserves = self.rooms.get(&cluster).is_none_or(|room| room.reserves);
        plan.decisions.push(match reserves {
            true => Decision::Ask { job: id.clone(), cluster },
            false => Decision::Bind { job: id.clone(), cluster },
        });
    }

    /// Jobs that every candidate with room has refused are not looked at for a while. One that takes, or that
    /// room is kept for, goes on waiting for that: victims do not end in vain.
    fn hold_back_refused(&mut self, no_place: &BTreeMap<JobId, Waiting>, now_ms: i64, plan: &mut Plan) {
        for id in no_place.keys() {
            let Some(entry) = self.jobs.get_mut(id) else { continue };
            let holds_room = self.quota.as_ref().is_some_and(|quota| quota.holds_room(id));
            if !entry.refusals.tried.is_empty() && !holds_room {
                entry.refusals.hold_back(id, &self.settings, now_ms);
            }
            let Some(until) = entry.refusals.until_ms.filter(|until| *until > now_ms) else { continue };
            plan.wake_ms = earliest(plan.wake_ms, Some(until));
            let queued = self.quota.as_ref().and_then(|quota| quota.queues().get(id));
            if queued.is_some_and(|job| job.not_before_ms < until) {
                self.unqueue(id);
                self.enqueue(id);
            }
        }
    }

    /// Turns a reason into sentences, for the job and for its equals.
    fn explain(
        &mut self,
        id: &JobId,
        reason: WaitReason,
        now_ms: i64,
        no_place: &mut BTreeMap<JobId, Waiting>,
    ) {
        let waiting = match reason {
            WaitReason::Quota(verdict) => Waiting::new(
                Reason::from_text(verdict.reason()).unwrap_or(Reason::InsufficientQuota),
                verdict.sentence(),
            ),
            WaitReason::NoPlace => match no_place.remove(id) {
                Some(waiting) => waiting,
                None => return,
            },
            WaitReason::BehindHead(head) => Waiting::new(
                Reason::BehindHead,
                format!("{head} goes first in this queue and cannot start yet"),
            ),
            WaitReason::Claimed { holder } => Waiting::new(
                Reason::Claimed,
                format!("the room is kept for {holder}, which has waited longer"),
            ),
            WaitReason::Protected { victim, until_ms } => {
                let message = format!(
                    "{victim} could make room for it; it is protected until it has run for {} s more",
                    ((until_ms - now_ms).max(0) + 999) / 1000
                );
                self.verdicts.tell(id, Waiting::new(Reason::VictimProtected, message));
                return;
            }
            WaitReason::WaitingForVictims { cluster, victims } => {
                let names: Vec<&str> = victims.iter().take(VICTIMS_NAMED).map(JobId::as_str).collect();
                let message = format!(
                    "waits in {cluster} for {} {} to end: {}",
                    victims.len(),
                    if victims.len() == 1 { "job" } else { "jobs" },
                    names.join(", ")
                );
                self.verdicts.tell(id, Waiting::new(Reason::WaitingForVictims, message));
                return;
            }
            WaitReason::Backoff { .. } => return,
        };
        if let Some(class) = self.jobs.get(id).and_then(|entry| entry.class) {
            self.verdicts.tell_class(class, &waiting);
        }
        self.verdicts.tell(id, waiting);
    }
}

fn given_up_text(claim: &Claim, now_ms: i64) -> String {
    let kept_s = ((now_ms - claim.since_ms) / 1000).max(1);
    let idle: Vec<String> = claim
        .idled
        .iter()
        .map(|(name, amount)| (name.as_str(), amount / kept_s))
        .filter(|(_, mean)| *mean > 0)
        .map(|(name, mean)| format!("{} {name}", quantity::format(name, mean)))
        .collect();
    let idle = match idle.is_empty() {
        true => "nothing was kept idle".to_string(),
        false => format!("{} were kept idle on average", idle.join(", ")),
    };
    format!("gave up its claim on {} after {kept_s} s: no start is in sight; {idle}", claim.cluster)
}

fn evict(taker: &JobId, take: Take, plan: &mut Plan) {
    plan.decisions.extend(take.victims.into_iter().map(|victim| Decision::Evict {
        job: victim.job,
        taker: taker.clone(),
        cluster: take.cluster.as_str().to_string(),
        rule: victim.rule,
        lost_work_ms: victim.lost_work_ms,
    }));
}

fn reason_of(error: &LeafError) -> Reason {
    match error {
        LeafError::NotAdmitted { .. } => Reason::NotAdmittedToQueue,
        LeafError::UnknownName { .. } | LeafError::NotALeaf { .. } | LeafError::UnknownNamespace { .. } => {
            Reason::NotInQuotaTree
        }
    }
}

/// The leaf that a job which holds quota was admitted in, where the tree still has it.
fn admitted_in(quota: &fleet_quota::Planner, job: &Job) -> Option<NodeId> {
    if job.stand == Stand::Waits {
        return None;
    }
    let tree = quota.tree();
    tree.find(job.last_leaf.as_ref()?).filter(|leaf| tree.node(*leaf).is_leaf())
}

/// Where what the job holds is counted: in its leaf; where the tree has none for it any more, where it was
/// admitted, so that a controller that starts anew counts the jobs of a deleted leaf as well. A job that names a
/// leaf which does not take it never counts there: else in the leaf of its namespace.
fn leaf_of_use(quota: &mut fleet_quota::Planner, entry: &Entry) -> Option<NodeId> {
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

fn direct_order(job: &Job) -> DirectOrder {
    (Reverse(job.priority), job.enqueued_at_ms, job.id.clone())
}

fn namespace_of(id: &JobId) -> &str {
    id.as_str().split_once('/').map_or("", |(namespace, _)| namespace)
}

fn name_of(id: &JobId) -> &str {
    id.as_str().split_once('/').map_or(id.as_str(), |(_, name)| name)
}

pub fn earliest<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

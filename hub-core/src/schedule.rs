//! Connects the planner: objects of the world become its inputs, its decisions become writes.
//!
//! Each binding of a gang is one job of the [`planner`](fleet_planner). Its inputs are updated whenever the
//! hub's objects change, so a restart needs only a list.

mod cells;
mod facts;
mod inputs;
mod left_behind;
mod remains;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use fleet_api::mutation::{self, Mutation};
use fleet_api::{cells::AccessRules, reservation::ReservationPhase};
use fleet_cells::config::ClusterConfig;
use fleet_planner::{Silence, verify};
use fleet_policies::reason::Reason;
use fleet_quota::{JobId, Ledger, QueuePolicy, TakeRule};
use fleet_quota_tree::QuotaTree;
use jiff::{SignedDuration, Timestamp};

use crate::{
    asked,
    binding::BindingEntry,
    dispatch,
    forms::Forms,
    intents::{Eviction, Intents},
    manifests,
    options::Options,
    planner::{Answer, Decision, JobShape, Planner, Settings, Waiting, earliest},
    spread, unqueued,
    world::{Dirty, Key, World},
    writes::{Target, Verb, Write},
};
pub(crate) use facts::cluster_of;
use facts::{components_in, is_next, member};
pub use facts::{job_id, key_of};
pub use fleet_planner::verify::Violation;
use requests::{Requests, ask, bind, whole};

/// When it is looked again whether the cells of a reservation are known.
const CELLS_LOOK: SignedDuration = SignedDuration::from_millis(200);
/// How long jobs wait that a rejected plan would have placed.
const REFUSED_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// The planner and its state between plans.
#[derive(Default)]
pub struct Scheduler {
    planner: Planner,
    /// Reservations and binds that were sent and not seen yet, with their cluster.
    asking: BTreeMap<Key, String>,
    /// Equal bindings share one shape.
    shapes: BTreeMap<Arc<str>, Weak<JobShape>>,
    shape_count: u64,
    /// Number of shapes when unused ones were last dropped.
    shapes_left: usize,
    /// Runs that are over and still count, by the name of their binding.
    remains: BTreeMap<Key, BTreeSet<JobId>>,
    /// Why objects that are not jobs are on no cluster.
    plain: BTreeMap<Key, Waiting>,
    plain_told: BTreeSet<Key>,
    /// When the inputs of a job change by time alone.
    rereads: BTreeSet<(Timestamp, Key)>,
    silence: Silence,
    /// Who may use which virtual cluster.
    cell_access: AccessRules,
    /// The configuration of cells as written, before its trees got members.
    cell_config: Option<ClusterConfig>,
    /// Whether it has been known which configuration is in force, if any.
    are_cells_known: bool,
    /// Why none is in force although one exists.
    cell_trouble: Option<String>,
    /// What overrides make of waiting jobs.
    pub forms: Forms,
    options: Options,
}

/// Result of a pass.
#[derive(Debug, Default)]
pub struct Pass {
    pub writes: Vec<(Key, Write)>,
    /// Bindings whose reason for waiting changed.
    pub told: BTreeSet<Key>,
    /// Run the next pass at this time.
    pub wake: Option<Timestamp>,
    pub more: bool,
    /// Number of jobs that the plan places, even if it is not sent.
    pub started: usize,
    /// Rules by which runs are preempted.
    pub evicted: Vec<TakeRule>,
    /// Invariants that the plan would break; if there are any, nothing of it is sent.
    pub violations: Vec<Violation>,
}

impl Scheduler {
    pub fn new(options: &Options) -> Self {
        let ms = |time: core::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let settings = Settings {
            backoff_base_ms: ms(options.backoff_base),
            backoff_max_ms: ms(options.backoff_max),
            ..Settings::default()
        };
        Self { planner: Planner::new(settings), options: options.clone(), ..Self::default() }
    }

    /// Why a binding waits, as of the last pass; for a bound one, why some of its pods wait.
    pub fn waiting(&self, key: &Key) -> Option<&Waiting> {
        let id = job_id(key);
        let of_queue = self.planner.waiting(&id).or_else(|| self.planner.partly_waiting(&id));
        of_queue.or_else(|| self.plain.get(key))
    }

    pub fn ledger(&self) -> Option<&Ledger> {
        self.planner.ledger()
    }

    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Sets a new tree, or none and why.
    pub fn set_tree(
        &mut self,
        tree: Option<Arc<QuotaTree>>,
        trouble: Option<&str>,
        world: &mut World,
        intents: &Intents,
        now: Timestamp,
    ) {
        self.planner.set_tree_trouble(trouble);
        let before = std::mem::replace(&mut world.quota_tree, tree.clone());
        let requires = |tree: &QuotaTree| tree.ids().any(|id| tree.node(id).requires_queue);
        let may_change = before.iter().chain(&tree).any(|tree| requires(tree));
        self.planner.set_tree(tree, now.as_millisecond());
        world.leaves.clear();
        if may_change {
            world.mark_all_objects();
        }
        let keys: Vec<Key> = world.bindings.keys().cloned().collect();
        for key in keys {
            // A leaf may name the virtual cluster of its jobs, and may require that they queue.
            if may_change || self.planner.cells().is_some() {
                self.look(world, intents, &key, now);
            }
            if may_change {
                world.mark(Dirty::Binding(key.clone()));
            }
            self.note_leaf(world, &key);
        }
        world.schedule = true;
    }

    pub fn set_policy(&mut self, path: &str, policy: QueuePolicy) {
        self.planner.set_policy(path, policy);
    }

    /// Updates the planner's inputs for one binding.
    pub fn look(&mut self, world: &mut World, intents: &Intents, key: &Key, now: Timestamp) {
        self.count_remains(world, key, now);
        match self.job(world, intents, key, now) {
            Some(job) => {
                self.plain.remove(key);
                self.planner.set_job(job, now.as_millisecond());
            }
            None => {
                self.planner.remove_job(&job_id(key), now.as_millisecond());
                if !world.bindings.contains_key(key) {
                    self.plain.remove(key);
                    self.silence.forget(key);
                }
            }
        }
        self.note_sent(world, key, now);
        self.note_leaf(world, key);
        world.schedule |= self.planner.needs_plan();
    }

    /// Whether a member has taken up the job that was sent to it.
    fn note_sent(&mut self, world: &World, key: &Key, now: Timestamp) {
        let entry = world.bindings.get(key).filter(|entry| entry.is_bound() && entry.is_gang());
        let work =
            entry.and_then(|entry| world.works_of(key).find(|(_, work)| manifests::is_of_run(entry, work)));
        match work {
            // Its member has nothing to take up.
            Some((_, work)) if work.spec.suspend_dispatching == Some(true) => {
                self.silence.heard(key, None, now.as_millisecond());
            }
            Some(((namespace, _), work)) if work.status.is_none() => {
                let uid = work.metadata.uid.as_deref().unwrap_or_default();
                self.silence.sent(key, cluster_of(namespace), uid, now.as_millisecond());
            }
            Some(((namespace, _), _)) => {
                self.silence.heard(key, Some(cluster_of(namespace)), now.as_millisecond());
            }
            None => self.silence.heard(key, None, now.as_millisecond()),
        }
    }

    fn note_leaf(&self, world: &mut World, key: &Key) {
        match self.planner.leaf_path(&job_id(key)) {
            Some(path) if world.leaves.get(key).is_none_or(|known| known != path) => {
                world.leaves.insert(key.clone(), path.to_string());
            }
            Some(_) => {}
            None => {
                world.leaves.remove(key);
            }
        }
    }

    /// Handles members' answers to one binding's reservations: binds it, or tries another cluster.
    pub fn answers(&mut self, world: &World, key: &Key, now: Timestamp) -> Vec<Write> {
        let Some(entry) = world.bindings.get(key).filter(|entry| !entry.is_bound() && !entry.is_finished())
        else {
            return Vec::new();
        };
        let Some(object) = world.bound_object(entry).filter(|object| !object.deleting) else {
            return Vec::new();
        };
        // After an edit, or an edit of the tree, places are requested again once the binding is up to date.
        if !self.forms.is_current(world, entry, object) || !unqueued::is_told(world, entry) {
            return Vec::new();
        }
        let is_given_up = self.is_over_quota(key, entry) || is_held_back(entry);
        let mut writes = Vec::new();
        for (place, reservation) in world.reservations_of(key) {
            if reservation.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let cluster = cluster_of(&place.0);
            // Places that were requested before the job was changed are requested again.
            let current = is_next(entry, reservation)
                && components_in(world, entry, object, cluster)
                    .is_ok_and(|components| components == reservation.spec.components);
            let status = reservation.status.as_ref();
            let lost = world.clusters.get(cluster).is_none_or(|cluster| !crate::world::ready(cluster));
            let delete = || {
                let uid = reservation.metadata.uid.clone().unwrap_or_default();
                Write::new(Target::Reservation, &place.0, &place.1, Verb::Delete { uid })
            };
            // A member without reservations gives no answer; its reservation only records the intent.
            let phase = match status.and_then(|status| status.phase) {
                None if current && !lost && !world.reserves(cluster) => Some(ReservationPhase::Reserved),
                phase => phase,
            };
            match phase {
                // Requested by a controller that has died since, and written only now, when other jobs have
                // the quota.
                Some(ReservationPhase::Reserved) if current && is_given_up => writes.push(delete()),
                Some(ReservationPhase::Reserved) if current => {
                    self.silence.answered(key, cluster, now.as_millisecond());
                    if !reservation.spec.cells.is_empty() && !self.knows_cells_of(key, now) {
                        self.rereads.insert((now + CELLS_LOOK, key.clone()));
                        continue;
                    }
                    let answer = Answer::Reserved;
                    let answered = self.planner.answer(&job_id(key), cluster, answer, now.as_millisecond());
                    if let Some(Decision::Bind { cluster, .. }) = answered {
                        let (cells, queue) = (self.cell_binding(key), world.leaves.get(key));
                        let admitted = self.planner.job(&job_id(key)).map(requests::admitted);
                        let target = whole(&reservation.spec.components, &cluster);
                        return vec![bind(entry, target, cells, (queue, admitted), now)];
                    }
                }
                None if current && !lost => {
                    let (uid, now_ms) = (reservation.metadata.uid.as_deref(), now.as_millisecond());
                    let due_ms = self.silence.due(key, uid, cluster, now_ms);
                    if now_ms < due_ms {
                        let due = Timestamp::from_millisecond(due_ms).unwrap_or(Timestamp::MAX);
                        self.rereads.insert((due, key.clone()));
                        continue;
                    }
                    self.silence.missed(key, cluster, now_ms);
                    let answer =
                        Answer::Refused { message: "it has not answered the reservation".to_string() };
                    self.planner.answer(&job_id(key), cluster, answer, now_ms);
                    writes.push(delete());
                }
                phase => {
                    if current && phase.is_some() {
                        self.refused(key, cluster, reservation, now);
                    }
                    if !dispatch::are_cells_in_use(world, place, reservation) {
                        writes.push(delete());
                    }
                }
            }
        }
        writes
    }

    /// The member has refused the reservation, or it has expired there.
    fn refused(&mut self, key: &Key, cluster: &str, reservation: &fleet_api::Reservation, now: Timestamp) {
        let (id, now_ms) = (job_id(key), now.as_millisecond());
        self.silence.answered(key, cluster, now_ms);
        let status = reservation.status.clone().unwrap_or_default();
        let answer = Answer::Refused { message: status.message.unwrap_or_default() };
        self.planner.answer(&id, cluster, answer, now_ms);
        let (_, at_fault) = fleet_api::cell_answers::ungiven(reservation);
        self.planner.doubt_cell_nodes(cluster, at_fault, now_ms);
        self.planner.exclude_cell_nodes(&id, cluster, &status.excluded_nodes, now_ms);
    }

    /// Whether a queued job that holds places exceeds the quota together with everything else that is held.
    fn is_over_quota(&self, key: &Key, entry: &BindingEntry) -> bool {
        let Some(ledger) = self.planner.ledger().filter(|_| entry.is_suspended()) else { return false };
        !mutation::is_on(Mutation::QuotaNotCounted)
            && ledger.job(&job_id(key)).is_some()
            && verify::over_quota(ledger, &job_id(key), &entry.total, &mut BTreeMap::new()).is_some()
    }

    /// The reservation of a binding exists on the hub, or could not be created.
    pub fn asked(&mut self, world: &mut World, intents: &Intents, key: &Key, now: Timestamp) {
        self.asking.remove(key);
        self.look(world, intents, key, now);
    }

    /// The write of a job's reservation or bind failed: it is retried after a back-off.
    pub fn hold(&mut self, key: &Key, until: Timestamp, now: Timestamp) {
        self.planner.hold_back(&job_id(key), until.as_millisecond(), now.as_millisecond());
    }

    /// Places an object that may be on several clusters.
    pub fn spread(&mut self, world: &mut World, key: &Key, now: Timestamp) -> Option<Write> {
        self.count(world, now);
        let entry = world.bindings.get(key).filter(|entry| !entry.is_gang())?;
        let object = world.bound_object(entry).filter(|object| !object.deleting)?;
        // What is placed stays as it was sent, while its clusters stay.
        if !entry.is_bound()
            && let Some(waiting) = unqueued::barred(world, entry, object, &object.value)
        {
            self.tell(key, waiting);
            world.schedule |= !self.plain_told.is_empty();
            return None;
        }
        // A job that was sent is not sent again when the set of clusters changes.
        if entry.is_finished() || (entry.workload.is_job() && entry.is_bound()) {
            return None;
        }
        if entry.object.spec.suspension.as_ref().is_some_and(|s| s.dispatching == Some(true)) {
            self.tell(key, Waiting::new(Reason::Suspended, "the policy suspends dispatching"));
            return None;
        }
        let leaving = world.leaving_clusters();
        match spread::targets(self.planner.rooms(), entry, &leaving) {
            Ok(targets) => {
                self.plain.remove(key);
                (targets != entry.object.spec.clusters)
                    .then(|| bind(entry, targets, None, (world.leaves.get(key), None), now))
            }
            Err(waiting) => {
                // A drain removes it even if no other cluster admits it.
                let withdrawn = entry.is_bound()
                    && waiting.reason == Reason::ClusterNotAdmitted
                    && entry.object.spec.clusters.iter().all(|target| leaving.contains(&target.name));
                let write = withdrawn.then(|| requests::withdraw(entry, &waiting.message, now));
                if withdrawn || !entry.is_bound() {
                    self.tell(key, waiting);
                    world.schedule |= !self.plain_told.is_empty();
                }
                write
            }
        }
    }

    fn tell(&mut self, key: &Key, waiting: Waiting) {
        if self.plain.get(key) != Some(&waiting) {
            self.plain.insert(key.clone(), waiting);
            self.plain_told.insert(key.clone());
        }
    }

    /// Updates members that reported or changed.
    fn count(&mut self, world: &mut World, now: Timestamp) {
        world.recount.append(&mut self.silence.take_changed(now.as_millisecond()));
        for name in std::mem::take(&mut world.recount) {
            match member(world, &name) {
                Some(mut member) => {
                    member.facts.ready &= !self.silence.is_muted(&name, now.as_millisecond());
                    self.planner.set_cluster(&name, member);
                }
                None => self.planner.remove_cluster(&name),
            }
            self.tell_cell_nodes(world, &name);
        }
    }

    /// Makes one plan over everything that waits.
    pub fn pass(&mut self, world: &mut World, intents: &mut Intents, now: Timestamp) -> Pass {
        self.count(world, now);
        while let Some((_, key)) = self.rereads.first().filter(|(due, _)| *due <= now).cloned() {
            self.rereads.pop_first();
            self.look(world, intents, &key, now);
            // It may have waited too long for an answer.
            world.mark(Dirty::Binding(key));
        }
        let tree = self.planner.quota().map(|quota| quota.tree().clone());
        let mut plan = self.planner.plan(now.as_millisecond());
        if self.planner.quota().map(fleet_quota::Planner::tree) != tree.as_ref() {
            world.mark(Dirty::Tree);
        }
        let ends = |decision: &&Decision| {
            matches!(decision, Decision::Evict { .. } | Decision::Move { .. } | Decision::EndPods { .. })
        };
        let started = plan.decisions.iter().filter(|decision| !ends(decision)).count();
        let violations = self.refuse(world, &plan.decisions, now);
        if !violations.is_empty() {
            plan.decisions.clear();
            plan.wake_ms = earliest(plan.wake_ms, Some((now + REFUSED_PAUSE).as_millisecond()));
        }
        let mut pass = Pass {
            told: std::mem::take(&mut self.plain_told),
            wake: self.next_look(plan.wake_ms, now),
            more: plan.more,
            started,
            violations,
            ..Pass::default()
        };
        pass.told.extend(plan.told.iter().map(key_of));
        for decision in plan.decisions {
            let (job, cluster) = match decision {
                // For a member without reservations, the reservation records the intent before the bind: the
                // next controller counts the job by it and binds the job itself.
                Decision::Ask { job, cluster } | Decision::Bind { job, cluster } => (job, cluster),
                Decision::Regroup { job, cluster } => {
                    let key = key_of(&job);
                    let writes = self.regroup(world, &key, &cluster, now);
                    pass.writes.extend(writes.into_iter().map(|write| (key.clone(), write)));
                    continue;
                }
                Decision::EndPods { job, taker, .. } => {
                    left_behind::end(world, intents, &job, &taker);
                    continue;
                }
                Decision::Evict { job, taker, cluster, rule, lost_work_ms } => {
                    pass.evicted.push(rule);
                    let message = self.planner.preemption_text(&job, &taker, &cluster, rule, lost_work_ms);
                    pass.told.extend(evict(world, intents, &key_of(&job), Reason::Preempted, message));
                    continue;
                }
                Decision::Move { job, message, .. } => {
                    pass.told.extend(evict(world, intents, &key_of(&job), Reason::InvalidCells, message));
                    continue;
                }
            };
            let key = key_of(&job);
            let Some(entry) = world.bindings.get(&key) else { continue };
            let Some(object) = world.bound_object(entry) else { continue };
            // Whatever can no longer be sent there is reported in the next reconcile.
            let Ok(components) = components_in(world, entry, object, &cluster) else {
                world.mark(Dirty::Binding(key));
                continue;
            };
            let requests = Requests {
                components,
                cells: self.planner.cell_groups(&job),
                without_cells: self.planner.components_without_cells(&job),
                completions: asked::completions(world, &entry.kind, entry.namespace(), object, &cluster),
            };
            let write = ask(entry, requests, &cluster, &self.options, world.term);
            self.asking.insert(key.clone(), cluster);
            pass.writes.push((key, write));
        }
        pass
    }

    /// When to look again: at the plan's time, or when inputs change by themselves.
    fn next_look(&self, plan_ms: Option<i64>, now: Timestamp) -> Option<Timestamp> {
        let next_ms = earliest(plan_ms, self.silence.next_end(now.as_millisecond()));
        let next = next_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        earliest(self.rereads.first().map(|(due, _)| *due), next)
    }

    /// Checks the invariants. If the plan would break one, nothing of it is sent, and the jobs that it would
    /// have placed wait for a moment.
    fn refuse(&mut self, world: &World, decisions: &[Decision], now: Timestamp) -> Vec<Violation> {
        let known = |job: &JobId| {
            let key = key_of(job);
            let entry = world.bindings.get(&key)?;
            let bound = entry.object.spec.clusters.first().map(|target| target.name.clone());
            Some(verify::Known {
                target: bound.or_else(|| self.asking.get(&key).cloned()),
                is_over: entry.is_finished(),
                is_queued: entry.is_suspended(),
                is_preemptible: unqueued::is_preemptible(entry, world.bound_object(entry)),
                total: entry.total.clone(),
            })
        };
        let broken = verify::broken(known, self.planner.ledger(), decisions);
        for decision in decisions.iter().filter(|_| !broken.is_empty()) {
            if let Decision::Ask { job, .. } | Decision::Bind { job, .. } = decision {
                let until = (now + REFUSED_PAUSE).as_millisecond();
                self.planner.hold_back(job, until, now.as_millisecond());
            }
        }
        broken
    }
}

/// Evicts a run. Its binding records this in one write; from then on it is only evicted, even after a restart of
/// this process.
fn evict(
    world: &mut World,
    intents: &mut Intents,
    key: &Key,
    reason: Reason,
    message: String,
) -> Option<Key> {
    let entry = world.bindings.get(key).filter(|entry| entry.is_bound() && !entry.is_finished())?;
    let eviction = Eviction { epoch: entry.object.spec.epoch, reason, message };
    intents.evictions.insert(key.clone(), eviction);
    world.mark(Dirty::Binding(key.clone()));
    Some(key.clone())
}

/// Its policy suspends dispatching. If it does so after places were requested, they would be kept for nothing.
fn is_held_back(entry: &BindingEntry) -> bool {
    entry.object.spec.suspension.as_ref().is_some_and(|suspension| suspension.dispatching == Some(true))
}

//! Who is admitted next, and where to: admission and placement as one decision.
//!
//! Keeps the waiting jobs in their queues and what the admitted ones use, both rebuilt from the bindings
//! by looking at each once. A pass takes the jobs in the order of the quota tree, finds a member whose room
//! holds the whole gang, and asks that member to reserve; the answer binds the job or sends it back to its
//! place in line.

mod place;
mod requests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fleet_api::{Reservation, reservation::ReservationPhase};
use fleet_placement::Gang;
use fleet_policies::reason::Reason;
use fleet_quota::{
    AdmittedJob, JobId, Ledger, NodeId, Outcome, PREEMPTIBLE_LABEL, PlanLimits, Planner, QueuePolicy,
    QuotaTree, WaitReason, WaitingJob,
};
use jiff::Timestamp;

use crate::{
    binding::{BindingEntry, cluster_namespace},
    dispatch::Waiting,
    options::Options,
    room::Rooms,
    spread,
    world::{Key, World},
    writes::{Target, Verb, Write},
};
use place::{Placer, Refusals};
use requests::{ask, bind, whole};

/// Jobs looked at in one pass; the rest follow in the next.
const PASS_LIMITS: PlanLimits = PlanLimits { admissions: 256, probes: 4096, searches: 0 };

/// Where a binding stands for the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Nothing to place: gone, finished, or not a gang.
    Out,
    /// Holds quota: reserving or bound.
    Holds,
    Waits,
}

/// The scheduler's memory; all of it follows from the world, but for pauses and explanations.
#[derive(Default)]
pub struct Scheduler {
    tree: Option<Arc<QuotaTree>>,
    /// What waits in queues and what the admitted use; none without a tree.
    planner: Option<Planner>,
    /// Jobs that wait without a queue, in order.
    direct: BTreeMap<Key, DirectOrder>,
    rooms: Rooms,
    /// Reservations on their way to the hub, by binding: the cluster asked.
    asking: BTreeMap<Key, String>,
    refusals: BTreeMap<Key, Refusals>,
    verdicts: BTreeMap<Key, Waiting>,
    /// Bindings whose verdict changed since the last pass.
    told: BTreeSet<Key>,
    classes: HashMap<String, u64>,
    /// Jobs that joined a queue since the last pass.
    fresh: BTreeSet<Key>,
}

/// Priority high to low, then age, then name.
type DirectOrder = (std::cmp::Reverse<i32>, i64);

/// What a pass came to.
#[derive(Debug, Default)]
pub struct Pass {
    pub writes: Vec<(Key, Write)>,
    /// Bindings whose reason for waiting changed.
    pub told: BTreeSet<Key>,
    /// Pass again then.
    pub wake: Option<Timestamp>,
    pub more: bool,
}

impl Scheduler {
    /// Why a binding waits, as last seen.
    pub fn waiting(&self, key: &Key) -> Option<&Waiting> {
        self.verdicts.get(key)
    }

    pub fn planner(&self) -> Option<&Planner> {
        self.planner.as_ref()
    }

    pub fn ledger(&self) -> Option<&Ledger> {
        self.planner.as_ref().map(Planner::ledger)
    }

    pub fn set_policy(&mut self, leaf: NodeId, policy: QueuePolicy) {
        if let Some(planner) = self.planner.as_mut() {
            planner.set_policy(leaf, policy);
        }
    }

    /// The job waits in no queue any more.
    fn leave_queue(&mut self, id: &JobId) {
        if let Some(planner) = self.planner.as_mut() {
            planner.remove(id);
        }
    }

    /// A new tree, or none. Everything is counted anew by looking at each binding again.
    pub fn set_tree(&mut self, tree: Option<Arc<QuotaTree>>, world: &mut World, now: Timestamp) {
        self.planner = tree.clone().map(Planner::new);
        self.tree = tree;
        world.leaves.clear();
        let keys: Vec<Key> = world.bindings.keys().cloned().collect();
        for key in keys {
            self.look(world, &key, now);
        }
        world.schedule = true;
    }

    /// Takes in where one binding stands now.
    pub fn look(&mut self, world: &mut World, key: &Key, now: Timestamp) {
        let id = job_id(key);
        let stand = self.stand(world, key);
        let plain = world.bindings.get(key).is_some_and(|entry| !entry.is_gang());
        if stand != Stand::Waits && !plain {
            self.leave_queue(&id);
            self.direct.remove(key);
            if self.verdicts.remove(key).is_some() {
                world.schedule = true;
            }
        }
        match stand {
            Stand::Out => {
                self.refusals.remove(key);
                world.leaves.remove(key);
                if self.planner.as_mut().is_some_and(|planner| planner.release(&id).is_some()) {
                    world.schedule = true;
                }
            }
            Stand::Holds => {
                let leaf = self.leaf(world, key);
                let Some(entry) = world.bindings.get(key) else { return };
                if let (Some(planner), Some(Ok(leaf))) = (self.planner.as_mut(), leaf) {
                    let known = planner.ledger().job(&id);
                    if known.is_some_and(|known| known.leaf != leaf || known.request != entry.total) {
                        planner.release(&id);
                    }
                    planner.admit(AdmittedJob {
                        id,
                        leaf,
                        request: entry.total.clone(),
                        preemptible: preemptible(world, entry),
                        priority: i64::from(entry.object.spec.priority),
                        admitted_at_ms: now.as_millisecond(),
                    });
                    self.note_leaf(world, key, leaf);
                }
            }
            Stand::Waits => {
                if let Some(planner) = self.planner.as_mut() {
                    planner.release(&id);
                }
                self.enqueue(world, key);
            }
        }
    }

    fn stand(&self, world: &World, key: &Key) -> Stand {
        let Some(entry) = world.bindings.get(key) else { return Stand::Out };
        let alive = world.bound_object(entry).is_some_and(|object| !object.deleting);
        if !alive || entry.is_finished() || !entry.is_gang() {
            return Stand::Out;
        }
        if entry.is_bound() || self.asking.contains_key(key) || asked(world, key, entry).next().is_some() {
            return Stand::Holds;
        }
        Stand::Waits
    }

    fn leaf(&self, world: &World, key: &Key) -> Option<Result<NodeId, String>> {
        let tree = self.tree.as_ref()?;
        let entry = world.bindings.get(key)?;
        let labels = world.bound_object(entry).map(|object| object.labels.clone()).unwrap_or_default();
        Some(tree.leaf_for(&labels, &key.0).map_err(|error| error.to_string()))
    }

    fn note_leaf(&self, world: &mut World, key: &Key, leaf: NodeId) {
        if let Some(tree) = &self.tree {
            world.leaves.insert(key.clone(), tree.node(leaf).path.clone());
        }
    }

    fn enqueue(&mut self, world: &mut World, key: &Key) {
        let Some(entry) = world.bindings.get(key) else { return };
        if !entry.is_suspended() {
            self.planner.as_mut().map(|planner| planner.remove(&job_id(key)));
            let order = (std::cmp::Reverse(entry.object.spec.priority), entry.created_s());
            if self.direct.insert(key.clone(), order) != Some(order) {
                world.schedule = true;
            }
            return;
        }
        self.direct.remove(key);
        let leaf = match self.leaf(world, key) {
            Some(Ok(leaf)) => leaf,
            Some(Err(message)) => {
                self.tell(key, Reason::NoQuotaLeaf, message);
                return;
            }
            None => {
                self.tell(
                    key,
                    Reason::NoQuotaLeaf,
                    "there is no usable ElasticQuotaTree in kube-system".to_string(),
                );
                return;
            }
        };
        let id = job_id(key);
        let shape = self.shape(key, entry);
        let job = WaitingJob {
            name: key.1.as_str().into(),
            leaf,
            request: entry.total.clone(),
            preemptible: preemptible(world, entry),
            priority: i64::from(entry.object.spec.priority),
            enqueued_at_ms: entry.created_s() * 1000,
            not_before_ms: self.refusals.get(key).and_then(|r| r.until).map_or(0, Timestamp::as_millisecond),
            run_time_ms: None,
            shape,
            id: id.clone(),
        };
        if let Some(planner) = self.planner.as_mut().filter(|p| p.queues().get(&id) != Some(&job)) {
            planner.enqueue(job);
            self.fresh.insert(key.clone());
            world.schedule = true;
        }
        self.note_leaf(world, key, leaf);
    }

    /// Jobs of one shape are placed alike: same components, same rules, refused by the same clusters.
    fn shape(&mut self, key: &Key, entry: &BindingEntry) -> u64 {
        let mut class = entry.class.clone();
        if let Some(refusals) = self.refusals.get(key) {
            for cluster in &refusals.tried {
                class.push('!');
                class.push_str(cluster);
            }
        }
        for attempt in entry.object.status.iter().flat_map(|status| &status.attempts) {
            class.push('-');
            class.push_str(&attempt.cluster);
            // What is held against a cluster fades with time.
            class.push_str(&attempt.ended_at);
        }
        let next = self.classes.len() as u64;
        *self.classes.entry(class).or_insert(next)
    }

    fn tell(&mut self, key: &Key, reason: Reason, message: String) {
        let fresh = Waiting { reason, message };
        if self.verdicts.get(key) != Some(&fresh) {
            self.verdicts.insert(key.clone(), fresh);
            self.told.insert(key.clone());
        }
    }

    /// Answers of members to one binding's reservations: binds it, or lets it go on.
    pub fn answers(&mut self, world: &World, key: &Key, now: Timestamp) -> Vec<Write> {
        let Some(entry) = world.bindings.get(key).filter(|entry| !entry.is_bound() && !entry.is_finished())
        else {
            return Vec::new();
        };
        if world.bound_object(entry).is_none_or(|object| object.deleting) {
            return Vec::new();
        }
        let mut writes = Vec::new();
        for (place, reservation) in world.reservations_of(key) {
            if reservation.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let cluster = cluster_of(&place.0);
            // What was asked for before the job was changed is asked for again.
            let current = reservation.spec.binding.uid == entry.uid()
                && reservation.spec.epoch == entry.object.spec.epoch + 1
                && reservation.spec.components == entry.object.spec.components;
            let status = reservation.status.as_ref();
            let lost = world.clusters.get(cluster).is_none_or(|cluster| !crate::world::ready(cluster));
            match status.and_then(|status| status.phase) {
                Some(ReservationPhase::Reserved) if current => {
                    return vec![bind(entry, whole(entry, cluster), now)];
                }
                None if current && !lost => {}
                phase => {
                    if current && phase.is_some() {
                        let message = status.and_then(|status| status.message.clone()).unwrap_or_default();
                        self.refused(key, cluster, &message);
                    }
                    let uid = reservation.metadata.uid.clone().unwrap_or_default();
                    writes.push(Write::new(Target::Reservation, &place.0, &place.1, Verb::Delete { uid }));
                }
            }
        }
        writes
    }

    fn refused(&mut self, key: &Key, cluster: &str, message: &str) {
        let refusals = self.refusals.entry(key.clone()).or_default();
        refusals.tried.insert(cluster.to_string());
        refusals.message = format!("{cluster}: {message}");
    }

    /// The reservation of a binding stands on the hub, or could not be made.
    pub fn asked(&mut self, world: &mut World, key: &Key, now: Timestamp) {
        if let Some(cluster) = self.asking.remove(key) {
            world.recount.insert(cluster);
        }
        self.look(world, key, now);
    }

    /// The server did not take a job's reservation or binding: it is looked at again after a pause.
    pub fn hold(&mut self, key: &Key, until: Timestamp) {
        let refusals = self.refusals.entry(key.clone()).or_default();
        refusals.until = Some(until);
        if refusals.message.is_empty() {
            refusals.message = "the hub did not take the request; it is made again".to_string();
        }
    }

    /// Sends an object that may be on several clusters where it should be.
    pub fn spread(&mut self, world: &mut World, key: &Key, now: Timestamp) -> Option<Write> {
        self.count(world);
        let entry = world.bindings.get(key).filter(|entry| !entry.is_gang())?;
        world.bound_object(entry).filter(|object| !object.deleting)?;
        // A job that was sent is not sent again because the set of clusters has changed.
        if entry.is_finished() || (entry.workload.is_job() && entry.is_bound()) {
            return None;
        }
        if entry.object.spec.suspension.as_ref().is_some_and(|s| s.dispatching == Some(true)) {
            self.tell(key, Reason::Suspended, "the policy suspends dispatching".to_string());
            return None;
        }
        match spread::targets(&self.rooms, entry) {
            Ok(targets) => {
                self.verdicts.remove(key);
                (targets != entry.object.spec.clusters).then(|| bind(entry, targets, now))
            }
            Err(waiting) => {
                if !entry.is_bound() {
                    self.tell(key, waiting.reason, waiting.message);
                    world.schedule |= !self.told.is_empty();
                }
                None
            }
        }
    }

    fn count(&mut self, world: &mut World) {
        let stale = std::mem::take(&mut world.recount);
        let world = &*world;
        let asking = &self.asking;
        self.rooms.refresh(world, &stale, |name| gangs_asked(world, asking, name));
    }

    /// One pass over everything that waits.
    pub fn pass(&mut self, world: &mut World, options: &Options, now: Timestamp) -> Pass {
        self.count(world);
        let mut pass = Pass::default();
        let mut placer = Placer {
            world,
            rooms: &mut self.rooms,
            refusals: &mut self.refusals,
            options,
            now,
            no_place: HashMap::new(),
            placed: Vec::new(),
            wake: None,
        };
        let mut direct: Vec<(DirectOrder, Key)> =
            self.direct.iter().map(|(key, order)| (*order, key.clone())).collect();
        direct.sort();
        let mut refused: Vec<(Key, Waiting)> = Vec::new();
        for (_, key) in direct {
            let Some(entry) = placer.world.bindings.get(&key) else { continue };
            if let Err(waiting) = placer.place(&key, entry) {
                refused.push((key, waiting));
            }
        }
        let mut waits: Vec<(JobId, WaitReason)> = Vec::new();
        if let Some(planner) = self.planner.as_mut() {
            let plan = planner.plan(now.as_millisecond(), PASS_LIMITS, &mut placer);
            pass.more = plan.more;
            pass.wake = plan.wake_at_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
            for decision in plan.decisions {
                if let Outcome::Wait(reason) = decision.outcome {
                    waits.push((decision.job, reason));
                }
            }
        }
        let no_place = std::mem::take(&mut placer.no_place);
        let placed = std::mem::take(&mut placer.placed);
        pass.wake = earliest(pass.wake, placer.wake);
        for (key, waiting) in refused {
            self.tell(&key, waiting.reason, waiting.message);
        }
        self.explain(waits, &no_place);
        for (key, cluster) in placed {
            self.admit(world, &key, cluster, options, now, &mut pass);
        }
        pass.told = std::mem::take(&mut self.told);
        pass
    }

    /// Turns the plan's reasons into sentences: exact ones for the jobs it names and for new ones, the same
    /// code with a lasting sentence for the equals of those named.
    fn explain(&mut self, waits: Vec<(JobId, WaitReason)>, no_place: &HashMap<Key, Waiting>) {
        let fresh = std::mem::take(&mut self.fresh);
        let mut exact: BTreeSet<Key> = BTreeSet::new();
        let mut behind: Vec<(Key, Reason)> = Vec::new();
        for (id, reason) in waits {
            let key = key_of(&id);
            exact.insert(key.clone());
            let Some(waiting) = waiting_text(&key, reason, no_place) else { continue };
            if let Some(planner) = &self.planner {
                let others = planner.equals(&id).filter(|other| **other != id);
                behind.extend(others.map(|other| (key_of(other), waiting.reason)));
            }
            self.tell(&key, waiting.reason, waiting.message);
        }
        for (key, reason) in behind {
            if !exact.contains(&key) && self.verdicts.get(&key).map(|waiting| waiting.reason) != Some(reason)
            {
                let message = "waits behind jobs of the same queue that ask for the same".to_string();
                self.tell(&key, reason, message);
            }
        }
        for key in fresh.into_iter().filter(|key| !exact.contains(key)) {
            let reason = self.planner.as_ref().and_then(|planner| planner.reason(&job_id(&key)));
            if let Some(waiting) = reason.and_then(|reason| waiting_text(&key, reason, no_place)) {
                self.tell(&key, waiting.reason, waiting.message);
            }
        }
    }

    /// Asks the cluster for places, or binds at once where the member does not reserve.
    fn admit(
        &mut self,
        world: &mut World,
        key: &Key,
        cluster: String,
        options: &Options,
        now: Timestamp,
        pass: &mut Pass,
    ) {
        self.leave_queue(&job_id(key));
        self.direct.remove(key);
        self.verdicts.remove(key);
        self.told.remove(key);
        let Some(entry) = world.bindings.get(key) else { return };
        let reserves = self.rooms.get_mut(&cluster).is_none_or(|room| room.reserves);
        let write = if reserves {
            ask(entry, &cluster, options, world.term)
        } else {
            bind(entry, whole(entry, &cluster), now)
        };
        self.asking.insert(key.clone(), cluster);
        pass.writes.push((key.clone(), write));
    }
}

/// A reason as a sentence; `None` where what was said before stays.
fn waiting_text(key: &Key, reason: WaitReason, no_place: &HashMap<Key, Waiting>) -> Option<Waiting> {
    let (reason, message) = match reason {
        WaitReason::Quota(verdict) => {
            (Reason::from_text(verdict.reason()).unwrap_or(Reason::InsufficientQuota), verdict.sentence())
        }
        WaitReason::NoPlace => return no_place.get(key).cloned(),
        WaitReason::BehindHead(head) => {
            (Reason::BehindHead, format!("{head} goes first in this queue and cannot start yet"))
        }
        WaitReason::Claimed { holder } => {
            (Reason::Claimed, format!("the room is kept for {holder}, which has waited longer"))
        }
        WaitReason::WaitingForVictims { cluster, victims } => (
            Reason::WaitingForVictims,
            format!("{} jobs that make room in {cluster} are ending", victims.len()),
        ),
        WaitReason::Backoff { .. } => return None,
    };
    Some(Waiting { reason, message })
}

/// The gangs of bindings whose reservation in `cluster` is on its way.
fn gangs_asked<'a>(world: &'a World, asking: &BTreeMap<Key, String>, cluster: &str) -> Vec<&'a Gang> {
    let here = asking.iter().filter(|(_, asked)| *asked == cluster);
    here.filter_map(|(key, _)| {
        let entry = world.bindings.get(key)?;
        // Once it stands on the hub it is counted there.
        let stands = world.reservations.contains_key(&(cluster_namespace(cluster), entry.reservation_name()));
        (!stands).then_some(&entry.gang)
    })
    .collect()
}

/// The reservations of a binding's next epoch that may still win.
fn asked<'a>(world: &'a World, key: &Key, entry: &'a BindingEntry) -> impl Iterator<Item = &'a Reservation> {
    world.reservations_of(key).map(|(_, reservation)| reservation).filter(|reservation| {
        let phase = reservation.status.as_ref().and_then(|status| status.phase);
        reservation.spec.binding.uid == entry.uid()
            && reservation.spec.epoch == entry.object.spec.epoch + 1
            && reservation.metadata.deletion_timestamp.is_none()
            && matches!(phase, None | Some(ReservationPhase::Reserved))
    })
}

/// The label says so; jobs may be preempted unless it does.
fn preemptible(world: &World, entry: &BindingEntry) -> bool {
    let labels = world.bound_object(entry).map(|object| &object.labels);
    labels.and_then(|labels| labels.get(PREEMPTIBLE_LABEL)).is_none_or(|text| text != "false")
}

pub fn job_id(key: &Key) -> JobId {
    JobId::new(&format!("{}/{}", key.0, key.1))
}

pub fn key_of(id: &JobId) -> Key {
    let (namespace, name) = id.as_str().split_once('/').unwrap_or(("", id.as_str()));
    (namespace.to_string(), name.to_string())
}

fn cluster_of(namespace: &str) -> &str {
    namespace.strip_prefix(fleet_api::names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(namespace)
}

pub fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

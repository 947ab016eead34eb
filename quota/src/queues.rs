//! Waiting jobs, by leaf and by class.
//!
//! Jobs of one leaf with the same request and constraints are a *class*. What stops the first job of a class stops
//! all of them, so a plan considers classes only.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::Resources;
use serde::{Deserialize, Serialize};

use crate::ledger::AdmittedJob;
use crate::names::JobId;
use fleet_quota_tree::{NodeId, QuotaTree, Request};

/// What happens when the first job of a leaf cannot start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QueuePolicy {
    /// The next one is tried.
    #[default]
    Priority,
    /// All others wait.
    Block,
    /// All others wait if its priority is at least `threshold`.
    Intelligent { threshold: i64 },
}

impl QueuePolicy {
    /// The threshold of `Intelligent` where none is given.
    pub const DEFAULT_THRESHOLD: i64 = 4;

    /// Reads a Queue's `queuePolicy`. `Round` and `FIFO` are older names of
    /// `Priority`; `None` for a word that is none of these.
    pub fn from_text(text: &str, threshold: Option<i64>) -> Option<Self> {
        match text {
            "" | "Priority" | "Round" | "FIFO" => Some(Self::Priority),
            "Block" => Some(Self::Block),
            "Intelligent" => {
                Some(Self::Intelligent { threshold: threshold.unwrap_or(Self::DEFAULT_THRESHOLD) })
            }
            _ => None,
        }
    }

    pub fn blocks(self, priority: i64) -> bool {
        match self {
            Self::Priority => false,
            Self::Block => true,
            Self::Intelligent { threshold } => priority >= threshold,
        }
    }
}

/// A job that waits for admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingJob {
    pub id: JobId,
    /// Namespace and name, for ties between equals.
    pub name: Arc<str>,
    pub leaf: NodeId,
    /// Sum over components.
    pub request: Resources,
    pub preemptible: bool,
    pub priority: i64,
    /// When it was first enqueued, in milliseconds of the caller's clock.
    pub enqueued_at_ms: i64,
    /// Not considered before this time: back-off after a refusal.
    pub not_before_ms: i64,
    /// The longest run time that the job declares.
    pub run_time_ms: Option<i64>,
    /// How often it was preempted.
    pub preemptions: u32,
    /// A digest made by the caller, equal for jobs that the same clusters can hold (same components and constraints).
    pub shape: u64,
}

impl WaitingJob {
    pub fn order_key(&self) -> OrderKey {
        OrderKey {
            priority: Reverse(self.priority),
            enqueued_at_ms: self.enqueued_at_ms,
            name: self.name.clone(),
            id: self.id.clone(),
        }
    }

    /// The job once it holds quota.
    pub(crate) fn admitted(&self, now_ms: i64) -> AdmittedJob {
        AdmittedJob {
            id: self.id.clone(),
            leaf: self.leaf,
            request: self.request.clone(),
            preemptible: self.preemptible,
            priority: self.priority,
            enqueued_at_ms: self.enqueued_at_ms,
            admitted_at_ms: now_ms,
            preemptions: self.preemptions,
        }
    }
}

/// Order within a leaf: priority (high first), first-enqueue time, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    pub priority: Reverse<i64>,
    pub enqueued_at_ms: i64,
    pub name: Arc<str>,
    pub id: JobId,
}

/// What jobs of one class have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassKey {
    pub leaf: NodeId,
    pub request: Resources,
    pub preemptible: bool,
    pub run_time_ms: Option<i64>,
    pub shape: u64,
}

/// A class of equal waiting jobs; ids are dense and reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(u32);

/// What stopped a class when it was last considered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing, or it was not considered.
    #[default]
    None,
    /// Quota; the class is considered again once `need` is free under the limit.
    Quota { bound: usize, need: i64 },
    /// No cluster can hold the gang.
    Place,
    /// Capacity is reserved for this job.
    Kept(JobId),
}

/// A reason to wait, without its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReasonKind {
    Quota {
        bound: usize,
    },
    Place,
    Kept(JobId),
    Behind(JobId),
    /// The victim, and until when it is protected.
    Protected(JobId, i64),
}

/// Equal waiting jobs of one leaf.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub key: ClassKey,
    pub request: Request,
    jobs: BTreeSet<OrderKey>,
    /// Jobs that are not candidates now: they back off, or their victims are ending.
    aside: BTreeSet<OrderKey>,
    front: Option<OrderKey>,
    pub stop: Stop,
    /// Where the index of limits lists the class.
    pub listed: Option<(usize, i64)>,
    /// The kind of reason that was reported last.
    pub told: Option<ReasonKind>,
    /// Its rights to preempt were checked since its leaf changed.
    pub weighed: bool,
    /// The last search for victims without a result.
    pub missed: Option<Missed>,
    /// Its jobs could not run even on an empty fleet: by quota, or because no cluster could hold one.
    pub never: bool,
}

/// A search for victims after which the class still waits. It is valid until something changes that a search
/// depends on: use, places, ending jobs, reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    /// The version of the planner's state that was searched.
    pub version: u64,
    /// No victim was needed: other jobs' preemptions leave capacity for it, too.
    pub fits_behind: bool,
    /// Classes that fitted behind others before: their first jobs counted as started.
    pub after: Behind,
    /// A job that it may preempt once that has run for long enough, and when.
    pub protected: Option<(i64, JobId)>,
    /// When to search again even if nothing changes.
    pub again_ms: Option<i64>,
}

/// Classes whose first jobs fit behind the preemptions of others, in the order in which they were searched.
pub(crate) type Behind = Arc<[ClassId]>;

impl Missed {
    /// It says something about another order of the searches, too: in none did a job count as started.
    pub fn in_any_order(&self) -> bool {
        !self.fits_behind && self.after.is_empty()
    }
}

impl Class {
    /// The first candidate.
    pub fn front(&self) -> Option<&OrderKey> {
        self.front.as_ref()
    }

    fn find_front(&self) -> Option<&OrderKey> {
        self.jobs.iter().find(|key| !self.aside.contains(*key))
    }
}

/// The waiting jobs of one leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub policy: QueuePolicy,
    /// The first candidate of each class.
    pub fronts: BTreeMap<OrderKey, ClassId>,
    /// Jobs that are not candidates now.
    pub aside: BTreeSet<OrderKey>,
    /// Both of these, without classes that could never run.
    possible: BTreeSet<OrderKey>,
    waiting: usize,
}

impl Line {
    /// The job set aside that blocks all jobs after `key`, if there is one. A job that could never run blocks nobody.
    pub fn blocked_by_aside(&self, key: &OrderKey) -> Option<&OrderKey> {
        if self.policy == QueuePolicy::Priority {
            return None;
        }
        let first = self.aside.iter().find(|first| self.possible.contains(*first));
        first.filter(|first| *first < key && self.policy.blocks(first.priority.0))
    }
}

/// All waiting jobs.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    lines: BTreeMap<NodeId, Line>,
    jobs: BTreeMap<JobId, (WaitingJob, ClassId)>,
    by_key: BTreeMap<ClassKey, ClassId>,
    classes: Vec<Option<Class>>,
    unused: Vec<ClassId>,
    /// Classes by shape.
    shapes: BTreeMap<u64, BTreeSet<ClassId>>,
}

impl Queues {
    pub(crate) fn set_policy(&mut self, leaf: NodeId, policy: QueuePolicy) {
        self.lines.entry(leaf).or_default().policy = policy;
    }

    /// Adds a job, or replaces the job with that id.
    pub(crate) fn enqueue(&mut self, tree: &QuotaTree, job: WaitingJob) {
        self.remove(&job.id);
        let class = self.class_for(tree, &job);
        let key = job.order_key();
        self.line(job.leaf).waiting += 1;
        self.change(class, |class| {
            class.jobs.insert(key);
        });
        self.jobs.insert(job.id.clone(), (job, class));
    }

    pub(crate) fn remove(&mut self, id: &JobId) -> Option<WaitingJob> {
        let (job, class) = self.jobs.remove(id)?;
        let key = job.order_key();
        let line = self.line(job.leaf);
        line.waiting -= 1;
        line.aside.remove(&key);
        line.possible.remove(&key);
        self.change(class, |class| {
            class.jobs.remove(&key);
            class.aside.remove(&key);
        });
        if let Some(empty) = self.classes[class.0 as usize].take_if(|class| class.jobs.is_empty()) {
            self.by_key.remove(&empty.key);
            self.unused.push(class);
            if let Some(classes) = self.shapes.get_mut(&empty.key.shape) {
                classes.remove(&class);
                if classes.is_empty() {
                    self.shapes.remove(&empty.key.shape);
                }
            }
        }
        Some(job)
    }

    /// The job is no candidate until then; it keeps its place in the queue.
    pub(crate) fn set_aside(&mut self, id: &JobId, until_ms: Option<i64>) {
        let Some((job, class)) = self.jobs.get_mut(id) else { return };
        if let Some(until_ms) = until_ms {
            job.not_before_ms = until_ms;
        }
        let (key, leaf, class) = (job.order_key(), job.leaf, *class);
        let possible = self.class(class).is_some_and(|class| !class.never);
        let line = self.line(leaf);
        line.aside.insert(key.clone());
        if possible {
            line.possible.insert(key.clone());
        }
        self.change(class, |class| {
            class.aside.insert(key);
        });
    }

    /// The job is a candidate again.
    pub(crate) fn set_running(&mut self, id: &JobId) {
        let Some((job, class)) = self.jobs.get(id) else { return };
        let (key, leaf, class) = (job.order_key(), job.leaf, *class);
        let line = self.line(leaf);
        if line.aside.remove(&key) {
            line.possible.remove(&key);
        }
        self.change(class, |class| {
            class.aside.remove(&key);
        });
    }

    /// Whether the job is no candidate now.
    pub(crate) fn is_aside(&self, id: &JobId) -> bool {
        let Some((job, class)) = self.jobs.get(id) else { return false };
        self.class(*class).is_some_and(|class| class.aside.contains(&job.order_key()))
    }

    pub fn get(&self, id: &JobId) -> Option<&WaitingJob> {
        self.jobs.get(id).map(|(job, _)| job)
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Number of waiting jobs of a leaf.
    pub fn waiting_in(&self, leaf: NodeId) -> usize {
        self.lines.get(&leaf).map_or(0, |line| line.waiting)
    }

    /// The first `count` of [`ordered`](Self::ordered). Costs `count` jobs of each class.
    pub fn first(&self, leaf: NodeId, count: usize) -> Vec<&WaitingJob> {
        let mut keys: Vec<&OrderKey> =
            self.classes_of(leaf).flat_map(|(_, class)| class.jobs.iter().take(count)).collect();
        keys.sort_unstable();
        keys.into_iter().take(count).filter_map(|key| self.get(&key.id)).collect()
    }

    /// Number of waiting jobs of a leaf, and the sum of their requests.
    pub fn asked(&self, leaf: NodeId) -> (usize, Resources) {
        let mut sum = Resources::new();
        let mut count = 0;
        for (_, class) in self.classes_of(leaf) {
            let Some(job) = class.jobs.first().and_then(|key| self.get(&key.id)) else { continue };
            // All jobs of a class have the same request.
            sum.add(&job.request.scaled(class.jobs.len() as i64));
            count += class.jobs.len();
        }
        (count, sum)
    }

    /// The jobs of a leaf in order.
    pub fn ordered(&self, leaf: NodeId) -> Vec<&WaitingJob> {
        self.first(leaf, usize::MAX)
    }

    /// The job's position in its leaf; 1 is the first. Costs the jobs before it.
    pub fn position(&self, id: &JobId) -> Option<usize> {
        let own = self.get(id)?;
        let (leaf, key) = (own.leaf, own.order_key());
        let before: usize = self.classes_of(leaf).map(|(_, class)| class.jobs.range(..&key).count()).sum();
        Some(before + 1)
    }

    /// The job's position among all waiting jobs, by priority, age and name; 1 is the first. Leaves are not served
    /// in that order alone, so this is only an estimate. Costs the jobs before it.
    pub fn fleet_position(&self, id: &JobId) -> Option<usize> {
        let key = self.get(id)?.order_key();
        let classes = self.classes.iter().flatten();
        Some(classes.map(|class| class.jobs.range(..&key).count()).sum::<usize>() + 1)
    }

    /// The job and its equals in the leaf, in order.
    pub fn equals(&self, id: &JobId) -> impl Iterator<Item = &JobId> {
        let class = self.class_of(id).and_then(|class| self.class(class));
        class.into_iter().flat_map(|class| &class.jobs).map(|key| &key.id)
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = &WaitingJob> {
        self.jobs.values().map(|(job, _)| job)
    }

    pub(crate) fn class_of(&self, id: &JobId) -> Option<ClassId> {
        self.jobs.get(id).map(|(_, class)| *class)
    }

    pub(crate) fn class(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn class_mut(&mut self, id: ClassId) -> Option<&mut Class> {
        self.classes.get_mut(id.0 as usize)?.as_mut()
    }

    /// Resets every class to "not considered".
    pub(crate) fn forget_stops(&mut self) {
        for class in self.classes.iter_mut().flatten() {
            (class.stop, class.listed, class.weighed, class.missed) = (Stop::None, None, false, None);
        }
    }

    pub(crate) fn class_ids(&self) -> Vec<ClassId> {
        self.by_key.values().copied().collect()
    }

    pub(crate) fn has_shape(&self, shape: u64) -> bool {
        self.shapes.contains_key(&shape)
    }

    /// A waiting job of the shape.
    pub(crate) fn one_of_shape(&self, shape: u64) -> Option<&WaitingJob> {
        let class = self.class(*self.shapes.get(&shape)?.first()?)?;
        self.get(&class.jobs.first()?.id)
    }

    /// Number of shapes among the waiting jobs.
    pub(crate) fn shapes(&self) -> usize {
        self.shapes.len()
    }

    pub(crate) fn line_of(&self, leaf: NodeId) -> Option<&Line> {
        self.lines.get(&leaf)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (NodeId, &Line)> {
        self.lines.iter().map(|(leaf, line)| (*leaf, line))
    }

    /// The first job of each class of a leaf, and the jobs that are no candidates, in the order of the leaf. Without
    /// classes that could [never](Class::never) run.
    pub(crate) fn possible(&self, leaf: NodeId) -> impl Iterator<Item = &OrderKey> {
        self.lines.get(&leaf).into_iter().flat_map(|line| &line.possible)
    }

    /// Records whether a class could never run. Returns its leaf if that has changed.
    pub(crate) fn set_never(&mut self, id: ClassId, never: bool) -> Option<NodeId> {
        let class = self.class_mut(id)?;
        if std::mem::replace(&mut class.never, never) == never {
            return None;
        }
        let leaf = class.key.leaf;
        let keys: Vec<OrderKey> = class.front.iter().chain(&class.aside).cloned().collect();
        let line = self.line(leaf);
        for key in keys {
            match never {
                true => line.possible.remove(&key),
                false => line.possible.insert(key),
            };
        }
        Some(leaf)
    }

    pub(crate) fn classes_of_shape(&self, shape: u64) -> Vec<ClassId> {
        self.shapes.get(&shape).into_iter().flatten().copied().collect()
    }

    /// The classes of a leaf, with or without a candidate.
    fn classes_of(&self, leaf: NodeId) -> impl Iterator<Item = (ClassId, &Class)> {
        let line = self.lines.get(&leaf);
        let ids = line.into_iter().flat_map(|line| {
            let running = line.fronts.values().copied();
            let aside = line.aside.iter().filter_map(|key| self.class_of(&key.id));
            running.chain(aside).collect::<BTreeSet<ClassId>>()
        });
        ids.filter_map(|id| Some((id, self.class(id)?)))
    }

    fn line(&mut self, leaf: NodeId) -> &mut Line {
        self.lines.entry(leaf).or_default()
    }

    fn class_for(&mut self, tree: &QuotaTree, job: &WaitingJob) -> ClassId {
        let key = ClassKey {
            leaf: job.leaf,
            request: job.request.clone(),
            preemptible: job.preemptible,
            run_time_ms: job.run_time_ms,
            shape: job.shape,
        };
        if let Some(known) = self.by_key.get(&key) {
            return *known;
        }
        let class = Class {
            key: key.clone(),
            request: tree.request(&job.request),
            jobs: BTreeSet::new(),
            aside: BTreeSet::new(),
            front: None,
            stop: Stop::None,
            listed: None,
            told: None,
            weighed: false,
            missed: None,
            never: false,
        };
        let id = self.unused.pop().unwrap_or_else(|| {
            self.classes.push(None);
            // More than 2^32 jobs do not fit in memory.
            ClassId((self.classes.len() - 1) as u32)
        });
        self.classes[id.0 as usize] = Some(class);
        self.shapes.entry(key.shape).or_default().insert(id);
        self.by_key.insert(key, id);
        id
    }

    /// Changes a class, and keeps the line's index of first candidates up to date.
    fn change(&mut self, id: ClassId, change: impl FnOnce(&mut Class)) {
        let Some(class) = self.classes.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        change(class);
        if class.find_front() == class.front.as_ref() {
            return;
        }
        let front = class.find_front().cloned();
        let old = std::mem::replace(&mut class.front, front.clone());
        // Another first job has other rights.
        (class.weighed, class.missed) = (false, None);
        let (leaf, never) = (class.key.leaf, class.never);
        let line = self.line(leaf);
        if let Some(old) = old {
            line.fronts.remove(&old);
            if !line.aside.contains(&old) {
                line.possible.remove(&old);
            }
        }
        if let Some(front) = front {
            if !never {
                line.possible.insert(front.clone());
            }
            line.fronts.insert(front, id);
        }
    }
}

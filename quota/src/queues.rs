//! Jobs that wait, by leaf and by class.
//!
//! Jobs of one leaf with the same request and constraints are one class: what
//! stops the first of them stops them all, so a plan looks at classes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::Resources;
use serde::{Deserialize, Serialize};

use crate::ledger::JobId;
use crate::tree::NodeId;

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
    /// Not looked at before this moment: backoff after a refusal.
    pub not_before_ms: i64,
    /// The longest it may run, as it declares.
    pub run_time_ms: Option<i64>,
    /// Equal for jobs that any cluster holds equally (same components and
    /// constraints), as a digest made by the caller.
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
}

/// Order within a leaf: priority (high first), first-enqueue time, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    pub priority: Reverse<i64>,
    pub enqueued_at_ms: i64,
    pub name: Arc<str>,
    pub id: JobId,
}

/// What makes jobs of a leaf equal to the planner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassKey {
    pub request: Resources,
    pub preemptible: bool,
    pub shape: u64,
}

/// The waiting jobs of one leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeafQueue {
    pub policy: QueuePolicy,
    pub classes: BTreeMap<ClassKey, BTreeSet<OrderKey>>,
}

/// All waiting jobs.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    leaves: BTreeMap<NodeId, LeafQueue>,
    jobs: BTreeMap<JobId, WaitingJob>,
}

impl Queues {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set_policy(&mut self, leaf: NodeId, policy: QueuePolicy) {
        self.leaves.entry(leaf).or_default().policy = policy;
    }

    /// Adds a job or replaces the one of that id.
    pub fn enqueue(&mut self, job: WaitingJob) {
        self.remove(&job.id);
        let queue = self.leaves.entry(job.leaf).or_default();
        queue.classes.entry(class_key(&job)).or_default().insert(job.order_key());
        self.jobs.insert(job.id.clone(), job);
    }

    pub fn remove(&mut self, id: &JobId) -> Option<WaitingJob> {
        let job = self.jobs.remove(id)?;
        if let Some(queue) = self.leaves.get_mut(&job.leaf) {
            let key = class_key(&job);
            if let Some(class) = queue.classes.get_mut(&key) {
                class.remove(&job.order_key());
                if class.is_empty() {
                    queue.classes.remove(&key);
                }
            }
        }
        Some(job)
    }

    /// Keeps the job's place in line but does not look at it before `until_ms`.
    pub fn back_off(&mut self, id: &JobId, until_ms: i64) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.not_before_ms = until_ms;
        }
    }

    pub fn get(&self, id: &JobId) -> Option<&WaitingJob> {
        self.jobs.get(id)
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many jobs wait in a leaf.
    pub fn waiting_in(&self, leaf: NodeId) -> usize {
        let queue = self.leaves.get(&leaf);
        queue.map_or(0, |queue| queue.classes.values().map(BTreeSet::len).sum())
    }

    /// The jobs of a leaf in order.
    pub fn ordered(&self, leaf: NodeId) -> Vec<&WaitingJob> {
        let queue = self.leaves.get(&leaf);
        let mut keys: Vec<&OrderKey> = queue.into_iter().flat_map(|q| q.classes.values().flatten()).collect();
        keys.sort_unstable();
        keys.into_iter().filter_map(|key| self.jobs.get(&key.id)).collect()
    }

    /// The job's place in its leaf, 1 for the first.
    pub fn position(&self, id: &JobId) -> Option<usize> {
        let job = self.jobs.get(id)?;
        let own = job.order_key();
        let queue = self.leaves.get(&job.leaf)?;
        let before: usize = queue.classes.values().map(|class| class.range(..&own).count()).sum();
        Some(before + 1)
    }

    /// The job and those of its leaf that are equal to it, in order.
    pub fn equals(&self, id: &JobId) -> impl Iterator<Item = &JobId> {
        let job = self.jobs.get(id);
        let class = job.and_then(|job| self.leaves.get(&job.leaf)?.classes.get(&class_key(job)));
        class.into_iter().flatten().map(|key| &key.id)
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = (NodeId, &LeafQueue)> {
        self.leaves.iter().map(|(leaf, queue)| (*leaf, queue))
    }
}

fn class_key(job: &WaitingJob) -> ClassKey {
    ClassKey { request: job.request.clone(), preemptible: job.preemptible, shape: job.shape }
}

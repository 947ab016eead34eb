//! Groups of pods that start together: PodGroups, gangs named by annotation, single pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::Resources;

use crate::ids::{ClassId, GroupId, PodId, QueueId};
use crate::pod::{Status, TaskOrder};
use crate::sub_groups::{PROMISED, READY, SubGroup, SubGroupPolicy, VALID};
use crate::task_topology::TaskTopology;

pub use crate::topology::Topology;

/// Most plugins that order jobs.
pub const JOB_KEYS: usize = 6;

/// Order of groups in a queue: what the plugins say in their order, then older, then by number.
pub type JobKey = ([i64; JOB_KEYS], i64);

/// Phase of a PodGroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Its queue has not admitted it.
    #[default]
    Pending,
    Inqueue,
    Running,
    /// Some of its pods run and the rest cannot.
    Unknown,
    Completed,
}

impl Phase {
    pub const COUNT: usize = 5;

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Inqueue => "Inqueue",
            Self::Running => "Running",
            Self::Unknown => "Unknown",
            Self::Completed => "Completed",
        }
    }

    pub fn read(text: &str) -> Self {
        match text {
            "Inqueue" => Self::Inqueue,
            "Running" => Self::Running,
            "Unknown" => Self::Unknown,
            "Completed" => Self::Completed,
            _ => Self::Pending,
        }
    }
}

/// A group, as its owner reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupInput {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub queue: Arc<str>,
    pub min_member: i64,
    /// Minimum per task.
    pub min_roles: BTreeMap<Arc<str>, i64>,
    /// Partitions of tasks, of which some must be complete.
    pub sub_groups: Vec<SubGroupPolicy>,
    pub min_resources: Option<Resources>,
    pub priority: i64,
    /// Seconds.
    pub created: i64,
    /// Annotation; unset: allowed.
    pub preemptable: Option<bool>,
    /// Seconds after which it goes before others (plugin sla).
    pub sla_wait: Option<i64>,
    pub topology: Option<Topology>,
    /// Tasks that share nodes or avoid each other (plugin task-topology).
    pub task_topology: Option<Arc<TaskTopology>>,
    pub phase: Phase,
    /// Needs no admission: starts as Inqueue.
    pub no_gate: bool,
    /// Its pods are placed by name only, never in a cycle.
    pub manual: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Role {
    pub name: Arc<str>,
    /// 0: no minimum of its own.
    pub min: i64,
    pub counts: [i64; Status::COUNT],
    pub best_effort_pending: i64,
}

impl Role {
    fn count(&self, status: Status) -> i64 {
        self.counts[status as usize]
    }

    fn ready(&self) -> i64 {
        [Status::Bound, Status::Binding, Status::Running, Status::Succeeded]
            .map(|s| self.count(s))
            .iter()
            .sum()
    }
}

/// Waiting pods by class, and how many the group still needs: equal shapes are refused alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub pods: Vec<(ClassId, u32)>,
    pub need: i64,
    /// Set if the answer depends on more than the numbers.
    pub only: Option<GroupId>,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub input: GroupInput,
    pub queue: QueueId,
    pub phase: Phase,
    pub counts: [i64; Status::COUNT],
    pub best_effort_pending: i64,
    pub roles: Vec<Role>,
    pub sub_groups: Vec<SubGroup>,
    pub pods: BTreeSet<PodId>,
    /// Pods that may be placed, without best-effort pods.
    pub pending: BTreeSet<TaskOrder>,
    pub pending_by_class: BTreeMap<ClassId, u32>,
    pub pending_best_effort: BTreeSet<TaskOrder>,
    /// Requests of pods that hold places; pods first.
    pub allocated: Vec<i64>,
    /// Requests of waiting pods.
    pub requested: Vec<i64>,
    /// The vector of its minimum resources.
    pub min_resources: Option<Vec<i64>>,
    /// It had its minimum once: missing pods are repairs.
    pub was_ready: bool,
    /// Its pods have ended or left, and it was not admitted again since: it waits for nothing and holds nothing.
    pub over: bool,
    /// Where it waits in its queue.
    pub waits: Waits,
    pub dirty: bool,
    pub changed: bool,
    /// How it counts in its queue's admission.
    pub counted: Admission,
    /// Why it waits, in one sentence.
    pub why: Option<Arc<str>>,
    /// How many pods had been bound when it was first refused.
    pub refused_since: Option<u64>,
    /// The HyperNode that holds it.
    pub domain: Option<u32>,
}

/// Where a group waits in its queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Waits {
    #[default]
    No,
    /// For admission.
    Outside(JobKey),
    /// For places.
    Inside(Arc<Shape>, JobKey),
}

/// Sums that decide about admission to a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    pub inqueue: Vec<i64>,
    pub elastic: Vec<i64>,
    pub phase: Option<Phase>,
}

impl Group {
    pub fn new(input: GroupInput, queue: QueueId) -> Self {
        let phase = if input.no_gate { Phase::Inqueue } else { input.phase };
        Self {
            input,
            queue,
            phase,
            counts: [0; Status::COUNT],
            best_effort_pending: 0,
            roles: Vec::new(),
            sub_groups: Vec::new(),
            pods: BTreeSet::new(),
            pending: BTreeSet::new(),
            pending_by_class: BTreeMap::new(),
            pending_best_effort: BTreeSet::new(),
            allocated: Vec::new(),
            requested: Vec::new(),
            min_resources: None,
            was_ready: false,
            over: false,
            waits: Waits::No,
            dirty: false,
            changed: false,
            counted: Admission::default(),
            why: None,
            refused_since: None,
            domain: None,
        }
    }

    pub fn count(&self, status: Status) -> i64 {
        self.counts[status as usize]
    }

    pub fn min(&self) -> i64 {
        self.input.min_member
    }

    /// Bound, being bound, running or succeeded.
    pub fn ready(&self) -> i64 {
        [Status::Bound, Status::Binding, Status::Running, Status::Succeeded]
            .map(|s| self.count(s))
            .iter()
            .sum()
    }

    /// Pods that run, may run or have succeeded.
    pub fn valid(&self) -> i64 {
        self.ready() + self.count(Status::Pipelined) + self.count(Status::Pending)
    }

    /// Minima of tasks apply only if the group's minimum covers them all.
    fn roles_hold(&self, have: impl Fn(&Role) -> i64) -> bool {
        let sum: i64 = self.roles.iter().map(|role| role.min).sum();
        self.min() < sum || self.roles.iter().all(|role| have(role) >= role.min)
    }

    pub fn is_ready(&self) -> bool {
        self.ready() + self.best_effort_pending >= self.min()
            && self.roles_hold(|role| role.ready() + role.best_effort_pending)
            && self.short_of_sub_groups(&READY).is_none()
    }

    pub fn is_pipelined(&self) -> bool {
        let pipelined = self.count(Status::Pipelined);
        self.ready() + pipelined + self.best_effort_pending >= self.min()
            && self.roles_hold(|role| role.ready() + role.count(Status::Pipelined) + role.best_effort_pending)
            && self.short_of_sub_groups(&PROMISED).is_none()
    }

    pub fn is_starving(&self) -> bool {
        self.count(Status::Pipelined) + self.ready() < self.min()
            || self.short_of_sub_groups(&PROMISED).is_some()
    }

    /// Whether enough pods exist, of each task, too; else reason and message of what is missing.
    pub fn validity(&self) -> Result<(), (&'static str, String)> {
        let valid = |role: &Role| role.ready() + role.count(Status::Pipelined) + role.count(Status::Pending);
        let sum: i64 = self.roles.iter().map(|role| role.min).sum();
        if self.min() >= sum {
            let short = self.roles.iter().find(|role| valid(role) < role.min);
            if let Some(role) = short {
                let sentence = format!(
                    "waiting for the gang: task {} has {} of {} pods",
                    role.name,
                    valid(role),
                    role.min
                );
                return Err(("NotEnoughPodsOfTask", sentence));
            }
        }
        if let Some((policy, whole)) = self.short_of_sub_groups(&VALID) {
            let sentence = format!(
                "waiting for the gang: {whole} of {} partitions of {} have {} pods",
                policy.min, policy.name, policy.size
            );
            return Err(("NotEnoughPodsOfTask", sentence));
        }
        if self.valid() < self.min() {
            let sentence = format!("waiting for the gang: {} of {} pods exist", self.valid(), self.min());
            return Err(("NotEnoughTasks", sentence));
        }
        Ok(())
    }

    /// How many of its pods may be evicted before it has less than its minimum.
    pub fn surplus(&self) -> i64 {
        (self.ready() - self.min()).max(0)
    }

    pub fn role_index(&mut self, name: &Arc<str>) -> u16 {
        if let Some(at) = self.roles.iter().position(|role| role.name == *name) {
            return at as u16;
        }
        let min = self.input.min_roles.get(name).copied().unwrap_or(0);
        self.roles.push(Role { name: name.clone(), min, ..Role::default() });
        (self.roles.len() - 1) as u16
    }

    /// Tracks whether its pods have ended or are terminating and none is left to start or run. Once the last has
    /// left, its reserved capacity is free for all.
    pub fn see_end(&mut self) {
        let live = [
            Status::Pending,
            Status::Gated,
            Status::Pipelined,
            Status::Binding,
            Status::Bound,
            Status::Running,
        ];
        if live.map(|status| self.count(status)).iter().sum::<i64>() > 0 {
            self.over = false;
        } else if !self.pods.is_empty() {
            self.over = true;
        }
        let left = self.count(Status::Releasing) == 0;
        let inside = matches!(self.phase, Phase::Inqueue | Phase::Unknown);
        if self.over && left && inside && !self.input.no_gate {
            self.phase = Phase::Pending;
        }
    }

    /// Whether it, or one of its sub-groups, must be in one topology domain.
    pub fn is_bound_to_domains(&self) -> bool {
        let own = std::iter::once(&self.input.topology);
        let mut wishes = own.chain(self.input.sub_groups.iter().map(|policy| &policy.topology));
        wishes.any(|wish| wish.is_some_and(|wish| wish.hard))
    }

    /// Whether it, or one of its sub-groups, wants one topology domain.
    pub fn wants_domains(&self) -> bool {
        self.input.topology.is_some() || self.input.sub_groups.iter().any(|policy| policy.topology.is_some())
    }

    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// How many of the waiting pods the group needs to start.
    pub fn need(&self) -> i64 {
        (self.min() - self.ready() - self.best_effort_pending).max(0)
    }
}

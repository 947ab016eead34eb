//! Groups of pods that start together: PodGroups, gangs named by annotation, single pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::Resources;

use crate::ids::{ClassId, GroupId, PodId, QueueId};
use crate::pod::{Status, TaskOrder};
use crate::sub_groups::{Counted, SubGroup, SubGroupPolicy};
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
    /// Why it gets no place whatever is free: what it asks for is beyond a bound.
    pub refused: Option<Arc<str>>,
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
    /// Its pods that count; best-effort pods that wait need no place to count.
    fn have(&self, counted: Counted) -> i64 {
        let best_effort = if counted == Counted::Valid { 0 } else { self.best_effort_pending };
        counted.of(&self.counts) + best_effort
    }

    /// Whether it has less than its minimum, in each way to count.
    fn short(&self) -> [bool; 3] {
        Counted::ALL.map(|counted| self.min > 0 && self.have(counted) < self.min)
    }
}

/// From so many roles on, they are found by an index.
const FEW_ROLES: usize = 8;

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
    /// Roles by name; empty: there are few.
    roles_at: BTreeMap<Arc<str>, u16>,
    /// The sum of the roles' minima.
    roles_min: i64,
    /// Roles with less than their minimum, in each way to count.
    roles_short: [i64; 3],
    pub sub_groups: Vec<SubGroup>,
    /// Sub-groups by policy and values of its labels.
    pub(crate) sub_groups_at: BTreeMap<(usize, Vec<String>), u16>,
    /// By policy, sub-groups that have all their pods, in each way to count.
    pub(crate) whole: Vec<[i64; 3]>,
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
            roles_at: BTreeMap::new(),
            roles_min: 0,
            roles_short: [0; 3],
            sub_groups: Vec::new(),
            sub_groups_at: BTreeMap::new(),
            whole: Vec::new(),
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
        Counted::Ready.of(&self.counts)
    }

    /// Pods that run, may run or have succeeded.
    pub fn valid(&self) -> i64 {
        Counted::Valid.of(&self.counts)
    }

    /// Minima of tasks apply only if the group's minimum covers them all.
    fn roles_hold(&self, counted: Counted) -> bool {
        self.min() < self.roles_min || self.roles_short[counted as usize] == 0
    }

    pub fn is_ready(&self) -> bool {
        self.ready() + self.best_effort_pending >= self.min()
            && self.roles_hold(Counted::Ready)
            && self.short_of_sub_groups(Counted::Ready).is_none()
    }

    pub fn is_pipelined(&self) -> bool {
        Counted::Promised.of(&self.counts) + self.best_effort_pending >= self.min()
            && self.roles_hold(Counted::Promised)
            && self.short_of_sub_groups(Counted::Promised).is_none()
    }

    pub fn is_starving(&self) -> bool {
        Counted::Promised.of(&self.counts) < self.min()
            || self.short_of_sub_groups(Counted::Promised).is_some()
    }

    /// Whether the group is accepted and enough pods exist, of each task, too; else reason and message of what is missing.
    pub fn validity(&self) -> Result<(), (&'static str, String)> {
        if let Some(why) = &self.input.refused {
            return Err(("InvalidSpec", why.to_string()));
        }
        if !self.roles_hold(Counted::Valid) {
            let short = self.roles.iter().find(|role| role.short()[Counted::Valid as usize]);
            if let Some(role) = short {
                let sentence = format!(
                    "waiting for the gang: task {} has {} of {} pods",
                    role.name,
                    role.have(Counted::Valid),
                    role.min
                );
                return Err(("NotEnoughPodsOfTask", sentence));
            }
        }
        if let Some((policy, whole)) = self.short_of_sub_groups(Counted::Valid) {
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

    /// The number of a role; a new one if it has none. Once all numbers are in use, further roles are as the last.
    pub fn role_index(&mut self, name: &Arc<str>) -> u16 {
        let known = if self.roles_at.is_empty() {
            self.roles.iter().position(|role| role.name == *name).map(|at| at as u16)
        } else {
            self.roles_at.get(name).copied()
        };
        if let Some(at) = known {
            return at;
        }
        let Ok(at) = u16::try_from(self.roles.len()) else { return u16::MAX };
        let min = self.input.min_roles.get(name).copied().unwrap_or(0);
        self.roles.push(Role { name: name.clone(), min, ..Role::default() });
        self.count_minimum(usize::from(at));
        if self.roles.len() > FEW_ROLES {
            let listed = self.roles_at.len();
            let new = self.roles.iter().enumerate().skip(listed);
            self.roles_at.extend(new.map(|(at, role)| (role.name.clone(), at as u16)));
        }
        at
    }

    fn count_minimum(&mut self, at: usize) {
        let role = &self.roles[at];
        self.roles_min = self.roles_min.saturating_add(role.min);
        for (sum, short) in self.roles_short.iter_mut().zip(role.short()) {
            *sum += i64::from(short);
        }
    }

    /// The minima of its roles may have changed.
    pub(crate) fn set_minima(&mut self) {
        (self.roles_min, self.roles_short) = (0, [0; 3]);
        for at in 0..self.roles.len() {
            self.roles[at].min = self.input.min_roles.get(&self.roles[at].name).copied().unwrap_or(0);
            self.count_minimum(at);
        }
        let named: Vec<Arc<str>> = self.input.min_roles.keys().cloned().collect();
        named.iter().for_each(|role| {
            self.role_index(role);
        });
    }

    /// Counts a pod under its status, in its role and its sub-group, too.
    pub(crate) fn count_pod(
        &mut self,
        (role, sub_group): (u16, Option<u16>),
        status: Status,
        best_effort: bool,
        sign: i64,
    ) {
        self.counts[status as usize] += sign;
        if let Some(sub_group) = sub_group {
            self.count_in_sub_group(sub_group, status, sign);
        }
        let role = &mut self.roles[usize::from(role)];
        let before = role.short();
        role.counts[status as usize] += sign;
        if best_effort && status == Status::Pending {
            role.best_effort_pending += sign;
            self.best_effort_pending += sign;
        }
        for ((sum, before), after) in self.roles_short.iter_mut().zip(before).zip(role.short()) {
            *sum += i64::from(after) - i64::from(before);
        }
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

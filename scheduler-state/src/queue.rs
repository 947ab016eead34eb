//! Queues: how much of the cluster their pods may use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::Resources;

use crate::action::Action;
use crate::group::{JobKey, Phase, Shape};
use crate::ids::{GroupId, QueueId};
use crate::node_groups::NodeGroups;

/// The queue of groups that name none.
pub const DEFAULT_QUEUE: &str = "default";
/// The root of the tree.
pub const ROOT_QUEUE: &str = "root";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    #[default]
    Open,
    Closing,
    Closed,
    Unknown,
}

impl QueueState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Closing => "Closing",
            Self::Closed => "Closed",
            Self::Unknown => "Unknown",
        }
    }

    pub fn read(text: &str) -> Self {
        match text {
            "" | "Open" => Self::Open,
            "Closing" => Self::Closing,
            "Closed" => Self::Closed,
            _ => Self::Unknown,
        }
    }
}

/// A queue as its owner reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueInput {
    pub name: Arc<str>,
    pub weight: i64,
    pub priority: i64,
    pub parent: Option<Arc<str>>,
    pub capability: Resources,
    pub deserved: Resources,
    /// Names that `deserved` sets to zero; that is not the same as leaving them out.
    pub deserved_names: BTreeSet<String>,
    pub guarantee: Resources,
    pub reclaimable: bool,
    /// `dequeueStrategy` fifo: no group passes the head. Otherwise, groups that fit do.
    pub fifo: bool,
    /// `affinity` to groups of nodes (plugin nodegroup).
    pub node_groups: NodeGroups,
    pub state: QueueState,
    /// Annotations volcano.sh/hierarchy and volcano.sh/hierarchy-weights.
    pub hierarchy: Vec<(String, i64)>,
    /// What its owner could not parse, in one sentence.
    pub unreadable: Option<Arc<str>>,
}

impl QueueInput {
    pub fn named(name: &str) -> Self {
        Self { name: name.into(), weight: 1, reclaimable: true, ..Self::default() }
    }
}

/// Waiting groups of one shape.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    pub groups: BTreeSet<(JobKey, GroupId)>,
    /// The capacity state in which the shape was refused, and why.
    pub refused: Option<(u64, Arc<str>)>,
    /// The states in which no victim was found, by preempt and by reclaim.
    untakeable: [Option<u64>; 2],
}

#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub input: QueueInput,
    /// The object exists; false: groups only name it.
    pub known: bool,
    pub parent: Option<QueueId>,
    pub children: BTreeSet<QueueId>,
    /// Queues from its parent up.
    pub ancestors: Vec<QueueId>,
    /// Of its own groups and of those below.
    pub allocated: Vec<i64>,
    /// Requested by its waiting groups and those below.
    pub requested: Vec<i64>,
    pub inqueue: Vec<i64>,
    pub elastic: Vec<i64>,
    /// The most it may use; `i64::MAX`: no limit.
    pub real_capability: Vec<i64>,
    pub deserved: Vec<Option<i64>>,
    pub guarantee: Vec<i64>,
    pub groups: BTreeSet<GroupId>,
    /// Groups not admitted yet, in their order.
    pub pending: BTreeSet<(JobKey, GroupId)>,
    pub waiting: BTreeMap<Arc<Shape>, Waiting>,
    /// Why it can hold no groups: its position in the tree.
    pub problem: Option<Arc<str>>,
    pub changed: bool,
    /// Its groups by phase.
    pub phases: [i64; Phase::COUNT],
}

impl Queue {
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    pub fn is_open(&self) -> bool {
        self.known && self.input.state == QueueState::Open
    }

    /// Why no group may be admitted, if so.
    pub fn closed_because(&self) -> Option<String> {
        let name = &self.input.name;
        if !self.known {
            return Some(format!("queue {name} does not exist"));
        }
        if let Some(problem) = &self.problem {
            return Some(format!("queue {name}: {problem}"));
        }
        if self.input.state != QueueState::Open {
            return Some(format!(
                "queue {name} is {}; allowed: a queue that is Open",
                self.input.state.as_str()
            ));
        }
        None
    }
}

impl Waiting {
    pub fn is_untakeable(&self, action: Action, stand: u64) -> bool {
        self.untakeable[usize::from(action == Action::Reclaim)] == Some(stand)
    }

    pub fn set_untakeable(&mut self, action: Action, stand: u64) {
        self.untakeable[usize::from(action == Action::Reclaim)] = Some(stand);
    }

    /// Refused, and nothing was freed since.
    pub fn is_refused(&self, room: u64) -> bool {
        self.refused.as_ref().is_some_and(|(at, _)| *at == room)
    }
}

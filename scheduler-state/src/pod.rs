//! Pods and their classes: pods with the same request and constraints are considered once.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_placement::PodShape;
use fleet_resources::constraints::{NodeSelectorRequirement, NodeSelectorTerm};

use crate::amounts::Request;
use crate::devices::{Ask, Part};
use crate::ids::{ClassId, GroupId, NodeId, PodId, TermId};
use crate::numa::{Given, NumaAsk};

/// Status of a pod. `Pipelined` and `Binding` are this scheduler's own; the others are read from the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    #[default]
    Pending,
    /// Behind a scheduling gate.
    Gated,
    /// Has a place that victims are leaving.
    Pipelined,
    /// Has a place; the API server has not confirmed it yet.
    Binding,
    /// Has a node and does not run yet.
    Bound,
    Running,
    /// Terminating.
    Releasing,
    Succeeded,
    Failed,
    Unknown,
}

impl Status {
    pub const COUNT: usize = 10;

    /// Holds a place that counts for its queue.
    pub fn is_allocated(self) -> bool {
        matches!(self, Self::Pipelined | Self::Binding | Self::Bound | Self::Running)
    }

    /// Uses capacity of its node.
    pub fn uses_node(self) -> bool {
        matches!(self, Self::Binding | Self::Bound | Self::Running | Self::Releasing | Self::Unknown)
    }

    /// As Volcano writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending | Self::Gated => "Pending",
            Self::Pipelined => "Pipelined",
            Self::Binding => "Binding",
            Self::Bound => "Bound",
            Self::Running => "Running",
            Self::Releasing => "Releasing",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// Pods selected by label in a topology domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodTerm {
    /// Namespaces of the selected pods; empty: all.
    pub namespaces: Vec<String>,
    /// All must hold; empty selects every pod.
    pub selector: Vec<NodeSelectorRequirement>,
    /// Node label whose value names the domain.
    pub topology_key: String,
}

/// How evenly pods are spread over domains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spread {
    pub term: PodTerm,
    pub max_skew: i64,
    /// `DoNotSchedule`; false: it only lowers a node's score.
    pub hard: bool,
}

/// A port of the node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub protocol: String,
    /// Empty is every address.
    pub address: String,
    pub port: i64,
}

impl Port {
    pub fn collides(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address.is_empty() || other.address.is_empty() || self.address == other.address)
    }
}

/// Constraints that few pods have, beside resources and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extras {
    pub preferred_nodes: Vec<(i64, NodeSelectorTerm)>,
    pub affinity: Vec<PodTerm>,
    pub anti_affinity: Vec<PodTerm>,
    /// Negative weights are anti-affinity.
    pub preferred_pods: Vec<(i64, PodTerm)>,
    pub spread: Vec<Spread>,
    pub ports: Vec<Port>,
    /// For each volume bound to some nodes, its alternatives.
    pub volumes: Vec<Vec<NodeSelectorTerm>>,
    /// Plugin tdm: the zone of nodes that are revoked by the clock, `*` any.
    pub revocable_zone: Option<String>,
    /// Plugin deviceshare: the request of each container.
    pub devices: Vec<Ask>,
    /// Plugin numa-aware: whole cpus of a guaranteed pod.
    pub numa: Option<NumaAsk>,
}

impl Extras {
    /// Has no constraint here but whole cpus.
    pub fn is_whole_cpus_alone(&self) -> bool {
        let Self {
            preferred_nodes,
            affinity,
            anti_affinity,
            preferred_pods,
            spread,
            ports,
            volumes,
            revocable_zone,
            devices,
            numa: _,
        } = self;
        preferred_nodes.is_empty()
            && affinity.is_empty()
            && anti_affinity.is_empty()
            && preferred_pods.is_empty()
            && spread.is_empty()
            && ports.is_empty()
            && volumes.is_empty()
            && revocable_zone.is_none()
            && devices.is_empty()
    }
}

/// What pods of one class have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSpec {
    pub shape: PodShape,
    pub extras: Option<Arc<Extras>>,
}

/// A class of equal pods.
#[derive(Clone, Debug)]
pub struct Class {
    pub spec: Arc<PodSpec>,
    /// Differs from that of every class before it, also of one with the same number, and after each change of the request.
    pub serial: u64,
    /// Number of its pods. Without any, it may be dropped.
    pub pods: u32,
    pub request: Request,
    /// The request is all that its pods ask for. False: they name more resources than are counted, and fit nowhere.
    pub whole: bool,
    pub affinity: Vec<TermId>,
    pub anti_affinity: Vec<TermId>,
    pub preferred_pods: Vec<(i64, TermId)>,
    pub spread: Vec<(Spread, TermId)>,
}

impl Class {
    /// Requests nothing but one of the node's pods.
    pub fn is_best_effort(&self) -> bool {
        self.request.is_empty() && self.whole
    }

    pub fn has_pod_terms(&self) -> bool {
        !(self.affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.preferred_pods.is_empty()
            && self.spread.is_empty())
    }

    pub fn extras(&self) -> Option<&Extras> {
        self.spec.extras.as_deref()
    }
}

/// Labels of a pod in one piece of memory: `key NUL value NUL ...`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<str>);

impl Labels {
    pub fn new(labels: &BTreeMap<String, String>) -> Self {
        let mut text = String::with_capacity(labels.iter().map(|(k, v)| k.len() + v.len() + 2).sum());
        for (key, value) in labels {
            text.push_str(key);
            text.push('\0');
            text.push_str(value);
            text.push('\0');
        }
        Self(text.into())
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.split('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    pub fn get(&self, wanted: &str) -> Option<&str> {
        self.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value)
    }
}

/// A pod as its owner reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodInput {
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub group: GroupId,
    pub spec: Arc<PodSpec>,
    /// Task of a job, for minima per task.
    pub role: Arc<str>,
    pub status: Status,
    pub node: Option<Arc<str>>,
    pub priority: i64,
    /// Seconds.
    pub created: i64,
    pub preemptable: bool,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
    /// Of a system-critical priority class, or in the system's namespace.
    pub critical: bool,
    /// Seconds after its start for which it is no victim (plugin cdp); 0: none.
    pub cooldown_s: i64,
    pub labels: Labels,
}

/// What plugins reserve for a pod on its node, beside amounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Parts of the node's cards.
    pub parts: Vec<Part>,
    /// Whole cpus, if the node has such.
    pub cpus: Option<Box<Given>>,
}

/// A pod the scheduler knows.
#[derive(Clone, Debug)]
pub struct Pod {
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub group: GroupId,
    pub class: ClassId,
    pub role: u16,
    /// Its sub-group among those of its group.
    pub sub_group: Option<u16>,
    pub status: Status,
    pub node: Option<NodeId>,
    pub priority: i64,
    pub created: i64,
    /// The number at the end of its name, if there is one.
    pub index: u32,
    pub preemptable: bool,
    pub never_preempts: bool,
    pub critical: bool,
    pub cooldown_s: i64,
    /// When it started, in seconds since the epoch.
    pub started: Option<i64>,
    pub labels: Labels,
    pub reserved: Reserved,
    /// Terms of other pods that select this one.
    pub matches: Vec<TermId>,
}

impl Pod {
    /// Until when it is no victim (plugin cdp), if it has a cooldown time and has started.
    pub fn cools_until(&self) -> Option<i64> {
        (self.cooldown_s > 0).then(|| Some(self.started?.saturating_add(self.cooldown_s))).flatten()
    }

    /// Pods of a group in the order they are placed.
    pub fn order(&self, id: PodId) -> TaskOrder {
        (std::cmp::Reverse(self.priority), self.index, self.created, id)
    }
}

/// Higher priority, lower number, older.
pub type TaskOrder = (std::cmp::Reverse<i64>, u32, i64, PodId);

/// The number at the end of a name of at least three parts, as in `job-task-7`.
pub fn index_of(name: &str) -> u32 {
    let mut parts = name.rsplitn(3, '-');
    let index = parts.next().and_then(|index| index.parse().ok());
    match (index, parts.next(), parts.next()) {
        (Some(index), Some(_), Some(_)) => index,
        _ => u32::MAX,
    }
}

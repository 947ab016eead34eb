//! Changes that the feeds send to the core.

use fleet_agent_ground::{
    Event, Object,
    lean::{LeanNode, LeanPod},
};
use fleet_api::Reservation;
use tokio::sync::mpsc;

use crate::scheduler::loads::reading::Reading;

/// Capacity of the channel; a feed waits while it is full.
const CHANGES: usize = 1024;

/// Names of feeds, as logs have them.
pub(crate) const NODES: &str = "nodes";
pub(crate) const PODS: &str = "pods";
pub(crate) const HYPER_NODES: &str = "hypernodes";
pub(crate) const POD_GROUPS: &str = "podgroups";
pub(crate) const QUEUES: &str = "queues";
pub(crate) const PRIORITY_CLASSES: &str = "priorityclasses";
pub(crate) const RESOURCE_QUOTAS: &str = "resourcequotas";
pub(crate) const NUMATOPOLOGIES: &str = "numatopologies";
pub(crate) const BUDGETS: &str = "poddisruptionbudgets";

/// Kinds that must be listed before the first decision: they decide which jobs are admitted and where pods
/// may run.
pub(crate) const READ_FIRST: [&str; 7] =
    [HYPER_NODES, POD_GROUPS, QUEUES, PRIORITY_CLASSES, RESOURCE_QUOTAS, NUMATOPOLOGIES, BUDGETS];

/// A change from the feeds.
#[derive(Debug)]
pub(crate) enum CoreChange {
    Node(Event<LeanNode>),
    Pod(Event<LeanPod>),
    Reservation(Event<Reservation>),
    /// From the member: the stored copies of holds.
    Copy(Event<Reservation>),
    PodGroup(Event<Object>),
    Queue(Event<Object>),
    PriorityClass(Event<Object>),
    HyperNode(Event<Object>),
    ResourceQuota(Event<Object>),
    Budget(Event<Object>),
    Numatopology(Event<Object>),
    Command(Event<Object>),
    /// Measured loads of nodes.
    Loads(Vec<Reading>),
    /// A new configuration of the scheduler.
    Config(Box<fleet_scheduler::Config>),
    /// Sequence number of the hub's last report.
    LastReport(i64),
}

impl CoreChange {
    /// The kind, if this is a whole list.
    pub fn lists(&self) -> Option<&'static str> {
        Some(match self {
            Self::Node(Event::Listed) => NODES,
            Self::Pod(Event::Listed) => PODS,
            Self::PodGroup(Event::Listed) => POD_GROUPS,
            Self::Queue(Event::Listed) => QUEUES,
            Self::PriorityClass(Event::Listed) => PRIORITY_CLASSES,
            Self::HyperNode(Event::Listed) => HYPER_NODES,
            Self::ResourceQuota(Event::Listed) => RESOURCE_QUOTAS,
            Self::Budget(Event::Listed) => BUDGETS,
            Self::Numatopology(Event::Listed) => NUMATOPOLOGIES,
            _ => return None,
        })
    }
}

/// The channel that feeds the core.
pub(crate) fn channel() -> (mpsc::Sender<CoreChange>, mpsc::Receiver<CoreChange>) {
    mpsc::channel(CHANGES)
}

pub(crate) async fn send(changes: mpsc::Sender<CoreChange>, change: CoreChange) -> bool {
    changes.send(change).await.is_ok()
}

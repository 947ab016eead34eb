//! What reaches the core from its feeds.

use fleet_agent_ground::{
    Event, Object,
    lean::{LeanNode, LeanPod},
};
use fleet_api::Reservation;
use tokio::sync::mpsc;

use crate::scheduler::loads::reading::Reading;

/// Changes that may wait before their feed does.
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

/// What must have been listed before the first decision: all that decides who enters and where pods may go.
pub(crate) const READ_FIRST: [&str; 7] =
    [HYPER_NODES, POD_GROUPS, QUEUES, PRIORITY_CLASSES, RESOURCE_QUOTAS, NUMATOPOLOGIES, BUDGETS];

/// What reaches the core from the feeds.
#[derive(Debug)]
pub(crate) enum CoreChange {
    Node(Event<LeanNode>),
    Pod(Event<LeanPod>),
    Reservation(Event<Reservation>),
    /// Of the member: what stands there of the holds.
    Copy(Event<Reservation>),
    PodGroup(Event<Object>),
    Queue(Event<Object>),
    PriorityClass(Event<Object>),
    HyperNode(Event<Object>),
    ResourceQuota(Event<Object>),
    Budget(Event<Object>),
    Numatopology(Event<Object>),
    Command(Event<Object>),
    /// What was measured of nodes.
    Loads(Vec<Reading>),
    /// The scheduler's configuration is new.
    Config(Box<fleet_scheduler::Config>),
    /// Number of the last report that the hub has.
    LastReport(i64),
}

impl CoreChange {
    /// The kind that this is a whole listing of.
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

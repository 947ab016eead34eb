//! A scenario of mode `cells` as data.

use std::{collections::BTreeSet, time::Duration};

use fleet_cells::{GroupRequest, NodeName, Phase, PodSpec, Unreported, config::ClusterConfig};

/// A scenario of mode `cells`.
#[derive(Clone, Debug)]
pub struct CellScenario {
    pub file: String,
    pub config: ClusterConfig,
    /// What nodes are until an event speaks of them.
    pub unreported: Unreported,
    /// Whether victims go at once; else they stay until an event deletes them.
    pub victims_leave: bool,
    pub never_fits: NeverFits,
    pub until: Option<Duration>,
    /// By time, ties in file order.
    pub events: Vec<Event>,
}

/// A valid group that does not fit the empty cells of its virtual cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverFits {
    /// As OpenPAI's REST server does.
    Reject,
    /// As HiveD's scheduler does.
    Wait,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub at: Duration,
    pub line: u64,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub enum Action {
    /// Jobs: one, or one for each pod where it is not a gang.
    Groups(Vec<Job>),
    Pod(Box<Pod>),
    Node {
        node: NodeName,
        good: bool,
    },
    DeleteGroup(String),
    DeletePod(String),
    Reconfigure(Box<ClusterConfig>),
    /// The allocator dies and is rebuilt from what runs.
    Restart,
    /// Tells what a virtual cluster has.
    Show(String),
}

#[derive(Clone, Debug)]
pub struct Job {
    pub request: GroupRequest,
    pub runtime: Option<Duration>,
    pub suggested: Option<BTreeSet<NodeName>>,
}

#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub spec: PodSpec,
    /// Why it is rejected when it comes.
    pub mistake: Option<String>,
    pub suggested: Option<BTreeSet<NodeName>>,
    pub phase: Phase,
}

//! Scenarios of mode `cells`: virtual clusters and groups over the allocator of cells alone, on a virtual clock.
//!
//! The file has HiveD's configuration, unchanged, and timed events; see `docs/scenarios.md`. Jobs (`group`) wait in
//! one queue per virtual cluster, by priority and age, and are tried again after each change; a job that does not
//! fit is skipped. Single pods (`pod`) are tried once, as by HiveD's extender. Deliberately absent: clusters, quota
//! trees and the hub; here only cells decide.

mod engine;
mod read;
#[cfg(test)]
mod tests;
mod told;

use std::{collections::BTreeSet, io, time::Duration};

use fleet_cells::{GroupRequest, NodeName, Phase, PodSpec, Unreported, config::ClusterConfig};

pub use told::{Record, Summary, Told};

use crate::scenario::ScenarioError;

/// A scenario of mode `cells`.
#[derive(Clone, Debug)]
pub struct CellScenario {
    pub file: String,
    pub config: ClusterConfig,
    /// What nodes are until an event speaks of them.
    pub unreported: Unreported,
    /// Whether victims go at once; else they stay until an event deletes them.
    pub victims_leave: bool,
    pub until: Option<Duration>,
    /// By time, ties in file order.
    pub events: Vec<Event>,
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
    pub suggested: Option<BTreeSet<NodeName>>,
    pub phase: Phase,
}

impl CellScenario {
    /// Reads a file's text; none when it is a scenario of another mode.
    ///
    /// # Errors
    /// The first mistake, with line and field.
    pub fn read(file: &str, text: &str) -> Result<Option<Self>, ScenarioError> {
        read::scenario(file, text)
    }

    /// Plays it. Each record is told as it happens.
    ///
    /// # Errors
    /// A record cannot be told, or the configuration does not hold together.
    pub fn run(&self, tell: &mut dyn FnMut(&Record) -> io::Result<()>) -> io::Result<Summary> {
        engine::run(self, tell)
    }
}

//! Plays: crowds of jobs on one member that show why gangs matter. The member, its agent and its hollow nodes are
//! the production ones. A play replaces the programs inside the pods, which make progress only together.
//!
//! Inputs: the number of jobs, with or without gangs. Deliberately absent: the hub's queues and reservations; the
//! jobs are applied in the member.

mod spark;
mod stage;
mod training;

use std::{collections::BTreeSet, time::Duration};

pub use spark::queries;
pub use training::trainings;

/// Whether the scheduler keeps gangs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gangs {
    Kept,
    /// The same without the plugin gang, or without PodGroups where these are what keeps a query's room.
    Ignored,
}

/// How a play went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub jobs: usize,
    pub ended: usize,
    /// Most jobs that held places on nodes at one moment.
    pub most_at_once: usize,
    /// Jobs that hold places and cannot go on, when nothing moved any more.
    pub stuck: BTreeSet<String>,
}

impl Outcome {
    pub fn all_ended(&self) -> bool {
        self.ended == self.jobs
    }
}

/// How long nothing may move before the rest is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the pods are looked at.
const LOOK: Duration = Duration::from_millis(250);

//! Plays: many jobs on one member that show why gangs matter. The member, its agent and its hollow nodes are
//! the production ones. A play replaces the programs inside the pods, which make progress only together.
//!
//! Inputs: the number of jobs, with or without gangs. Not here: the hub's queues and reservations; the jobs
//! are created in the member.

mod spark;
mod stage;
mod training;

use std::{collections::BTreeSet, time::Duration};

pub use spark::{Drivers, queries};
pub use training::trainings;

/// Whether the scheduler keeps gangs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gangs {
    Kept,
    /// The same without the plugin gang.
    Ignored,
}

/// The result of a play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub jobs: usize,
    pub ended: usize,
    /// Most jobs that had pods on nodes at one time.
    pub most_at_once: usize,
    /// Jobs that had pods on nodes and could not continue when the play was stuck.
    pub stuck: BTreeSet<String>,
    /// From the first look at the jobs to the end.
    pub took: Duration,
}

impl Outcome {
    pub fn all_ended(&self) -> bool {
        self.ended == self.jobs
    }
}

/// After so long without a change the play is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the pods are listed.
const LOOK: Duration = Duration::from_millis(250);

//! Plugin task-topology: tasks of one job that should share nodes, or avoid each other, are placed by buckets.

use super::rules::Rules;
use crate::settings::{ArgumentError, Hook, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTopology {
    /// Of the buckets among the scores of nodes; zero: off.
    pub weight: i64,
    /// The buckets order tasks.
    pub orders: bool,
}

impl Rules for TaskTopology {
    const NAME: &'static str = "task-topology";
    const ARGUMENTS: &'static [&'static str] = &["task-topology.weight"];
    const HOOKS: &'static [Hook] = &[Hook::NodeOrder, Hook::TaskOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let weight = settings.weight("task-topology.weight", 1)?;
        Ok(Self {
            weight: if settings.hooks.has(Hook::NodeOrder) { weight } else { 0 },
            orders: settings.hooks.has(Hook::TaskOrder),
        })
    }
}

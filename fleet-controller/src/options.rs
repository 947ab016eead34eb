//! How a controller runs. Every bound and period is here or in [`fleet_hub_core::options`], so that tests can shrink it.

use std::time::Duration;

use fleet_api::clock::Clock;
use fleet_hub_core::options::Options as Rules;

use crate::{election::Election, metrics::Metrics, views::Views};

/// Settings of one controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// How one of several controllers is made the leader. `None`: this one is alone.
    pub election: Option<Election>,
    /// Bounds and periods of the rules.
    pub rules: Rules,
    /// Shortest time between two writes of the status of a queue or of the tree.
    pub summary_interval: Duration,
    /// Writes under way at once.
    pub writes_in_flight: usize,
    /// Wall-clock time.
    pub clock: Clock,
    /// What is counted; shared with whoever serves it.
    pub metrics: Metrics,
    /// What the planner knows; shared with whoever reads it.
    pub views: Views,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            election: None,
            rules: Rules::default(),
            summary_interval: Duration::from_millis(500),
            writes_in_flight: 256,
            clock: Clock::start(),
            metrics: Metrics::default(),
            views: Views::default(),
        }
    }
}

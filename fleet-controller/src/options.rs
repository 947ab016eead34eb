//! Options of a controller. All limits and periods are here or in [`fleet_hub_core::options`], so that tests
//! can shrink them.

use std::time::Duration;

use fleet_api::clock::Clock;
use fleet_hub_core::options::Options as Rules;

use crate::{election::Election, metrics::Metrics, run_log::RunLog, views::Views};

/// Settings of one controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Settings of leader election; `None`: this is the only controller.
    pub election: Option<Election>,
    /// Limits and periods of the rules.
    pub rules: Rules,
    /// Least time between two status writes of a queue or of the tree.
    pub summary_interval: Duration,
    /// Most concurrent writes.
    pub writes_in_flight: usize,
    /// Wall-clock time.
    pub clock: Clock,
    /// Metrics; shared with the HTTP server.
    pub metrics: Metrics,
    /// The planner's snapshots; shared with their readers.
    pub views: Views,
    /// The run log that is written while this controller leads.
    pub run_log: Option<RunLog>,
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
            run_log: None,
        }
    }
}

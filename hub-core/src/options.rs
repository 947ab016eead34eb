//! Options of the rules. All limits and periods are here, so that tests can shrink them.

use core::time::Duration;

/// Limits and periods of the rules.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a cluster counts as alive after a renewal of its lease was seen.
    pub lease_duration: Duration,
    /// Added to the duration before a cluster stops getting new work, for clock drift.
    pub lease_margin: Duration,
    /// Added to both before a cluster counts as lost, unless its lease has another value. By then the agent
    /// has stopped the jobs that may move.
    pub fence_grace: Duration,
    /// Longest time from the binding of a gang to its start, unless the job sets another.
    pub start_timeout: Duration,
    /// Least time between two gangs that leave a draining cluster.
    pub drain_interval: Duration,
    /// How long a cluster is chosen last for a job that failed there once; doubles with each failure.
    pub avoid_base: Duration,
    /// How long a reservation is held in the member without its Work.
    pub reservation_ttl: Duration,
    /// First back-off after every candidate refused a job; doubles up to `backoff_max`.
    pub backoff_base: Duration,
    pub backoff_max: Duration,
    /// Runs of one job before a failure is final, under a policy with application failover.
    pub attempts_limit: usize,
}

impl Options {
    /// The limits that the rules of a run use.
    pub fn run_limits(&self) -> fleet_runs::Limits {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        fleet_runs::Limits {
            start_timeout_ms: ms(self.start_timeout),
            avoid_base_ms: ms(self.avoid_base),
            attempts: self.attempts_limit,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        let runs = fleet_runs::Limits::default();
        let duration = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        Self {
            lease_duration: fleet_api::names::LEASE_DURATION,
            lease_margin: Duration::from_secs(10),
            fence_grace: Duration::from_secs(20),
            start_timeout: duration(runs.start_timeout_ms),
            drain_interval: Duration::from_secs(2),
            avoid_base: duration(runs.avoid_base_ms),
            reservation_ttl: Duration::from_secs(60),
            backoff_base: Duration::from_millis(500),
            backoff_max: Duration::from_secs(30),
            attempts_limit: runs.attempts,
        }
    }
}

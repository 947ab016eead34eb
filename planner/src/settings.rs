//! Settings of a planner.

use fleet_quota::PlanLimits;

/// Most jobs considered in one plan; the rest follow in the next.
const PLAN_LIMITS: PlanLimits = PlanLimits { admissions: 256, probes: 4096, searches: 16 };

/// Settings of a planner.
#[derive(Clone, Debug)]
pub struct Settings {
    /// First back-off after every candidate refused a job; doubles up to `backoff_max_ms`.
    pub backoff_base_ms: i64,
    pub backoff_max_ms: i64,
    pub limits: PlanLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self { backoff_base_ms: 500, backoff_max_ms: 30_000, limits: PLAN_LIMITS }
    }
}

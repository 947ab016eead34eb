//! What happens to a run that was given up: is its Work deleted now, later or never.

use fleet_policies::{
    reason::Reason,
    spec::{Failover, PurgeMode},
};

use crate::after_s;

/// The purge mode that the policy has for this reason.
pub fn mode(failover: Option<&Failover>, reason: Reason) -> PurgeMode {
    let Some(failover) = failover else { return PurgeMode::Directly };
    match reason {
        Reason::ApplicationFailure | Reason::GangNotStarted => failover.application_purge(),
        Reason::TaintUntolerated | Reason::Drained => failover.cluster_purge(),
        _ => PurgeMode::Directly,
    }
}

/// Whether a run that was given up stays for now, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    No,
    /// Until then, in milliseconds since 1970; `None`: until somebody deletes it.
    Until(Option<i64>),
}

/// Whether a run that was given up at `ended_at_ms` stays; `replaced`: a later run of the job has started.
pub fn stay(
    mode: PurgeMode,
    failover: Option<&Failover>,
    ended_at_ms: i64,
    replaced: bool,
    now_ms: i64,
) -> Stay {
    match mode {
        PurgeMode::Directly => Stay::No,
        PurgeMode::Never => Stay::Until(None),
        PurgeMode::Gracefully => {
            let application = failover.and_then(|failover| failover.application.clone()).unwrap_or_default();
            let until_ms = after_s(ended_at_ms, application.grace_period_s());
            if replaced || now_ms >= until_ms { Stay::No } else { Stay::Until(Some(until_ms)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_policies::spec::ApplicationFailover;

    use super::*;

    #[test]
    fn a_graceful_purge_ends_with_the_next_start_or_its_grace() {
        let application = ApplicationFailover { grace_period_seconds: Some(30), ..Default::default() };
        let failover = Failover { application: Some(application), ..Failover::default() };
        let of = |replaced, now_ms| stay(PurgeMode::Gracefully, Some(&failover), 1000, replaced, now_ms);
        assert_eq!(of(false, 30_999), Stay::Until(Some(31_000)));
        assert_eq!(of(false, 31_000), Stay::No);
        assert_eq!(of(true, 1000), Stay::No);
        assert_eq!(stay(PurgeMode::Never, None, 0, true, i64::MAX), Stay::Until(None));
        assert_eq!(stay(PurgeMode::Directly, None, 0, false, 0), Stay::No);
    }

    #[test]
    fn only_a_failure_and_a_move_that_was_asked_for_ask_the_policy() {
        let application = ApplicationFailover { purge_mode: Some(PurgeMode::Never), ..Default::default() };
        let failover = Failover { application: Some(application), ..Failover::default() };
        assert_eq!(mode(Some(&failover), Reason::ApplicationFailure), PurgeMode::Never);
        assert_eq!(mode(Some(&failover), Reason::Preempted), PurgeMode::Directly);
        assert_eq!(mode(Some(&failover), Reason::Drained), PurgeMode::Directly);
        assert_eq!(mode(None, Reason::ApplicationFailure), PurgeMode::Directly);
    }
}

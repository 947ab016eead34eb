//! Attempts: runs that ended before their job, and what follows for the next run.

use fleet_policies::{reason::Reason, spec::Failover};

use crate::Limits;

/// Attempts kept of one job. More than any allowed `backoffLimit`.
pub const KEPT: usize = 64;
/// How long a cluster is not tried again in which the job's name was taken.
pub const NAME_TAKEN_PAUSE_MS: i64 = 600_000;
/// How long a cluster is not tried again that does not permit the job; doubles with each refusal there.
pub const NOT_PERMITTED_PAUSE_MS: i64 = 15_000;
/// The longest such pause.
const NOT_PERMITTED_PAUSE_MAX_MS: i64 = 600_000;
/// How long a cluster is not tried again to which the job cannot be sent as it is.
pub const UNSENDABLE_PAUSE_MS: i64 = 60_000;
/// Most doublings of the time for which a cluster that failed a job is avoided.
const AVOID_DOUBLINGS: u32 = 6;
/// Attempts for an edit in one cluster before it is paused: one edit at a bad moment costs nothing.
const EDITS_FREE: usize = 1;

/// One run that ended before its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<'a> {
    pub cluster: &'a str,
    /// `None`: a reason of a later release.
    pub reason: Option<Reason>,
    pub message: &'a str,
    /// `None`: it cannot be parsed. Such an attempt never counts against a cluster.
    pub ended_at_ms: Option<i64>,
}

/// Whether a cluster is avoided for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Avoid {
    No,
    /// Chosen only if no other cluster can hold the job.
    Last {
        until_ms: i64,
    },
    /// Not chosen before then, and why.
    Until {
        until_ms: i64,
        why: AvoidReason,
    },
}

/// Why a job avoids a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvoidReason {
    pub reason: Reason,
    pub message: String,
}

/// Whether a run with this reason failed by the job's own fault.
pub fn is_own_fault(reason: Option<Reason>) -> bool {
    matches!(reason, Some(Reason::ApplicationFailure | Reason::GangNotStarted))
}

/// Number of runs that failed by the job's own fault.
pub fn failures<'a>(attempts: impl Iterator<Item = Attempt<'a>>) -> usize {
    attempts.filter(|attempt| is_own_fault(attempt.reason)).count()
}

/// How often the job was preempted.
pub fn preemptions<'a>(attempts: impl Iterator<Item = Attempt<'a>>) -> u32 {
    let preempted = attempts.filter(|attempt| attempt.reason == Some(Reason::Preempted));
    u32::try_from(preempted.count()).unwrap_or(u32::MAX)
}

/// What a job is told that [waits for that](waits_for_resume).
pub const WAITS_FOR_RESUME: &str =
    "its last run was suspended for longer than it was admitted for; it is placed again when it is resumed";

/// Whether a waiting job is placed again only when it is no longer suspended: its last run has ended because it was.
pub fn waits_for_resume<'a>(attempts: impl Iterator<Item = Attempt<'a>>, is_suspended: bool) -> bool {
    is_suspended && attempts.last().is_some_and(|last| last.reason == Some(Reason::RunTimeOver))
}

/// Runs of the job before a failure is final: the policy's `backoffLimit`, at least one.
pub fn limit(failover: Option<&Failover>, limits: &Limits) -> usize {
    let asked = failover.and_then(|failover| failover.application.as_ref()?.backoff_limit);
    asked.and_then(|limit| usize::try_from(limit).ok()).map_or(limits.attempts, |limit| limit.max(1))
}

/// Which attempt to drop when one more is recorded: the oldest that was not the job's own fault.
pub fn to_forget<'a>(attempts: impl Iterator<Item = Attempt<'a>>) -> Option<usize> {
    let attempts: Vec<Attempt> = attempts.collect();
    let first_free = attempts.iter().position(|attempt| !is_own_fault(attempt.reason));
    (attempts.len() >= KEPT).then(|| first_free.unwrap_or(0))
}

/// Whether and how long `cluster` is avoided. Failures expire: each keeps the job off for a time that doubles with
/// the number of failures there.
pub fn avoidance<'a>(
    attempts: impl Iterator<Item = Attempt<'a>>,
    cluster: &str,
    limits: &Limits,
    now_ms: i64,
) -> Avoid {
    let (mut failed, mut failed_at) = (0, None);
    let (mut edited, mut edited_last) = (0, None);
    let (mut refused, mut refused_last) = (0, None);
    for attempt in attempts.filter(|attempt| attempt.cluster == cluster) {
        let (Some(reason), Some(ended_ms)) = (attempt.reason, attempt.ended_at_ms) else { continue };
        if let Some((pause_ms, why)) = pause(&attempt, reason)
            && now_ms < ended_ms.saturating_add(pause_ms)
        {
            return Avoid::Until { until_ms: ended_ms.saturating_add(pause_ms), why };
        }
        match reason {
            Reason::ApplicationFailure | Reason::GangNotStarted | Reason::ClusterLost => {
                failed += 1;
                failed_at = failed_at.max(Some(ended_ms));
            }
            Reason::Edited | Reason::InvalidWorkload => {
                edited += 1;
                edited_last = Some((ended_ms, attempt.message));
            }
            Reason::NotPermitted => {
                refused += 1;
                refused_last = Some((ended_ms, attempt.message));
            }
            _ => {}
        }
    }
    // A job that is bound and evicted repeatedly is not edited at a bad moment.
    if let (true, Some((ended_ms, message))) = (edited > EDITS_FREE, edited_last) {
        let until_ms = ended_ms.saturating_add(doubled(UNSENDABLE_PAUSE_MS, edited - EDITS_FREE));
        if now_ms < until_ms {
            let why = AvoidReason { reason: Reason::Edited, message: message.to_string() };
            return Avoid::Until { until_ms, why };
        }
    }
    // The administrator may grant what was missing at any time.
    if let Some((ended_ms, message)) = refused_last {
        let pause_ms = doubled(NOT_PERMITTED_PAUSE_MS, refused).min(NOT_PERMITTED_PAUSE_MAX_MS);
        let until_ms = ended_ms.saturating_add(pause_ms);
        if now_ms < until_ms {
            let why = AvoidReason { reason: Reason::NotPermitted, message: message.to_string() };
            return Avoid::Until { until_ms, why };
        }
    }
    let Some(failed_at) = failed_at else { return Avoid::No };
    let until_ms = failed_at.saturating_add(doubled(limits.avoid_base_ms, failed));
    if now_ms < until_ms { Avoid::Last { until_ms } } else { Avoid::No }
}

/// How long one attempt alone keeps the job off its cluster.
fn pause(attempt: &Attempt, reason: Reason) -> Option<(i64, AvoidReason)> {
    let said = || AvoidReason { reason, message: attempt.message.to_string() };
    match reason {
        Reason::NameTaken => {
            let message = format!("an object of that name in {} is not Fleet's", attempt.cluster);
            Some((NAME_TAKEN_PAUSE_MS, AvoidReason { reason, message }))
        }
        Reason::OverrideInvalid | Reason::PodSecurityViolation | Reason::WorkloadTooLarge => {
            Some((UNSENDABLE_PAUSE_MS, said()))
        }
        _ => None,
    }
}

/// `base`, doubled for each time after the first, up to a limit.
fn doubled(base_ms: i64, times: usize) -> i64 {
    let doublings = u32::try_from(times.saturating_sub(1)).unwrap_or(AVOID_DOUBLINGS).min(AVOID_DOUBLINGS);
    base_ms.saturating_mul(1 << doublings)
}

/// Why the job ends with its last attempt instead of being placed again.
pub fn final_reason<'a>(
    attempts: impl Iterator<Item = Attempt<'a>> + Clone,
    last: Attempt,
    failover: Option<&Failover>,
    limits: &Limits,
) -> Option<Reason> {
    if is_own_fault(last.reason) && failures(attempts) >= limit(failover, limits) {
        return Some(Reason::BackoffLimitExceeded);
    }
    if last.reason == Some(Reason::Stopped) {
        return Some(Reason::Stopped);
    }
    let moves = failover.is_some_and(|failover| failover.cluster.is_some());
    (last.reason == Some(Reason::ClusterGone) && !moves).then_some(Reason::ClusterGone)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn ended(cluster: &'static str, reason: Reason, at_ms: i64) -> Attempt<'static> {
        Attempt { cluster, reason: Some(reason), message: "said so", ended_at_ms: Some(at_ms) }
    }

    fn avoids(attempts: &[Attempt], now_ms: i64) -> Avoid {
        avoidance(attempts.iter().copied(), "east", &Limits::default(), now_ms)
    }

    #[test]
    fn what_is_held_against_a_cluster_fades_and_doubles_up_to_64_times() {
        let once = [ended("east", Reason::ApplicationFailure, 0)];
        assert_eq!(avoids(&once, HOUR_MS - 1), Avoid::Last { until_ms: HOUR_MS });
        assert_eq!(avoids(&once, HOUR_MS), Avoid::No);
        let twice = [once[0], ended("east", Reason::GangNotStarted, 10)];
        assert_eq!(avoids(&twice, HOUR_MS), Avoid::Last { until_ms: 2 * HOUR_MS + 10 });
        let often = vec![once[0]; 20];
        assert_eq!(avoids(&often, 0), Avoid::Last { until_ms: 64 * HOUR_MS });
        // Of another cluster, or for another's sake: nothing.
        assert_eq!(avoids(&[ended("west", Reason::ApplicationFailure, 0)], 0), Avoid::No);
        assert_eq!(avoids(&[ended("east", Reason::Preempted, 0)], 0), Avoid::No);
    }

    #[test]
    fn a_name_that_is_taken_pauses_the_cluster_and_says_why() {
        let taken = [ended("east", Reason::NameTaken, 5)];
        let Avoid::Until { until_ms, why } = avoids(&taken, 600_004) else { panic!("not barred") };
        assert_eq!((until_ms, why.reason), (600_005, Reason::NameTaken));
        assert_eq!(why.message, "an object of that name in east is not Fleet's");
        assert_eq!(avoids(&taken, 600_005), Avoid::No);
        let refused = [ended("east", Reason::WorkloadTooLarge, 0)];
        assert!(matches!(avoids(&refused, 59_999), Avoid::Until { until_ms: 60_000, .. }));
        assert_eq!(avoids(&refused, 60_000), Avoid::No);
    }

    #[test]
    fn what_is_not_permitted_is_tried_again_ever_more_rarely() {
        let refused = ended("east", Reason::NotPermitted, 1000);
        for (times, pause_ms) in
            [(1, 15_000), (2, 30_000), (3, 60_000), (6, 480_000), (7, 600_000), (20, 600_000)]
        {
            let attempts = vec![refused; times];
            let Avoid::Until { until_ms, why } = avoids(&attempts, 1000) else { panic!("{times}") };
            assert_eq!((until_ms, why.reason), (1000 + pause_ms, Reason::NotPermitted), "{times}");
            assert_eq!(why.message, "said so");
            assert_eq!(avoids(&attempts, until_ms), Avoid::No, "{times}");
        }
    }

    #[test]
    fn one_edit_is_free_and_more_pause_the_cluster_longer_each_time() {
        let edit = ended("east", Reason::Edited, 1000);
        assert_eq!(avoids(&[edit], 1000), Avoid::No);
        assert!(matches!(avoids(&[edit; 2], 1000), Avoid::Until { until_ms: 61_000, .. }));
        assert!(matches!(avoids(&[edit; 3], 1000), Avoid::Until { until_ms: 121_000, .. }));
    }

    #[test]
    fn a_job_ends_with_its_last_allowed_failure_and_with_a_cluster_that_is_gone() {
        let limits = Limits::default();
        let failed = ended("east", Reason::GangNotStarted, 0);
        let of = |attempts: &[Attempt], failover: Option<&Failover>| {
            let last = *attempts.last().expect("one run");
            final_reason(attempts.iter().copied(), last, failover, &limits)
        };
        assert_eq!(of(&[failed; 2], None), None);
        assert_eq!(of(&[failed; 3], None), Some(Reason::BackoffLimitExceeded));
        let lost = ended("east", Reason::ClusterLost, 0);
        assert_eq!(of(&[failed, failed, failed, lost], None), None, "the last run was nobody's fault");
        let gone = ended("east", Reason::ClusterGone, 0);
        assert_eq!(of(&[gone], None), Some(Reason::ClusterGone));
        let moves = Failover { cluster: Some(Default::default()), ..Failover::default() };
        assert_eq!(of(&[gone], Some(&moves)), None);
    }

    #[test]
    fn what_is_forgotten_first_is_nobodys_fault() {
        let mut all = vec![ended("east", Reason::ApplicationFailure, 0); KEPT - 1];
        assert_eq!(to_forget(all.iter().copied()), None);
        all.insert(3, ended("east", Reason::Preempted, 0));
        assert_eq!(to_forget(all.iter().copied()), Some(3));
        all[3] = all[0];
        assert_eq!(to_forget(all.iter().copied()), Some(0));
    }

    #[test]
    fn only_preemptions_count_as_such() {
        let by = |reason| ended("east", reason, 0);
        let all = [by(Reason::Preempted), by(Reason::Drained), by(Reason::Preempted)];
        assert_eq!(preemptions(all.iter().copied()), 2);
    }

    #[test]
    fn a_job_whose_time_was_over_while_it_was_suspended_waits_until_it_is_resumed() {
        let over = ended("east", Reason::RunTimeOver, 0);
        let drained = ended("east", Reason::Drained, 0);
        for (attempts, suspended, expected) in [
            (vec![over], true, true),
            (vec![over], false, false),
            (vec![drained, over], true, true),
            (vec![over, drained], true, false),
            (vec![], true, false),
        ] {
            assert_eq!(waits_for_resume(attempts.iter().copied(), suspended), expected, "{attempts:?}");
        }
    }
}

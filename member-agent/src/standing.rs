//! The agent's standing with the hub: whether fenced jobs may run.
//!
//! A fenced job is one that the hub may start elsewhere once this cluster counts as lost. Past the deadline
//! of its lease the agent is cut off: fenced jobs are stopped (`works::fence`) and none is started. When the
//! lease is renewed again, the agent first learns the current epochs from a list that began after the
//! renewal; then it is in good standing. A restarted agent takes over the previous process's deadline from
//! the record, so without the hub it stops what its predecessor would have stopped.

use fleet_agent_ground::{LeaseState, Standing};
use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{context::Context, record};

/// Part of the grace period that a new process has to reach the hub before it acts on an expired record.
const FIRST_TRY: u32 = 4;

/// Inputs of the standing.
#[derive(Clone, Copy, Debug)]
struct Facts {
    lease: LeaseState,
    /// The last return to good standing whose epochs are known, and the last return.
    learned: u64,
    returns: u64,
    now: Instant,
    /// Until then a new process tries to reach the hub before it stops anything.
    first_try_until: Instant,
}

/// The next standing.
fn next(before: Standing, facts: &Facts) -> Standing {
    let Facts { lease, now, .. } = facts;
    let is_held = lease.is_held_at(*now);
    if before == Standing::Starting {
        let inherits = lease.inherited.is_some_and(|end| *now < end);
        return match (lease.is_record_read, lease.deadline) {
            (false, _) => Standing::Starting,
            (true, _) if lease.is_declared_lost => Standing::CutOff,
            // The hub has counted this cluster as alive all the time.
            (true, _) if inherits => Standing::Good,
            (true, Some(_)) if is_held => Standing::Returning(facts.returns + 1),
            (true, None) if *now < facts.first_try_until => Standing::Starting,
            (true, _) => Standing::CutOff,
        };
    }
    match before {
        _ if !is_held => Standing::CutOff,
        Standing::Returning(number) if facts.learned < number => Standing::Returning(number),
        Standing::CutOff => Standing::Returning(facts.returns + 1),
        _ => Standing::Good,
    }
}

/// Maintains the standing until the agent stops.
pub(crate) async fn run(context: Arc<Context>) -> anyhow::Result<()> {
    let shutdown = context.shutdown.clone();
    shutdown.run_until_cancelled(keep(context)).await;
    Ok(())
}

async fn keep(context: Arc<Context>) {
    let clock = context.lease.clone();
    let (mut lease, mut learned) = (clock.state(), clock.watch_learned());
    let grace = context.options.fence_grace;
    let mut first_try_until = Instant::now() + grace / FIRST_TRY;
    let mut returns = 0;
    let mut reading = std::pin::pin!(record::read(&context));
    let mut is_read = false;
    loop {
        let state = *lease.borrow_and_update();
        let now = Instant::now();
        let before = clock.standing();
        let learned_now = *learned.borrow_and_update();
        let facts = Facts { lease: state, learned: learned_now, returns, now, first_try_until };
        let standing = next(before, &facts);
        if let Standing::Returning(number) = standing {
            returns = number;
        }
        if standing != before {
            tracing::info!(cluster = %context.options.cluster, ?before, now = ?standing, "standing with the hub");
            clock.set_standing(standing);
        }
        let wake = [state.end(), Some(first_try_until)].into_iter().flatten().filter(|at| *at > now).min();
        tokio::select! {
            biased;
            // The clock owns the senders.
            _ = lease.changed() => {}
            _ = learned.changed() => {}
            found = &mut reading, if !is_read => {
                is_read = true;
                first_try_until = first_try(first_try_until, found, grace, Instant::now());
                clock.sender().send_modify(|state| {
                    state.is_record_read = true;
                    state.inherited = found;
                });
            }
            () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
        }
    }
}

/// A process that takes over while the hub still waits for this cluster's pods to end must not use up their time:
/// half of the grace after the end of the lease is for the pods.
fn first_try(until: Instant, record: Option<Instant>, grace: Duration, now: Instant) -> Instant {
    match record {
        Some(end) if now < end + grace => until.min(end + grace / 2).max(now),
        _ => until,
    }
}

#[cfg(test)]
mod tests {
    use fleet_agent_ground::LeaseClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn standings_follow_the_lease() {
        let now = Instant::now() + SECOND;
        let (past, ahead) = (now - SECOND, now + SECOND);
        let unread = LeaseState::default();
        let no_record = LeaseState { is_record_read: true, ..unread };
        let inherits = LeaseState { inherited: Some(ahead), ..no_record };
        let lapsed = LeaseState { inherited: Some(past), ..no_record };
        let renewed = LeaseState { deadline: Some(ahead), ..lapsed };
        let silent = LeaseState { deadline: Some(past), ..lapsed };
        let lost = LeaseState { is_declared_lost: true, ..renewed };
        let check = |before, lease, learned, first_try_until, expected| {
            let facts = Facts { lease, learned, returns: 0, now, first_try_until };
            assert_eq!(next(before, &facts), expected, "{before:?} {facts:?}");
        };
        let (starting, good, cut) = (Standing::Starting, Standing::Good, Standing::CutOff);
        let returning = Standing::Returning(1);
        check(starting, unread, 0, past, starting);
        check(starting, LeaseState { deadline: Some(ahead), ..unread }, 0, past, starting);
        check(starting, inherits, 0, past, good);
        for record in [no_record, lapsed] {
            check(starting, record, 0, ahead, starting);
            check(starting, record, 0, past, cut);
        }
        check(starting, renewed, 0, past, returning);
        check(starting, lost, 0, ahead, cut);
        check(good, renewed, 0, past, good);
        check(good, silent, 0, past, cut);
        check(good, lost, 0, past, cut);
        check(cut, lost, 0, past, cut);
        check(cut, renewed, 0, past, returning);
        check(returning, renewed, 0, past, returning);
        check(returning, renewed, 1, past, good);
        check(returning, silent, 1, past, cut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_takes_over_late_leaves_the_pods_their_time() {
        let (now, grace) = (Instant::now() + 100 * SECOND, 20 * SECOND);
        let check = |record: Option<Instant>, tries: u32| {
            let until = first_try(now + grace / FIRST_TRY, record, grace, now);
            assert_eq!(until, now + tries * SECOND, "{record:?}");
        };
        check(None, 5);
        check(Some(now + 3 * SECOND), 5);
        check(Some(now - SECOND), 5);
        check(Some(now - 8 * SECOND), 2);
        check(Some(now - 15 * SECOND), 0);
        // Too late for any pod to end in time: the jobs may not have moved.
        check(Some(now - 60 * SECOND), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_is_asked_before_anybody_is_told() {
        let clock = LeaseClock::held();
        assert!(clock.may_run());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((clock.standing(), clock.may_run()), (Standing::Good, false));
    }
}

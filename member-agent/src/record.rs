//! The Lease in the member: it tells a restarted agent of the last renewal on the hub, and watchdogs read it.
//!
//! It is renewed only while the agent is in good standing. Its duration is what was left of the hub's lease
//! when it was written, so it outlives the hub's deadline at most by the time of a write in flight. Its
//! `renewTime` is this node's wall clock; only a restarted agent reads it, and only to shorten its deadline.

use std::{sync::Arc, time::Duration};

use fleet_api::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::context::Context;
use fleet_agent_ground::{Backoff, CallError, Standing, call};

/// Timeout of a write of the record, so that a late write does not keep watchdogs content.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// How far the record's time may be in the future before it counts as a clock that was set back.
const CLOCK_SLACK: Duration = Duration::from_secs(1);

fn leases(context: &Context) -> Api<Lease> {
    Api::namespaced(context.member.clone(), names::MEMBER_NAMESPACE)
}

/// The deadline of the previous process, if it is in the future. Retries until the member answers.
pub(crate) async fn read(context: &Context) -> Option<Instant> {
    let mut backoff = Backoff::new(&format!("{}/record", context.options.cluster));
    loop {
        match call(leases(context).get_opt(names::LEASE_NAME)).await {
            Ok(lease) => {
                let left = left_of(&lease?, context.clock.now());
                return Some(Instant::now() + left);
            }
            Err(error) => tracing::warn!(%error, "cannot read the member's record of the lease"),
        }
        backoff.wait().await;
    }
}

/// The remaining time of a record at `now`.
fn left_of(lease: &Lease, now: Timestamp) -> Duration {
    let Some(spec) = &lease.spec else { return Duration::ZERO };
    let (Some(MicroTime(renewed)), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds) else {
        return Duration::ZERO;
    };
    let passed = now.duration_since(*renewed);
    if passed < SignedDuration::try_from(CLOCK_SLACK).map_or(SignedDuration::ZERO, |slack| -slack) {
        return Duration::ZERO;
    }
    let whole = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    whole.saturating_sub(Duration::try_from(passed).unwrap_or(Duration::ZERO))
}

/// Writes the record after each renewal while the agent is in good standing.
pub(crate) async fn run(context: Arc<Context>) -> anyhow::Result<()> {
    let shutdown = context.shutdown.clone();
    shutdown.run_until_cancelled(keep(&context)).await;
    Ok(())
}

async fn keep(context: &Context) {
    let (mut lease, mut standing) = (context.lease.state(), context.lease.watch());
    let mut backoff = Backoff::new(&format!("{}/keep-record", context.options.cluster));
    loop {
        let state = *lease.borrow_and_update();
        let is_good = *standing.borrow_and_update() == Standing::Good;
        let mut failed = false;
        if is_good && let Some(deadline) = state.deadline {
            match tokio::time::timeout(RECORD_TIMEOUT, write(context, deadline)).await {
                Ok(Ok(())) => backoff.reset(),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot write the member's record of the lease");
                    failed = true;
                }
                Err(_) => {
                    tracing::warn!("no answer to the write of the member's record of the lease");
                    failed = true;
                }
            }
        }
        tokio::select! {
            biased;
            _ = lease.changed() => {}
            _ = standing.changed() => {}
            () = backoff.wait(), if failed => {}
        }
    }
}

async fn write(context: &Context, deadline: Instant) -> Result<(), CallError> {
    // Rounded down: never longer than the hub's lease.
    let left = deadline.saturating_duration_since(Instant::now()).as_secs();
    if left == 0 {
        return Ok(());
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": names::LEASE_NAME, "namespace": names::MEMBER_NAMESPACE},
        "spec": {
            "holderIdentity": context.options.cluster,
            "leaseDurationSeconds": left,
            "renewTime": MicroTime(context.clock.now()),
        },
    });
    let params = PatchParams::apply(names::AGENT_MANAGER).force();
    call(leases(context).patch(names::LEASE_NAME, &params, &Patch::Apply(&lease))).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_for_what_is_left_of_it() {
        let check = |renewed: &str, seconds: i32, now: &str, left: u64| {
            let lease: Lease = serde_json::from_value(json!({"spec": {
                "leaseDurationSeconds": seconds, "renewTime": renewed}}))
            .unwrap();
            assert_eq!(left_of(&lease, now.parse().unwrap()), Duration::from_secs(left), "{renewed} {now}");
        };
        check("2026-01-01T00:00:00.000000Z", 40, "2026-01-01T00:00:00Z", 40);
        check("2026-01-01T00:00:00.000000Z", 40, "2026-01-01T00:00:30Z", 10);
        check("2026-01-01T00:00:00.000000Z", 40, "2026-01-01T00:01:00Z", 0);
        // A clock that was set back says nothing.
        check("2026-01-01T00:00:00.000000Z", 40, "2025-12-31T23:59:00Z", 0);
        check("2026-01-01T00:00:00.000000Z", -1, "2026-01-01T00:00:00Z", 0);
        assert_eq!(left_of(&Lease::default(), Timestamp::UNIX_EPOCH), Duration::ZERO);
    }
}

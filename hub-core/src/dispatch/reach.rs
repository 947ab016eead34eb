//! Reports that a run's cluster does not answer, and what happens to the run.

use fleet_api::binding::RunStatus;
use fleet_policies::reason::Reason;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{judge::RunContext, statuses::set_conditions, step::Step};
use crate::{
    events,
    status::{find_condition, rfc3339},
    world::ready,
};

/// Type of the binding's condition; present only while the cluster does not answer.
const REACHABLE: &str = "ClusterReachable";

pub(super) fn tell(context: &RunContext, run: &RunStatus, status: &mut Value, step: &mut Step) {
    let entry = context.entry;
    let Some(target) = entry.object.spec.clusters.first().map(|target| target.name.as_str()) else { return };
    if context.world.clusters.get(target).is_some_and(ready) {
        if let Some(list) = status["conditions"].as_array_mut() {
            list.retain(|condition| condition["type"] != REACHABLE);
        }
        return;
    }
    let policy = entry.failover.as_ref().and_then(|failover| failover.cluster.as_ref());
    let (reason, message) = match (policy, &run.lost_since) {
        (None, _) => (
            Reason::ClusterNotReady,
            format!("{target} does not answer; the job stays, its policy has no failover.cluster"),
        ),
        (Some(_), None) => (
            Reason::WaitingForFence,
            format!("{target} does not answer and may still run the job; it moves when that is impossible"),
        ),
        (Some(policy), Some(since)) => {
            let since_at: Timestamp = since.parse().unwrap_or(context.now);
            let wait = SignedDuration::from_secs(policy.toleration_s().max(0));
            let until = since_at.saturating_add(wait).unwrap_or(Timestamp::MAX);
            let message = format!("{target} is lost since {since}; the job moves at {}", rfc3339(until));
            (Reason::ClusterLost, message)
        }
    };
    let known = entry.object.status.as_ref().and_then(|s| find_condition(&s.conditions, REACHABLE));
    if known.is_none_or(|known| known.reason != reason.as_str()) {
        step.writes.push(events::warning(
            &entry.object_subject(),
            entry.source(),
            reason,
            &message,
            context.now,
        ));
    }
    set_conditions(entry, status, &[(REACHABLE, "False", reason, &message)], context.now);
}

//! Statuses that the scheduler writes: of PodGroups without a job controller, and of Queues.

use std::collections::BTreeMap;

use fleet_resources::quantity;
use fleet_scheduler::{Cluster, GroupId, Phase, QueueId, QueueState, Status, group::Group};
use serde_json::{Map, Value, json};

use fleet_agent_ground::pod_group::{Condition, READY, remove_condition};

/// The phase of a group, from its pods.
pub(crate) fn phase(group: &Group) -> Phase {
    let count = |status: Status| group.count(status);
    let ended = count(Status::Succeeded) + count(Status::Failed);
    let scheduled = count(Status::Running)
        + count(Status::Bound)
        + count(Status::Binding)
        + ended
        + count(Status::Releasing);
    let waits = count(Status::Pending) + count(Status::Gated) + count(Status::Pipelined) > 0;
    if count(Status::Running) > 0 && waits && group.ready() < group.min() {
        return Phase::Unknown;
    }
    if scheduled >= group.min() && scheduled > 0 {
        return if ended == group.pods.len() as i64 { Phase::Completed } else { Phase::Running };
    }
    // It had its minimum, and its lost pods are not created again.
    if count(Status::Running) > 0 && group.was_ready && matches!(group.phase, Phase::Running | Phase::Unknown)
    {
        return Phase::Unknown;
    }
    if group.input.no_gate || group.phase == Phase::Inqueue || (group.phase == Phase::Unknown && waits) {
        Phase::Inqueue
    } else {
        Phase::Pending
    }
}

/// The group's whole status, if it changed. `session` is the id of this computation in conditions.
pub(crate) fn of_group(
    cluster: &Cluster,
    id: GroupId,
    known: &Value,
    now: &str,
    session: &str,
) -> Option<Value> {
    let group = cluster.group(id);
    let mut status = if known.is_object() { known.clone() } else { json!({}) };
    status["phase"] = group.phase.as_str().into();
    let counts = [
        ("running", group.count(Status::Running)),
        ("succeeded", group.count(Status::Succeeded)),
        ("failed", group.count(Status::Failed)),
    ];
    for (field, number) in counts {
        set_count(&mut status, field, number);
    }
    if group.is_ready() && group.min() > 0 && !group.pods.is_empty() {
        remove_condition(&mut status, "Unschedulable");
        Condition { kind: "Scheduled", reason: READY, message: None, now, session }.set(&mut status, false);
    } else if let Some((reason, message)) = shortage(cluster, group) {
        let message = Some(message);
        Condition { kind: "Unschedulable", reason, message, now, session }.set(&mut status, false);
    }
    (status != *known).then_some(status)
}

/// Why the group is not ready: reason and message.
fn shortage(cluster: &Cluster, group: &Group) -> Option<(&'static str, String)> {
    let invalid = group.validity().err();
    let why = group.why.as_deref();
    if group.pods.is_empty() {
        return why.map(|why| ("NotEnoughResources", why.to_owned()));
    }
    let first = group.pending.first().or(group.pending_best_effort.first()).map(|order| order.3)?;
    let (reason, why) = match (&invalid, why) {
        (Some((reason, sentence)), _) => (*reason, sentence.as_str()),
        (None, Some(why)) => ("NotEnoughResources", why),
        (None, None) => return None,
    };
    let mut histogram: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in &group.pods {
        *histogram.entry(cluster.pod(*pod).status.as_str()).or_default() += 1;
    }
    // Sorted as text, so "10 Running" comes before "3 Releasing", as in Volcano.
    let mut counts: Vec<String> =
        histogram.iter().map(|(status, number)| format!("{number} {status}")).collect();
    counts.sort();
    counts.push(format!("{} minAvailable", group.min()));
    let waiting = group.pending.len() + group.pending_best_effort.len();
    let message = format!(
        "{}/{} tasks in gang unschedulable: pod group is not ready, {}; Pending: {waiting} Unschedulable. Origin reason is {}: {why}",
        (group.min() - group.ready()).max(0),
        group.pods.len(),
        counts.join(", "),
        cluster.pod(first).name,
    );
    Some((reason, message))
}

/// The queue's whole status, if it changed.
pub(crate) fn of_queue(cluster: &Cluster, id: QueueId, known: &Value, now: &str) -> Option<Value> {
    let queue = cluster.queue(id);
    let mut status = if known.is_object() { known.clone() } else { json!({}) };
    let empty = queue.groups.iter().all(|group| cluster.group(*group).pods.is_empty());
    let state = match queue.input.state {
        QueueState::Closing if empty => QueueState::Closed,
        state => state,
    };
    status["state"] = state.as_str().into();
    for phase in [Phase::Pending, Phase::Inqueue, Phase::Running, Phase::Unknown, Phase::Completed] {
        set_count(&mut status, &phase.as_str().to_lowercase(), queue.phases[phase as usize]);
    }
    let problem = cluster.queue_problem(id);
    // A queue that was never invalid has no such condition, as in Volcano.
    if problem.is_some() || status["conditions"].is_array() {
        set_valid(&mut status, problem, "InItsPlace", "InvalidQueue", now);
    }
    let held = cluster.dimensions.resources(&queue.allocated);
    let amounts: Map<String, Value> =
        held.iter().map(|(name, n)| (name.to_string(), quantity::format(name.as_str(), n).into())).collect();
    if amounts.is_empty() {
        status.as_object_mut().map(|fields| fields.remove("allocated"));
    } else {
        status["allocated"] = amounts.into();
    }
    (status != *known).then_some(status)
}

fn set_count(status: &mut Value, field: &str, number: i64) {
    match (number, status.as_object_mut()) {
        (0, Some(fields)) => drop(fields.remove(field)),
        (number, _) => status[field] = number.into(),
    }
}

/// Sets the condition `Valid`, with a reason in either case.
pub(crate) fn set_valid(status: &mut Value, problem: Option<String>, valid: &str, invalid: &str, now: &str) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let before = conditions.iter().position(|condition| condition["type"] == "Valid");
    let before = before.map(|at| conditions.remove(at));
    let (stands, reason, message) = match problem {
        None => ("True", valid, String::new()),
        Some(problem) => ("False", invalid, problem),
    };
    let since = before
        .as_ref()
        .filter(|condition| condition["status"] == stands)
        .and_then(|condition| condition["lastTransitionTime"].as_str())
        .unwrap_or(now)
        .to_owned();
    conditions.push(json!({
        "type": "Valid", "status": stands, "reason": reason, "message": message, "lastTransitionTime": since,
    }));
    status["conditions"] = conditions.into();
}

//! The status on the hub, aggregated from the statuses in the members.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::WorkloadKind;
use super::conditions::{
    Condition, FAILED_CREATE, QUEUING, REPLICA_FAILURE, conditions_of, find, has_condition, is_true,
};
use super::health::{counted, number, volcano_phase};

/// The status of the hub's object, from its present status and each cluster's. Without items the present status is
/// kept. The condition Queuing belongs to the hub and is kept.
pub fn aggregate(kind: WorkloadKind, current: &Value, items: &[(&str, &Value)]) -> Value {
    let reported: Vec<(&str, &Value)> = items
        .iter()
        .filter(|(_, status)| status.as_object().is_some_and(|fields| !fields.is_empty()))
        .copied()
        .collect();
    if reported.is_empty() {
        return current.clone();
    }
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => {
            kubeflow(kind, current, &reported)
        }
        WorkloadKind::BatchJob => batch(current, &reported),
        WorkloadKind::VolcanoJob => volcano(&reported),
        WorkloadKind::Deployment => deployment(current, &reported),
        WorkloadKind::Other => match reported.as_slice() {
            [(_, status)] => (*status).clone(),
            _ => current.clone(),
        },
    }
}

fn kubeflow(kind: WorkloadKind, current: &Value, items: &[(&str, &Value)]) -> Value {
    let succeeded = items.iter().all(|(_, status)| has_condition(status, "Succeeded"));
    let failed: Vec<&str> = names_where(items, "Failed");
    let ended = succeeded || !failed.is_empty();
    // First, as in the member: the last condition is the job's state.
    let mut conditions = Vec::from_iter(refused(items, FAILED_CREATE).filter(|_| !ended));
    let keep = |type_: &str| items.iter().find_map(|(_, status)| find(status, type_).cloned());
    if items.iter().any(|(_, status)| has_condition(status, "Created")) {
        conditions.extend(keep("Created"));
    } else if let Some(created) = find(current, "Created") {
        // The hub's own, with its time.
        conditions.insert(0, created.clone());
    }
    let running = items
        .iter()
        .find(|(_, status)| has_condition(status, "Running"))
        .or_else(|| items.iter().find(|(_, status)| find(status, "Running").is_some()));
    if let Some(condition) = running.and_then(|(_, status)| find(status, "Running")) {
        let mut condition = condition.clone();
        if ended && is_true(&condition) {
            condition["status"] = json!("False");
        }
        conditions.push(condition);
    }
    let restarting = items.iter().find(|(_, status)| has_condition(status, "Restarting"));
    if let Some((_, status)) = restarting.filter(|_| !ended) {
        conditions.extend(find(status, "Restarting").cloned());
    }
    if !failed.is_empty() {
        conditions.push(merged(kind, items, "Failed", &failed));
    } else if succeeded {
        let all: Vec<&str> = items.iter().map(|(name, _)| *name).collect();
        conditions.push(merged(kind, items, "Succeeded", &all));
    }
    let mut status = object(&[("conditions", Value::Array(with_queuing(current, conditions)))]);
    set_some(&mut status, "startTime", extreme_time(items, "startTime", Extreme::Earliest));
    if succeeded {
        set_some(&mut status, "completionTime", extreme_time(items, "completionTime", Extreme::Latest));
    }
    set_some(&mut status, "replicaStatuses", replica_statuses(items));
    Value::Object(status)
}

/// The condition that says why pods cannot be created, of the first cluster that has it; among several with its name.
fn refused(items: &[(&str, &Value)], type_: &str) -> Option<Value> {
    let (name, status) = items.iter().find(|(_, status)| has_condition(status, type_))?;
    let mut condition = find(status, type_)?.clone();
    if items.len() > 1 {
        let message = condition["message"].as_str().unwrap_or_default();
        condition["message"] = json!(format!("cluster {name}: {message}"));
    }
    Some(condition)
}

/// A condition of one cluster is passed through; those of several are merged, with a message that names them.
fn merged(kind: WorkloadKind, items: &[(&str, &Value)], type_: &str, clusters: &[&str]) -> Value {
    let found: Vec<&Value> = items
        .iter()
        .filter(|(name, _)| clusters.contains(name))
        .filter_map(|(_, status)| find(status, type_))
        .collect();
    if let ([(_, _)], [only]) = (items, found.as_slice()) {
        return (*only).clone();
    }
    let latest = |field: &str| {
        let times = found.iter().filter_map(|c| c[field].as_str());
        times.max().unwrap_or_default().to_owned()
    };
    let verb = if type_ == "Failed" { "failed" } else { "succeeded" };
    Condition {
        type_: type_.to_owned(),
        status: true,
        reason: format!("{kind:?}{type_}"),
        message: format!("Job {verb} in clusters: {}", clusters.join(", ")),
        update_time: latest("lastUpdateTime"),
        transition_time: latest("lastTransitionTime"),
    }
    .to_value()
}

fn names_where<'i>(items: &[(&'i str, &Value)], type_: &str) -> Vec<&'i str> {
    let mut names: Vec<&str> =
        items.iter().filter(|(_, status)| has_condition(status, type_)).map(|(name, _)| *name).collect();
    names.sort_unstable();
    names
}

/// The hub's own Queuing is kept: last while the job waits, first otherwise.
fn with_queuing(current: &Value, mut conditions: Vec<Value>) -> Vec<Value> {
    conditions.retain(|c| c["type"] != QUEUING);
    match find(current, QUEUING) {
        Some(queuing) if is_true(queuing) => conditions.push(queuing.clone()),
        Some(queuing) => conditions.insert(0, queuing.clone()),
        None => {}
    }
    conditions
}

/// Sums per role, zeros dropped.
fn replica_statuses(items: &[(&str, &Value)]) -> Option<Value> {
    let mut roles: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for (_, status) in items {
        for (role, counts) in status["replicaStatuses"].as_object().into_iter().flatten() {
            let sums = roles.entry(role).or_default();
            for (field, n) in counts.as_object().into_iter().flatten() {
                let n = counted(n);
                if n != 0 {
                    let sum = sums.entry(field).or_default();
                    *sum = total([*sum, n]);
                }
            }
        }
    }
    (!roles.is_empty()).then(|| json!(roles))
}

/// The final conditions of a batch Job, and those that announce them. An API server lets none of them be removed.
const BATCH_ENDS: [&str; 4] = ["SuccessCriteriaMet", "Complete", "FailureTarget", "Failed"];

/// Removes the end from the status of a batch Job that may run again, because it could not be removed later.
pub fn withhold_end(kind: WorkloadKind, status: &mut Value) {
    let Some(fields) = status.as_object_mut().filter(|_| kind == WorkloadKind::BatchJob) else { return };
    fields.remove("completionTime");
    if let Some(Value::Array(conditions)) = fields.get_mut("conditions") {
        conditions.retain(|c| !BATCH_ENDS.iter().any(|end| c["type"] == *end));
        if conditions.is_empty() {
            fields.remove("conditions");
        }
    }
}

/// Times stay as first reported, and counts of ended pods only grow, over all runs: otherwise an API server refuses
/// the status.
fn batch(current: &Value, items: &[(&str, &Value)]) -> Value {
    let failed = names_where(items, "Failed");
    let complete = names_where(items, "Complete");
    let mut conditions = Vec::new();
    let ended = |announced: &str, end: &str, clusters: &[&str]| {
        let end = merged_batch(items, end, clusters);
        let mut before = end.clone();
        before["type"] = json!(announced);
        [before, end]
    };
    if !failed.is_empty() {
        conditions.extend(ended("FailureTarget", "Failed", &failed));
    } else if complete.len() == items.len() {
        conditions.extend(ended("SuccessCriteriaMet", "Complete", &complete));
    } else if let [(_, status)] = items {
        conditions = conditions_of(status).to_vec();
    }
    let mut status = Map::new();
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        let sum = total(items.iter().map(|(_, item)| number(item, field)));
        let grows = matches!(field, "succeeded" | "failed");
        let told = if grows { number(current, field) } else { 0 };
        let reported = items.iter().any(|(_, item)| item.get(field).is_some());
        if reported || told > 0 {
            status.insert(field.to_owned(), json!(sum.max(told)));
        }
    }
    let told = |field: &str| current.get(field).filter(|time| time.is_string()).cloned();
    let start = told("startTime").or_else(|| extreme_time(items, "startTime", Extreme::Earliest));
    set_some(&mut status, "startTime", start);
    if failed.is_empty() && complete.len() == items.len() {
        let end = told("completionTime").or_else(|| extreme_time(items, "completionTime", Extreme::Latest));
        set_some(&mut status, "completionTime", end);
    }
    let conditions = with_queuing(current, conditions);
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    Value::Object(status)
}

fn merged_batch(items: &[(&str, &Value)], type_: &str, clusters: &[&str]) -> Value {
    let mut condition = merged(WorkloadKind::BatchJob, items, type_, clusters);
    // batch/v1 has lastProbeTime where Kubeflow has lastUpdateTime.
    if let Some(fields) = condition.as_object_mut()
        && let Some(time) = fields.remove("lastUpdateTime")
    {
        fields.insert("lastProbeTime".to_owned(), time);
    }
    condition
}

/// A sum of counts of pods. It stays in 32 bits like each of them: the hub's API server would refuse the status.
fn total(counts: impl IntoIterator<Item = i64>) -> i64 {
    fleet_resources::sum(counts).min(i64::from(i32::MAX))
}

/// Every number in a status of Volcano is a count.
fn bound_counts(status: &mut Value) {
    match status {
        Value::Number(_) => *status = json!(counted(status)),
        Value::Array(items) => items.iter_mut().for_each(bound_counts),
        Value::Object(fields) => fields.values_mut().for_each(bound_counts),
        _ => {}
    }
}

/// Worst first: the phase of a job in several clusters is the worst of theirs.
const VOLCANO_PHASES: &[&str] = &[
    "Failed",
    "Aborted",
    "Terminated",
    "Aborting",
    "Terminating",
    "Restarting",
    "Pending",
    "Running",
    "Completing",
    "Completed",
];

/// Final phases of a job; each becomes a condition, for `kubectl wait --for=condition=Completed`.
const VOLCANO_ENDS: [&str; 4] = ["Completed", "Failed", "Aborted", "Terminated"];

fn volcano(items: &[(&str, &Value)]) -> Value {
    let mut status = volcano_sum(items);
    let phase = volcano_phase(&status).to_owned();
    let mut conditions = conditions_of(&status).to_vec();
    conditions.retain(|condition| condition["type"].is_null());
    if VOLCANO_ENDS.contains(&phase.as_str()) {
        let since = status["state"]["lastTransitionTime"].clone();
        conditions.push(json!({"type": phase, "status": "True", "lastTransitionTime": since}));
    }
    if !conditions.is_empty() {
        status["conditions"] = Value::Array(conditions);
    }
    status
}

fn volcano_sum(items: &[(&str, &Value)]) -> Value {
    if let [(_, status)] = items {
        let mut status = (*status).clone();
        bound_counts(&mut status);
        return status;
    }
    let rank = |status: &Value| {
        let phase = volcano_phase(status);
        VOLCANO_PHASES.iter().position(|known| *known == phase).unwrap_or(VOLCANO_PHASES.len())
    };
    let worst = items.iter().min_by_key(|(name, status)| (rank(status), *name));
    let mut status = Map::new();
    set_some(&mut status, "state", worst.map(|(_, item)| item["state"].clone()));
    for field in
        ["pending", "running", "succeeded", "failed", "terminating", "unknown", "minAvailable", "retryCount"]
    {
        let sum = total(items.iter().map(|(_, item)| number(item, field)));
        if sum != 0 {
            status.insert(field.to_owned(), json!(sum));
        }
    }
    let mut tasks: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for (_, item) in items {
        for (task, counts) in item["taskStatusCount"].as_object().into_iter().flatten() {
            for (phase, n) in counts["phase"].as_object().into_iter().flatten() {
                let sum = tasks.entry(task).or_default().entry(phase).or_default();
                *sum = total([*sum, counted(n)]);
            }
        }
    }
    if !tasks.is_empty() {
        let counts: BTreeMap<&str, Value> =
            tasks.iter().map(|(t, phases)| (*t, json!({"phase": phases}))).collect();
        status.insert("taskStatusCount".to_owned(), json!(counts));
    }
    Value::Object(status)
}

/// `observedGeneration` belongs to the hub and is kept: only the hub knows which of its generations the members
/// have.
fn deployment(current: &Value, items: &[(&str, &Value)]) -> Value {
    let mut status = Map::new();
    // A collision count that a controller of the hub has set must not fall.
    for field in ["observedGeneration", "collisionCount"] {
        if let Some(told) = current.get(field) {
            status.insert(field.to_owned(), told.clone());
        }
    }
    for field in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "currentReplicas",
    ] {
        let sum = total(items.iter().map(|(_, item)| number(item, field)));
        if sum != 0 || field == "replicas" {
            status.insert(field.to_owned(), json!(sum));
        }
    }
    let mut conditions: Vec<Value> =
        ["Available", "Progressing"].iter().filter_map(|type_| worst(items, type_)).collect();
    conditions.extend(refused(items, REPLICA_FAILURE));
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    Value::Object(status)
}

/// A condition that is True if it is True in every cluster; otherwise that of the first cluster in which it is not,
/// with its name.
fn worst(items: &[(&str, &Value)], type_: &str) -> Option<Value> {
    let found: Vec<(&str, &Value)> =
        items.iter().filter_map(|(name, status)| Some((*name, find(status, type_)?))).collect();
    let broken = found.iter().find(|(_, condition)| !is_true(condition));
    let (name, condition) = broken.or(found.first())?;
    let mut condition = (*condition).clone();
    if broken.is_some() && items.len() > 1 {
        let message = condition["message"].as_str().unwrap_or_default();
        condition["message"] = json!(format!("cluster {name}: {message}"));
    }
    // A condition that one cluster has not reported yet is not True for all.
    if broken.is_none() && found.len() < items.len() {
        condition["status"] = json!("False");
        condition["message"] = json!("not every cluster has reported");
    }
    Some(condition)
}

enum Extreme {
    Earliest,
    Latest,
}

/// RFC 3339 texts in UTC order as text.
fn extreme_time(items: &[(&str, &Value)], field: &str, extreme: Extreme) -> Option<Value> {
    let times = items.iter().filter_map(|(_, status)| status[field].as_str());
    let time = match extreme {
        Extreme::Earliest => times.min(),
        Extreme::Latest => times.max(),
    };
    time.map(Value::from)
}

fn object(fields: &[(&str, Value)]) -> Map<String, Value> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn set_some(status: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        status.insert(field.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(conditions: &[(&str, &str)], workers: i64) -> Value {
        let list: Vec<Value> =
            conditions.iter().map(|(t, s)| json!({"type": t, "status": s, "reason": t})).collect();
        json!({"conditions": list, "startTime": format!("2026-01-0{workers}T00:00:00Z"), "completionTime": format!("2026-01-0{workers}T01:00:00Z"),
            "replicaStatuses": {"Worker": {"active": workers, "failed": 0}}})
    }

    fn types(status: &Value) -> Vec<String> {
        conditions_of(status)
            .iter()
            .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
            .collect()
    }

    /// The conditions of the sum of several members.
    fn check(current: &Value, members: &[Value], expected: &[&str]) -> Value {
        let names = ["a", "b", "c"];
        let items: Vec<(&str, &Value)> = names.iter().copied().zip(members).collect();
        let status = aggregate(WorkloadKind::PyTorchJob, current, &items);
        assert_eq!(types(&status), expected);
        status
    }

    #[test]
    fn kubeflow_conditions_in_order() {
        let running = torch(&[("Created", "True"), ("Running", "True")], 2);
        let done = torch(&[("Created", "True"), ("Running", "False"), ("Succeeded", "True")], 1);
        let failed = torch(&[("Created", "True"), ("Running", "False"), ("Failed", "True")], 3);
        let none = Value::Null;
        let status = check(&none, &[running.clone(), done.clone()], &["Created=True", "Running=True"]);
        assert_eq!(status["replicaStatuses"], json!({"Worker": {"active": 3}}));
        assert_eq!(status["startTime"], "2026-01-01T00:00:00Z");
        assert!(status.get("completionTime").is_none());
        let status =
            check(&none, &[done.clone(), done.clone()], &["Created=True", "Running=False", "Succeeded=True"]);
        assert_eq!(status["completionTime"], "2026-01-01T01:00:00Z");
        let status = check(
            &none,
            &[running, failed.clone(), failed],
            &["Created=True", "Running=False", "Failed=True"],
        );
        assert_eq!(conditions_of(&status)[2]["message"], "Job failed in clusters: b, c");
        check(
            &json!({"conditions": [{"type": "Queuing", "status": "False"}]}),
            &[done],
            &["Queuing=False", "Created=True", "Running=False", "Succeeded=True"],
        );
    }

    #[test]
    fn why_pods_cannot_be_created_is_told_until_they_are() {
        let said = |type_: &str| json!({"conditions": [{"type": type_, "status": "True", "message": "Error creating: no such class"}]});
        let (none, refused) = (Value::Null, said(FAILED_CREATE));
        let told = [refused.clone()];
        let status = check(&none, &told, &["FailedCreate=True"]);
        assert_eq!(conditions_of(&status)[0]["message"], "Error creating: no such class");
        let created = torch(&[("Created", "True")], 1);
        let status = check(&created, &told, &["Created=True", "FailedCreate=True"]);
        assert_eq!(check(&status, &told, &["Created=True", "FailedCreate=True"]), status);
        let running = torch(&[("Created", "True"), ("Running", "True")], 2);
        let failed = torch(&[("Created", "True"), ("Failed", "True")], 2);
        let both = [running.clone(), refused.clone()];
        let status = check(&none, &both, &["FailedCreate=True", "Created=True", "Running=True"]);
        assert_eq!(conditions_of(&status)[0]["message"], "cluster b: Error creating: no such class");
        check(&status, &[running], &["Created=True", "Running=True"]);
        check(&status, &[failed, refused], &["Created=True", "Failed=True"]);
        let deployment = aggregate(WorkloadKind::Deployment, &none, &[("a", &said(REPLICA_FAILURE))]);
        assert_eq!(types(&deployment), ["ReplicaFailure=True"]);
    }

    /// What a hostile member reports of its own jobs.
    #[test]
    fn counts_of_a_member_stay_in_32_bits() {
        const MOST: i64 = i32::MAX as i64;
        let kinds = [
            (WorkloadKind::Deployment, "readyReplicas"),
            (WorkloadKind::BatchJob, "active"),
            (WorkloadKind::BatchJob, "succeeded"),
            (WorkloadKind::VolcanoJob, "running"),
        ];
        for (kind, field) in kinds {
            for (lie, expected) in [(i64::MAX, MOST), (MOST, MOST), (i64::MIN, 2), (-1, 2)] {
                let (liar, honest) = (json!({field: lie, "state": {}}), json!({field: 2, "state": {}}));
                let told = json!({field: i64::MAX});
                for current in [&Value::Null, &told] {
                    let status = aggregate(kind, current, &[("a", &liar), ("b", &honest), ("c", &liar)]);
                    let grows = field == "succeeded" && !current.is_null();
                    assert_eq!(status[field], if grows { MOST } else { expected }, "{kind:?} {lie} {status}");
                }
                let alone = aggregate(kind, &Value::Null, &[("a", &liar)]);
                assert_eq!(alone[field].as_i64().unwrap_or(0), lie.clamp(0, MOST), "{kind:?} {alone}");
            }
        }
        let torch = json!({"replicaStatuses": {"Worker": {"active": i64::MAX, "failed": -3}}});
        let status = aggregate(WorkloadKind::PyTorchJob, &Value::Null, &[("a", &torch), ("b", &torch)]);
        assert_eq!(status["replicaStatuses"], json!({"Worker": {"active": MOST}}));
        let tasks = json!({"taskStatusCount": {"t": {"phase": {"Running": i64::MAX}}}});
        let status = aggregate(WorkloadKind::VolcanoJob, &Value::Null, &[("a", &tasks), ("b", &tasks)]);
        assert_eq!(status["taskStatusCount"], json!({"t": {"phase": {"Running": MOST}}}));
        let status = aggregate(WorkloadKind::VolcanoJob, &Value::Null, &[("a", &tasks)]);
        assert_eq!(status["taskStatusCount"], json!({"t": {"phase": {"Running": MOST}}}));
    }

    #[test]
    fn nothing_reported_changes_nothing() {
        let current = json!({"conditions": [{"type": "Queuing", "status": "True"}]});
        assert_eq!(aggregate(WorkloadKind::TFJob, &current, &[]), current);
        assert_eq!(aggregate(WorkloadKind::TFJob, &current, &[("a", &json!({}))]), current);
    }

    #[test]
    fn the_end_of_a_batch_job_is_one_an_api_server_takes() {
        let at = |hour: u32| format!("2026-01-01T0{hour}:00:00Z");
        let member = |types: &[&str], failed: i64| {
            let list: Vec<Value> =
                types.iter().map(|t| json!({"type": t, "status": "True", "reason": "R"})).collect();
            json!({"conditions": list, "startTime": at(2), "completionTime": at(3), "failed": failed, "succeeded": 1})
        };
        let of =
            |current: &Value, items: &[(&str, &Value)]| aggregate(WorkloadKind::BatchJob, current, items);
        let done = member(&["SuccessCriteriaMet", "Complete"], 0);
        let status = of(&Value::Null, &[("a", &done)]);
        assert_eq!(types(&status), ["SuccessCriteriaMet=True", "Complete=True"]);
        assert_eq!((&status["startTime"], &status["completionTime"]), (&json!(at(2)), &json!(at(3))));
        let broken = member(&["FailureTarget", "Failed"], 2);
        let status = of(&Value::Null, &[("a", &done), ("b", &broken)]);
        assert_eq!(types(&status), ["FailureTarget=True", "Failed=True"]);
        assert!(status.get("completionTime").is_none(), "{status}");
        // A run that failed and is repeated elsewhere: nothing reported is taken back.
        let mut repeated = status;
        withhold_end(WorkloadKind::BatchJob, &mut repeated);
        assert_eq!(types(&repeated), Vec::<String>::new());
        repeated["startTime"] = json!(at(1));
        let again = of(&repeated, &[("c", &json!({"startTime": at(4), "active": 1}))]);
        assert_eq!(
            (&again["startTime"], &again["failed"], &again["active"]),
            (&json!(at(1)), &json!(2), &json!(1))
        );
        let mut other = json!({"conditions": [{"type": "Failed"}]});
        withhold_end(WorkloadKind::PyTorchJob, &mut other);
        assert_eq!(other["conditions"][0]["type"], "Failed");
    }

    #[test]
    fn a_count_of_collisions_does_not_fall() {
        let current = json!({"collisionCount": 3});
        let status = aggregate(WorkloadKind::Deployment, &current, &[("a", &json!({"replicas": 2}))]);
        assert_eq!((&status["collisionCount"], &status["replicas"]), (&json!(3), &json!(2)));
    }

    #[test]
    fn a_deployment_is_available_where_it_is_in_every_cluster() {
        let member = |available: &str| {
            json!({"replicas": 1, "observedGeneration": 7, "conditions": [
                {"type": "Available", "status": available, "reason": "r", "message": "m"}]})
        };
        let (up, down) = (member("True"), member("False"));
        let current = json!({"observedGeneration": 2});
        let of = |items: &[(&str, &Value)]| aggregate(WorkloadKind::Deployment, &current, items);
        let all = of(&[("a", &up), ("b", &up)]);
        assert_eq!(
            (&all["conditions"][0]["status"], &all["observedGeneration"]),
            (&json!("True"), &json!(2))
        );
        let some = of(&[("a", &up), ("b", &down)]);
        assert_eq!(some["conditions"][0]["status"], "False");
        assert_eq!(some["conditions"][0]["message"], "cluster b: m");
        let silent = of(&[("a", &up), ("b", &json!({"replicas": 1}))]);
        assert_eq!(silent["conditions"][0]["status"], "False");
    }

    #[test]
    fn a_volcano_job_that_ended_can_be_waited_for() {
        let ended = json!({"state": {"phase": "Completed", "lastTransitionTime": "t"},
            "conditions": [{"status": "Completed"}]});
        let status = aggregate(WorkloadKind::VolcanoJob, &Value::Null, &[("a", &ended)]);
        assert_eq!(
            status["conditions"][1],
            json!({"type": "Completed", "status": "True", "lastTransitionTime": "t"})
        );
        assert_eq!(aggregate(WorkloadKind::VolcanoJob, &Value::Null, &[("a", &status)]), status);
        let runs = json!({"state": {"phase": "Running"}});
        assert_eq!(aggregate(WorkloadKind::VolcanoJob, &Value::Null, &[("a", &runs)]), runs);
    }

    #[test]
    fn sums_of_the_other_kinds() {
        let a = json!({"replicas": 2, "readyReplicas": 1});
        let b = json!({"replicas": 3, "readyReplicas": 3});
        let check = |kind, a: &Value, b: &Value, expected: Value| {
            assert_eq!(aggregate(kind, &Value::Null, &[("a", a), ("b", b)]), expected);
        };
        check(WorkloadKind::Deployment, &a, &b, json!({"replicas": 5, "readyReplicas": 4}));
        check(
            WorkloadKind::VolcanoJob,
            &json!({"state": {"phase": "Running"}, "running": 2}),
            &json!({"state": {"phase": "Pending"}, "pending": 1}),
            json!({"state": {"phase": "Pending"}, "running": 2, "pending": 1}),
        );
        check(
            WorkloadKind::BatchJob,
            &json!({"active": 1, "startTime": "2026-01-02T00:00:00Z"}),
            &json!({"succeeded": 1, "startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]}),
            json!({"active": 1, "succeeded": 1, "startTime": "2026-01-01T00:00:00Z"}),
        );
    }
}

//! The members' reports on a binding's object, aggregated into the statuses of the hub.

use fleet_api::Work;
use fleet_policies::{nesting, reason::Reason, workload};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ending::between_runs,
    statuses::{health_text, set_conditions},
    step::Step,
};
use crate::{
    binding::{BindingEntry, cluster_namespace},
    events, manifests,
    status::{cut, find_condition, rfc3339},
    world::{Object, World},
};

pub(super) struct Item<'a> {
    pub cluster: &'a str,
    pub work: &'a Work,
    /// Status of the object, under the binding's own epoch.
    pub status: Option<&'a Value>,
    /// Why the report was refused.
    pub refused: Option<String>,
}

/// The members' reports on the binding's current run. Other reports are refused, with one event.
pub(super) fn collect<'a>(
    world: &'a World,
    entry: &'a BindingEntry,
    step: &mut Step,
    now: Timestamp,
) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    for target in &entry.object.spec.clusters {
        let key = (cluster_namespace(&target.name), entry.work_name());
        let Some(work) = world.works.get(&key) else { continue };
        let current = work.spec.epoch == entry.object.spec.epoch;
        let mut status = manifests::reported_status(work).filter(|_| current);
        if let Some(why) = foreign(entry, work) {
            status = None;
            // As it will be read again.
            let message =
                cut(&format!("the report of cluster {} was refused: {why}", target.name)).to_owned();
            let told = entry.object.status.as_ref().is_some_and(|status| {
                let items = status.aggregated_status.iter();
                items.into_iter().any(|item| item.applied_message.as_deref() == Some(message.as_str()))
            });
            if !told {
                step.writes.push(events::warning(
                    &entry.subject(),
                    "fleet-controller",
                    Reason::StatusRefused,
                    &message,
                    now,
                ));
            }
            items.push(Item { cluster: &target.name, work, status, refused: Some(message) });
            continue;
        }
        items.push(Item { cluster: &target.name, work, status, refused: None });
    }
    items
}

/// Largest status of one object that a member reports: the binding carries it, too, with all that the hub records of the job.
const STATUS_BYTES_MAX: usize = 512 * 1024;

/// Why a Work's report does not belong to its binding, if so. The hub wrote the spec; a report is refused if
/// a member changed the spec or reports another object.
fn foreign(entry: &BindingEntry, work: &Work) -> Option<String> {
    let binding = &work.spec.binding;
    if binding.uid != entry.uid() || binding.name != entry.name() || binding.namespace != entry.namespace() {
        let found = format!("{}/{} ({})", binding.namespace, binding.name, binding.uid);
        return Some(format!("spec.binding of the Work: found {found}; allowed: this binding"));
    }
    if work.spec.epoch > entry.object.spec.epoch {
        return Some(format!(
            "spec.epoch of the Work: found {}; allowed: up to {}",
            work.spec.epoch, entry.object.spec.epoch
        ));
    }
    let reported = work.status.as_ref()?.manifest_statuses.iter().find(|m| m.identifier.ordinal == 0)?;
    if let Err(found) = nesting::check(&reported.status) {
        return Some(format!("status.manifestStatuses[0].status: {found}"));
    }
    let bytes = nesting::bytes(&reported.status);
    if bytes > STATUS_BYTES_MAX {
        return Some(format!(
            "status.manifestStatuses[0].status: found {bytes} bytes of JSON; allowed: {STATUS_BYTES_MAX}"
        ));
    }
    let (identifier, reference) = (&reported.identifier, &entry.object.spec.resource);
    let elsewhere = !identifier.namespace.is_empty() && identifier.namespace != reference.namespace;
    if identifier.kind != reference.kind || identifier.name != reference.name || elsewhere {
        return Some(format!(
            "status.manifestStatuses[0].identifier: found {} {}/{}; allowed: {} {}/{}",
            identifier.kind,
            identifier.namespace,
            identifier.name,
            reference.kind,
            reference.namespace,
            reference.name
        ));
    }
    None
}

/// Writes the members' reports into the binding's status.
pub(super) fn report(entry: &BindingEntry, items: &[Item], status: &mut Value, now: Timestamp) {
    // A member that has not answered yet is left out.
    let answered = |item: &&Item| {
        item.refused.is_some()
            || item.work.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
    };
    let listed: Vec<Value> = items
        .iter()
        .filter(answered)
        .map(|item| {
            let conditions = item.work.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let applied = find_condition(conditions, "Applied");
            let mut value = json!({
                "clusterName": item.cluster,
                "applied": applied.is_some_and(|condition| condition.status == "True"),
            });
            if let Some(refused) = applied.filter(|condition| condition.status != "True") {
                value["appliedMessage"] = json!(cut(&format!("{}: {}", refused.reason, refused.message)));
            }
            if let Some(refused) = &item.refused {
                value["appliedMessage"] = json!(refused);
            }
            if let Some(reported) = item.status {
                value["status"] = reported.clone();
                value["health"] = json!(health_text(workload::health(entry.workload, reported)));
            }
            value
        })
        .collect();
    let all = listed.len() == items.len()
        && !listed.is_empty()
        && listed.iter().all(|item| item["applied"] == true);
    if listed.is_empty() {
        status.as_object_mut().map(|status| status.remove("aggregatedStatus"));
    } else {
        status["aggregatedStatus"] = Value::Array(listed);
    }
    let failed: Vec<String> = items
        .iter()
        .filter_map(|item| {
            let status = item.work.status.as_ref()?;
            let applied = find_condition(&status.conditions, "Applied").filter(|c| c.status != "True")?;
            Some(format!("{}: {}: {}", item.cluster, applied.reason, applied.message))
        })
        .collect();
    let told = match (all, failed.is_empty()) {
        (true, _) => Some((
            "FullyApplied",
            "True",
            Reason::SyncWorkSucceed,
            "every cluster has the object".to_string(),
        )),
        (false, false) => Some(("FullyApplied", "False", Reason::SyncWorkFailed, failed.join("; "))),
        (false, true) => None,
    };
    if let Some((kind, value, reason, message)) = told {
        set_conditions(entry, status, &[(kind, value, reason, &message)], now);
    }
}

pub(super) fn aggregated_object_status(
    entry: &BindingEntry,
    object: &Object,
    items: &[Item],
    now: Timestamp,
) -> Value {
    let current = &object.value["status"];
    let reported: Vec<(&str, &Value)> =
        items.iter().filter_map(|item| Some((item.cluster, item.status?))).collect();
    let mut status = workload::aggregate(entry.workload, current, &reported);
    end_after_start(&mut status);
    if reported.is_empty() {
        between_runs(entry, &mut status, now);
    }
    if entry.workload.is_kubeflow() {
        let time = rfc3339(now);
        workload::created_condition(&mut status, &entry.kind.kind, &entry.object.spec.resource.name, &time);
        workload::queuing_condition(&mut status, None, &time);
    }
    status
}

/// A member of an earlier run may have reported a start that lies ahead. An API server refuses an end before it, and a start
/// that changes.
fn end_after_start(status: &mut Value) {
    let (Some(start), Some(end)) = (status["startTime"].as_str(), status["completionTime"].as_str()) else {
        return;
    };
    let is_earlier = match (end.parse::<Timestamp>(), start.parse::<Timestamp>()) {
        (Ok(end), Ok(start)) => end < start,
        // The last hours of the year 9999 are no time here.
        _ => end < start,
    };
    if is_earlier {
        status["completionTime"] = start.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_ends_before_its_start() {
        for (start, shown) in [
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("2026-01-01T00:00:00-12:00", "2026-01-01T00:00:00-12:00"),
            ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ] {
            let mut status = json!({"startTime": start, "completionTime": "2026-01-01T01:00:00Z"});
            end_after_start(&mut status);
            assert_eq!((&status["startTime"], &status["completionTime"]), (&json!(start), &json!(shown)));
        }
        let mut none = json!({"startTime": "2026-01-01T00:00:00Z"});
        end_after_start(&mut none);
        assert_eq!(none, json!({"startTime": "2026-01-01T00:00:00Z"}));
    }
}

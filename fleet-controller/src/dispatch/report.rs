//! What the members report of a binding's object, gathered into the statuses of the hub.

use fleet_api::Work;
use fleet_policies::{reason::Reason, workload};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ending::between_runs,
    statuses::{health_text, set_conditions},
};
use crate::{
    binding::{BindingEntry, cluster_namespace},
    manifests,
    status::{find_condition, rfc3339},
    world::{Object, World},
};

pub(super) struct Item<'a> {
    pub cluster: &'a str,
    pub work: &'a Work,
    /// Of the object, under the binding's own epoch.
    pub status: Option<&'a Value>,
}

pub(super) fn collect<'a>(world: &'a World, entry: &'a BindingEntry) -> Vec<Item<'a>> {
    let targets = entry.object.spec.clusters.iter().filter_map(|target| {
        let work = world.works.get(&(cluster_namespace(&target.name), entry.work_name()))?;
        let current = work.spec.epoch == entry.object.spec.epoch;
        let status = manifests::reported_status(work).filter(|_| current);
        Some(Item { cluster: &target.name, work, status })
    });
    targets.collect()
}

/// What each member reports, into the binding's status.
pub(super) fn report(entry: &BindingEntry, items: &[Item], status: &mut Value, now: Timestamp) {
    let listed: Vec<Value> = items
        .iter()
        .map(|item| {
            let conditions = item.work.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let applied = find_condition(conditions, "Applied");
            let mut value = json!({
                "clusterName": item.cluster,
                "applied": applied.is_some_and(|condition| condition.status == "True"),
            });
            if let Some(refused) = applied.filter(|condition| condition.status != "True") {
                value["appliedMessage"] = json!(format!("{}: {}", refused.reason, refused.message));
            }
            if let Some(reported) = item.status {
                value["status"] = reported.clone();
                value["health"] = json!(health_text(workload::health(entry.workload, reported)));
            }
            value
        })
        .collect();
    let all = !listed.is_empty() && listed.iter().all(|item| item["applied"] == true);
    status["aggregatedStatus"] = Value::Array(listed);
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

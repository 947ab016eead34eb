//! The PodGroup of a Job: its minimum number of pods, and their total requests.

use std::collections::BTreeMap;

use fleet_policies::workload;
use fleet_resources::{Resources, quantity};
use serde_json::{Map, Value, json};

use super::{task::Task, view::View};
use crate::plan::pod::owner_reference;

/// The group's name contains the job's uid, so a later job of the same name gets another group.
pub(super) fn name(view: &View<'_>) -> String {
    format!("{}-{}", view.job.name(), view.job.uid())
}

/// The desired group, without its status.
pub(super) fn desired(view: &View<'_>) -> Value {
    let (job, spec) = (view.job, &view.job.spec);
    let mut group = Map::new();
    group.insert("minMember".into(), view.min_available.into());
    group.insert("queue".into(), queue(spec).into());
    let members: BTreeMap<&str, i64> =
        view.tasks.iter().map(|task| (task.name.as_str(), task.min_available)).collect();
    group.insert("minTaskMember".into(), json!(members));
    let resources = min_resources(view);
    if !resources.is_empty() {
        group.insert("minResources".into(), json!(resources));
    }
    for field in ["priorityClassName", "networkTopology"] {
        if !spec[field].is_null() {
            group.insert(field.into(), spec[field].clone());
        }
    }
    let sub_groups: Vec<Value> = view.tasks.iter().filter(|t| t.partition_size > 0).map(sub_group).collect();
    if !sub_groups.is_empty() {
        group.insert("subGroupPolicy".into(), sub_groups.into());
    }
    let mut labels = job.metadata.labels.clone().unwrap_or_default();
    // The member manages the group; only objects that Fleet applied have its mark.
    labels.retain(|name, _| !name.starts_with("fleet.dev/"));
    // The job's scheduling settings: tasks that share nodes, how long it may wait, whether it may be
    // preempted.
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| name.split('/').next().is_some_and(|owner| owner.ends_with("volcano.sh")));
    let mut group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name(view),
            "namespace": job.namespace(),
            "labels": labels,
            "ownerReferences": [owner_reference(job, view.input.resource)],
        },
        "spec": group,
    });
    if !annotations.is_empty() {
        group["metadata"]["annotations"] = json!(annotations);
    }
    group
}

pub(crate) fn queue(spec: &Value) -> &str {
    spec["queue"].as_str().filter(|queue| !queue.is_empty()).unwrap_or("default")
}

fn sub_group(task: &Task<'_>) -> Value {
    let policy = &task.spec["partitionPolicy"];
    let mut group = json!({
        "name": task.name,
        "subGroupSize": task.partition_size,
        "minSubGroups": policy["minPartitions"].as_i64().unwrap_or(0),
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": task.name}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
    });
    if !policy["networkTopology"].is_null() {
        group["networkTopology"] = policy["networkTopology"].clone();
    }
    group
}

/// Requests of the pods that must start, with the keys of a ResourceQuota.
///
/// If the job's minimum is below the sum of the tasks' minimums, pods are counted task by task, high priority
/// first; otherwise each task's minimum, then remaining replicas up to the job's minimum.
fn min_resources(view: &View<'_>) -> BTreeMap<String, String> {
    let class = |task: &Task<'_>| {
        let of_pod = task.template["spec"]["priorityClassName"].as_str();
        of_pod.or(view.job.spec["priorityClassName"].as_str()).map_or(0, view.input.priority_of)
    };
    let mut tasks: Vec<&Task<'_>> = view.tasks.iter().collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(class(task)));
    let minimums = fleet_resources::sum(tasks.iter().map(|task| task.min_available));
    let mut taken: Vec<(&Task<'_>, i64)> = Vec::new();
    let mut left = view.min_available;
    let mut take = |task, most: i64| {
        let count = most.min(left).max(0);
        left = left.saturating_sub(count);
        taken.push((task, count));
    };
    if view.min_available < minimums {
        tasks.iter().for_each(|task| take(task, task.replicas));
    } else {
        tasks.iter().for_each(|task| take(task, task.min_available));
        tasks.iter().for_each(|task| take(task, task.replicas.saturating_sub(task.min_available)));
    }
    let (mut requests, mut limits, mut pods) = (Resources::new(), Resources::new(), 0_i64);
    for (task, count) in taken {
        requests.add(&workload::template_requests(task.template).unwrap_or_default().scaled(count));
        limits.add(&limits_of(&task.template["spec"]).scaled(count));
        pods = pods.saturating_add(count);
    }
    let mut found = BTreeMap::new();
    if pods > 0 {
        found.insert("pods".to_owned(), pods.to_string());
        found.insert("count/pods".to_owned(), pods.to_string());
    }
    for (name, text) in quantities(&requests) {
        found.insert(format!("requests.{name}"), text.clone());
        // For extended resources a quota knows only requests.
        if !name.contains('/') {
            found.insert(name, text);
        }
    }
    for (name, text) in quantities(&limits).into_iter().filter(|(name, _)| !name.contains('/')) {
        found.insert(format!("limits.{name}"), text);
    }
    found
}

fn quantities(amounts: &Resources) -> BTreeMap<String, String> {
    amounts
        .iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(name, amount)| (name.as_str().to_owned(), quantity::format(name.as_str(), amount)))
        .collect()
}

/// Limits of one pod: the sum over its containers.
fn limits_of(spec: &Value) -> Resources {
    let mut sum = Resources::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        let amounts = container["resources"]["limits"].as_object().into_iter().flatten();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let pairs: Vec<(&String, String)> = amounts.map(|(name, value)| (name, text(value))).collect();
        let parsed = Resources::parse(pairs.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        // An invalid quantity is refused when the pod is created.
        sum.add(&parsed.unwrap_or_default());
    }
    sum
}

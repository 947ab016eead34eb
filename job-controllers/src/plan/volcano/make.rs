//! Creates the pods of a Job and the claims of its volumes.

use fleet_api::names::COMPONENT_LABEL;
use serde_json::{Map, Value, json};

use super::{
    group, plugins,
    task::Task,
    view::{VERSION, View},
};
use crate::plan::pod::{from_template, list_mut, mark_gang, mount, owner_reference, set_label};

const DEFAULT_SCHEDULER: &str = "volcano";
/// Annotations of a job that its pods inherit.
const INHERITED: [&str; 5] = [
    "volcano.sh/preemptable",
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
];
const INHERITED_LABELS: [&str; 2] = ["volcano.sh/preemptable", "volcano.sh/cooldown-time"];

pub(super) fn pod(view: &View<'_>, task: &Task<'_>, index: i64) -> Value {
    let (job, spec) = (view.job, &view.job.spec);
    let mut pod = from_template(job, view.input.resource, &task.pod_name(job, index), task.template);
    let (number, queue) = (index.to_string(), group::queue(spec));
    for (name, value) in [
        ("volcano.sh/task-index", number.as_str()),
        ("volcano.sh/task-spec", &task.name),
        ("volcano.sh/job-name", job.name()),
        ("volcano.sh/job-namespace", job.namespace()),
        ("volcano.sh/queue-name", queue),
        (COMPONENT_LABEL, &task.name),
    ] {
        set_label(&mut pod, name, value);
    }
    if task.partition_size > 0 {
        set_label(&mut pod, "volcano.sh/partition-id", &task.partition_of(index).to_string());
    }
    for name in INHERITED_LABELS {
        if let Some(value) = job.metadata.labels.as_ref().and_then(|labels| labels.get(name)) {
            set_label(&mut pod, name, value);
        }
    }
    mark_gang(&mut pod, job, &task.name, view.min_available);
    let group = group::name(view);
    let annotations = &mut pod["metadata"]["annotations"];
    for (name, value) in [
        ("volcano.sh/task-index", number.clone()),
        ("volcano.sh/task-spec", task.name.clone()),
        ("volcano.sh/job-name", job.name().to_owned()),
        ("volcano.sh/queue-name", queue.to_owned()),
        (VERSION, view.version.to_string()),
        ("volcano.sh/template-uid", format!("{}-{}", job.name(), task.name)),
        ("volcano.sh/job-retry-count", view.retries.to_string()),
        ("scheduling.k8s.io/group-name", group),
    ] {
        annotations[name] = value.into();
    }
    if let Some(policy) = task.spec["topologyPolicy"].as_str().filter(|policy| !policy.is_empty()) {
        annotations["volcano.sh/numa-topology-policy"] = policy.into();
    }
    for name in INHERITED {
        if let Some(value) = job.annotation(name) {
            annotations[name] = value.into();
        }
    }
    fill(&mut pod["spec"], "schedulerName", spec["schedulerName"].as_str().unwrap_or(DEFAULT_SCHEDULER));
    if let Some(class) = spec["priorityClassName"].as_str() {
        fill(&mut pod["spec"], "priorityClassName", class);
    }
    mount_claims(&mut pod, view);
    plugins::furnish(&mut pod, view, task, index);
    pod
}

/// Sets a field that the template does not set.
fn fill(spec: &mut Value, field: &str, value: &str) {
    if spec[field].as_str().is_none_or(str::is_empty) {
        spec[field] = value.into();
    }
}

/// A volume of the job: its mount path, name and claim.
struct JobVolume<'a> {
    path: &'a str,
    volume: String,
    claim: String,
    /// The claim to create; `None`: the user created it.
    wanted: Option<&'a Value>,
}

/// The job's volumes; a claim named twice is mounted once. Names that Volcano generates at random are derived
/// from the job's uid, so a repeated plan uses the same claim.
fn volumes<'a>(view: &View<'a>) -> Vec<JobVolume<'a>> {
    let uid: String = view.job.uid().chars().filter(char::is_ascii_alphanumeric).take(11).collect();
    let mut found: Vec<JobVolume<'a>> = Vec::new();
    for (i, volume) in view.job.spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let suffix = format!("{uid}{i}");
        let named = volume["volumeClaimName"].as_str().filter(|name| !name.is_empty());
        let claim = named.map_or_else(|| format!("{}-pvc-{suffix}", view.job.name()), str::to_owned);
        let Some(path) = volume["mountPath"].as_str() else { continue };
        if found.iter().any(|known| known.claim == claim) {
            continue;
        }
        let wanted = Some(&volume["volumeClaim"]).filter(|wanted| wanted.is_object());
        found.push(JobVolume { path, volume: format!("{}-{suffix}", view.job.name()), claim, wanted });
    }
    found
}

pub(super) fn claims(view: &View<'_>) -> Vec<Value> {
    let wanted = volumes(view).into_iter().filter_map(|volume| Some((volume.claim, volume.wanted?)));
    wanted
        .map(|(name, spec)| {
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": name,
                    "namespace": view.job.namespace(),
                    "ownerReferences": [owner_reference(view.job, view.input.resource)],
                },
                "spec": spec,
            })
        })
        .collect()
}

fn mount_claims(pod: &mut Value, view: &View<'_>) {
    for volume in volumes(view) {
        list_mut(&mut pod["spec"], "volumes")
            .push(json!({"name": volume.volume, "persistentVolumeClaim": {"claimName": volume.claim}}));
        mount(pod, &json!({"name": volume.volume, "mountPath": volume.path}));
    }
}

/// Objects of the job other than pods, as its status lists them.
pub(super) fn controlled_resources(view: &View<'_>) -> Value {
    let mut found = Map::new();
    for name in plugins::names(view) {
        found.insert(format!("plugin-{name}"), name.into());
    }
    for volume in volumes(view) {
        found.insert(format!("volume-pvc-{}", volume.claim), volume.claim.into());
    }
    found.into()
}

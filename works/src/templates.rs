//! Marks on the pod templates of a job with reserved places. They identify the pods as the job's, whoever
//! creates them, so that they take its places and are bound as one gang.
//!
//! Pure. Marks are added when the job is created; an existing job keeps its marks ([`as_made`]), because
//! templates of most kinds are immutable.

use std::{collections::BTreeSet, time::Duration};

use fleet_api::{
    names::{
        COMPONENT_LABEL, GANG_ANNOTATION, GANG_SIZE_ANNOTATION, INCREMENTAL_ANNOTATION, JOB_ANNOTATION,
        ON_CELLS_ANNOTATION, PLACES_GATE, RESERVATION_ANNOTATION,
    },
    policy::PodScheduling,
    work::WorkSpec,
};
use fleet_policies::{WorkloadKind, workload::components};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::{desired::POD_REPLACEMENT, marks::kind_of, pod_templates};
use fleet_agent_ground::JobController;

/// The scheduler of pods without a scheduler name.
const MEMBERS_OWN: &str = "default-scheduler";
/// The scheduler of Volcano Jobs without a scheduler name.
const VOLCANO: &str = "volcano";
/// Name of the agent's scheduler in pod templates, if it serves that name.
const FLEET: &str = "fleet";
/// Annotations that [`made`] adds to templates.
const MARKS: [&str; 5] =
    [GANG_ANNOTATION, GANG_SIZE_ANNOTATION, RESERVATION_ANNOTATION, JOB_ANNOTATION, ON_CELLS_ANNOTATION];

/// The agent's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served<'a> {
    /// Scheduler names whose pods it binds.
    pub scheduler_names: &'a BTreeSet<String>,
    /// Kinds whose pods it creates itself.
    pub controllers: &'a BTreeSet<JobController>,
}

/// The job to create: `wanted` with marks on its pod templates.
pub(crate) fn made(spec: &WorkSpec, mut wanted: Value, served: Served<'_>) -> Value {
    let kind = kind_of(&wanted);
    let scheduling = spec.pod_scheduling.unwrap_or_default();
    let makes_pods = makes_pods(kind, served.controllers);
    let job = job_named(&wanted);
    // The operator makes a batch Job for the launcher. Without this the pod would be nobody's, wherever it is bound.
    if kind == WorkloadKind::MPIJob && !makes_pods {
        for (_, template) in templates(kind, &mut wanted) {
            set(template, "annotations", JOB_ANNOTATION, &job);
        }
    }
    let Some(reservation) = spec.reservation.as_deref().filter(|_| kind.is_job()) else { return wanted };
    if scheduling == PodScheduling::AsWritten {
        return wanted;
    }
    let Some(size) = gang_size(kind, &wanted) else { return wanted };
    // Objects of two kinds may have the same name, but their bindings may not.
    let gang = spec.binding.name.as_str();
    let on_cells = wanted["metadata"]["annotations"][ON_CELLS_ANNOTATION] == "true";
    let of_job = own_scheduler(kind, &wanted);
    for (component, template) in templates(kind, &mut wanted) {
        let spec = &template["spec"];
        let named = spec["schedulerName"].as_str().filter(|name| !name.is_empty()).unwrap_or(&of_job);
        let is_served = served.scheduler_names.contains(named);
        match scheduling {
            PodScheduling::Gates if !is_served => gate(template),
            _ if is_served => {}
            // Without a scheduler name the agent binds nothing here.
            _ => {
                let scheduler = substitute(served.scheduler_names);
                if let Some((scheduler, spec)) = scheduler.zip(template["spec"].as_object_mut()) {
                    spec.insert("schedulerName".to_owned(), scheduler.into());
                }
            }
        }
        // The agent's own controllers mark the pods that they create.
        if makes_pods && is_served {
            continue;
        }
        set(template, "labels", COMPONENT_LABEL, &component);
        set(template, "annotations", GANG_ANNOTATION, gang);
        set(template, "annotations", GANG_SIZE_ANNOTATION, &size.to_string());
        set(template, "annotations", RESERVATION_ANNOTATION, reservation);
        set(template, "annotations", JOB_ANNOTATION, &job);
        if on_cells {
            set(template, "annotations", ON_CELLS_ANNOTATION, "true");
        }
    }
    wanted
}

/// The job as the annotation of its pods names it.
fn job_named(job: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&job["metadata"]["name"]);
    format!("{}/{}/{name}", text(&job["apiVersion"]), text(&job["kind"]))
}

/// Pods of a Deployment and the like are deleted by the member's own controllers, with the grace period of their
/// template: it gets no longer one than this member allows. Pods of jobs are deleted by the agent.
pub(crate) fn within(mut wanted: Value, longest: Duration) -> Value {
    let longest = longest.as_secs().max(1);
    if !kind_of(&wanted).is_job()
        && let Some(grace) = wanted.pointer_mut("/spec/template/spec/terminationGracePeriodSeconds")
        && grace.as_f64().is_some_and(|own| own > longest as f64)
    {
        *grace = longest.into();
    }
    wanted
}

/// The form to which an existing job is compared: `wanted` with the scheduler and the marks of `live`'s
/// templates.
pub(crate) fn as_made(mut wanted: Value, live: &DynamicObject) -> Value {
    let kind = kind_of(&wanted);
    if !kind.is_job() {
        return wanted;
    }
    let mut live = json!({"spec": live.data["spec"]});
    if kind == WorkloadKind::BatchJob && wanted["spec"].is_object() {
        // A server may not let it change, or not know it; jobs of earlier releases keep theirs.
        wanted["spec"][POD_REPLACEMENT] = live["spec"][POD_REPLACEMENT].clone();
    }
    let standing = templates(kind, &mut live);
    for (component, template) in templates(kind, &mut wanted) {
        let Some((_, stands)) = standing.iter().find(|(name, _)| *name == component) else { continue };
        let is_marked = stands["metadata"]["annotations"][RESERVATION_ANNOTATION].is_string();
        for name in MARKS {
            if let Some(value) = stands["metadata"]["annotations"][name].as_str() {
                set(template, "annotations", name, value);
            }
        }
        if is_marked && let Some(value) = stands["metadata"]["labels"][COMPONENT_LABEL].as_str() {
            set(template, "labels", COMPONENT_LABEL, value);
        }
        for field in ["schedulerName", "schedulingGates"] {
            if !stands["spec"][field].is_null() && template["spec"].is_object() {
                template["spec"][field] = stands["spec"][field].clone();
            }
        }
    }
    wanted
}

/// Every pod template that is an object, with its component.
fn templates(kind: WorkloadKind, job: &mut Value) -> Vec<(String, &mut Value)> {
    let all = pod_templates::of(kind, job).into_iter().filter(|template| template.value.is_object());
    all.map(|template| (template.component, template.value)).collect()
}

/// How many pods must exist before any is bound. A launcher that is created after the workers run cannot be
/// waited for.
fn gang_size(kind: WorkloadKind, job: &Value) -> Option<i64> {
    let components = components(kind, job).ok()?;
    if job["metadata"]["annotations"][INCREMENTAL_ANNOTATION] == "true" {
        return Some(1);
    }
    let waits =
        kind == WorkloadKind::MPIJob && job["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady";
    let counted = components.iter().filter(|component| !(waits && component.name == "Launcher"));
    let all: i64 = counted.map(|component| component.min_available.unwrap_or(component.replicas)).sum();
    let least = (kind == WorkloadKind::VolcanoJob).then(|| job["spec"]["minAvailable"].as_i64()).flatten();
    Some(least.filter(|least| *least > 0).unwrap_or(all).max(1))
}

/// The scheduler of pods whose template has no scheduler name.
fn own_scheduler(kind: WorkloadKind, job: &Value) -> String {
    if kind != WorkloadKind::VolcanoJob {
        return MEMBERS_OWN.to_owned();
    }
    let named = job["spec"]["schedulerName"].as_str().filter(|name| !name.is_empty());
    named.unwrap_or(VOLCANO).to_owned()
}

/// The name by which the agent's scheduler takes over a pod.
fn substitute(served: &BTreeSet<String>) -> Option<&str> {
    let named = served.iter().map(String::as_str);
    // Volcano expects PodGroups, which these pods do not have.
    named.clone().find(|name| *name == FLEET).or_else(|| named.clone().find(|name| *name != VOLCANO))
}

fn makes_pods(kind: WorkloadKind, controllers: &BTreeSet<JobController>) -> bool {
    let controller = match kind {
        WorkloadKind::PyTorchJob => JobController::PyTorchJob,
        WorkloadKind::TFJob => JobController::TFJob,
        WorkloadKind::MPIJob => JobController::MPIJob,
        WorkloadKind::VolcanoJob => JobController::VolcanoJob,
        WorkloadKind::BatchJob => JobController::BatchJob,
        _ => return false,
    };
    controllers.contains(&controller)
}

fn gate(template: &mut Value) {
    if !template["spec"].is_object() {
        return;
    }
    let gates = &mut template["spec"]["schedulingGates"];
    let ours = json!({"name": PLACES_GATE});
    match gates.as_array_mut() {
        Some(gates) if gates.contains(&ours) => {}
        Some(gates) => gates.push(ours),
        None => *gates = json!([ours]),
    }
}

fn set(template: &mut Value, map: &str, name: &str, value: &str) {
    let metadata = &mut template["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let map = &mut metadata[map];
    if !map.is_object() {
        *map = json!({});
    }
    map[name] = value.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn spec(scheduling: Option<PodScheduling>) -> WorkSpec {
        let mut spec =
            WorkSpec { reservation: Some("r".to_owned()), pod_scheduling: scheduling, ..WorkSpec::default() };
        spec.binding.name = "a-pytorchjob".to_owned();
        spec
    }

    fn pytorch(worker: Value) -> Value {
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": {"spec": {"containers": []}}},
                "Worker": {"replicas": 3, "template": {"spec": worker}}}}})
    }

    fn run(
        scheduling: Option<PodScheduling>,
        served: &[&str],
        controllers: &[JobController],
        job: Value,
    ) -> Value {
        let (scheduler_names, controllers) = (names(served), controllers.iter().copied().collect());
        made(&spec(scheduling), job, Served { scheduler_names: &scheduler_names, controllers: &controllers })
    }

    #[test]
    fn templates_name_the_agents_scheduler_the_gang_and_the_hold() {
        let job = run(None, &["fleet", "volcano"], &[], pytorch(json!({"containers": []})));
        for (role, component) in [("Master", "master"), ("Worker", "worker")] {
            let template = &job["spec"]["pytorchReplicaSpecs"][role]["template"];
            assert_eq!(template["spec"]["schedulerName"], "fleet");
            assert_eq!(template["metadata"]["labels"], json!({COMPONENT_LABEL: component}));
            assert_eq!(
                template["metadata"]["annotations"],
                json!({GANG_ANNOTATION: "a-pytorchjob", GANG_SIZE_ANNOTATION: "4", RESERVATION_ANNOTATION: "r",
                    JOB_ANNOTATION: "kubeflow.org/v1/PyTorchJob/a"})
            );
        }
    }

    #[test]
    fn pods_of_a_job_on_cells_say_so() {
        let mut job = pytorch(json!({"containers": []}));
        job["metadata"]["annotations"] = json!({ON_CELLS_ANNOTATION: "true"});
        let made = run(None, &["fleet"], &[], job.clone());
        for role in ["Master", "Worker"] {
            let template = &made["spec"]["pytorchReplicaSpecs"][role]["template"];
            assert_eq!(template["metadata"]["annotations"][ON_CELLS_ANNOTATION], "true");
        }
        let live: DynamicObject = serde_json::from_value(made.clone()).unwrap();
        assert_eq!(as_made(job, &live)["spec"], made["spec"]);
    }

    #[test]
    fn a_job_without_places_and_one_that_stays_as_written_is_not_touched() {
        let job = pytorch(json!({"containers": []}));
        assert_eq!(run(Some(PodScheduling::AsWritten), &["fleet"], &[], job.clone()), job);
        let (served, none) = (names(&["fleet"]), BTreeSet::new());
        let unreserved = WorkSpec::default();
        let served = Served { scheduler_names: &served, controllers: &none };
        assert_eq!(made(&unreserved, job.clone(), served), job);
        // What the agent makes and binds itself needs no marks.
        assert_eq!(run(None, &["default-scheduler"], &[JobController::PyTorchJob], job.clone()), job);
    }

    /// Otherwise it would run on when the cluster is cut off, and when its run is removed.
    #[test]
    fn the_pods_of_an_mpijob_name_their_job_however_they_are_scheduled() {
        let template = json!({"spec": {"containers": []}});
        let mpi = json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"},
            "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": template},
                "Worker": {"replicas": 2, "template": template}}}});
        let named = |job: &Value| {
            let roles = &job["spec"]["mpiReplicaSpecs"];
            ["Launcher", "Worker"].map(|role| {
                roles[role]["template"]["metadata"]["annotations"][JOB_ANNOTATION].as_str().map(str::to_owned)
            })
        };
        let name = Some("kubeflow.org/v2beta1/MPIJob/m".to_owned());
        for scheduling in [None, Some(PodScheduling::AsWritten), Some(PodScheduling::Gates)] {
            let job = run(scheduling, &["fleet"], &[], mpi.clone());
            assert_eq!(named(&job), [name.clone(), name.clone()], "{scheduling:?}");
            let live: DynamicObject = serde_json::from_value(job.clone()).unwrap();
            assert_eq!(as_made(mpi.clone(), &live)["spec"], job["spec"], "{scheduling:?}");
        }
        let (served, none) = (names(&["fleet"]), BTreeSet::new());
        let served = Served { scheduler_names: &served, controllers: &none };
        assert_eq!(named(&made(&WorkSpec::default(), mpi.clone(), served)), [name.clone(), name]);
        let own = run(Some(PodScheduling::AsWritten), &["fleet"], &[JobController::MPIJob], mpi);
        assert_eq!(named(&own), [None, None], "the agent's pods are the job's own");
    }

    #[test]
    fn gates_are_for_pods_that_another_scheduler_binds() {
        let gates = Some(PodScheduling::Gates);
        let worker = |job: &Value| job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].clone();
        let job = run(gates, &["fleet"], &[], pytorch(json!({"schedulingGates": [{"name": "other"}]})));
        assert_eq!(worker(&job), json!({"schedulingGates": [{"name": "other"}, {"name": PLACES_GATE}]}));
        let job = run(gates, &["fleet"], &[], pytorch(json!({"schedulerName": "fleet"})));
        assert_eq!(worker(&job), json!({"schedulerName": "fleet"}));
    }

    #[test]
    fn sizes_and_components_of_each_kind() {
        let check = |job: Value, size: &str, components: &[&str]| {
            let mut job = run(None, &["fleet"], &[], job);
            let kind = kind_of(&job);
            let found = templates(kind, &mut job);
            let sizes: Vec<&str> = found
                .iter()
                .filter_map(|(_, t)| t["metadata"]["annotations"][GANG_SIZE_ANNOTATION].as_str())
                .collect();
            let labels: Vec<&str> =
                found.iter().filter_map(|(_, t)| t["metadata"]["labels"][COMPONENT_LABEL].as_str()).collect();
            assert_eq!(
                (sizes.iter().all(|one| *one == size), labels),
                (true, components.to_vec()),
                "{sizes:?}"
            );
        };
        let template = json!({"spec": {"containers": []}});
        let mpi = |policy: &str| {
            json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"},
                "spec": {"launcherCreationPolicy": policy, "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "template": template}, "Worker": {"replicas": 2, "template": template}}}})
        };
        check(mpi("AtStartup"), "3", &["Launcher", "Worker"]);
        check(mpi("WaitForWorkersReady"), "2", &["Launcher", "Worker"]);
        let batch = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b"},
            "spec": {"parallelism": 4, "completions": 2, "template": template}});
        check(batch.clone(), "2", &["job"]);
        let mut one_by_one = batch;
        one_by_one["metadata"]["annotations"] = json!({INCREMENTAL_ANNOTATION: "true"});
        check(one_by_one, "1", &["job"]);
        let volcano = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"},
            "spec": {"minAvailable": 2, "tasks": [{"replicas": 3, "template": template},
                {"name": "w", "replicas": 1, "template": template}]}});
        check(volcano, "2", &["default0", "w"]);
    }

    #[test]
    fn a_batch_job_that_stands_keeps_when_its_pods_are_replaced() {
        let batch = |policy: Value| {
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b"},
                "spec": {"podReplacementPolicy": policy, "template": {"spec": {"containers": []}}}})
        };
        for stands in [json!("TerminatingOrFailed"), json!("Failed"), Value::Null] {
            let live: DynamicObject = serde_json::from_value(batch(stands.clone())).unwrap();
            assert_eq!(as_made(batch(json!("Failed")), &live)["spec"]["podReplacementPolicy"], stands);
        }
    }

    #[test]
    fn a_job_that_stands_keeps_the_templates_it_was_made_with() {
        let check = |made: Value| {
            let live: DynamicObject = serde_json::from_value(made.clone()).unwrap();
            assert_eq!(as_made(pytorch(json!({"containers": []})), &live)["spec"], made["spec"]);
        };
        check(run(None, &["fleet"], &[], pytorch(json!({"containers": []}))));
        check(run(Some(PodScheduling::Gates), &["fleet"], &[], pytorch(json!({"containers": []}))));
        check(pytorch(json!({"containers": []})));
    }
}

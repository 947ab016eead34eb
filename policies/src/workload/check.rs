//! Validation of jobs: well-formed fields that make a job which can never run.

use serde_json::Value;

use super::{WorkloadError, WorkloadKind, check_templates, components, replica_specs_field};
use crate::{
    pod_security,
    spec::{Placement, shortened},
};

const RESTART_POLICIES: &str = "Always, OnFailure, Never, ExitCode";
const CLEAN_POD_POLICIES: &str = "All, Running, None";

impl WorkloadKind {
    /// Roles of a Kubeflow job in its operator's spelling; empty for other kinds.
    pub fn roles(self) -> &'static [&'static str] {
        match self {
            Self::PyTorchJob => &["Master", "Worker"],
            Self::TFJob => &["PS", "Worker", "Chief", "Master", "Evaluator"],
            Self::MPIJob => &["Launcher", "Worker"],
            _ => &[],
        }
    }

    fn roles_text(self) -> &'static str {
        match self {
            Self::PyTorchJob => "Master, Worker",
            Self::TFJob => "PS, Worker, Chief, Master, Evaluator",
            Self::MPIJob => "Launcher, Worker",
            _ => "none",
        }
    }
}

/// The first field that keeps the job from ever running, or asks for more than whoever places its pods can compare.
///
/// # Errors
/// Names the field, what was found and what is allowed.
pub fn check(kind: WorkloadKind, object: &Value) -> Result<(), WorkloadError> {
    let spec = &object["spec"];
    let pods = fleet_resources::sum(components(kind, object)?.iter().map(|component| component.replicas));
    check_templates(object)?;
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => kubeflow(kind, object, pods),
        WorkloadKind::VolcanoJob => volcano(spec, pods),
        WorkloadKind::BatchJob => containers(&spec["template"], "spec"),
        WorkloadKind::Deployment | WorkloadKind::Other => Ok(()),
    }
}

/// Whether a policy may place the object as it asks to. Only of a job does a member hold the places of a gang, stop the pods
/// when it is cut off, and wait for their end. Objects without pods may be selected beside their job.
///
/// # Errors
/// Names the field of the policy, what was found and what is allowed.
pub fn check_placement(
    kind: WorkloadKind,
    object: &Value,
    placement: &Placement,
) -> Result<(), WorkloadError> {
    if kind.is_job() || !placement.is_gang() || !pod_security::has_pods(object) {
        return Ok(());
    }
    let name = object["kind"].as_str().unwrap_or_default();
    Err(wrong(
        "placement.replicaScheduling.customSchedulingType of its policy",
        format!("Gang, for a {}", shortened(name)),
        "Gang for a PyTorchJob, TFJob, MPIJob, Job of batch or Job of Volcano; none for other objects with pods",
    ))
}

fn wrong(path: impl Into<String>, found: impl Into<String>, allowed: &'static str) -> WorkloadError {
    WorkloadError::Field { path: path.into(), found: found.into(), allowed }
}

fn kubeflow(kind: WorkloadKind, object: &Value, pods: i64) -> Result<(), WorkloadError> {
    let spec = &object["spec"];
    let field = format!("spec.{}", replica_specs_field(kind));
    let empty = serde_json::Map::new();
    let roles = spec[replica_specs_field(kind)].as_object().unwrap_or(&empty);
    for (role, replicas) in roles {
        let path = format!("{field}.{role}");
        if !kind.roles().contains(&role.as_str()) {
            return Err(wrong(field, format!("the role {role:?}"), kind.roles_text()));
        }
        let restart = &replicas["restartPolicy"];
        one_of(restart, &format!("{path}.restartPolicy"), RESTART_POLICIES)?;
        containers(&replicas["template"], &path)?;
    }
    if roles.is_empty() {
        return Err(wrong(field, "no role", kind.roles_text()));
    }
    if kind == WorkloadKind::MPIJob && !roles.contains_key("Launcher") {
        return Err(wrong(field, "no Launcher", "Launcher, and workers where it asks for them"));
    }
    if kind == WorkloadKind::MPIJob {
        mpi_name(object, roles)?;
    }
    if pods == 0 {
        return Err(wrong(field, "0 replicas in all", "1 or more"));
    }
    let run = &spec["runPolicy"];
    one_of(&run["cleanPodPolicy"], "spec.runPolicy.cleanPodPolicy", CLEAN_POD_POLICIES)?;
    for name in ["backoffLimit", "ttlSecondsAfterFinished"] {
        in_32_bits(&run[name], &format!("spec.runPolicy.{name}"))?;
    }
    for name in ["backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"] {
        not_negative(&run[name], &format!("spec.runPolicy.{name}"))?;
    }
    Ok(())
}

/// The operator uses the names of workers as host names and labels, and refuses a job whose last one is none.
fn mpi_name(object: &Value, roles: &serde_json::Map<String, Value>) -> Result<(), WorkloadError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let workers = roles.get("Worker").map_or(0, |worker| worker["replicas"].as_i64().unwrap_or(1));
    let longest = format!("{name}-worker-{}", workers.saturating_sub(1).max(0));
    if longest.len() <= 63 && !name.contains('.') {
        return Ok(());
    }
    let allowed = "a name without dots, so short that NAME-worker-N has at most 63 characters";
    Err(wrong("metadata.name", format!("{name:?}"), allowed))
}

fn volcano(spec: &Value, pods: i64) -> Result<(), WorkloadError> {
    let tasks = spec["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    if tasks.is_empty() {
        return Err(wrong("spec.tasks", "no task", "at least one task"));
    }
    for (i, task) in tasks.iter().enumerate() {
        containers(&task["template"], &format!("spec.tasks[{i}]"))?;
        let replicas = task["replicas"].as_i64().unwrap_or(1);
        if let Some(min) = task["minAvailable"].as_i64().filter(|min| *min > replicas) {
            return Err(wrong(
                format!("spec.tasks[{i}].minAvailable"),
                format!("{min} of {replicas} replicas"),
                "at most its replicas",
            ));
        }
    }
    for name in ["maxRetry", "minSuccess", "ttlSecondsAfterFinished"] {
        in_32_bits(&spec[name], &format!("spec.{name}"))?;
    }
    in_32_bits(&spec["minAvailable"], "spec.minAvailable")?;
    if let Some(min) = spec["minAvailable"].as_i64().filter(|min| *min > pods) {
        return Err(wrong(
            "spec.minAvailable",
            format!("{min} of {pods} replicas"),
            "at most the replicas of all tasks",
        ));
    }
    Ok(())
}

fn containers(template: &Value, path: &str) -> Result<(), WorkloadError> {
    if template["spec"]["containers"].as_array().is_some_and(|containers| !containers.is_empty()) {
        return Ok(());
    }
    Err(wrong(format!("{path}.template.spec.containers"), "no container", "at least one container"))
}

fn one_of(value: &Value, path: &str, words: &'static str) -> Result<(), WorkloadError> {
    match value {
        Value::Null => Ok(()),
        Value::String(word) if word.is_empty() || words.split(", ").any(|known| known == word) => Ok(()),
        other => Err(wrong(path, other.to_string(), words)),
    }
}

/// The controllers of members read these numbers in 32 bits, and one that cannot be read stops all jobs of its kind.
fn in_32_bits(value: &Value, path: &str) -> Result<(), WorkloadError> {
    let Value::Number(number) = value else { return Ok(()) };
    match number.as_i64().map(i32::try_from) {
        Some(Ok(_)) => Ok(()),
        _ => Err(wrong(path, number.to_string(), "a whole number from -2147483648 to 2147483647")),
    }
}

fn not_negative(value: &Value, path: &str) -> Result<(), WorkloadError> {
    match value.as_i64() {
        Some(number) if number < 0 => Err(wrong(path, number.to_string(), "0 or more")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(replicas: Value) -> Value {
        json!({"replicas": replicas, "template": {"spec": {"containers": [{"name": "c"}]}}})
    }

    fn refused(kind: WorkloadKind, spec: Value, expected: &[&str]) {
        let found = check(kind, &json!({"spec": spec})).map_err(|error| error.to_string());
        match expected {
            [] => assert_eq!(found, Ok(()), "{spec}"),
            parts => {
                let text = found.expect_err("it cannot run");
                assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            }
        }
    }

    #[test]
    fn jobs_that_cannot_run() {
        let torch = |roles: Value| json!({"pytorchReplicaSpecs": roles});
        let kind = WorkloadKind::PyTorchJob;
        refused(kind, torch(json!({"Master": role(json!(1)), "Worker": role(json!(3))})), &[]);
        refused(
            kind,
            torch(json!({"Mastre": role(json!(1))})),
            &["spec.pytorchReplicaSpecs", "\"Mastre\"", "Master, Worker"],
        );
        refused(kind, torch(json!({"Master": role(json!(-1))})), &["Master.replicas", "-1", "0 or more"]);
        refused(kind, torch(json!({"Master": role(json!(0))})), &["0 replicas in all"]);
        refused(kind, torch(json!({})), &["no role"]);
        refused(kind, json!({}), &["no role", "Master, Worker"]);
        refused(kind, torch(json!({"Worker": {"replicas": 1}})), &["Worker.template.spec.containers"]);
        let mut restart = role(json!(1));
        restart["restartPolicy"] = json!("Sometimes");
        refused(kind, torch(json!({"Master": restart})), &["Master.restartPolicy", "Sometimes", "OnFailure"]);
        let mut asks = role(json!(1));
        asks["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "abc"}});
        refused(
            kind,
            torch(json!({"Master": asks})),
            &["Master.template.spec.containers[0].resources.requests", "\"abc\""],
        );
        let run =
            json!({"pytorchReplicaSpecs": {"Master": role(json!(1))}, "runPolicy": {"backoffLimit": -2}});
        refused(kind, run, &["spec.runPolicy.backoffLimit", "-2"]);
        let run = json!({"pytorchReplicaSpecs": {"Master": role(json!(1))},
            "runPolicy": {"ttlSecondsAfterFinished": i64::MAX}});
        refused(kind, run, &["spec.runPolicy.ttlSecondsAfterFinished", "9223372036854775807", "2147483647"]);
        refused(
            WorkloadKind::TFJob,
            json!({"tfReplicaSpecs": {"PS": role(json!(1)), "worker": role(json!(1))}}),
            &["\"worker\"", "PS, Worker"],
        );
        refused(
            WorkloadKind::MPIJob,
            json!({"mpiReplicaSpecs": {"Worker": role(json!(2))}}),
            &["no Launcher"],
        );
        let named = |name: &str, workers: i64| {
            let roles = json!({"Launcher": role(json!(1)), "Worker": role(json!(workers))});
            let job = json!({"metadata": {"name": name}, "spec": {"mpiReplicaSpecs": roles}});
            check(WorkloadKind::MPIJob, &job).map_err(|error| error.to_string())
        };
        assert_eq!((named("1a", 2), named(&"z".repeat(54), 10)), (Ok(()), Ok(())));
        for (name, workers) in [("a.b", 1), (&*"z".repeat(54), 11), (&*"z".repeat(63), 1)] {
            assert!(named(name, workers).is_err_and(|text| text.contains("metadata.name")), "{name}");
        }
        let task = |replicas: i64, min: i64| {
            json!({"name": "t", "replicas": replicas, "minAvailable": min,
                "template": {"spec": {"containers": [{"name": "c"}]}}})
        };
        refused(WorkloadKind::VolcanoJob, json!({"tasks": [task(2, 2)], "minAvailable": 2}), &[]);
        refused(WorkloadKind::VolcanoJob, json!({"tasks": []}), &["spec.tasks", "no task"]);
        refused(
            WorkloadKind::VolcanoJob,
            json!({"tasks": [task(2, 3)]}),
            &["spec.tasks[0].minAvailable", "3 of 2"],
        );
        refused(
            WorkloadKind::VolcanoJob,
            json!({"tasks": [task(2, 2)], "minAvailable": 5}),
            &["spec.minAvailable", "5 of 2"],
        );
        refused(
            WorkloadKind::VolcanoJob,
            json!({"tasks": [task(2, 2)], "minAvailable": i64::MIN}),
            &["spec.minAvailable", "-9223372036854775808"],
        );
        refused(
            WorkloadKind::BatchJob,
            json!({"template": {"spec": {}}}),
            &["spec.template.spec.containers"],
        );
        refused(WorkloadKind::Deployment, json!({"replicas": 2}), &[]);
    }

    #[test]
    fn only_jobs_are_gangs() {
        let placement: Placement = serde_json::from_value(json!({"replicaScheduling": {
            "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}}))
        .expect("a placement");
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let cron = json!({"jobTemplate": {"spec": {"template": template}}});
        let torch = json!({"pytorchReplicaSpecs": {"Worker": {"template": template}}});
        for (api_version, kind, spec, is_allowed) in [
            ("apps/v1", "Deployment", json!({"template": template}), false),
            ("apps/v1", "StatefulSet", json!({"template": template}), false),
            ("batch/v1", "CronJob", cron, false),
            ("v1", "Pod", template["spec"].clone(), false),
            ("example.com/v1", "Set", json!({"template": template}), false),
            ("batch/v1", "Job", json!({"template": template}), true),
            ("kubeflow.org/v1", "PyTorchJob", torch, true),
            ("v1", "ConfigMap", Value::Null, true),
        ] {
            let object = json!({"apiVersion": api_version, "kind": kind, "spec": spec});
            let workload = WorkloadKind::of(api_version, kind);
            let found = check_placement(workload, &object, &placement);
            assert_eq!(found.is_ok(), is_allowed, "{kind}");
            assert_eq!(check_placement(workload, &object, &Placement::default()), Ok(()), "{kind}");
            if let Err(error) = found {
                let text = error.to_string();
                let words = ["customSchedulingType of its policy", "Gang, for a", kind, "PyTorchJob"];
                assert!(words.iter().all(|word| text.contains(word)), "{text}");
            }
        }
    }
}

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
mod tests;

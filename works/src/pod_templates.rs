//! Paths of the pod templates of each kind of job. Pure.

use fleet_policies::WorkloadKind;
use serde_json::Value;

pub(crate) struct PodTemplate<'v> {
    /// Its component, as reservations name it.
    pub component: String,
    /// Such as `spec.tasks[0].template`.
    pub path: String,
    /// May be any JSON value.
    pub value: &'v mut Value,
}

/// Every pod template of the job.
pub(crate) fn of(kind: WorkloadKind, job: &mut Value) -> Vec<PodTemplate<'_>> {
    let Some(spec) = job.get_mut("spec").filter(|spec| spec.is_object()) else { return Vec::new() };
    let roles = match kind {
        WorkloadKind::PyTorchJob => "pytorchReplicaSpecs",
        WorkloadKind::TFJob => "tfReplicaSpecs",
        WorkloadKind::MPIJob => "mpiReplicaSpecs",
        WorkloadKind::VolcanoJob => {
            let tasks = spec["tasks"].as_array_mut().into_iter().flatten().enumerate();
            return tasks
                .filter_map(|(at, task)| {
                    let name = task["name"].as_str().filter(|name| !name.is_empty());
                    let component = name.map_or_else(|| format!("default{at}"), str::to_owned);
                    let value = task.get_mut("template")?;
                    Some(PodTemplate { component, path: format!("spec.tasks[{at}].template"), value })
                })
                .collect();
        }
        WorkloadKind::BatchJob => {
            let value = spec.get_mut("template");
            let template =
                |value| PodTemplate { component: "job".to_owned(), path: "spec.template".to_owned(), value };
            return value.map(template).into_iter().collect();
        }
        _ => return Vec::new(),
    };
    let name = |role: &str| if kind == WorkloadKind::MPIJob { role.to_owned() } else { role.to_lowercase() };
    let specs = spec[roles].as_object_mut().into_iter().flatten();
    specs
        .filter_map(|(role, spec)| {
            let (component, path) = (name(role), format!("spec.{roles}.{role}.template"));
            Some(PodTemplate { component, path, value: spec.get_mut("template")? })
        })
        .collect()
}

//! PyTorchJob: the environment of `torch.distributed` and `torchrun`, as the training operator sets it.

use kube::discovery::ApiResource;
use serde_json::Value;

use super::{
    count,
    pod::{containers_mut, declare_port, declared_port, has_env, headless_service, set_env, set_label},
    replicas::{Framework, JOB_ROLE_LABEL, Progress, REPLICA_INDEX_LABEL, Role, View},
};

const CONTAINER: &str = "pytorch";
const PORT_NAME: &str = "pytorchjob-port";
const PORT: i64 = 23456;

/// The job runs when its master runs and has succeeded when its master has; without a master all
/// workers decide.
pub(super) fn progress(view: &View<'_>) -> Progress {
    if let Some((master, tally)) = view.role("Master") {
        return match tally {
            tally if tally.succeeded >= master.replicas => Progress::Succeeded,
            tally if tally.active > 0 => Progress::Running,
            _ => Progress::Starting,
        };
    }
    let Some((worker, tally)) = view.role("Worker") else { return Progress::Starting };
    let elastic = view.job.spec["elasticPolicy"].is_object();
    if tally.succeeded >= worker.replicas || (elastic && tally.succeeded > 0) {
        Progress::Succeeded
    } else if tally.active > 0 && tally.active + tally.succeeded >= worker.replicas {
        Progress::Running
    } else {
        Progress::Starting
    }
}

pub(super) fn furnish(pod: &mut Value, view: &View<'_>, role: &Role<'_>, index: i64) {
    if role.name == "Master" {
        set_label(pod, JOB_ROLE_LABEL, "master");
    }
    let masters = view.role("Master").map_or(0, |(master, _)| master.replicas);
    let rank = if role.name == "Worker" { masters + index } else { index };
    let per_node = match &view.job.spec["nprocPerNode"] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "auto".to_owned(),
    };
    // `auto`, `cpu` and `gpu` are resolved by torchrun; the operator counts one process then.
    let world = view.total().saturating_mul(per_node.parse::<i64>().unwrap_or(1));
    let (address, port) = leader(view);
    let elastic = &view.job.spec["elasticPolicy"];
    for container in containers_mut(pod) {
        if !has_env(container, "PYTHONUNBUFFERED") {
            set_env(container, "PYTHONUNBUFFERED", "1");
        }
        if masters > 0 || !elastic.is_object() {
            set_env(container, "MASTER_PORT", &port.to_string());
            set_env(container, "PET_MASTER_PORT", &port.to_string());
            set_env(container, "MASTER_ADDR", &address);
            set_env(container, "PET_MASTER_ADDR", &address);
            set_env(container, "WORLD_SIZE", &world.to_string());
            set_env(container, "RANK", &rank.to_string());
            set_env(container, "PET_NODE_RANK", &rank.to_string());
        }
        if elastic.is_object() {
            set_elastic(container, view, &address, port);
        } else {
            set_env(container, "PET_NNODES", &view.total().to_string());
        }
        let per_node = match elastic["nProcPerNode"].as_i64() {
            Some(number) => number.to_string(),
            None => per_node.clone(),
        };
        set_env(container, "PET_NPROC_PER_NODE", &per_node);
    }
    declare_port(pod, CONTAINER, PORT_NAME, PORT);
}

/// The service by which the others find the pod of rank 0.
pub(super) fn support(resource: &ApiResource, view: &View<'_>) -> Vec<Value> {
    let Some(role) = view.roles.first() else { return Vec::new() };
    let mut labels = role.labels(view.job, Framework::PyTorch);
    labels[REPLICA_INDEX_LABEL] = "0".into();
    let name = role.pod_name(view.job, 0);
    let (_, port) = leader(view);
    vec![headless_service(view.job, resource, &name, &labels, Some((PORT_NAME, port)))]
}

/// Name and port of the pod of rank 0.
fn leader(view: &View<'_>) -> (String, i64) {
    let Some(role) = view.roles.first() else { return (String::new(), PORT) };
    (role.pod_name(view.job, 0), declared_port(role.template, CONTAINER, PORT_NAME, PORT))
}

fn set_elastic(container: &mut Value, view: &View<'_>, address: &str, port: i64) {
    let elastic = &view.job.spec["elasticPolicy"];
    let total = view.total();
    let nodes =
        format!("{}:{}", count(&elastic["minReplicas"], total), count(&elastic["maxReplicas"], total));
    set_env(container, "PET_NNODES", &nodes);
    let host = elastic["rdzvHost"].as_str().unwrap_or(address);
    let port = elastic["rdzvPort"].as_i64().unwrap_or(port);
    set_env(container, "PET_RDZV_ENDPOINT", &format!("{host}:{port}"));
    if elastic["standalone"] == true {
        set_env(container, "PET_STANDALONE", "");
    }
    let settings: Vec<String> = elastic["rdzvConf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| Some(format!("{}={}", one["key"].as_str()?, one["value"].as_str()?)))
        .collect();
    if !settings.is_empty() {
        set_env(container, "PET_RDZV_CONF", &settings.join(","));
    }
    if let Some(backend) = elastic["rdzvBackend"].as_str() {
        set_env(container, "PET_RDZV_BACKEND", backend);
    }
    if let Some(id) = elastic["rdzvId"].as_str() {
        set_env(container, "PET_RDZV_ID", id);
    }
    if let Some(restarts) = elastic["maxRestarts"].as_i64() {
        set_env(container, "PET_MAX_RESTARTS", &restarts.to_string());
    }
}

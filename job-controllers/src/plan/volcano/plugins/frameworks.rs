//! pytorch, tensorflow, mpi and hcclrank: how the processes of a framework find each other.

use serde_json::{Map, Value, json};

use super::tools::{Flags, for_all_containers, open_port, task};
use crate::plan::pod::{list_mut, set_env};
use crate::plan::volcano::{task::Task, view::View};

const PYTORCH_PORT: i64 = 23456;
const TENSORFLOW_PORT: i64 = 2222;
const MPI_PORT: i64 = 22;

pub(super) fn pytorch(pod: &mut Value, view: &View<'_>, of: &Task<'_>, index: i64, flags: &Flags<'_>) {
    let worker = flags.text("worker", "worker");
    let Some(master) = task(view, flags.text("master", "master")) else { return };
    let port = flags.port("port", PYTORCH_PORT);
    let rank = match () {
        () if of.name == master.name => Some(index),
        () if of.name == worker => Some(index + 1),
        () => None,
    };
    open_port(pod, "pytorchjob-port", port);
    let (host, subdomain) = master.host(view.job, 0);
    let address = format!("{host}.{subdomain}");
    let world = master.replicas + task(view, worker).map_or(0, |task| task.replicas);
    for_all_containers(pod, |container| {
        set_env(container, "MASTER_ADDR", &address);
        set_env(container, "MASTER_PORT", &port.to_string());
        if let Some(rank) = rank {
            set_env(container, "WORLD_SIZE", &world.to_string());
            set_env(container, "RANK", &rank.to_string());
        }
    });
    if flags.flag("wait-master-enabled", false) && of.name != master.name {
        let limit = flags.text("wait-master-timeout", "300");
        let wait = format!(
            "for i in $(seq {limit}); do nc -z {address} {port} && exit 0; sleep 1; done; \
             echo 'the master did not answer within {limit} s'; exit 1"
        );
        let image = flags.text("wait-master-image", "busybox:1.36.1");
        let waiter = json!({"name": "wait-for-master", "image": image, "command": ["sh", "-c", wait]});
        list_mut(&mut pod["spec"], "initContainers").push(waiter);
    }
}

pub(super) fn tensorflow(pod: &mut Value, view: &View<'_>, of: &Task<'_>, index: i64, flags: &Flags<'_>) {
    // A single process needs no cluster specification.
    if view.tasks.len() == 1 && of.replicas == 1 {
        return;
    }
    let port = flags.port("port", TENSORFLOW_PORT);
    let mut kind = None;
    let mut cluster: Vec<(&str, Vec<String>)> = Vec::new();
    for role in ["ps", "worker", "chief", "evaluator"] {
        let Some(task) = task(view, flags.text(role, role)) else { continue };
        if task.name == of.name {
            kind = Some(role);
        }
        let hosts = task.hosts(view.job).into_iter().map(|host| format!("{host}:{port}")).collect();
        cluster.push((role, hosts));
    }
    let Some(kind) = kind else { return };
    // Written by hand: users of Volcano rely on the order of the roles.
    let cluster: Vec<String> =
        cluster.iter().map(|(role, hosts)| format!("{}:{}", json!(role), json!(hosts))).collect();
    let config = format!(
        "{{\"cluster\":{{{}}},\"task\":{{\"type\":{},\"index\":{index}}}}}",
        cluster.join(","),
        json!(kind)
    );
    for_all_containers(pod, |container| set_env(container, "TF_CONFIG", &config));
}

pub(super) fn mpi(pod: &mut Value, view: &View<'_>, of: &Task<'_>, flags: &Flags<'_>) {
    open_port(pod, "mpijob-port", flags.port("port", MPI_PORT));
    if of.name != flags.text("master", "master") {
        return;
    }
    let Some(worker) = task(view, flags.text("worker", "worker")) else { return };
    let hosts = worker.hosts(view.job).join(",");
    for_all_containers(pod, |container| set_env(container, "MPI_HOST", &hosts));
}

/// Rank of a pod for collective communication: its RANK variable, or else derived from task and index.
pub(super) fn hcclrank(pod: &mut Value, view: &View<'_>, of: &Task<'_>, index: i64, flags: &Flags<'_>) {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut variables = containers.flat_map(|c| c["env"].as_array().into_iter().flatten());
    let given = variables.find(|entry| entry["name"] == "RANK").and_then(|entry| entry["value"].as_str());
    let rank = match given {
        Some(rank) => Some(rank.to_owned()),
        None if of.name == flags.text("master", "master") => Some(index.to_string()),
        None if of.name == flags.text("worker", "worker") => {
            let masters = task(view, flags.text("master", "master")).map_or(0, |task| task.replicas);
            Some((masters + index).to_string())
        }
        None => None,
    };
    if let Some(rank) = rank {
        if !pod["metadata"]["annotations"].is_object() {
            pod["metadata"]["annotations"] = Map::new().into();
        }
        pod["metadata"]["annotations"]["hccl/rankIndex"] = rank.into();
    }
}

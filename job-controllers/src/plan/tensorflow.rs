//! TFJob: the cluster specification in `TF_CONFIG`, one service per replica.

use std::collections::BTreeMap;

use kube::discovery::ApiResource;
use serde_json::{Value, json};

use super::{
    pod::{containers_mut, declare_port, declared_port, headless_service, set_env, set_label},
    replicas::{Framework, JOB_ROLE_LABEL, Progress, REPLICA_INDEX_LABEL, Role, View},
};

const CONTAINER: &str = "tensorflow";
const PORT_NAME: &str = "tfjob-port";
const PORT: i64 = 2222;

/// The chief (or master) decides; without one, worker 0, or with the success policy `AllWorkers` all
/// workers.
pub(super) fn progress(view: &View<'_>) -> Progress {
    for name in ["Chief", "Master"] {
        if let Some((chief, tally)) = view.role(name) {
            return match tally {
                tally if tally.succeeded >= chief.replicas => Progress::Succeeded,
                tally if tally.active > 0 => Progress::Running,
                _ => Progress::Starting,
            };
        }
    }
    let Some((worker, tally)) = view.role("Worker") else {
        let active = view.tallies.iter().any(|tally| tally.active > 0);
        return if active { Progress::Running } else { Progress::Starting };
    };
    let first = view.pods.get(&worker.pod_name(view.job, 0)).is_some_and(|pod| pod.is_succeeded());
    let all = view.job.spec["successPolicy"] == "AllWorkers";
    if tally.succeeded >= worker.replicas || (first && !all) {
        Progress::Succeeded
    } else if tally.active > 0 {
        Progress::Running
    } else {
        Progress::Starting
    }
}

pub(super) fn furnish(pod: &mut Value, view: &View<'_>, role: &Role<'_>, index: i64) {
    let leads = match role.name {
        "Chief" | "Master" => true,
        "Worker" => index == 0 && view.role("Chief").or(view.role("Master")).is_none(),
        _ => false,
    };
    if leads {
        set_label(pod, JOB_ROLE_LABEL, "master");
    }
    // A job of one pod needs no cluster specification.
    if view.total() > 1 {
        let config = json!({
            "cluster": cluster(view),
            "task": {"type": role.lower, "index": index},
            "environment": "cloud",
        })
        .to_string();
        for container in containers_mut(pod) {
            set_env(container, "TF_CONFIG", &config);
        }
    }
    declare_port(pod, CONTAINER, PORT_NAME, PORT);
}

pub(super) fn support(resource: &ApiResource, view: &View<'_>) -> Vec<Value> {
    let mut services = Vec::new();
    for role in view.roles {
        let port = port_of(role);
        for index in 0..role.replicas {
            let mut labels = role.labels(view.job, Framework::TensorFlow);
            labels[REPLICA_INDEX_LABEL] = index.to_string().into();
            let name = role.pod_name(view.job, index);
            services.push(headless_service(view.job, resource, &name, &labels, Some((PORT_NAME, port))));
        }
    }
    services
}

/// Addresses by role; evaluators are not part of the cluster.
fn cluster(view: &View<'_>) -> BTreeMap<String, Vec<String>> {
    let in_cluster = view.roles.iter().filter(|role| role.name != "Evaluator");
    in_cluster
        .map(|role| {
            let port = port_of(role);
            let address =
                |index| format!("{}.{}.svc:{port}", role.pod_name(view.job, index), view.job.namespace());
            (role.lower.clone(), (0..role.replicas).map(address).collect())
        })
        .collect()
}

fn port_of(role: &Role<'_>) -> i64 {
    declared_port(role.template, CONTAINER, PORT_NAME, PORT)
}

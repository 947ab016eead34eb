//! Volcano's objects as the suites use them.

use std::path::Path;

use kube::Client;
use serde_json::{Value, json};

use crate::{
    Polled, TestFleet,
    objects::{self, POD, POD_GROUP, VOLCANO_JOB},
};

/// A manifest of the examples, in the namespace `default`.
pub fn example(name: &str) -> anyhow::Result<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/volcano").join(name);
    let all: Vec<Value> = fleet_api::yaml::read_all(&std::fs::read_to_string(file)?)?;
    let mut job = all.into_iter().next().unwrap_or_default();
    job["metadata"]["namespace"] = "default".into();
    Ok(job)
}

/// Phase of a job; empty before it has one.
pub async fn phase(client: &Client, name: &str) -> anyhow::Result<String> {
    let job = objects::get(client, VOLCANO_JOB, "default", name).await?.unwrap_or_default();
    Ok(objects::job_state(&job))
}

/// Waits until a job is in the phase, and answers with the job.
pub async fn wait_phase(
    fleet: &TestFleet,
    client: &Client,
    name: &str,
    wanted: &str,
) -> anyhow::Result<Value> {
    fleet
        .wait_for(&format!("{name} to be {wanted}"), async || {
            let job = objects::get(client, VOLCANO_JOB, "default", name).await?.unwrap_or_default();
            let found = objects::job_state(&job);
            Ok(if found == wanted { Polled::Yes(job) } else { Polled::NotYet(job["status"].to_string()) })
        })
        .await
}

/// Nodes of the first pods of a task, sorted.
pub async fn nodes_of(client: &Client, task: &str, pods: usize) -> anyhow::Result<Vec<String>> {
    let mut on = Vec::new();
    for i in 0..pods {
        let pod = objects::get(client, POD, "default", &format!("{task}-{i}")).await?.unwrap_or_default();
        on.push(pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned());
    }
    on.sort();
    Ok(on)
}

/// PodGroup of a job; null before there is one.
pub async fn group_of(client: &Client, job: &Value) -> anyhow::Result<Value> {
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
    let name = format!("{}-{uid}", objects::name_of(job));
    Ok(objects::get(client, POD_GROUP, "default", &name).await?.unwrap_or_default())
}

/// Two parameter servers and four workers of one cpu each; parameter servers never end by themselves.
pub fn training(name: &str) -> Value {
    let task = |name: &str, replicas: i64, command: &str, policies: Value| {
        json!({"name": name, "replicas": replicas, "policies": policies, "template": {"spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "main", "image": "registry.example.com/train:v1", "command": ["sh", "-c", command],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}}})
    };
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
    "spec": {"minAvailable": 6, "plugins": {"env": [], "svc": []}, "tasks": [
        task("ps", 2, "train --job_name=ps ", json!([])),
        task("worker", 4, "train --job_name=worker ", json!([{"event": "TaskCompleted", "action": "CompleteJob"}])),
    ]}})
}

/// A Queue of a member.
pub fn queue(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

/// A domain of the network over members of one kind, named `tier-<tier>`.
pub fn hyper_node(name: &str, tier: i64, kind: &str, members: &[impl AsRef<str>]) -> Value {
    let exact = |name: &str| json!({"type": kind, "selector": {"exactMatch": {"name": name}}});
    let members: Vec<Value> = members.iter().map(|name| exact(name.as_ref())).collect();
    json!({"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name},
        "spec": {"tier": tier, "tierName": format!("tier-{tier}"), "members": members}})
}

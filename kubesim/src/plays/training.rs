//! TensorFlow jobs of two parameter servers and four workers on a cluster with capacity for one or two of them.
//!
//! A training makes progress when all six processes run, and ends some time after that. Pods are scheduled in
//! the order of dominant share. So without gangs the jobs take turns, and each gets only some of its pods
//! running.

use std::{collections::BTreeMap, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Gangs, LOOK, Outcome,
    stage::{JOB_LABEL, ROLE_LABEL, Stage, Watcher},
};

const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
/// Tasks of a job: name, replicas, cpu of each.
const TASKS: [(&str, usize, u32); 2] = [("ps", 2, 1), ("worker", 4, 2)];
/// Cpu of one job.
const JOB_CPU: u32 = 10;

/// As Volcano ships it, without the queue gate: only gangs are tested.
fn conf(gangs: Gangs) -> String {
    let gang = if gangs == Gangs::Kept { "  - name: gang\n" } else { "" };
    format!(
        "actions: \"allocate, backfill\"\ntiers:\n- plugins:\n  - name: priority\n{gang}  - name: conformance\n\
         - plugins:\n  - name: drf\n  - name: predicates\n  - name: nodeorder\n  - name: binpack\n"
    )
}

fn job(name: &str) -> Value {
    let task = |(task, replicas, cpu): (&str, usize, u32)| {
        let mut found = json!({
            "name": task, "replicas": replicas,
            "template": {
                "metadata": {"labels": {JOB_LABEL: name, ROLE_LABEL: task}},
                "spec": {"restartPolicy": "Never", "containers": [{
                    "name": "tensorflow", "image": "registry.example.com/tensorflow:v1",
                    "resources": {"requests": {"cpu": cpu.to_string(), "memory": "2Gi"}},
                }]},
            },
        });
        if task == "worker" {
            found["policies"] = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
        }
        found
    };
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"volcano.sh/job-type": "Tensorflow"},
            "annotations": {fleet_api::names::SIM_RUNTIME_ANNOTATION: "forever"}},
        "spec": {"schedulerName": "volcano", "minAvailable": 6, "plugins": {"env": [], "svc": []},
            "tasks": TASKS.map(task)},
    })
}

/// Runs so many trainings at once, each `runtime` long once all of it runs. `fit`: how many of them the cluster has
/// capacity for.
///
/// # Errors
/// The member could not be created or queried.
pub fn trainings(
    jobs: usize,
    fit: usize,
    gangs: Gangs,
    runtime: Duration,
) -> BoxFuture<'static, anyhow::Result<Outcome>> {
    Box::pin(trainings_in_place(jobs, fit, gangs, runtime))
}

async fn trainings_in_place(
    jobs: usize,
    fit: usize,
    gangs: Gangs,
    runtime: Duration,
) -> anyhow::Result<Outcome> {
    let stage = Stage::open(fit, JOB_CPU, "64Gi", Some(&conf(gangs))).await?;
    let names: Vec<String> = (1..=jobs).map(|i| format!("tensorflow-{i}")).collect();
    stage.create(JOBS, names.iter().map(|name| job(name)).collect()).await?;
    let outcome = play(&stage, &names, runtime).await;
    stage.close().await;
    outcome
}

async fn play(stage: &Stage, names: &[String], runtime: Duration) -> anyhow::Result<Outcome> {
    let mut whole_since: BTreeMap<&String, Instant> = BTreeMap::new();
    let mut watcher = Watcher::new(names.len());
    let size: usize = TASKS.iter().map(|(_, replicas, _)| replicas).sum();
    loop {
        let pods = stage.pods().await?;
        let ended = stage.list(JOBS).await?;
        let ended = ended.iter().filter(|job| job["status"]["state"]["phase"] == "Completed").count();
        if let Some(outcome) = watcher.look(&pods, ended) {
            return Ok(outcome);
        }
        let mut done = Vec::new();
        for name in names {
            let running: Vec<_> = pods.iter().filter(|pod| pod.job == *name && pod.running).collect();
            if running.len() < size {
                continue;
            }
            if whole_since.entry(name).or_insert_with(Instant::now).elapsed() >= runtime {
                done.extend(running.iter().filter(|pod| pod.role == "worker").map(|pod| pod.name.clone()));
            }
        }
        stage.succeed(done).await?;
        tokio::time::sleep(LOOK).await;
    }
}

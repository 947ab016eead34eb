//! Spark queries: a driver that creates its executors once it runs, on four nodes of 8 cpu.
//!
//! The PodGroup's `minResources` is the request of the whole query, so that no more drivers start than can
//! have executors. Without PodGroups the drivers use all nodes and wait for executors forever. What people do without
//! PodGroups is to keep one node for drivers: nothing deadlocks, but the places are divided for good.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    LOOK, Outcome,
    stage::{JOB_LABEL, ROLE_LABEL, Stage, Watcher},
};

const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";
const NODES: usize = 4;
/// The first of them, where it is kept for drivers.
const DRIVER_NODE: &str = "east-node-0";
const NODE_CPU: u32 = 8;
const EXECUTORS: usize = 5;

/// What keeps drivers from taking the places of executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drivers {
    /// The PodGroup of each query.
    Grouped,
    /// A node of their own, on which no executor runs.
    OwnNode,
    /// Nothing.
    Free,
}

fn pod(query: &str, role: &str, name: String, drivers: Drivers) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {JOB_LABEL: query, ROLE_LABEL: role}},
        "spec": {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [{
            "name": "spark", "image": "registry.example.com/spark:v1",
            "resources": {"requests": {"cpu": "1", "memory": "4G"}},
        }]},
    });
    let mut annotations = json!({fleet_api::names::SIM_RUNTIME_ANNOTATION: "forever"});
    match drivers {
        Drivers::Grouped => annotations["scheduling.k8s.io/group-name"] = query.into(),
        Drivers::OwnNode => pod["spec"]["affinity"] = on_own_node(role == "driver"),
        Drivers::Free => {}
    }
    pod["metadata"]["annotations"] = annotations;
    pod
}

fn on_own_node(is_driver: bool) -> Value {
    let operator = if is_driver { "In" } else { "NotIn" };
    let terms =
        json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [DRIVER_NODE]}]}]);
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn group(query: &str) -> Value {
    let pods = EXECUTORS + 1;
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": query, "namespace": "default"},
        "spec": {"minMember": 1, "minResources": {"cpu": pods.to_string(), "memory": format!("{}G", 4 * pods)}},
    })
}

/// Runs so many queries at once, each `runtime` long once all its executors run.
///
/// # Errors
/// The member could not be created or queried.
pub fn queries(
    count: usize,
    drivers: Drivers,
    runtime: Duration,
) -> BoxFuture<'static, anyhow::Result<Outcome>> {
    Box::pin(queries_in_place(count, drivers, runtime))
}

async fn queries_in_place(count: usize, drivers: Drivers, runtime: Duration) -> anyhow::Result<Outcome> {
    let stage = Stage::open(NODES, NODE_CPU, "64G", None).await?;
    let names: Vec<String> = (1..=count).map(|i| format!("query-{i}")).collect();
    if drivers == Drivers::Grouped {
        stage.create(GROUPS, names.iter().map(|name| group(name)).collect()).await?;
    }
    let pods = names.iter().map(|name| pod(name, "driver", format!("{name}-driver"), drivers));
    stage.create_pods(pods.collect()).await?;
    let outcome = play(&stage, &names, drivers, runtime).await;
    stage.close().await;
    outcome
}

async fn play(
    stage: &Stage,
    names: &[String],
    drivers: Drivers,
    runtime: Duration,
) -> anyhow::Result<Outcome> {
    let mut asked: BTreeSet<&String> = BTreeSet::new();
    let mut whole_since: BTreeMap<&String, Instant> = BTreeMap::new();
    let mut watcher = Watcher::new(names.len());
    loop {
        let pods = stage.pods().await?;
        let ended = pods.iter().filter(|pod| pod.role == "driver" && pod.ended).count();
        if let Some(outcome) = watcher.look(&pods, ended) {
            return Ok(outcome);
        }
        let mut running: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut drives: BTreeSet<&str> = BTreeSet::new();
        for pod in pods.iter().filter(|pod| pod.running) {
            running.entry(&pod.job).or_default().push(&pod.name);
            if pod.role == "driver" {
                drives.insert(&pod.job);
            }
        }
        let (mut executors, mut done) = (Vec::new(), Vec::new());
        for name in names.iter().filter(|name| drives.contains(name.as_str())) {
            if asked.insert(name) {
                executors.extend(
                    (1..=EXECUTORS).map(|i| pod(name, "executor", format!("{name}-exec-{i}"), drivers)),
                );
            }
            let mine = running.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            if mine.len() > EXECUTORS
                && whole_since.entry(name).or_insert_with(Instant::now).elapsed() >= runtime
            {
                done.extend(mine.iter().map(ToString::to_string));
            }
        }
        stage.create_pods(executors).await?;
        stage.succeed(done).await?;
        tokio::time::sleep(LOOK).await;
    }
}

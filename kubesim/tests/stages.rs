//! Simulated pods and nodes beside an embedded server, by their stages.

use std::{future::Future, time::Duration};

use fleet_apiserver::{ApiServer, Config, Objects};
use fleet_kubesim::{
    RunTime,
    hollow::{self, NodeSpec},
    stages::{self, StageSet},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(20);

struct Simulation {
    server: ApiServer,
    pods: Objects,
    nodes: Objects,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Simulation {
    async fn start(set: StageSet) -> Simulation {
        let server = ApiServer::open(Config::default()).await.expect("opens");
        let nodes = NodeSpec {
            count: 3,
            cpu: "64".into(),
            memory: "512Gi".into(),
            gpus: 8,
            labels: Default::default(),
            taints: Vec::new(),
        };
        let hollow = hollow::Options::new("east", nodes, RunTime::Forever);
        let (shutdown, options) = (CancellationToken::new(), stages::Options { hollow, set, seed: 1 });
        let (beside, until) = (server.clone(), shutdown.clone());
        let task = tokio::spawn(async move { stages::run(&beside, options, until).await });
        let pods = server.objects("v1", "pods").expect("served");
        let nodes = server.objects("v1", "nodes").expect("served");
        Simulation { server, pods, nodes, shutdown, task }
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.task.await.expect("joins").expect("ends well");
        self.server.shutdown().await;
    }
}

async fn wait<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let looking = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(WITHIN, looking).await.unwrap_or_else(|_| panic!("waited for {what}"));
}

/// A bound pod of a job; `metadata` is added to it.
fn pod(name: &str, owner: &str, metadata: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": owner, "name": "o", "uid": "u", "controller": true}]},
        "spec": {"nodeName": "east-node-1", "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox"}]}});
    for (key, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][key] = value.clone();
    }
    pod
}

fn phase(pods: &Objects, name: &str) -> String {
    pods.get(&format!("default/{name}")).map(|pod| pod.text(&["status", "phase"])).unwrap_or_default()
}

#[tokio::test]
async fn fast_pods_run_and_jobs_pods_end() {
    let sim = Simulation::start(StageSet::Fast).await;
    let made = (0..300).map(|n| pod(&format!("p{n}"), "Job", json!({}))).collect();
    sim.pods.create(made).await.expect("created");
    sim.pods.create(vec![pod("service", "ReplicaSet", json!({}))]).await.expect("created");
    wait("all of them", || async {
        (0..300).all(|n| phase(&sim.pods, &format!("p{n}")) == "Succeeded")
            && phase(&sim.pods, "service") == "Running"
    })
    .await;
    let ended = sim.pods.get("default/p7").expect("there").value();
    assert_eq!(ended["status"]["hostIP"], "192.168.0.2");
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert!(ended["metadata"].get("managedFields").is_none());
    assert!(sim.pods.get("default/p7").expect("there").size() < 700);
    sim.end().await;
}

#[tokio::test]
async fn objects_steer_their_stages_and_chaos_ends_them() {
    let sim = Simulation::start(StageSet::General).await;
    let quick = json!({"pod-create.stage.kwok.x-k8s.io/delay": "0s",
        "pod-ready.stage.kwok.x-k8s.io/delay": "5ms", "pod-complete.stage.kwok.x-k8s.io/delay": "1h",
        "pod-container-running-failed.stage.kwok.x-k8s.io/reason": "OOMKilled",
        "pod-container-running-failed.stage.kwok.x-k8s.io/exit-code": "137"});
    let chaos = json!({"pod-container-running-failed.stage.kwok.x-k8s.io": "true"});
    let steered = vec![
        pod("steady", "Job", json!({"annotations": quick})),
        pod("doomed", "Job", json!({"annotations": quick, "labels": chaos})),
        pod("slow", "Job", json!({})),
    ];
    sim.pods.create(steered).await.expect("created");
    wait("the doomed pod", || async { phase(&sim.pods, "doomed") == "Failed" }).await;
    let failed = sim.pods.get("default/doomed").expect("there").value();
    let ended = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)));
    wait("the steady pod", || async { phase(&sim.pods, "steady") == "Running" }).await;
    assert_eq!(phase(&sim.pods, "slow"), "Pending", "its first stage takes a second at least");

    let broken = json!({"node-not-ready.stage.kwok.x-k8s.io": "true"});
    let ready = || async {
        let node = sim.nodes.get("east-node-0").expect("there").value();
        node["status"]["conditions"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    wait("the node", ready).await;
    let node = sim.nodes.get("east-node-0").expect("there");
    let mut value = node.value();
    value["metadata"]["labels"]["node-not-ready.stage.kwok.x-k8s.io"] =
        broken["node-not-ready.stage.kwok.x-k8s.io"].clone();
    sim.nodes.update(vec![(node, value)]).await.expect("labelled");
    wait("the broken node", || async { !ready().await }).await;
    sim.end().await;
}

#[tokio::test]
async fn a_deleted_pod_goes_once_nothing_holds_it() {
    let sim = Simulation::start(StageSet::Fast).await;
    let held = json!({"finalizers": ["example.com/hold"]});
    sim.pods.create(vec![pod("held", "Service", held)]).await.expect("created");
    wait("the pod", || async { phase(&sim.pods, "held") == "Running" }).await;
    let marked = sim.pods.get("default/held").expect("there");
    let mut value = marked.value();
    value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    sim.pods.update(vec![(marked, value)]).await.expect("marked");
    let released = sim.pods.get("default/held").expect("a finalizer holds it");
    let mut value = released.value();
    value["metadata"].as_object_mut().expect("an object").remove("finalizers");
    sim.pods.update(vec![(released, value)]).await.expect("released");
    wait("its end", || async { sim.pods.get("default/held").is_none() }).await;
    sim.end().await;
}

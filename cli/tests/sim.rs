//! `fleet sim`: hollow nodes in a cluster of somebody else, here a plain API server with a job controller and
//! a stand-in for its scheduler.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use fleet_kubesim::standins::scheduler;
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::terminal;

fn fleet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env("FLEET_HOME", "/nonexistent");
    command
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command and reads what it prints until a line begins so.
fn start(command: &mut Command, until: &str) -> (Running, Vec<String>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.starts_with(until)) {
        said.push(lines.next().unwrap_or_else(|| panic!("{until:?} was not said: {said:?}")));
    }
    // Whoever reads no more must not close the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (Running(child), said)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn client(kubeconfig: &Path) -> Client {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

async fn names<K>(api: &Api<K>) -> Vec<String>
where
    K: Clone + DeserializeOwned + std::fmt::Debug + kube::Resource,
{
    let listed = api.list(&ListParams::default()).await.expect("listed");
    listed.items.iter().filter_map(|item| item.meta().name.clone()).collect()
}

/// What kubectl gets to complete the name of a node: those of the cluster that begin so, with their kind where it was typed.
fn assert_completed(directory: &Path, kubeconfig: &Path) {
    let programs = directory.join("programs");
    let made = fleet().arg("plugins").arg(&programs).output().expect("runs");
    assert!(made.status.success(), "{}", text(&made));
    let completed = |words: &[&str]| {
        let said = || {
            let mut command = Command::new(programs.join("kubectl_complete-fleet"));
            command.env("HOME", "/nonexistent").arg("--kubeconfig").arg(kubeconfig).args(words);
            text(&command.output().expect("runs"))
        };
        // Nobody waits long at a prompt: a busy server completes nothing.
        (0..20).map(|_| said()).find(|said| said != ":4\n").unwrap_or_default()
    };
    let names: String = (30..40).map(|number| format!("sim-node-{number}\n")).collect();
    assert_eq!(completed(&["get", "node", "sim-node-3"]), format!("sim-node-3\n{names}:4\n"));
    assert_eq!(completed(&["describe", "node/sim-node-39"]), "node/sim-node-39\n:4\n");
    assert_eq!(completed(&["get", "pod", "-n", "kube-s"]), "kube-system\n:4\n");
}

#[tokio::test]
async fn pods_of_any_cluster_run_on_hollow_nodes_that_go_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("cluster");
    let kubeconfig = data.join("kubeconfig");
    let mut server = fleet();
    server.args(["apiserver", "--listen", "127.0.0.1:0", "--controllers", "job", "--data-dir"]);
    let (_server, _) = start(server.arg(&data), "export KUBECONFIG");
    let client = client(&kubeconfig).await;
    let ended = CancellationToken::new();
    let _scheduler = (tokio::spawn(scheduler::run(client.clone(), ended.clone())), ended.drop_guard());
    let sim = |arguments: &[&str]| {
        let mut command = fleet();
        command.arg("--kubeconfig").arg(&kubeconfig).arg("sim").args(arguments);
        command
    };

    let up = [
        "up",
        "--nodes",
        "40",
        "--gpus",
        "4",
        "--label",
        "zone=a",
        "--taint",
        "sim:NoSchedule",
        "--runtime",
        "1s",
    ];
    let (mut running, said) = start(&mut sim(&up), "ready:");
    assert!(said[0].contains("sim-node-0 to sim-node-39 (64 cpu, 512Gi memory, 4 GPUs each)"), "{said:?}");
    assert!(said.last().is_some_and(|line| line.starts_with("ready: 40 nodes")), "{said:?}");
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get("sim-node-39").await.expect("there");
    let labels = node.metadata.labels.unwrap_or_default();
    assert_eq!((labels["zone"].as_str(), labels["sim.fleet.dev/nodes"].as_str()), ("a", "sim"));
    if terminal::can_make_terminals() {
        let file = kubeconfig.to_string_lossy().to_string();
        terminal::assert_coloured(&["--kubeconfig", &file, "get", "nodes"], "Ready", "32");
    }
    assert_completed(directory.path(), &kubeconfig);

    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"completions": 60, "parallelism": 60, "template": {"spec": {"restartPolicy": "Never",
            "tolerations": [{"key": "sim", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "busybox",
                "resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "1"}}}]}}}});
    jobs.create(&PostParams::default(), &object(job)).await.expect("made");
    let done = async {
        loop {
            let status = jobs.get("train").await.expect("readable").status.unwrap_or_default();
            if status.succeeded == Some(60) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), done).await.expect("60 pods of 4 GPUs on 40 such nodes");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut used: Vec<String> = pods
        .list(&ListParams::default())
        .await
        .expect("listed")
        .items
        .into_iter()
        .filter_map(|pod| pod.spec?.node_name)
        .collect();
    used.sort();
    used.dedup();
    assert_eq!(used.len(), 40, "every node took pods: {used:?}");

    // A second start takes the nodes over; Ctrl-C leaves them.
    Command::new("kill").args(["-INT", &running.0.id().to_string()]).status().expect("kill runs");
    assert_eq!(running.0.wait().expect("ends").code(), Some(0));
    let (again, _) = start(&mut sim(&up), "ready: 40 nodes");
    drop(again);

    // Nodes of others are neither changed nor removed.
    let others = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lab-node-1"}});
    nodes.create(&PostParams::default(), &object(others)).await.expect("made");
    let refused = sim(&["up", "--nodes", "3", "--name", "lab"]).output().expect("runs");
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    let why = "node \"lab-node-1\" exists and is not a hollow node of \"lab\": label sim.fleet.dev/nodes: found none";
    assert!(text(&refused).contains(why), "{}", text(&refused));
    for group in ["lab", "sim"] {
        let down = sim(&["down", "--name", group]).output().expect("runs");
        assert!(down.status.success() && text(&down).starts_with("removed "), "{}", text(&down));
    }
    assert_eq!(names(&nodes).await, ["lab-node-1"]);
    assert_eq!(names(&pods).await, [""; 0]);
    assert_eq!(names::<Lease>(&Api::namespaced(client, "kube-node-lease")).await, [""; 0]);
    let nothing = sim(&["down"]).output().expect("runs");
    assert_eq!(nothing.status.code(), Some(1));
    assert!(
        text(&nothing).contains("no hollow nodes of \"sim\" in https://127.0.0.1:"),
        "{}",
        text(&nothing)
    );
}

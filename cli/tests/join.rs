//! Join and leave, by the program and the agent's own part: a token of an hour becomes a credential once, and an unjoin leaves
//! nothing behind.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use member_agent::credential::{self, Settings};
use serde_json::{Value, json};

pub fn fleet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env("FLEET_HOME", "/nonexistent");
    command
}

/// A server in a process of its own, ended with the test.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn start(arguments: &[&str], until: &str) -> Running {
    let mut child = fleet().args(arguments).stdout(Stdio::piped()).spawn().expect("runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(until)), "{arguments:?} said no {until:?}");
    // Whoever reads no more must not close the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Running(child)
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

pub fn api(
    client: &Client,
    version: &str,
    kind: &str,
    plural: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

pub async fn names(client: &Client, version: &str, kind: &str, plural: &str) -> Vec<String> {
    let found = api(client, version, kind, plural, None).list(&Default::default()).await.expect("a listing");
    found.items.into_iter().filter_map(|object| object.metadata.name).collect()
}

/// What of Fleet stands in a member.
async fn traces(member: &Client) -> Vec<String> {
    let mut found = Vec::new();
    let rbac = "rbac.authorization.k8s.io/v1";
    for (version, kind, plural) in [
        ("v1", "Namespace", "namespaces"),
        (rbac, "ClusterRole", "clusterroles"),
        (rbac, "ClusterRoleBinding", "clusterrolebindings"),
        ("apps/v1", "Deployment", "deployments"),
        ("v1", "Secret", "secrets"),
        ("v1", "ServiceAccount", "serviceaccounts"),
    ] {
        let all = names(member, version, kind, plural).await;
        found.extend(
            all.into_iter().filter(|name| name.contains("fleet")).map(|name| format!("{kind} {name}")),
        );
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_becomes_a_credential_once_and_an_unjoin_leaves_nothing() {
    // One provider in the process; another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let (data, alone) = (path("up"), path("alone"));
    let port = free_ports().to_string();
    let _up = start(&["up", "--members", "1", "--data-dir", &data, "--port", &port], "ready");
    let _member = start(&["apiserver", "--listen", "127.0.0.1:0", "--data-dir", &alone], "export KUBECONFIG");
    let (hub_file, member_file) = (format!("{data}/kubeconfig"), format!("{alone}/kubeconfig"));
    let run = |arguments: &[&str]| {
        fleet().args([&["--kubeconfig", &hub_file], arguments].concat()).output().expect("runs")
    };
    let read = |file: &str| Kubeconfig::read_from(Path::new(file)).expect("a kubeconfig");
    let (hub, member) = (client(read(&hub_file)).await, client(read(&member_file)).await);
    assert!(traces(&member).await.is_empty());

    let definitions = api(
        &member,
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        None,
    );
    let operators = operators_definition();
    definitions.create(&Default::default(), &operators).await.expect("a definition of an operator");

    let refused = run(&["join", "west"]);
    assert!(text(&refused).contains("has no context \"west\""), "{}", text(&refused));
    let joined = run(&["join", "west", "--member-kubeconfig", &member_file]);
    assert!(joined.status.success(), "{}", text(&joined));
    assert!(text(&joined).contains("deployment.apps/fleet-member-agent created"), "{}", text(&joined));
    let kept = "mpijobs.kubeflow.org kept: others have installed it; it serves v1, not v2beta1";
    assert!(text(&joined).contains(kept), "{}", text(&joined));
    let stands = definitions.get("mpijobs.kubeflow.org").await.expect("the operator's definition");
    assert_eq!(stands.data["spec"]["versions"][0]["name"], "v1");
    definitions.get("pytorchjobs.kubeflow.org").await.expect("a definition that was not there");

    // The agent's pod mounts this Secret.
    let secrets = api(&member, "v1", "Secret", "secrets", Some("fleet-system"));
    let secret = secrets.get("fleet-hub-bootstrap").await.expect("the token's Secret");
    let kubeconfig =
        STANDARD.decode(secret.data["data"]["kubeconfig"].as_str().expect("data")).expect("base64");
    let bootstrap = path("bootstrap");
    std::fs::write(&bootstrap, &kubeconfig).expect("written");
    let settings = |folder: &str, with: bool| Settings {
        cluster: "west".to_string(),
        bootstrap: with.then(|| bootstrap.clone().into()),
        folder: path(folder).into(),
    };
    // The token itself reaches nothing of the hub.
    let thief = client(
        serde_json::from_slice::<Value>(&kubeconfig)
            .map(|v| serde_json::from_value(v).expect("one"))
            .expect("one"),
    )
    .await;
    assert!(api(&thief, "fleet.dev/v1alpha1", "Cluster", "clusters", None).get("west").await.is_err());

    let (config, own) = credential::open(&member, &settings("agent", true)).await.expect("a credential");
    let agent = Client::try_from(config).expect("a client");
    let cluster = api(&agent, "fleet.dev/v1alpha1", "Cluster", "clusters", None);
    cluster.get("west").await.expect("its own Cluster");
    assert!(cluster.get("east").await.is_err(), "another's");
    assert!(
        api(&agent, "v1", "Secret", "secrets", Some("fleet-west")).list(&Default::default()).await.is_err()
    );
    // A restart needs no token; the kept credential is the same.
    let (_, kept) = credential::open(&member, &settings("again", false)).await.expect("the kept credential");
    assert_eq!(kept, own);
    // Whoever stole the token comes too late, and is told so.
    let stolen = serde_json::from_slice::<Value>(&kubeconfig).expect("JSON");
    let stolen: Kubeconfig = serde_json::from_value(stolen).expect("a kubeconfig");
    let late = credential::exchange(stolen, "west", &"late".repeat(16)).await.expect_err("used").to_string();
    assert!(late.contains("the hub refuses the bootstrap token") && late.contains("used already"), "{late}");

    let status = run(&["status", "west"]);
    assert!(text(&status).contains("its agent has never answered"), "{}", text(&status));
    let printed = run(&["join", "north", "--print", "--hub-url", "https://hub.example.com"]);
    let printed = text(&printed);
    let remark = "# Leave this out if the cluster has a definition mpijobs.kubeflow.org of others.\n";
    for part in [remark, "kind: Deployment", "name: fleet-hub-bootstrap", "name: reservations.fleet.dev"] {
        assert!(printed.contains(part), "{part} in {printed:.2000}");
    }

    for name in ["west", "north"] {
        let left = run(&["unjoin", name, "--member-kubeconfig", &member_file]);
        assert!(left.status.success(), "{}", text(&left));
    }
    assert_eq!(traces(&member).await, Vec::<String>::new());
    let on_hub = |all: Vec<String>| all.into_iter().filter(|name| name.contains("west")).collect::<Vec<_>>();
    let rbac = "rbac.authorization.k8s.io/v1";
    for (version, kind, plural) in [
        ("v1", "Namespace", "namespaces"),
        ("fleet.dev/v1alpha1", "Cluster", "clusters"),
        (rbac, "ClusterRole", "clusterroles"),
        (rbac, "ClusterRoleBinding", "clusterrolebindings"),
    ] {
        assert_eq!(on_hub(names(&hub, version, kind, plural).await), Vec::<String>::new(), "{kind}");
    }
    let unknown = run(&["unjoin", "west", "--keep-member"]);
    assert!(!unknown.status.success(), "{}", text(&unknown));
    assert!(
        text(&unknown).contains("cluster \"west\" is not in this fleet; its clusters: "),
        "{}",
        text(&unknown)
    );
    // What the agent had is worth nothing now.
    assert!(cluster.get("west").await.is_err());
}

/// The definition of MPIJobs as a training operator has it, which serves another version than Fleet sends.
fn operators_definition() -> DynamicObject {
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "mpijobs.kubeflow.org"},
        "spec": {"group": "kubeflow.org", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "MPIJob", "listKind": "MPIJobList", "plural": "mpijobs", "singular": "mpijob"}},
    });
    serde_json::from_value(definition).expect("an object")
}

/// The first of a few ports in a row that are free now.
pub fn free_ports() -> u16 {
    for _ in 0..100 {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let first = probe.local_addr().expect("an address").port();
        drop(probe);
        let Some(last) = first.checked_add(4) else { continue };
        if (first..last).all(|port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
    panic!("no free ports");
}

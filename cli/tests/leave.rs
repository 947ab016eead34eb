//! Members leave together: what a drain leaves there is listed by drain and unjoin, and gone once it is deleted on the hub.

use std::{path::Path, process::Output, time::Duration};

use kube::{Api, api::DynamicObject, config::Kubeconfig};
use serde_json::{Value, json};

use super::join::{api, client, fleet, free_ports, names, start, text};

/// All goes to east, and may run nowhere else.
fn objects() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    // Each namespace also has a ConfigMap of its own.
    let selector =
        |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name});
    let policy = json!({"metadata": {"name": "east-only", "namespace": "default"}, "spec": {
        "resourceSelectors": [selector("apps/v1", "Deployment", "web"), selector("v1", "ConfigMap", "settings")],
        "placement": {"clusterAffinity": {"clusterNames": ["east"]},
            "replicaScheduling": {"replicaSchedulingType": "Duplicated"}}}});
    let container = json!({"name": "main", "image": "registry.example.com/web:v1",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}});
    let deployment = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}});
    let settings = json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "b"}});
    vec![
        ("policy.one.alibabacloud.com/v1alpha1", "PropagationPolicy", "propagationpolicies", policy),
        ("apps/v1", "Deployment", "deployments", deployment),
        ("v1", "ConfigMap", "configmaps", settings),
    ]
}

pub async fn wait_for_works(works: &Api<DynamicObject>, count: usize) {
    for _ in 0..600 {
        let found = works.list(&Default::default()).await.map_or(0, |found| found.items.len());
        if found == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited a minute for {count} Works");
}

#[track_caller]
pub fn says(output: &Output, succeeds: bool, words: &[&str]) {
    let told = text(output);
    assert_eq!(output.status.success(), succeeds, "{told}");
    for word in words {
        assert!(told.contains(word), "{word:?} in {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_leave_with_a_deployment_and_a_config_map_in_one() {
    // One provider in the process; another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("up").to_string_lossy().to_string();
    let port = free_ports().to_string();
    let up =
        ["up", "--members", "2", "--nodes", "1", "--data-dir", &data, "--port", &port, "--portal-port", "0"];
    let _up = start(&up, "ready");
    let hub_file = format!("{data}/kubeconfig");
    let hub = client(Kubeconfig::read_from(Path::new(&hub_file)).expect("a kubeconfig")).await;
    let run = |arguments: &[&str]| {
        fleet().args([&["--kubeconfig", &hub_file], arguments].concat()).output().expect("runs")
    };
    for (version, kind, plural, object) in objects() {
        let mut object = object;
        (object["apiVersion"], object["kind"]) = (version.into(), kind.into());
        let object = serde_json::from_value(object).expect("an object");
        let api = api(&hub, version, kind, plural, Some("default"));
        api.create(&Default::default(), &object).await.expect("created");
    }
    let works = api(&hub, "fleet.dev/v1alpha1", "Work", "works", Some("fleet-east"));
    wait_for_works(&works, 2).await;
    let both = ["Deployment default/web", "ConfigMap default/settings"];

    let refused = run(&["unjoin", "east", "--keep-member"]);
    says(&refused, false, &["\"east\" still has 2 objects", both[0], both[1], "waits on the hub for one"]);
    let planned = run(&["drain", "east", "west", "--dry-run"]);
    says(&planned, true, &[both[0], both[1], "0 jobs would move off east", "0 jobs would move off west"]);
    assert_eq!(works.list(&Default::default()).await.expect("a list").items.len(), 2);

    // Both are closed before one is emptied; what can run nowhere else leaves all the same, and is told to wait.
    let drained = run(&["drain", "east", "west"]);
    let wait = both.map(|object| format!("{object}: waits for a place"));
    let west_empty = "cluster.fleet.dev/west drained";
    says(&drained, true, &[&wait[0], &wait[1], "cluster.fleet.dev/east drained", west_empty]);
    let clusters = api(&hub, "fleet.dev/v1alpha1", "Cluster", "clusters", None);
    for name in ["east", "west"] {
        let taints = clusters.get(name).await.expect("there").data["spec"]["taints"].to_string();
        assert!(taints.contains("NoSchedule") && taints.contains("NoExecute"), "{name}: {taints}");
    }
    wait_for_works(&works, 0).await;
    let left = run(&["unjoin", "east", "west", "--keep-member"]);
    says(&left, true, &["cluster.fleet.dev/east deleted", "cluster.fleet.dev/west deleted"]);
    assert_eq!(names(&hub, "fleet.dev/v1alpha1", "Cluster", "clusters").await, Vec::<String>::new());
    let of_members = async || {
        let mut found = names(&hub, "v1", "Namespace", "namespaces").await;
        found.retain(|name| ["fleet-east", "fleet-west"].contains(&name.as_str()));
        found
    };
    for _ in 0..600 {
        if of_members().await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("left after a minute: {:?}", of_members().await);
}

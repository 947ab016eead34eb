//! `fleet up --scheduler-conf`: a mistake is named before anything starts; the file is in force in each member, and read again.

use std::{path::Path, time::Duration};

use kube::{Api, api::DynamicObject, config::Kubeconfig};
use serde_json::{Value, json};

use super::join::{api, client, fleet, free_ports, start, text};

fn conf(actions: &str) -> String {
    format!("actions: {actions}\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n")
}

fn pod(name: &str, requests: Value) -> DynamicObject {
    let container =
        json!({"name": "main", "image": "registry.example.com/a:v1", "resources": {"requests": requests}});
    let pod = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "volcano", "containers": [container]}});
    serde_json::from_value(pod).expect("a pod")
}

async fn is_bound(pods: &Api<DynamicObject>, name: &str) -> bool {
    pods.get(name).await.is_ok_and(|pod| pod.data["spec"]["nodeName"].is_string())
}

async fn wait_bound(pods: &Api<DynamicObject>, name: &str) {
    for _ in 0..600 {
        if is_bound(pods, name).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited a minute for pod {name}");
}

#[test]
fn a_mistake_in_the_file_is_named_and_nothing_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let (data, file) = (path("up"), path("scheduler.conf"));
    let up = |file: &str| {
        fleet().args(["up", "--data-dir", &data, "--scheduler-conf", file]).output().expect("runs")
    };
    for (content, says) in [
        (conf("allocate, fly"), ["line 1", "fly", "allowed"]),
        (conf("allocate").replace("gang", "gong"), ["line 4", "gong", "allowed"]),
        ("actions: [\n".to_string(), ["line 1", "", ""]),
    ] {
        std::fs::write(&file, content).expect("written");
        let refused = up(&file);
        let told = text(&refused);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains(&file), "{told}");
        for word in says {
            assert!(told.contains(word), "{word:?} in {told}");
        }
    }
    let absent = up("/nowhere/scheduler.conf");
    assert!(
        !absent.status.success() && text(&absent).contains("/nowhere/scheduler.conf"),
        "{}",
        text(&absent)
    );
    assert!(!Path::new(&data).join("fleet.json").exists(), "nothing was started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_is_in_force_and_read_again_when_it_changes() {
    // One provider in the process; another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let (data, file, port) = (path("up"), path("scheduler.conf"), free_ports().to_string());
    std::fs::write(&file, conf("backfill")).expect("written");
    let up = ["up", "--members", "1", "--data-dir", &data, "--port", &port, "--portal-port", "0"];
    let _up = start(&[&up[..], &["--scheduler-conf", &file]].concat(), "ready");
    let kubeconfig = Kubeconfig::read_from(Path::new(&data).join("members/east.kubeconfig"));
    let member = client(kubeconfig.expect("a kubeconfig")).await;
    let pods = api(&member, "v1", "Pod", "pods", Some("default"));
    pods.create(&Default::default(), &pod("asks", json!({"cpu": "1"}))).await.expect("created");
    pods.create(&Default::default(), &pod("asks-nothing", json!({}))).await.expect("created");
    // The action backfill places pods without requests alone; the other pod came before.
    wait_bound(&pods, "asks-nothing").await;
    assert!(!is_bound(&pods, "asks").await, "no action allocate");
    std::fs::write(&file, conf("allocate, backfill")).expect("written");
    wait_bound(&pods, "asks").await;
}

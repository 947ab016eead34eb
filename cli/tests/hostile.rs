//! A hostile member leaves: it is alive, renews its lease and lets go of nothing, so only `fleet unjoin --force` ends it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};

use super::{
    join::{api, client, fleet, free_ports, names, start},
    leave::{says, wait_for_works},
};

/// A ConfigMap that may go to west alone.
fn objects() -> [(&'static str, &'static str, &'static str, Value); 2] {
    let selector = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"});
    let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "west-only", "namespace": "default"}, "spec": {"resourceSelectors": [selector],
            "placement": {"clusterAffinity": {"clusterNames": ["west"]},
                "replicaScheduling": {"replicaSchedulingType": "Duplicated"}}}});
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "b"}});
    [
        ("policy.one.alibabacloud.com/v1alpha1", "PropagationPolicy", "propagationpolicies", policy),
        ("v1", "ConfigMap", "configmaps", settings),
    ]
}

/// The lease, renewed now. Its agent would stop its jobs within a second.
fn renewed(mut lease: DynamicObject) -> DynamicObject {
    let marks = lease.metadata.annotations.get_or_insert_default();
    marks.insert("fleet.dev/fence-grace-seconds".to_owned(), "1".to_owned());
    lease.data["spec"] = json!({"holderIdentity": "west-hostile", "leaseDurationSeconds": 40,
        "renewTime": format!("{:.6}", jiff::Timestamp::now())});
    lease
}

/// Renews until it is refused, as whoever has the credential would.
async fn renew(leases: Api<DynamicObject>) {
    loop {
        let renewal = async {
            let lease = leases.get("member-agent").await?;
            leases.replace("member-agent", &PostParams::default(), &renewed(lease)).await
        };
        if let Err(kube::Error::Api(status)) = renewal.await
            && matches!(status.code, 401 | 403)
        {
            return;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Reports a cluster that serves ConfigMaps, until the hub calls it Ready.
async fn report(hub: &Client, agent: &Client) {
    let leases = api(agent, "coordination.k8s.io/v1", "Lease", "leases", Some("fleet-west"));
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "member-agent"}});
    let lease = renewed(serde_json::from_value(lease).expect("an object"));
    leases.create(&PostParams::default(), &lease).await.expect("its lease");
    let status = json!({"status": {"reportSequence": 1, "reservation": false, "apiEnablements": ["v1/ConfigMap"],
        "nodeSummary": {"totalNum": 1, "readyNum": 1}}});
    let clusters = api(agent, "fleet.dev/v1alpha1", "Cluster", "clusters", None);
    clusters.patch_status("west", &PatchParams::default(), &Patch::Merge(&status)).await.expect("its status");
    tokio::spawn(renew(leases));
    let clusters = api(hub, "fleet.dev/v1alpha1", "Cluster", "clusters", None);
    for _ in 0..300 {
        let found = clusters.get("west").await.expect("there");
        let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("west is not Ready after 30 s");
}

/// Waits until the hub accepts nothing of the agent any more.
async fn wait_until_refused(agent: &Client) {
    let cluster = api(agent, "fleet.dev/v1alpha1", "Cluster", "clusters", None);
    let began = Instant::now();
    loop {
        match cluster.get("west").await {
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => return,
            answer => assert!(began.elapsed() < Duration::from_secs(20), "{answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_member_that_is_alive_is_unjoined_by_force_and_its_credential_ends_at_once() {
    // One provider in the process; another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let (data, alone, agent_file) = (path("up"), path("alone"), path("agent.kubeconfig"));
    let port = free_ports().to_string();
    let up =
        ["up", "--members", "1", "--nodes", "1", "--data-dir", &data, "--port", &port, "--portal-port", "0"];
    let _up = start(&up, "ready");
    let _member = start(&["apiserver", "--listen", "127.0.0.1:0", "--data-dir", &alone], "export KUBECONFIG");
    let (hub_file, member_file) = (format!("{data}/kubeconfig"), format!("{alone}/kubeconfig"));
    let run = |arguments: &[&str]| {
        fleet().args([&["--kubeconfig", &hub_file], arguments].concat()).output().expect("runs")
    };
    let read = |file: &str| Kubeconfig::read_from(Path::new(file)).expect("a kubeconfig");
    let hub = client(read(&hub_file)).await;
    let joined =
        run(&["join", "west", "--member-kubeconfig", &member_file, "--agent-kubeconfig", &agent_file]);
    says(&joined, true, &["The agent's kubeconfig of the hub is"]);
    let agent = client(read(&agent_file)).await;
    report(&hub, &agent).await;
    for (version, kind, plural, object) in objects() {
        let object = serde_json::from_value(object).expect("an object");
        let api = api(&hub, version, kind, plural, Some("default"));
        api.create(&PostParams::default(), &object).await.expect("created");
    }
    let works = api(&hub, "fleet.dev/v1alpha1", "Work", "works", Some("fleet-west"));
    wait_for_works(&works, 1).await;

    let refused = run(&["unjoin", "west", "--keep-member"]);
    says(&refused, false, &["\"west\" still has 1 objects", "ConfigMap default/settings", "--force"]);
    let clusters = api(&hub, "fleet.dev/v1alpha1", "Cluster", "clusters", None);
    api(&agent, "fleet.dev/v1alpha1", "Cluster", "clusters", None).get("west").await.expect("still its own");

    let mut command = fleet();
    command.args(["--kubeconfig", &hub_file, "unjoin", "--force", "west", "--keep-member"]);
    let forced = std::thread::spawn(move || command.output().expect("runs"));
    wait_until_refused(&agent).await;
    // Its jobs are ended later: it might still run them until its lease has run out.
    let cluster = clusters.get("west").await.expect("not before its lease has run out");
    let taints = cluster.data["spec"]["taints"].to_string();
    assert!(taints.contains("unschedulable") && !taints.contains("cluster.fleet.dev/gone"), "{taints}");
    assert_eq!(works.list(&Default::default()).await.expect("a list").items.len(), 1);
    let forced = tokio::task::spawn_blocking(|| forced.join().expect("no panic")).await.expect("joined");
    let told =
        ["has no rights on the hub any more", "west is declared gone", "cluster.fleet.dev/west deleted"];
    says(&forced, true, &told);
    says(&forced, true, &["rolebinding/member-agent deleted", "serviceaccount/member-agent deleted"]);
    assert_eq!(names(&hub, "fleet.dev/v1alpha1", "Cluster", "clusters").await, ["east"]);
    for _ in 0..600 {
        let all = names(&hub, "v1", "Namespace", "namespaces").await;
        if !all.iter().any(|name| name == "fleet-west") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("fleet-west is still there after a minute");
}

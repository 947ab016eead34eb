//! What the controller serves beside its work: the planner's view to those whom the hub lets read it, metrics to all.

use std::{collections::BTreeSet, net::SocketAddr};

use fleet_controller::serve_on;
use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{BATCH_JOB, CLUSTER_ROLE_BINDING},
    rights::{self, account_manifest, namespace_manifest},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

/// Head and body.
async fn get(address: SocketAddr, path: &str, authorization: &str) -> anyhow::Result<(String, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    Ok((head.to_lowercase(), body.to_string()))
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_is_for_those_whom_the_hub_lets_read_it() -> anyhow::Result<()> {
    let spec = FleetSpec::of("east 1x1").run_time(RunTime::Forever);
    let options = spec.controller.clone();
    let fleet = spec.start().await?;
    let hub = fleet.hub_with_roles();
    hub.tenant("team-a").await?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 5}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    fleet.apply(&Job::batch("secretive-first").manifest()).await?;
    fleet.wait_state(BATCH_JOB, "secretive-first", "Running").await?;
    fleet.apply(&Job::batch("secretive-second").manifest()).await?;
    fleet.wait_reason(BATCH_JOB, "secretive-second", "NoClusterFits").await?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    // With the rights of the chart.
    let client = hub.account(rights::CONTROLLER.0, rights::CONTROLLER.1).await?;
    let served = tokio::spawn({
        let (options, stop) = (options.clone(), stop.clone());
        async move { serve_on(&options, client, listener, stop).await }
    });
    let view = |authorization: String| async move { get(address, "/view", &authorization).await };

    for nobody in [String::new(), bearer("no-such-token"), "authorization: Basic YTpi\r\n".to_string()] {
        let (head, body) = view(nobody.clone()).await?;
        assert!(head.starts_with("http/1.1 401 "), "{nobody:?}: {head} {body}");
        assert!(head.contains("www-authenticate: bearer"), "{head}");
        assert!(!body.contains("secretive"), "{body}");
    }
    let tenant = hub.token("team-a", "tenant").await?;
    let (head, body) = view(bearer(&tenant)).await?;
    assert!(head.starts_with("http/1.1 403 "), "{head} {body}");
    assert!(body.contains("system:serviceaccount:team-a:tenant") && !body.contains("secretive"), "{body}");

    hub.apply(&[
        namespace_manifest("monitoring"),
        account_manifest("monitoring", "dashboards"),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "dashboards"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fleet-view-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "dashboards", "namespace": "monitoring"}]}),
    ])
    .await?;
    let reader = hub.token("monitoring", "dashboards").await?;
    fleet
        .wait_for("the view to name both jobs", async || {
            let (head, body) = view(bearer(&reader)).await?;
            let is = head.starts_with("http/1.1 200 ")
                && body.contains("secretive-first")
                && body.contains("secretive-second")
                && serde_json::from_str::<Value>(&body).is_ok_and(|view| view["sequence"].as_i64() > Some(0));
            Ok(Polled::when(is, || format!("{head}\n{body}")))
        })
        .await?;
    // A right that was taken away is gone at once.
    fleet.delete(CLUSTER_ROLE_BINDING, "", "dashboards").await?;
    let (head, _) = view(bearer(&reader)).await?;
    assert!(head.starts_with("http/1.1 403 "), "{head}");

    // Metrics are for all: no job, no namespace of one, and labels of a fixed set.
    let body = fleet
        .wait_for("metrics of waiting jobs", async || {
            let (head, body) = get(address, "/metrics", "").await?;
            let is = head.starts_with("http/1.1 200 ") && body.contains("fleet_waiting_jobs");
            Ok(if is { Polled::Yes(body) } else { Polled::NotYet(format!("{head}\n{body}")) })
        })
        .await?;
    assert!(!body.contains("secretive") && !body.contains("default"), "{body}");
    let labels: BTreeSet<&str> = body
        .lines()
        .filter_map(|line| line.split_once('{')?.1.split_once('}'))
        .flat_map(|(labels, _)| labels.split(','))
        .filter_map(|label| label.split_once('=').map(|(name, _)| name))
        .collect();
    let allowed = BTreeSet::from([
        "queue",
        "reason",
        "rule",
        "invariant",
        "le",
        "cluster",
        "resource",
        "unit",
        "process",
        "version",
    ]);
    assert!(labels.is_subset(&allowed), "{labels:?}");
    assert_eq!(get(address, "/healthz", "").await?.1, "ok");

    stop.cancel();
    served.await??;
    for name in ["secretive-first", "secretive-second"] {
        fleet.delete(BATCH_JOB, "default", name).await?;
    }
    fleet.finish().await
}

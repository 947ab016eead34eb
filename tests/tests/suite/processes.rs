//! Controller and agent as processes of their own, over TLS with kubeconfigs, as on real clusters: a queued
//! job runs, both processes are killed with SIGKILL while it does, started again, and it ends once.

use std::time::Duration;

use fleet_api::crds::Side;
use fleet_kubesim::hollow;
use fleet_tests::{
    ApiServers, Polled,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, BINDING, CLUSTER, POD, PYTORCH_JOB},
    process::{Daemon, program},
    servers::Door,
    wait_for,
};
use kube::Client;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(60);

async fn state(hub: &Client, name: &str) -> anyhow::Result<String> {
    let job = objects::get(hub, PYTORCH_JOB, "default", name).await?;
    Ok(job.as_ref().map(objects::job_state).unwrap_or_default())
}

async fn until_state(hub: &Client, name: &str, wanted: &str) -> anyhow::Result<()> {
    wait_for(&format!("{name} to be {wanted}"), WITHIN, async || {
        let seen = state(hub, name).await?;
        Ok(Polled::when(seen == wanted, || seen.clone()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn separate_processes_over_tls_outlive_a_kill() -> anyhow::Result<()> {
    let controller = program("fleet-controller")?;
    let agent = program("member-agent")?;
    let servers = ApiServers::from_env()?;
    let hub = servers.start("hub", Side::Hub, Door::Listening).await?;
    let east = servers.start("east", Side::Member, Door::Listening).await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = |plane: &fleet_tests::servers::Plane| -> anyhow::Result<String> {
        let path = folder.path().join(format!("{}.kubeconfig", plane.name));
        let address =
            plane.address.as_ref().ok_or_else(|| anyhow::anyhow!("{} does not listen", plane.name))?;
        std::fs::write(&path, &address.kubeconfig)?;
        Ok(path.display().to_string())
    };
    let (hub_file, east_file) = (kubeconfig(&hub)?, kubeconfig(&east)?);
    let start_controller = || Daemon::start(&controller, &["--kubeconfig", &hub_file]);
    let start_agent = || {
        let flags = ["--cluster", "east", "--hub-kubeconfig", &hub_file, "--member-kubeconfig", &east_file];
        let parts = ["--controllers", "pytorchjob", "--scheduler-names", "default-scheduler"];
        Daemon::start(&agent, &[&flags[..], &parts[..]].concat())
    };
    let stop = CancellationToken::new();
    let nodes = hollow::NodeSpec {
        count: 2,
        cpu: "64".to_string(),
        memory: "512Gi".to_string(),
        gpus: 8,
        labels: Default::default(),
        taints: Vec::new(),
    };
    let run_time = "3s".parse().map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let hollow =
        hollow::run(east.client.clone(), hollow::Options::new("east", nodes, run_time), stop.clone());
    let hollow = tokio::spawn(hollow);
    let first_controller = start_controller()?;
    let first_agent = start_agent()?;
    wait_for("the cluster to be ready", WITHIN, async || {
        let cluster = objects::get(&hub.client, CLUSTER, "", "east").await?;
        let ready =
            cluster.as_ref().and_then(|c| objects::condition(c, "Ready")).map(|c| c["status"].clone());
        Ok(Polled::when(ready == Some(json!("True")), || format!("{ready:?}")))
    })
    .await?;
    objects::apply(&hub.client, &quota_tree(json!({"kube-queue/max-jobs": 1}))).await?;
    objects::apply(&hub.client, &gang_policy(Queueing::Queued)).await?;
    // Two submitted at one moment may be admitted in either order, so the second comes once the first runs.
    objects::create(&hub.client, &Job::pytorch("a").runs("8s").manifest()).await?;
    until_state(&hub.client, "a", "Running").await?;
    objects::create(&hub.client, &Job::pytorch("b").runs("1s").manifest()).await?;
    until_state(&hub.client, "b", "Queuing").await?;
    let pods = |all: Vec<serde_json::Value>| -> Vec<String> {
        all.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap_or_default().to_string()).collect()
    };
    let before = pods(objects::list(&east.client, POD).await?);
    first_controller.kill()?;
    first_agent.kill()?;
    let _controller = start_controller()?;
    let _agent = start_agent()?;
    until_state(&hub.client, "a", "Succeeded").await?;
    let after = pods(objects::list(&east.client, POD).await?);
    assert!(before.iter().all(|uid| after.contains(uid)), "the pods that ran are the pods that ended");
    until_state(&hub.client, "b", "Succeeded").await?;
    for name in ["a", "b"] {
        // The job's status and the binding's result are two writes.
        wait_for("the result of the run", WITHIN, async || {
            let binding =
                objects::get(&hub.client, BINDING, "default", &format!("{name}-pytorchjob")).await?;
            let binding = binding.unwrap_or_default();
            let (epoch, outcome) = (&binding["spec"]["epoch"], &binding["status"]["result"]["outcome"]);
            assert_eq!(epoch, 1, "{name} ran once");
            Ok(Polled::when(outcome == "Succeeded", || format!("{name}: {outcome}")))
        })
        .await?;
    }
    stop.cancel();
    hollow.await??;
    Ok(())
}

//! The action enqueue holds back groups that their queue has no room for, also while the agent is killed with SIGKILL:
//! drivers that exist before the agent starts pass no gate, whatever it sees first.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::Context;
use fleet_api::{crds::Side, names::SIM_RUNTIME_ANNOTATION};
use fleet_kubesim::{RunTime, hollow};
use fleet_tests::{
    ApiServers, Polled,
    objects::{self, POD, POD_GROUP},
    process::{Daemon, program},
    servers::{Door, Plane},
    wait_for,
};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(60);
const GROUPS: usize = 20;
/// Four nodes of 8 cpu have room for so many groups of 6 cpu.
const MAY_ENTER: usize = 5;
/// Restarts of the agent after which the place of a query that has ended is taken. Such a query is gone with its group.
const ROUNDS: usize = 3;
/// Groups at the end that wait outside.
const WAIT: usize = GROUPS - ROUNDS - MAY_ENTER;

/// The group of a query: a driver of 1 cpu, which creates executors of 5 cpu once it runs.
fn group(name: &str) -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": 1, "minResources": {"cpu": "6"}}})
}

fn pod(name: &str, group: Option<&str>, cpu: &str) -> Value {
    let mut annotations = json!({SIM_RUNTIME_ANNOTATION: "forever"});
    if let Some(group) = group {
        annotations["scheduling.k8s.io/group-name"] = group.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [{
            "name": "main", "image": "registry.example.com/spark:v1", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// Names of the pods that have a node.
async fn bound(member: &Client) -> anyhow::Result<Vec<String>> {
    let pods = objects::list(member, POD).await?;
    let bound = pods.iter().filter(|pod| !pod["spec"]["nodeName"].is_null());
    Ok(bound.map(|pod| objects::name_of(pod).to_string()).collect())
}

fn drivers(bound: &[String]) -> usize {
    bound.iter().filter(|name| name.ends_with("-driver")).count()
}

async fn until_bound(member: &Client, what: &str, enough: impl Fn(&[String]) -> bool) -> anyhow::Result<()> {
    wait_for(what, WITHIN, async || {
        let bound = bound(member).await?;
        Ok(Polled::when(enough(&bound), || format!("bound: {bound:?}")))
    })
    .await
}

/// One of the queries has ended: its pod and its group are gone.
async fn end_one(member: &Client) -> anyhow::Result<()> {
    let running = bound(member).await?;
    let driver = running.iter().find(|name| name.ends_with("-driver")).context("a driver")?;
    objects::delete(member, POD, "default", driver).await?;
    objects::delete(member, POD_GROUP, "default", driver.trim_end_matches("-driver")).await?;
    wait_for(&format!("{driver} to be gone"), WITHIN, async || {
        let found = objects::get(member, POD, "default", driver).await?;
        Ok(Polled::when(found.is_none(), || format!("{found:?}")))
    })
    .await
}

fn kubeconfig(folder: &Path, plane: &Plane) -> anyhow::Result<String> {
    let path = folder.join(format!("{}.kubeconfig", plane.name));
    let address = plane.address.as_ref().with_context(|| format!("{} does not listen", plane.name))?;
    std::fs::write(&path, &address.kubeconfig)?;
    Ok(path.display().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_groups_enter_than_fit_however_often_the_agent_is_killed() -> anyhow::Result<()> {
    let agent = program("member-agent")?;
    let servers = ApiServers::from_env()?;
    let hub = servers.start("hub", Side::Hub, Door::Listening).await?;
    let east = servers.start("east", Side::Member, Door::Listening).await?;
    let folder = tempfile::tempdir()?;
    let (hub_file, east_file) = (kubeconfig(folder.path(), &hub)?, kubeconfig(folder.path(), &east)?);
    let start_agent = || {
        let flags = ["--cluster", "east", "--hub-kubeconfig", &hub_file, "--member-kubeconfig", &east_file];
        let parts = ["--controllers", "volcanojob", "--scheduler-names", "volcano"];
        Daemon::start(&agent, &[&flags[..], &parts[..]].concat())
    };
    let nodes = hollow::NodeSpec {
        count: 4,
        cpu: "8".to_string(),
        memory: "64Gi".to_string(),
        gpus: 0,
        labels: BTreeMap::new(),
        taints: Vec::new(),
    };
    let stop = CancellationToken::new();
    let options = hollow::Options::new("east", nodes, RunTime::Forever);
    let hollow = tokio::spawn(hollow::run(east.client.clone(), options, stop.clone()));
    for i in 0..GROUPS {
        let name = format!("query-{i:02}");
        objects::create(&east.client, &group(&name)).await?;
        objects::create(&east.client, &pod(&format!("{name}-driver"), Some(&name), "1")).await?;
    }

    let first_agent = start_agent()?;
    until_bound(&east.client, "a driver to be bound", |bound| drivers(bound) > 0).await?;
    first_agent.kill()?;
    for _ in 0..ROUNDS {
        let next_agent = start_agent()?;
        until_bound(&east.client, "drivers in all places", |bound| drivers(bound) >= MAY_ENTER).await?;
        next_agent.kill()?;
        end_one(&east.client).await?;
    }
    let _agent = start_agent()?;
    until_bound(&east.client, "drivers in all places", |bound| drivers(bound) >= MAY_ENTER).await?;
    // A pod without a group enters at once: what is bound then was seen by this agent, and so were the groups. The
    // second one comes a cycle later.
    for name in ["first", "second"] {
        objects::create(&east.client, &pod(name, None, "100m")).await?;
        until_bound(&east.client, &format!("pod {name} to be bound"), |bound| {
            bound.iter().any(|other| other == name)
        })
        .await?;
    }
    let at_last = bound(&east.client).await?;
    assert_eq!(drivers(&at_last), MAY_ENTER, "{at_last:?}");
    // The phase is the object's: who waits outside is Pending, also for whoever reads it after a restart.
    wait_for("the groups to tell their phases", WITHIN, async || {
        let groups = objects::list(&east.client, POD_GROUP).await?;
        let mut phases: BTreeMap<String, usize> = BTreeMap::new();
        for group in groups.iter().filter(|group| objects::name_of(group).starts_with("query-")) {
            let phase = group["status"]["phase"].as_str().unwrap_or("none").to_string();
            *phases.entry(phase).or_default() += 1;
        }
        let right = BTreeMap::from([("Pending".to_string(), WAIT), ("Running".to_string(), MAY_ENTER)]);
        Ok(Polled::when(phases == right, || format!("{phases:?}")))
    })
    .await?;
    stop.cancel();
    hollow.await??;
    Ok(())
}

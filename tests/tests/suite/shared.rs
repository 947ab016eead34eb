//! Members that others use as well: a training operator makes the pods, another scheduler binds what is not Fleet's.

use std::time::Duration;

use fleet_api::names;
use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, PYTORCH_JOB},
};
use serde_json::{Value, json};

async fn start(scheduling: Option<&str>) -> anyhow::Result<TestFleet> {
    start_with(policy(scheduling)).await
}

async fn start_with(policy: Value) -> anyhow::Result<TestFleet> {
    let fleet =
        FleetSpec::of("east 3x4").shared().run_time(RunTime::For(Duration::from_secs(2))).start().await?;
    fleet.apply(&policy).await?;
    Ok(fleet)
}

fn policy(scheduling: Option<&str>) -> Value {
    let mut policy = gang_policy(Queueing::AtOnce);
    if let Some(scheduling) = scheduling {
        policy["spec"]["podScheduling"] = scheduling.into();
    }
    policy
}

/// A tenant's pod, which the cluster's own scheduler binds; returns its node.
async fn tenant(fleet: &TestFleet, name: &str, gpus: u32) -> anyhow::Result<String> {
    let amounts = json!({"nvidia.com/gpu": gpus.to_string()});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
            "annotations": {names::SIM_RUNTIME_ANNOTATION: "forever"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example.com/c:1",
            "resources": {"requests": amounts, "limits": amounts}}]}});
    objects::apply(&fleet.member("east")?, &pod).await?;
    fleet
        .wait_for(&format!("pod {name} to be bound"), async || {
            let found = objects::get(&fleet.member("east")?, objects::POD, "default", name).await?;
            let node = found.and_then(|pod| pod["spec"]["nodeName"].as_str().map(str::to_string));
            Ok(node.map_or(Polled::NotYet("no node".to_string()), Polled::Yes))
        })
        .await
}

async fn gpus_allocated(fleet: &TestFleet) -> anyhow::Result<(String, Value)> {
    let cluster = fleet.get(objects::CLUSTER, "", "east").await?.unwrap_or_default();
    let sums = &cluster["status"]["resourceSummary"];
    let allocated = sums["allocated"]["nvidia.com/gpu"].as_str().unwrap_or("0").to_string();
    Ok((allocated, sums["allocating"]["nvidia.com/gpu"].clone()))
}

/// The job's pods when all of them run, and what the cluster says is allocated then and stays so.
async fn running(fleet: &TestFleet, name: &str, pods: usize, allocated: &str) -> anyhow::Result<Vec<Value>> {
    fleet
        .wait_for(&format!("all pods of {name} to run and to be counted once"), async || {
            let found: Vec<Value> = fleet.pods_of(name).await?.into_iter().map(|(_, pod)| pod).collect();
            let all = found.len() == pods && found.iter().all(|pod| pod["status"]["phase"] == "Running");
            let sums = gpus_allocated(fleet).await?;
            Ok(if all && sums == (allocated.to_string(), Value::Null) {
                Polled::Yes(found)
            } else {
                Polled::NotYet(format!("{} pods, {sums:?}", found.len()))
            })
        })
        .await
}

#[tokio::test]
async fn an_operators_gang_is_bound_by_the_agent_and_counts_once() -> anyhow::Result<()> {
    let fleet = start(None).await?;
    let taken = tenant(&fleet, "tenant", 4).await?;
    fleet.apply(&Job::pytorch("a").workers(1).gpus(4).manifest()).await?;
    let pods = running(&fleet, "a", 2, "12").await?;
    for pod in &pods {
        assert_eq!(pod["spec"]["schedulerName"], "fleet");
        assert_eq!(pod["metadata"]["annotations"][names::GANG_SIZE_ANNOTATION], "2");
        assert_eq!(pod["metadata"]["labels"]["training.kubeflow.org/operator-name"], "pytorchjob-controller");
        assert_ne!(pod["spec"]["nodeName"], taken.as_str());
    }
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_gang_behind_gates_goes_to_its_places_as_one() -> anyhow::Result<()> {
    let fleet = start(Some("Gates")).await?;
    let taken = tenant(&fleet, "tenant", 1).await?;
    fleet.apply(&Job::pytorch("a").workers(1).gpus(4).manifest()).await?;
    let pods = running(&fleet, "a", 2, "9").await?;
    for pod in &pods {
        // The cluster's own scheduler has bound it.
        assert!(
            pod["spec"]["schedulerName"].as_str().is_none_or(|name| name == "default-scheduler"),
            "{pod}"
        );
        assert_eq!(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"], pod["spec"]["nodeName"]);
        assert_ne!(pod["spec"]["nodeName"], taken.as_str());
    }
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn templates_as_written_are_counted_once_whoever_binds_them() -> anyhow::Result<()> {
    let mut of_all = policy(Some("AsWritten"));
    of_all["kind"] = objects::CLUSTER_POLICY.kind.into();
    of_all["metadata"] = json!({"name": of_all["metadata"]["name"]});
    let fleet = start_with(of_all).await?;
    fleet.apply(&Job::pytorch("a").workers(1).gpus(4).manifest()).await?;
    let pods = running(&fleet, "a", 2, "8").await?;
    for pod in &pods {
        assert!(pod["metadata"]["annotations"][names::RESERVATION_ANNOTATION].is_null(), "{pod}");
    }
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.finish().await
}

/// The member's own scheduler would preempt others for him, on places and cells that it does not know.
#[tokio::test]
async fn no_tenants_policy_hands_a_gang_to_another_scheduler() -> anyhow::Result<()> {
    let fleet = start(Some("AsWritten")).await?;
    fleet.apply(&Job::pytorch("a").workers(1).gpus(4).manifest()).await?;
    let pods = running(&fleet, "a", 2, "8").await?;
    for pod in &pods {
        assert_eq!(pod["spec"]["schedulerName"], "fleet");
        assert!(pod["metadata"]["annotations"][names::RESERVATION_ANNOTATION].is_string(), "{pod}");
    }
    let binding = fleet.binding(PYTORCH_JOB, "a").await?;
    let told = objects::condition(&binding, "Sendable").cloned().unwrap_or_default();
    let message = told["message"].as_str().unwrap_or_default();
    assert_eq!(told["status"], "False", "{told}");
    assert!(message.contains("podScheduling of its policy: found AsWritten"), "{told}");
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_policy_that_changes_leaves_the_templates_of_what_runs() -> anyhow::Result<()> {
    let fleet = start(None).await?;
    fleet.apply(&Job::pytorch("a").workers(1).gpus(4).runs("forever").manifest()).await?;
    let before = running(&fleet, "a", 2, "8").await?;
    fleet.apply(&policy(Some("Gates"))).await?;
    fleet.apply(&Job::pytorch("b").workers(0).gpus(1).manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    let uids = |pods: &[Value]| pods.iter().map(|pod| pod["metadata"]["uid"].clone()).collect::<Vec<_>>();
    let now: Vec<Value> = fleet.pods_of("a").await?.into_iter().map(|(_, pod)| pod).collect();
    assert_eq!(uids(&now), uids(&before));
    let binding = fleet.binding(PYTORCH_JOB, "a").await?;
    assert!(binding["spec"]["podScheduling"].is_null(), "settled when it was sent: {}", binding["spec"]);
    fleet.finish().await
}

#[tokio::test]
async fn a_gang_waits_whole_while_others_hold_the_room_and_then_starts() -> anyhow::Result<()> {
    let fleet = start(None).await?;
    for name in ["t0", "t1"] {
        tenant(&fleet, name, 3).await?;
    }
    fleet.apply(&Job::pytorch("a").workers(1).gpus(4).manifest()).await?;
    fleet.wait_reason(PYTORCH_JOB, "a", "NoClusterFits").await?;
    assert!(fleet.pods_of("a").await?.is_empty());
    objects::delete(&fleet.member("east")?, objects::POD, "default", "t0").await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.finish().await
}

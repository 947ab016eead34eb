//! Jobs that fail: for good, or to run again elsewhere.

use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, PYTORCH_JOB},
};
use serde_json::{Value, json};

/// The policy of gangs, east first, with failover at once and so many runs.
fn policy(queueing: Queueing, runs: i64) -> Value {
    let mut policy = gang_policy(queueing);
    policy["spec"]["failover"] = json!({"application": {
        "decisionConditions": {"tolerationSeconds": 0}, "purgeMode": "Directly", "backoffLimit": runs}});
    policy["spec"]["placement"]["clusterAffinities"] = json!([
        {"affinityName": "first", "clusterNames": ["east"]}, {"affinityName": "others"}]);
    policy
}

fn clusters_tried(binding: &Value) -> Vec<(String, i64)> {
    let attempts = binding["status"]["attempts"].as_array().cloned().unwrap_or_default();
    let read = |attempt: &Value| {
        (attempt["cluster"].as_str().unwrap_or_default().to_string(), attempt["epoch"].as_i64().unwrap_or(0))
    };
    attempts.iter().map(read).collect()
}

async fn wait_result(fleet: &TestFleet, outcome: &str) -> anyhow::Result<Value> {
    fleet
        .wait_for(&format!("the result {outcome}"), async || {
            let binding = fleet.binding(PYTORCH_JOB, "a").await.unwrap_or_default();
            let seen = binding["status"].to_string();
            let right = binding["status"]["result"]["outcome"] == outcome;
            Ok(if right { Polled::Yes(binding) } else { Polled::NotYet(seen) })
        })
        .await
}

#[tokio::test]
async fn without_failover_a_failure_is_the_end() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").start().await?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 1}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    fleet.apply(&Job::pytorch("a").fails_on("east,west").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Failed").await?;
    let binding = wait_result(&fleet, "Failed").await?;
    assert_eq!(binding["spec"]["epoch"], 1);
    assert_eq!(clusters_tried(&binding), []);
    // Its quota is free for the next.
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_job_that_fails_in_one_cluster_succeeds_in_another() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").start().await?;
    fleet.apply(&policy(Queueing::AtOnce, 3)).await?;
    fleet.apply(&Job::pytorch("a").fails_on("east").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    let binding = wait_result(&fleet, "Succeeded").await?;
    assert_eq!(clusters_tried(&binding), [("east".to_string(), 1)]);
    assert_eq!(binding["spec"]["epoch"], 2);
    assert_eq!(binding["status"]["result"]["cluster"], "west");
    let events = fleet.events_of(PYTORCH_JOB, "a").await?;
    let taken_back = events.iter().find(|event| event["reason"] == "ApplicationFailure");
    let taken_back = taken_back.cloned().unwrap_or_default();
    assert_eq!(taken_back["type"], "Warning");
    assert!(taken_back["message"].as_str().is_some_and(|m| m.contains("east")), "{taken_back}");
    let left: Vec<String> = fleet.pods_of("a").await?.into_iter().map(|(at, _)| at).collect();
    assert!(left.iter().all(|at| at == "west"), "{left:?}");
    fleet.finish().await
}

#[tokio::test]
async fn a_queued_job_that_fails_everywhere_ends_failed_and_frees_its_quota() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").start().await?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 1}))).await?;
    fleet.apply(&policy(Queueing::Queued, 2)).await?;
    fleet.apply(&Job::pytorch("a").fails_on("east,west").manifest()).await?;
    let binding = wait_result(&fleet, "Failed").await?;
    assert_eq!(clusters_tried(&binding), [("east".to_string(), 1)]);
    assert_eq!(binding["spec"]["epoch"], 2);
    fleet.wait_state(PYTORCH_JOB, "a", "Failed").await?;
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_job_deleted_while_it_moves_leaves_nothing() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").start().await?;
    fleet.apply(&policy(Queueing::AtOnce, 3)).await?;
    fleet.apply(&Job::pytorch("a").fails_on("east").runs("100ms").manifest()).await?;
    fleet
        .wait_for("the first run to be taken back", async || {
            let binding = fleet.get(objects::BINDING, "default", "a-pytorchjob").await?.unwrap_or_default();
            Ok(Polled::when(!clusters_tried(&binding).is_empty(), || binding["status"].to_string()))
        })
        .await?;
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.wait_gone(objects::BINDING, "default", "a-pytorchjob").await?;
    fleet
        .wait_for("the members to be clean", async || {
            let left = fleet.pods_of("a").await?.len() + fleet.member_objects(PYTORCH_JOB).await?.len();
            Ok(Polled::when(left == 0, || format!("{left} objects")))
        })
        .await?;
    fleet.finish().await
}

//! Clusters that are cut off, tainted or drained, and names that are taken: jobs move, never run twice, and leave nothing.

use std::time::Duration;

use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    fleet::Part,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, BINDING, CLUSTER, PYTORCH_JOB},
};
use serde_json::{Value, json};

/// Gangs go east first; `failover` is the policy's.
fn policy(failover: Value) -> Value {
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["spec"]["failover"] = failover;
    policy["spec"]["placement"]["clusterAffinities"] = json!([
        {"affinityName": "first", "clusterNames": ["east"]}, {"affinityName": "others"}]);
    policy
}

async fn start(failover: Value) -> anyhow::Result<TestFleet> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").quick_leases().start().await?;
    fleet.apply(&policy(failover)).await?;
    fleet.apply(&Job::pytorch("a").runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    Ok(fleet)
}

fn attempts(binding: &Value) -> Vec<(String, String)> {
    let list = binding["status"]["attempts"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    list.iter().map(|attempt| (text(&attempt["cluster"]), text(&attempt["reason"]))).collect()
}

async fn wait_running_in(fleet: &TestFleet, job: &str, cluster: &str) -> anyhow::Result<Value> {
    fleet
        .wait_for(&format!("{job} to run in {cluster}"), async || {
            let binding = fleet.binding(PYTORCH_JOB, job).await.unwrap_or_default();
            let there = binding["spec"]["clusters"][0]["name"] == cluster
                && !binding["status"]["run"]["startedAt"].is_null()
                && binding["status"]["run"]["epoch"] == binding["spec"]["epoch"];
            let seen = format!("{} {}", binding["spec"]["clusters"], binding["status"]);
            Ok(if there { Polled::Yes(binding) } else { Polled::NotYet(seen) })
        })
        .await
}

async fn wait_nothing_in(fleet: &TestFleet, cluster: &str) -> anyhow::Result<()> {
    fleet
        .wait_for(&format!("{cluster} to be clean"), async || {
            let mut left = fleet.member_objects(PYTORCH_JOB).await?;
            left.extend(fleet.member_objects(objects::POD).await?);
            left.retain(|(at, _)| at == cluster);
            Ok(Polled::when(left.is_empty(), || format!("{} objects", left.len())))
        })
        .await
}

#[tokio::test]
async fn a_job_leaves_a_cluster_that_is_cut_off_and_its_return_changes_nothing() -> anyhow::Result<()> {
    let fleet = start(json!({"cluster": {"tolerationSeconds": 0}})).await?;
    fleet.link("east")?.cut();
    let binding = wait_running_in(&fleet, "a", "west").await?;
    assert_eq!(binding["spec"]["epoch"], 2);
    assert_eq!(attempts(&binding), [("east".to_string(), "ClusterLost".to_string())]);
    fleet.link("east")?.heal();
    wait_nothing_in(&fleet, "east").await?;
    let binding = wait_running_in(&fleet, "a", "west").await?;
    assert_eq!(binding["spec"]["epoch"], 2);
    assert_eq!(fleet.job_state(PYTORCH_JOB, "a").await?, "Running");
    // The checker looks at the whole history: no two runs of the job had pods at one time.
    fleet.finish().await
}

#[tokio::test]
async fn a_restarted_hub_still_moves_the_job() -> anyhow::Result<()> {
    let mut fleet = start(json!({"cluster": {"tolerationSeconds": 0}})).await?;
    fleet.link("east")?.cut();
    fleet.kill(&Part::Controller).await;
    fleet.begin(Part::Controller)?;
    wait_running_in(&fleet, "a", "west").await?;
    fleet.link("east")?.heal();
    wait_nothing_in(&fleet, "east").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_short_cut_moves_nothing() -> anyhow::Result<()> {
    let fleet = start(json!({"cluster": {"tolerationSeconds": 0}})).await?;
    fleet.link("east")?.cut();
    // What must not happen has no event to wait for: half of the time until the lease runs out.
    tokio::time::sleep(Duration::from_secs(1)).await;
    fleet.link("east")?.heal();
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    let binding = fleet.binding(PYTORCH_JOB, "b").await?;
    assert_eq!(attempts(&binding), []);
    assert_eq!(binding["status"]["result"]["cluster"], "east");
    fleet.finish().await
}

#[tokio::test]
async fn without_cluster_failover_a_job_runs_on_through_a_cut() -> anyhow::Result<()> {
    let fleet = start(json!({"application": {}})).await?;
    fleet.link("east")?.cut();
    fleet
        .wait_for("the loss to be told", async || {
            let binding = fleet.binding(PYTORCH_JOB, "a").await.unwrap_or_default();
            let told = objects::condition(&binding, "ClusterReachable").cloned().unwrap_or_default();
            Ok(Polled::when(told["reason"] == "ClusterNotReady", || binding["status"].to_string()))
        })
        .await?;
    assert_eq!(fleet.pods_of("a").await?.len(), 2);
    fleet.link("east")?.heal();
    let binding = wait_running_in(&fleet, "a", "east").await?;
    assert_eq!(attempts(&binding), []);
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_job_deleted_while_its_cluster_is_away_is_removed_when_it_returns() -> anyhow::Result<()> {
    let fleet = start(json!({"application": {}})).await?;
    fleet.link("east")?.cut();
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.wait_gone(BINDING, "default", "a-pytorchjob").await?;
    // One of the same name waits for its end; others do not.
    fleet.apply(&Job::pytorch("a").manifest()).await?;
    fleet.wait_reason(PYTORCH_JOB, "a", "Backoff").await?;
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    fleet.link("east")?.heal();
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn an_object_of_the_same_name_is_left_alone_and_the_job_runs_elsewhere() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").start().await?;
    fleet.apply(&policy(json!({}))).await?;
    let mut own = Job::pytorch("a").label("whose", "mine").manifest();
    // Without pods: the checker knows jobs by their names.
    own["spec"]["runPolicy"]["suspend"] = json!(true);
    objects::apply(&fleet.member("east")?, &own).await?;
    fleet.apply(&Job::pytorch("a").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    let binding = fleet.binding(PYTORCH_JOB, "a").await?;
    assert_eq!(attempts(&binding), [("east".to_string(), "NameTaken".to_string())]);
    assert_eq!(binding["status"]["result"]["cluster"], "west");
    let untouched =
        objects::get(&fleet.member("east")?, PYTORCH_JOB, "default", "a").await?.unwrap_or_default();
    assert_eq!(untouched["metadata"]["labels"], json!({"whose": "mine"}));
    objects::delete(&fleet.member("east")?, PYTORCH_JOB, "default", "a").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_drained_cluster_is_empty_in_the_end() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").start().await?;
    fleet.apply(&policy(json!({}))).await?;
    for name in ["a", "b"] {
        fleet.apply(&Job::pytorch(name).runs("forever").manifest()).await?;
        wait_running_in(&fleet, name, "east").await?;
    }
    let taints = json!({"spec": {"taints": [
        {"key": "cluster.fleet.dev/unschedulable", "effect": "NoSchedule"},
        {"key": "cluster.fleet.dev/drain", "effect": "NoExecute"}]}});
    objects::merge(&fleet.hub(), CLUSTER, "", "east", &taints).await?;
    for name in ["a", "b"] {
        let binding = wait_running_in(&fleet, name, "west").await?;
        assert_eq!(attempts(&binding), [("east".to_string(), "Drained".to_string())]);
    }
    wait_nothing_in(&fleet, "east").await?;
    fleet.finish().await
}

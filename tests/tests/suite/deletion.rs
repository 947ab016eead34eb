//! Jobs that are deleted, at any point of their lives, leave nothing behind.

use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, BINDING, PYTORCH_JOB, QUEUE_UNIT},
};
use serde_json::json;

/// Neither the hub nor a member has anything of the job.
async fn wait_nothing_left(fleet: &TestFleet, job: &str) -> anyhow::Result<()> {
    fleet.wait_gone(PYTORCH_JOB, "default", job).await?;
    fleet.wait_gone(BINDING, "default", &format!("{job}-pytorchjob")).await?;
    fleet.wait_gone(QUEUE_UNIT, "default", &format!("{job}-pytorchjob-rb-qu")).await?;
    fleet
        .wait_for("the members to be clean", async || {
            let jobs = fleet.member_objects(PYTORCH_JOB).await?.len();
            let pods = fleet.pods_of(job).await?.len();
            let snapshot = fleet.snapshot().await?;
            let clean = jobs == 0 && pods == 0 && snapshot.works.is_empty() && snapshot.holds.is_empty();
            Ok(Polled::when(clean, || format!("{jobs} jobs, {pods} pods\n{snapshot}")))
        })
        .await
}

#[tokio::test]
async fn a_running_job_leaves_nothing() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8, west 2x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&Job::pytorch("a").workers(3).runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    wait_nothing_left(&fleet, "a").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_finished_job_leaves_nothing() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&Job::pytorch("a").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    wait_nothing_left(&fleet, "a").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_waiting_job_leaves_nothing_and_lets_the_next_one_pass() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8").start().await?;
    fleet.apply(&quota_tree(json!({"nvidia.com/gpu": 2}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    // Four GPUs are more than the quota will ever have; the head of the queue waits for good.
    fleet.apply(&Job::pytorch("a").workers(3).manifest()).await?;
    fleet.wait_reason(PYTORCH_JOB, "a", "ExceedsQuota").await?;
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    wait_nothing_left(&fleet, "a").await?;
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_job_made_again_under_its_name_is_a_new_job() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let mut uids = Vec::new();
    for round in 0..3 {
        let job = fleet.apply(&Job::pytorch("a").runs("forever").manifest()).await?;
        let uid = job["metadata"]["uid"].clone();
        assert!(!uids.contains(&uid), "round {round}");
        fleet
            .wait_for("the new job to run", async || {
                let job = fleet.get(PYTORCH_JOB, "default", "a").await?.unwrap_or_default();
                let state = objects::job_state(&job);
                let binding = fleet.get(BINDING, "default", "a-pytorchjob").await?.unwrap_or_default();
                let own = binding["spec"]["resource"]["uid"] == uid;
                Ok(Polled::when(own && state == "Running", || format!("{state}, {}", binding["spec"])))
            })
            .await?;
        uids.push(uid);
        // The next one is made at once, while the members still clean up after this one.
        fleet.delete(PYTORCH_JOB, "default", "a").await?;
        fleet.wait_gone(PYTORCH_JOB, "default", "a").await?;
    }
    wait_nothing_left(&fleet, "a").await?;
    fleet.finish().await
}

#[tokio::test]
async fn an_object_that_fleet_did_not_make_is_left_alone() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let member = fleet.member("east")?;
    let foreign = Job::pytorch("a").workers(2).runs("forever").manifest();
    let foreign = objects::apply(&member, &foreign).await?;
    fleet.apply(&Job::pytorch("a").manifest()).await?;
    fleet
        .wait_for("the binding to say that the name is taken", async || {
            let binding = fleet.get(BINDING, "default", "a-pytorchjob").await?.unwrap_or_default();
            let text = binding["status"].to_string();
            Ok(Polled::when(text.contains("NameTaken"), || text.clone()))
        })
        .await?;
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.wait_gone(BINDING, "default", "a-pytorchjob").await?;
    let standing = objects::get(&member, PYTORCH_JOB, "default", "a").await?.unwrap_or_default();
    assert_eq!(standing["metadata"]["uid"], foreign["metadata"]["uid"]);
    assert_eq!(standing["spec"], foreign["spec"]);
    fleet.finish().await
}

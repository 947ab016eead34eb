//! All pods of a job or none: gangs that compete for the same places.

use std::time::Duration;

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, PYTORCH_JOB},
};
use futures::future::try_join_all;
use serde_json::json;

/// Two pods of four GPUs each: two whole nodes of `x4`.
fn pair(name: &str) -> Job {
    Job::pytorch(name).workers(1).gpus(4)
}

#[tokio::test]
async fn of_two_gangs_with_room_for_one_the_second_waits_whole() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x4").run_time(RunTime::For(Duration::from_secs(4))).start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    // Both are there before either is looked at, as nearly as a client can have it.
    let (a, b) = (pair("a").manifest(), pair("b").manifest());
    futures::try_join!(fleet.apply(&a), fleet.apply(&b))?;
    let (first, second) = fleet
        .wait_for("one of them to run", async || {
            let (a, b) = (fleet.job_state(PYTORCH_JOB, "a").await?, fleet.job_state(PYTORCH_JOB, "b").await?);
            Ok(match (a.as_str(), b.as_str()) {
                ("Running", _) => Polled::Yes(("a", "b")),
                (_, "Running") => Polled::Yes(("b", "a")),
                _ => Polled::NotYet(format!("{a:?} {b:?}")),
            })
        })
        .await?;
    // What it is doing is told a moment later.
    fleet.wait_state(PYTORCH_JOB, second, "Created").await?;
    assert_eq!(fleet.job_state(PYTORCH_JOB, first).await?, "Running");
    assert!(fleet.pods_of(second).await?.is_empty(), "the second gang has pods");
    fleet.wait_state(PYTORCH_JOB, first, "Succeeded").await?;
    fleet.wait_state(PYTORCH_JOB, second, "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn of_two_queued_gangs_with_room_for_one_the_second_holds_no_quota() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x4").start().await?;
    fleet.apply(&quota_tree(json!({"nvidia.com/gpu": 100}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    let (a, b) = (pair("a").runs("forever").manifest(), pair("b").runs("forever").manifest());
    futures::try_join!(fleet.apply(&a), fleet.apply(&b))?;
    let used = fleet
        .wait_for("one to run and the other to wait for a cluster", async || {
            let mut states = Vec::new();
            for job in ["a", "b"] {
                let binding = fleet
                    .get(objects::BINDING, "default", &format!("{job}-pytorchjob"))
                    .await?
                    .unwrap_or_default();
                let reason = objects::condition(&binding, "Scheduled").map(|c| c["reason"].clone());
                states.push((fleet.job_state(PYTORCH_JOB, job).await?, reason.unwrap_or_default()));
            }
            states.sort_by_key(|(state, _)| state != "Queuing");
            let tree = fleet.get(objects::QUOTA_TREE, "kube-system", "tree").await?.unwrap_or_default();
            let used = tree["status"]["root"]["used"].clone();
            let settled = states[0] == ("Queuing".to_string(), json!("NoClusterFits"))
                && states[1].0 == "Running"
                && used["kube-queue/max-jobs"] == "1";
            Ok(if settled { Polled::Yes(used) } else { Polled::NotYet(format!("{states:?} {used}")) })
        })
        .await?;
    assert_eq!(used["nvidia.com/gpu"], "8");
    fleet.finish().await
}

#[tokio::test]
async fn a_gang_is_never_spread_over_two_clusters() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x4, west 1x4").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&pair("a").manifest()).await?;
    fleet.wait_reason(PYTORCH_JOB, "a", "ExceedsEveryCluster").await?;
    assert!(fleet.pods_of("a").await?.is_empty());
    fleet.finish().await
}

#[tokio::test]
async fn a_gang_needs_whole_places_not_a_sum() -> anyhow::Result<()> {
    // Six GPUs are free, in threes; three pods of two fit only twice.
    let fleet = FleetSpec::of("east 2x3").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&Job::pytorch("a").workers(2).gpus(2).manifest()).await?;
    fleet.wait_reason(PYTORCH_JOB, "a", "ExceedsEveryCluster").await?;
    fleet.apply(&Job::pytorch("b").workers(1).gpus(2).manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    assert!(fleet.pods_of("a").await?.is_empty());
    fleet.finish().await
}

#[tokio::test]
async fn many_gangs_share_few_places_one_after_the_other() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x4, west 2x4")
        .run_time(RunTime::For(Duration::from_millis(200)))
        .start()
        .await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let jobs: Vec<_> = (0..8).map(|i| pair(&format!("job-{i}")).manifest()).collect();
    try_join_all(jobs.iter().map(|job| fleet.apply(job))).await?;
    for i in 0..8 {
        fleet.wait_state(PYTORCH_JOB, &format!("job-{i}"), "Succeeded").await?;
    }
    fleet.finish().await
}

//! A job that has ended is never run again, however soon its cluster forgets it.

use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    fleet::Part,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, BATCH_JOB, PYTORCH_JOB},
};
use serde_json::{Value, json};

async fn wait_succeeded_once(fleet: &TestFleet, kind: objects::Kind, job: &str) -> anyhow::Result<()> {
    fleet
        .wait_for(&format!("{job} to have succeeded"), async || {
            let binding = fleet.binding(kind, job).await.unwrap_or_default();
            let outcome = &binding["status"]["result"]["outcome"];
            Ok(Polled::when(outcome == "Succeeded", || binding["status"].to_string()))
        })
        .await?;
    let binding = fleet.binding(kind, job).await?;
    assert_eq!(binding["spec"]["epoch"], 1, "{binding:#}");
    let history = fleet.history();
    let pods = |change: &&fleet_check::ObservedChange| {
        change.cluster.is_some() && change.object["metadata"]["ownerReferences"][0]["name"] == job
    };
    let names: std::collections::BTreeMap<String, std::collections::BTreeSet<String>> =
        history.changes.iter().filter(pods).fold(Default::default(), |mut all, change| {
            let text =
                |field: &str| change.object["metadata"][field].as_str().unwrap_or_default().to_string();
            let uids: &mut std::collections::BTreeSet<String> = all.entry(text("name")).or_default();
            uids.insert(text("uid"));
            all
        });
    assert!(!names.is_empty() && names.values().all(|uids| uids.len() == 1), "{job} ran once: {names:?}");
    Ok(())
}

/// Forgotten by its cluster in the moment it ends.
fn forgotten(mut job: Value) -> Value {
    let at = if job["kind"] == "Job" { "/spec" } else { "/spec/runPolicy" };
    if let Some(fields) = job.pointer_mut(at) {
        fields["ttlSecondsAfterFinished"] = json!(0);
    }
    job
}

#[tokio::test]
async fn a_job_with_no_time_to_live_in_the_member() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x4").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&forgotten(Job::batch("batch").manifest())).await?;
    fleet.apply(&forgotten(Job::pytorch("torch").manifest())).await?;
    wait_succeeded_once(&fleet, BATCH_JOB, "batch").await?;
    wait_succeeded_once(&fleet, PYTORCH_JOB, "torch").await?;
    fleet.finish().await
}

#[tokio::test]
async fn it_ends_and_is_deleted_in_the_member_while_the_hub_is_away() -> anyhow::Result<()> {
    let mut fleet = FleetSpec::of("east 2x4").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&forgotten(Job::pytorch("a").runs("500ms").manifest())).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    fleet.kill(&Part::Controller).await;
    fleet
        .wait_for("the job to end and to be deleted in its cluster", async || {
            let jobs = fleet.member_objects(PYTORCH_JOB).await?;
            let (_, job) = jobs.first().cloned().unwrap_or_default();
            // Held for the hub: it is still there, on its way out.
            let goes = job["metadata"]["deletionTimestamp"].is_string();
            Ok(Polled::when(goes && objects::job_state(&job) == "Succeeded", || job.to_string()))
        })
        .await?;
    // The agent that reported it is another one when the hub is back.
    fleet.kill(&Part::Agent("east".to_string())).await;
    fleet.begin(Part::Controller)?;
    fleet.begin(Part::Agent("east".to_string()))?;
    wait_succeeded_once(&fleet, PYTORCH_JOB, "a").await?;
    fleet
        .wait_for("the member to have let go of it", async || {
            let left = fleet.member_objects(PYTORCH_JOB).await?.len();
            Ok(Polled::when(left == 0, || format!("{left} jobs")))
        })
        .await?;
    fleet.finish().await
}

//! OpenPAI's jobs through the hub: submitted, run, stopped, started again.

use std::path::PathBuf;

use fleet_kubesim::RunTime;
use fleet_openpai::{
    jobs::{self, JobError, Offers, Who},
    server::{HUB_PATIENCE, Server},
};
use fleet_pai::state::State;
use fleet_tests::{FleetSpec, Polled, TestFleet, objects};
use serde_json::{Value, json};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/hived").join(name)
}

fn lab(number: usize) -> String {
    std::fs::read_to_string(example(&format!("jobs/job-config-{number}.yaml"))).expect("a lab file")
}

fn server(fleet: &TestFleet) -> Server {
    Server { client: fleet.hub(), name: "hub".into(), url: "the hub".into(), patience: HUB_PATIENCE }
}

const WHO: Who<'_> = Who { user: "alice", namespace: "default" };

async fn submit(fleet: &TestFleet, text: &str) -> Result<String, JobError> {
    jobs::submit(&server(fleet), text, WHO, &Offers::default(), 1_700_000_000_000).await.map(|taken| taken.id)
}

async fn wait_state(fleet: &TestFleet, id: &str, state: State) -> anyhow::Result<jobs::Run> {
    let hub = server(fleet);
    fleet
        .wait_for(&format!("{id} to be {}", state.as_str()), async || {
            let run = jobs::newest(&hub, Some("default"), id).await?;
            let seen = format!("{:?} {:?}", run.state(), run.object["status"]);
            Ok(Polled::when(run.state() == state, || seen))
        })
        .await?;
    Ok(jobs::newest(&hub, Some("default"), id).await?)
}

#[tokio::test]
async fn the_labs_files_run_through_the_hub() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 8x1").start().await?;
    fleet.apply_file(&example("policy.yaml")).await?;
    for number in 0..8 {
        assert_eq!(submit(&fleet, &lab(number)).await?, format!("alice~job-config-{number}"));
    }
    for number in 0..8 {
        let run = wait_state(&fleet, &format!("alice~job-config-{number}"), State::Succeeded).await?;
        assert_eq!((run.exit_code(), run.cluster()), (Some(0), Some("east")));
    }
    let items = jobs::list(&server(&fleet), None).await?;
    assert_eq!(items.len(), 8);
    assert!(items.iter().all(|item| item.retries == 0 && item.launched_time.is_some()), "{items:?}");
    // A name is taken until its object goes.
    let refused = submit(&fleet, &lab(0)).await.expect_err("taken");
    assert_eq!((refused.code(), refused.status()), ("ConflictJobError", 409));
    assert!(refused.to_string().contains("alice-job-config-0 in namespace default"), "{refused}");
    fleet.finish().await
}

#[tokio::test]
async fn a_job_is_stopped_where_it_runs_and_where_it_waits_and_starts_again() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x1").run_time(RunTime::Forever).start().await?;
    fleet.apply_file(&example("policy.yaml")).await?;
    let hub = server(&fleet);
    let (runs, waits) = (submit(&fleet, &lab(1)).await?, submit(&fleet, &lab(2)).await?);
    let run = wait_state(&fleet, &runs, State::Running).await?;
    let waiting = wait_state(&fleet, &waits, State::Waiting).await?;
    jobs::stop(&hub, &waiting).await?;
    let stopped = wait_state(&fleet, &waits, State::Stopped).await?;
    assert_eq!(stopped.exit_code(), Some(-210));
    jobs::stop(&hub, &run).await?;
    let stopped = wait_state(&fleet, &runs, State::Stopped).await?;
    fleet
        .wait_for("its pods to be gone", async || {
            let pods = fleet.pods_of(run.name()).await?;
            Ok(Polled::when(pods.is_empty(), || format!("{pods:?}")))
        })
        .await?;
    // What has ended stays as it is, and runs once more when that is asked for.
    jobs::stop(&hub, &stopped).await?;
    assert_eq!(jobs::start(&hub, &stopped).await?, 2);
    let second = wait_state(&fleet, &runs, State::Running).await?;
    assert_eq!((second.number, second.name()), (2, "alice-job-config-1-r2"));
    assert_eq!(jobs::runs(&hub, Some("default"), &runs).await?.len(), 2);
    let again = jobs::start(&hub, &stopped).await.expect_err("it was started already");
    assert_eq!(again.status(), 409);
    let events = jobs::events(&hub, &stopped).await?;
    assert!(events.iter().any(|event| event.reason == "Stopped"), "{events:?}");
    fleet.finish().await
}

#[tokio::test]
async fn secrets_go_with_a_job_and_its_rules_hold_in_the_member() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 4x1").start().await?;
    fleet.apply_file(&example("policy.yaml")).await?;
    let text = "
protocolVersion: 2
name: pair
type: job
jobRetryCount: 1
secrets: {token: s3cret}
prerequisites: [{name: image, type: dockerimage, uri: registry.example.com/a:v1}]
taskRoles:
  train:
    instances: 3
    completion: {minFailedInstances: 2}
    dockerImage: image
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 1}
    commands: ['login <% $secrets.token %>']
";
    let (id, mut native) = jobs::native_objects(text, WHO, &Offers::default(), 0)?;
    // Each of its tasks fails, as often as it is tried.
    let result = json!({fleet_api::names::SIM_RESULT_ANNOTATION: "fail"});
    let annotations = &mut native.job["spec"]["tasks"][0]["template"]["metadata"]["annotations"];
    for (name, value) in result.as_object().into_iter().flatten() {
        annotations[name.as_str()] = value.clone();
    }
    for object in native.secrets.iter().chain([&native.job]) {
        fleet.apply(object).await?;
    }
    let failed = wait_state(&fleet, &id, State::Failed).await?;
    let item = jobs::item(&failed);
    assert_eq!((item.retries, item.retry_details.user), (1, 1), "{:?}", failed.object["status"]);
    assert_eq!(item.app_exit_code, Some(255));
    let state = &failed.object["status"]["state"];
    let told = state["message"].as_str().unwrap_or_default();
    assert!(told.contains(" of 3 tasks of train failed, and minFailedInstances is 2"), "{state}");
    let detail = jobs::detail(&failed, jobs::tasks_of_counts(&failed));
    assert_eq!(detail["jobStatus"]["appExitTriggerTaskRoleName"], "train");
    assert_eq!(detail["jobStatus"]["appExitType"], "UNKNOWN_FAILURE");
    let member = fleet.member("east")?;
    let kind = objects::Kind::of(&json!({"apiVersion": "v1", "kind": "Secret"}))?;
    let secret = objects::get(&member, kind, "default", "alice-pair-scripts").await?;
    assert!(secret.is_some(), "the script goes with its job");
    let job: Value = failed.object.clone();
    assert!(!job.to_string().contains("s3cret"));
    fleet.finish().await
}

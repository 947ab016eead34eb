//! One part of the fleet is killed and started again at random moments: the controller, an agent, the nodes of
//! a member. Nothing is lost, nothing runs twice, no gang is halved.

use std::{collections::BTreeMap, time::Duration};

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled, Random, TestFleet,
    fleet::Part,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, BINDING, PYTORCH_JOB},
};
use serde_json::json;

const JOBS: usize = 12;
const KILLS: usize = 15;

async fn survives(seed: u64, parts: &[Part]) -> anyhow::Result<()> {
    let mut random = Random::from_env(seed);
    let run_time = RunTime::For(Duration::from_millis(400));
    let mut fleet = FleetSpec::of("east 2x4, west 2x4").run_time(run_time).start().await?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 5}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    for kill in 0..KILLS {
        if kill < JOBS {
            fleet.apply(&Job::pytorch(&format!("job-{kill}")).workers(2).manifest()).await?;
        }
        tokio::time::sleep(random.pause(0, 150)).await;
        let part = random.one_of(parts);
        fleet.kill(part).await;
        tokio::time::sleep(random.pause(0, 30)).await;
        fleet.begin(part.clone())?;
    }
    wait_all_succeeded(&fleet).await?;
    for binding in objects::list(&fleet.hub(), BINDING).await? {
        let (name, status) = (objects::name_of(&binding), &binding["status"]);
        assert_eq!(binding["spec"]["epoch"], 1, "{name}: {status}");
        assert!(status["attempts"].is_null(), "{name}: {status}");
    }
    // The whole history is looked at here: one run for each job, at each moment.
    fleet.finish().await
}

async fn wait_all_succeeded(fleet: &TestFleet) -> anyhow::Result<()> {
    fleet
        .wait_for("all jobs to succeed", async || {
            let mut states: BTreeMap<String, usize> = BTreeMap::new();
            for job in objects::list(&fleet.hub(), PYTORCH_JOB).await? {
                *states.entry(objects::job_state(&job)).or_default() += 1;
            }
            Ok(Polled::when(states.get("Succeeded") == Some(&JOBS), || format!("{states:?}")))
        })
        .await
}

#[tokio::test]
async fn of_the_controller() -> anyhow::Result<()> {
    survives(1, &[Part::Controller]).await
}

#[tokio::test]
async fn of_the_agents() -> anyhow::Result<()> {
    survives(2, &[Part::Agent("east".to_string()), Part::Agent("west".to_string())]).await
}

#[tokio::test]
async fn of_the_nodes() -> anyhow::Result<()> {
    survives(3, &[Part::Nodes("east".to_string()), Part::Nodes("west".to_string())]).await
}

#[tokio::test]
async fn of_anything() -> anyhow::Result<()> {
    let member = |name: &str| [Part::Agent(name.to_string()), Part::Nodes(name.to_string())];
    let parts: Vec<Part> =
        [Part::Controller].into_iter().chain(member("east")).chain(member("west")).collect();
    survives(4, &parts).await
}

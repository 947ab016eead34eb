//! `fleet up` is killed with SIGKILL at ten random moments during a run of twenty jobs, and started again on
//! its data directory each time: all twenty succeed, and none runs twice.
//!
//! The moments come from a seed (`FLEET_SEED`), which the test prints. That no job ran twice is read from
//! what its pods were, over the whole time: one cluster, one run, one pod for each name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use fleet_tests::{
    FleetProcess, Polled, Random,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, BINDING, POD, PYTORCH_JOB},
    process::ports_in_a_row,
    servers, wait_for,
};
use kube::Client;
use serde_json::json;

const JOBS: usize = 20;
const KILLS: usize = 10;
/// The last ones come in the middle of the kills, and each kill finds jobs that wait, start, run and end.
const SUBMITTED_AT_ONCE: usize = 4;
const MEMBERS: [&str; 2] = ["east", "west"];
/// Two members of two nodes, eight jobs at a time by room and six by quota.
const SHAPE: [&str; 8] = ["--members", "2", "--nodes", "2", "--gpus", "4", "--runtime", "2s"];
const ALL_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Pods ever seen: by job the runs (cluster and uid of the member's job), by pod the uids.
#[derive(Debug, Default)]
struct Seen {
    runs: BTreeMap<String, BTreeSet<(String, String)>>,
    pods: BTreeMap<String, BTreeSet<String>>,
}

impl Seen {
    async fn look(seen: &Mutex<Self>, cluster: &str, member: &Client) -> anyhow::Result<()> {
        let pods = objects::list(member, POD).await?;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for pod in &pods {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
            let owner = &pod["metadata"]["ownerReferences"][0];
            seen.runs
                .entry(text(&owner["name"]))
                .or_default()
                .insert((cluster.to_string(), text(&owner["uid"])));
            let name = text(&pod["metadata"]["name"]);
            seen.pods.entry(name).or_default().insert(text(&pod["metadata"]["uid"]));
        }
        Ok(())
    }
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let text = std::fs::read_to_string(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
    servers::client_of(&text).await
}

fn ms(since: Instant) -> u128 {
    since.elapsed().as_millis()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_jobs_outlive_ten_kills() -> anyhow::Result<()> {
    let mut random = Random::from_env(20);
    let seed = random.seed;
    let folder = tempfile::Builder::new().prefix("fleet-kill-").tempdir()?;
    let home = folder.path().join("home");
    let port = ports_in_a_row(3)?;

    let mut process = FleetProcess::up(&home, port, &SHAPE).await?;
    let begin = Instant::now();
    let hub = client(&home.join("kubeconfig")).await?;
    let mut members = Vec::new();
    for name in MEMBERS {
        members.push((name, client(&home.join(format!("members/{name}.kubeconfig"))).await?));
    }
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let watching = {
        let (seen, members) = (seen.clone(), members.clone());
        tokio::spawn(async move {
            loop {
                for (name, member) in &members {
                    // A fleet that is down is no news.
                    let _ = Seen::look(&seen, name, member).await;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
    };

    objects::apply(&hub, &quota_tree(json!({"kube-queue/max-jobs": 6}))).await?;
    objects::apply(&hub, &gang_policy(Queueing::Queued)).await?;
    let mut waiting: Vec<String> = (0..JOBS).rev().map(|i| format!("job-{i}")).collect();
    for kill in 0..KILLS {
        for name in waiting.split_off(waiting.len().saturating_sub(SUBMITTED_AT_ONCE)).iter().rev() {
            objects::apply(&hub, &Job::pytorch(name).manifest()).await?;
        }
        tokio::time::sleep(random.pause(20, 600)).await;
        process.kill().await?;
        process = FleetProcess::start(&home, port, &SHAPE)?;
        if random.number().is_multiple_of(3) {
            // Once more, while it starts.
            tokio::time::sleep(random.pause(5, 300)).await;
            process.kill().await?;
            process = FleetProcess::start(&home, port, &SHAPE)?;
        }
        let started = Instant::now();
        process.ready().await.with_context(|| format!("after kill {kill} of seed {seed}"))?;
        println!("kill {kill}: ready again after {} ms, {} ms since the start", ms(started), ms(begin));
    }

    let last = Instant::now();
    let ended = wait_for("all jobs to succeed", ALL_WITHIN, async || {
        let jobs = objects::list(&hub, PYTORCH_JOB).await?;
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        for job in &jobs {
            *states.entry(objects::job_state(job)).or_default() += 1;
        }
        Ok(Polled::when(states.get("Succeeded") == Some(&JOBS), || format!("{states:?}")))
    });
    ended.await.with_context(|| format!("seed {seed}\n{}", process.output()))?;
    println!("all jobs succeeded {} ms after the last kill", ms(last));
    watching.abort();
    for (name, member) in &members {
        Seen::look(&seen, name, member).await?;
    }

    for binding in objects::list(&hub, BINDING).await? {
        let name = objects::name_of(&binding);
        let status = &binding["status"];
        assert_eq!(status["result"]["outcome"], "Succeeded", "{name}, seed {seed}: {status}");
        assert!(status["attempts"].is_null(), "{name}, seed {seed}: {status}");
        assert_eq!(binding["spec"]["epoch"], 1, "{name}, seed {seed}: {status}");
    }
    assert_eq!(process.interrupt().await?, Some(0));
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(seen.runs.len(), JOBS);
    for (job, runs) in &seen.runs {
        assert_eq!(runs.len(), 1, "{job} ran more than once, seed {seed}: {runs:?}");
    }
    for (pod, uids) in &seen.pods {
        assert_eq!(uids.len(), 1, "{pod} was made more than once, seed {seed}: {uids:?}");
    }
    Ok(())
}

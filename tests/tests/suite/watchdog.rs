//! Fencing `Watchdog` on a paused clock: the agent dies and stays dead, the side containers (hollow ones) stop the
//! pods in time; the agent comes back, and the job goes on as if nothing had failed.

use std::{collections::BTreeMap, time::Duration};

use fleet_api::{crds::Side, names};
use fleet_kubesim::hollow;
use fleet_tests::{
    ApiServers, Polled,
    jobs::Job,
    objects::{self, NAMESPACE, POD, PYTORCH_JOB, WORK},
    servers::{Door, Plane},
    wait_for,
};
use member_agent::{JobController, Options};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Virtual time.
const WITHIN: Duration = Duration::from_secs(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

struct Agent {
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Agent {
    fn start(hub: &Plane, member: &Plane) -> Self {
        let stop = CancellationToken::new();
        let options = Options {
            controllers: JobController::ALL.into_iter().collect(),
            scheduler_names: ["default-scheduler".to_string()].into(),
            ..Options::new("east")
        };
        let run = member_agent::run(hub.client.clone(), member.client.clone(), options, stop.clone());
        Self { task: tokio::spawn(run), stop }
    }

    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
        self.stop.cancel();
    }
}

async fn phases(member: &Plane, wanted: &[&str]) -> anyhow::Result<()> {
    wait_for(&format!("pods to be {wanted:?}"), WITHIN, async || {
        // Nobody waits for virtual time, but each look costs real time.
        tokio::time::sleep(BETWEEN_LOOKS).await;
        let pods = objects::list(&member.client, POD).await?;
        let mut found: Vec<&str> = pods.iter().filter_map(|pod| pod["status"]["phase"].as_str()).collect();
        found.sort_unstable();
        Ok(Polled::when(found == wanted, || format!("{found:?}")))
    })
    .await
}

fn work(job: &Value) -> Value {
    json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": "fleet-east", "finalizers": [names::WORK_FINALIZER]},
        "spec": {"binding": {"namespace": "default", "name": "a-pytorchjob", "uid": "u"}, "epoch": 1,
            "fenced": true, "fencing": "Watchdog", "workload": {"manifests": [job]}}})
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_covers_an_agent_that_stays_dead() -> anyhow::Result<()> {
    let hub = ApiServers::Embedded.start("hub", Side::Hub, Door::InProcess).await?;
    let member = ApiServers::Embedded.start("east", Side::Member, Door::InProcess).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet-east"}});
    objects::create(&hub.client, &namespace).await?;
    assert!(objects::get(&hub.client, NAMESPACE, "", "fleet-east").await?.is_some());
    let nodes = hollow::NodeSpec {
        count: 1,
        cpu: "16".to_string(),
        memory: "64Gi".to_string(),
        gpus: 4,
        labels: BTreeMap::new(),
        taints: Vec::new(),
    };
    let stop = CancellationToken::new();
    let run_time = "60s".parse().map_err(|error| anyhow::anyhow!("{error:?}"))?;
    tokio::spawn(hollow::run(
        member.client.clone(),
        hollow::Options::new("east", nodes, run_time),
        stop.clone(),
    ));
    let agent = Agent::start(&hub, &member);
    // A pod that fails for good would end the job.
    let mut job = Job::pytorch("a").manifest();
    for role in ["Master", "Worker"] {
        job["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"] = "Never".into();
    }
    objects::create(&hub.client, &work(&job)).await?;
    phases(&member, &["Running", "Running"]).await?;
    let pod = objects::list(&member.client, POD).await?.swap_remove(0);
    assert_eq!(pod["spec"]["initContainers"][0]["name"], "fleet-watchdog");
    let side = &pod["status"]["initContainerStatuses"][0];
    assert!(side["state"]["running"].is_object(), "it runs beside the job: {side}");

    let died = Instant::now();
    agent.kill().await;
    phases(&member, &["Failed", "Failed"]).await?;
    // The lease of 40 s, and one call that may have been under way.
    let took = died.elapsed();
    assert!(took <= Duration::from_secs(40) + member_agent::RECORD_TIMEOUT, "{took:?}");

    let agent = Agent::start(&hub, &member);
    phases(&member, &["Running", "Running"]).await?;
    phases(&member, &["Succeeded", "Succeeded"]).await?;
    wait_for("the end to be reported", WITHIN, async || {
        let work = objects::get(&hub.client, WORK, "fleet-east", "w").await?.unwrap_or_default();
        let conditions = work["status"]["manifestStatuses"][0]["status"]["conditions"].clone();
        let last = conditions.as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        Ok(Polled::when(last["type"] == "Succeeded", || conditions.to_string()))
    })
    .await?;
    let ended = objects::get(&member.client, PYTORCH_JOB, "default", "a").await?.unwrap_or_default();
    assert!(!ended["status"].to_string().contains("\"Failed\""), "{:#}", ended["status"]);
    agent.kill().await;
    stop.cancel();
    Ok(())
}

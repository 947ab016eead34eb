//! Tasks of jobs in virtual clusters one by one: preemption of one task, tasks that follow others, launchers without cells,
//! opportunistic gangs beyond the promise, and the queues of virtual clusters.

use fleet_api::names;
use fleet_kubesim::RunTime;
use fleet_openpai::jobs::{self, Offers, Who};
use fleet_pai::state::State;
use fleet_tests::{
    Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, QUEUE},
};
use serde_json::{Value, json};

use crate::virtual_clusters::{
    ISOLATION, ONE, TWO, configuration, job, lab, let_go, read, runs_on, server, stop, submit, submit_text,
    waits,
};

const SUBMITTED_MS: i64 = 1_700_000_000_000;

/// Submits a job file whose simulated tasks end after this time.
async fn submit_that_ends(fleet: &TestFleet, text: &str, run_time: &str) -> anyhow::Result<String> {
    let who = Who { user: "alice", namespace: "default" };
    let (id, mut native) = jobs::native_objects(text, who, &Offers::default(), SUBMITTED_MS)?;
    let annotations = &mut native.job["spec"]["tasks"][0]["template"]["metadata"]["annotations"];
    annotations[names::SIM_RUNTIME_ANNOTATION] = json!(run_time);
    fleet.apply(&native.job).await?;
    Ok(id)
}

#[tokio::test]
async fn of_an_incremental_job_only_the_task_whose_cell_is_needed_is_preempted() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    let low = submit_text(&fleet, "alice", &read("jobs/job-config-7.yaml").replace("prod", "test")).await?;
    let both = ["hostname-carol", "hostname-dan"];
    let before = runs_on(&fleet, &low, &both).await?;
    let high = submit(&fleet, "bob", 5).await?;
    let taken = fleet
        .wait_for("the preemptor to run", async || {
            let pods = fleet.pods_of(job(&fleet, &high).await?.name()).await?;
            let mut running = pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Running");
            let node = running.find_map(|(_, pod)| pod["spec"]["nodeName"].as_str().map(str::to_owned));
            Ok(node.map_or_else(|| Polled::NotYet(format!("{pods:?}")), Polled::Yes))
        })
        .await?;
    let (taken, kept) = (taken.as_str(), if taken == both[0] { both[1] } else { both[0] });
    let left = runs_on(&fleet, &low, &[kept]).await?;
    let uid = |pods: &[Value], node: &str| {
        let pod = pods.iter().find(|pod| pod["spec"]["nodeName"] == node);
        pod.map(|pod| pod["metadata"]["uid"].clone())
    };
    assert_eq!(uid(&left, kept), uid(&before, kept), "the other task ran on");
    let run = job(&fleet, &low).await?;
    assert_eq!(run.state(), State::Running);
    assert_eq!(jobs::item(&run).retries, 0, "the job was not started again");
    assert!(run.binding.as_ref().is_some_and(|binding| binding["status"]["attempts"].is_null()));
    let told = objects::list(&fleet.hub(), objects::EVENT).await?;
    let told = told.iter().filter(|event| event["reason"] == "Preempted");
    let messages: Vec<&str> = told.filter_map(|event| event["message"].as_str()).collect();
    assert!(messages.iter().any(|m| m.contains("preempted by default/bob-job-config-5")), "{messages:?}");
    // Its task is made again, and gets the next free cell.
    stop(&fleet, &high).await?;
    let after = runs_on(&fleet, &low, &both).await?;
    assert_eq!(uid(&after, kept), uid(&before, kept));
    assert_ne!(uid(&after, taken), uid(&before, taken));
    stop(&fleet, &low).await?;
    fleet.finish().await
}

#[tokio::test]
async fn over_quota_each_task_starts_as_one_ends() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    let four = read("jobs/job-config-7.yaml")
        .replace("instances: 2", "instances: 4")
        .replace("minSucceededInstances: 1", "minSucceededInstances: 4");
    let id = submit_that_ends(&fleet, &four, "2s").await?;
    fleet
        .wait_for("all four to succeed", async || {
            let run = job(&fleet, &id).await?;
            let is = run.state() == State::Succeeded && run.object["status"]["succeeded"] == 4;
            Ok(Polled::when(is, || format!("{:?} {}", run.state(), run.object["status"])))
        })
        .await?;
    let pods = fleet.pods_of(job(&fleet, &id).await?.name()).await?;
    let time = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut ran: Vec<(String, String)> = pods
        .iter()
        .map(|(_, pod)| {
            let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"];
            (time(&pod["status"]["startTime"]), time(ended))
        })
        .collect();
    ran.sort();
    assert_eq!(ran.len(), 4, "{pods:?}");
    for (at, (start, _)) in ran.iter().enumerate() {
        let running = ran[..at].iter().filter(|(_, end)| end > start).count();
        assert!(running < 2, "three at once: {ran:?}");
    }
    assert!(ran[2].0 >= ran[0].1.clone().min(ran[1].1.clone()), "the third follows one that ended: {ran:?}");
    fleet.finish().await
}

/// The lab's one pool, with one node for each of two virtual clusters.
pub(crate) fn shared_pool() -> Value {
    let mut shared = configuration(ONE);
    let half = json!({"virtualCells": [{"cellType": "GPU-NODE-POOL.GPU-NODE", "cellNumber": 1}]});
    shared["spec"]["virtualClusters"] = json!({"default": half, "vc1": half});
    shared
}

#[tokio::test]
async fn an_opportunistic_gang_beyond_the_promise_runs_on_what_others_leave_idle() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    fleet.apply(&shared_pool()).await?;
    fleet
        .wait_for("the second virtual cluster", async || {
            let vc = fleet.get(objects::VIRTUAL_CLUSTER, "", "vc1").await?;
            Ok(Polled::when(vc.as_ref().is_some_and(|vc| vc["status"]["guaranteed"] == 1), || {
                format!("{vc:?}")
            }))
        })
        .await?;
    let gang = |class: &str| {
        read("jobs/job-config-6.yaml")
            .replace("virtualCluster: default", "virtualCluster: vc1")
            .replace("prod", class)
    };
    let refused =
        submit_text(&fleet, "alice", &gang("prod")).await.expect_err("more than its promise").to_string();
    assert!(refused.contains("allowed: at most 1 SKUs"), "{refused}");
    let oppo = submit_text(&fleet, "alice", &gang("oppo")).await?;
    runs_on(&fleet, &oppo, &["hostname-carol", "hostname-dan"]).await?;
    // It leaves whole when one of its cells is needed, and waits until it has all again.
    let own = submit(&fleet, "bob", 5).await?;
    fleet
        .wait_for("the owner to run", async || {
            let run = job(&fleet, &own).await?;
            Ok(Polled::when(run.state() == State::Running, || {
                format!("{:?} {:?}", run.state(), run.waiting())
            }))
        })
        .await?;
    waits(&fleet, &oppo, "insufficient capacity in the physical cluster").await?;
    stop(&fleet, &own).await?;
    runs_on(&fleet, &oppo, &["hostname-carol", "hostname-dan"]).await?;
    stop(&fleet, &oppo).await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_launcher_without_devices_takes_no_cell() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    for whole in [true, false] {
        let mut mpi = Job::mpi("mpi")
            .workers(2)
            .label(names::VIRTUAL_CLUSTER_LABEL, "default")
            .runs("forever")
            .manifest();
        let launcher = &mut mpi["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0];
        launcher["resources"] = json!({"requests": {"cpu": "100m"}});
        if !whole {
            mpi["metadata"]["annotations"][names::GANG_ALLOCATION_ANNOTATION] = json!("false");
        }
        fleet.apply(&mpi).await?;
        fleet
            .wait_for("the workers to run on cells and the launcher beside them", async || {
                let pods = fleet.pods_of("mpi").await?;
                let running = pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Running");
                let mark =
                    |pod: &Value| pod["metadata"]["annotations"][ISOLATION].as_str().map(str::to_owned);
                let mut marks: Vec<Option<String>> = running.map(|(_, pod)| mark(pod)).collect();
                marks.sort();
                let cell = Some("0".to_owned());
                Ok(Polled::when(marks == [None, cell.clone(), cell], || format!("{pods:?}")))
            })
            .await?;
        fleet.delete(objects::MPI_JOB, "default", "mpi").await?;
        let_go(&fleet).await?;
    }
    fleet.finish().await
}

#[tokio::test]
async fn each_virtual_cluster_has_a_queue() -> anyhow::Result<()> {
    let fleet = lab(TWO, RunTime::Forever).await?;
    let mut ids = Vec::new();
    for (user, number) in [("alice", 3), ("bob", 1), ("carol", 2)] {
        ids.push(submit(&fleet, user, number).await?);
        job(&fleet, ids.last().expect("one")).await?;
    }
    fleet
        .wait_for("the queue to list who waits, by class", async || {
            let queue = fleet.get(QUEUE, names::QUEUE_NAMESPACE, "vc1").await?.unwrap_or_default();
            let status = &queue["status"];
            let line = status["queueItemDetails"]["active"].as_array().cloned().unwrap_or_default();
            let line: Vec<String> = line
                .iter()
                .map(|item| {
                    format!(
                        "{} {} {}",
                        item["position"],
                        item["name"].as_str().unwrap_or_default(),
                        item["priority"]
                    )
                })
                .collect();
            let right = ["1 carol-job-config-2", "2 bob-job-config-1"];
            let is = status["waiting"] == 2
                && status["admitted"] == 1
                && line.len() == 2
                && line.iter().zip(right).all(|(item, start)| item.starts_with(start));
            Ok(Polled::when(is, || queue.to_string()))
        })
        .await?;
    let other = fleet.get(QUEUE, names::QUEUE_NAMESPACE, "default").await?.unwrap_or_default();
    assert_eq!(other["spec"]["queuePolicy"], "Priority", "{other}");
    for id in &ids {
        stop(&fleet, id).await?;
    }
    let _ = server(&fleet);
    fleet.finish().await
}

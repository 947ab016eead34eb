//! Virtual clusters from end to end: the lab's two configurations and eight job files as they are, over hub and member.

use std::path::PathBuf;

use fleet_api::{names, yaml};
use fleet_kubesim::RunTime;
use fleet_openpai::{
    jobs::{self, Offers, Who},
    server::{HUB_PATIENCE, Server},
};
use fleet_pai::state::State;
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    fleet::Part,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, CELL_CONFIGURATION as CONFIGURATION, Kind, RESERVATION, VIRTUAL_CLUSTER},
};
use serde_json::{Value, json};

pub(crate) const ISOLATION: &str = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation";
const BIND_INFO: &str = "hivedscheduler.microsoft.com/pod-bind-info";
pub(crate) const TWO: &str = "two-virtual-clusters.yaml";
pub(crate) const ONE: &str = "one-virtual-cluster.yaml";

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/hived").join(name)
}

pub(crate) fn read(name: &str) -> String {
    std::fs::read_to_string(example(name)).expect("a file of the lab")
}

/// The lab's file as the object's spec.
pub(crate) fn configuration(file: &str) -> Value {
    let wrapped: Value = yaml::read(&read(file)).expect("YAML");
    let text = wrapped["hivedscheduler"]["config"].as_str().expect("its text");
    let spec: Value = yaml::read(text).expect("YAML");
    json!({"apiVersion": CONFIGURATION.api_version, "kind": CONFIGURATION.kind, "metadata": {"name": "cells"},
        "spec": spec})
}

/// The lab: two workers with one GPU each.
pub(crate) async fn lab(file: &str, run_time: RunTime) -> anyhow::Result<TestFleet> {
    let spec = FleetSpec::of("lab 2x1").nodes(&["hostname-carol", "hostname-dan"]).run_time(run_time);
    let fleet = spec.start().await?;
    fleet.apply_file(&example("policy.yaml")).await?;
    configure(&fleet, file).await?;
    Ok(fleet)
}

pub(crate) async fn configure(fleet: &TestFleet, file: &str) -> anyhow::Result<()> {
    fleet.apply(&configuration(file)).await?;
    fleet
        .wait_for("the nodes to be good cells", async || {
            let found = fleet.get(CONFIGURATION, "", "cells").await?.unwrap_or_default();
            let status = &found["status"];
            let good = status["nodes"] == 2
                && status["badNodes"].as_array().is_none_or(Vec::is_empty)
                && objects::condition(&found, "Valid").is_some_and(|valid| valid["status"] == "True");
            let kept = objects::list(&fleet.hub(), RESERVATION).await?;
            let kept =
                kept.iter().any(|r| r["spec"]["cellNodes"].is_array() && r["status"]["phase"] == "Reserved");
            Ok(Polled::when(good && kept, || status.to_string()))
        })
        .await
}

pub(crate) fn server(fleet: &TestFleet) -> Server {
    Server { client: fleet.hub(), name: "hub".into(), url: "the hub".into(), patience: HUB_PATIENCE }
}

/// Submits one of the lab's files; returns the job's id.
pub(crate) async fn submit(fleet: &TestFleet, user: &str, number: usize) -> anyhow::Result<String> {
    submit_text(fleet, user, &read(&format!("jobs/job-config-{number}.yaml"))).await
}

pub(crate) async fn submit_text(fleet: &TestFleet, user: &str, text: &str) -> anyhow::Result<String> {
    let who = Who { user, namespace: "default" };
    let server = server(fleet);
    let offers = Offers::read(&server).await?;
    Ok(jobs::submit(&server, text, who, &offers, 1_700_000_000_000).await?.id)
}

pub(crate) async fn job(fleet: &TestFleet, id: &str) -> anyhow::Result<jobs::Run> {
    Ok(jobs::newest(&server(fleet), Some("default"), id).await?)
}

/// Waits until the pods of a job that run are exactly on these nodes.
pub(crate) async fn runs_on(fleet: &TestFleet, id: &str, nodes: &[&str]) -> anyhow::Result<Vec<Value>> {
    fleet
        .wait_for(&format!("{id} to run on {nodes:?}"), async || {
            let run = job(fleet, id).await?;
            let pods = fleet.pods_of(run.name()).await?;
            let mut running: Vec<Value> = pods.into_iter().map(|(_, pod)| pod).collect();
            running.retain(|pod| {
                pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
            });
            let mut found: Vec<&str> =
                running.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
            found.sort_unstable();
            let is = found == nodes;
            let seen = format!("{found:?} {:?}", run.waiting());
            Ok(if is { Polled::Yes(running) } else { Polled::NotYet(seen) })
        })
        .await
}

/// Waits until the job waits, for a reason that contains this.
pub(crate) async fn waits(fleet: &TestFleet, id: &str, why: &str) -> anyhow::Result<()> {
    fleet
        .wait_for(&format!("{id} to wait: {why}"), async || {
            let run = job(fleet, id).await?;
            let told =
                run.waiting().map(|(reason, message)| format!("{reason}: {message}")).unwrap_or_default();
            let is = run.state() == State::Waiting && told.contains(why);
            Ok(Polled::when(is, || format!("{:?} {told}", run.state())))
        })
        .await
}

pub(crate) async fn stop(fleet: &TestFleet, id: &str) -> anyhow::Result<()> {
    let run = job(fleet, id).await?;
    jobs::stop(&server(fleet), &run).await?;
    Ok(())
}

/// Waits until no Work is left.
pub(crate) async fn let_go(fleet: &TestFleet) -> anyhow::Result<()> {
    fleet
        .wait_for("the member to let go", async || {
            let works = objects::list(&fleet.hub(), objects::WORK).await?;
            Ok(Polled::when(works.is_empty(), || format!("{works:?}")))
        })
        .await
}

#[tokio::test]
async fn guaranteed_jobs_never_borrow_and_run_one_after_another() -> anyhow::Result<()> {
    let fleet = lab(TWO, RunTime::Forever).await?;
    let mut ids = Vec::new();
    for user in ["alice", "bob", "carol", "dan"] {
        ids.push(submit(&fleet, user, 0).await?);
    }
    for (at, id) in ids.iter().enumerate() {
        let pods = runs_on(&fleet, id, &["hostname-dan"]).await?;
        assert_eq!(pods[0]["metadata"]["annotations"][ISOLATION], "0");
        let info = pods[0]["metadata"]["annotations"][BIND_INFO].as_str().unwrap_or_default();
        let info: Value = serde_json::from_str(info)?;
        assert_eq!((&info["node"], &info["cellChain"]), (&json!("hostname-dan"), &json!("GPU-D-NODE-POOL")));
        for later in &ids[at + 1..] {
            let why = "insufficient capacity in VC vc1: 1 cells of type GPU-D asked for, 0 free";
            waits(&fleet, later, why).await?;
        }
        stop(&fleet, id).await?;
    }
    fleet.finish().await
}

#[tokio::test]
async fn a_higher_class_preempts_at_once_and_the_victim_runs_again() -> anyhow::Result<()> {
    let fleet = lab(TWO, RunTime::Forever).await?;
    let low = submit(&fleet, "alice", 1).await?;
    runs_on(&fleet, &low, &["hostname-dan"]).await?;
    let high = submit(&fleet, "alice", 2).await?;
    runs_on(&fleet, &high, &["hostname-dan"]).await?;
    waits(&fleet, &low, "insufficient capacity in VC vc1").await?;
    let victim = job(&fleet, &low).await?;
    let attempt = &victim.binding.as_ref().expect("a binding")["status"]["attempts"][0];
    assert_eq!(attempt["reason"], "Preempted");
    let message = attempt["message"].as_str().unwrap_or_default();
    assert!(message.contains("(VirtualCluster)") && message.contains("s of work are lost"), "{message}");
    stop(&fleet, &high).await?;
    runs_on(&fleet, &low, &["hostname-dan"]).await?;
    assert_eq!(jobs::item(&job(&fleet, &low).await?).retries, 1);
    stop(&fleet, &low).await?;
    fleet.finish().await
}

#[tokio::test]
async fn opportunistic_jobs_use_what_is_idle_and_leave_it_to_its_owner() -> anyhow::Result<()> {
    let fleet = lab(TWO, RunTime::Forever).await?;
    let prod = submit(&fleet, "alice", 3).await?;
    runs_on(&fleet, &prod, &["hostname-dan"]).await?;
    let oppo = submit(&fleet, "alice", 4).await?;
    runs_on(&fleet, &oppo, &["hostname-carol"]).await?;
    fleet
        .wait_for("the VirtualClusters to say who is where", async || {
            let of = async |name: &str| -> anyhow::Result<Value> {
                Ok(fleet.get(VIRTUAL_CLUSTER, "", name).await?.unwrap_or_default()["status"].clone())
            };
            let (own, lender) = (of("vc1").await?, of("default").await?);
            let is = own["used"] == 1
                && own["borrowedIn"] == 1
                && own["running"] == 2
                && lender["borrowedOut"] == 1;
            Ok(Polled::when(is, || format!("{own} {lender}")))
        })
        .await?;
    let own = read("jobs/job-config-5.yaml").replace("prod", "test");
    let own = submit_text(&fleet, "bob", &own).await?;
    runs_on(&fleet, &own, &["hostname-carol"]).await?;
    waits(&fleet, &oppo, "insufficient capacity in the physical cluster").await?;
    stop(&fleet, &prod).await?;
    runs_on(&fleet, &oppo, &["hostname-dan"]).await?;
    stop(&fleet, &own).await?;
    stop(&fleet, &oppo).await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_gang_takes_nothing_until_it_has_all() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    let first = submit(&fleet, "alice", 5).await?;
    runs_on(&fleet, &first, &["hostname-carol"]).await?;
    let gang = submit(&fleet, "alice", 6).await?;
    waits(&fleet, &gang, "2 cells of type GPU asked for, 1 free").await?;
    assert!(fleet.pods_of(job(&fleet, &gang).await?.name()).await?.is_empty(), "no partial hold");
    stop(&fleet, &first).await?;
    let pods = runs_on(&fleet, &gang, &["hostname-carol", "hostname-dan"]).await?;
    for pod in &pods {
        let info = pod["metadata"]["annotations"][BIND_INFO].as_str().unwrap_or_default();
        let info: Value = serde_json::from_str(info)?;
        let group = &info["affinityGroupBindInfo"][0]["podPlacements"];
        assert_eq!(
            group.as_array().map(Vec::len),
            Some(2),
            "each pod carries the placement of its group: {info}"
        );
    }
    stop(&fleet, &gang).await?;
    fleet.finish().await
}

#[tokio::test]
async fn pods_of_an_incremental_job_start_as_cells_come_free() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    let first = submit(&fleet, "alice", 5).await?;
    runs_on(&fleet, &first, &["hostname-carol"]).await?;
    let pair = submit(&fleet, "alice", 7).await?;
    runs_on(&fleet, &pair, &["hostname-dan"]).await?;
    stop(&fleet, &first).await?;
    runs_on(&fleet, &pair, &["hostname-carol", "hostname-dan"]).await?;
    stop(&fleet, &pair).await?;
    fleet.finish().await
}

#[tokio::test]
async fn as_shipped_job_7_ends_with_its_first_task_and_with_two_it_runs_both() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    let first = submit(&fleet, "alice", 5).await?;
    runs_on(&fleet, &first, &["hostname-carol"]).await?;
    let shipped = read("jobs/job-config-7.yaml");
    let quick = |text: &str, name: &str, least: usize| {
        text.replace("name: job-config-7", &format!("name: {name}"))
            .replace("minSucceededInstances: 1", &format!("minSucceededInstances: {least}"))
    };
    for (name, least, tasks) in [("shipped", 1, 1), ("both", 2, 2)] {
        let who = Who { user: "alice", namespace: "default" };
        let text = quick(&shipped, name, least);
        let (id, mut native) = jobs::native_objects(&text, who, &Offers::default(), 1_700_000_000_000)?;
        let run_time = json!({fleet_api::names::SIM_RUNTIME_ANNOTATION: "500ms"});
        let annotations = &mut native.job["spec"]["tasks"][0]["template"]["metadata"]["annotations"];
        for (field, value) in run_time.as_object().into_iter().flatten() {
            annotations[field.as_str()] = value.clone();
        }
        fleet.apply(&native.job).await?;
        fleet
            .wait_for(&format!("{id} to succeed"), async || {
                let run = job(&fleet, &id).await?;
                let seen = format!("{:?} {}", run.state(), run.object["status"]);
                Ok(Polled::when(run.state() == State::Succeeded, || seen))
            })
            .await?;
        let status = job(&fleet, &id).await?.object["status"].clone();
        assert_eq!(status["succeeded"].as_i64(), Some(tasks), "{status}");
    }
    stop(&fleet, &first).await?;
    fleet.finish().await
}

#[tokio::test]
async fn over_quota_single_tasks_run_two_at_a_time_and_a_gang_says_never() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    let four = read("jobs/job-config-7.yaml").replace("instances: 2", "instances: 4");
    let singles = submit_text(&fleet, "alice", &four).await?;
    runs_on(&fleet, &singles, &["hostname-carol", "hostname-dan"]).await?;
    let gang = read("jobs/job-config-6.yaml").replace("instances: 2", "instances: 4");
    let refused = submit_text(&fleet, "alice", &gang).await.expect_err("more than there is").to_string();
    assert!(
        refused.contains("found 4 SKUs that start together; allowed: at most 2 SKUs")
            && refused.contains("all that virtual cluster default has"),
        "{refused}"
    );
    // Of who may not read the configuration the controller is the judge.
    let who = Who { user: "alice", namespace: "default" };
    let taken = jobs::submit(&server(&fleet), &gang, who, &Offers::default(), 1_700_000_000_000).await?;
    let gang = taken.id;
    waits(&fleet, &gang, "can never run: it asks for 4 cells of type GPU, VC default has at most 2").await?;
    stop(&fleet, &singles).await?;
    stop(&fleet, &gang).await?;
    fleet.finish().await
}

#[tokio::test]
async fn placements_outlive_the_controller_and_another_configuration() -> anyhow::Result<()> {
    let mut fleet = lab(ONE, RunTime::Forever).await?;
    let gang = submit(&fleet, "alice", 6).await?;
    runs_on(&fleet, &gang, &["hostname-carol", "hostname-dan"]).await?;
    fleet.kill(&Part::Controller).await;
    fleet.begin(Part::Controller)?;
    let later = submit(&fleet, "alice", 5).await?;
    waits(&fleet, &later, "1 cells of type GPU asked for, 0 free").await?;
    // Another configuration kills nobody: the gang goes on, as an opportunistic one.
    fleet.apply(&configuration(TWO)).await?;
    fleet
        .wait_for("the gang to be opportunistic", async || {
            let binding = job(&fleet, &gang).await?.binding.unwrap_or_default();
            let lazy = &binding["spec"]["cells"]["groups"][0]["lazilyPreempted"];
            Ok(Polled::when(lazy.is_object(), || binding["spec"]["cells"].to_string()))
        })
        .await?;
    // The job that waited has cells of its own now, and takes them.
    runs_on(&fleet, &later, &["hostname-carol"]).await?;
    stop(&fleet, &later).await?;
    stop(&fleet, &gang).await?;
    fleet.finish().await
}

#[tokio::test]
async fn other_jobs_and_the_members_own_pods_stay_off_cells() -> anyhow::Result<()> {
    let fleet = lab(TWO, RunTime::Forever).await?;
    let own = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own", "namespace": "default"},
        "spec": {"schedulerName": "volcano", "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}});
    let member = fleet.member("lab")?;
    objects::apply(&member, &own).await?;
    let prod = submit(&fleet, "alice", 3).await?;
    runs_on(&fleet, &prod, &["hostname-dan"]).await?;
    let plain = read("jobs/job-config-5.yaml");
    let who = Who { user: "alice", namespace: "default" };
    let (id, mut native) = jobs::native_objects(&plain, who, &Offers::default(), 1_700_000_000_000)?;
    native.job["metadata"]["labels"].as_object_mut().map(|labels| labels.remove("fleet.dev/virtual-cluster"));
    let template = &mut native.job["spec"]["tasks"][0]["template"];
    template["metadata"]["annotations"] = json!({});
    fleet.apply(&native.job).await?;
    waits(&fleet, &id, "ExceedsEveryCluster").await?;
    let pod = objects::get(&member, objects::POD, "default", "own").await?.unwrap_or_default();
    assert!(pod["spec"]["nodeName"].is_null(), "{}", pod["spec"]);
    stop(&fleet, &prod).await?;
    stop(&fleet, &id).await?;
    fleet.finish().await
}

/// A job of two pods of this kind in the lab's one virtual cluster, each of which starts as it gets its cell.
fn one_by_one(kind: Kind, name: &str) -> Value {
    let job = match kind.kind {
        "PyTorchJob" => Job::pytorch(name),
        "TFJob" => Job::tensorflow(name),
        "MPIJob" => Job::mpi(name),
        _ => Job::batch(name).workers(2),
    };
    let mut job = job.label(names::VIRTUAL_CLUSTER_LABEL, "default").runs("forever").manifest();
    job["metadata"]["annotations"][names::GANG_ALLOCATION_ANNOTATION] = json!("false");
    job
}

/// Waits until the job's pods that run are exactly on these nodes, each with its device.
async fn pods_on(fleet: &TestFleet, name: &str, nodes: &[&str]) -> anyhow::Result<()> {
    fleet
        .wait_for(&format!("{name} to run on {nodes:?}"), async || {
            let pods = fleet.pods_of(name).await?;
            let running = pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Running");
            let mut found: Vec<&str> =
                running.clone().filter_map(|(_, pod)| pod["spec"]["nodeName"].as_str()).collect();
            found.sort_unstable();
            let mut marked = running.map(|(_, pod)| &pod["metadata"]["annotations"][ISOLATION]);
            Ok(Polled::when(found == nodes && marked.all(|mark| mark == "0"), || format!("{pods:?}")))
        })
        .await
}

#[tokio::test]
async fn pods_of_jobs_of_every_kind_start_one_by_one_where_the_job_asks_for_it() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let first =
        Job::pytorch("first").workers(0).label(names::VIRTUAL_CLUSTER_LABEL, "default").runs("forever");
    for kind in [objects::PYTORCH_JOB, objects::TF_JOB, objects::MPI_JOB, objects::BATCH_JOB] {
        fleet.apply(&first.manifest()).await?;
        pods_on(&fleet, "first", &["hostname-carol"]).await?;
        fleet.apply(&one_by_one(kind, "pair")).await?;
        pods_on(&fleet, "pair", &["hostname-dan"]).await?;
        fleet.delete(objects::PYTORCH_JOB, "default", "first").await?;
        pods_on(&fleet, "pair", &["hostname-carol", "hostname-dan"]).await?;
        fleet.delete(kind, "default", "pair").await?;
        let_go(&fleet).await?;
    }
    fleet.finish().await
}

#[tokio::test]
async fn cells_of_a_deleted_job_are_taken_when_its_pods_are_gone_and_not_before() -> anyhow::Result<()> {
    let mut fleet = lab(TWO, RunTime::Forever).await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let job = |name: &str| {
        Job::pytorch(name).workers(0).label(names::VIRTUAL_CLUSTER_LABEL, "vc1").runs("forever").manifest()
    };
    fleet.apply(&job("first")).await?;
    pods_on(&fleet, "first", &["hostname-dan"]).await?;
    let member = fleet.member("lab")?;
    let pod = fleet.pods_of("first").await?[0].1["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let slow = finalizers(json!(["example.com/slow"]));
    objects::merge(&member, objects::POD, "default", &pod, &slow).await?;
    fleet.delete(objects::PYTORCH_JOB, "default", "first").await?;
    fleet.apply(&job("second")).await?;
    let waits = async |fleet: &TestFleet| {
        let found = fleet.wait_reason(objects::PYTORCH_JOB, "second", "WaitingForVictims").await?;
        let text = found.to_string();
        anyhow::ensure!(
            text.contains("waits for 1 job to leave its cells: default/first-pytorchjob"),
            "{text}"
        );
        anyhow::Ok(())
    };
    waits(&fleet).await?;
    // Another controller knows of the old run by what stands on the hub.
    fleet.kill(&Part::Controller).await;
    fleet.begin(Part::Controller)?;
    fleet.apply(&job("third")).await?;
    fleet
        .wait_for("the new controller to look at the third", async || {
            let binding = fleet.binding(objects::PYTORCH_JOB, "third").await.unwrap_or_default();
            let told =
                objects::condition(&binding, "Scheduled").is_some_and(|told| told["status"] == "False");
            Ok(Polled::when(told, || binding["status"].to_string()))
        })
        .await?;
    waits(&fleet).await?;
    let binding = fleet.binding(objects::PYTORCH_JOB, "second").await?;
    assert!(binding["spec"]["clusters"].is_null(), "{}", binding["spec"]);
    fleet.delete(objects::PYTORCH_JOB, "default", "third").await?;
    objects::merge(&member, objects::POD, "default", &pod, &finalizers(Value::Null)).await?;
    pods_on(&fleet, "second", &["hostname-dan"]).await?;
    fleet.delete(objects::PYTORCH_JOB, "default", "second").await?;
    fleet.finish().await
}

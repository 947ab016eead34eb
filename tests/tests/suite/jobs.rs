//! Each kind of job from the hub to one member and back.

use fleet_tests::{
    FleetSpec, Polled,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, BATCH_JOB, Kind, MPI_JOB, POD, PYTORCH_JOB, TF_JOB},
};
use serde_json::{Value, json};

/// A job of three pods (a batch Job: of two) goes to one cluster, runs there and ends; the hub says so.
async fn runs(kind: Kind, job: Job, components: &str, pods: &[&str]) -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8, west 2x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&job.workers(2).manifest()).await?;
    let ended = fleet.wait_state(kind, "a", "Succeeded").await?;
    assert!(ended["status"]["completionTime"].is_string(), "{}", ended["status"]);

    let binding = fleet.binding(kind, "a").await?;
    let cluster = binding["spec"]["clusters"][0]["name"].as_str().unwrap_or_default().to_string();
    assert_eq!(binding["spec"]["clusters"].as_array().map(Vec::len), Some(1), "{binding}");
    assert_eq!(binding["spec"]["epoch"], 1);

    let found = fleet.pods_of("a").await?;
    assert!(found.iter().all(|(at, _)| *at == cluster), "pods outside {cluster}");
    if pods.is_empty() {
        assert_eq!(found.len(), 2);
    } else {
        let names: Vec<&str> = found.iter().map(|(_, pod)| objects::name_of(pod)).collect();
        assert_eq!(names, pods);
    }

    let message = format!("Binding has been scheduled successfully. Result: {{{cluster}:0,[{components}]}}");
    let events = fleet.events_of(kind, "a").await?;
    let told = events.iter().find(|event| event["reason"] == "ScheduleBindingSucceed");
    let told = told.cloned().unwrap_or_default();
    assert_eq!((&told["message"], &told["type"]), (&json!(message), &json!("Normal")));
    assert_eq!(told["source"]["component"], "default-scheduler");

    // The end is on the hub before anything is cleaned up.
    fleet
        .wait_for("the result to be recorded", async || {
            let result = fleet.binding(kind, "a").await.unwrap_or_default()["status"]["result"].clone();
            let right = result["outcome"] == "Succeeded" && result["cluster"] == cluster.as_str();
            Ok(Polled::when(right, || result.to_string()))
        })
        .await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_pytorch_job_runs() -> anyhow::Result<()> {
    let pods = ["a-master-0", "a-worker-0", "a-worker-1"];
    runs(PYTORCH_JOB, Job::pytorch("a"), "{master 1} {worker 2}", &pods).await
}

#[tokio::test]
async fn a_tensorflow_job_runs() -> anyhow::Result<()> {
    let pods = ["a-ps-0", "a-worker-0", "a-worker-1"];
    runs(TF_JOB, Job::tensorflow("a"), "{ps 1} {worker 2}", &pods).await
}

#[tokio::test]
async fn an_mpi_job_runs() -> anyhow::Result<()> {
    let pods = ["a-launcher-0", "a-worker-0", "a-worker-1"];
    runs(MPI_JOB, Job::mpi("a"), "{Launcher 1} {Worker 2}", &pods).await
}

#[tokio::test]
async fn a_batch_job_runs() -> anyhow::Result<()> {
    runs(BATCH_JOB, Job::batch("a"), "{job 2}", &[]).await
}

#[tokio::test]
async fn a_queued_job_waits_for_its_quota_and_gives_it_back() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8").start().await?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 1}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    fleet.apply(&Job::pytorch("first").runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "first", "Running").await?;
    fleet.apply(&Job::pytorch("second").manifest()).await?;
    fleet.wait_reason(PYTORCH_JOB, "second", "MaxJobs").await?;
    fleet.wait_state(PYTORCH_JOB, "second", "Queuing").await?;
    let unit = fleet
        .wait_for("the unit to say why it waits", async || {
            let unit = fleet.get(objects::QUEUE_UNIT, "default", "second-pytorchjob-rb-qu").await?;
            let unit = unit.unwrap_or_default();
            let said = (&unit["status"]["phase"], &unit["status"]["reason"]);
            Ok(match said == (&json!("Enqueued"), &json!("MaxJobs")) {
                true => Polled::Yes(unit),
                false => Polled::NotYet(unit["status"].to_string()),
            })
        })
        .await?;
    assert_eq!(unit["spec"]["queue"], "root/team", "{unit}");
    assert_eq!(unit["spec"]["consumerRef"]["name"], "second-pytorchjob");
    assert!(fleet.pods_of("second").await?.is_empty());

    fleet.delete(PYTORCH_JOB, "default", "first").await?;
    fleet.wait_state(PYTORCH_JOB, "second", "Succeeded").await?;
    fleet
        .wait_for("the unit to have succeeded and the tree to be unused", async || {
            let unit = fleet.get(objects::QUEUE_UNIT, "default", "second-pytorchjob-rb-qu").await?;
            let phase = unit.unwrap_or_default()["status"]["phase"].clone();
            let tree = fleet.get(objects::QUOTA_TREE, "kube-system", "tree").await?.unwrap_or_default();
            let used = tree["status"]["root"]["used"].clone();
            let unused = used["kube-queue/max-jobs"] == "0";
            Ok(Polled::when(phase == "Succeed" && unused, || format!("{phase} {used}")))
        })
        .await?;
    fleet.finish().await
}

#[tokio::test]
async fn what_a_job_depends_on_goes_with_it_and_goes_again() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8, west 2x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let meta = |name: &str| json!({"name": name, "namespace": "default"});
    let dependencies = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("settings"), "data": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("key"), "stringData": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("trainer")}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("data"), "spec": {
            "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}}),
    ];
    for dependency in &dependencies {
        fleet.apply(dependency).await?;
    }
    let pod = json!({"serviceAccountName": "trainer", "volumes": [
        {"name": "key", "secret": {"secretName": "key"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    let job =
        Job::pytorch("a").pod(pod).container(json!({"envFrom": [{"configMapRef": {"name": "settings"}}]}));
    fleet.apply(&job.runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    let binding = fleet.binding(PYTORCH_JOB, "a").await?;
    let cluster = binding["spec"]["clusters"][0]["name"].as_str().unwrap_or_default().to_string();
    for dependency in &dependencies {
        let kind = Kind::of(dependency)?;
        let mut there = fleet.member_objects(kind).await?;
        there.retain(|(_, object)| objects::name_of(object) == objects::name_of(dependency));
        let places: Vec<&str> = there.iter().map(|(at, _)| at.as_str()).collect();
        assert_eq!(places, [cluster.as_str()], "{}", kind.kind);
        // The member's copy belongs to Fleet, and holds what the hub's holds.
        let copy = &there[0].1;
        assert!(!copy["metadata"]["labels"][fleet_api::names::MANAGED_LABEL].is_null(), "{copy}");
        if kind == objects::CONFIG_MAP {
            assert_eq!(copy["data"], json!({"k": "v"}));
        }
    }

    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.wait_gone(objects::BINDING, "default", "a-pytorchjob").await?;
    for dependency in &dependencies {
        let kind = Kind::of(dependency)?;
        let name = objects::name_of(dependency);
        fleet
            .wait_for(&format!("{} {name} to leave the member", kind.kind), async || {
                let found = objects::get(&fleet.member(&cluster)?, kind, "default", name).await?;
                Ok(Polled::when(found.is_none(), || "still there".to_string()))
            })
            .await?;
        assert!(fleet.get(kind, "default", name).await?.is_some(), "{name} must stay on the hub");
    }
    fleet.finish().await
}

#[tokio::test]
async fn a_job_reaches_the_member_as_its_user_wrote_it() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let job = Job::pytorch("a").label("team", "vision").runs("forever").manifest();
    fleet.apply(&job).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    let copies = fleet.member_objects(PYTORCH_JOB).await?;
    let copy: &Value = &copies[0].1;
    assert_eq!(copies.len(), 1);
    assert_eq!(copy["spec"], job["spec"]);
    assert_eq!(copy["metadata"]["labels"]["team"], "vision");
    assert_eq!(copy["metadata"]["annotations"][fleet_api::names::EPOCH_ANNOTATION], "1");
    for (_, pod) in fleet.member_objects(POD).await? {
        let text = pod["spec"]["containers"][0]["env"].to_string();
        for variable in ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"] {
            assert!(text.contains(variable), "{variable} is not in {text}");
        }
    }
    // What the invariants read is there to be read: gangs, runs, places, and the hold on both sides.
    let snapshot = fleet.snapshot().await?;
    assert_eq!((snapshot.pods.len(), snapshot.holds.len()), (2, 2), "{snapshot}");
    for pod in &snapshot.pods {
        assert_eq!(pod.gang, Some(("a-pytorchjob".to_string(), 2)));
        assert!(pod.takes().is_some() && pod.may_run_for().is_some(), "{pod:?}");
        assert_eq!(pod.requests.get("nvidia.com/gpu"), 1);
    }
    let seen = fleet.history().changes.iter().filter(|change| change.cluster.is_some()).count();
    assert!(seen >= 4, "two pods were made, bound and started in {seen} changes");
    fleet.finish().await
}

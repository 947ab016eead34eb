//! Which cluster, which order, and what is changed on the way.

use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, CLUSTER, PYTORCH_JOB},
};
use serde_json::{Value, json};

async fn cluster_of(fleet: &TestFleet, job: &str) -> anyhow::Result<String> {
    let binding = fleet.binding(PYTORCH_JOB, job).await?;
    Ok(binding["spec"]["clusters"][0]["name"].as_str().unwrap_or_default().to_string())
}

fn cordon(on: bool) -> Value {
    let taint = json!({"key": fleet_api::cluster::CORDON_TAINT, "effect": "NoSchedule"});
    json!({"spec": {"taints": if on { json!([taint]) } else { Value::Null }}})
}

#[tokio::test]
async fn a_cordoned_cluster_takes_no_new_job_and_keeps_its_old() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&Job::pytorch("old").runs("2s").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "old", "Running").await?;
    objects::merge(&fleet.hub(), CLUSTER, "", "east", &cordon(true)).await?;
    fleet.apply(&Job::pytorch("new").manifest()).await?;
    let waits = fleet.wait_reason(PYTORCH_JOB, "new", "ClusterNotAdmitted").await?;
    let text = objects::condition(&waits, "Scheduled").map(|c| c["message"].to_string()).unwrap_or_default();
    assert!(text.contains("east: cordoned"), "{text}");
    fleet.wait_state(PYTORCH_JOB, "old", "Succeeded").await?;
    assert_eq!(cluster_of(&fleet, "new").await?, "");
    objects::merge(&fleet.hub(), CLUSTER, "", "east", &cordon(false)).await?;
    fleet.wait_state(PYTORCH_JOB, "new", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_policy_names_its_clusters() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8, west 1x8, north 1x8").start().await?;
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["spec"]["placement"]["clusterAffinity"] = json!({"clusterNames": ["west"]});
    fleet.apply(&policy).await?;
    for name in ["a", "b", "c"] {
        fleet.apply(&Job::pytorch(name).manifest()).await?;
        fleet.wait_state(PYTORCH_JOB, name, "Succeeded").await?;
        assert_eq!(cluster_of(&fleet, name).await?, "west");
    }
    fleet.finish().await
}

#[tokio::test]
async fn the_second_group_is_for_what_the_first_cannot_hold() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x2, west 1x8").start().await?;
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["spec"]["placement"]["clusterAffinities"] = json!([
        {"affinityName": "own", "clusterNames": ["east"]},
        {"affinityName": "borrowed", "clusterNames": ["west"]}]);
    fleet.apply(&policy).await?;
    for (name, cluster) in [("a", "east"), ("b", "west")] {
        fleet.apply(&Job::pytorch(name).runs("forever").manifest()).await?;
        fleet.wait_state(PYTORCH_JOB, name, "Running").await?;
        assert_eq!(cluster_of(&fleet, name).await?, cluster);
    }
    fleet.finish().await
}

#[tokio::test]
async fn an_override_changes_the_copy_and_not_the_original() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet
        .apply(&json!({
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
            "kind": "OverridePolicy",
            "metadata": {"name": "registry", "namespace": "default"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
                "overrideRules": [
                    {"targetCluster": {"clusterNames": ["east"]}, "overriders": {
                        "imageOverrider": [{"component": "Registry", "operator": "replace", "value": "near.example.com"}],
                        "labelsOverrider": [{"operator": "add", "value": {"place": "east"}}]}},
                    {"targetCluster": {"clusterNames": ["west"]}, "overriders": {
                        "labelsOverrider": [{"operator": "add", "value": {"place": "west"}}]}}],
            },
        }))
        .await?;
    fleet.apply(&Job::pytorch("a").runs("forever").manifest()).await?;
    let original = fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    let copies = fleet.member_objects(PYTORCH_JOB).await?;
    let copy = &copies[0].1;
    let image = |job: &Value| {
        let template = &job["spec"]["pytorchReplicaSpecs"]["Master"]["template"];
        template["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_string()
    };
    assert_eq!(image(&original), "registry.example.com/train:v1");
    assert_eq!(image(copy), "near.example.com/train:v1");
    assert_eq!(copy["metadata"]["labels"]["place"], "east");
    assert!(original["metadata"]["labels"]["place"].is_null());
    for (_, pod) in fleet.pods_of("a").await? {
        assert_eq!(pod["spec"]["containers"][0]["image"], "near.example.com/train:v1");
    }
    fleet.finish().await
}

#[tokio::test]
async fn the_more_urgent_job_goes_first() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    // Urgent jobs wait their turn here: nobody is evicted for them.
    let mut tree = quota_tree(json!({"kube-queue/max-jobs": 1}));
    tree["spec"]["root"]["children"][0]["attributes"] = json!({"fleet.dev/preempt-within": "Never"});
    fleet.apply(&tree).await?;
    for (name, value) in [("low", 10), ("high", 1000)] {
        fleet
            .apply(&json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value}))
            .await?;
        let mut policy = gang_policy(Queueing::Queued);
        policy["metadata"]["name"] = name.into();
        policy["spec"]["schedulePriority"] =
            json!({"priorityClassSource": "KubePriorityClass", "priorityClassName": name});
        policy["spec"]["resourceSelectors"] = json!([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "labelSelector": {"matchLabels": {"urgency": name}}}]);
        fleet.apply(&policy).await?;
    }
    let job = |name: &str, urgency: &str| Job::pytorch(name).label("urgency", urgency);
    fleet.apply(&job("holder", "low").runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "holder", "Running").await?;
    for (name, urgency) in [("low-1", "low"), ("low-2", "low"), ("high-1", "high")] {
        fleet.apply(&job(name, urgency).manifest()).await?;
        fleet.wait_state(PYTORCH_JOB, name, "Queuing").await?;
    }
    fleet
        .wait_for("the queue to list them in order", async || {
            let queues = objects::list(&fleet.hub(), objects::QUEUE).await?;
            let leaf = queues.iter().find(|queue| objects::name_of(queue).starts_with("root-team-"));
            let items =
                leaf.map(|leaf| leaf["status"]["queueItemDetails"]["active"].clone()).unwrap_or_default();
            let names: Vec<&str> =
                items.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect();
            let right = ["high-1-pytorchjob", "low-1-pytorchjob", "low-2-pytorchjob"];
            Ok(Polled::when(names == right, || items.to_string()))
        })
        .await?;
    fleet.delete(PYTORCH_JOB, "default", "holder").await?;
    for name in ["low-1", "low-2", "high-1"] {
        fleet.wait_state(PYTORCH_JOB, name, "Succeeded").await?;
    }
    let order = fleet.history().bound_in_order();
    assert_eq!(order, ["holder-pytorchjob", "high-1-pytorchjob", "low-1-pytorchjob", "low-2-pytorchjob"]);
    fleet.finish().await
}

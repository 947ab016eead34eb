//! Objects that may be on several clusters: copied to each, or their replicas divided.

use std::collections::BTreeMap;

use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, deployment, gang_policy},
    objects::{self, CONFIG_MAP, DEPLOYMENT, PYTORCH_JOB},
};
use serde_json::{Value, json};

fn policy(replica_scheduling: Value) -> Value {
    json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "services", "namespace": "default"},
        "spec": {
            "placement": {"replicaScheduling": replica_scheduling},
            "resourceSelectors": [
                {"apiVersion": "apps/v1", "kind": "Deployment"},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "endpoints"}],
        },
    })
}

/// Waits until the members have so many replicas of `web`, all ready, and the hub says their sum.
async fn wait_replicas(fleet: &TestFleet, expected: &[(&str, i64)]) -> anyhow::Result<()> {
    let expected: BTreeMap<String, i64> = expected.iter().map(|(name, n)| (name.to_string(), *n)).collect();
    let total: i64 = expected.values().sum();
    fleet
        .wait_for(&format!("replicas to be {expected:?}"), async || {
            let copies = fleet.member_objects(DEPLOYMENT).await?;
            let asked: BTreeMap<String, i64> = copies
                .iter()
                .map(|(at, copy)| (at.clone(), copy["spec"]["replicas"].as_i64().unwrap_or(0)))
                .collect();
            let hub = fleet.get(DEPLOYMENT, "default", "web").await?.unwrap_or_default();
            let ready = hub["status"]["readyReplicas"].as_i64().unwrap_or(0);
            Ok(Polled::when(asked == expected && ready == total, || {
                format!("{asked:?}, {ready} ready on the hub")
            }))
        })
        .await
}

#[tokio::test]
async fn a_duplicated_object_is_on_every_cluster() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0, north 1x0, west 1x0").start().await?;
    fleet.apply(&policy(json!({"replicaSchedulingType": "Duplicated"}))).await?;
    let map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "endpoints", "namespace": "default"},
            "data": {"metrics": value}})
    };
    fleet.apply(&deployment("web", 2)).await?;
    fleet.apply(&map("a")).await?;
    wait_replicas(&fleet, &[("east", 2), ("north", 2), ("west", 2)]).await?;
    for value in ["a", "b"] {
        fleet.apply(&map(value)).await?;
        fleet
            .wait_for("every member to have the new value", async || {
                let mut copies = fleet.member_objects(CONFIG_MAP).await?;
                copies.retain(|(_, copy)| objects::name_of(copy) == "endpoints");
                let right = copies.iter().filter(|(_, copy)| copy["data"]["metrics"] == value).count();
                Ok(Polled::when(right == 3, || format!("{right} of 3")))
            })
            .await?;
    }
    for (kind, name) in [(DEPLOYMENT, "web"), (CONFIG_MAP, "endpoints")] {
        fleet.delete(kind, "default", name).await?;
        fleet
            .wait_for(&format!("{} to leave the members", kind.kind), async || {
                let copies = fleet.member_objects(kind).await?;
                let left = copies.iter().filter(|(_, copy)| objects::name_of(copy) == name).count();
                Ok(Polled::when(left == 0, || format!("{left} left")))
            })
            .await?;
    }
    fleet.finish().await
}

#[tokio::test]
async fn static_weights_divide_the_replicas() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0, west 1x0").start().await?;
    let weight =
        |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    fleet
        .apply(&policy(json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [weight("east", 1), weight("west", 2)]}})))
        .await?;
    fleet.apply(&deployment("web", 6)).await?;
    wait_replicas(&fleet, &[("east", 2), ("west", 4)]).await?;
    fleet.apply(&deployment("web", 9)).await?;
    wait_replicas(&fleet, &[("east", 3), ("west", 6)]).await?;
    fleet.finish().await
}

#[tokio::test]
async fn dynamic_weights_follow_what_is_free() -> anyhow::Result<()> {
    // Room for 12 replicas in east and 4 in west.
    let fleet = FleetSpec::of("east 3x0, west 1x0").cpu("4").start().await?;
    fleet
        .apply(&policy(json!({
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}})))
        .await?;
    fleet.apply(&deployment("web", 8)).await?;
    wait_replicas(&fleet, &[("east", 6), ("west", 2)]).await?;
    fleet.finish().await
}

#[tokio::test]
async fn services_and_gangs_share_the_nodes() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8").cpu("4").start().await?;
    fleet.apply(&policy(json!({"replicaSchedulingType": "Duplicated"}))).await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&deployment("web", 6)).await?;
    wait_replicas(&fleet, &[("east", 6)]).await?;
    // Two cpu are left, the job asks for three.
    fleet.apply(&Job::pytorch("a").workers(2).manifest()).await?;
    fleet.wait_reason(PYTORCH_JOB, "a", "NoClusterFits").await?;
    fleet.apply(&deployment("web", 5)).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    fleet.finish().await
}

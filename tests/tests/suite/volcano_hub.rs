//! Volcano's jobs through the hub.

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Look, TestFleet,
    objects::{self, HYPER_NODE, VOLCANO_JOB},
    volcano::{example, hyper_node, nodes_of, wait_phase},
};
use serde_json::{Value, json};

/// Sends every Volcano Job whole to one cluster.
async fn policy(fleet: &TestFleet) -> anyhow::Result<()> {
    let policy = json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "volcano", "namespace": "default"},
        "spec": {
            "propagateDeps": true,
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
            "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
        },
    });
    fleet.apply(&policy).await?;
    Ok(())
}

#[tokio::test]
async fn the_tensorflow_example_runs_through_the_hub() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8")
        .run_time(RunTime::For(std::time::Duration::from_millis(300)))
        .start()
        .await?;
    policy(&fleet).await?;
    fleet.apply(&example("tensorflow-benchmark.yaml")?).await?;
    let hub = fleet.hub();
    wait_phase(&fleet, &hub, "tensorflow-benchmark", "Completed").await?;
    let binding = fleet.binding(VOLCANO_JOB, "tensorflow-benchmark").await?;
    assert_eq!(binding["spec"]["epoch"], 1);
    fleet.finish().await
}

#[tokio::test]
async fn a_wish_about_the_network_holds_in_the_member() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 4x0").cpu("2").run_time(RunTime::Forever).start().await?;
    let (hub, member) = (fleet.hub(), fleet.member("east")?);
    let nodes: Vec<String> = objects::list(&member, objects::NODE)
        .await?
        .iter()
        .map(|node| objects::name_of(node).to_owned())
        .collect();
    for (at, pair) in nodes.chunks(2).enumerate() {
        let name = format!("s-{at}");
        objects::apply(&member, &hyper_node(&name, 1, "Node", pair)).await?;
        fleet
            .wait_for("the switch to know its nodes", async || {
                let found = objects::get(&member, HYPER_NODE, "", &name).await?.unwrap_or_default();
                Ok(Look::at(found["status"]["nodeCount"] == 2, || found["status"].to_string()))
            })
            .await?;
    }
    policy(&fleet).await?;
    let job = |name: &str, pods: i64, topology: Value| {
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": pods, "networkTopology": topology, "tasks": [{"name": "w", "replicas": pods,
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main",
                "image": "registry.example.com/ring:v1", "resources": {"requests": {"cpu": "2"}}}]}}}]}})
    };
    // Three pods of a node each do not fit below one switch: the hub says so, and nothing is sent.
    fleet.apply(&job("wide", 3, json!({"mode": "hard", "highestTierAllowed": 1}))).await?;
    fleet
        .wait_for("the hub to say why the wide gang waits", async || {
            let binding = fleet.binding(VOLCANO_JOB, "wide").await.unwrap_or_default();
            let said = binding["status"]["conditions"].to_string();
            let wanted = "none of 2 hypernodes up to tier 1 has room for 3 pods of the gang";
            Ok(Look::at(said.contains(wanted), || said))
        })
        .await?;
    assert!(objects::get(&member, VOLCANO_JOB, "default", "wide").await?.is_none());
    fleet.apply(&job("pair", 2, json!({"mode": "hard", "highestTierAllowed": 1}))).await?;
    wait_phase(&fleet, &hub, "pair", "Running").await?;
    let on = nodes_of(&member, "pair-w", 2).await?;
    assert!(nodes.chunks(2).any(|pair| pair == on.as_slice()), "{on:?} of {nodes:?}");
    fleet.finish().await
}

//! What the jobs of one virtual cluster ask for takes no node from another.

use fleet_api::names;
use fleet_kubesim::RunTime;
use fleet_tests::{
    Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, CELL_CONFIGURATION},
};
use serde_json::{Value, json};

use crate::{
    vc_tasks::shared_pool,
    virtual_clusters::{ONE, lab},
};

/// The words of a job that no node takes.
const NOT_TAKEN: &str = "which does not take its pods";

async fn bad_nodes(fleet: &TestFleet) -> anyhow::Result<Vec<Value>> {
    let found = fleet.get(CELL_CONFIGURATION, "", "cells").await?.unwrap_or_default();
    Ok(found["status"]["badNodes"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn an_opportunistic_gang_that_no_node_takes_keeps_nobody_waiting() -> anyhow::Result<()> {
    let fleet = lab(ONE, RunTime::Forever).await?;
    fleet.apply(&shared_pool()).await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let of = |name: &str, vc: &str, class: &str, pods: i64| {
        Job::batch(name)
            .workers(pods)
            .label(names::VIRTUAL_CLUSTER_LABEL, vc)
            .label(names::CLASS_LABEL, class)
    };
    let selector = of("selector", "vc1", "oppo", 2).pod(json!({"nodeSelector": {"no": "such"}}));
    // One cell, and more processors than any node has.
    let mut greedy = of("greedy", "vc1", "oppo", 1)
        .container(json!({"resources": {"requests": {"cpu": "1k"}, "limits": {"nvidia.com/gpu": "1"}}}))
        .manifest();
    greedy["metadata"]["annotations"][names::CELLS_PER_POD_ANNOTATION] = json!("1");
    for job in [selector.manifest(), greedy] {
        fleet.apply(&job).await?;
    }
    for name in ["selector", "greedy"] {
        fleet
            .wait_for(&format!("{name} to know that no node takes it"), async || {
                let bindings = objects::list(&fleet.hub(), objects::BINDING).await?;
                let own = bindings.iter().find(|binding| binding["spec"]["resource"]["name"] == name);
                let told = own.map(|binding| binding["status"].to_string()).unwrap_or_default();
                assert_eq!(bad_nodes(&fleet).await?, [Value::Null; 0], "no node is bad for others: {told}");
                Ok(Polled::when(told.contains(NOT_TAKEN), || told.clone()))
            })
            .await?;
    }
    // Both nodes are there for others, while those two wait.
    fleet.apply(&of("own", "default", "prod", 1).manifest()).await?;
    fleet.apply(&of("lent", "default", "oppo", 1).manifest()).await?;
    for name in ["own", "lent"] {
        fleet
            .wait_for(&format!("{name} to run"), async || {
                assert_eq!(bad_nodes(&fleet).await?, [Value::Null; 0], "no node is bad");
                let pods = fleet.pods_of(name).await?;
                let is = pods.iter().any(|(_, pod)| pod["status"]["phase"] == "Running");
                Ok(Polled::when(is, || format!("{pods:?}")))
            })
            .await?;
    }
    fleet.finish().await
}

//! `fleet cordon` and `fleet uncordon`: the taint that keeps new jobs off a cluster.

use anyhow::bail;
use fleet_api::cluster::CORDON_TAINT;
use serde_json::{Value, json};

use crate::{answer::Answer, args::CordonArgs, connect::Hub, members::cluster_path};

/// Tries when someone else writes the Cluster at the same time.
const TRIES: usize = 5;

pub async fn cordon(hub: &Hub, args: &CordonArgs) -> anyhow::Result<Answer> {
    let set = |taints: &mut Vec<Value>| taints.push(json!({"key": CORDON_TAINT, "effect": "NoSchedule"}));
    change(hub, &args.cluster, "cordoned", set).await
}

pub async fn uncordon(hub: &Hub, args: &CordonArgs) -> anyhow::Result<Answer> {
    change(hub, &args.cluster, "uncordoned", |_| {}).await
}

async fn change(hub: &Hub, name: &str, done: &str, add: impl Fn(&mut Vec<Value>)) -> anyhow::Result<Answer> {
    let path = cluster_path(name);
    for _ in 0..TRIES {
        let cluster = hub.server.object(&path).await?;
        let standing = cluster["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let mut taints: Vec<Value> =
            standing.iter().filter(|taint| taint["key"] != CORDON_TAINT).cloned().collect();
        add(&mut taints);
        if taints.len() == standing.len() {
            return Ok(Answer::text(format!("cluster.fleet.dev/{name} already {done}\n")));
        }
        // The version makes this a compare-and-swap: a list is replaced as a whole.
        let version = &cluster["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        match hub.server.merge(&path, &patch).await {
            Ok(_) => return Ok(Answer::text(format!("cluster.fleet.dev/{name} {done}\n"))),
            Err(error) if error.is_conflict() => continue,
            Err(error) => return Err(error.into()),
        }
    }
    bail!("cluster {name:?} was changed by others {TRIES} times in a row; try again")
}

//! `fleet cordon` and `fleet uncordon`: set and remove the taints that keep new jobs off a cluster, or evict
//! its jobs.

use anyhow::bail;
use fleet_api::cluster::{CORDON_TAINT, DRAIN_TAINT};
use fleet_cli_ground::{answer::Answer, connect::Hub, members::cluster_path};
use serde_json::{Value, json};

use crate::args::CordonArgs;

/// Attempts if others write the Cluster at the same time.
const TRIES: usize = 5;

pub async fn cordon(hub: &Hub, args: &CordonArgs) -> anyhow::Result<Answer> {
    each(hub, &args.clusters, "cordoned", &[], &[(CORDON_TAINT, "NoSchedule")]).await
}

/// Also ends a drain.
pub async fn uncordon(hub: &Hub, args: &CordonArgs) -> anyhow::Result<Answer> {
    each(hub, &args.clusters, "uncordoned", &[CORDON_TAINT, DRAIN_TAINT], &[]).await
}

/// One after the other. A failure does not stop the rest.
async fn each(
    hub: &Hub,
    names: &[String],
    done: &str,
    off: &[&str],
    on: &[(&str, &str)],
) -> anyhow::Result<Answer> {
    let mut answer = Answer::default();
    for name in names {
        match set(hub, name, done, off, on).await {
            Ok(one) => answer.text.push_str(&one.text),
            Err(error) => answer.fail(format!("error: {error:#}")),
        }
    }
    Ok(answer)
}

/// Removes taints from a cluster by key and adds others (key and effect); `done` is the word for the output.
///
/// # Errors
/// The hub's error, or that others keep changing the Cluster.
pub async fn set(
    hub: &Hub,
    name: &str,
    done: &str,
    off: &[&str],
    on: &[(&str, &str)],
) -> anyhow::Result<Answer> {
    let path = cluster_path(name);
    for _ in 0..TRIES {
        let cluster = hub.server.object(&path).await?;
        let standing = cluster["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let mut taints: Vec<Value> =
            standing.iter().filter(|taint| !off.iter().any(|key| taint["key"] == *key)).cloned().collect();
        for (key, effect) in on {
            if !taints.iter().any(|taint| taint["key"] == *key) {
                taints.push(json!({"key": key, "effect": effect}));
            }
        }
        if taints == standing {
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

//! The jobs of one cluster, and the outcome of each while they leave it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fleet_api::{ResourceBinding, Work, names::cluster_namespace};
use fleet_cli_ground::{
    connect::Hub,
    members::cluster_path,
    server::{AskError, Selectors},
};
use fleet_console::terminal;
use fleet_hub_core::{binding::BindingEntry, drain};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

const BINDINGS: &str = "/apis/fleet.dev/v1alpha1/resourcebindings";
/// Limit for objects without a gang to leave once no gang is left.
const OTHERS_PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two polls.
const STEP: Duration = Duration::from_millis(500);

/// One job that is bound to the cluster.
pub struct Run {
    pub namespace: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub entry: BindingEntry,
}

impl Run {
    pub fn of(binding: ResourceBinding) -> Self {
        let entry = BindingEntry::read(binding, None);
        let resource = &entry.object.spec.resource;
        Self {
            namespace: resource.namespace.clone(),
            kind: resource.kind.clone(),
            name: resource.name.clone(),
            uid: entry.uid().to_string(),
            entry,
        }
    }

    fn is_in(&self, cluster: &str) -> bool {
        self.entry.object.spec.clusters.iter().any(|target| target.name == cluster)
            && !self.entry.is_finished()
    }
}

async fn bindings(hub: &Hub) -> anyhow::Result<Vec<Run>> {
    let listed = hub.server.list(BINDINGS, &Selectors::default(), "application/json").await?;
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let read: Vec<ResourceBinding> =
        items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?;
    Ok(read.into_iter().map(Run::of).collect())
}

/// All unfinished objects bound to the cluster, gangs in the order in which a drain moves them.
///
/// # Errors
/// What the hub says.
pub async fn runs(hub: &Hub, cluster: &str) -> anyhow::Result<Vec<Run>> {
    let mut runs: Vec<Run> = bindings(hub).await?.into_iter().filter(|run| run.is_in(cluster)).collect();
    order(&mut runs, Timestamp::now());
    Ok(runs)
}

/// The order of a drain: the smallest loss first, objects that are not gangs last.
pub fn order(runs: &mut [Run], now: Timestamp) {
    runs.sort_by_key(|run| {
        let loss = drain::loss(&run.entry.object, &run.entry.total, now);
        (!run.entry.is_gang(), loss, run.namespace.clone(), run.entry.name().to_string())
    });
}

/// The Works for the cluster.
///
/// # Errors
/// What the hub says.
pub async fn works(hub: &Hub, cluster: &str) -> anyhow::Result<Vec<Work>> {
    let path = works_path(cluster);
    match hub.server.list(&path, &Selectors::default(), "application/json").await {
        Ok(works) => {
            let items = works["items"].as_array().cloned().unwrap_or_default();
            Ok(items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?)
        }
        Err(AskError::Refused { code: 404, .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn works_path(cluster: &str) -> String {
    format!("/apis/fleet.dev/v1alpha1/namespaces/{}/works", cluster_namespace(cluster))
}

/// Deletes the Works of jobs whose result is recorded, and waits until the agent has removed them. Returns the Works
/// that are left.
///
/// # Errors
/// What the hub says.
pub async fn let_go_of_finished(hub: &Hub, cluster: &str) -> anyhow::Result<Vec<Work>> {
    let works = works(hub, cluster).await?;
    if works.is_empty() {
        return Ok(works);
    }
    let finished = of_finished(&works, &bindings(hub).await?);
    if finished.is_empty() {
        return Ok(works);
    }
    for name in &finished {
        match hub.server.delete(&format!("{}/{name}", works_path(cluster))).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let began = tokio::time::Instant::now();
    loop {
        let left = self::works(hub, cluster).await?;
        let waits = left.iter().any(|work| finished.contains(&work.name_any()));
        if !waits || began.elapsed() >= OTHERS_PATIENCE {
            return Ok(left);
        }
        tokio::time::sleep(STEP).await;
    }
}

/// Names of the Works whose job has finished.
fn of_finished(works: &[Work], runs: &[Run]) -> BTreeSet<String> {
    let finished: BTreeSet<&str> =
        runs.iter().filter(|run| run.entry.is_finished()).map(|run| run.uid.as_str()).collect();
    works
        .iter()
        .filter(|work| finished.contains(work.spec.binding.uid.as_str()))
        .map(ResourceExt::name_any)
        .collect()
}

/// `Deployment team/web, Job team/old (being removed)`: the object of each Work.
pub fn objects(works: &[Work]) -> String {
    let object = |work: &Work| {
        let manifest = work.spec.workload.manifests.first();
        let text = |pointer: &str| manifest?.pointer(pointer)?.as_str();
        let name = match (text("/kind"), text("/metadata/name")) {
            (Some(kind), Some(name)) => {
                format!("{kind} {}/{name}", text("/metadata/namespace").unwrap_or("default"))
            }
            _ => format!("Work {}", work.name_any()),
        };
        let removed = work.metadata.deletion_timestamp.is_some();
        format!("{name}{}", if removed { " (being removed)" } else { "" })
    };
    works.iter().map(object).collect::<Vec<_>>().join(", ")
}

/// Prints a line for each of `runs` as it leaves the cluster, until none is left or the time is over; for a
/// cluster declared gone, until its Works are gone too. Returns how much is left.
///
/// # Errors
/// What the hub says.
pub async fn follow(
    hub: &Hub,
    cluster: &str,
    runs: &[Run],
    timeout: Option<Duration>,
) -> anyhow::Result<usize> {
    let started = tokio::time::Instant::now();
    let mut waiting: BTreeMap<&str, &Run> = runs.iter().map(|run| (run.uid.as_str(), run)).collect();
    let mut others_since: Option<tokio::time::Instant> = None;
    let total = waiting.len();
    loop {
        let now: BTreeMap<String, Run> =
            bindings(hub).await?.into_iter().map(|run| (run.uid.clone(), run)).collect();
        let left: Vec<&str> = waiting
            .keys()
            .copied()
            .filter(|uid| now.get(*uid).is_none_or(|run| !run.is_in(cluster)))
            .collect();
        for uid in left {
            let Some(run) = waiting.remove(uid) else { continue };
            let fate = now.get(uid).map_or_else(|| "deleted".to_string(), fate);
            println!(
                "[{}/{total}] {} {}/{}: {}",
                total - waiting.len(),
                run.kind,
                run.namespace,
                run.name,
                terminal::plain(&fate)
            );
        }
        let written_off = is_written_off(hub, cluster).await?;
        let objects = if written_off { works(hub, cluster).await?.len() } else { 0 };
        let left = waiting.len().max(objects);
        // Objects that are not gangs move at once: those that remain after a while have no other cluster.
        if waiting.values().any(|run| run.entry.is_gang()) {
            others_since = None;
        } else if !waiting.is_empty() {
            let since = *others_since.get_or_insert_with(tokio::time::Instant::now);
            if !written_off && since.elapsed() >= OTHERS_PATIENCE {
                return Ok(left);
            }
        }
        if left == 0 || timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
            return Ok(left);
        }
        tokio::time::sleep(STEP).await;
    }
}

async fn is_written_off(hub: &Hub, cluster: &str) -> anyhow::Result<bool> {
    let object = hub.server.object(&cluster_path(cluster)).await?;
    let taints = object["spec"]["taints"].as_array();
    Ok(taints.into_iter().flatten().any(|taint| taint["key"] == fleet_api::cluster::GONE_TAINT))
}

/// The outcome of a job that left the cluster.
fn fate(run: &Run) -> String {
    let binding = &run.entry.object;
    let status = serde_json::to_value(&binding.status).unwrap_or_default();
    if !status["result"].is_null() {
        let text = |field: &str| status["result"][field].as_str().unwrap_or_default().to_string();
        let why = text("message");
        return if why.is_empty() { text("outcome") } else { format!("{}: {why}", text("outcome")) };
    }
    let targets: Vec<&str> = binding.spec.clusters.iter().map(|target| target.name.as_str()).collect();
    if !targets.is_empty() {
        let verb = if run.entry.is_gang() { "moved to" } else { "stays on" };
        return format!("{verb} {} (epoch {})", targets.join(", "), binding.spec.epoch);
    }
    let scheduled = status["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|c| c["type"] == "Scheduled" && c["status"] == "False"))
        .map(|c: &Value| {
            format!(
                "{}: {}",
                c["reason"].as_str().unwrap_or_default(),
                c["message"].as_str().unwrap_or_default()
            )
        });
    format!("waits for a place{}", scheduled.map(|why| format!(" ({why})")).unwrap_or_default())
}

#[cfg(test)]
mod tests;

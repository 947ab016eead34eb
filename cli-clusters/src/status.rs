//! `fleet status`: what is installed in each cluster, the state of its agent, and what to do.
//!
//! Inputs: Clusters and the leases of their agents. The judgement ([`judge`]) is pure. Deliberately absent:
//! use of nodes (`fleet clusters`), jobs (`fleet get`), and repair.

use std::collections::BTreeSet;

use fleet_api::{
    Cluster,
    cluster::CORDON_TAINT,
    names::{LEASE_NAME, cluster_namespace},
};
use fleet_cli_ground::{
    answer::Answer,
    connect::Hub,
    listing::{self, Layout, List},
    members::{self, cluster_path},
    output::Headers,
};
use fleet_views::age::human;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::args::StatusArgs;
use fleet_console::progress::Progress;

/// Clock differences above this are reported: fencing tolerates ten seconds between two machines.
const CLOCK_DIFFERENCE_S: i64 = 5;

/// State of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    name: String,
    /// True, False or Unknown.
    ready: String,
    kubernetes: Option<String>,
    agent: Option<String>,
    /// Its schedulers and job controllers.
    does: Vec<String>,
    missing_rights: Vec<String>,
    /// Seconds since the agent's lease was renewed, and how long a renewal is valid.
    lease_age_seconds: Option<i64>,
    lease_holder: Option<String>,
    /// Seconds by which the agent's clock is ahead of the hub's.
    clock_difference_seconds: Option<i64>,
    /// Seconds since the agent's last report of capacity.
    report_age_seconds: Option<i64>,
    /// What to do, the most urgent first; empty if all is well.
    todo: Vec<String>,
    /// It takes no work, or its agent cannot do all of its own; the first thing to do says why.
    #[serde(skip)]
    fails: bool,
}

pub async fn run(hub: &Hub, args: &StatusArgs) -> anyhow::Result<Answer> {
    if !args.check {
        return listing::run(&args.listing, async || list(&ask(hub, &args.clusters).await?)).await;
    }
    let all = ask(hub, &args.clusters).await?;
    let mut answer = list(&all)?.answer(&args.listing, Headers::of(&args.listing))?;
    for status in all.iter().filter(|status| status.fails) {
        let why = status.todo.first().map_or("", String::as_str);
        answer.fail(format!("error: cluster {:?}: {why}", status.name));
    }
    Ok(answer)
}

/// The state of these clusters; of none: of all.
async fn ask(hub: &Hub, names: &[String]) -> anyhow::Result<Vec<Status>> {
    let _progress = Progress::start("asking the hub");
    let mut all = Vec::new();
    for cluster in clusters(hub, names).await? {
        let namespace = cluster_namespace(cluster.metadata.name.as_deref().unwrap_or_default());
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE_NAME}");
        let lease = match hub.server.object(&path).await {
            Ok(lease) => Some(lease),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        all.push(judge(&cluster, lease.as_ref(), Timestamp::now()));
    }
    Ok(all)
}

/// Clusters sorted by name. Those that are named are read one by one: an agent's credential may not list.
async fn clusters(hub: &Hub, names: &[String]) -> anyhow::Result<Vec<Cluster>> {
    if names.is_empty() {
        return members::clusters(hub).await;
    }
    let mut found = Vec::new();
    for name in names.iter().collect::<BTreeSet<_>>() {
        match hub.server.object(&cluster_path(name)).await {
            Ok(cluster) => found.push(serde_json::from_value(cluster)?),
            Err(error) if error.is_not_found() => {
                // A server that is no hub says the same; a list tells.
                members::clusters(hub).await?;
                anyhow::bail!("cluster {name:?} is not in this fleet; `fleet join {name}` adds it");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn judge(cluster: &Cluster, lease: Option<&Value>, now: Timestamp) -> Status {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let ready = ready.map_or("Unknown", |condition| condition.status.as_str()).to_string();
    let agent = status.agent.clone().unwrap_or_default();
    let renewed = lease.and_then(|lease| time(&lease["spec"]["renewTime"]));
    let written = lease.and_then(written_at);
    let lease_age = renewed.map(|at| now.as_second() - written.unwrap_or(at).as_second());
    // Both times are of the same write: the agent's clock, and the hub's in whole seconds.
    let difference = renewed.zip(written).map(|(theirs, ours)| theirs.as_second() - ours.as_second());
    let report_age = status.report_sequence.map(|millis| (now.as_millisecond() - millis) / 1000);
    let mut does: Vec<String> =
        agent.scheduler_names.iter().map(|name| format!("binds pods of {name}")).collect();
    does.extend(agent.controllers.iter().map(|kind| format!("creates pods of {kind}")));
    let mut found = Status {
        ready,
        kubernetes: status.kubernetes_version,
        agent: agent.version,
        does,
        missing_rights: agent.missing_rights,
        lease_age_seconds: lease_age,
        lease_holder: lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_string)),
        clock_difference_seconds: difference,
        report_age_seconds: report_age,
        todo: Vec::new(),
        fails: false,
        name,
    };
    let holds = lease.and_then(|lease| lease["spec"]["leaseDurationSeconds"].as_i64()).unwrap_or(40);
    let answers = found.lease_age_seconds.is_some_and(|age| age <= holds);
    found.fails = !answers || found.ready != "True" || !found.missing_rights.is_empty();
    found.todo = todo(&found, cluster, holds);
    found
}

/// `holds`: seconds for which a renewal of the lease is valid.
fn todo(found: &Status, cluster: &Cluster, holds: i64) -> Vec<String> {
    let name = &found.name;
    let mut todo = Vec::new();
    match found.lease_age_seconds {
        None => todo.push(format!(
            "its agent has never answered: `kubectl -n fleet-system logs deployment/fleet-member-agent` there says why; \
             `fleet join {name}` gives it another token when its hour is over"
        )),
        Some(age) if age > holds => todo.push(format!(
            "its agent has not answered for {}: is it running, and does it reach the hub? `kubectl -n fleet-system get pods` \
             there; `fleet unjoin --force {name}` if the cluster is dead",
            human(age)
        )),
        Some(_) if found.ready != "True" => {
            todo.push(format!("it is not ready: `kubectl describe cluster {name}` on the hub says why"));
        }
        Some(_) => {}
    }
    if !found.missing_rights.is_empty() {
        todo.push(format!(
            "its agent lacks rights there: {}; `fleet join {name}`, or an upgrade of its chart, gives them",
            found.missing_rights.join(", ")
        ));
    }
    if let Some(seconds) = found.clock_difference_seconds.filter(|s| s.abs() > CLOCK_DIFFERENCE_S) {
        let side = if seconds > 0 { "ahead of" } else { "behind" };
        todo.push(format!("its clock is {} s {side} the hub's: set both by a time service", seconds.abs()));
    }
    let own = env!("CARGO_PKG_VERSION");
    if found.agent.as_deref().is_some_and(|version| version != own) {
        todo.push(format!("its agent is not of this program's version, {own}: upgrade the older one"));
    }
    if cluster.spec.taints.iter().any(|taint| taint.key == CORDON_TAINT) {
        todo.push(format!("it is cordoned and gets no new jobs: `fleet uncordon {name}` ends that"));
    }
    let proposed = cluster.status.as_ref().and_then(|status| status.proposed.as_ref());
    if proposed.is_some_and(|proposed| {
        proposed.api_endpoint.is_some() && proposed.api_endpoint != cluster.spec.api_endpoint
    }) {
        todo.push(format!("its agent proposes another address: `fleet join {name} --confirm` accepts it"));
    }
    todo
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// When the hub accepted the agent's last write of the lease, by the hub's own clock.
pub(crate) fn written_at(lease: &Value) -> Option<Timestamp> {
    let managers = lease["metadata"]["managedFields"].as_array()?;
    managers
        .iter()
        .filter(|manager| manager["manager"] == "member-agent")
        .filter_map(|m| time(&m["time"]))
        .max()
}

/// A block for each cluster.
fn list(all: &[Status]) -> anyhow::Result<List> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_string());
    let ago = |seconds: Option<i64>| seconds.map_or("never".to_string(), |s| format!("{} ago", human(s)));
    let headers = ["name", "ready", "kubernetes", "agent", "lease", "report", "clock", "lacks", "->"];
    let mut list = List {
        layout: Layout::Blocks,
        aging: &["lease", "report"],
        ..List::of_items(&headers, ("cluster.fleet.dev/", ".name"))
    };
    list.nothing = "No clusters have joined; `fleet join NAME` adds one.".to_string();
    for status in all {
        let agent = std::iter::once(&or_dash(&status.agent)).chain(&status.does).cloned().collect::<Vec<_>>();
        let holder =
            status.lease_holder.as_ref().map_or(String::new(), |holder| format!(", held by {holder}"));
        let clock = status.clock_difference_seconds;
        let cells = [
            status.name.clone(),
            status.ready.clone(),
            or_dash(&status.kubernetes),
            agent.join(", "),
            format!("renewed {}{holder}", ago(status.lease_age_seconds)),
            ago(status.report_age_seconds),
            clock.map_or("-".to_string(), |seconds| format!("{seconds:+} s against the hub's")),
            or_dash(&Some(status.missing_rights.join(", ")).filter(|rights| !rights.is_empty())),
            status.todo.join("\n"),
        ];
        list.row(status, cells.to_vec())?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests;

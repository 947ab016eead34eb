//! `fleet drain`: moves the jobs of a cluster elsewhere, one gang at a time, the smallest loss first; objects
//! that are not gangs leave at once.
//!
//! The intent is a taint on the Cluster; the controller does the work, whether or not this command waits.

use std::{collections::BTreeSet, time::Duration};

use fleet_api::cluster::{CORDON_TAINT, DRAIN_TAINT};
use fleet_cli_ground::{age, answer::Answer, connect::Hub, members::cluster_path};
use jiff::Timestamp;

use crate::{
    args::DrainArgs,
    cordon,
    leaving::{self, Run},
};
use fleet_console::table::Table;

pub async fn run(hub: &Hub, args: &DrainArgs) -> anyhow::Result<Answer> {
    let mut whole = Answer::default();
    let mut absent = BTreeSet::new();
    for (name, step) in steps(&args.clusters, args.dry_run) {
        if absent.contains(name) {
            continue;
        }
        let done = match step {
            Step::Close => cordon::set(hub, name, "cordoned", &[], &[(CORDON_TAINT, "NoSchedule")])
                .await
                .map(|_| Answer::default()),
            Step::Drain => one(hub, name, args).await,
        };
        let one = match done {
            Ok(one) => one,
            Err(error) => {
                whole.fail(format!("error: {error:#}"));
                absent.insert(name);
                continue;
            }
        };
        whole.text.push_str(&one.text);
        whole.notes.extend(one.notes);
        whole.failed |= one.failed;
    }
    Ok(whole)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Close,
    Drain,
}

/// All are closed before the first one is drained: none of them takes the jobs of another, which would be evicted twice.
fn steps(names: &[String], dry_run: bool) -> impl Iterator<Item = (&str, Step)> {
    let several = names.len() > 1 && !dry_run;
    let closed = names.iter().filter(move |_| several).map(|name| (name.as_str(), Step::Close));
    closed.chain(names.iter().map(|name| (name.as_str(), Step::Drain)))
}

async fn one(hub: &Hub, name: &str, args: &DrainArgs) -> anyhow::Result<Answer> {
    hub.server.object(&cluster_path(name)).await?;
    let runs = leaving::runs(hub, name).await?;
    let (gangs, others): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.entry.is_gang());
    if args.dry_run {
        let mut answer = Answer::text(plan(&gangs, Timestamp::now()));
        answer.note(format!("{} jobs would move off {name}; nothing was changed", gangs.len()));
        if !others.is_empty() {
            answer.note(format!("would leave {name} for other clusters that admit them: {}", names(&others)));
        }
        return Ok(answer);
    }
    let taints = [(CORDON_TAINT, "NoSchedule"), (DRAIN_TAINT, "NoExecute")];
    let mut answer = cordon::set(hub, name, "draining", &[], &taints).await?;
    if args.no_wait {
        return Ok(answer);
    }
    print!("{}", std::mem::take(&mut answer.text));
    match leaving::follow(hub, name, &runs, args.timeout.map(Duration::from_secs)).await? {
        0 => answer.text = format!("cluster.fleet.dev/{name} drained\n"),
        left => {
            let still = leaving::runs(hub, name).await?;
            let still: Vec<&Run> = still.iter().collect();
            answer.fail(format!(
                "{left} objects are still on {name}: {}; the drain continues. Objects for which no other cluster has room \
                 leave when one has, or when you delete them on the hub",
                names(&still)
            ));
        }
    }
    Ok(answer)
}

/// `Deployment team/web, ConfigMap team/settings`.
pub fn names(runs: &[&Run]) -> String {
    let names: Vec<String> =
        runs.iter().map(|run| format!("{} {}/{}", run.kind, run.namespace, run.name)).collect();
    names.join(", ")
}

/// The jobs in the order in which they would move.
fn plan(gangs: &[&Run], now: Timestamp) -> String {
    let mut table = Table::new(&["ORDER", "NAMESPACE", "KIND", "NAME", "PODS", "RUNNING FOR"]);
    for (index, run) in gangs.iter().enumerate() {
        let started =
            run.entry.object.status.as_ref().and_then(|status| status.run.as_ref()?.started_at.clone());
        let metadata = serde_json::json!({"metadata": {"creationTimestamp": started}});
        let ran = if started.is_some() { age::of(&metadata, now) } else { "-".to_string() };
        let pods = run.entry.object.spec.replicas.to_string();
        table.row([
            (index + 1).to_string(),
            run.namespace.clone(),
            run.kind.clone(),
            run.name.clone(),
            pods,
            ran,
        ]);
    }
    table.print()
}

#[cfg(test)]
mod tests;

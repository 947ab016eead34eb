//! Replaces a member on the hub: reports a cluster with capacity, and reports the end of each job when its
//! run time has passed.
//!
//! Nothing runs and nothing is reserved. This measures admission alone, as benchmarks of queues do. Run times
//! are those of [`fleet_simulator::run_plan`]. Not here: jobs that fail, and every kind but the batch Job.

use std::{collections::BTreeMap, time::Duration};

use fleet_api::{Cluster, Work, names};
use fleet_resources::Resources;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use fleet_simulator::run_plan::{Nature, RunTime, run_plan};

use super::MemberSpec;
use crate::hollow::{sleep_until, timers::Timers};

/// Holder of the lease.
const MANAGER: &str = "stand-in";
/// How often the lease is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Writes in flight.
const AT_ONCE: usize = 64;
/// Wait before a refused write is retried.
const RETRY: Duration = Duration::from_millis(200);

/// A status write for a Work, by name and uid.
struct Due {
    name: String,
    uid: String,
    patch: Value,
    status: bool,
}

/// Runs until `shutdown` is cancelled.
///
/// # Errors
/// The hub refuses the cluster's report.
pub async fn run(
    hub: Client,
    member: MemberSpec,
    default: RunTime,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let namespace = names::cluster_namespace(&member.name);
    report(&hub, &member).await?;
    let leases: Api<Lease> = Api::namespaced(hub.clone(), &namespace);
    let works: Api<Work> = Api::namespaced(hub, &namespace);
    let mut events = Box::pin(watcher(works.clone(), watcher::Config::default()).default_backoff());
    let mut timers: Timers<Due> = Timers::default();
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    let mut writes: FuturesUnordered<BoxFuture<'static, Option<Due>>> = FuturesUnordered::new();
    let mut renewal = tokio::time::interval(RENEW_EVERY);
    loop {
        let due = timers.next().filter(|_| writes.len() < AT_ONCE);
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            _ = renewal.tick() => renew(&leases).await?,
            Some(refused) = writes.next() => {
                if let Some(due) = refused {
                    timers.insert(Instant::now() + RETRY, due);
                }
            }
            () = sleep_until(due) => {
                while writes.len() < AT_ONCE && let Some(due) = timers.pop_due(Instant::now()) {
                    // The Work of a preempted run has gone, and the next run's has its name.
                    if known.contains_key(&due.uid) {
                        writes.push(write(works.clone(), due).boxed());
                    }
                }
            }
            Some(event) = events.next() => match event {
                Ok(watcher::Event::Apply(work) | watcher::Event::InitApply(work)) => {
                    let uid = work.uid().unwrap_or_default();
                    let leaves = work.metadata.deletion_timestamp.is_some();
                    if known.get(&uid).is_none_or(|left| *left != leaves) {
                        known.insert(uid, leaves);
                        let (at, due) = if leaves { (Duration::ZERO, let_go(&work)) } else { end(&work, default) };
                        timers.insert(Instant::now() + at, due);
                    }
                }
                Ok(watcher::Event::Delete(work)) => drop(known.remove(&work.uid().unwrap_or_default())),
                _ => {}
            },
        }
    }
}

/// The capacity of the cluster, all of it free.
async fn report(hub: &Client, member: &MemberSpec) -> anyhow::Result<()> {
    let node = Resources::parse([("cpu", member.cpu.as_str()), ("memory", &member.memory), ("pods", "110")])?;
    let nodes = i64::try_from(member.nodes)?;
    let all = node.scaled(nodes).to_quantities();
    let node = node.to_quantities();
    let status = json!({"status": {
        "reportSequence": 1, "reservation": false,
        "nodeSummary": {"totalNum": nodes, "readyNum": nodes},
        "resourceSummary": {"allocatable": all},
        "nodeShapes": [{"count": nodes, "allocatable": node, "free": node}]}});
    let clusters: Api<Cluster> = Api::all(hub.clone());
    clusters.patch_status(&member.name, &params(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn renew(leases: &Api<Lease>) -> anyhow::Result<()> {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": names::LEASE_NAME},
        "spec": {"holderIdentity": MANAGER, "leaseDurationSeconds": 40,
            "renewTime": format!("{:.6}", Timestamp::now())}});
    leases.patch(names::LEASE_NAME, &PatchParams::apply(MANAGER).force(), &Patch::Apply(lease)).await?;
    Ok(())
}

/// The status of a Work whose job has run.
fn end(work: &Work, default: RunTime) -> (Duration, Due) {
    let manifest = work.spec.workload.manifests.first().cloned().unwrap_or_default();
    let own: BTreeMap<String, String> =
        serde_json::from_value(manifest["metadata"]["annotations"].clone()).unwrap_or_default();
    let plan = run_plan(&own, &BTreeMap::new(), Nature::Batch, "", default);
    let after = match plan.run_time {
        RunTime::For(time) => time,
        RunTime::Forever => Duration::MAX,
    };
    let began = Timestamp::now();
    let over = began.checked_add(after).unwrap_or(Timestamp::MAX);
    let (began, over) = (format!("{began:.0}"), format!("{over:.0}"));
    let condition = |of: &str| {
        json!({"type": of, "status": "True", "reason": "CompletionsReached", "message": "",
            "lastProbeTime": over, "lastTransitionTime": over})
    };
    // As a job controller writes it: a server refuses an end without its criteria.
    let ended = json!({"startTime": began, "completionTime": over, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    let status = json!({
        "observedEpoch": work.spec.epoch,
        "conditions": [{"type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "",
            "lastTransitionTime": over, "observedGeneration": work.metadata.generation}],
        "manifestStatuses": [{"identifier": {"ordinal": 0, "group": "batch", "version": "v1", "kind": manifest["kind"],
            "namespace": manifest["metadata"]["namespace"], "name": manifest["metadata"]["name"]},
            "status": ended, "health": "Healthy"}]});
    let due = Due {
        name: work.name_any(),
        uid: work.uid().unwrap_or_default(),
        patch: json!({"metadata": {"uid": work.uid()}, "status": status}),
        status: true,
    };
    (after.min(Duration::from_secs(u32::MAX.into())), due)
}

fn let_go(work: &Work) -> Due {
    Due {
        name: work.name_any(),
        uid: work.uid().unwrap_or_default(),
        patch: json!({"metadata": {"uid": work.uid(), "finalizers": null}}),
        status: false,
    }
}

/// Returns what must be written again.
async fn write(works: Api<Work>, due: Due) -> Option<Due> {
    let patch = Patch::Merge(&due.patch);
    let answer = match due.status {
        true => works.patch_status(&due.name, &params(), &patch).await,
        false => works.patch(&due.name, &params(), &patch).await,
    };
    match answer {
        // 422: a Work of this name with another uid.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => None,
        Err(error) => {
            tracing::warn!(work = due.name, uid = due.uid, %error, "tried again");
            Some(due)
        }
        Ok(_) => None,
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::AGENT_MANAGER.to_string()), ..PatchParams::default() }
}

//! Capacity reports: the member's resources and their use, in the Cluster's status.
//!
//! The scheduler makes reports (`fleet_member_scheduler::Report`). [`run`] writes only the newest one, and
//! only its differences from the last.

use std::{sync::Arc, time::Duration};

use fleet_agent_ground::{Backoff, CallError, call};
use fleet_api::{Cluster, ClusterStatus, patch::merge_diff_of};
use fleet_member_scheduler::Report;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use crate::{context::Context, join, rights};

/// Interval of discovery of the member's version and kinds.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// API groups whose kinds the fleet propagates, besides the core group.
const GROUPS: [&str; 9] = [
    "apps",
    "argoproj.io",
    "batch",
    "batch.volcano.sh",
    "kubeflow.org",
    "ray.io",
    "scheduling.volcano.sh",
    "scheduling.x-k8s.io",
    "sparkoperator.k8s.io",
];

/// Writes reports to the hub as they come, until the agent stops. `known` is the current status on the hub.
pub(crate) async fn run(
    context: Arc<Context>,
    mut reports: watch::Receiver<Option<Report>>,
    known: ClusterStatus,
) -> anyhow::Result<()> {
    let mut writer = Writer {
        cluster: Api::all(context.hub.clone()),
        discovered: ClusterStatus {
            reservation: Some(context.options.reservation),
            proposed: join::proposed(&context.options),
            agent: Some(rights::agent(&context.options)),
            ..ClusterStatus::default()
        },
        known: own_part(known),
        version: None,
        context: context.clone(),
    };
    let mut backoff = Backoff::new(&format!("{}/capacity", context.options.cluster));
    writer.discover().await;
    let mut discovery = tokio::time::interval_at(Instant::now() + DISCOVERY_INTERVAL, DISCOVERY_INTERVAL);
    let mut unwritten = false;
    loop {
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return Ok(()),
            changed = reports.changed() => if changed.is_err() { return Ok(()) },
            _ = discovery.tick() => writer.discover().await,
            () = async { backoff.wait().await }, if unwritten => {}
        }
        let Some(report) = reports.borrow_and_update().clone() else { continue };
        context.counts.see_capacity(&report.status);
        let written = context.shutdown.run_until_cancelled(writer.write(report)).await;
        unwritten = match written {
            Some(Err(error)) => {
                context.counts.report_ended(false);
                tracing::warn!(cluster = %context.options.cluster, %error, "cannot report capacity");
                true
            }
            _ => {
                backoff.reset();
                false
            }
        };
    }
}

struct Writer {
    context: Arc<Context>,
    cluster: Api<Cluster>,
    /// The part of the status that does not come from reports: discovery and options.
    discovered: ClusterStatus,
    /// The status on the hub at the version below, as far as known.
    known: ClusterStatus,
    /// `None`: it must be read again.
    version: Option<String>,
}

/// Conditions belong to the hub and are not compared.
fn own_part(status: ClusterStatus) -> ClusterStatus {
    ClusterStatus { conditions: Vec::new(), ..status }
}

impl Writer {
    async fn write(&mut self, report: Report) -> Result<(), CallError> {
        let mut status = ClusterStatus {
            kubernetes_version: self.discovered.kubernetes_version.clone(),
            api_enablements: self.discovered.api_enablements.clone(),
            reservation: self.discovered.reservation,
            proposed: self.discovered.proposed.clone(),
            agent: self.discovered.agent.clone(),
            report_sequence: self.known.report_sequence,
            ..report.status
        };
        if status == self.known
            && self.known.report_sequence >= Some(report.promised)
            && self.version.is_some()
        {
            return Ok(());
        }
        let name = &self.context.options.cluster;
        // A report whose request was given up may still arrive later; the version keeps it from taking
        // effect.
        let version = match self.version.take() {
            Some(version) => version,
            None => {
                let found = call(self.cluster.get(name)).await?;
                self.known = own_part(found.status.unwrap_or_default());
                found.metadata.resource_version.unwrap_or_default()
            }
        };
        status.report_sequence = Some(report.sequence);
        let Some(diff) = merge_diff_of(&self.known, &status) else { return Ok(()) };
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": diff}));
        let written = call(self.cluster.patch_status(name, &PatchParams::default(), &patch)).await?;
        self.context.counts.report_ended(true);
        (self.known, self.version) = (status, written.metadata.resource_version);
        Ok(())
    }

    /// Discovers version and kinds; on failure the previous values stay.
    async fn discover(&mut self) {
        if self.context.options.check_rights
            && let Some(agent) = &mut self.discovered.agent
            && let Ok(missing) = rights::missing(&self.context).await
        {
            agent.missing_rights = missing;
        }
        let client = &self.context.member;
        match call(client.apiserver_version()).await {
            Ok(version) => self.discovered.kubernetes_version = Some(version.git_version),
            Err(error) => tracing::debug!(%error, "cannot read the member's version"),
        }
        match enablements(client).await {
            // Kinds that may not be applied here are reported as not served.
            Ok(mut kinds) => {
                let permits = &self.context.options.permits;
                kinds.retain(|kind| {
                    kind.rsplit_once('/').is_some_and(|(version, kind)| permits.kind(version, kind))
                });
                self.discovered.api_enablements = kinds;
            }
            Err(error) => tracing::debug!(%error, "cannot read the member's kinds"),
        }
    }
}

/// Kinds that the member serves in the groups that the fleet propagates, `group/version/Kind`, sorted.
async fn enablements(client: &kube::Client) -> Result<Vec<String>, CallError> {
    let mut lists = vec![call(client.list_core_api_resources("v1")).await?];
    for group in call(client.list_api_groups()).await?.groups {
        if !GROUPS.contains(&group.name.as_str()) {
            continue;
        }
        for version in &group.versions {
            lists.push(call(client.list_api_group_resources(&version.group_version)).await?);
        }
    }
    let mut kinds: Vec<String> = Vec::new();
    for list in &lists {
        let whole = list.resources.iter().filter(|resource| !resource.name.contains('/'));
        kinds.extend(whole.map(|resource| format!("{}/{}", list.group_version, resource.kind)));
    }
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

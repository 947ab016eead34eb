//! State about nodes that other schedulers also use, and removal of scheduling gates.

use std::{collections::BTreeMap, sync::Arc};

use fleet_agent_ground::{CallError, call};
use fleet_member_state::{PodKey, Release, gates::HOSTNAME};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::{
    context::Context,
    notices::{Notice, Notices},
};

/// Event source for pods that other schedulers bind.
pub(super) const SOURCE: &str = "fleet";

/// In memory only. A restart loses when gates were removed; such gangs are reconciled again when they change.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Gangs whose gates were removed, and when.
    pub let_go: BTreeMap<String, Instant>,
    /// When places are searched again.
    pub replan_at: Option<Instant>,
    /// The last message to pods behind gates, by reservation.
    pub told: BTreeMap<String, String>,
}

/// How long the cluster's scheduler may take to bind a gang whose gates were removed. It is short enough that
/// a partly bound gang is deleted within the grace period.
pub(super) fn bound_within(grace: Duration) -> Duration {
    grace / 2
}

impl Shared {
    /// When to check again without a change.
    pub fn next_look(&self, grace: Duration) -> Option<Instant> {
        let grace = bound_within(grace);
        let first = self.let_go.values().min().map(|at| *at + grace);
        [first, self.replan_at].into_iter().flatten().min()
    }
}

/// Removes the gates. Returns the pods that still have theirs.
pub(crate) async fn release(context: Arc<Context>, notices: Notices, releases: Vec<Release>) -> Vec<PodKey> {
    let mut failed = Vec::new();
    for release in releases {
        match release_one(&context, &release).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(pod = %release.pod.name, namespace = %release.pod.namespace, %error, "cannot remove the scheduling gate");
                let why = format!("its scheduling gate cannot be removed: {error}");
                notices.send(Notice::failed_scheduling(&release.pod, &release.uid, SOURCE, &why));
                failed.push(release.pod);
            }
        }
    }
    failed
}

async fn release_one(context: &Context, release: &Release) -> Result<(), CallError> {
    let pods: Api<Pod> = Api::namespaced(context.member.client.clone(), &release.pod.namespace);
    let gates: Vec<Value> = release.others.iter().map(|name| json!({"name": name})).collect();
    let mut patch = json!({
        "metadata": {"uid": release.uid},
        "spec": {"nodeSelector": {HOSTNAME: release.hostname}, "schedulingGates": gates},
    });
    if let Some(marks) = &release.marks {
        patch["metadata"]["annotations"] = json!(**marks);
    }
    let patch = Patch::Merge(patch);
    call(pods.patch(&release.pod.name, &PatchParams::default(), &patch)).await.map(drop)
}

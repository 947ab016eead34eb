//! What the core remembers of nodes that other schedulers use as well, and how gates are taken off.

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

/// Source of events about pods that other schedulers bind.
pub(super) const SOURCE: &str = "fleet";

/// What the core remembers of it. A restart loses when gangs were let go: they are looked at again when they change.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Gangs whose gates were taken off, and when.
    pub let_go: BTreeMap<String, Instant>,
    /// When places are looked for again.
    pub replan_at: Option<Instant>,
    /// What pods behind gates were told last, by reservation.
    pub told: BTreeMap<String, String>,
}

/// How long the cluster's scheduler may take to bind a gang that was let go: so short that what it has bound of one that
/// does not fit is gone within the grace.
pub(super) fn bound_within(grace: Duration) -> Duration {
    grace / 2
}

impl Shared {
    /// When something is to be looked at without news.
    pub fn next_look(&self, grace: Duration) -> Option<Instant> {
        let grace = bound_within(grace);
        let first = self.let_go.values().min().map(|at| *at + grace);
        [first, self.replan_at].into_iter().flatten().min()
    }
}

/// Takes the gates off. Returns the pods that keep theirs.
pub(crate) async fn release(context: Arc<Context>, notices: Notices, releases: Vec<Release>) -> Vec<PodKey> {
    let mut failed = Vec::new();
    for release in releases {
        match release_one(&context, &release).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(pod = %release.pod.name, namespace = %release.pod.namespace, %error, "cannot take the gate off");
                let why = format!("its gate cannot be taken off: {error}");
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
    let patch = json!({
        "metadata": {"uid": release.uid},
        "spec": {"nodeSelector": {HOSTNAME: release.hostname}, "schedulingGates": gates},
    });
    let patch = Patch::Merge(patch);
    call(pods.patch(&release.pod.name, &PatchParams::default(), &patch)).await.map(drop)
}

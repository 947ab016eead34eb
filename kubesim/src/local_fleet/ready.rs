//! When a local fleet is ready: its servers answer, every Cluster is Ready and has reported its capacity.

use std::time::Duration;

use fleet_api::Cluster;
use futures::future::LocalBoxFuture;
use kube::{Api, api::ListParams};

use super::LocalFleet;

/// How often the hub is asked while a fleet starts; cheap because it is in process.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Why a fleet is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    #[error("{0}")]
    PartFailed(String),
    #[error("not ready after {waited:?}: {waiting_for}")]
    TimedOut { waited: Duration, waiting_for: String },
}

impl LocalFleet {
    /// Waits until hub and members answer and every Cluster is Ready with its capacity reported.
    ///
    /// # Errors
    /// A part ended with an error, or `within` has passed; says what was missing.
    pub fn ready(&self, within: Duration) -> LocalBoxFuture<'_, Result<(), NotReady>> {
        Box::pin(self.ready_in_place(within))
    }

    async fn ready_in_place(&self, within: Duration) -> Result<(), NotReady> {
        let mut waiting_for = "the hub".to_string();
        let asked = async {
            loop {
                match self.missing().await {
                    None => return,
                    Some(missing) => waiting_for = missing,
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let outcome = tokio::select! {
            biased;
            failure = self.failed() => Err(NotReady::PartFailed(failure)),
            waited = tokio::time::timeout(within, asked) => Ok(waited.is_ok()),
        };
        match outcome? {
            true => Ok(()),
            false => Err(NotReady::TimedOut { waited: within, waiting_for }),
        }
    }

    /// What is still missing, as a phrase.
    async fn missing(&self) -> Option<String> {
        let clusters: Api<Cluster> = Api::all(self.hub());
        let listed = match clusters.list(&ListParams::default()).await {
            Ok(listed) => listed,
            Err(error) => return Some(format!("the hub does not answer ({error})")),
        };
        for name in self.members() {
            let found = listed.items.iter().find(|cluster| cluster.metadata.name.as_deref() == Some(name));
            let Some(status) = found.and_then(|cluster| cluster.status.as_ref()) else {
                return Some(format!("cluster {name:?} has not joined"));
            };
            let ready = status.conditions.iter().any(|is| is.type_ == "Ready" && is.status == "True");
            if !ready {
                return Some(format!("cluster {name:?} is not Ready"));
            }
            let nodes = status.node_summary.as_ref().map_or(0, |summary| summary.ready_num);
            let expected = self.nodes.get(name).copied().unwrap_or_default();
            if nodes < expected {
                return Some(format!("cluster {name:?} has reported {nodes} of {expected} nodes"));
            }
            if expected > 0 && status.resource_summary.as_ref().is_none_or(|all| all.allocatable.is_empty()) {
                return Some(format!("cluster {name:?} has not reported its capacity"));
            }
        }
        // Last, because it holds for every member whose agent has reported.
        for name in self.members() {
            if let Some(client) = self.member(name)
                && let Err(error) = client.apiserver_version().await
            {
                return Some(format!("member {name:?} does not answer ({error})"));
            }
        }
        None
    }
}

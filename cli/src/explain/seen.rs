//! What the hub shows the user beside the job itself. A tenant sees the units of his namespace; the quota tree, clusters
//! and the jobs of others need more roles.

use fleet_api::{Cluster, ElasticQuotaTree, QueueUnit};
use fleet_cli_ground::connect::Hub;
use fleet_openpai::server::AskError;

use crate::queue;

/// What the user may not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    OtherJobs,
    Trees,
    Clusters,
}

impl Hidden {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::OtherJobs => "its position among the jobs of other namespaces",
            Self::Trees => "limits and use of its queues",
            Self::Clusters => "what each cluster lacks for it now",
        }
    }
}

#[derive(Default)]
pub(super) struct Seen {
    /// Of all namespaces, or of the job's own.
    pub units: Vec<QueueUnit>,
    pub trees: Vec<ElasticQuotaTree>,
    pub clusters: Vec<Cluster>,
    pub hidden: Vec<Hidden>,
}

impl Seen {
    /// # Errors
    /// The hub does not answer, or refuses the units of the namespace.
    pub(super) async fn read(hub: &Hub, namespace: &str) -> anyhow::Result<Self> {
        let (units, trees, clusters) = tokio::try_join!(
            if_allowed(queue::list(hub, queue::UNITS.to_string())),
            if_allowed(queue::list(hub, queue::trees())),
            if_allowed(queue::list(hub, "/apis/fleet.dev/v1alpha1/clusters".to_string())),
        )?;
        let mut hidden = Vec::new();
        let units = match units {
            Some(units) => units,
            None => {
                hidden.push(Hidden::OtherJobs);
                let own = format!("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/queueunits");
                queue::list(hub, own).await?
            }
        };
        hidden.extend(trees.is_none().then_some(Hidden::Trees));
        hidden.extend(clusters.is_none().then_some(Hidden::Clusters));
        Ok(Self { units, trees: trees.unwrap_or_default(), clusters: clusters.unwrap_or_default(), hidden })
    }
}

/// `None` if the hub refuses.
async fn if_allowed<T>(listed: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
    match listed.await {
        Ok(items) => Ok(Some(items)),
        Err(error) if error.downcast_ref().is_some_and(AskError::is_forbidden) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is left out; empty if nothing is.
pub(super) fn note(hidden: &[Hidden]) -> String {
    if hidden.is_empty() {
        return String::new();
    }
    let words: Vec<&str> = hidden.iter().map(|hidden| hidden.words()).collect();
    format!("\nNot shown, as you may not list it: {}\n", words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_hides_and_anything_else_is_an_error() {
        let answer = async |code: u16| -> anyhow::Result<()> {
            Err(AskError::Refused { code, message: "no".to_string() }.into())
        };
        assert_eq!(if_allowed(async { Ok(1) }).await.expect("allowed"), Some(1));
        assert_eq!(if_allowed(answer(403)).await.expect("refused"), None);
        assert!(if_allowed(answer(401)).await.is_err() && if_allowed(answer(500)).await.is_err());
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(note(&[]), "");
        assert_eq!(
            note(&[Hidden::Trees, Hidden::Clusters]),
            "\nNot shown, as you may not list it: limits and use of its queues; what each cluster lacks for it now\n"
        );
    }
}

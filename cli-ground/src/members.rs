//! Access to member clusters through the hub: the address in the Cluster, the token in its Secret.

use fleet_api::Cluster;
pub use fleet_openpai::members::endpoint;
use futures::future::join_all;

use crate::{
    args::Targets,
    connect::Hub,
    server::{MEMBER_PATIENCE, Selectors, Server},
};

const CLUSTERS: &str = "/apis/fleet.dev/v1alpha1/clusters";

/// A member cluster that can be queried, or why not.
pub type Reached = Result<Server, Unreached>;

#[derive(Debug, Clone)]
pub struct Unreached {
    pub cluster: String,
    pub why: String,
}

/// All Clusters of the fleet, in order of their names.
///
/// # Errors
/// The hub does not answer, or is not a hub.
pub async fn clusters(hub: &Hub) -> anyhow::Result<Vec<Cluster>> {
    let listed = match hub.server.list(CLUSTERS, &Selectors::default(), "application/json").await {
        Ok(listed) => listed,
        Err(error) if error.is_not_found() => anyhow::bail!(
            "{} is not a hub of Fleet: it does not serve clusters.fleet.dev; apply `fleet crds --hub` to it, or name \
             the hub's kubeconfig",
            hub.server.url
        ),
        Err(error) => return Err(error.into()),
    };
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let mut clusters: Vec<Cluster> =
        items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?;
    clusters.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(clusters)
}

/// Path of one Cluster.
pub fn cluster_path(name: &str) -> String {
    format!("{CLUSTERS}/{name}")
}

/// The members that `targets` names, each connected or with a reason why not.
///
/// # Errors
/// The hub does not answer, or a named cluster does not exist.
pub async fn reach(hub: &Hub, targets: &Targets) -> anyhow::Result<Vec<Reached>> {
    let mut all = clusters(hub).await?;
    if !targets.all_clusters {
        let known: Vec<&str> = all.iter().filter_map(|cluster| cluster.metadata.name.as_deref()).collect();
        if let Some(unknown) = targets.clusters.iter().find(|name| !known.contains(&name.as_str())) {
            let allowed = if known.is_empty() { "none has joined".to_string() } else { known.join(", ") };
            anyhow::bail!("cluster {unknown:?} is not in this fleet; allowed: {allowed}");
        }
        all.retain(|cluster| {
            targets.clusters.iter().any(|name| Some(name) == cluster.metadata.name.as_ref())
        });
    }
    Ok(join_all(all.iter().map(|cluster| reach_one(hub, cluster))).await)
}

async fn reach_one(hub: &Hub, cluster: &Cluster) -> Reached {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let patience = hub.request_timeout.unwrap_or(MEMBER_PATIENCE);
    let reached = fleet_openpai::members::member(&hub.server, cluster, &name, patience).await;
    reached.map_err(|error| Unreached { cluster: name, why: error.to_string() })
}

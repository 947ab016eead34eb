//! Hollow nodes beside other nodes: a label names the group that they were made with, and only nodes of the
//! group are changed or removed.

use anyhow::{Context, bail};
use fleet_api::names::SIM_NODES_LABEL;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::Value;

use super::nodes::LEASE_NAMESPACE;

/// Requests in flight at once.
const CONCURRENT: usize = 16;
/// Pods read at once: a node of a large cluster is no reason to read them all.
const PAGE: u32 = 500;

/// What [`remove`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub nodes: usize,
    pub pods: usize,
}

/// Refuses a node of this name that is not of the wanted node's group.
///
/// # Errors
/// Names the node and the label that was found.
pub(super) fn own(name: &str, wanted: &Value, found: &Node) -> anyhow::Result<()> {
    let Some(group) = wanted["metadata"]["labels"][SIM_NODES_LABEL].as_str() else { return Ok(()) };
    let label = found.labels().get(SIM_NODES_LABEL).map(String::as_str);
    if label != Some(group) {
        bail!(
            "node {name:?} exists and is not a hollow node of {group:?}: label {SIM_NODES_LABEL}: found {}; \
             allowed: {group:?}",
            label.map_or("none".to_string(), |label| format!("{label:?}"))
        );
    }
    Ok(())
}

/// Removes the nodes of a group, with their leases and their pods.
///
/// # Errors
/// The first request that failed, with its object. What is gone then stays gone: call it again.
pub async fn remove(client: &Client, group: &str) -> anyhow::Result<Removed> {
    let nodes: Api<Node> = Api::all(client.clone());
    let of_group = ListParams::default().labels(&format!("{SIM_NODES_LABEL}={group}"));
    let found = nodes.list_metadata(&of_group).await.context("nodes could not be listed")?;
    let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
    // First the nodes: no scheduler binds another pod to them.
    each(&names, async |name: &String| gone(&nodes, name).await).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    each(&names, async |name: &String| gone(&leases, name).await).await?;
    let pods = bound_to(client, &names).await?;
    each(&pods, async |(namespace, name): &(String, String)| {
        gone(&Api::<Pod>::namespaced(client.clone(), namespace), name).await
    })
    .await?;
    Ok(Removed { nodes: names.len(), pods: pods.len() })
}

/// Namespaces and names of the pods bound to these nodes.
async fn bound_to(client: &Client, nodes: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let api: Api<Pod> = Api::all(client.clone());
    let nodes: std::collections::BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
    let mut pods = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = api.list(&page).await.context("pods could not be listed")?;
        for pod in &listed.items {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            if nodes.contains(node) {
                pods.push((pod.namespace().unwrap_or_default(), pod.name_any()));
            }
        }
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(pods),
        }
    }
}

async fn each<T>(items: &[T], act: impl AsyncFn(&T) -> anyhow::Result<()>) -> anyhow::Result<()> {
    stream::iter(0..items.len())
        .map(|index| act(&items[index]))
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

async fn gone<K>(api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::default().grace_period(0)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{name:?} could not be deleted")),
    }
}

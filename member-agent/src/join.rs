//! Joining: the Cluster on the hub, the agent's namespace in the member, and who the agent is.
//!
//! What may pass (an API server away) is tried again for ever, with backoff. Deliberately absent: writes to a Cluster
//! that stands. What the agent says of address and place is a proposal in the status, which an administrator confirms.

use std::{future::Future, pin::pin, time::Duration};

use fleet_api::{Cluster, ClusterSpec, ClusterStatus, cluster::Proposed, names};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::PostParams,
    runtime::watcher::{self, Event},
};

use crate::{context::Context, options::Options};
use fleet_agent_ground::{Backoff, CallError, call};

/// ConfigMap in the member that keeps who the agent of this installation is.
pub(crate) const IDENTITY_CONFIG_MAP: &str = "fleet-agent";
const IDENTITY_KEY: &str = "installation";
/// Longest silence of the watch for the cluster's namespace.
const NAMESPACE_PATIENCE: Duration = Duration::from_secs(30);

/// Makes the agent's namespace in the member and reads, or makes up, the name of the installation:
/// stable over restarts, so that a restarted agent takes its own lease over at once.
pub(crate) async fn identity(context: &Context) -> String {
    retry(context, "prepare the member", || async {
        let namespace = named_namespace(names::MEMBER_NAMESPACE);
        let namespaces: Api<Namespace> = Api::all(context.member.clone());
        unless_conflict(call(namespaces.create(&params(), &namespace)).await)?;
        let maps: Api<ConfigMap> = Api::namespaced(context.member.clone(), names::MEMBER_NAMESPACE);
        if let Some(known) = call(maps.get_opt(IDENTITY_CONFIG_MAP)).await?.and_then(installation) {
            return Ok(known);
        }
        let mut map = ConfigMap::default();
        map.metadata.name = Some(IDENTITY_CONFIG_MAP.to_owned());
        map.data = Some([(IDENTITY_KEY.to_owned(), new_installation(context))].into());
        unless_conflict(call(maps.create(&params(), &map)).await)?;
        let stored = call(maps.get(IDENTITY_CONFIG_MAP)).await?;
        // Somebody emptied the map: an identity for this run only is still an identity.
        Ok(installation(stored).unwrap_or_else(|| new_installation(context)))
    })
    .await
}

fn new_installation(context: &Context) -> String {
    context.options.installation.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string())
}

fn installation(map: ConfigMap) -> Option<String> {
    map.data?.remove(IDENTITY_KEY).filter(|value| !value.is_empty())
}

/// Finds the cluster on the hub and waits until the hub has made its namespace. Returns the status
/// that stands there.
pub(crate) async fn join(context: &Context) -> ClusterStatus {
    let cluster = retry(context, "find the cluster on the hub", || find(context)).await;
    wait_for_namespace(context).await;
    tracing::info!(cluster = %context.options.cluster, "joined");
    cluster.status.unwrap_or_default()
}

/// The Cluster as it stands. An administrator makes it; an agent with an administrator's credential, as in a test,
/// makes one for itself.
async fn find(context: &Context) -> Result<Cluster, CallError> {
    let clusters: Api<Cluster> = Api::all(context.hub.clone());
    let name = &context.options.cluster;
    if let Some(found) = call(clusters.get_opt(name)).await? {
        return Ok(found);
    }
    match call(clusters.create(&params(), &new_cluster(&context.options))).await {
        Err(error) if error.is_conflict() => call(clusters.get(name)).await,
        other => other,
    }
}

fn new_cluster(options: &Options) -> Cluster {
    let spec = ClusterSpec {
        sync_mode: Some("Pull".to_owned()),
        provider: options.provider.clone(),
        region: options.region.clone(),
        zones: options.zones.clone(),
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::new(&options.cluster, spec);
    cluster.metadata.labels = Some(options.labels.clone()).filter(|labels| !labels.is_empty());
    cluster
}

/// What the agent was told of the member's address and place, for its Cluster's status; `None` for nothing.
pub(crate) fn proposed(options: &Options) -> Option<Proposed> {
    let proposed = Proposed {
        api_endpoint: options.api_endpoint.clone(),
        provider: options.provider.clone(),
        region: options.region.clone(),
        zones: options.zones.clone(),
        labels: options.labels.clone(),
    };
    Some(proposed).filter(|proposed| *proposed != Proposed::default())
}

/// The hub makes the namespace when it sees the cluster.
async fn wait_for_namespace(context: &Context) {
    let name = context.cluster_namespace();
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut backoff = Backoff::new(&name);
    loop {
        let mut events = pin!(watcher::watcher(Api::<Namespace>::all(context.hub.clone()), config.clone()));
        // A hub that says nothing for that long is asked anew.
        while let Ok(Some(event)) = tokio::time::timeout(NAMESPACE_PATIENCE, events.next()).await {
            match event {
                Ok(Event::Apply(found) | Event::InitApply(found))
                    if found.metadata.name.as_ref() == Some(&name) =>
                {
                    return;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(namespace = %name, %error, "cannot watch for the cluster's namespace");
                    backoff.wait().await;
                }
            }
        }
    }
}

async fn retry<T, F>(context: &Context, what: &str, mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut backoff = Backoff::new(&format!("{}/{what}", context.options.cluster));
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => {
                tracing::warn!(cluster = %context.options.cluster, %error, "cannot {what}; trying again");
            }
        }
        backoff.wait().await;
    }
}

fn named_namespace(name: &str) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    namespace
}

fn unless_conflict<T>(created: Result<T, CallError>) -> Result<(), CallError> {
    match created {
        Err(error) if !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() }
}

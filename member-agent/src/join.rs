//! Joining: the Cluster on the hub, the agent's namespace in the member, and the agent's identity.
//!
//! Temporary failures (an API server that is away) are retried forever, with back-off. Deliberately absent:
//! writes to an existing Cluster. The agent proposes address and location in the status, and an administrator
//! confirms them.

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

/// ConfigMap in the member with the identity of this installation.
pub(crate) const IDENTITY_CONFIG_MAP: &str = "fleet-agent";
const IDENTITY_KEY: &str = "installation";
/// Longest time without events before the watch of the cluster's namespace is restarted.
const NAMESPACE_PATIENCE: Duration = Duration::from_secs(30);

/// Creates the agent's namespace in the member, and reads or creates the identity of the installation. It is
/// stable over restarts, so a restarted agent takes its own lease over at once.
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
        // The ConfigMap has no identity; one for this run only is enough.
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

/// Finds the cluster on the hub and waits until its namespace exists. Returns the current status.
pub(crate) async fn join(context: &Context) -> ClusterStatus {
    let cluster = retry(context, "find the cluster on the hub", || find(context)).await;
    wait_for_namespace(context).await;
    tracing::info!(cluster = %context.options.cluster, "joined");
    cluster.status.unwrap_or_default()
}

/// The existing Cluster. An administrator creates it; an agent with an administrator's credential, as in
/// tests, creates its own.
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

/// Options about the member's address and location, for its Cluster's status; `None` if there are none.
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

/// Waits until the hub has created the cluster's namespace.
async fn wait_for_namespace(context: &Context) {
    let name = context.cluster_namespace();
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut backoff = Backoff::new(&name);
    loop {
        let mut events = pin!(watcher::watcher(Api::<Namespace>::all(context.hub.clone()), config.clone()));
        // If the watch is silent for this long, it is restarted.
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
                tracing::warn!(cluster = %context.options.cluster, %error, "cannot {what}; retrying");
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

//! Joining: the Cluster on the hub, the agent's namespace in the member, and who the agent is.
//!
//! What may pass (an API server away) is tried again for ever, with backoff.

use fleet_api::patch::merge_diff_of;
use std::{collections::BTreeMap, future::Future, pin::pin, time::Duration};

use fleet_api::{Cluster, ClusterSpec, ClusterStatus, cluster::SecretReference, names};
use futures::StreamExt;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher::{self, Event},
};
use serde_json::json;

use crate::{
    MemberAccess,
    clock::Backoff,
    context::{CallError, Context, call},
};

/// Secret on the hub, in the cluster's namespace, by which the hub's users reach the member.
pub const ACCESS_SECRET: &str = "member-access";
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

/// Registers the cluster on the hub and waits until the hub has made its namespace. Returns the status
/// that stands there.
pub(crate) async fn join(context: &Context) -> ClusterStatus {
    let cluster = retry(context, "register the cluster on the hub", || register(context)).await;
    wait_for_namespace(context).await;
    if let Some(access) = &context.options.access {
        retry(context, "keep the access to the member on the hub", || keep_access(context, access)).await;
    }
    tracing::info!(cluster = %context.options.cluster, "joined");
    cluster.status.unwrap_or_default()
}

async fn register(context: &Context) -> Result<Cluster, CallError> {
    let clusters: Api<Cluster> = Api::all(context.hub.clone());
    let name = &context.options.cluster;
    let Some(found) = call(clusters.get_opt(name)).await? else {
        let mut cluster = Cluster::new(name, wanted_spec(context, ClusterSpec::default()));
        let labels = context.options.labels.clone();
        cluster.metadata.labels = Some(labels).filter(|labels| !labels.is_empty());
        return match call(clusters.create(&params(), &cluster)).await {
            Err(error) if error.is_conflict() => call(clusters.get(name)).await,
            other => other,
        };
    };
    // What an administrator has set and the options do not name stays.
    let spec = merge_diff_of(&found.spec, &wanted_spec(context, found.spec.clone()));
    let labels: BTreeMap<&String, &String> = context
        .options
        .labels
        .iter()
        .filter(|(key, value)| {
            found.metadata.labels.as_ref().and_then(|known| known.get(*key)) != Some(*value)
        })
        .collect();
    if spec.is_none() && labels.is_empty() {
        return Ok(found);
    }
    let mut patch = json!({});
    if let Some(spec) = spec {
        patch["spec"] = spec;
    }
    if !labels.is_empty() {
        patch["metadata"] = json!({"labels": labels});
    }
    call(clusters.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await
}

fn wanted_spec(context: &Context, mut spec: ClusterSpec) -> ClusterSpec {
    let options = &context.options;
    spec.sync_mode.get_or_insert_with(|| "Pull".to_owned());
    for (field, option) in [
        (&mut spec.api_endpoint, &options.api_endpoint),
        (&mut spec.provider, &options.provider),
        (&mut spec.region, &options.region),
    ] {
        if option.is_some() {
            field.clone_from(option);
        }
    }
    if !options.zones.is_empty() {
        spec.zones.clone_from(&options.zones);
    }
    spec
}

async fn keep_access(context: &Context, access: &MemberAccess) -> Result<(), CallError> {
    let namespace = context.cluster_namespace();
    let secrets: Api<Secret> = Api::namespaced(context.hub.clone(), &namespace);
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data: BTreeMap<String, ByteString> =
        [("token".to_owned(), bytes(&access.token)), ("caBundle".to_owned(), bytes(&access.ca_pem))].into();
    match call(secrets.get_opt(ACCESS_SECRET)).await? {
        Some(found) if found.data.as_ref() == Some(&data) => {}
        Some(_) => {
            let patch = Patch::Merge(json!({"data": data}));
            call(secrets.patch(ACCESS_SECRET, &PatchParams::default(), &patch)).await?;
        }
        None => {
            let mut secret = Secret { data: Some(data), ..Secret::default() };
            secret.metadata.name = Some(ACCESS_SECRET.to_owned());
            unless_conflict(call(secrets.create(&params(), &secret)).await)?;
        }
    }
    let clusters: Api<Cluster> = Api::all(context.hub.clone());
    let name = &context.options.cluster;
    let reference = SecretReference { namespace, name: ACCESS_SECRET.to_owned() };
    if call(clusters.get(name)).await?.spec.secret_ref.as_ref() == Some(&reference) {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"spec": {"secretRef": reference}}));
    call(clusters.patch(name, &PatchParams::default(), &patch)).await.map(drop)
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

//! Hollow nodes: created once, corrected when they differ from the spec, with a lease that is renewed slowly.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    group,
    options::{FIELD_MANAGER, HollowNode, Options},
    status,
};

/// Nodes written at once while a member starts.
const CONCURRENT_NODES: usize = 16;
/// Namespace of node leases, as kubelets have it.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";
/// As of a real kubelet.
const LEASE_DURATION: Duration = Duration::from_secs(40);

/// Creates the nodes that are missing and corrects those that differ.
///
/// # Errors
/// When a node could not be read or written; names the node.
pub async fn ensure(client: &Client, options: &Options) -> anyhow::Result<()> {
    let version = kubelet_version(client).await;
    stream::iter(0..options.nodes.len())
        .map(|index| ensure_node(client, options, index, &version))
        .buffer_unordered(CONCURRENT_NODES)
        .try_collect::<()>()
        .await
}

/// Nodes report the version of the server they belong to.
async fn kubelet_version(client: &Client) -> String {
    match client.apiserver_version().await {
        Ok(info) => info.git_version,
        Err(_) => "v1.36.0".to_string(),
    }
}

async fn ensure_node(client: &Client, options: &Options, index: usize, version: &str) -> anyhow::Result<()> {
    let name = &options.nodes[index].name;
    let wanted = node(options, index, version);
    let api: Api<Node> = Api::all(client.clone());
    let typed: Node = serde_json::from_value(wanted.clone()).with_context(|| format!("node {name:?}"))?;
    let standing = match api.create(&PostParams::default(), &typed).await {
        Ok(made) => made,
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let found = api.get(name).await.with_context(|| format!("node {name:?} could not be read"))?;
            group::own(name, &wanted, &found)?;
            if holds(&found.metadata.labels, &wanted["metadata"]["labels"]) {
                found
            } else {
                let labels = json!({"metadata": {"labels": wanted["metadata"]["labels"]}});
                api.patch(name, &params(), &Patch::Merge(&labels))
                    .await
                    .with_context(|| format!("node {name:?} could not be labelled"))?
            }
        }
        Err(error) => return Err(error).with_context(|| format!("node {name:?} could not be made")),
    };
    // Some servers keep the status of a create, others drop it.
    let status = serde_json::to_value(&standing.status).unwrap_or_default();
    let equal =
        ["allocatable", "capacity", "addresses"].iter().all(|field| status[field] == wanted["status"][field]);
    let ready = status["conditions"].as_array().is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    });
    if !equal || !ready {
        let patch = json!({"status": wanted["status"]});
        api.patch_status(name, &params(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("status of node {name:?} could not be written"))?;
    }
    Ok(())
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_string()), ..PatchParams::default() }
}

fn holds(standing: &Option<std::collections::BTreeMap<String, String>>, wanted: &Value) -> bool {
    let wanted = wanted.as_object().into_iter().flatten();
    wanted.into_iter().all(|(key, value)| {
        standing.as_ref().and_then(|labels| labels.get(key)).map(String::as_str) == value.as_str()
    })
}

pub(crate) fn node(options: &Options, index: usize, version: &str) -> Value {
    let HollowNode { name, allocatable: amounts, taints, .. } = &options.nodes[index];
    let mut labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
    for (key, value) in &options.nodes[index].labels {
        labels[key] = value.as_str().into();
    }
    let now = status::time_text(options.clock.now());
    let condition = |kind: &str, is: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": is, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": status::host_ip(index)},
                {"type": "Hostname", "address": name}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "hollow kubelet is posting ready status")],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "hollow", "kernelVersion": "hollow",
                "containerRuntimeVersion": "hollow://1", "kubeletVersion": version, "kubeProxyVersion": version,
                "bootID": "", "machineID": name, "systemUUID": name},
        },
    })
}

/// Writes the leases of all nodes, at once and then every period. Failures are logged and retried in the next
/// period; a late heartbeat does no harm.
pub async fn heartbeats(client: &Client, options: &Options, shutdown: &CancellationToken) {
    let Some(period) = options.heartbeat else {
        return;
    };
    let api: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    loop {
        let round = stream::iter(0..options.nodes.len())
            .map(|index| renew(&api, options, index, period))
            .buffer_unordered(CONCURRENT_NODES)
            .collect::<()>();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = round => {}
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(period) => {}
        }
    }
}

async fn renew(api: &Api<Lease>, options: &Options, index: usize, period: Duration) {
    let name = &options.nodes[index].name;
    let lease = json!({
        "apiVersion": Lease::api_version(&()),
        "kind": Lease::kind(&()),
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_DURATION.max(period * 2).as_secs(),
            "renewTime": options.clock.now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()},
    });
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    if let Err(error) = api.patch(name, &apply, &Patch::Apply(&lease)).await {
        tracing::debug!(node = %name, %error, "heartbeat not written");
    }
}

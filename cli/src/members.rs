//! Reaching member clusters through the hub: the address in the Cluster, the token in its Secret.

use base64::{Engine, engine::general_purpose::STANDARD};
use fleet_api::Cluster;
use futures::future::join_all;
use kube::{Client, Config, config::AuthInfo};
use serde_json::Value;

use crate::{
    args::Targets,
    connect::Hub,
    server::{AskError, MEMBER_PATIENCE, Selectors, Server},
};

const CLUSTERS: &str = "/apis/fleet.dev/v1alpha1/clusters";

/// A member cluster that can be asked, or why not.
pub type Reached = Result<Server, Unreached>;

#[derive(Debug, Clone)]
pub struct Unreached {
    pub cluster: String,
    pub why: String,
}

/// All Clusters of the fleet, in order of their names.
///
/// # Errors
/// The hub does not answer, or is no hub.
pub async fn clusters(hub: &Hub) -> anyhow::Result<Vec<Cluster>> {
    let listed = match hub.server.list(CLUSTERS, &Selectors::default(), "application/json").await {
        Ok(listed) => listed,
        Err(error) if error.is_not_found() => anyhow::bail!(
            "{} is no hub of Fleet: it does not know clusters.fleet.dev; apply `fleet crds --hub` to it, or name \
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

/// The members that `targets` names, each ready to be asked or with a reason why not.
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
    member(hub, cluster, &name).await.map_err(|error| Unreached { cluster: name, why: format!("{error:#}") })
}

async fn member(hub: &Hub, cluster: &Cluster, name: &str) -> anyhow::Result<Server> {
    let Some(url) = cluster.spec.api_endpoint.clone().filter(|url| !url.is_empty()) else {
        anyhow::bail!("its Cluster has no spec.apiEndpoint; its agent or `fleet join` writes it");
    };
    let Some(reference) = &cluster.spec.secret_ref else {
        anyhow::bail!("its Cluster has no spec.secretRef; its agent or `fleet join` writes it");
    };
    let path = format!("/api/v1/namespaces/{}/secrets/{}", reference.namespace, reference.name);
    let secret = hub.server.object(&path).await.map_err(|error| match error {
        AskError::Refused { message, .. } => anyhow::anyhow!("its Secret cannot be read: {message}"),
        other => other.into(),
    })?;
    let uri =
        url.parse().map_err(|_| anyhow::anyhow!("spec.apiEndpoint: found {url:?}, allowed is a URL"))?;
    let mut config = Config::new(uri);
    config.accept_invalid_certs = cluster.spec.insecure_skip_tls_verification.unwrap_or(false);
    let patience = hub.request_timeout.unwrap_or(MEMBER_PATIENCE);
    config.connect_timeout = Some(patience);
    config.default_retry = false;
    if let Some(bundle) = field(&secret, "caBundle").or_else(|| field(&secret, "ca.crt")) {
        config.root_cert = Some(certificates(&bundle)?);
    }
    let token = field(&secret, "token").unwrap_or_default();
    // Made through JSON: the token's own type belongs to a crate this room does not use.
    config.auth_info = serde_json::from_value::<AuthInfo>(serde_json::json!({"token": token}))?;
    let client = Client::try_from(config)?;
    Ok(Server { client, name: name.to_string(), url, patience })
}

fn field(secret: &Value, name: &str) -> Option<String> {
    let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
    String::from_utf8(bytes).ok().map(|text| text.trim().to_string())
}

/// The DER certificates of a PEM bundle.
fn certificates(bundle: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut body: Option<String> = None;
    for line in bundle.lines().map(str::trim) {
        match (line, &mut body) {
            ("-----BEGIN CERTIFICATE-----", _) => body = Some(String::new()),
            ("-----END CERTIFICATE-----", Some(text)) => {
                let der = STANDARD
                    .decode(text)
                    .map_err(|error| anyhow::anyhow!("Secret field caBundle: {error}"))?;
                found.push(der);
                body = None;
            }
            (line, Some(text)) => text.push_str(line),
            _ => {}
        }
    }
    if found.is_empty() {
        anyhow::bail!("Secret field caBundle: found no certificate, allowed is PEM");
    }
    Ok(found)
}

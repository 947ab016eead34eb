//! Reaching member clusters through the hub: the address in the Cluster, the token in its Secret.

use base64::{Engine, engine::general_purpose::STANDARD};
use fleet_api::{Cluster, access::ACCESS_SECRET, names::cluster_namespace};
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

/// Where an administrator has said that a member is, and the Secret with its token.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    url: String,
    uri: http::Uri,
    secret_path: String,
}

/// Only a confirmed address, and only this cluster's own Secret: the token of another cluster must not be sent to this
/// address.
fn way_to(cluster: &Cluster, name: &str) -> anyhow::Result<Way> {
    let Some(url) = cluster.spec.api_endpoint.clone().filter(|url| !url.is_empty()) else {
        let proposed = cluster.status.as_ref().and_then(|status| status.proposed.as_ref());
        match proposed.and_then(|proposed| proposed.api_endpoint.as_ref()) {
            Some(url) => anyhow::bail!(
                "its Cluster has no spec.apiEndpoint; its agent proposes {url:?}: `fleet join {name} --confirm` takes it over"
            ),
            None => anyhow::bail!("its Cluster has no spec.apiEndpoint; `fleet join` writes it"),
        }
    };
    let Some(reference) = &cluster.spec.secret_ref else {
        anyhow::bail!("its Cluster has no spec.secretRef; `fleet join` writes it");
    };
    let namespace = cluster_namespace(name);
    if (reference.namespace.as_str(), reference.name.as_str()) != (namespace.as_str(), ACCESS_SECRET) {
        anyhow::bail!(
            "spec.secretRef: found {}/{}, allowed is the cluster's own Secret, {namespace}/{ACCESS_SECRET}",
            reference.namespace,
            reference.name
        );
    }
    let uri = endpoint(&url).map_err(|found| anyhow::anyhow!("spec.apiEndpoint: {found}"))?;
    let secret_path = format!("/api/v1/namespaces/{namespace}/secrets/{ACCESS_SECRET}");
    Ok(Way { url, uri, secret_path })
}

/// An address to which a token may be sent; else what is wrong with it.
pub fn endpoint(url: &str) -> Result<http::Uri, String> {
    let wrong = || format!("found {url:?}, allowed is an address such as https://HOST:PORT");
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let fits = uri.scheme_str() == Some("https")
        && !authority.is_empty()
        && !authority.contains('@')
        && uri.query().is_none();
    if fits { Ok(uri) } else { Err(wrong()) }
}

async fn member(hub: &Hub, cluster: &Cluster, name: &str) -> anyhow::Result<Server> {
    let Way { url, uri, secret_path } = way_to(cluster, name)?;
    let secret = hub.server.object(&secret_path).await.map_err(|error| match error {
        AskError::Refused { message, .. } => anyhow::anyhow!("its Secret cannot be read: {message}"),
        other => other.into(),
    })?;
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

#[cfg(test)]
mod tests {
    use fleet_api::{ClusterSpec, cluster::SecretReference};

    use super::*;

    fn cluster(url: &str, secret: (&str, &str)) -> Cluster {
        let (namespace, name) = (secret.0.to_owned(), secret.1.to_owned());
        let spec = ClusterSpec {
            api_endpoint: Some(url.to_owned()),
            secret_ref: Some(SecretReference { namespace, name }),
            ..ClusterSpec::default()
        };
        Cluster::new("east", spec)
    }

    #[test]
    fn a_member_is_reached_by_its_own_secret_only() {
        let own = ("fleet-east", "member-access");
        let way = way_to(&cluster("https://10.0.0.1:6443", own), "east").unwrap();
        assert_eq!(way.secret_path, "/api/v1/namespaces/fleet-east/secrets/member-access");
        for other in [
            ("fleet-west", "member-access"),
            ("fleet-east", "member-agent-token"),
            ("kube-system", "member-access"),
            ("fleet-east/secrets/x/../../fleet-west", "member-access"),
        ] {
            let error = way_to(&cluster("https://10.0.0.1:6443", other), "east").unwrap_err().to_string();
            assert!(
                error.contains("allowed is the cluster's own Secret, fleet-east/member-access"),
                "{error}"
            );
        }
        let none = Cluster { spec: ClusterSpec::default(), ..cluster("", own) };
        assert!(way_to(&none, "east").is_err());
    }

    #[test]
    fn a_token_goes_to_an_address_over_tls_only() {
        for url in [
            "http://10.0.0.1",
            "10.0.0.1:6443",
            "https://",
            "https://x@10.0.0.1",
            "file:///x",
            "https://a?b=c",
        ] {
            assert!(endpoint(url).is_err(), "{url}");
        }
        assert!(endpoint("https://proxy.example.com/k8s/clusters/c-1").is_ok());
    }

    #[test]
    fn what_only_an_agent_says_is_not_acted_on() {
        let mut found = cluster("", ("fleet-east", "member-access"));
        found.spec.api_endpoint = None;
        let proposed =
            fleet_api::cluster::Proposed { api_endpoint: Some("https://evil".into()), ..Default::default() };
        found.status = Some(fleet_api::ClusterStatus { proposed: Some(proposed), ..Default::default() });
        let error = way_to(&found, "east").unwrap_err().to_string();
        assert!(error.contains("fleet join east --confirm"), "{error}");
    }
}

//! Reaching a member cluster through the hub: the address in the Cluster, the token in its Secret.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use fleet_api::{Cluster, access::ACCESS_SECRET, names::cluster_namespace};
use kube::{Client, Config, config::AuthInfo};
use serde_json::Value;

use crate::server::{AskError, MEMBER_PATIENCE, Server, innermost, is_path_part};

/// Why a member cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// A member by its name.
///
/// # Errors
/// As [`member`]; the caller may not read the Cluster.
pub async fn reach(hub: &Server, name: &str) -> Result<Server, Unreachable> {
    if name.is_empty() || !is_path_part(name) {
        return Err(Unreachable(format!("cluster: found {name:?}; allowed: the name of a Cluster")));
    }
    let path = format!("/apis/fleet.dev/v1alpha1/clusters/{name}");
    let object = hub.object(&path).await.map_err(|error| Unreachable(error.to_string()))?;
    let cluster = serde_json::from_value(object).map_err(|error| Unreachable(error.to_string()))?;
    member(hub, &cluster, name, MEMBER_PATIENCE).await
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
fn way_to(cluster: &Cluster, name: &str) -> Result<Way, Unreachable> {
    let Some(url) = cluster.spec.api_endpoint.clone().filter(|url| !url.is_empty()) else {
        let proposed = cluster.status.as_ref().and_then(|status| status.proposed.as_ref());
        return match proposed.and_then(|proposed| proposed.api_endpoint.as_ref()) {
            Some(url) => Err(Unreachable(format!(
                "its Cluster has no spec.apiEndpoint; its agent proposes {url:?}: `fleet join {name} --confirm` accepts it"
            ))),
            None => no("its Cluster has no spec.apiEndpoint; `fleet join` writes it"),
        };
    };
    let Some(reference) = &cluster.spec.secret_ref else {
        return no("its Cluster has no spec.secretRef; `fleet join` writes it");
    };
    let namespace = cluster_namespace(name);
    if (reference.namespace.as_str(), reference.name.as_str()) != (namespace.as_str(), ACCESS_SECRET) {
        return Err(Unreachable(format!(
            "spec.secretRef: found {}/{}; allowed: the cluster's own Secret, {namespace}/{ACCESS_SECRET}",
            reference.namespace, reference.name
        )));
    }
    let uri = endpoint(&url).map_err(|found| Unreachable(format!("spec.apiEndpoint: {found}")))?;
    let secret_path = format!("/api/v1/namespaces/{namespace}/secrets/{ACCESS_SECRET}");
    Ok(Way { url, uri, secret_path })
}

/// An address to which a token may be sent; else what is wrong with it.
pub fn endpoint(url: &str) -> Result<http::Uri, String> {
    let wrong = || format!("found {url:?}; allowed: an address such as https://HOST:PORT");
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let fits = uri.scheme_str() == Some("https")
        && !authority.is_empty()
        && !authority.contains('@')
        && uri.query().is_none();
    if fits { Ok(uri) } else { Err(wrong()) }
}

/// A way to a member, with the token that this caller may read.
///
/// # Errors
/// The Cluster does not say how it is reached, or the caller may not read its Secret.
pub async fn member(
    hub: &Server,
    cluster: &Cluster,
    name: &str,
    patience: Duration,
) -> Result<Server, Unreachable> {
    let Way { url, uri, secret_path } = way_to(cluster, name)?;
    let secret = hub.object(&secret_path).await.map_err(|error| match error {
        AskError::Refused { message, .. } => Unreachable(format!("its Secret cannot be read: {message}")),
        other => Unreachable(other.to_string()),
    })?;
    let mut config = Config::new(uri);
    config.accept_invalid_certs = cluster.spec.insecure_skip_tls_verification.unwrap_or(false);
    config.connect_timeout = Some(patience);
    config.default_retry = false;
    if let Some(bundle) = field(&secret, "caBundle").or_else(|| field(&secret, "ca.crt")) {
        config.root_cert = Some(certificates(&bundle)?);
    }
    let token = field(&secret, "token").unwrap_or_default();
    // Made through JSON: the token's own type belongs to a crate this room does not use.
    config.auth_info = serde_json::from_value::<AuthInfo>(serde_json::json!({"token": token}))
        .map_err(|error| Unreachable(format!("Secret field token: {error}")))?;
    let client = Client::try_from(config).map_err(|error| Unreachable(innermost(&error)))?;
    Ok(Server { client, name: name.to_string(), url, patience })
}

fn no<T>(why: &str) -> Result<T, Unreachable> {
    Err(Unreachable(why.to_owned()))
}

fn field(secret: &Value, name: &str) -> Option<String> {
    let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
    String::from_utf8(bytes).ok().map(|text| text.trim().to_string())
}

/// The DER certificates of a PEM bundle.
fn certificates(bundle: &str) -> Result<Vec<Vec<u8>>, Unreachable> {
    let mut found = Vec::new();
    let mut body: Option<String> = None;
    for line in bundle.lines().map(str::trim) {
        match (line, &mut body) {
            ("-----BEGIN CERTIFICATE-----", _) => body = Some(String::new()),
            ("-----END CERTIFICATE-----", Some(text)) => {
                let der = STANDARD
                    .decode(text)
                    .map_err(|error| Unreachable(format!("Secret field caBundle: {error}")))?;
                found.push(der);
                body = None;
            }
            (line, Some(text)) => text.push_str(line),
            _ => {}
        }
    }
    if found.is_empty() {
        return Err(Unreachable("Secret field caBundle: found no certificate; allowed: PEM".to_owned()));
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
            assert!(error.contains("allowed: the cluster's own Secret, fleet-east/member-access"), "{error}");
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

    #[tokio::test]
    async fn a_name_that_is_no_part_of_a_path_is_not_asked_for() {
        let refuses = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<axum::body::Body>, _>(std::io::Error::other("asked"))
        });
        let client = Client::new(refuses, "default");
        let hub = Server { client, name: "hub".to_owned(), url: "it".to_owned(), patience: MEMBER_PATIENCE };
        for name in ["", "a/../b", "..", "east?x=y", "East"] {
            let why = reach(&hub, name).await.map(|_| ()).expect_err(name).to_string();
            assert!(why.contains("allowed: the name of a Cluster"), "{why}");
        }
        assert!(reach(&hub, "east").await.map(|_| ()).expect_err("no hub").to_string().contains("asked"));
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

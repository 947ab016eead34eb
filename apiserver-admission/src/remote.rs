//! Calls a webhook over HTTPS.
//!
//! Inputs: a `clientConfig` and a document. A service is called at its EndpointSlices or Endpoints, because there
//! is no cluster network to route its address. Absent on purpose: retries and proxies.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dashmap::DashMap;
use fleet_apiserver_ground::store::Range;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use reqwest::{Certificate, Client, Url, redirect};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Answers above this are refused.
const MAX_ANSWER: usize = 3 * 1024 * 1024;

enum Target {
    Url(String),
    Service { namespace: String, name: String, port: u16, path: String },
}

/// Where a webhook is, and how it is recognised.
pub struct Remote {
    target: Target,
    /// PEM certificates; without any, those of the system.
    bundle: Option<Vec<u8>>,
    timeout: Duration,
    /// Kept connections, by the address a service was found at.
    clients: DashMap<Option<SocketAddr>, Client>,
}

impl Remote {
    /// Reads a `clientConfig`.
    pub fn new(config: &Value, timeout: Duration) -> Remote {
        let text = |path: &[&str]| tree::text(config, path).to_string();
        let target = if config.get("service").is_some() {
            let port = tree::at(config, &["service", "port"]).and_then(Value::as_u64);
            Target::Service {
                namespace: text(&["service", "namespace"]),
                name: text(&["service", "name"]),
                port: port.and_then(|p| u16::try_from(p).ok()).unwrap_or(443),
                path: text(&["service", "path"]),
            }
        } else {
            Target::Url(text(&["url"]))
        };
        let bundle = STANDARD.decode(text(&["caBundle"])).ok().filter(|b| !b.is_empty());
        Remote { target, bundle, timeout, clients: DashMap::new() }
    }

    /// Posts a document and reads the answer; the error is a text for the client.
    pub async fn post(&self, base: &Base, body: &Value) -> Result<Value, String> {
        let (url, address) = match &self.target {
            Target::Url(url) => (url.clone(), None),
            Target::Service { namespace, name, port, path } => {
                let address = find(base, namespace, name, *port).await?;
                let path = path.trim_start_matches('/');
                (format!("https://{name}.{namespace}.svc:{}/{path}", address.port()), Some(address))
            }
        };
        let mut url: Url = url.parse().map_err(|e| format!("{url:?}: {e}"))?;
        url.query_pairs_mut().append_pair("timeout", &format!("{}s", self.timeout.as_secs()));
        let shown = url.to_string();
        let client = self.client(&url, address)?;
        let failed = |e: reqwest::Error| {
            let why = if e.is_timeout() { "context deadline exceeded".to_string() } else { innermost(&e) };
            format!("failed to call webhook: Post \"{shown}\": {why}")
        };
        let mut response = client.post(url).json(body).send().await.map_err(failed)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ANSWER {
                return Err(format!("its answer is larger than {MAX_ANSWER} bytes"));
            }
        }
        if !status.is_success() {
            let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
            return Err(format!(
                "failed to call webhook: an error on the server (\"{}\"): {}",
                text.trim(),
                status
            ));
        }
        serde_json::from_slice(&bytes).map_err(|e| format!("its answer is not JSON: {e}"))
    }

    fn client(&self, url: &Url, address: Option<SocketAddr>) -> Result<Client, String> {
        if let Some(known) = self.clients.get(&address) {
            return Ok(known.clone());
        }
        // The library asks the process for its TLS provider; the first one installed stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .timeout(self.timeout)
            .https_only(true);
        if let Some(pem) = &self.bundle {
            let roots =
                Certificate::from_pem_bundle(pem).map_err(|e| format!("caBundle: {}", innermost(&e)))?;
            builder = builder.tls_certs_only(roots);
        }
        if let (Some(address), Some(host)) = (address, url.host_str()) {
            builder = builder.resolve(host, address);
        }
        let client = builder.build().map_err(|e| innermost(&e))?;
        self.clients.insert(address, client.clone());
        Ok(client)
    }
}

/// The last error of a chain: the one that says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// One ready address of a service.
async fn find(base: &Base, namespace: &str, name: &str, port: u16) -> Result<SocketAddr, String> {
    let key = format!("{namespace}/{name}");
    let Some(service) = base.store.table("/services").get(&key) else {
        return Err(format!("service \"{name}\" not found"));
    };
    if service.text(&["spec", "type"]) == "ExternalName" {
        let host = service.text(&["spec", "externalName"]);
        let mut found =
            tokio::net::lookup_host((host.as_str(), port)).await.map_err(|e| format!("{host}: {e}"))?;
        return found.next().ok_or_else(|| format!("no address found for {host:?} of service \"{name}\""));
    }
    let ports = service.list(&["spec", "ports"]);
    let Some(wanted) = ports.iter().find(|p| tree::number(p, &["port"]) == i64::from(port)) else {
        return Err(format!("no service port {port} found for service \"{name}\""));
    };
    let port_name = tree::text(wanted, &["name"]);
    let number = |list: &[Value]| {
        let one = list.iter().find(|p| tree::text(p, &["name"]) == port_name)?;
        u16::try_from(tree::number(one, &["port"])).ok()
    };
    let ip = |text: &str| text.parse::<IpAddr>().ok();
    if let Some(endpoints) = base.store.table("/endpoints").get(&key) {
        for subset in endpoints.list(&["subsets"]) {
            let address =
                tree::list(&subset, &["addresses"]).first().and_then(|a| ip(tree::text(a, &["ip"])));
            if let (Some(ip), Some(port)) = (address, number(tree::list(&subset, &["ports"]))) {
                return Ok(SocketAddr::new(ip, port));
            }
        }
    }
    let slices = base.store.table("discovery.k8s.io/endpointslices");
    let prefix = format!("{namespace}/");
    let page = base.store.page(&slices, Range { prefix: &prefix, ..Range::default() }).await;
    let page = page.ok().flatten().map(|p| p.items).unwrap_or_default();
    let mine = page.iter().filter(|s| s.text(&["metadata", "labels", "kubernetes.io/service-name"]) == name);
    for slice in mine {
        let ready = |e: &&Value| tree::at(e, &["conditions", "ready"]) != Some(&Value::Bool(false));
        let endpoints = slice.list(&["endpoints"]);
        let endpoint = endpoints.iter().find(ready);
        let address = endpoint.and_then(|e| tree::list(e, &["addresses"]).first()?.as_str()).and_then(ip);
        if let (Some(ip), Some(port)) = (address, number(&slice.list(&["ports"]))) {
            return Ok(SocketAddr::new(ip, port));
        }
    }
    Err(format!("no endpoints available for service \"{name}\""))
}

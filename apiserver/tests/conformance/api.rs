//! One API server over HTTPS: the embedded one, or any other that the environment names.
//!
//! `APISERVER_URL` (with `APISERVER_TOKEN` of an administrator, and `APISERVER_CA`, a PEM file) points the suite at
//! another server; the same checks then show what a real one does.

// Each test program uses a part of it.
#![allow(dead_code)]

use fleet_apiserver::{Access, ApiServer, Config, ServeOptions, Server};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, USER_AGENT};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(30);

pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
pub const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
pub const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A server, and a namespace of this test alone.
#[derive(Clone)]
pub struct Api {
    http: Client,
    base: String,
    /// Every request carries it, when there is one.
    token: Option<String>,
    ca: Option<String>,
    own: Option<Arc<(ApiServer, Server)>>,
    /// Namespace of this test.
    pub ns: String,
}

/// An answer, read whole.
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// The body as JSON, or null.
    pub body: Value,
}

impl Answer {
    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter();
        all.map(|v| v.to_str().unwrap_or_default().to_string()).collect()
    }

    pub fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// Reasons of the causes.
    pub fn causes(&self) -> Vec<(&str, &str)> {
        let list = self.body["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter()
            .map(|c| (c["reason"].as_str().unwrap_or_default(), c["field"].as_str().unwrap_or_default()))
            .collect()
    }

    /// Fails unless the code is this one; shows the body.
    #[track_caller]
    pub fn expect(self, code: u16) -> Answer {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }

    /// Fails unless it is a failure Status with this code and reason.
    #[track_caller]
    pub fn fails(self, code: u16, reason: &str) -> Answer {
        assert_eq!((self.code, self.reason()), (code, reason), "{}", self.text);
        assert_eq!(
            (&self.body["kind"], &self.body["apiVersion"], &self.body["status"], &self.body["code"]),
            (&json!("Status"), &json!("v1"), &json!("Failure"), &json!(code)),
            "{}",
            self.text
        );
        assert!(self.body["metadata"].is_object(), "{}", self.text);
        self
    }

    pub fn rv(&self) -> String {
        self.body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string()
    }
}

fn client(ca: Option<&str>, identity: Option<Identity>) -> Client {
    builder(ca, identity).build().expect("a client")
}

fn builder(ca: Option<&str>, identity: Option<Identity>) -> ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder().no_proxy().timeout(Duration::from_secs(60));
    if let Some(ca) = ca {
        builder = builder.tls_certs_only([Certificate::from_pem(ca.as_bytes()).expect("a PEM certificate")]);
    }
    if let Some(identity) = identity {
        builder = builder.identity(identity);
    }
    builder
}

pub fn random(prefix: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{prefix}{}", &id[..8])
}

impl Api {
    /// The server under test, with a new namespace.
    pub async fn new() -> Api {
        let mut api = match std::env::var("APISERVER_URL") {
            Ok(url) if !url.is_empty() => {
                let ca = std::env::var("APISERVER_CA").ok().filter(|p| !p.is_empty());
                let ca = ca.map(|path| std::fs::read_to_string(path).expect("APISERVER_CA is a file"));
                let token = std::env::var("APISERVER_TOKEN").ok().filter(|t| !t.is_empty());
                Api::at(&url, token, ca)
            }
            _ => Api::serve(Config { access: Access::Rbac, ..Config::default() }).await,
        };
        api.ns = random("t-");
        let made = api.post("/api/v1/namespaces", json!({"metadata": {"name": api.ns}})).await;
        assert_eq!(made.code, 201, "{}", made.text);
        // A controller makes the account that pods run as.
        api.until_code(&api.core("serviceaccounts/default"), 200).await;
        api
    }

    /// A server elsewhere, by an administrator's token and a PEM file's text.
    pub fn at(url: &str, token: Option<String>, ca: Option<String>) -> Api {
        Api {
            http: client(ca.as_deref(), None),
            base: url.trim_end_matches('/').to_string(),
            token,
            ca,
            own: None,
            ns: "default".into(),
        }
    }

    /// An embedded server with these settings.
    pub async fn serve(config: Config) -> Api {
        let server = ApiServer::open(config).await.expect("opens");
        let served = server.serve(ServeOptions::default()).await.expect("listens");
        let ca = served.ca_pem();
        Api {
            http: client(Some(&ca), None),
            base: format!("https://{}", served.local_addr()),
            token: Some(server.admin_token()),
            ca: Some(ca),
            own: Some(Arc::new((server, served))),
            ns: "default".into(),
        }
    }

    /// The embedded server, where it is the one under test.
    pub fn embedded(&self) -> Option<&ApiServer> {
        self.own.as_ref().map(|own| &own.0)
    }

    /// The same server as somebody else; None for nobody.
    pub fn with_token(&self, token: Option<&str>) -> Api {
        Api { token: token.map(str::to_string), ..self.clone() }
    }

    /// The same server by a client certificate.
    pub fn with_certificate(&self, cert: &str, key: &str) -> Api {
        let identity = Identity::from_pem(format!("{cert}{key}").as_bytes()).expect("an identity");
        Api { http: client(self.ca.as_deref(), Some(identity)), token: None, ..self.clone() }
    }

    /// The token that requests carry.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The server's certificate authority, in PEM form.
    pub fn ca(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    /// Host and port of the server.
    pub fn host(&self) -> String {
        let rest = self.base.trim_start_matches("https://");
        if rest.contains(':') { rest.to_string() } else { format!("{rest}:443") }
    }

    /// The same server through a relay on this machine, by connections of its own.
    pub fn through(&self, relay: SocketAddr) -> Api {
        let host = self.host();
        let name = host.split(':').next().unwrap_or_default();
        // The certificate is checked against the server's own name; an address stands for this machine.
        let name = if name.parse::<std::net::IpAddr>().is_ok() { "127.0.0.1" } else { name };
        let http = builder(self.ca.as_deref(), None).resolve(name, relay).build().expect("a client");
        Api { http, base: format!("https://{name}:{}", relay.port()), ..self.clone() }
    }

    /// Settings of the kube client, through a relay when there is one.
    pub fn kube(&self, relay: Option<SocketAddr>) -> kube::Config {
        let url = relay.map_or_else(|| self.base.clone(), |r| format!("https://{r}"));
        let mut config = kube::Config::new(url.parse().expect("a URL"));
        let host = self.host();
        let name = host.split(':').next().unwrap_or_default();
        if relay.is_some() && name.parse::<std::net::IpAddr>().is_err() {
            config.tls_server_name = Some(name.to_string());
        }
        config.root_cert = self.ca.as_ref().map(|pem| {
            let blocks = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes());
            blocks.map(|block| block.expect("a PEM certificate").contents).collect()
        });
        config.auth_info.token = self.token.clone().map(Into::into);
        config
    }

    /// Path of a core collection in the test's namespace.
    pub fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.ns)
    }

    /// Path of a collection of a group in the test's namespace.
    pub fn group(&self, group_version: &str, plural: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{plural}", self.ns)
    }

    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.parse().expect("a method");
        let request = self.http.request(method, format!("{}{path}", self.base));
        let request = request.header(USER_AGENT, "conformance/1");
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response {
        let mut request = self.request(method, path).body(body);
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        request.send().await.unwrap_or_else(|e| panic!("{path}: {e:?}"))
    }

    /// A GET that may be cut off: its body, when it came whole and well.
    pub async fn try_get(&self, path: &str) -> Option<Value> {
        let response = self.request("GET", path).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        serde_json::from_slice(&response.bytes().await.ok()?).ok()
    }

    /// A request that may stay without an answer.
    pub async fn attempt(&self, method: &str, path: &str, media: &str, body: Value) -> Option<Answer> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.request(method, path).header(CONTENT_TYPE, media).body(body).send().await.ok()?;
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.ok()?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Some(Answer { code, headers, text: String::from_utf8_lossy(&bytes).into_owned(), body })
    }

    /// A watch that may be cut off.
    pub async fn try_watch(&self, path: &str) -> Option<Watch> {
        let response = self.request("GET", path).send().await.ok()?;
        assert!(response.status().is_success(), "{path}: {}", response.status());
        Some(Watch { response, rest: Vec::new() })
    }

    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        let response = self.send(method, path, headers, body.into()).await;
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap_or_else(|e| panic!("{path}: {e:?}"));
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { code, headers, text: String::from_utf8_lossy(&bytes).into_owned(), body }
    }

    async fn json(&self, method: &str, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.raw(method, path, &[(CONTENT_TYPE.as_str(), "application/json")], body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.raw("GET", path, &[], Vec::new()).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.raw("GET", path, &[(ACCEPT.as_str(), accept)], Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.json("POST", path, body).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.json("PUT", path, body).await
    }

    pub async fn delete(&self, path: &str, body: Value) -> Answer {
        self.json("DELETE", path, body).await
    }

    /// `kind`: json, merge, strategic-merge or apply.
    pub async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        let media = match kind {
            "apply" => "application/apply-patch+yaml".to_string(),
            other => format!("application/{other}-patch+json"),
        };
        self.raw("PATCH", path, &[(CONTENT_TYPE.as_str(), &media)], body.to_string()).await
    }

    /// The first events of a watch; fewer when it ends before.
    pub async fn events(&self, path: &str, accept: &str, count: usize) -> Vec<Value> {
        let mut watch = Watch {
            response: self.send("GET", path, &[("accept", accept)], Vec::new()).await,
            rest: Vec::new(),
        };
        let mut events = Vec::new();
        while events.len() < count {
            let Some(event) = watch.next().await else { break };
            events.push(event);
        }
        events
    }

    /// An open watch.
    pub async fn watch(&self, path: &str) -> Watch {
        Watch { response: self.send("GET", path, &[], Vec::new()).await, rest: Vec::new() }
    }

    /// Waits until a path answers with this code.
    pub async fn until_code(&self, path: &str, code: u16) -> Answer {
        self.until(path, |a| a.code == code).await
    }

    /// Waits until a GET satisfies a condition.
    pub async fn until(&self, path: &str, holds: impl Fn(&Answer) -> bool) -> Answer {
        let start = std::time::Instant::now();
        loop {
            let answer = self.get(path).await;
            if holds(&answer) {
                return answer;
            }
            assert!(start.elapsed() < PATIENCE, "{path} never changed: {} {}", answer.code, answer.text);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Makes a CRD in a group of this test alone and waits until it is served. Returns the group.
    pub async fn crd(&self, plural: &str, kind: &str, versions: Value) -> String {
        let group = format!("{}.example.com", random("g"));
        let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": versions}});
        self.post(CRDS, body).await.expect(201);
        let version = versions[0]["name"].as_str().expect("a version");
        self.until_code(&self.group(&format!("{group}/{version}"), plural), 200).await;
        group
    }

    /// A token for a ServiceAccount of the test's namespace, which is made first.
    pub async fn account(&self, name: &str) -> Api {
        self.post(&self.core("serviceaccounts"), json!({"metadata": {"name": name}})).await;
        let path = self.core(&format!("serviceaccounts/{name}/token"));
        let token = self.post(&path, json!({"spec": {}})).await.expect(201);
        self.with_token(token.body["status"]["token"].as_str())
    }

    /// Leaves nothing behind on a server that outlives the test.
    pub async fn done(self) {
        if self.own.is_none() {
            self.delete(&format!("/api/v1/namespaces/{}", self.ns), Value::Null).await;
        }
    }
}

/// An open watch.
pub struct Watch {
    response: Response,
    rest: Vec<u8>,
}

impl Watch {
    /// The next event; None when the connection has ended, also in the middle of one.
    pub async fn try_next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event is one line of JSON"));
            }
            self.rest.extend_from_slice(&self.response.chunk().await.ok()??);
        }
    }

    /// The next event; None at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event is one line of JSON"));
            }
            let chunk =
                tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("the watch is silent");
            self.rest.extend_from_slice(&chunk.ok()??);
        }
    }
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

pub fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
}

/// A request for a certificate of a user, as the spec of a CertificateSigningRequest carries it.
pub fn signing_request(user: &str) -> String {
    use base64::Engine;
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    let pem = params.serialize_request(&key).and_then(|r| r.pem()).expect("a request");
    base64::engine::general_purpose::STANDARD.encode(pem)
}

//! An embedded hub that asks who may do what, its portal, and browsers without a window.

// Each program of tests uses a part of it.
#![allow(dead_code)]

mod line;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, header},
};
use fleet_api::crds::{Side, definitions};
use fleet_apiserver::{Access, ApiServer, Config};
use fleet_portal::{
    board::Board,
    web::{Web, router as router_of},
};
use fleet_views::Known;
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use line::many;

pub const BINDINGS: &str = "/apis/fleet.dev/v1alpha1/namespaces/NS/resourcebindings";
pub const JOBS: &str = "/apis/kubeflow.org/v1/namespaces/NS/pytorchjobs";
pub const ODD: &str = "<script>alert(1)</script>";

pub struct Hub {
    pub server: ApiServer,
    pub admin: Client,
    pub board: Arc<Board>,
    pub pages: Router,
    pub web: Arc<Web>,
    pub stop: CancellationToken,
    /// The portal does not reach it any more.
    pub away: Arc<AtomicBool>,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

/// A browser: its cookies, and the form key it read last.
#[derive(Clone, Default)]
pub struct Browser {
    pub cookies: Vec<(String, String)>,
    pub form_key: String,
}

impl Browser {
    pub fn cookie(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    fn take(&mut self, answer: &Answer) {
        for cookie in answer.headers.get_all(header::SET_COOKIE) {
            let text = cookie.to_str().expect("a cookie");
            let (name, value) = text.split(';').next().and_then(|pair| pair.split_once('=')).expect("a pair");
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        if let Some(rest) = answer.body.split("name=\"form_key\" value=\"").nth(1) {
            self.form_key = rest.split('"').next().unwrap_or_default().to_owned();
        }
    }
}

impl Hub {
    /// The portal of this server, which shows this board.
    pub fn of(server: ApiServer, board: Arc<Board>, stop: CancellationToken) -> Self {
        let admin = Client::new(server.router(), "default");
        let away = Arc::new(AtomicBool::new(false));
        let client = as_portal(&server, &away);
        let web = Arc::new(Web::new(board.clone(), client, "the hub".into(), "a".into()));
        Self { server, admin, board, pages: router_of(web.clone()), web, stop, away }
    }

    /// The portal reads members for its users, as an account that may read the Secrets for that and nothing else.
    pub async fn read_members(&mut self) {
        self.server.add_token("token-p", "portal", &[]);
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["member-access"], "verbs": ["get"]});
        self.create(
            &format!("{rbac}/clusterroles"),
            json!({"metadata": {"name": "portal"}, "rules": [rule]}),
        )
        .await;
        let binding = json!({"metadata": {"name": "portal"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "portal"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "portal"}]});
        self.create(&format!("{rbac}/clusterrolebindings"), binding).await;
        let router = self.server.router();
        let own = tower::service_fn(move |mut request: Request<kube::client::Body>| {
            let router = router.clone();
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, header::HeaderValue::from_static("Bearer token-p"));
            async move { router.oneshot(request).await }
        });
        let client = as_portal(&self.server, &self.away);
        let web = Web::new(self.board.clone(), client, "the hub".into(), "a".into());
        self.web = Arc::new(web.reading_members(Client::new(own, "default")));
        self.pages = router_of(self.web.clone());
    }

    /// Lets a user do this in a namespace, beside what he may already.
    pub async fn allow(&self, namespace: &str, user: &str, rule: Value) {
        let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        let role = json!({"metadata": {"generateName": format!("{user}-")}, "rules": [rule]});
        let made = self.create(&format!("{roles}/roles"), role).await;
        let name = &made["metadata"]["name"];
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        self.create(&format!("{roles}/rolebindings"), binding).await;
    }

    /// Writes into the status of an object.
    pub async fn status(&self, path: &str, status: Value) {
        let request = Request::patch(format!("{path}/status"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(json!({"status": status}).to_string().into_bytes())
            .expect("a request");
        let _: Value = self.admin.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    pub fn set_away(&self, is_away: bool) {
        self.away.store(is_away, Ordering::Relaxed);
    }

    /// A portal that knows this and follows nothing, of a hub on which root may do everything.
    pub async fn that_knows(known: Known) -> Self {
        let config = Config { crds: definitions(Side::Hub), access: Access::Rbac, ..Config::default() };
        let server = ApiServer::open(config).await.expect("a server in memory");
        server.add_token("token-r", "root", &["system:masters"]);
        Self::of(server, Arc::new(Board::of(known)), CancellationToken::new())
    }

    /// alice has namespace `a` as a tenant, bob has `b`; root may do everything.
    pub async fn start() -> Self {
        let config = Config { crds: definitions(Side::Hub), access: Access::Rbac, ..Config::default() };
        let server = ApiServer::open(config).await.expect("a server in memory");
        for (token, user, groups) in
            [("token-a", "alice", &[][..]), ("token-b", "bob", &[]), ("token-r", "root", &["system:masters"])]
        {
            server.add_token(token, user, groups);
        }
        let hub = Self::of(server, Arc::new(Board::default()), CancellationToken::new());
        tokio::spawn(hub.board.clone().follow(hub.web.hub.clone(), hub.stop.clone()));
        for (namespace, user) in [("a", "alice"), ("b", "bob")] {
            hub.create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
            let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
            let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
            hub.create(&format!("{roles}/roles"), json!({"metadata": {"name": "tenant"}, "rules": [
                rule("kubeflow.org", &["pytorchjobs"]), rule("fleet.dev", &["resourcebindings"]), rule("", &["events"])]})).await;
            hub.create(
                &format!("{roles}/rolebindings"),
                json!({"metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}),
            )
            .await;
        }
        hub
    }

    pub async fn create(&self, path: &str, object: Value) -> Value {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes())
            .expect("a request");
        self.admin.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub async fn object(&self, path: &str) -> Result<Value, kube::Error> {
        self.admin.request(Request::get(path).body(Vec::new()).expect("a request")).await
    }

    /// A job with its binding, as the controller would make it.
    pub async fn job(&self, namespace: &str, name: &str, message: &str) {
        let object = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec":
            {"containers": [{"name": "pytorch", "image": "i"}]}}}}}});
        self.create(&JOBS.replace("NS", namespace), object).await;
        let bindings = BINDINGS.replace("NS", namespace);
        self.create(&bindings, json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding", "metadata": {"name": format!("{name}-pytorchjob")}, "spec": {
            "resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": namespace, "name": name},
            "policy": {"kind": "PropagationPolicy", "name": "p"}, "replicas": 1,
            "components": [{"name": "master", "replicas": 1, "request": {"nvidia.com/gpu": "8"}}]}})).await;
        let status = json!({"status": {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoClusterFits",
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let request = Request::patch(format!("{bindings}/{name}-pytorchjob/status"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(status.to_string().into_bytes())
            .expect("a request");
        let _: Value = self.admin.request(request).await.expect("a status");
        self.until(|known| {
            known
                .job(&(namespace.to_owned(), format!("{name}-pytorchjob")))
                .is_some_and(|job| job.said().0 == "NoClusterFits")
        })
        .await;
    }

    pub async fn until(&self, holds: impl Fn(&Known) -> bool) {
        let mut news = self.board.news();
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while !holds(&self.board.known()) {
                news.changed().await.expect("news");
            }
        });
        waited.await.expect("the board hears of it");
    }

    pub async fn send(&self, browser: &mut Browser, request: http::request::Builder, body: &str) -> Answer {
        let request =
            request.header(header::HOST, "portal.example.com").header(header::COOKIE, browser.cookie());
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        let answer = self.pages.clone().oneshot(request).await.expect("an answer");
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let answer = Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8_lossy(&bytes).into_owned(),
        };
        browser.take(&answer);
        answer
    }

    pub async fn get(&self, browser: &mut Browser, path: &str) -> Answer {
        self.send(browser, Request::get(path), "").await
    }

    /// Sends a form with the key read last.
    pub async fn post(&self, browser: &mut Browser, path: &str, fields: &str) -> Answer {
        let body = format!("form_key={}&{fields}", browser.form_key);
        let request = Request::post(path).header(header::ORIGIN, "http://portal.example.com");
        self.send(browser, request, &body).await
    }

    pub async fn sign_in(&self, token: &str) -> Browser {
        let mut browser = Browser::default();
        assert_eq!(self.get(&mut browser, "/sign-in").await.status, 200);
        let answer = self.post(&mut browser, "/sign-in", &format!("token={token}")).await;
        assert_eq!((answer.status, location(&answer)), (303, "/"), "{}", answer.body);
        assert_eq!(self.get(&mut browser, "/").await.status, 200);
        browser
    }
}

/// The portal's way to the hub, which can be cut.
fn as_portal(server: &ApiServer, away: &Arc<AtomicBool>) -> Client {
    let (router, away) = (server.router(), away.clone());
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (router, is_away) = (router.clone(), away.load(Ordering::Relaxed));
        async move {
            match is_away {
                true => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
                false => Ok(router.oneshot(request).await.unwrap_or_else(|never| match never {})),
            }
        }
    });
    Client::new(service, "default")
}

pub fn location(answer: &Answer) -> &str {
    answer.headers.get(header::LOCATION).map_or("", |value| value.to_str().unwrap_or_default())
}

//! The pages against an embedded hub that asks who may do what.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, header},
};
use fleet_api::crds::{Side, definitions};
use fleet_apiserver::{Access, ApiServer, Config};
use fleet_portal::{
    board::Board,
    web::{Web, router},
};
use fleet_views::{BindingFacts, Known, QuotaFacts, TreeFacts, UnitFacts};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const BINDINGS: &str = "/apis/fleet.dev/v1alpha1/namespaces/NS/resourcebindings";
const JOBS: &str = "/apis/kubeflow.org/v1/namespaces/NS/pytorchjobs";
const ODD: &str = "<script>alert(1)</script>";

struct Hub {
    _server: ApiServer,
    admin: Client,
    board: Arc<Board>,
    pages: Router,
    stop: CancellationToken,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

/// A browser: its cookies, and the form key it read last.
#[derive(Clone, Default)]
struct Browser {
    cookies: Vec<(String, String)>,
    form_key: String,
}

impl Browser {
    fn cookie(&self) -> String {
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
    /// alice has namespace `a` as a tenant, bob has `b`; root may do everything.
    async fn start() -> Self {
        let config = Config { crds: definitions(Side::Hub), access: Access::Rbac, ..Config::default() };
        let server = ApiServer::open(config).await.expect("a server in memory");
        for (token, user, groups) in
            [("token-a", "alice", &[][..]), ("token-b", "bob", &[]), ("token-r", "root", &["system:masters"])]
        {
            server.add_token(token, user, groups);
        }
        let admin = Client::new(server.router(), "default");
        let board = Arc::new(Board::default());
        let stop = CancellationToken::new();
        tokio::spawn(board.clone().follow(admin.clone(), stop.clone()));
        let web = Web::new(board.clone(), admin.clone(), "the hub".into(), "a".into());
        let hub = Self { _server: server, admin, board, pages: router(Arc::new(web)), stop };
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

    async fn create(&self, path: &str, object: Value) -> Value {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes())
            .expect("a request");
        self.admin.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn object(&self, path: &str) -> Result<Value, kube::Error> {
        self.admin.request(Request::get(path).body(Vec::new()).expect("a request")).await
    }

    /// A job with its binding, as the controller would make it.
    async fn job(&self, namespace: &str, name: &str, message: &str) {
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

    async fn until(&self, holds: impl Fn(&Known) -> bool) {
        let mut news = self.board.news();
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while !holds(&self.board.known()) {
                news.changed().await.expect("news");
            }
        });
        waited.await.expect("the board hears of it");
    }

    async fn send(&self, browser: &mut Browser, request: http::request::Builder, body: &str) -> Answer {
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

    async fn get(&self, browser: &mut Browser, path: &str) -> Answer {
        self.send(browser, Request::get(path), "").await
    }

    /// Sends a form with the key read last.
    async fn post(&self, browser: &mut Browser, path: &str, fields: &str) -> Answer {
        let body = format!("form_key={}&{fields}", browser.form_key);
        let request = Request::post(path).header(header::ORIGIN, "http://portal.example.com");
        self.send(browser, request, &body).await
    }

    async fn sign_in(&self, token: &str) -> Browser {
        let mut browser = Browser::default();
        assert_eq!(self.get(&mut browser, "/sign-in").await.status, 200);
        let answer = self.post(&mut browser, "/sign-in", &format!("token={token}")).await;
        assert_eq!((answer.status, location(&answer)), (303, "/"), "{}", answer.body);
        assert_eq!(self.get(&mut browser, "/").await.status, 200);
        browser
    }
}

fn location(answer: &Answer) -> &str {
    answer.headers.get(header::LOCATION).map_or("", |value| value.to_str().unwrap_or_default())
}

const PAGES: [&str; 6] = ["/", "/queues", "/jobs", "/clusters", "/virtual-clusters", "/submit"];

#[tokio::test]
async fn nobody_sees_anything_before_signing_in() {
    let hub = Hub::start().await;
    hub.job("a", "secret-job", "waits").await;
    for path in PAGES.iter().chain(&["/jobs/a/pytorchjobs.kubeflow.org/secret-job", "/jobs?text=x"]) {
        let answer = hub.get(&mut Browser::default(), path).await;
        assert_eq!(answer.status, 303, "{path}");
        assert!(location(&answer).starts_with("/sign-in"), "{path}");
        assert!(answer.body.is_empty());
    }
    assert_eq!(hub.get(&mut Browser::default(), "/live?page=/").await.status, 401);
    let invented =
        &mut Browser { cookies: vec![("fleet-session".into(), "x".repeat(64))], ..Browser::default() };
    assert_eq!(hub.get(invented, "/jobs").await.status, 303);
    // The address is kept for afterwards, but nobody is sent to another site.
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    let answer = hub.post(&mut browser, "/sign-in", "token=token-a&back=/jobs%3Ftext%3Dx").await;
    assert_eq!(location(&answer), "/jobs?text=x");
    let cookie = answer.headers[header::SET_COOKIE].to_str().expect("text");
    assert!(cookie.contains("HttpOnly; SameSite=Strict; Max-Age="), "{cookie}");
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    let answer = hub.post(&mut browser, "/sign-in", "token=token-a&back=//evil.example.com").await;
    assert_eq!(location(&answer), "/");
}

#[tokio::test]
async fn a_wrong_token_or_form_opens_nothing() {
    let hub = Hub::start().await;
    for token in ["nonsense", "", "a%20b", "%0d%0a"] {
        let mut browser = Browser::default();
        hub.get(&mut browser, "/sign-in").await;
        let answer = hub.post(&mut browser, "/sign-in", &format!("token={token}")).await;
        assert_eq!(answer.status, 401, "{token}");
        assert!(
            answer.body.contains("role=\"alert\"") && !browser.cookie().contains("fleet-session"),
            "{token}"
        );
    }
    // A form of another site does not have the cookie's key.
    let mut browser = Browser::default();
    hub.get(&mut browser, "/sign-in").await;
    browser.form_key = "other".into();
    assert_eq!(hub.post(&mut browser, "/sign-in", "token=token-a").await.status, 403);
}

#[tokio::test]
async fn each_user_sees_and_stops_what_the_hub_lets_him() {
    let hub = Hub::start().await;
    hub.job("a", "of-alice", "waits in a").await;
    hub.job("b", "of-bob", "waits in b").await;
    let (mut alice, mut bob, mut root) =
        (hub.sign_in("token-a").await, hub.sign_in("token-b").await, hub.sign_in("token-r").await);
    for path in ["/", "/jobs", "/jobs?namespace=b", "/clusters", "/queues"] {
        let seen = hub.get(&mut alice, path).await.body;
        assert!(!seen.contains("of-bob") && !seen.contains("waits in b"), "{path}: {seen}");
    }
    let seen = hub.get(&mut alice, "/jobs").await.body;
    assert!(seen.contains("of-alice") && seen.contains("waits in a"), "{seen}");
    let seen = hub.get(&mut root, "/jobs").await.body;
    assert!(seen.contains("of-alice") && seen.contains("of-bob"));
    // For programs the same.
    let request = Request::get("/jobs").header(header::ACCEPT, "application/json");
    let answer = hub.send(&mut bob, request, "").await;
    let value: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!((value["total"].as_i64(), &value["rows"][0]["name"]), (Some(1), &json!("of-bob")));

    let of_bob = "/jobs/b/pytorchjobs.kubeflow.org/of-bob";
    assert_eq!(hub.get(&mut alice, of_bob).await.status, 404);
    assert_eq!(hub.get(&mut bob, of_bob).await.status, 200);
    assert!(hub.get(&mut root, "/clusters").await.body.contains("No clusters"));

    let stop = |job: &str| format!("job={}&back=/jobs", job.trim_start_matches("/jobs/"));
    let answer = hub.post(&mut alice, "/jobs/stop", &stop(of_bob)).await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    let job = format!("{}/of-bob", JOBS.replace("NS", "b"));
    let annotations = |job: &Value| job["metadata"]["annotations"]["fleet.dev/stop"].clone();
    assert_eq!(annotations(&hub.object(&job).await.expect("a job")), Value::Null);
    hub.get(&mut bob, of_bob).await;
    let answer = hub.post(&mut bob, "/jobs/stop", &stop(of_bob)).await;
    assert_eq!((answer.status, location(&answer)), (303, "/jobs"));
    assert_eq!(annotations(&hub.object(&job).await.expect("a job")), "true");
    assert!(hub.get(&mut bob, of_bob).await.body.contains("it is being stopped"));
}

#[tokio::test]
async fn a_right_given_or_taken_shows() {
    let hub = Hub::start().await;
    hub.job("b", "of-bob", "waits in b").await;
    let mut alice = hub.sign_in("token-a").await;
    assert!(!hub.get(&mut alice, "/jobs").await.body.contains("of-bob"));
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings";
    hub.create(
        path,
        json!({"metadata": {"name": "guest"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]}),
    )
    .await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert!(hub.get(&mut alice, "/jobs").await.body.contains("of-bob"));
}

#[tokio::test]
async fn writes_of_other_sites_are_refused() {
    let hub = Hub::start().await;
    hub.job("a", "x", "waits").await;
    let mut alice = hub.sign_in("token-a").await;
    let body = format!("form_key={}&job=a/pytorchjobs.kubeflow.org/x", alice.form_key);
    for path in ["/jobs/stop", "/submit", "/sign-out", "/sign-in"] {
        for (name, value) in
            [("origin", "http://evil.example.com"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
        {
            let request = Request::post(path).header(name, value);
            assert_eq!(hub.send(&mut alice, request, &body).await.status, 403, "{path} {name}");
        }
        if path != "/sign-in" {
            for key in ["form_key=", "form_key=x&", ""] {
                let request = Request::post(path).header(header::ORIGIN, "http://portal.example.com");
                let answer =
                    hub.send(&mut alice, request, &format!("{key}&job=a/pytorchjobs.kubeflow.org/x")).await;
                assert_eq!(answer.status, 403, "{path} {key}");
            }
        }
    }
    let job = hub.object(&format!("{}/x", JOBS.replace("NS", "a"))).await.expect("a job");
    assert_eq!(job["metadata"]["annotations"], Value::Null);
    // Still signed in; signing out ends the session, not only the cookie.
    assert_eq!(hub.get(&mut alice, "/").await.status, 200);
    let kept = alice.clone();
    assert_eq!(hub.post(&mut alice, "/sign-out", "").await.status, 303);
    assert_eq!(hub.get(&mut kept.clone(), "/").await.status, 303);
}

#[tokio::test]
async fn markup_in_what_others_write_is_text() {
    let hub = Hub::start().await;
    let message = format!("\"'{ODD}<img src=x onerror=alert(2)>");
    hub.job("a", "x", &message).await;
    hub.create("/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees", json!({
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "t"}, "spec": {"root": {"name": "root", "children": [{"name": ODD, "namespaces": ["a"]}]}}})).await;
    hub.until(|known| known.tree().root.is_some()).await;
    let mut root = hub.sign_in("token-r").await;
    let odd = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let mut paths: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    paths.push("/jobs/a/pytorchjobs.kubeflow.org/x".into());
    for name in ["text", "queue", "cluster", "namespace", "kind", "reason", "sort", "after", "state"] {
        paths.push(format!("/jobs?{name}={odd}"));
    }
    paths.extend([
        format!("/queues/root/{odd}"),
        format!("/{odd}"),
        format!("/jobs/a/b/{odd}"),
        format!("/submit?clone={odd}"),
    ]);
    for path in &paths {
        let answer = hub.get(&mut root, path).await;
        assert!(!answer.body.contains(ODD) && !answer.body.contains("<img"), "{path}: {}", answer.body);
        assert!(!answer.body.contains(" style=") && !answer.body.contains("<style"), "{path}");
        assert_eq!(answer.body.matches("<script").count(), 1, "{path}");
        let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
    assert!(hub.get(&mut root, "/jobs").await.body.contains("&lt;script&gt;alert(1)"));
    assert!(hub.get(&mut root, "/queues").await.body.contains("&lt;script&gt;alert(1)"));
    let mut browser = Browser::default();
    let answer = hub.get(&mut browser, &format!("/sign-in?back=/{odd}%22")).await;
    assert!(!answer.body.contains(ODD) && answer.body.contains("&quot;"), "{}", answer.body);
}

#[tokio::test]
async fn a_job_is_submitted_by_form_and_by_text() {
    let hub = Hub::start().await;
    let mut alice = hub.sign_in("token-a").await;
    assert_eq!(hub.get(&mut alice, "/submit").await.status, 200);
    let fields = |name: &str, more: &str| {
        format!(
            "name={name}&namespace=a&kind=PyTorchJob&role0-name=Master&role0-replicas=1&role0-image=i&role0-gpus=8&role0-cpu=1&role0-memory=1Gi&{more}"
        )
    };
    let jobs = JOBS.replace("NS", "a");
    // Checked by the hub, and not kept.
    let answer = hub.post(&mut alice, "/submit", &fields("train", "do=check")).await;
    assert!(answer.status == 200 && answer.body.contains("The hub would take it"), "{}", answer.body);
    assert!(hub.object(&format!("{jobs}/train")).await.is_err());
    let answer = hub.post(&mut alice, "/submit", &fields("train", "do=yaml")).await;
    assert!(
        answer.body.contains("pytorchReplicaSpecs:") && answer.body.contains("<textarea"),
        "{}",
        answer.body
    );
    let answer = hub.post(&mut alice, "/submit", &fields("train", "do=create")).await;
    assert_eq!((answer.status, location(&answer)), (303, "/jobs/a/pytorchjobs.kubeflow.org/train"));
    let made = hub.object(&format!("{jobs}/train")).await.expect("a job");
    let container = &made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "8");
    // Its page says what the fleet does not know yet.
    let answer = hub.get(&mut alice, "/jobs/a/pytorchjobs.kubeflow.org/train").await;
    assert!(answer.status == 200 && answer.body.contains("no policy selects it"), "{}", answer.body);
    // Errors stand beside the field, and what was written stays.
    let wrong = |name: &str, more: &str, field: &'static str| (fields(name, more), field);
    for (fields, field) in [
        wrong("Train!", "do=create", "name"),
        wrong("train", "do=create", "name"),
        (fields("other", "do=create").replace("role0-replicas=1", "role0-replicas=x"), "role0-replicas"),
        (fields("other", "do=create").replace("namespace=a", "namespace=b"), "namespace"),
    ] {
        let answer = hub.post(&mut alice, "/submit", &fields).await;
        assert_eq!(answer.status, 422, "{field}: {}", answer.body);
        assert!(answer.body.contains(&format!("id=\"{field}-trouble\"")), "{field}: {}", answer.body);
        assert!(answer.body.contains("value=\"8\""), "{field}");
    }
    let text = |text: &str| text.replace('\n', "%0D%0A").replace(' ', "+").replace(':', "%3A");
    let job = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: by-text\nspec:\n  pytorchReplicaSpecs:\n    Master:\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            image: i\n";
    let answer = hub.post(&mut alice, "/submit", &format!("mode=yaml&do=create&yaml={}", text(job))).await;
    assert_eq!(location(&answer), "/jobs/a/pytorchjobs.kubeflow.org/by-text", "{}", answer.body);
    for (wrong, says) in [
        (job.replace("kind: PyTorchJob", "kind: Secret"), "found kubeflow.org/v1 Secret"),
        (job.replace("by-text", "other").replace("containers", "contaniers"), "contaniers"),
        ("a: [".to_owned(), "YAML"),
        ("a: 1\n---\nb: 1".to_owned(), "found 2 documents"),
        (String::new(), "found 0 documents"),
        ("protocolVersion: 2\nname: a\ntype: job\n".to_owned(), "taskRoles"),
        (job.replace("  name: by-text", "  name: x\n  namespace: ../../secrets"), ""),
    ] {
        let answer =
            hub.post(&mut alice, "/submit", &format!("mode=yaml&do=create&yaml={}", text(&wrong))).await;
        assert_eq!(answer.status, 422, "{wrong}: {}", answer.body);
        assert!(
            answer.body.contains("id=\"yaml-trouble\"") && answer.body.contains(says),
            "{says}: {}",
            answer.body
        );
    }
    // A clone is the same job without a name.
    let answer = hub.get(&mut alice, "/submit?clone=a%2Fpytorchjobs.kubeflow.org%2Ftrain").await;
    assert!(
        answer.body.contains("name: &quot;&quot;") || answer.body.contains("name: ''"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("pytorchReplicaSpecs:") && !answer.body.contains("resourceVersion"));
}

/// Tools are answered, not sent to the sign-in page.
#[tokio::test]
async fn the_apis_stand_beside_the_pages() {
    let hub = Hub::start().await;
    for (path, wanted) in [
        ("/api/v2/info", 200),
        ("/api/v2/virtual-clusters", 401),
        ("/v1/inspect", 200),
        ("/v1/inspect/", 200),
        ("/v1/inspect/clusterstatus", 401),
    ] {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = hub.pages.clone().oneshot(request).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), wanted, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json", "{path}");
    }
}

#[tokio::test]
async fn a_page_follows_its_job_and_ends_with_the_session() {
    let hub = Hub::start().await;
    hub.job("a", "x", "the first sentence").await;
    let mut alice = hub.sign_in("token-a").await;
    let request = Request::get("/live?page=/jobs").header(header::COOKIE, alice.cookie());
    let answer =
        hub.pages.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("an answer");
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut events = answer.into_body();
    let mut read = async |wanted: &str| {
        let mut seen = String::new();
        let reading = tokio::time::timeout(Duration::from_secs(20), async {
            while !seen.contains(wanted) {
                let frame = events.frame().await.expect("a frame").expect("no error");
                seen.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
            }
        });
        reading.await.unwrap_or_else(|_| panic!("{wanted:?} in {seen}"));
        seen
    };
    let first = read("the first sentence").await;
    assert!(first.starts_with("event: page"), "{first}");
    hub.job("b", "of-bob", "nothing of alice's").await;
    hub.job("a", "y", "the second sentence").await;
    let second = read("the second sentence").await;
    assert!(!second.contains("of-bob"), "{second}");
    hub.post(&mut alice, "/sign-out", "").await;
    read("event: over").await;
}

fn many(jobs: usize) -> Known {
    let mut known = Known::default();
    let leaf = QuotaFacts { name: "research".into(), ..QuotaFacts::default() };
    let root = QuotaFacts { name: "root".into(), children: vec![leaf], ..QuotaFacts::default() };
    known.set_tree(TreeFacts { root: Some(root), problems: Vec::new() });
    for index in 0..jobs {
        let id = (format!("team-{}", index % 50), format!("job-{index:06}-pytorchjob"));
        let name = format!("job-{index:06}");
        let binding = BindingFacts {
            api_version: "kubeflow.org/v1".into(),
            kind: "PyTorchJob".into(),
            resource: "pytorchjobs.kubeflow.org".into(),
            name,
            is_job: true,
            created_s: index as i64,
            pods: 4,
            ..BindingFacts::default()
        };
        known.set_binding(id.clone(), Some(binding));
        let unit = UnitFacts {
            queue: "root/research".into(),
            priority: (index % 7) as i32,
            created_s: index as i64,
            waits: true,
            ..UnitFacts::default()
        };
        known.set_unit(id, Some(unit));
    }
    known
}

/// Sizes are held here; the time is printed.
#[tokio::test]
async fn a_line_of_50000_jobs_is_read_page_by_page() {
    let config = Config { crds: definitions(Side::Hub), access: Access::Rbac, ..Config::default() };
    let server = ApiServer::open(config).await.expect("a server in memory");
    server.add_token("token-r", "root", &["system:masters"]);
    let admin = Client::new(server.router(), "default");
    let board = Arc::new(Board::of(many(50_000)));
    let web = Web::new(board.clone(), admin.clone(), "the hub".into(), "a".into());
    let hub =
        Hub { _server: server, admin, board, pages: router(Arc::new(web)), stop: CancellationToken::new() };
    let mut root = hub.sign_in("token-r").await;
    let mut pages = vec![
        "/queues/root/research".to_owned(),
        "/jobs".to_owned(),
        "/jobs?text=job-0499".to_owned(),
        "/".to_owned(),
    ];
    let mut positions = 0;
    while let Some(path) = pages.pop() {
        let began = std::time::Instant::now();
        let answer = hub.get(&mut root, &path).await;
        println!("{path}: {} KiB in {:?}", answer.body.len() / 1024, began.elapsed());
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() < 300_000, "{path}: {} bytes", answer.body.len());
        if path.starts_with("/queues/") {
            positions += answer.body.matches("<td class=\"number\">").count() / 2;
            let next =
                answer.body.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
            if positions < 1000 {
                pages.push(next.expect("a next page").replace("&amp;", "&"));
            }
        }
    }
    assert_eq!(positions, 1000);
}

#[tokio::test]
async fn virtual_clusters_are_shown_to_who_may_list_them() {
    let hub = Hub::start().await;
    let path = "/apis/fleet.dev/v1alpha1/virtualclusters";
    let object = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": "vc1"},
        "spec": {"name": "VC1", "configuration": "cells"}});
    hub.create(path, object).await;
    let status = json!({"status": {"guaranteed": 8, "used": 6, "borrowedOut": 1, "borrowedIn": 0, "gpu": "6/8", "waiting": 3}});
    let request = Request::patch(format!("{path}/vc1/status"))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(status.to_string().into_bytes())
        .expect("a request");
    let _: Value = hub.admin.request(request).await.expect("a status");
    let (mut root, mut alice) = (hub.sign_in("token-r").await, hub.sign_in("token-a").await);
    let seen = hub.get(&mut root, "/virtual-clusters").await.body;
    assert!(seen.contains("VC1") && seen.contains("6 of 8 cells used, 8 guaranteed, 1 lent"), "{seen}");
    let seen = hub.get(&mut alice, "/virtual-clusters").await.body;
    assert!(!seen.contains("VC1") && seen.contains("Virtual clusters are not shown"), "{seen}");
}

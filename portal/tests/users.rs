//! Users with passwords, against an embedded hub that asks who may do what, with the roles and policies of the chart. The
//! portal has the rights of its own role there, and no others.

mod rights;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, header},
};
use fleet_api::{
    access,
    crds::{Side, definitions},
};
use fleet_apiserver::{Access, ApiServer, Config};
use fleet_openpai::{
    rest::{Portal, router},
    server::{HUB_PATIENCE, Server},
    users::Users,
};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tower::ServiceExt;

const LAB: &str = include_str!("../../examples/hived/jobs/job-config-6.yaml");
const USERS: &str = "/api/v1/namespaces/fleet-pai-users";
const ROOT: Option<&str> = Some("r1");

struct Hub {
    server: ApiServer,
    admin: Client,
    rest: Router,
}

/// The path of an object of the charts.
fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    let within = object["metadata"]["namespace"].as_str().map(|ns| format!("/namespaces/{ns}"));
    format!("{root}{}/{plural}/{}", within.unwrap_or_default(), text(&object["metadata"]["name"]))
}

impl Hub {
    async fn start() -> Self {
        Self::start_with(false).await
    }

    async fn start_with(is_behind_proxy: bool) -> Self {
        let config = Config { crds: definitions(Side::Hub), access: Access::Rbac, ..Config::default() };
        let server = ApiServer::open(config).await.expect("a server in memory");
        server.add_token("r1", "root", &["system:masters"]);
        server.add_token("p1", "portal", &[]);
        let admin = Client::new(server.router(), "default");
        let own = Server {
            client: as_bearer(&admin, "p1"),
            name: "hub".into(),
            url: "the hub".into(),
            patience: HUB_PATIENCE,
        };
        let users = Some(Arc::new(Users::new(own, "default".into()).behind_proxy(is_behind_proxy)));
        let portal = Portal { hub: admin.clone(), url: "the hub".into(), namespace: "default".into(), users };
        let hub = Self { server, rest: router(portal), admin };
        let manifests = [access::admission(), access::tenant_roles(), access::pai_users("default")];
        for object in manifests.into_iter().flat_map(|read| read.expect("the charts' files")) {
            hub.apply(&object).await;
        }
        hub.bind("Role", "fleet-pai-portal", Some("fleet-pai-users"), "portal").await;
        hub.bind("ClusterRole", "fleet-virtual-cluster-reader", None, "portal").await;
        hub
    }

    async fn apply(&self, object: &Value) {
        let path = format!("{}?fieldManager=test&force=true", path_of(object));
        let request = Request::patch(path)
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .expect("a request");
        let _: Value = self.admin.request(request).await.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    async fn bind(&self, kind: &str, role: &str, within: Option<&str>, user: &str) {
        let name = format!("{user}-{role}");
        let mut metadata = json!({"name": name});
        if let Some(within) = within {
            metadata["namespace"] = within.into();
        }
        let kind_of_binding = if within.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        self.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind_of_binding,
            "metadata": metadata, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}))
            .await;
    }

    /// The hub's own answer to a request with that token.
    async fn raw(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, kind)
            .body(body.into_bytes())
            .expect("a request");
        let client = as_bearer(&self.admin, token);
        let answer = client.send(request.map(kube::client::Body::from)).await.expect("an answer");
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn object(&self, path: &str) -> Value {
        self.raw("r1", "GET", path, Value::Null).await.1
    }

    async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
        self.ask_from([10, 0, 0, 1], method, path, token, body).await
    }

    async fn ask_from(
        &self,
        address: [u8; 4],
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &Value,
    ) -> (u16, Value) {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        let mut request = Request::builder().method(method).uri(format!("/api/v2{path}"));
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if text.starts_with("username=") {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let mut request = request.body(Body::from(text)).expect("a request");
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 1234))));
        let answer = self.rest.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// A refusal has that status, that code, and a message with these words.
    async fn refused(&self, ask: (&str, &str, Option<&str>, Value), wanted: (u16, &str, &str)) {
        let (method, path, token, body) = ask;
        let (status, answer) = self.ask(method, path, token, &body).await;
        let of = format!("{method} {path} {body}: {answer}");
        assert_eq!((status, answer["code"].as_str()), (wanted.0, Some(wanted.1)), "{of}");
        assert!(answer["message"].as_str().is_some_and(|message| message.contains(wanted.2)), "{of}");
        assert_eq!(answer.as_object().map(|fields| fields.len()), Some(2), "{of}");
    }

    async fn make(&self, by: Option<&str>, name: &str, more: Value) {
        let mut body = json!({"username": name, "password": format!("{name}-pass")});
        for (field, value) in more.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        let (status, answer) = self.ask("POST", "/users", by, &body).await;
        assert_eq!((status, &answer["message"]), (201, &json!("User is created successfully")), "{answer}");
    }

    async fn login(&self, name: &str) -> String {
        self.login_with(name, &format!("{name}-pass")).await
    }

    async fn login_with(&self, name: &str, password: &str) -> String {
        let (status, answer) = self.ask("POST", LOGIN, None, &credentials(name, password)).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["user"], name);
        answer["token"].as_str().expect("a token").to_owned()
    }

    /// Whether the hub takes a token.
    async fn is_good(&self, token: &str) -> bool {
        self.ask("GET", "/jobs", Some(token), &Value::Null).await.0 == 200
    }
}

const LOGIN: &str = "/authn/basic/login";

fn credentials(name: &str, password: &str) -> Value {
    json!({"username": name, "password": password})
}

fn as_bearer(hub: &Client, token: &str) -> Client {
    let (hub, value) = (hub.clone(), format!("Bearer {token}"));
    let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
        let (hub, value) = (hub.clone(), value.clone());
        async move {
            request.headers_mut().insert(header::AUTHORIZATION, value.parse()?);
            Ok::<_, tower::BoxError>(hub.send(request).await?)
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_user_logs_in_works_and_logs_out() {
    let hub = Hub::start().await;
    hub.make(ROOT, "alice", json!({"email": "alice@example.com"})).await;
    let (status, answer) = hub.ask("POST", LOGIN, None, &credentials("alice", "alice-pass")).await;
    assert_eq!((status, &answer["admin"], &answer["hasGitHubPAT"]), (200, &json!(false), &json!(false)));
    let now_ms =
        i64::try_from(std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis()).expect("small");
    let life_s = (answer["expires"].as_i64().expect("an end") - now_ms) / 1000;
    assert!((86_000..=86_400).contains(&life_s), "{life_s}");
    let token = answer["token"].as_str().expect("a token").to_owned();
    let (status, answer) = hub.ask("POST", "/jobs", Some(&token), &json!(LAB)).await;
    assert_eq!(status, 202, "{answer}");
    let (_, jobs) = hub.ask("GET", "/jobs", Some(&token), &Value::Null).await;
    assert_eq!((&jobs[0]["username"], &jobs[0]["name"]), (&json!("alice"), &json!("job-config-6")));
    // Clients of OpenPAI send forms as well.
    let form = "username=alice&password=alice-pass&expiration=4000";
    let (status, answer) = hub.ask("POST", LOGIN, None, &json!(form)).await;
    assert_eq!(status, 200, "{answer}");
    let other = answer["token"].as_str().expect("a token").to_owned();

    let (_, listed) = hub.ask("GET", "/tokens", Some(&token), &Value::Null).await;
    assert_eq!((listed["tokens"].as_array().map(Vec::len), &listed["applications"]), (Some(2), &json!([])));
    assert!(!listed.to_string().contains(&token[..20]), "{listed}");
    let (status, answer) = hub.ask("DELETE", "/authn/basic/logout", Some(&token), &Value::Null).await;
    assert_eq!((status, &answer["message"]), (200, &json!("Logout successfully")));
    assert!(!hub.is_good(&token).await && hub.is_good(&other).await);
    hub.refused(("GET", "/jobs", Some(&token), Value::Null), (401, "UnauthorizedUserError", "")).await;

    let (_, made) = hub.ask("POST", "/tokens/application", Some(&other), &Value::Null).await;
    let application = made["token"].as_str().expect("a token").to_owned();
    let (_, listed) = hub.ask("GET", "/tokens", Some(&other), &Value::Null).await;
    let id = listed["applications"][0].as_str().expect("an id").to_owned();
    assert!(hub.is_good(&application).await);
    let revoked = hub.ask("DELETE", &format!("/tokens/{id}"), Some(&other), &Value::Null).await;
    assert_eq!((revoked.0, hub.is_good(&application).await), (200, false));
    let revoked = hub.ask("DELETE", &format!("/tokens/{other}"), Some(&other), &Value::Null).await;
    assert_eq!((revoked.0, hub.is_good(&other).await), (200, false));
}

#[tokio::test]
async fn a_wrong_password_and_a_wrong_name_are_the_same_401() {
    let hub = Hub::start().await;
    hub.make(ROOT, "alice", json!({})).await;
    let mut told = Vec::new();
    for (name, password) in [
        ("alice", "bob-pass"),
        ("alice", ""),
        ("bob", "alice-pass"),
        ("Alice", "alice-pass"),
        ("default", "alice-pass"),
        ("../serviceaccounts/alice", "alice-pass"),
        ("portal", "x"),
    ] {
        let (status, answer) = hub.ask("POST", LOGIN, None, &credentials(name, password)).await;
        assert_eq!((status, &answer["code"]), (401, &json!("IncorrectPasswordError")), "{name}: {answer}");
        told.push(answer["message"].clone());
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    let life = |seconds: i64| json!({"username": "alice", "password": "alice-pass", "expiration": seconds});
    for seconds in [0, -1, 599, 604_801] {
        hub.refused(
            ("POST", LOGIN, None, life(seconds)),
            (400, "InvalidParametersError", "expiration: found"),
        )
        .await;
    }
    for body in [json!("{"), json!({"username": "alice"}), json!({"username": "alice", "password": 7})] {
        hub.refused(("POST", LOGIN, None, body), (400, "InvalidParametersError", "the body")).await;
    }
    // Guessing ends after some attempts, from there; the user herself logs in from elsewhere.
    for _ in 0..8 {
        hub.ask("POST", LOGIN, None, &credentials("alice", "guess")).await;
    }
    let right = credentials("alice", "alice-pass");
    hub.refused(("POST", LOGIN, None, right.clone()), (429, "TooManyRequestsError", "allowed after")).await;
    let elsewhere = hub.ask_from([10, 0, 0, 2], "POST", LOGIN, None, &right).await;
    assert_eq!(elsewhere.0, 200, "{elsewhere:?}");
}

#[tokio::test]
async fn administrators_keep_users_and_users_themselves() {
    let hub = Hub::start().await;
    hub.make(ROOT, "root1", json!({"admin": true, "email": "root@example.com"})).await;
    let admin = hub.login("root1").await;
    let by = Some(admin.as_str());
    hub.make(by, "alice", json!({"email": "alice@example.com"})).await;
    hub.make(by, "boss", json!({"admin": true})).await;
    let alice = hub.login("alice").await;
    let own = Some(alice.as_str());
    let (_, all) = hub.ask("GET", "/users", by, &Value::Null).await;
    let row = |user: &Value| format!("{} {} {}", user["username"], user["email"], user["admin"]);
    let rows: Vec<String> = all.as_array().expect("a list").iter().map(row).collect();
    assert_eq!(
        rows,
        [r#""alice" "alice@example.com" false"#, r#""boss" "" true"#, r#""root1" "root@example.com" true"#]
    );
    assert!(!all.to_string().contains("argon2"));
    let (status, me) = hub.ask("GET", "/users/alice", own, &Value::Null).await;
    assert_eq!((status, &me["username"], &me["admin"]), (200, &json!("alice"), &json!(false)));

    let patch = |data: Value| json!({"data": data, "patch": true});
    let user = |name: &str, password: &str| json!({"username": name, "password": password});
    let none = Value::Null;
    for (ask, wanted) in [
        (("POST", "/users", own, user("eve", "eve-pass")), (403, "ForbiddenUserError", "alice")),
        (("POST", "/users", None, user("eve", "eve-pass")), (401, "UnauthorizedUserError", "")),
        (("GET", "/users", own, none.clone()), (403, "ForbiddenUserError", "alice")),
        (("GET", "/users/boss", own, none.clone()), (403, "ForbiddenUserError", "alice")),
        (("DELETE", "/users/boss", own, none.clone()), (403, "ForbiddenUserError", "alice")),
        (("PUT", "/users", own, patch(user("boss", "mine-now"))), (403, "ForbiddenUserError", "alice")),
        (
            ("PUT", "/users", own, patch(json!({"username": "alice", "admin": true}))),
            (403, "ForbiddenUserError", ""),
        ),
        (
            ("PUT", "/users/me", own, patch(json!({"admin": true}))),
            (403, "ForbiddenUserError", "administrator"),
        ),
        (("PUT", "/users/alice/admin", own, json!({"admin": true})), (403, "ForbiddenUserError", "")),
        (
            ("PUT", "/users/me", own, patch(json!({"username": "boss", "email": "x@y"}))),
            (403, "ForbiddenUserError", "alice"),
        ),
        (("PUT", "/users/me", ROOT, patch(json!({"email": "x@y"}))), (403, "ForbiddenUserError", "root")),
        (
            ("POST", "/users", by, user("alice", "another")),
            (409, "ConflictUserError", "alice exists already"),
        ),
        (
            ("POST", "/users", by, user("default", "password")),
            (400, "InvalidParametersError", "username: found \"default\""),
        ),
        (
            ("POST", "/users", by, user("a/../b", "password")),
            (400, "InvalidParametersError", "small letters"),
        ),
        (
            ("POST", "/users", by, user("member-agent", "password")),
            (400, "InvalidParametersError", "small letters"),
        ),
        (("POST", "/users", by, user("carol", "12345")), (400, "InvalidParametersError", "6 to 256 bytes")),
        (("POST", "/users", by, json!({"username": "carol"})), (400, "InvalidParametersError", "password")),
        (
            ("PUT", "/users", by, patch(json!({"username": "carol", "email": "x@y"}))),
            (404, "NoUserError", "carol"),
        ),
        (
            ("PUT", "/users", by, patch(json!({"username": "alice", "email": "x"}))),
            (400, "InvalidParametersError", "email"),
        ),
        (
            ("PUT", "/users", by, json!({"data": {"username": "alice"}, "patch": false})),
            (400, "InvalidParametersError", "patch"),
        ),
        (("GET", "/users/carol", by, none.clone()), (404, "NoUserError", "carol")),
        (("DELETE", "/users/carol", by, none.clone()), (404, "NoUserError", "carol")),
        (("DELETE", "/users/boss", by, none.clone()), (403, "ForbiddenUserError", "administrator")),
        (("PUT", "/users/alice/shoes", by, json!({})), (404, "NoApiError", "virtualcluster")),
        (("GET", "/groups", by, none.clone()), (404, "NoApiError", "/groups")),
    ] {
        hub.refused(ask, wanted).await;
    }
    // What was refused halfway has left nothing.
    assert_eq!(hub.object(&format!("{USERS}/serviceaccounts/carol")).await["code"], 404);

    let email = patch(json!({"email": "a@example.org"}));
    assert_eq!(hub.ask("PUT", "/users/me", own, &email).await.0, 201);
    let (_, me) = hub.ask("GET", "/users/alice", by, &none).await;
    assert_eq!(me["email"], "a@example.org");
    // An administrator is none any more from the next request on.
    let boss = hub.login("boss").await;
    assert_eq!(hub.ask("GET", "/users", Some(&boss), &none).await.0, 200);
    assert_eq!(hub.ask("PUT", "/users/boss/admin", by, &json!({"admin": false})).await.0, 201);
    hub.refused(("GET", "/users", Some(&boss), none.clone()), (403, "ForbiddenUserError", "boss")).await;
    assert_eq!(hub.ask("DELETE", "/users/boss", by, &none).await.0, 200);
    assert!(!hub.is_good(&boss).await);
}

#[tokio::test]
async fn a_password_changes_with_the_old_one_and_ends_all_tokens() {
    let hub = Hub::start().await;
    hub.make(ROOT, "alice", json!({})).await;
    let (one, other) = (hub.login("alice").await, hub.login("alice").await);
    let change = |old: Option<&str>, new: &str| {
        let mut data = json!({"newPassword": new});
        if let Some(old) = old {
            data["oldPassword"] = old.into();
        }
        json!({"data": data, "patch": true})
    };
    for old in [None, Some(""), Some("bob-pass")] {
        let ask = ("PUT", "/users/me", Some(one.as_str()), change(old, "brand-new"));
        hub.refused(ask, (401, "IncorrectPasswordError", "found no user")).await;
    }
    let ask = ("PUT", "/users/alice/password", Some(one.as_str()), json!({"newPassword": "brand-new"}));
    hub.refused(ask, (401, "IncorrectPasswordError", "found no user")).await;
    let ask = ("PUT", "/users/me", Some(one.as_str()), change(Some("alice-pass"), "short"));
    hub.refused(ask, (400, "InvalidParametersError", "password: found 5 bytes")).await;
    let done = hub.ask("PUT", "/users/me", Some(&one), &change(Some("alice-pass"), "brand-new")).await;
    assert_eq!(done.0, 201, "{done:?}");
    assert!(!hub.is_good(&one).await && !hub.is_good(&other).await);
    hub.refused(
        ("POST", LOGIN, None, credentials("alice", "alice-pass")),
        (401, "IncorrectPasswordError", ""),
    )
    .await;
    let again = hub.login_with("alice", "brand-new").await;
    // An administrator sets it without the old one; that ends the tokens, too.
    let set = json!({"data": {"username": "alice", "password": "set-by-root"}, "patch": true});
    assert_eq!(hub.ask("PUT", "/users", ROOT, &set).await.0, 201);
    assert!(!hub.is_good(&again).await);
    hub.login_with("alice", "set-by-root").await;
}

/// Only a portal that is said to be behind a proxy believes what a header says of the sender.
#[tokio::test]
async fn a_header_makes_no_other_sender() {
    for is_behind_proxy in [false, true] {
        let hub = Hub::start_with(is_behind_proxy).await;
        let mut codes = Vec::new();
        for number in 0..12 {
            let request = Request::post(format!("/api/v2{LOGIN}"))
                .header("x-forwarded-for", format!("192.0.2.1, 10.1.0.{number}"))
                .extension(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 1234))))
                .body(Body::from(credentials("alice", "guess").to_string()));
            codes.push(
                hub.rest.clone().oneshot(request.expect("a request")).await.expect("an answer").status(),
            );
        }
        assert_eq!(codes[11] == 429, !is_behind_proxy, "{codes:?}");
    }
}

#[tokio::test]
async fn a_portal_without_users_says_so() {
    let hub = Hub::start().await;
    let portal =
        Portal { hub: hub.admin.clone(), url: "the hub".into(), namespace: "default".into(), users: None };
    let hub = Hub { rest: router(portal), ..hub };
    for (method, path) in [("POST", LOGIN), ("GET", "/users"), ("GET", "/tokens"), ("GET", "/authn/info")] {
        let body = credentials("a", "b");
        hub.refused((method, path, ROOT, body), (404, "NoApiError", "keeps no users")).await;
    }
}

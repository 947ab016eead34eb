//! Admission: webhooks on a listener of the test, and policies.

use crate::api::{Api, config_map, deployment, pod, random};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

type Answer = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// A webhook over TLS; keeps what it was asked.
pub struct Listener {
    port: u16,
    bundle: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Listener {
    /// `answer` gets the request and returns the response without its uid; null answers nothing in time.
    pub async fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Listener {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let answer: Answer = Arc::new(answer);
        let names = ["127.0.0.1".to_string(), "hook.default.svc".to_string()];
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(names.to_vec()).unwrap();
        let cert = params.self_signed(&key).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], private)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, seen) = (acceptor.clone(), answer.clone(), seen.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(
                        move |request: http::Request<hyper::body::Incoming>| {
                            let (answer, seen) = (answer.clone(), seen.clone());
                            async move {
                                let query = request.uri().query().unwrap_or_default().to_string();
                                let bytes = request.into_body().collect().await.unwrap().to_bytes();
                                let review: Value = serde_json::from_slice(&bytes).unwrap();
                                let of = (&review["kind"], &review["apiVersion"]);
                                assert!(
                                    of == (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
                                        || of
                                            == (
                                                &json!("ConversionReview"),
                                                &json!("apiextensions.k8s.io/v1")
                                            ),
                                    "{review}"
                                );
                                let mut request = review["request"].clone();
                                let mut response = answer(&request);
                                request["query"] = json!(query);
                                seen.lock().unwrap().push(request.clone());
                                if response.is_null() {
                                    tokio::time::sleep(Duration::from_secs(60)).await;
                                }
                                if response.get("uid").is_none() {
                                    response["uid"] = request["uid"].clone();
                                }
                                let body = json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
                                Ok::<_, std::convert::Infallible>(http::Response::new(
                                    Full::<bytes::Bytes>::from(body.to_string()),
                                ))
                            }
                        },
                    );
                    let _ =
                        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), service).await;
                });
            }
        });
        Listener { port, bundle: STANDARD.encode(cert.pem()), asked }
    }

    pub fn config(&self) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/review", self.port), "caBundle": self.bundle})
    }

    pub fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }
}

fn patch(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

/// A webhook for ConfigMaps of the test's namespace.
fn webhook(api: &Api, client: Value, change: Value) -> Value {
    let mut hook = json!({"name": "one.test.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": client,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.ns}},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    for (key, value) in change.as_object().into_iter().flatten() {
        hook[key] = value.clone();
    }
    hook
}

async fn register(api: &Api, kind: &str, hooks: Value) -> String {
    let name = random("hooks-");
    let path = format!("{HOOKS}/{kind}webhookconfigurations");
    api.post(&path, json!({"metadata": {"name": name}, "webhooks": hooks})).await.expect(201);
    format!("{path}/{name}")
}

#[tokio::test]
async fn validating_webhooks_refuse_and_warn() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let hook = Listener::start(|r| match r["object"]["data"]["a"].as_str() {
        Some("bad") => {
            json!({"allowed": false, "status": {"message": "a is bad", "code": 418, "reason": "Teapot"}})
        }
        Some("mute") => json!({"allowed": false}),
        Some("liar") => json!({"allowed": true, "uid": "another"}),
        _ => json!({"allowed": true, "warnings": ["look out"]}),
    })
    .await;
    register(&api, "validating", json!([webhook(&api, hook.config(), json!({}))])).await;
    let path = api.core("configmaps");
    let with = |name: &str, a: &str| json!({"metadata": {"name": name}, "data": {"a": a}});
    let made = api.post(&path, with("x", "good")).await.expect(201);
    assert_eq!(made.warnings(), ["299 - \"look out\""]);
    let bad = api.post(&path, with("y", "bad")).await.fails(418, "Teapot");
    assert_eq!(bad.message(), "admission webhook \"one.test.dev\" denied the request: a is bad");
    let mute = api.post(&path, with("y", "mute")).await.expect(400);
    assert_eq!(mute.message(), "admission webhook \"one.test.dev\" denied the request without explanation");
    let liar = api.post(&path, with("y", "liar")).await.fails(500, "InternalError");
    assert!(liar.message().contains("failed calling webhook \"one.test.dev\""), "{}", liar.text);
    api.get(&format!("{path}/y")).await.expect(404);
    api.patch(&format!("{path}/x"), "merge", json!({"data": {"a": "bad"}})).await.expect(418);
    api.patch(&format!("{path}/x"), "merge", json!({"data": {"a": "fine"}})).await.expect(200);
    api.post(&format!("{path}?dryRun=All"), with("dry", "good")).await.expect(201);
    api.delete(&format!("{path}/x"), Value::Null).await.expect(200);
    let asked = hook.asked();
    let first = &asked[0];
    assert_eq!(
        (&first["operation"], &first["name"], &first["namespace"]),
        (&json!("CREATE"), &json!("x"), &json!(api.ns))
    );
    assert_eq!(first["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(first["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(
        (&first["userInfo"]["username"], &first["oldObject"], &first["query"]),
        (&json!("system:admin"), &Value::Null, &json!("timeout=10s"))
    );
    assert_eq!(first["object"]["apiVersion"], "v1");
    let dry = &asked[asked.len() - 2];
    assert_eq!(dry["dryRun"], true);
    let last = asked.last().unwrap();
    assert_eq!(
        (&last["operation"], &last["object"], &last["oldObject"]["data"]["a"]),
        (&json!("DELETE"), &Value::Null, &json!("fine"))
    );
}

#[tokio::test]
async fn only_what_the_rules_name_is_asked() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let hook = Listener::start(|_| json!({"allowed": false, "status": {"message": "no"}})).await;
    let narrow = webhook(
        &api,
        hook.config(),
        json!({"objectSelector": {"matchLabels": {"watch": "me"}},
        "matchConditions": [{"name": "not-free", "expression": "!has(object.data) || !('free' in object.data)"}],
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "pods/binding"], "scope": "Namespaced"}]}),
    );
    let at = register(&api, "validating", json!([narrow])).await;
    let path = api.core("configmaps");
    let labelled = |name: &str, data: Value| json!({"metadata": {"name": name, "labels": {"watch": "me"}}, "data": data});
    api.post(&path, config_map("plain")).await.expect(201);
    api.post(&path, labelled("watched", json!({}))).await.expect(400);
    api.post(&path, labelled("free", json!({"free": "yes"}))).await.expect(201);
    api.patch(&format!("{path}/free"), "merge", json!({"data": null})).await.expect(200);
    api.post("/api/v1/namespaces/default/configmaps", labelled("elsewhere", json!({}))).await.expect(201);
    let mut p = pod("p");
    p["metadata"]["labels"] = json!({"watch": "me"});
    api.post(&api.core("pods"), p).await.expect(201);
    // Registrations themselves are never asked about, so that a bad one can be taken away.
    let all = json!({"webhooks": [{"name": "one.test.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": hook.config(),
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]}]});
    api.patch(&at, "merge", all).await.expect(200);
    api.post(&path, config_map("any")).await.expect(400);
    api.delete(&at, Value::Null).await.expect(200);
    api.post(&path, config_map("any")).await.expect(201);
}

#[tokio::test]
async fn webhooks_see_what_is_done_to_a_pod() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let actions = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods/eviction", "pods/binding", "serviceaccounts/token"]}]});
    let noting = Listener::start(|_| {
        patch(json!([{"op": "add", "path": "/metadata/annotations", "value": {"by": "hook"}}]))
    })
    .await;
    let judging = Listener::start(|r| match r["name"].as_str() {
        Some("kept") => json!({"allowed": false, "status": {"message": "it stays"}}),
        _ => json!({"allowed": true}),
    })
    .await;
    register(&api, "mutating", json!([webhook(&api, noting.config(), actions.clone())])).await;
    register(&api, "validating", json!([webhook(&api, judging.config(), actions)])).await;
    let pods = api.core("pods");
    for name in ["kept", "gone", "placed"] {
        api.post(&pods, pod(name)).await.expect(201);
    }
    let named = |name: &str| json!({"metadata": {"name": name}});
    let refused = api.post(&format!("{pods}/kept/eviction"), named("kept")).await.expect(400);
    assert_eq!(refused.message(), "admission webhook \"one.test.dev\" denied the request: it stays");
    api.get(&format!("{pods}/kept")).await.expect(200);
    api.post(&format!("{pods}/gone/eviction?fieldManager=me"), named("gone")).await.expect(201);
    let binding = json!({"metadata": {"name": "placed"}, "target": {"kind": "Node", "name": "n"}});
    api.post(&format!("{pods}/placed/binding"), binding).await.expect(201);
    // What the webhook adds to a binding becomes the pod's.
    let placed = api.get(&format!("{pods}/placed")).await.expect(200).body;
    assert_eq!(placed["metadata"]["annotations"]["by"], "hook");
    let token = json!({"spec": {}});
    api.post(&api.core("serviceaccounts/default/token"), token).await.expect(201);
    let asked = judging.asked();
    let seen: Vec<(&Value, &Value, &Value)> =
        asked.iter().map(|r| (&r["kind"]["group"], &r["kind"]["kind"], &r["subResource"])).collect();
    assert_eq!(
        seen,
        [
            (&json!("policy"), &json!("Eviction"), &json!("eviction")),
            (&json!("policy"), &json!("Eviction"), &json!("eviction")),
            (&json!(""), &json!("Binding"), &json!("binding")),
            (&json!("authentication.k8s.io"), &json!("TokenRequest"), &json!("token")),
        ]
    );
    let gone = &asked[1];
    assert_eq!(gone["resource"], json!({"group": "", "version": "v1", "resource": "pods"}));
    assert_eq!((&gone["operation"], &gone["object"]["kind"]), (&json!("CREATE"), &json!("Eviction")));
    assert_eq!(
        (&gone["object"]["metadata"]["namespace"], &gone["oldObject"]),
        (&json!(api.ns), &Value::Null)
    );
    assert_eq!(
        gone["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})
    );
}

#[tokio::test]
async fn mutating_webhooks_change_objects_in_order() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let first = Listener::start(|r| {
        let seen = r["object"]["data"]["second"].is_string();
        patch(
            json!([{"op": "add", "path": "/data/first", "value": if seen { "saw second" } else { "alone" }},
            {"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]),
        )
    })
    .await;
    let second = Listener::start(|r| {
        let seen = r["object"]["data"]["first"].as_str().unwrap_or("nothing").to_string();
        patch(json!([{"op": "add", "path": "/data/second", "value": seen}]))
    })
    .await;
    let creates = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    register(
        &api,
        "mutating",
        json!([
            webhook(&api, first.config(), json!({"rules": creates, "reinvocationPolicy": "IfNeeded"})),
            webhook(&api, second.config(), json!({"rules": creates, "name": "two.test.dev"}))
        ]),
    )
    .await;
    let path = api.core("configmaps");
    let made = api.post(&path, config_map("a")).await.expect(201).body;
    assert_eq!(made["data"], json!({"a": "1", "first": "saw second", "second": "alone"}));
    assert_eq!(made["metadata"]["labels"], json!({"by": "hook"}));
    assert_eq!(first.asked().len(), 2, "asked again once");
    assert_eq!(second.asked().len(), 1);
    let owners = made["metadata"]["managedFields"].to_string();
    assert!(owners.contains("f:second") && owners.contains("\"conformance\""), "{owners}");
    // Applied objects are changed as well, and a second apply changes nothing.
    let apply =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"a": "1"}});
    let applied = format!("{path}/b?fieldManager=me");
    let one = api.patch(&applied, "apply", apply.clone()).await.expect(201);
    assert_eq!(one.body["data"]["second"], "alone");
    let two = api.patch(&applied, "apply", apply).await.expect(200);
    assert_eq!(one.rv(), two.rv(), "{}", two.text);
}

/// As in the real server, where the write of a status takes nothing else from anybody.
#[tokio::test]
async fn webhooks_that_see_a_status_change_no_spec() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let hook = Listener::start(|_| {
        patch(json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "other"},
            {"op": "add", "path": "/metadata/annotations", "value": {"by": "hook"}},
            {"op": "add", "path": "/status/message", "value": "seen"}]))
    })
    .await;
    let path = api.core("pods");
    let before = api.post(&path, pod("a")).await.expect(201).body;
    let rules = json!([{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/status"]}]);
    register(&api, "mutating", json!([webhook(&api, hook.config(), json!({"rules": rules}))])).await;
    let status = json!({"status": {"reason": "r"}});
    let after = api.patch(&format!("{path}/a/status"), "merge", status).await.expect(200).body;
    assert_eq!(after["spec"], before["spec"]);
    let said = json!([
        after["status"]["message"],
        after["status"]["reason"],
        after["metadata"]["annotations"]["by"]
    ]);
    assert_eq!(said, json!(["seen", "r", "hook"]));
}

#[tokio::test]
async fn webhooks_that_fail_are_obeyed_or_ignored() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let slow = Listener::start(|_| Value::Null).await;
    let away = json!({"url": "https://127.0.0.1:1/review"});
    let path = api.core("configmaps");
    for (client, says) in [
        (slow.config(), "context deadline exceeded"),
        (away, "refused"),
        (json!({"url": format!("https://127.0.0.1:{}/", slow.port)}), ""),
        (
            json!({"service": {"namespace": "default", "name": "nope", "path": "/x"}}),
            "service \"nope\" not found",
        ),
    ] {
        let at =
            register(&api, "validating", json!([webhook(&api, client, json!({"timeoutSeconds": 1}))])).await;
        let failed = api.post(&path, config_map("a")).await.fails(500, "InternalError");
        assert!(
            failed.message().starts_with("Internal error occurred: failed calling webhook \"one.test.dev\""),
            "{}",
            failed.text
        );
        assert!(failed.message().contains(says), "{says} in {}", failed.text);
        api.patch(
            &at,
            "json",
            json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]),
        )
        .await
        .expect(200);
        api.post(&path, config_map("a")).await.expect(201);
        api.delete(&at, Value::Null).await.expect(200);
        api.delete(&format!("{path}/a"), Value::Null).await.expect(200);
    }
}

/// An address of this machine that endpoints may have: not its loopback.
fn own_address() -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only chooses from where it would be.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then(|| ip.to_string())
}

#[tokio::test]
async fn services_are_found_by_their_endpoints() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let hook = Listener::start(|_| json!({"allowed": false, "status": {"message": "found you"}})).await;
    // A name stands for an address outside the cluster.
    let outside = json!({"metadata": {"name": "outside"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    api.post("/api/v1/namespaces/default/services", outside).await.expect(201);
    let client = json!({"service": {"namespace": "default", "name": "outside", "port": hook.port}, "caBundle": hook.bundle});
    let name = register(&api, "validating", json!([webhook(&api, client, json!({}))])).await;
    let refused = api.post(&api.core("configmaps"), config_map("a")).await;
    assert!(
        refused.message().contains("not valid for name \"outside.default.svc\"") || refused.code == 500,
        "{}",
        refused.text
    );
    api.delete(&name, Value::Null).await;
    let Some(own) = own_address() else { return };
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 9443}]}});
    api.post("/api/v1/namespaces/default/services", service).await.expect(201);
    let slice = json!({"metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": [own], "conditions": {"ready": true}}], "ports": [{"name": "https", "port": hook.port}]});
    api.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await.expect(201);
    let client = json!({"service": {"namespace": "default", "name": "hook", "path": "/review"}, "caBundle": hook.bundle});
    register(&api, "validating", json!([webhook(&api, client, json!({}))])).await;
    let refused = api.post(&api.core("configmaps"), config_map("a")).await.expect(400);
    assert!(refused.message().contains("found you"), "{}", refused.text);
}

#[tokio::test]
async fn streams_to_containers_are_judged_first() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let hook = Listener::start(|r| match r["object"]["command"][0].as_str() {
        Some("fine") => json!({"allowed": true}),
        _ => json!({"allowed": false, "status": {"message": "no streams"}}),
    })
    .await;
    let rules = json!([{"operations": ["CONNECT"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods/exec", "pods/attach"]}]);
    register(&api, "validating", json!([webhook(&api, hook.config(), json!({"rules": rules.clone()}))]))
        .await;
    api.post(&api.core("pods"), pod("p")).await.expect(201);
    let path = api.core("pods/p");
    for way in ["exec?command=ls", "attach"] {
        let refused = api.post(&format!("{path}/{way}"), Value::Null).await.expect(400);
        assert!(refused.message().contains("denied the request: no streams"), "{}", refused.text);
    }
    let passed = api.post(&format!("{path}/exec?command=fine&container=c&tty=true"), Value::Null).await;
    assert!(!passed.message().contains("no streams"), "{}", passed.text);
    let asked = hook.asked();
    assert_eq!(
        (
            &asked[0]["operation"],
            &asked[0]["subResource"],
            &asked[0]["kind"]["kind"],
            &asked[1]["kind"]["kind"]
        ),
        (&json!("CONNECT"), &json!("exec"), &json!("PodExecOptions"), &json!("PodAttachOptions"))
    );
    register(
        &api,
        "mutating",
        json!([webhook(&api, hook.config(), json!({"rules": rules, "name": "two.test.dev"}))]),
    )
    .await;
    let refused = api.post(&format!("{path}/attach"), Value::Null).await.expect(400);
    assert!(
        refused.message().contains("\"two.test.dev\" denied the request: no streams"),
        "{}",
        refused.text
    );
    assert_eq!(
        asked[2]["object"],
        json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "stderr": true, "tty": true, "container": "c", "command": ["fine"]})
    );
}

#[tokio::test]
async fn registrations_are_checked() {
    let api = Api::new().await;
    let path = format!("{HOOKS}/validatingwebhookconfigurations?dryRun=All");
    let good = webhook(&api, json!({"url": "https://h.test.dev/x"}), json!({}));
    let made = api.post(&path, json!({"metadata": {"name": "x"}, "webhooks": [good]})).await.expect(201).body;
    let hook = &made["webhooks"][0];
    assert_eq!(
        (&hook["failurePolicy"], &hook["timeoutSeconds"], &hook["matchPolicy"], &hook["rules"][0]["scope"]),
        (&json!("Fail"), &json!(10), &json!("Equivalent"), &json!("*"))
    );
    for (change, field) in [
        (json!({"name": "short"}), "webhooks[0].name"),
        (json!({"sideEffects": "Some"}), "webhooks[0].sideEffects"),
        (json!({"failurePolicy": "Maybe"}), "webhooks[0].failurePolicy"),
        (json!({"timeoutSeconds": 31}), "webhooks[0].timeoutSeconds"),
        (json!({"admissionReviewVersions": ["v9"]}), "webhooks[0].admissionReviewVersions"),
        (json!({"clientConfig": {"url": "http://h.test.dev"}}), "webhooks[0].clientConfig.url"),
        (json!({"clientConfig": {}}), "webhooks[0].clientConfig"),
        (
            json!({"matchConditions": [{"name": "a", "expression": "object."}]}),
            "webhooks[0].matchConditions[0].expression",
        ),
    ] {
        let body = json!({"metadata": {"name": "x"}, "webhooks": [webhook(&api, json!({"url": "https://h.test.dev/x"}), change)]});
        let refused = api.post(&path, body).await.fails(422, "Invalid");
        assert!(refused.causes().iter().any(|c| c.1 == field), "{field}: {}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn policies_judge_by_expressions() {
    let api = Api::new().await;
    let name = random("policy-");
    let policy = json!({"metadata": {"name": name}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}]},
        "matchConditions": [{"name": "not-system", "expression": "!request.userInfo.username.startsWith('system:kube-')"}],
        "variables": [{"name": "most", "expression": "int(params.data.most)"}],
        "validations": [
            {"expression": "object.spec.replicas <= variables.most", "messageExpression": "'at most ' + string(variables.most) + ' replicas'"},
            {"expression": "!object.metadata.name.startsWith('bad')", "message": "a bad name", "reason": "Forbidden"}]}});
    api.post(&format!("{HOOKS}/validatingadmissionpolicies"), policy).await.expect(201);
    api.post(&api.core("configmaps"), json!({"metadata": {"name": "limits"}, "data": {"most": "2"}}))
        .await
        .expect(201);
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
        "paramRef": {"name": "limits", "namespace": api.ns, "parameterNotFoundAction": "Deny"},
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.ns}}}}});
    let bindings = format!("{HOOKS}/validatingadmissionpolicybindings");
    api.post(&bindings, binding).await.expect(201);
    let path = api.group("apps/v1", "deployments");
    let sized = |name: &str, n: i32| {
        let mut d = deployment(name);
        d["spec"]["replicas"] = json!(n);
        d
    };
    // A real server takes a moment to know the policy.
    let start = std::time::Instant::now();
    let refused = loop {
        let answer = api.post(&format!("{path}?dryRun=All"), sized("d", 3)).await;
        // Nor does it know the parameter at once; one of 1.36 never does, after the last policy with parameters of this
        // kind was deleted: it has to be started anew for each run of this check.
        if answer.code != 201 && !answer.message().contains("no params found") {
            break answer;
        }
        assert!(start.elapsed().as_secs() < 60, "never refused: {}", answer.text);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let refused = refused.fails(422, "Invalid");
    let want = format!(
        "ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: at most 2 replicas"
    );
    assert!(refused.message().contains(&want), "{}", refused.text);
    api.post(&path, sized("d", 2)).await.expect(201);
    api.patch(&format!("{path}/d"), "merge", json!({"spec": {"replicas": 5}})).await.fails(422, "Invalid");
    let bad = api.post(&path, sized("bad", 1)).await.fails(403, "Forbidden");
    assert!(bad.message().contains("a bad name"), "{}", bad.text);
    api.patch(&format!("{bindings}/{name}"), "merge", json!({"spec": {"validationActions": ["Warn"]}}))
        .await
        .expect(200);
    let start = std::time::Instant::now();
    loop {
        let answer = api.post(&format!("{path}?dryRun=All"), sized("w", 9)).await;
        if answer.code == 201 {
            assert!(answer.warnings()[0].contains("at most 2 replicas"), "{:?}", answer.warnings());
            break;
        }
        assert!(start.elapsed().as_secs() < 30, "never allowed");
    }
    api.delete(&format!("{bindings}/{name}"), Value::Null).await.expect(200);
    api.delete(&format!("{HOOKS}/validatingadmissionpolicies/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

//! Who the caller is: certificates, tokens, impersonation, reviews.

use crate::api::{Api, pod, random};
use fleet_apiserver::{Access, Clock, Config};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn who(api: &Api) -> Value {
    api.post(WHO, json!({})).await.expect(201).body["status"]["userInfo"].clone()
}

fn has(info: &Value, group: &str) -> bool {
    info["groups"].as_array().is_some_and(|list| list.iter().any(|g| g == group))
}

#[tokio::test]
async fn strangers_and_forgers_stay_outside() {
    let api = Api::new().await;
    let nobody = api.with_token(None);
    nobody.get("/version").await.expect(200);
    nobody.get("/healthz").await.expect(200);
    let path = api.core("pods");
    let denied = nobody.get(&path).await.fails(403, "Forbidden");
    let want = format!(
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"{}\"",
        api.ns
    );
    assert_eq!(denied.message(), want);
    let forbidden = nobody.get("/apis").await.fails(403, "Forbidden");
    assert!(forbidden.message().contains("cannot get path \"/apis\""), "{}", forbidden.text);
    let good = api.account("forged").await;
    let good = good.post(WHO, json!({})).await.expect(201);
    assert_eq!(
        good.body["status"]["userInfo"]["username"],
        format!("system:serviceaccount:{}:forged", api.ns)
    );
    let token = api.post(&api.core("serviceaccounts/forged/token"), json!({"spec": {}})).await.body;
    let token = token["status"]["token"].as_str().unwrap().to_string();
    let parts: Vec<&str> = token.split('.').collect();
    let none = "eyJhbGciOiJub25lIn0";
    for bad in [
        "wrong".to_string(),
        "a.b.c".into(),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{}.{}x.{}", parts[0], parts[1], parts[2]),
        format!("{token}x"),
        "x".repeat(20_000),
    ] {
        let answer = api.with_token(Some(&bad)).get("/version").await;
        assert_eq!((answer.code, answer.reason()), (401, "Unauthorized"), "{:.60}: {}", bad, answer.text);
    }
    // A header without a token is as none: what everybody may see, and nothing else.
    let nobody = api.with_token(Some(""));
    nobody.get("/version").await.expect(200);
    nobody.get(&api.core("pods")).await.fails(403, "Forbidden");
    api.done().await;
}

#[tokio::test]
async fn certificates_name_the_user() {
    let api = Api::new().await;
    let Some(server) = api.embedded() else { return };
    let (later, earlier) = (jiff::civil::date(2100, 1, 1), jiff::civil::date(2020, 1, 1));
    let (cert, key) = server.client_certificate("ann", &["dev", "ops"], later).unwrap();
    let ann = api.with_certificate(&cert, &key);
    let info = who(&ann).await;
    assert_eq!(info["username"], "ann");
    assert!(has(&info, "dev") && has(&info, "ops") && has(&info, "system:authenticated"), "{info}");
    let id = info["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert!(id.starts_with("X509SHA256="), "{id}");
    ann.get(&api.core("pods")).await.fails(403, "Forbidden");
    let (cert, key) = server.client_certificate("root", &["system:masters"], later).unwrap();
    api.with_certificate(&cert, &key).get(&api.core("pods")).await.expect(200);
    let (cert, key) = server.client_certificate("old", &["system:masters"], earlier).unwrap();
    api.with_certificate(&cert, &key).get(&api.core("pods")).await.fails(401, "Unauthorized");
    let other = Api::serve(Config { access: Access::Rbac, ..Config::default() }).await;
    let (cert, key) =
        other.embedded().unwrap().client_certificate("root", &["system:masters"], later).unwrap();
    api.with_certificate(&cert, &key).get(&api.core("pods")).await.fails(401, "Unauthorized");
    assert!(server.client_certificate("many", &["a", "b", "c"], later).is_err());
}

#[tokio::test]
async fn account_tokens_live_as_long_as_they_say() {
    let now = Arc::new(AtomicI64::new(1_800_000_000));
    let time = now.clone();
    let clock = Clock(Arc::new(move || jiff::Timestamp::from_second(time.load(Ordering::SeqCst)).unwrap()));
    let api = Api::serve(Config { access: Access::Rbac, clock, ..Config::default() }).await;
    let path = api.core("serviceaccounts/default/token");
    let made = api.post(&path, json!({"spec": {"expirationSeconds": 600}})).await.expect(201);
    assert_eq!(made.body["status"]["expirationTimestamp"], "2027-01-15T08:10:00Z");
    let token = api.with_token(made.body["status"]["token"].as_str());
    who(&token).await;
    now.fetch_add(599, Ordering::SeqCst);
    who(&token).await;
    now.fetch_add(1, Ordering::SeqCst);
    token.get("/version").await.fails(401, "Unauthorized");
    now.fetch_sub(1000, Ordering::SeqCst);
    token.get("/version").await.fails(401, "Unauthorized");
    // As with --service-account-max-token-expiration of a real server.
    let made = api.post(&path, json!({"spec": {"expirationSeconds": 1_i64 << 32}})).await.expect(201);
    assert_eq!(made.body["spec"]["expirationSeconds"], 86_400);
    let expires: jiff::Timestamp =
        made.body["status"]["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires.as_second(), now.load(Ordering::SeqCst) + 86_400);
    let warning = made.headers["warning"].to_str().unwrap();
    assert!(warning.contains("expiration of 4294967296 seconds shortened to 86400 seconds"), "{warning}");
}

#[tokio::test]
async fn policies_judge_requests_for_tokens() {
    let api = Api::new().await;
    let registrations = "/apis/admissionregistration.k8s.io/v1";
    let (policies, bindings) = (
        format!("{registrations}/validatingadmissionpolicies"),
        format!("{registrations}/validatingadmissionpolicybindings"),
    );
    let name = random("tokens-");
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["serviceaccounts/token"]}]},
        "validations": [{
            "expression": "request.kind.kind == 'TokenRequest' && request.name == 'default' \
                && object.spec.expirationSeconds <= 3600 && object.metadata.annotations['a'] == 'b'",
            "message": "too long"}]}});
    api.post(&policies, policy).await.expect(201);
    let bound = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.ns}}}}});
    api.post(&bindings, bound).await.expect(201);
    let path = api.core("serviceaccounts/default/token");
    let meta = json!({"annotations": {"a": "b"}});
    let long = json!({"metadata": meta, "spec": {"expirationSeconds": 7200}});
    let start = std::time::Instant::now();
    let refused = loop {
        let answer = api.post(&path, long.clone()).await;
        if answer.code != 201 {
            break answer;
        }
        assert!(start.elapsed().as_secs() < 30, "never refused");
    };
    assert!(refused.message().contains("too long"), "{}", refused.text);
    // Where a request names no life, the default is judged.
    api.post(&path, json!({"metadata": meta, "spec": {}})).await.expect(201);
    api.delete(&format!("{bindings}/{name}"), Value::Null).await.expect(200);
    api.delete(&format!("{policies}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn token_requests() {
    let api = Api::new().await;
    let path = api.core("serviceaccounts/default/token");
    for (seconds, code) in [(5, 422), (-1, 422), (1_i64 << 33, 422), (600, 201), (7200, 201)] {
        let answer = api.post(&path, json!({"spec": {"expirationSeconds": seconds}})).await.expect(code);
        if code == 422 {
            assert_eq!(answer.causes()[0].1, "spec.expirationSeconds");
        }
    }
    api.post(&api.core("serviceaccounts/nobody/token"), json!({"spec": {}})).await.fails(404, "NotFound");
    let other =
        api.post(&path, json!({"metadata": {"name": "other"}, "spec": {}})).await.fails(422, "Invalid");
    assert_eq!(other.causes(), [("FieldValueInvalid", "metadata.name")]);

    // A token for another audience opens nothing here, and is known to be good there.
    let made = api.post(&path, json!({"spec": {"audiences": ["vault"]}})).await.expect(201);
    let token = made.body["status"]["token"].as_str().unwrap();
    api.with_token(Some(token)).get("/version").await.fails(401, "Unauthorized");
    let review = |audiences: Value| json!({"spec": {"token": token, "audiences": audiences}});
    let there = api.post(TOKENS, review(json!(["vault", "other"]))).await.expect(201).body;
    assert_eq!(
        (&there["status"]["authenticated"], &there["status"]["audiences"]),
        (&json!(true), &json!(["vault"]))
    );
    let here = api.post(TOKENS, review(json!([]))).await.expect(201).body;
    assert_ne!(here["status"]["authenticated"], true);
    let bad = api.post(TOKENS, json!({"spec": {"token": "bad"}})).await.expect(201).body;
    assert!(bad["status"]["authenticated"] != true && bad["status"]["error"].is_string(), "{bad}");

    // A token bound to a pod dies with the pod.
    api.post(&api.core("pods"), pod("p")).await.expect(201);
    let bound = |name: &str, uid: Value| json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}}});
    api.post(&path, bound("nope", Value::Null)).await.fails(404, "NotFound");
    api.post(&path, bound("p", json!("other"))).await.fails(409, "Conflict");
    let made = api.post(&path, bound("p", Value::Null)).await.expect(201).body;
    let token = api.with_token(made["status"]["token"].as_str());
    let info = who(&token).await;
    assert_eq!(info["username"], format!("system:serviceaccount:{}:default", api.ns));
    assert!(
        has(&info, "system:serviceaccounts") && has(&info, &format!("system:serviceaccounts:{}", api.ns))
    );
    assert_eq!(info["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    api.delete(&api.core("pods/p"), json!({"gracePeriodSeconds": 0})).await.expect(200);
    token.until_code("/version", 401).await.fails(401, "Unauthorized");

    // So does every token with its account, and a new account of the same name brings none back.
    let token = api.account("short").await;
    who(&token).await;
    api.delete(&api.core("serviceaccounts/short"), Value::Null).await.expect(200);
    api.post(&api.core("serviceaccounts"), json!({"metadata": {"name": "short"}})).await.expect(201);
    token.until_code("/version", 401).await.fails(401, "Unauthorized");
    api.done().await;
}

#[tokio::test]
async fn secrets_of_accounts_carry_a_token() {
    let api = Api::new().await;
    api.post(&api.core("serviceaccounts"), json!({"metadata": {"name": "robot"}})).await.expect(201);
    let secret = json!({"metadata": {"name": "robot-token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    api.post(&api.core("secrets"), secret).await.expect(201);
    let found = api
        .until(&api.core("secrets/robot-token"), |a| {
            a.body["data"]["token"].is_string() && a.body["data"]["ca.crt"].is_string()
        })
        .await;
    use base64::Engine;
    let token = base64::engine::general_purpose::STANDARD
        .decode(found.body["data"]["token"].as_str().unwrap())
        .unwrap();
    let robot = api.with_token(Some(std::str::from_utf8(&token).unwrap()));
    assert_eq!(who(&robot).await["username"], format!("system:serviceaccount:{}:robot", api.ns));
    api.delete(&api.core("secrets/robot-token"), Value::Null).await.expect(200);
    // A server may remember a token for a few seconds.
    robot.until_code("/version", 401).await.fails(401, "Unauthorized");
    api.done().await;
}

#[tokio::test]
async fn impersonation_needs_permission_and_is_visible() {
    let api = Api::new().await;
    let as_user = [
        ("impersonate-user", "bob"),
        ("impersonate-group", "dev"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-scopes", "a"),
        ("impersonate-extra-scopes", "b"),
    ];
    let info = api.raw("POST", WHO, &as_user, "{}").await.expect(201).body["status"]["userInfo"].clone();
    assert_eq!((&info["username"], &info["uid"]), (&json!("bob"), &json!("7")));
    assert!(has(&info, "dev") && has(&info, "system:authenticated"), "{info}");
    assert_eq!(info["extra"]["scopes"], json!(["a", "b"]));
    api.raw("GET", &api.core("pods"), &as_user, Vec::new()).await.fails(403, "Forbidden");
    let account = format!("system:serviceaccount:{}:default", api.ns);
    let info = api.raw("POST", WHO, &[("impersonate-user", &account)], "{}").await.expect(201).body;
    assert!(has(&info["status"]["userInfo"], &format!("system:serviceaccounts:{}", api.ns)));
    api.raw("GET", "/version", &[("impersonate-group", "dev")], Vec::new()).await.fails(400, "BadRequest");
    let robot = api.account("robot").await;
    let denied = robot
        .raw("GET", "/version", &[("impersonate-user", "bob")], Vec::new())
        .await
        .fails(403, "Forbidden");
    assert!(denied.message().contains("cannot impersonate"), "{}", denied.text);
    api.done().await;
}

#[tokio::test]
async fn reviews_check_what_they_are_asked() {
    let api = Api::new().await;
    let base = "/apis/authorization.k8s.io/v1";
    let own = format!("{base}/selfsubjectaccessreviews");
    let may = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": api.ns}}});
    let answer = api.post(&own, may("list")).await.expect(201).body;
    assert_eq!(
        (&answer["status"]["allowed"], &answer["spec"]["resourceAttributes"]["verb"]),
        (&json!(true), &json!("list"))
    );
    api.post(&own, json!({"spec": {}})).await.fails(422, "Invalid");
    let others = format!("{base}/subjectaccessreviews");
    api.post(&others, may("list")).await.fails(422, "Invalid");
    let mut ask = may("list");
    ask["spec"]["user"] = json!("bob");
    assert_ne!(api.post(&others, ask.clone()).await.expect(201).body["status"]["allowed"], true);
    ask["spec"]["groups"] = json!(["system:masters"]);
    assert_eq!(api.post(&others, ask.clone()).await.expect(201).body["status"]["allowed"], true);
    let local = format!("{base}/namespaces/{}/localsubjectaccessreviews", api.ns);
    ask["metadata"] = json!({"namespace": api.ns});
    api.post(&local, ask.clone()).await.expect(201);
    ask["spec"]["resourceAttributes"]["namespace"] = json!("other");
    let refused = api.post(&local, ask).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "spec.resourceAttributes.namespace")]);
    let rules = format!("{base}/selfsubjectrulesreviews");
    let listed = api.post(&rules, json!({"spec": {"namespace": api.ns}})).await.expect(201).body;
    assert!(listed["status"]["resourceRules"].is_array() && listed["status"]["nonResourceRules"].is_array());
    api.post(&rules, json!({"spec": {}})).await.fails(400, "BadRequest");
    api.get(&own).await.fails(405, "MethodNotAllowed");
    api.done().await;
}

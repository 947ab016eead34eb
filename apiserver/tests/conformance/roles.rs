//! What callers may do: roles, aggregation, escalation, and a member that is held to its own namespace.

use crate::api::{Api, RBAC, config_map, random};
use serde_json::{Value, json};

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
}

/// A ServiceAccount's name as RBAC knows it.
fn account(api: &Api, name: &str) -> String {
    format!("system:serviceaccount:{}:{name}", api.ns)
}

#[tokio::test]
async fn a_binding_flips_the_answer() {
    let api = Api::new().await;
    let robot = api.account("robot").await;
    let roles = api.group("rbac.authorization.k8s.io/v1", "roles");
    let bindings = api.group("rbac.authorization.k8s.io/v1", "rolebindings");
    robot.get(&api.core("configmaps")).await.fails(403, "Forbidden");
    let role = json!({"metadata": {"name": "read"}, "rules": [rule("", "configmaps", &["get", "list"]),
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]}]});
    api.post(&roles, role).await.expect(201);
    api.post(&bindings, binding("read", "Role", "read", &account(&api, "robot"))).await.expect(201);
    robot.until_code(&api.core("configmaps"), 200).await;
    robot.post(&api.core("configmaps"), config_map("a")).await.fails(403, "Forbidden");
    robot.get("/api/v1/configmaps").await.fails(403, "Forbidden");
    robot.get("/api/v1/namespaces/kube-system/configmaps").await.fails(403, "Forbidden");
    robot.get(&api.core("secrets")).await.fails(403, "Forbidden");
    robot.get(&api.core("secrets/one")).await.fails(404, "NotFound");
    robot.get(&api.core("secrets/two")).await.fails(403, "Forbidden");
    let review = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "configmaps", "namespace": api.ns}}});
    let answer = robot.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).await.body;
    let reason = answer["status"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("RBAC: allowed by RoleBinding \"read/"), "{reason}");
    api.delete(&format!("{bindings}/read"), Value::Null).await.expect(200);
    robot.until_code(&api.core("configmaps"), 403).await;
    api.done().await;
}

#[tokio::test]
async fn roles_add_up_by_label() {
    let api = Api::new().await;
    let robot = api.account("robot").await;
    let (whole, part) = (random("whole-"), random("part-"));
    let roles = format!("{RBAC}/clusterroles");
    let aggregate = json!({"metadata": {"name": whole},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"sum": part}}]}, "rules": []});
    api.post(&roles, aggregate).await.expect(201);
    let bindings = api.group("rbac.authorization.k8s.io/v1", "rolebindings");
    api.post(&bindings, binding("all", "ClusterRole", &whole, &account(&api, "robot"))).await.expect(201);
    robot.get(&api.core("configmaps")).await.fails(403, "Forbidden");
    let extra = json!({"metadata": {"name": part, "labels": {"sum": part}}, "rules": [rule("", "configmaps", &["list"])]});
    api.post(&roles, extra).await.expect(201);
    robot.until_code(&api.core("configmaps"), 200).await;
    let filled = api.get(&format!("{roles}/{whole}")).await.body;
    assert_eq!(filled["rules"], json!([rule("", "configmaps", &["list"])]));
    api.delete(&format!("{roles}/{part}"), Value::Null).await.expect(200);
    robot.until_code(&api.core("configmaps"), 403).await;
    // The roles everybody binds are made the same way.
    let edit = api.get(&format!("{roles}/edit")).await.expect(200).body;
    assert!(edit["aggregationRule"].is_object() && !edit["rules"].as_array().unwrap().is_empty());
    let admin = api.get(&format!("{roles}/admin")).await.body["rules"].to_string();
    assert!(admin.contains("rolebindings") && admin.contains("configmaps"));
    api.delete(&format!("{roles}/{whole}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let api = Api::new().await;
    let robot = api.account("robot").await;
    let roles = api.group("rbac.authorization.k8s.io/v1", "roles");
    let bindings = api.group("rbac.authorization.k8s.io/v1", "rolebindings");
    let writer = json!({"metadata": {"name": "writer"}, "rules": [rule("", "pods", &["get", "list"]),
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create", "get", "update", "patch"]}]});
    api.post(&roles, writer).await.expect(201);
    api.post(&bindings, binding("writer", "Role", "writer", &account(&api, "robot"))).await.expect(201);
    robot.until_code(&format!("{roles}/writer"), 200).await;

    let mine = json!({"metadata": {"name": "mine"}, "rules": [rule("", "pods", &["get"])]});
    robot.post(&roles, mine).await.expect(201);
    let more = json!({"metadata": {"name": "more"}, "rules": [rule("", "pods", &["get", "delete"]), rule("", "secrets", &["get"])]});
    let refused = robot.post(&roles, more.clone()).await.fails(403, "Forbidden");
    let text = refused.message();
    assert!(text.contains("is attempting to grant RBAC permissions not currently held"), "{text}");
    assert!(text.contains("{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"), "{text}");
    let widen = json!({"rules": [rule("", "secrets", &["*"])]});
    robot.patch(&format!("{roles}/mine"), "merge", widen.clone()).await.fails(403, "Forbidden");
    robot
        .patch(&format!("{roles}/mine"), "merge", json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);

    // A binding grants what its role holds.
    robot.post(&bindings, binding("ok", "Role", "mine", "bob")).await.expect(201);
    robot.post(&bindings, binding("up", "ClusterRole", "cluster-admin", "bob")).await.fails(403, "Forbidden");
    robot.post(&bindings, binding("none", "Role", "no-such-role", "bob")).await.fails(404, "NotFound");
    api.post(&roles, more).await.expect(201);
    robot.post(&bindings, binding("more", "Role", "more", "bob")).await.fails(403, "Forbidden");

    // The verbs that lift the check.
    let lift = json!({"metadata": {"name": "lift"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "resourceNames": ["more", "mine"], "verbs": ["bind", "escalate"]}]});
    api.post(&roles, lift).await.expect(201);
    api.post(&bindings, binding("lift", "Role", "lift", &account(&api, "robot"))).await.expect(201);
    let start = std::time::Instant::now();
    loop {
        let answer = robot.post(&bindings, binding("more", "Role", "more", "bob")).await;
        if answer.code == 201 {
            break;
        }
        assert!(answer.code == 403 && start.elapsed().as_secs() < 30, "{}", answer.text);
    }
    robot.patch(&format!("{roles}/mine"), "merge", widen).await.expect(200);
    api.done().await;
}

/// The rights a member's agent is given on the hub, as the chart's file has them.
const MEMBER: &str = include_str!("../../../charts/member-agent/hub-access.yaml");

#[tokio::test]
async fn a_member_can_touch_its_own_namespace_only() {
    let api = Api::new().await;
    let (east, west) = (random("east-"), random("west-"));
    for member in [&east, &west] {
        for document in MEMBER.replace("CLUSTER", member).split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).expect("a document");
            let namespace = object["metadata"]["namespace"]
                .as_str()
                .map(|n| format!("/namespaces/{n}"))
                .unwrap_or_default();
            let (version, plural) = match object["kind"].as_str().unwrap() {
                "Namespace" => ("/api/v1", "namespaces"),
                "ServiceAccount" => ("/api/v1", "serviceaccounts"),
                "Secret" => ("/api/v1", "secrets"),
                "Role" => (RBAC, "roles"),
                "RoleBinding" => (RBAC, "rolebindings"),
                "ClusterRole" => (RBAC, "clusterroles"),
                "ClusterRoleBinding" => (RBAC, "clusterrolebindings"),
                // Its definition is not installed here, and rights do not need it.
                "Cluster" => continue,
                other => panic!("{other} is new in the file"),
            };
            api.post(&format!("{version}{namespace}/{plural}"), object).await.expect(201);
        }
    }
    let (mine, theirs) = (format!("fleet-{east}"), format!("fleet-{west}"));
    let path = format!("/api/v1/namespaces/{mine}/serviceaccounts/member-agent/token");
    let token = api.post(&path, json!({"spec": {}})).await.expect(201);
    let agent = api.with_token(token.body["status"]["token"].as_str());
    agent.until_code(&format!("/api/v1/namespaces/{mine}"), 200).await;
    let lease = json!({"metadata": {"name": "agent"}, "spec": {"holderIdentity": "x"}});
    agent
        .post(&format!("/apis/coordination.k8s.io/v1/namespaces/{mine}/leases"), lease.clone())
        .await
        .expect(201);

    // Everything else there is, in every other namespace and at cluster scope.
    let groups = api.get("/apis").await.body;
    let mut versions: Vec<String> = vec!["/api/v1".into()];
    versions.extend(
        groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|g| format!("/apis/{}", g["preferredVersion"]["groupVersion"].as_str().unwrap())),
    );
    let mut asked = 0;
    for version in versions {
        let list = api.get(&version).await.body;
        for r in list["resources"].as_array().into_iter().flatten() {
            let verbs = r["verbs"].to_string();
            let name = r["name"].as_str().unwrap();
            if name.contains('/') || !verbs.contains("list") {
                continue;
            }
            let paths: Vec<String> = if r["namespaced"] == true {
                [theirs.as_str(), "default", "kube-system"]
                    .iter()
                    .map(|n| format!("{version}/namespaces/{n}/{name}"))
                    .chain([format!("{version}/{name}")])
                    .collect()
            } else {
                vec![format!("{version}/{name}")]
            };
            for path in paths {
                asked += 1;
                for (method, at) in [
                    ("GET", path.clone()),
                    ("GET", format!("{path}?watch=true")),
                    ("GET", format!("{path}/x")),
                    ("POST", path.clone()),
                    ("DELETE", path.clone()),
                    ("DELETE", format!("{path}/x")),
                    ("PUT", format!("{path}/x")),
                ] {
                    let answer = agent.raw(method, &at, &[("content-type", "application/json")], "{}").await;
                    assert_eq!(answer.code, 403, "{method} {at}: {}", answer.text);
                }
            }
        }
    }
    assert!(asked > 100, "{asked} collections were tried");
    agent.get(&format!("/api/v1/namespaces/{theirs}")).await.fails(403, "Forbidden");
    agent.get(&format!("/api/v1/namespaces/{mine}/secrets")).await.fails(403, "Forbidden");
    // It renews its own credential and makes nobody else's.
    let token = |namespace: &str, account: &str| {
        format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token")
    };
    let renewed = agent.post(&token(&mine, "member-agent"), json!({"spec": {}})).await;
    assert_eq!(renewed.code, 201, "{}", renewed.text);
    for (namespace, account) in
        [(mine.as_str(), "default"), (theirs.as_str(), "member-agent"), ("kube-system", "default")]
    {
        agent.post(&token(namespace, account), json!({"spec": {}})).await.fails(403, "Forbidden");
    }
    let grant = binding("up", "ClusterRole", "cluster-admin", "x");
    agent.post(&format!("{RBAC}/namespaces/{mine}/rolebindings"), grant).await.fails(403, "Forbidden");
    for member in [&east, &west] {
        api.delete(&format!("/api/v1/namespaces/fleet-{member}"), Value::Null).await;
        api.delete(&format!("{RBAC}/clusterroles/fleet-agent-{member}"), Value::Null).await;
        api.delete(&format!("{RBAC}/clusterrolebindings/fleet-agent-{member}"), Value::Null).await;
    }
    api.done().await;
}

//! What a user may do and nobody else of his name, also past the portal.

use serde_json::{Value, json};

use super::{Hub, LAB, LOGIN, ROOT, USERS, credentials};

const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";

#[tokio::test]
async fn a_deleted_user_leaves_nothing_to_the_next_one_of_the_name() {
    let hub = Hub::start().await;
    hub.make(ROOT, "alice", json!({"admin": true})).await;
    let old = hub.login("alice").await;
    let secrets = format!("{USERS}/secrets");
    let left = hub.object(&format!("{secrets}/password.alice")).await;
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/fleet-pai-users/rolebindings";
    let of_admin = hub.object(&format!("{binding}/admin.alice")).await;
    // As somebody with kubectl deletes an account, and what it owned is not collected yet.
    hub.raw("r1", "DELETE", &format!("{USERS}/serviceaccounts/alice"), Value::Null).await;
    assert!(!hub.is_good(&old).await);
    for (path, mut object) in [(secrets.as_str(), left), (binding, of_admin)] {
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        hub.raw("r1", "DELETE", &format!("{path}/{name}"), Value::Null).await;
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            object["metadata"].as_object_mut().expect("metadata").remove(field);
        }
        // Not owned by what is gone, or the hub would collect it; the uid is what an owner's was.
        let made = hub.raw("r1", "POST", path, object).await;
        assert_eq!(made.0, 201, "{made:?}");
    }
    let account = json!({"metadata": {"name": "alice", "labels": {"pai.fleet.dev/user": "alice"}}});
    hub.raw("r1", "POST", &format!("{USERS}/serviceaccounts"), account).await;
    let asked = hub.ask("POST", LOGIN, None, &credentials("alice", "alice-pass")).await;
    assert_eq!(asked.0, 401, "the password of another account: {asked:?}");
    hub.raw("r1", "DELETE", &format!("{USERS}/serviceaccounts/alice"), Value::Null).await;
    hub.make(ROOT, "alice", json!({"password": "another-one"})).await;
    let new = hub.login_with("alice", "another-one").await;
    hub.refused(("GET", "/users", Some(&new), Value::Null), (403, "ForbiddenUserError", "alice")).await;
    assert!(!hub.is_good(&old).await && hub.is_good(&new).await);
}

#[tokio::test]
async fn a_user_is_kept_to_his_own_jobs_also_past_the_portal() {
    let hub = Hub::start().await;
    hub.make(ROOT, "alice", json!({})).await;
    hub.make(ROOT, "bob", json!({})).await;
    let (alice, bob) = (hub.login("alice").await, hub.login("bob").await);
    let text = LAB
        .replace("defaults:", "secrets: {token: s3cret}\n\ndefaults:")
        .replace("    commands:\n", "    commands:\n    - login <% $secrets.token %>\n");
    let (status, answer) = hub.ask("POST", "/jobs", Some(&alice), &json!(text)).await;
    assert_eq!(status, 202, "{answer}");
    let job = format!("{JOBS}/alice-job-config-6");
    let stop = json!({"value": "STOP"});
    let execute = "/jobs/alice~job-config-6/executionType";
    // All see all jobs, as in OpenPAI, and write their own.
    assert_eq!(hub.ask("GET", "/jobs/alice~job-config-6", Some(&bob), &Value::Null).await.0, 200);
    hub.refused(("PUT", execute, Some(&bob), stop.clone()), (403, "ForbiddenUserError", "own jobs")).await;
    hub.refused(
        ("PUT", "/jobs/alice~job-config-6/tag", Some(&bob), json!({"value": "x"})),
        (403, "ForbiddenUserError", "own jobs"),
    )
    .await;

    let template = |spec: Value| json!({"template": {"spec": spec}, "name": "t", "replicas": 1});
    let of = |name: &str, labels: Value, id: &str, spec: Value| {
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": {"pai.fleet.dev/id": id}},
        "spec": {"tasks": [template(spec)]}})
    };
    let container = |more: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        for (field, value) in more.as_object().into_iter().flatten() {
            container[field] = value.clone();
        }
        json!({"containers": [container]})
    };
    let own = json!({"pai.fleet.dev/user": "bob"});
    let plain = container(json!({}));
    let with = |field: &str, value: Value| {
        let mut spec = container(json!({}));
        spec[field] = value;
        spec
    };
    let theirs = "alice-job-config-6-scripts";
    let volume = |of: Value| with("volumes", json!([of]));
    let hostile = [
        ("another's name", of("alice-x", own.clone(), "bob~x", plain.clone())),
        ("another's label", of("bob-x", json!({"pai.fleet.dev/user": "alice"}), "bob~x", plain.clone())),
        ("no label", of("bob-x", json!({}), "bob~x", plain.clone())),
        (
            "another's name in lists",
            of(
                "bob-x",
                json!({"pai.fleet.dev/user": "bob", "fleet.dev/user": "alice"}),
                "bob~x",
                plain.clone(),
            ),
        ),
        ("another's id", of("bob-x", own.clone(), "alice~job-config-6", plain.clone())),
        (
            "another's run",
            of(
                "bob-x",
                json!({"pai.fleet.dev/user": "bob", "pai.fleet.dev/job": "alice-job-config-6", "pai.fleet.dev/run": "9"}),
                "bob~x",
                plain.clone(),
            ),
        ),
        ("an account", of("bob-x", own.clone(), "bob~x", with("serviceAccountName", json!("trainer")))),
        (
            "a pull secret",
            of("bob-x", own.clone(), "bob~x", with("imagePullSecrets", json!([{"name": theirs}]))),
        ),
        (
            "a volume",
            of("bob-x", own.clone(), "bob~x", volume(json!({"name": "s", "secret": {"secretName": theirs}}))),
        ),
        (
            "a projected volume",
            of(
                "bob-x",
                own.clone(),
                "bob~x",
                volume(json!({"name": "s", "projected": {"sources": [{"secret": {"name": theirs}}]}})),
            ),
        ),
        (
            "an environment",
            of(
                "bob-x",
                own.clone(),
                "bob~x",
                container(json!({"envFrom": [{"secretRef": {"name": theirs}}]})),
            ),
        ),
        (
            "a variable",
            of(
                "bob-x",
                own.clone(),
                "bob~x",
                container(
                    json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": theirs, "key": "train"}}}]}),
                ),
            ),
        ),
    ];
    for (what, object) in hostile {
        let (status, answer) = hub.raw(&bob, "POST", JOBS, object).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(status == 403 && message.contains("fleet-pai-owners"), "{what}: {status} {answer}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str, kind: &str| json!({"metadata": {"name": name}, "type": kind});
    let account_token = json!({"metadata": {"name": "bob-s", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"});
    for (what, method, path, body) in [
        (
            "another's job",
            "PATCH",
            job.as_str(),
            json!({"metadata": {"labels": {"pai.fleet.dev/user": "bob"}}}),
        ),
        ("another's job", "DELETE", job.as_str(), Value::Null),
        ("all jobs", "DELETE", JOBS, Value::Null),
        ("secrets", "GET", secrets, Value::Null),
        ("a secret", "GET", &format!("{secrets}/{theirs}"), Value::Null),
        ("a secret's name", "POST", secrets, secret("alice-next-scripts", "Opaque")),
        ("a token", "POST", secrets, account_token),
        ("users", "GET", &format!("{USERS}/serviceaccounts"), Value::Null),
        ("hashes", "GET", &format!("{USERS}/secrets"), Value::Null),
        ("own hash", "GET", &format!("{USERS}/secrets/password.bob"), Value::Null),
        (
            "a token by hand",
            "POST",
            &format!("{USERS}/serviceaccounts/alice/token"),
            json!({"spec": {"audiences": []}}),
        ),
        (
            "rights",
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/fleet-pai-users/rolebindings",
            json!({}),
        ),
    ] {
        let (status, answer) = hub.raw(&bob, method, path, body).await;
        assert_eq!(status, 403, "{what}: {answer}");
    }
    let (status, answer) = hub.raw(&bob, "POST", JOBS, of("bob-x", own, "bob~x", plain)).await;
    assert_eq!(status, 201, "what is his own: {answer}");
    for (user, expected) in [("bob", 200), ("alice", 403), ("", 403)] {
        let label = json!({"metadata": {"labels": {"fleet.dev/user": user}}});
        let (status, answer) = hub.raw(&bob, "PATCH", &format!("{JOBS}/bob-x"), label).await;
        assert_eq!(status, expected, "in lists as {user:?}: {answer}");
    }
    assert_eq!(hub.ask("PUT", execute, Some(&alice), &stop).await.0, 202);
    // Who may create Secrets, and read none, runs his job once more with those it has.
    let ended =
        json!({"status": {"state": {"phase": "Completed", "lastTransitionTime": "2026-01-02T03:04:05Z"}}});
    assert_eq!(hub.raw("r1", "PATCH", &format!("{job}/status"), ended).await.0, 200);
    let started = hub.ask("PUT", execute, Some(&alice), &json!({"value": "START"})).await;
    assert_eq!(started.0, 202, "{started:?}");
    let attempts =
        hub.ask("GET", "/jobs/alice~job-config-6/job-attempts", Some(&alice), &Value::Null).await.1;
    assert_eq!(attempts.as_array().map(Vec::len), Some(2), "{attempts}");
    // An administrator of the users stops anybody's job.
    hub.make(ROOT, "boss", json!({"admin": true})).await;
    let boss = hub.login("boss").await;
    assert_eq!(hub.ask("POST", "/jobs", Some(&bob), &json!(LAB)).await.0, 202);
    assert_eq!(hub.ask("PUT", "/jobs/bob~job-config-6/executionType", Some(&boss), &stop).await.0, 202);
}

#[tokio::test]
async fn virtual_clusters_are_granted_in_the_access_rules() {
    let hub = Hub::start().await;
    let file: Value =
        fleet_api::yaml::read(include_str!("../../../examples/hived/two-virtual-clusters.yaml"))
            .expect("YAML");
    let text = file["hivedscheduler"]["config"].as_str().expect("a text");
    let mut spec: Value = fleet_api::yaml::read(text).expect("YAML");
    spec["access"] = json!({"vc1": {"submitters": ["group:ml"]}});
    hub.apply(&json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration",
        "metadata": {"name": "cells"}, "spec": spec}))
        .await;
    let granted = async || {
        let object = hub.object("/apis/fleet.dev/v1alpha1/cellconfigurations/cells").await;
        object["spec"]["access"]["vc1"]["submitters"].clone()
    };
    let shown = async |name: &str| {
        hub.ask("GET", &format!("/users/{name}"), ROOT, &Value::Null).await.1["virtualCluster"].clone()
    };
    hub.make(ROOT, "alice", json!({"virtualCluster": ["default", "vc1"]})).await;
    hub.make(ROOT, "bob", json!({})).await;
    assert_eq!(granted().await, json!(["group:ml", "serviceaccount:fleet-pai-users/alice"]));
    assert_eq!((shown("alice").await, shown("bob").await), (json!(["default", "vc1"]), json!(["default"])));
    let give = |list: &[&str]| json!({"virtualCluster": list});
    assert_eq!(hub.ask("PUT", "/users/bob/virtualcluster", ROOT, &give(&["vc1"])).await.0, 201);
    assert_eq!(shown("bob").await, json!(["default", "vc1"]));
    let ask = ("PUT", "/users/bob/virtualcluster", ROOT, give(&["vc9"]));
    hub.refused(ask, (400, "NoVirtualClusterError", "found \"vc9\"; allowed: default, vc1")).await;
    let ask = (
        "POST",
        "/users",
        ROOT,
        json!({"username": "carol", "password": "carol-pass", "virtualCluster": ["vc9"]}),
    );
    hub.refused(ask, (400, "NoVirtualClusterError", "vc9")).await;
    assert_eq!(hub.object(&format!("{USERS}/serviceaccounts/carol")).await["code"], 404);
    // An administrator of users is none of cells, unless the hub's RBAC says so.
    hub.make(ROOT, "boss", json!({"admin": true})).await;
    let boss = hub.login("boss").await;
    let ask = ("PUT", "/users/bob/virtualcluster", Some(boss.as_str()), give(&[]));
    hub.refused(ask, (403, "ForbiddenUserError", "spec.access of the CellConfiguration")).await;
    let ask = ("DELETE", "/users/bob", Some(boss.as_str()), Value::Null);
    hub.refused(ask, (403, "ForbiddenUserError", "spec.access of the CellConfiguration")).await;
    // With a user his grants go.
    assert_eq!(hub.ask("DELETE", "/users/alice", ROOT, &Value::Null).await.0, 200);
    assert_eq!(granted().await, json!(["group:ml", "serviceaccount:fleet-pai-users/bob"]));
    hub.make(ROOT, "alice", json!({})).await;
    assert_eq!(shown("alice").await, json!(["default"]));
}

#[tokio::test]
async fn an_account_of_the_same_name_elsewhere_is_no_user() {
    let hub = Hub::start().await;
    hub.make(ROOT, "alice", json!({})).await;
    let alice = hub.login("alice").await;
    hub.server.add_token("t1", "system:serviceaccount:team-a:alice", &[]);
    hub.server.add_token("t2", "alice", &[]);
    for token in ["t1", "t2", "r1"] {
        let by = Some(token);
        for (method, path, body) in [
            ("GET", "/tokens", Value::Null),
            ("POST", "/tokens/application", Value::Null),
            ("DELETE", "/authn/basic/logout", Value::Null),
            ("PUT", "/users/me", json!({"data": {"email": "x@y"}})),
        ] {
            hub.refused((method, path, by, body), (403, "ForbiddenUserError", "has no password here")).await;
        }
        let ask = ("DELETE", format!("/tokens/{alice}"), by, Value::Null);
        hub.refused((ask.0, &ask.1, ask.2, ask.3), (403, "ForbiddenUserError", "")).await;
    }
    hub.refused(("GET", "/users/alice", Some("t1"), Value::Null), (403, "ForbiddenUserError", "team-a"))
        .await;
    assert!(hub.is_good(&alice).await);
    // Nor does a user end another's tokens.
    hub.make(ROOT, "bob", json!({})).await;
    let bob = hub.login("bob").await;
    let path = format!("/tokens/{alice}");
    hub.refused(("DELETE", &path, Some(&bob), Value::Null), (404, "NoTokenError", "")).await;
    assert!(hub.is_good(&alice).await);
}

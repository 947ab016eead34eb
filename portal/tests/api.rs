//! The API for programs: every route, held against its own document, and whom the hub lets use it.

use std::{path::Path, time::Duration};

use axum::http::{Request, header};
use fleet_portal::web::openapi;
use fleet_views::{ClusterFacts, LeaseFacts, NodeGroup, QuotaFacts, TaintFacts, TreeFacts};
use serde_json::{Value, json};

use crate::hub::{self, Answer, Browser, Hub, JOBS};

const V1: &str = "/api/fleet/v1";
const JOB: &str = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: NAME}\nspec: {pytorchReplicaSpecs: \
                   {Master: {template: {spec: {containers: [{name: pytorch, image: i}]}}}}}\n";

/// A program that shows a token with each request.
async fn call(hub: &Hub, token: &str, method: &str, path: &str, body: &str) -> (u16, Value, Answer) {
    let mut request = Request::builder().method(method).uri(format!("{V1}{path}"));
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = hub.send(&mut Browser::default(), request, body).await;
    let told = format!("{method} {path}: {} {}", answer.status, answer.body);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json", "{told}");
    assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store", "{told}");
    let value: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{told}"));
    let operation = documented(method, path.split('?').next().unwrap_or_default());
    if let Some(operation) = operation {
        check(&operation, answer.status, &value, &told);
    } else {
        assert!(matches!(answer.status, 403..=405), "{told}");
    }
    (answer.status, value, answer)
}

async fn get(hub: &Hub, token: &str, path: &str) -> (u16, Value) {
    let (status, value, _) = call(hub, token, "GET", path, "").await;
    (status, value)
}

/// What the document says of a call.
fn documented(method: &str, path: &str) -> Option<Value> {
    let document = openapi();
    let paths = document["paths"].as_object().expect("paths");
    let wanted: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let parts: Vec<&str> = template.strip_prefix(V1).expect("the prefix").split('/').collect();
        // The path of a queue is the rest, whatever it is.
        let rest = parts.last() == Some(&"{path}") && wanted.len() >= parts.len();
        let same = |(part, word): (&&str, &&str)| part.starts_with('{') || part == word;
        (parts.len() == wanted.len() || rest) && parts.iter().zip(&wanted).all(same)
    };
    // What is written out goes before what stands for anything.
    let mut found: Vec<(&String, &Value)> = paths.iter().filter(|(template, _)| fits(template)).collect();
    found.sort_by_key(|(template, _)| template.matches('{').count());
    found.iter().find_map(|(_, path)| path.get(method.to_lowercase()).cloned())
}

/// Every field that is answered is in the document, and is what it says.
fn check(operation: &Value, status: u16, value: &Value, told: &str) {
    let answer = &operation["responses"][status.to_string()];
    let schema = &answer["content"]["application/json"]["schema"];
    assert!(schema.is_object() || schema == true, "{told}: the document has no such answer: {operation}");
    let mut components = openapi()["components"].clone();
    for schema in components["schemas"].as_object_mut().expect("schemas").values_mut() {
        if schema["properties"].is_object() {
            schema["additionalProperties"] = json!(false);
        }
    }
    let mut whole = schema.clone();
    if whole.is_object() {
        whole["components"] = components;
        whole["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    }
    let validator = jsonschema::validator_for(&whole).unwrap_or_else(|error| panic!("{told}: {error}"));
    let wrong: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{told}\n{}", wrong.join("\n"));
}

/// `docs/openapi.json` is what the program serves.
#[test]
fn the_document_is_kept_in_the_docs() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let made = format!("{}\n", serde_json::to_string_pretty(&openapi()).expect("JSON"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &made).expect("docs/openapi.json");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == made,
        "docs/openapi.json is out of date; run UPDATE_DOCS=1 cargo test -p fleet-portal --test suite the_document"
    );
}

/// Names are used once, references lead somewhere, and schemas are schemas.
#[test]
fn the_document_is_whole() {
    let document = openapi();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            ids.push(operation["operationId"].as_str().expect("an id").to_owned());
            let names = operation["parameters"].as_array().into_iter().flatten();
            let in_path: Vec<&str> =
                names.filter(|one| one["in"] == "path").filter_map(|one| one["name"].as_str()).collect();
            let braces: Vec<&str> =
                path.split('{').skip(1).filter_map(|part| part.split('}').next()).collect();
            assert_eq!(in_path, braces, "{method} {path}");
            for status in ["400", "401", "503"] {
                assert!(operation["responses"][status].is_object(), "{method} {path} {status}");
            }
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), count), (14, 14), "{ids:?}");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        jsonschema::meta::validate(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

fn amounts(gpus: i64) -> std::collections::BTreeMap<String, i64> {
    [("nvidia.com/gpu".to_owned(), gpus)].into()
}

/// A hub with a job in `a` and one in `b`, a quota tree and a cluster, and virtual clusters.
async fn lively() -> Hub {
    let hub = Hub::start().await;
    hub.job("a", "of-alice", "waits in a").await;
    hub.job("b", "of-bob", "waits in b").await;
    let virtual_cluster = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": "vc1"},
        "spec": {"name": "VC1", "configuration": "cells"}});
    hub.create("/apis/fleet.dev/v1alpha1/virtualclusters", virtual_cluster).await;
    hub.board.change(|known| {
        let leaf = |name: &str, used| QuotaFacts {
            name: name.into(),
            min: amounts(8),
            max: amounts(16),
            used: amounts(used),
            ..QuotaFacts::default()
        };
        let root = QuotaFacts {
            name: "root".into(),
            children: vec![leaf("research", 12), leaf("other", 0)],
            ..QuotaFacts::default()
        };
        known.set_tree(TreeFacts { root: Some(root), problems: Vec::new() });
        let group = NodeGroup { count: 2, gpus: 8, gpus_free: 3, ..NodeGroup::default() };
        let taint = TaintFacts { key: "k".into(), value: String::new(), effect: "NoSchedule".into() };
        let east = ClusterFacts {
            ready: Some(true),
            nodes: 2,
            allocatable: amounts(16),
            allocated: amounts(10),
            groups: vec![group],
            taints: vec![taint],
            ..ClusterFacts::default()
        };
        known.set_cluster("east", Some(east));
        known
            .set_lease("east", Some(LeaseFacts { renewed_s: Some(7), lasts_s: 40, ..LeaseFacts::default() }));
        let id = ("a".to_owned(), "of-alice-pytorchjob".to_owned());
        let unit = fleet_views::UnitFacts {
            queue: "root/research".into(),
            waits: true,
            ..fleet_views::UnitFacts::default()
        };
        known.set_unit(id, Some(unit));
    });
    hub
}

#[tokio::test]
async fn every_view_is_answered_as_its_document_says() {
    let hub = lively().await;
    let root = "token-r";
    let (status, me) = get(&hub, root, "").await;
    assert_eq!((status, &me["user"], &me["rights"]["allJobs"]), (200, &json!("root"), &json!(true)));
    assert!(me["formKey"].is_null() && me["hub"]["isUp"] == true, "{me}");
    let (_, home) = get(&hub, root, "/home").await;
    assert_eq!((&home["counts"][0], &home["nodesByFree"][3]), (&json!(["Waiting", 2]), &json!([3, 2])));
    let (_, jobs) = get(&hub, root, "/jobs").await;
    assert_eq!((jobs["total"].as_i64(), jobs["rows"].as_array().map(Vec::len)), (Some(2), Some(2)));
    let (status, job) = get(&hub, root, "/jobs/a/pytorchjobs.kubeflow.org/of-alice").await;
    assert_eq!((status, &job["row"]["reason"]), (200, &json!("NoClusterFits")), "{job}");
    assert_eq!(job["position"], json!([1, 1]));
    assert!(job["yaml"].as_str().is_some_and(|yaml| yaml.contains("pytorchReplicaSpecs")), "{job}");
    let (_, queues) = get(&hub, root, "/queues").await;
    assert_eq!(queues["rows"][1]["path"], "root/research");
    assert_eq!(queues["rows"][1]["bars"][0]["borrowed"], "4");
    for path in ["/queues/root/research", "/queues/root%2Fresearch"] {
        let (status, queue) = get(&hub, root, path).await;
        assert_eq!((status, &queue["waiting"][0]["job"][1]), (200, &json!("of-alice")), "{queue}");
    }
    let (_, clusters) = get(&hub, root, "/clusters").await;
    assert_eq!(
        (&clusters["rows"][0]["name"], &clusters["rows"][0]["state"]),
        (&json!("east"), &json!("Ready"))
    );
    let (status, east) = get(&hub, root, "/clusters/east").await;
    assert_eq!((status, &east), (200, &clusters["rows"][0]));
    let (_, vcs) = get(&hub, root, "/virtual-clusters").await;
    assert_eq!(vcs["rows"][0]["name"], "VC1");
    let (status, vc) = get(&hub, root, "/virtual-clusters/VC1").await;
    assert_eq!((status, &vc), (200, &vcs["rows"][0]));
    // The document itself, for whoever asks.
    let (status, document) = get(&hub, "", "/openapi.json").await;
    assert_eq!((status, document), (200, openapi()));
}

#[tokio::test]
async fn jobs_are_filtered_and_read_page_by_page() {
    let hub = Hub::that_knows(hub::many(1_234)).await;
    let root = "token-r";
    let mut seen = Vec::new();
    let mut path = "/jobs?limit=500&sort=name&order=asc".to_owned();
    loop {
        let (_, page) = get(&hub, root, &path).await;
        assert_eq!(page["total"], 1_234);
        seen.extend(page["rows"].as_array().expect("rows").iter().map(|row| row["name"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/jobs?limit=500&sort=name&order=asc&after={}", next.replace('/', "%2F"));
    }
    let wanted: Vec<Value> = (0..1_234).map(|index| json!(format!("job-{index:06}"))).collect();
    assert_eq!(seen, wanted);
    let (_, page) = get(&hub, root, "/jobs?namespace=team-7&priority=3&state=Waiting&queue=root").await;
    let rows = page["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["namespace"] == "team-7" && row["priority"] == 3), "{page}");
    assert_eq!(page["total"], rows.len());
    let mut places = Vec::new();
    let mut path = "/queues/root/research?limit=1000".to_owned();
    loop {
        let (_, page) = get(&hub, root, &path).await;
        places.extend(page["waiting"].as_array().expect("rows").iter().map(|row| row["position"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/queues/root/research?limit=1000&after={}", next.replace(' ', "+"));
    }
    assert_eq!(places, (1..=1_234).map(Value::from).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_wrong_is_named_with_what_is_allowed() {
    let hub = lively().await;
    for (path, status, says) in [
        ("/jobs?state=Odd", 400, "state: found \"Odd\"; allowed: Waiting, Starting"),
        ("/jobs?limit=1001", 400, "limit: found \"1001\"; allowed: a whole number from 1 to 1000"),
        ("/jobs?priority=high", 400, "priority: found \"high\"; allowed: a whole number"),
        ("/jobs?sort=odd", 400, "sort: found \"odd\"; allowed: created, name, priority"),
        ("/jobs?order=up", 400, "order: found \"up\"; allowed: asc, desc"),
        ("/jobs?after=odd", 400, "after: found \"odd\"; allowed: `next`"),
        ("/jobs?odd=1", 400, "parameter: found \"odd\"; allowed: text, state, queue"),
        ("/home?odd=1", 400, "parameter: found \"odd\"; allowed: no parameters"),
        ("/queues/root/odd", 404, "queue: found \"root/odd\"; allowed: a path that GET"),
        ("/queues/root?after=odd", 400, "after: found \"odd\""),
        ("/clusters/odd", 404, "cluster: found \"odd\"; allowed: east"),
        ("/virtual-clusters/odd", 404, "virtual cluster: found \"odd\"; allowed: VC1"),
        ("/jobs/a/pytorchjobs.kubeflow.org/odd", 404, "There is no job a/odd"),
        ("/jobs/a/odd/of-alice", 404, "There is no kind odd"),
        ("/jobs/a/b%2Fc/odd", 400, "job: found \"a/b/c/odd\"; allowed: NAMESPACE/RESOURCE/NAME"),
        ("/odd", 404, "path: found \"/api/fleet/v1/odd\"; allowed: the paths of"),
    ] {
        let (found, error) = get(&hub, "token-r", path).await;
        assert_eq!(found, status, "{path}: {error}");
        assert_eq!(error["code"], status, "{path}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(says), "{path}: {message}");
    }
    let (status, error, _) = call(&hub, "token-r", "DELETE", "/jobs", "").await;
    assert_eq!((status, &error["reason"]), (405, &json!("MethodNotAllowed")), "{error}");
    for (path, body, status, says) in [
        ("/jobs", "a: [", 400, "YAML"),
        ("/jobs", "", 400, "found 0 documents"),
        (
            "/jobs",
            "apiVersion: v1\nkind: Secret\nmetadata: {name: x}",
            400,
            "kind: found v1 Secret; allowed: PyTorchJob",
        ),
        ("/jobs?dryRun=yes", "", 400, "dryRun: found \"yes\"; allowed: true, false"),
        ("/jobs?namespace=none", &JOB.replace("NAME", "x"), 404, "none"),
        ("/jobs?namespace=a", &JOB.replace("NAME", "Odd!"), 422, "Odd!"),
        ("/jobs?namespace=a", &JOB.replace("NAME", "of-alice"), 409, "already exists"),
        ("/jobs/stop", "{}", 400, "missing field `jobs`"),
        ("/jobs/stop", "{\"jobs\": [], \"odd\": 1}", 400, "odd"),
        ("/jobs/stop", "{\"jobs\": []}", 400, "jobs: found \"0\"; allowed: 1 to 1000"),
        ("/jobs/a/pytorchjobs.kubeflow.org/odd/stop", "", 404, "odd"),
    ] {
        let (found, error, _) = call(&hub, "token-r", "POST", path, body).await;
        assert_eq!(found, status, "{path} {body}: {error}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(says), "{path} {body}: {message}");
    }
    let large = format!("# {}", "x".repeat(1024 * 1024));
    let (status, error, _) = call(&hub, "token-r", "POST", "/jobs", &large).await;
    assert_eq!((status, &error["reason"]), (413, &json!("TooLarge")), "{error}");
}

#[tokio::test]
async fn a_job_is_submitted_and_stopped_with_the_callers_own_rights() {
    let hub = lively().await;
    let job = |name: &str| JOB.replace("NAME", name);
    let jobs = JOBS.replace("NS", "a");
    let (status, check, _) =
        call(&hub, "token-a", "POST", "/jobs?namespace=a&dryRun=true", &job("train")).await;
    assert_eq!((status, check["notices"].as_array().map(Vec::len)), (200, Some(1)), "{check}");
    assert!(hub.object(&format!("{jobs}/train")).await.is_err());
    let (status, made, answer) = call(&hub, "token-a", "POST", "/jobs?namespace=a", &job("train")).await;
    let path = format!("{V1}/jobs/a/pytorchjobs.kubeflow.org/train");
    assert_eq!((status, made["path"].as_str()), (201, Some(path.as_str())), "{made}");
    assert_eq!(answer.headers[header::LOCATION], path);
    let (status, _) = get(&hub, "token-a", "/jobs/a/pytorchjobs.kubeflow.org/train").await;
    assert_eq!(status, 200);
    // JSON is YAML.
    let as_json = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "two"}, "spec":
        {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}}}});
    let (status, ..) = call(&hub, "token-a", "POST", "/jobs", &as_json.to_string()).await;
    assert_eq!(status, 201);

    let mark = async |name: &str| {
        let found = hub.object(&format!("{jobs}/{name}")).await.expect("a job");
        found["metadata"]["annotations"]["fleet.dev/stop"].clone()
    };
    let (status, ..) = call(&hub, "token-a", "POST", "/jobs/a/pytorchjobs.kubeflow.org/train/stop", "").await;
    assert_eq!((status, mark("train").await), (200, json!("true")));
    let several =
        json!({"jobs": ["a/pytorchjobs.kubeflow.org/two", "a/pytorchjobs.kubeflow.org/none", "odd"]});
    let (status, told, _) = call(&hub, "token-a", "POST", "/jobs/stop", &several.to_string()).await;
    assert_eq!((status, mark("two").await), (409, json!("true")), "{told}");
    assert_eq!(told["stopped"], json!(["a/pytorchjobs.kubeflow.org/two"]));
    assert_eq!(told["refused"].as_array().map(Vec::len), Some(2), "{told}");
    // bob may neither stop alice's jobs nor submit beside them.
    let one = "/jobs/a/pytorchjobs.kubeflow.org/of-alice/stop";
    let (status, error, _) = call(&hub, "token-b", "POST", one, "").await;
    assert_eq!((status, mark("of-alice").await), (403, Value::Null), "{error}");
    let (status, error, _) = call(&hub, "token-b", "POST", "/jobs?namespace=a", &job("mine")).await;
    assert_eq!(status, 403, "{error}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("bob")), "{error}");
}

#[tokio::test]
async fn each_caller_sees_what_the_hub_lets_him() {
    let hub = lively().await;
    // Nobody, and whom the hub does not know.
    for path in ["", "/home", "/jobs", "/queues", "/clusters", "/virtual-clusters", "/jobs/a/b/c"] {
        for token in ["", "nonsense", "a b"] {
            let (status, error, answer) = call(&hub, token, "GET", path, "").await;
            assert_eq!((status, &error["reason"]), (401, &json!("Unauthorized")), "{path} {token}");
            assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Bearer");
        }
    }
    let request = Request::get(format!("{V1}/jobs"))
        .header(header::AUTHORIZATION, "Basic YTpi")
        .uri(format!("{V1}/jobs"));
    let answer = hub.send(&mut Browser::default(), request, "").await;
    assert_eq!(answer.status, 401);
    assert!(answer.body.contains("found a credential of another kind; allowed"), "{}", answer.body);
    // bob: his jobs, and nothing of the fleet.
    let (_, me) = get(&hub, "token-b", "").await;
    assert_eq!(
        me["rights"],
        json!({"allJobs": false, "namespaces": ["b"], "queues": false, "clusters": false, "virtualClusters": false})
    );
    let (_, jobs) = get(&hub, "token-b", "/jobs").await;
    assert_eq!((&jobs["total"], &jobs["rows"][0]["name"]), (&json!(1), &json!("of-bob")));
    let (_, home) = get(&hub, "token-b", "/home").await;
    assert_eq!((&home["counts"][0], &home["clusters"]), (&json!(["Waiting", 1]), &json!([])));
    assert!(!home.to_string().contains("of-alice") && !home.to_string().contains("east"), "{home}");
    for (path, what) in [
        ("/jobs?namespace=a", "resourcebindings"),
        ("/jobs/a/pytorchjobs.kubeflow.org/of-alice", "pytorchjobs"),
        ("/queues", "elasticquotatrees"),
        ("/queues/root/research", "elasticquotatrees"),
        ("/clusters", "clusters"),
        ("/clusters/east", "clusters"),
        ("/virtual-clusters", "virtualclusters"),
        ("/virtual-clusters/VC1", "virtualclusters"),
    ] {
        let (status, error) = get(&hub, "token-b", path).await;
        assert_eq!((status, &error["reason"]), (403, &json!("Forbidden")), "{path}: {error}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("bob") && message.contains(what), "{path}: {message}");
        assert!(!message.contains("east") && !message.contains("VC1"), "{path}: {message}");
    }
    // A right that is given or taken shows, and a token that has died is nobody's.
    hub.server.add_token("token-n", "nobody-yet", &[]);
    assert_eq!(get(&hub, "token-n", "/clusters").await.0, 403);
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": ["fleet.dev"], "resources": ["clusters"], "verbs": ["list"]}]});
    hub.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody-yet"}]});
    hub.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    later().await;
    assert_eq!(get(&hub, "token-n", "/clusters").await.0, 200);
}

async fn later() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_token_that_dies_is_nobodys() {
    let hub = lively().await;
    hub.create("/api/v1/namespaces/a/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = hub.create("/api/v1/namespaces/a/serviceaccounts/robot/token", asked).await;
    let token = token["status"]["token"].as_str().expect("a token").to_owned();
    assert_eq!(get(&hub, &token, "/jobs").await.0, 200);
    let request =
        Request::delete("/api/v1/namespaces/a/serviceaccounts/robot").body(Vec::new()).expect("a request");
    let _: Value = hub.admin.request(request).await.expect("a deletion");
    later().await;
    assert_eq!(get(&hub, &token, "/jobs").await.0, 401);
}

/// A browser that is signed in reads by its cookie; it writes with the session's key, which no other site has.
#[tokio::test]
async fn a_session_reads_and_writes_with_its_key_only() {
    let hub = lively().await;
    let mut alice = hub.sign_in("token-a").await;
    let answer = hub.get(&mut alice, V1).await;
    let me: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!((answer.status, &me["user"]), (200, &json!("alice")));
    let key = me["formKey"].as_str().expect("a key").to_owned();
    let path = format!("{V1}/jobs/a/pytorchjobs.kubeflow.org/of-alice/stop");
    let mut post = async |key: Option<&str>, origin: Option<&str>| {
        let mut request = Request::post(&path);
        if let Some(key) = key {
            request = request.header("x-fleet-form-key", key);
        }
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        let answer = hub.send(&mut alice, request, "").await;
        assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
        (answer.status, answer.body)
    };
    for (with, origin, says) in [
        (None, None, "x-fleet-form-key: found another one"),
        (Some("odd"), Some("http://portal.example.com"), "x-fleet-form-key: found another one"),
        (Some(key.as_str()), Some("http://evil.example.com"), "origin: found another site's"),
        (Some(key.as_str()), Some("null"), "origin: found another site's"),
    ] {
        let (status, body) = post(with, origin).await;
        assert!(status == 403 && body.contains(says), "{status} {body}");
    }
    let job = hub.object(&format!("{}/of-alice", JOBS.replace("NS", "a"))).await.expect("a job");
    assert!(job["metadata"]["annotations"].is_null(), "{job}");
    let (status, body) = post(Some(&key), Some("http://portal.example.com")).await;
    assert_eq!(status, 200, "{body}");
}

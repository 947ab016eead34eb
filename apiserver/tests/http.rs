//! Black-box checks over the in-process router.

// The CRD below is one deep literal.

use axum::body::Body;
use fleet_apiserver::{Access, ApiServer, Config};
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

struct Api(ApiServer);

struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Api {
    async fn new() -> Api {
        Api(ApiServer::open(Config::default()).await.unwrap())
    }

    async fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (k, v) in headers {
            request = request.header(*k, *v);
        }
        self.0.router().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap()
    }

    async fn call(&self, method: &str, path: &str, kind: &str, body: Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        read(self.raw(method, path, &[("content-type", kind), ("user-agent", "test/1")], body).await).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "application/json", Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, "application/json", body).await
    }

    async fn put(&self, path: &str, body: Value) -> Answer {
        self.call("PUT", path, "application/json", body).await
    }

    async fn delete(&self, path: &str, body: Value) -> Answer {
        self.call("DELETE", path, "application/json", body).await
    }

    async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        let full = match kind {
            "apply" => "application/apply-patch+yaml".to_string(),
            other => format!("application/{other}-patch+json"),
        };
        self.call("PATCH", path, &full, body).await
    }

    /// The first `n` events of a watch.
    async fn events(&self, path: &str, n: usize) -> Vec<Value> {
        let mut stream = self.raw("GET", path, &[], Vec::new()).await.into_body().into_data_stream();
        let (mut buffer, mut out) = (Vec::new(), Vec::new());
        while out.len() < n {
            let Some(chunk) = stream.next().await else { break };
            buffer.extend_from_slice(&chunk.unwrap());
            while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                out.push(serde_json::from_slice(&line).unwrap());
            }
        }
        out.truncate(n);
        out
    }
}

async fn read(response: Response<Body>) -> Answer {
    let code = response.status().as_u16();
    let warnings =
        response.headers().get_all("warning").iter().map(|v| v.to_str().unwrap().to_string()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { code, body, warnings }
}

const CM: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/test.dev/v1/namespaces/default/things";

fn cm(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.max", "statusReplicasPath": ".status.n"}},
                "additionalPrinterColumns": [
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Last", "type": "string", "jsonPath": ".status.conditions[-1:].type"}],
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "max": {"type": "integer", "default": 10, "minimum": 1},
                        "color": {"type": "string", "enum": ["red", "blue"]},
                        "name": {"type": "string", "pattern": "^[a-z]+$"},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "required": ["name"], "properties": {
                                "name": {"type": "string"}, "v": {"type": "integer", "default": 5}}}}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn create_rules() {
    let api = Api::new().await;
    let a = api.post(CM, cm("a")).await;
    assert_eq!(
        (a.code, &a.body["kind"], &a.body["metadata"]["namespace"]),
        (201, &json!("ConfigMap"), &json!("default"))
    );
    let again = api.post(CM, cm("a")).await;
    assert_eq!(
        (again.code, &again.body["reason"], &again.body["details"]["kind"]),
        (409, &json!("AlreadyExists"), &json!("configmaps"))
    );
    let missing = api.post("/api/v1/namespaces/nope/configmaps", cm("a")).await;
    assert_eq!((missing.code, &missing.body["details"]["kind"]), (404, &json!("namespaces")));
    let wrong = api.post(CM, json!({"metadata": {"name": "b", "namespace": "other"}})).await;
    assert_eq!(wrong.code, 400);
    let generated = api.post(CM, json!({"metadata": {"generateName": "gen-"}})).await;
    let name = generated.body["metadata"]["name"].as_str().unwrap().to_string();
    assert!(name.len() == 9 && name.starts_with("gen-"), "{name}");
    let bogus = json!({"metadata": {"name": "c"}, "bogus": 1, "other": 2});
    let strict = api.post(&format!("{CM}?fieldValidation=Strict"), bogus.clone()).await;
    assert_eq!(strict.code, 400);
    let text = strict.body["message"].as_str().unwrap();
    assert!(text.contains("unknown field \"bogus\"") && text.contains("unknown field \"other\""), "{text}");
    let warned = api.post(CM, bogus).await;
    assert_eq!((warned.code, warned.warnings.len()), (201, 2));
    assert_eq!(warned.warnings[0], "299 - \"unknown field \\\"bogus\\\"\"");
    let dry = api.post(&format!("{CM}?dryRun=All"), cm("dry")).await;
    assert_eq!((dry.code, dry.body["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(api.get(&format!("{CM}/dry")).await.code, 404);
    let bad = api.post(&format!("{CM}?dryRun=No"), cm("dry")).await;
    assert_eq!((bad.code, &bad.body["details"]["kind"]), (422, &json!("CreateOptions")));
    let versioned = api.post(CM, json!({"metadata": {"name": "v", "resourceVersion": "1"}})).await;
    assert_eq!((versioned.code, versioned.body.get("reason")), (500, None));
    assert_eq!(api.post(CM, json!({"metadata": {"name": "Bad_Name"}})).await.code, 422);
    let kind = api.call("POST", CM, "text/plain", cm("x")).await;
    assert_eq!(kind.code, 415);
    let huge = api.raw("POST", CM, &[], vec![b' '; 4 << 20]).await;
    assert_eq!(huge.status(), 413);
    let deep = api.raw("POST", CM, &[], "[".repeat(100_000).into_bytes()).await;
    assert_eq!(deep.status(), 400);
}

#[tokio::test]
async fn update_rules() {
    let api = Api::new().await;
    let a = api.post(CM, cm("a")).await.body;
    let same = api.put(&format!("{CM}/a"), a.clone()).await;
    assert_eq!(
        same.body["metadata"]["resourceVersion"], a["metadata"]["resourceVersion"],
        "a no-op keeps the version"
    );
    let mut b = a.clone();
    b["data"]["a"] = json!("2");
    let b = api.put(&format!("{CM}/a"), b).await;
    assert_eq!(b.code, 200);
    let stale = api
        .put(
            &format!("{CM}/a"),
            json!({"metadata": {"name": "a", "resourceVersion": a["metadata"]["resourceVersion"]}}),
        )
        .await;
    assert_eq!((stale.code, &stale.body["reason"]), (409, &json!("Conflict")));
    let uid = api.put(&format!("{CM}/a"), json!({"metadata": {"name": "a", "uid": "x"}})).await;
    assert_eq!(uid.code, 409);
    let merged = api.patch(&format!("{CM}/a"), "merge", json!({"data": {"b": "x", "a": null}})).await;
    assert_eq!(merged.body["data"], json!({"b": "x"}));
    let test = api
        .patch(&format!("{CM}/a"), "json", json!([{"op": "test", "path": "/data/b", "value": "no"}]))
        .await;
    assert_eq!(test.code, 422);
    let none = api.patch(&format!("{CM}/zz"), "merge", json!({})).await;
    assert_eq!(none.code, 404);
    api.post(PODS, pod("p")).await;
    let image = json!({"spec": {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "c", "image": "i:2"}]}});
    let p = api.patch(&format!("{PODS}/p"), "strategic-merge", image).await.body;
    assert_eq!(
        (&p["spec"]["containers"][0]["image"], &p["metadata"]["generation"]),
        (&json!("i:2"), &json!(2))
    );
    assert_eq!(p["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
    let frozen = api.patch(&format!("{PODS}/p"), "merge", json!({"spec": {"restartPolicy": "Never"}})).await;
    assert_eq!(frozen.code, 422);
}

#[tokio::test]
async fn custom_resources() {
    let api = Api::new().await;
    let made = api.post(CRDS, crd()).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["status"]["conditions"][1]["type"], "Established");
    assert_eq!(api.post(THINGS, json!({"metadata": {"name": "x"}})).await.code, 400, "kind is needed");
    let t = api
        .post(THINGS, thing("t", json!({"max": null, "zzz": 1, "free": {"k": 1}, "items": [{"name": "i"}]})))
        .await;
    assert_eq!(t.body["spec"], json!({"max": 10, "free": {"k": 1}, "items": [{"name": "i", "v": 5}]}));
    let bad = api.post(THINGS, thing("b", json!({"max": 0, "color": "green", "name": "A"}))).await;
    assert_eq!((bad.code, bad.body["details"]["causes"].as_array().unwrap().len()), (422, 3), "{}", bad.body);
    let smp = api.patch(&format!("{THINGS}/t"), "strategic-merge", json!({})).await;
    assert!(
        smp.code == 415 && smp.body["message"].as_str().unwrap().contains("application/apply-patch+yaml")
    );
    let status = json!({"status": {"n": 3, "conditions": [{"type": "Made", "status": "True"}, {"type": "Ready", "status": "False"}]}, "spec": {"max": 99}});
    let s = api.patch(&format!("{THINGS}/t/status"), "merge", status).await.body;
    assert_eq!(
        (&s["spec"]["max"], &s["status"]["n"], &s["metadata"]["generation"]),
        (&json!(10), &json!(3), &json!(1))
    );
    let m = api
        .patch(&format!("{THINGS}/t"), "merge", json!({"spec": {"max": 5}, "status": {"n": 7}}))
        .await
        .body;
    assert_eq!(
        (&m["spec"]["max"], &m["status"]["n"], &m["metadata"]["generation"]),
        (&json!(5), &json!(3), &json!(2))
    );
    let label =
        api.patch(&format!("{THINGS}/t"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.body;
    assert_eq!(label["metadata"]["generation"], 2);
    let scale = api.patch(&format!("{THINGS}/t/scale"), "merge", json!({"spec": {"replicas": 8}})).await.body;
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"], &scale["status"]["replicas"]),
        (&json!("Scale"), &json!(8), &json!(3))
    );
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let rows = read(api.raw("GET", THINGS, &[("accept", table)], Vec::new()).await).await.body;
    assert_eq!(rows["rows"][0]["cells"], json!(["t", "False", "Ready"]));
    assert_eq!(api.get(&format!("{THINGS}?fieldSelector=spec.color=red")).await.body["items"], json!([]));
    let unknown = api.get(&format!("{THINGS}?fieldSelector=spec.zzz=red")).await;
    assert_eq!(unknown.code, 400);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let found = read(api.raw("GET", "/apis", &[("accept", accept)], Vec::new()).await).await.body;
    assert!(found["items"].as_array().unwrap().iter().any(|g| g["metadata"]["name"] == "test.dev"));
    assert_eq!(api.delete(&format!("{CRDS}/things.test.dev"), Value::Null).await.code, 200);
    assert_eq!(api.get(THINGS).await.code, 404);
}

#[tokio::test]
async fn apply_rules() {
    let api = Api::new().await;
    api.post(CRDS, crd()).await;
    let path = |m: &str| format!("{THINGS}/t?fieldManager={m}");
    let a = api
        .patch(
            &path("a"),
            "apply",
            thing("t", json!({"max": 3, "items": [{"name": "x", "v": 1}, {"name": "y", "v": 1}]})),
        )
        .await;
    assert_eq!(a.code, 201, "{}", a.body);
    let fields = &a.body["metadata"]["managedFields"][0];
    assert_eq!((&fields["operation"], &fields["manager"]), (&json!("Apply"), &json!("a")));
    assert_eq!(
        fields["fieldsV1"]["f:spec"]["f:items"]["k:{\"name\":\"x\"}"],
        json!({".": {}, "f:name": {}, "f:v": {}})
    );
    let same = api
        .patch(
            &path("a"),
            "apply",
            thing("t", json!({"max": 3, "items": [{"name": "x", "v": 1}, {"name": "y", "v": 1}]})),
        )
        .await;
    assert_eq!(same.body["metadata"]["resourceVersion"], a.body["metadata"]["resourceVersion"]);
    let shared = api.patch(&path("b"), "apply", thing("t", json!({"items": [{"name": "x", "v": 1}]}))).await;
    assert_eq!(shared.code, 200, "equal values are shared");
    let dropped = api.patch(&path("a"), "apply", thing("t", json!({"max": 3}))).await.body;
    assert_eq!(dropped["spec"]["items"], json!([{"name": "x", "v": 1}]), "y was only a's, x is also b's");
    let conflict =
        api.patch(&path("c"), "apply", thing("t", json!({"items": [{"name": "x", "v": 9}]}))).await;
    assert_eq!(
        (conflict.code, &conflict.body["details"]["causes"][0]["field"]),
        (409, &json!(".spec.items[name=\"x\"].v"))
    );
    let forced = api
        .patch(
            &format!("{}&force=true", path("c")),
            "apply",
            thing("t", json!({"items": [{"name": "x", "v": 9}]})),
        )
        .await;
    assert_eq!(forced.body["spec"]["items"][0]["v"], 9);
    assert_eq!(
        api.patch(&format!("{THINGS}/t"), "apply", thing("t", json!({}))).await.code,
        422,
        "no manager"
    );
    let unknown = api.patch(&path("a"), "apply", thing("t", json!({"bogus": 1}))).await;
    assert_eq!(unknown.code, 500);
    let mut own = thing("t", json!({}));
    own["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    assert_eq!(api.patch(&path("a"), "apply", own).await.code, 400);
    let update = api.patch(&format!("{THINGS}/t"), "merge", json!({"spec": {"max": 4}})).await.body;
    let managers: Vec<&str> = update["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers.last(), Some(&"test"));
    let lost = api.patch(&path("a"), "apply", thing("t", json!({"max": 3}))).await;
    assert_eq!(lost.code, 409, "{}", lost.body);
}

#[tokio::test]
async fn watches() {
    let api = Api::new().await;
    let start = api.get(CM).await.body["metadata"]["resourceVersion"].as_str().unwrap().to_string();
    let mut a = cm("a");
    a["metadata"]["labels"] = json!({"x": "1"});
    api.post(CM, a).await;
    for patch in [
        json!({"data": {"a": "2"}}),
        json!({"metadata": {"labels": {"x": "2"}}}),
        json!({"metadata": {"labels": {"x": "1"}}}),
    ] {
        api.patch(&format!("{CM}/a"), "merge", patch).await;
    }
    api.delete(&format!("{CM}/a"), Value::Null).await;
    let path = format!("{CM}?watch=true&resourceVersion={start}&labelSelector=x%3D1");
    let events = api.events(&path, 5).await;
    let types: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
    assert_eq!(events[2]["object"]["metadata"]["labels"]["x"], "1", "leaving shows the previous labels");
    let versions: Vec<u64> = events
        .iter()
        .map(|e| e["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(versions.is_sorted() && versions.windows(2).all(|w| w[0] != w[1]), "{versions:?}");
    let resumed =
        api.events(&format!("{CM}?watch=true&resourceVersion={}&labelSelector=x%3D1", versions[1]), 3).await;
    assert_eq!(resumed, events[2..], "a resumed watch sees the exact suffix");
    let old = api.events(&format!("{CM}?watch=true&resourceVersion=5"), 1).await;
    assert_eq!((&old[0]["type"], &old[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let path = format!(
        "{CM}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let initial = api.events(&path, 2).await;
    assert_eq!((&initial[0]["type"], &initial[1]["type"]), (&json!("ADDED"), &json!("BOOKMARK")));
    assert_eq!(initial[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(api.get(&format!("{CM}?watch=true&sendInitialEvents=true")).await.code, 422);
}

#[tokio::test]
async fn lists_and_pages() {
    let api = Api::new().await;
    for i in 0..7 {
        api.post(CM, cm(&format!("c{i}"))).await;
    }
    let first = api.get(&format!("{CM}?limit=3")).await.body;
    assert_eq!(
        (first["items"].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]),
        (3, &json!(5))
    );
    api.delete(&format!("{CM}/c5"), Value::Null).await;
    api.post(CM, cm("c55")).await;
    let mut names = Vec::new();
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_string();
    while !token.is_empty() {
        let page = api.get(&format!("{CM}?limit=3&continue={token}")).await.body;
        names.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|i| i["metadata"]["name"].as_str().unwrap().to_string()),
        );
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
    }
    assert_eq!(names, ["c3", "c4", "c5", "c6", "kube-root-ca.crt"], "pages are from one moment");
    assert_eq!(api.get(&format!("{CM}?resourceVersion=abc")).await.code, 400);
    assert_eq!(api.get(&format!("{CM}?resourceVersionMatch=Exact")).await.code, 422);
    assert_eq!(api.get(&format!("{CM}?resourceVersion=5&resourceVersionMatch=Exact")).await.code, 410);
    let all = api.get("/api/v1/configmaps?fieldSelector=metadata.name%3Dc1").await.body;
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    let deleted =
        api.delete(&format!("{CM}?fieldSelector=metadata.name!=kube-root-ca.crt"), Value::Null).await;
    assert_eq!((deleted.code, deleted.body["items"].as_array().unwrap().len()), (200, 7));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let t = read(api.raw("GET", &format!("{CM}?includeObject=None"), &[("accept", table)], Vec::new()).await)
        .await
        .body;
    assert_eq!((&t["kind"], t["rows"][0].get("object")), (&json!("Table"), None));
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    assert_eq!(api.raw("GET", CM, &[("accept", partial)], Vec::new()).await.status(), 406);
    assert_eq!(api.raw("GET", CM, &[("accept", "text/csv")], Vec::new()).await.status(), 406);
}

#[tokio::test]
async fn deleting() {
    let api = Api::new().await;
    api.post(CM, cm("plain")).await;
    let gone = api.delete(&format!("{CM}/plain"), json!({"propagationPolicy": "Background"})).await;
    assert_eq!((&gone.body["kind"], &gone.body["status"]), (&json!("Status"), &json!("Success")));
    let mut held = cm("held");
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    api.post(CM, held).await;
    let once = api.delete(&format!("{CM}/held"), Value::Null).await.body;
    assert!(once["metadata"]["deletionTimestamp"].is_string());
    let twice = api.delete(&format!("{CM}/held"), Value::Null).await.body;
    assert_eq!(once["metadata"]["resourceVersion"], twice["metadata"]["resourceVersion"]);
    let added = api
        .patch(
            &format!("{CM}/held"),
            "merge",
            json!({"metadata": {"finalizers": ["test.dev/hold", "test.dev/b"]}}),
        )
        .await;
    assert_eq!(added.code, 422);
    assert_eq!(
        api.patch(&format!("{CM}/held"), "merge", json!({"metadata": {"finalizers": null}})).await.code,
        200
    );
    assert_eq!(api.get(&format!("{CM}/held")).await.code, 404);
    // Graceful deletion of a bound pod.
    api.post(PODS, pod("p")).await;
    let bind = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(api.post(&format!("{PODS}/p/binding"), bind.clone()).await.code, 201);
    assert_eq!(api.post(&format!("{PODS}/p/binding"), bind).await.code, 409);
    let going = api.delete(&format!("{PODS}/p"), Value::Null).await.body;
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(api.delete(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0})).await.code, 200);
    assert_eq!(api.get(&format!("{PODS}/p")).await.code, 404);
    let both = api
        .delete(&format!("{CM}/x"), json!({"orphanDependents": true, "propagationPolicy": "Orphan"}))
        .await;
    assert_eq!(both.code, 422);
}

/// Waits for a condition that background work brings about.
async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if check().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never happened: {what}");
}

#[tokio::test]
async fn garbage_and_namespaces() {
    let api = Api::new().await;
    let owner = api.post(CM, cm("owner")).await.body;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    let dependent = |n: &str| json!({"metadata": {"name": n, "ownerReferences": reference}});
    api.post(CM, dependent("d1")).await;
    api.delete(&format!("{CM}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    until("foreground deletion", async || api.get(&format!("{CM}/owner")).await.code == 404).await;
    assert_eq!(api.get(&format!("{CM}/d1")).await.code, 404);
    api.post(CM, dependent("d2")).await;
    until("a dangling dependent goes", async || api.get(&format!("{CM}/d2")).await.code == 404).await;
    let owner = api.post(CM, cm("owner")).await.body;
    let mut kept = dependent("d3");
    kept["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"].clone();
    api.post(CM, kept).await;
    api.delete(&format!("{CM}/owner"), json!({"propagationPolicy": "Orphan"})).await;
    until("orphaning", async || api.get(&format!("{CM}/owner")).await.code == 404).await;
    assert_eq!(api.get(&format!("{CM}/d3")).await.body["metadata"].get("ownerReferences"), None);

    let ns = api.post("/api/v1/namespaces", json!({"metadata": {"name": "n1"}})).await.body;
    assert_eq!(
        (&ns["metadata"]["labels"]["kubernetes.io/metadata.name"], &ns["status"]["phase"]),
        (&json!("n1"), &json!("Active"))
    );
    assert_eq!(api.get("/api/v1/namespaces/n1/serviceaccounts/default").await.code, 200);
    assert_eq!(api.get("/api/v1/namespaces/n1/configmaps/kube-root-ca.crt").await.code, 200);
    let mut held = cm("held");
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    api.post("/api/v1/namespaces/n1/configmaps", held).await;
    let going = api.delete("/api/v1/namespaces/n1", Value::Null).await.body;
    assert_eq!(going["status"]["phase"], "Terminating");
    let refused = api.post("/api/v1/namespaces/n1/configmaps", cm("late")).await;
    assert_eq!(
        (refused.code, &refused.body["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    until("content goes", async || {
        api.get("/api/v1/namespaces/n1/serviceaccounts/default").await.code == 404
    })
    .await;
    assert_eq!(api.get("/api/v1/namespaces/n1").await.code, 200, "the finalizer holds it");
    api.patch("/api/v1/namespaces/n1/configmaps/held", "merge", json!({"metadata": {"finalizers": null}}))
        .await;
    until("the namespace goes", async || api.get("/api/v1/namespaces/n1").await.code == 404).await;
    assert_eq!(api.delete("/api/v1/namespaces/default", Value::Null).await.code, 403);
}

#[tokio::test]
async fn events_have_two_groups() {
    let api = Api::new().await;
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "hello",
        "reason": "R", "type": "Normal", "action": "A", "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    assert_eq!(api.post("/apis/events.k8s.io/v1/namespaces/default/events", event).await.code, 201);
    let core = api.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=p").await.body;
    assert_eq!((&core["items"][0]["message"], &core["apiVersion"]), (&json!("hello"), &json!("v1")));
    let new = api.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await.body;
    assert_eq!((&new["note"], new.get("message")), (&json!("hello"), None));
}

#[tokio::test]
async fn permissions() {
    let api = Api(ApiServer::open(Config { access: Access::Rbac, ..Config::default() }).await.unwrap());
    api.0.add_token("bob-token", "bob", &["dev"]);
    let bob = [("authorization", "Bearer bob-token"), ("content-type", "application/json")];
    let denied = read(api.raw("GET", PODS, &bob, Vec::new()).await).await;
    let want = "pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"";
    assert_eq!((denied.code, &denied.body["message"]), (403, &json!(want)));
    assert_eq!(api.raw("GET", PODS, &[("authorization", "Bearer no")], Vec::new()).await.status(), 401);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    api.post(&format!("{rbac}/roles"), json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]})).await;
    api.post(&format!("{rbac}/rolebindings"), json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}, "subjects": [{"kind": "Group", "name": "dev"}]})).await;
    assert_eq!(api.raw("GET", PODS, &bob, Vec::new()).await.status(), 200);
    assert_eq!(api.raw("GET", CM, &bob, Vec::new()).await.status(), 403);
    let review =
        json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}})
            .to_string();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = read(api.raw("POST", path, &bob, review.into_bytes()).await).await;
    assert_eq!((answer.code, &answer.body["status"]["allowed"]), (201, &json!(true)));
    let asked =
        api.post("/api/v1/namespaces/default/serviceaccounts/default/token", json!({"spec": {}})).await.body;
    let token = format!("Bearer {}", asked["status"]["token"].as_str().unwrap());
    let who = read(
        api.raw(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &[("authorization", &token)],
            b"{}".to_vec(),
        )
        .await,
    )
    .await;
    assert_eq!(who.body["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    let short = api
        .post(
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            json!({"spec": {"expirationSeconds": 5}}),
        )
        .await;
    assert_eq!(short.code, 422);
}

#[tokio::test]
async fn discovery_is_revalidated() {
    let api = Api::new().await;
    let accept = ("accept", "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io");
    let first = api.raw("GET", "/apis", &[accept], Vec::new()).await;
    let tag = first.headers()["etag"].to_str().unwrap().to_string();
    let second = api.raw("GET", "/apis", &[accept, ("if-none-match", &tag)], Vec::new()).await;
    assert_eq!(second.status(), 304);
    assert!(second.into_body().collect().await.unwrap().to_bytes().is_empty());
    let version = api.get("/version").await.body;
    assert_eq!((&version["major"], &version["gitVersion"]), (&json!("1"), &json!("v1.36.0+fleet")));
    assert_eq!(api.get("/apis/apps/v1/bogus").await.code, 404);
    assert_eq!(api.call("POST", &format!("{CM}/a"), "application/json", cm("a")).await.code, 405);
}

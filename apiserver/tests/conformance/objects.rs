//! Creating, changing and deleting objects.

use crate::api::{Api, config_map, deployment, pod};
use serde_json::{Value, json};

#[tokio::test]
async fn creating() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let a = api.post(&path, json!({"metadata": {"name": "a"}})).await.expect(201).body;
    assert_eq!(
        (&a["kind"], &a["apiVersion"], &a["metadata"]["namespace"]),
        (&json!("ConfigMap"), &json!("v1"), &json!(api.ns))
    );
    assert!(a["metadata"]["uid"].is_string() && a["metadata"]["creationTimestamp"].is_string());
    let again = api.post(&path, config_map("a")).await.fails(409, "AlreadyExists");
    assert_eq!(again.message(), "configmaps \"a\" already exists");
    assert_eq!(again.body["details"], json!({"name": "a", "kind": "configmaps"}));
    let missing =
        api.post("/api/v1/namespaces/not-there/configmaps", config_map("a")).await.fails(404, "NotFound");
    assert_eq!(missing.body["details"]["kind"], "namespaces");
    api.post(&path, json!({"metadata": {"name": "b", "namespace": "other"}})).await.fails(400, "BadRequest");
    let kind =
        api.post(&path, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}})).await;
    kind.fails(400, "BadRequest");
    let versioned =
        api.post(&path, json!({"metadata": {"name": "b", "resourceVersion": "1"}})).await.expect(500);
    assert_eq!(versioned.body.get("reason"), None, "{}", versioned.text);
    api.get(&format!("{path}/nope")).await.fails(404, "NotFound");

    let short = api.post(&path, json!({"metadata": {"generateName": "gen-"}})).await.expect(201).body;
    let name = short["metadata"]["name"].as_str().unwrap();
    let tail = name.strip_prefix("gen-").unwrap();
    assert!(tail.len() == 5 && tail.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{name}");
    let long = api.post(&path, json!({"metadata": {"generateName": "a".repeat(71)}})).await.expect(201).body;
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);

    // The server's own fields are the server's.
    let forged = json!({"metadata": {"name": "own", "uid": "x", "generation": 9, "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z"}});
    let own = api.post(&path, forged).await.expect(201).body;
    assert_ne!(own["metadata"]["uid"], "x");
    assert_ne!(own["metadata"]["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(own["metadata"].get("deletionTimestamp"), None);
    let mut p = pod("p");
    p["status"] = json!({"phase": "Running"});
    let p = api.post(&api.core("pods"), p).await.expect(201).body;
    assert_eq!((&p["status"]["phase"], &p["metadata"]["generation"]), (&json!("Pending"), &json!(1)));
    api.done().await;
}

#[tokio::test]
async fn field_validation() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let bogus = |name: &str| json!({"metadata": {"name": name}, "bogus": 1, "other": {"x": 2}});
    let strict =
        api.post(&format!("{path}?fieldValidation=Strict"), bogus("c")).await.fails(400, "BadRequest");
    assert!(
        strict.message().contains("unknown field \"bogus\"")
            && strict.message().contains("unknown field \"other\""),
        "{}",
        strict.text
    );
    let warned = api.post(&path, bogus("c")).await.expect(201);
    let mut warnings = warned.warnings();
    warnings.sort();
    assert_eq!(warnings, ["299 - \"unknown field \\\"bogus\\\"\"", "299 - \"unknown field \\\"other\\\"\""]);
    assert_eq!(warned.body.get("bogus"), None);
    let silent = api.post(&format!("{path}?fieldValidation=Ignore"), bogus("d")).await.expect(201);
    assert!(silent.warnings().is_empty());
    let json_type = [("content-type", "application/json")];
    let twice = r#"{"metadata":{"name":"e"},"data":{"a":"1","a":"2"}}"#;
    let strict = api
        .raw("POST", &format!("{path}?fieldValidation=Strict"), &json_type, twice)
        .await
        .fails(400, "BadRequest");
    assert!(strict.message().contains("duplicate field \"data.a\""), "{}", strict.text);
    let warned = api.raw("POST", &path, &json_type, twice).await.expect(201);
    assert!(warned.warnings()[0].contains("duplicate field"), "{:?}", warned.warnings());
    assert_eq!(warned.body["data"]["a"], "2", "the last one counts");
    let bad = api.post(&format!("{path}?fieldValidation=Maybe"), config_map("f")).await.fails(422, "Invalid");
    assert_eq!(
        (&bad.body["details"]["kind"], &bad.body["details"]["group"]),
        (&json!("CreateOptions"), &json!("meta.k8s.io"))
    );
    // A typed field of another type is no matter of validation.
    api.post(&path, json!({"metadata": {"name": "g"}, "data": "text"})).await.fails(400, "BadRequest");
    api.post(&path, json!({"metadata": {"name": "g"}, "data": {"a": 1}})).await.fails(400, "BadRequest");
    api.patch(&format!("{path}/c?fieldValidation=Strict"), "merge", json!({"bogus": 1}))
        .await
        .fails(422, "Invalid");
    api.put(&format!("{path}/c?fieldValidation=Strict"), bogus("c")).await.fails(400, "BadRequest");
    api.done().await;
}

#[tokio::test]
async fn dry_runs_change_nothing() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let dry = api.post(&format!("{path}?dryRun=All"), config_map("a")).await.expect(201);
    assert_eq!(dry.body["metadata"].get("resourceVersion"), None);
    api.get(&format!("{path}/a")).await.expect(404);
    let bad = api.post(&format!("{path}?dryRun=Some"), config_map("a")).await.fails(422, "Invalid");
    assert_eq!(bad.body["details"]["kind"], "CreateOptions");
    let deployments = api.group("apps/v1", "deployments");
    let made = api.post(&deployments, deployment("d")).await.expect(201);
    let at = format!("{deployments}/d?dryRun=All");
    let dry = api.patch(&at, "merge", json!({"spec": {"replicas": 7}})).await.expect(200);
    assert_eq!((&dry.body["spec"]["replicas"], &dry.body["metadata"]["generation"]), (&json!(7), &json!(2)));
    assert_eq!(dry.rv(), made.rv(), "the version stays");
    api.delete(&at, Value::Null).await.expect(200);
    let after = api.get(&format!("{deployments}/d")).await.expect(200);
    assert_eq!(after.body["spec"]["replicas"], 1);
    api.done().await;
}

#[tokio::test]
async fn updating() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let at = format!("{path}/a");
    let a = api.post(&path, config_map("a")).await.expect(201);
    let same = api.put(&at, a.body.clone()).await.expect(200);
    assert_eq!(same.rv(), a.rv(), "nothing changed");
    let mut b = a.body.clone();
    b["data"]["a"] = json!("2");
    let b = api.put(&at, b).await.expect(200);
    let stale = api.put(&at, a.body.clone()).await.fails(409, "Conflict");
    assert!(stale.message().contains("the object has been modified"), "{}", stale.text);
    assert_eq!(stale.body["details"], json!({"name": "a", "kind": "configmaps"}));
    let blind = api.put(&at, config_map("a")).await.expect(200);
    assert_ne!(blind.rv(), b.rv(), "an update without a version wins");
    let uid = api.put(&at, json!({"metadata": {"name": "a", "uid": "x"}})).await.fails(409, "Conflict");
    assert!(uid.message().contains("UID in precondition: x, UID in object meta"), "{}", uid.text);
    api.put(&at, config_map("b")).await.fails(400, "BadRequest");
    api.put(&format!("{path}/none"), config_map("none")).await.fails(404, "NotFound");
    // What the client sends of the server's fields is ignored.
    let forged = json!({"metadata": {"name": "a", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 5}, "data": {"x": "y"}});
    let kept = api.put(&at, forged).await.expect(200).body;
    assert_eq!(kept["metadata"]["creationTimestamp"], a.body["metadata"]["creationTimestamp"]);
    assert_eq!(kept["data"], json!({"x": "y"}), "a put replaces");

    // Generation counts changes of the spec alone.
    let deployments = api.group("apps/v1", "deployments");
    let d = api.post(&deployments, deployment("d")).await.expect(201).body;
    assert_eq!(d["metadata"]["generation"], 1);
    let at = format!("{deployments}/d");
    let label = api.patch(&at, "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200).body;
    assert_eq!(label["metadata"]["generation"], 1);
    let status = api
        .patch(&format!("{at}/status"), "merge", json!({"status": {"replicas": 3}, "spec": {"replicas": 9}}))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&status["status"]["replicas"], &status["spec"]["replicas"], &status["metadata"]["generation"]),
        (&json!(3), &json!(1), &json!(1))
    );
    let spec = api
        .patch(&at, "merge", json!({"spec": {"replicas": 4}, "status": {"replicas": 8}}))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&spec["spec"]["replicas"], &spec["status"]["replicas"], &spec["metadata"]["generation"]),
        (&json!(4), &json!(3), &json!(2))
    );
    let scale = api.get(&format!("{at}/scale")).await.expect(200).body;
    assert_eq!(
        (&scale["kind"], &scale["apiVersion"], &scale["spec"]["replicas"], &scale["status"]["selector"]),
        (&json!("Scale"), &json!("autoscaling/v1"), &json!(4), &json!("app=d"))
    );
    let scaled =
        api.patch(&format!("{at}/scale"), "merge", json!({"spec": {"replicas": 6}})).await.expect(200).body;
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(6)));
    // A controller may have written its status in between.
    loop {
        let mut whole = api.get(&format!("{at}/scale")).await.expect(200).body;
        whole["spec"]["replicas"] = json!(2);
        let answer = api.put(&format!("{at}/scale"), whole).await;
        if answer.code != 409 {
            answer.expect(200);
            break;
        }
    }
    assert_eq!(api.get(&at).await.body["spec"]["replicas"], 2);
    api.patch(&format!("{at}/scale"), "merge", json!({"spec": {"replicas": -1}})).await.fails(422, "Invalid");
    api.done().await;
}

#[tokio::test]
async fn patching() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let at = format!("{path}/a");
    let a = api.post(&path, config_map("a")).await.expect(201);
    let merged = api.patch(&at, "merge", json!({"data": {"b": "x", "a": null}})).await.expect(200);
    assert_eq!(merged.body["data"], json!({"b": "x"}));
    let same = api.patch(&at, "merge", json!({"data": {"b": "x"}})).await.expect(200);
    assert_eq!(same.rv(), merged.rv());
    api.patch(&at, "merge", json!({"metadata": {"resourceVersion": a.rv()}, "data": {"b": "y"}}))
        .await
        .fails(409, "Conflict");
    let tested = json!([{"op": "test", "path": "/data/b", "value": "x"}, {"op": "replace", "path": "/data/b", "value": "z"}]);
    assert_eq!(api.patch(&at, "json", tested.clone()).await.expect(200).body["data"]["b"], "z");
    let failed = api.patch(&at, "json", tested).await.fails(422, "Invalid");
    assert_eq!(failed.body["details"], json!({}), "{}", failed.text);
    api.patch(&at, "json", json!([{"op": "remove", "path": "/data/none"}])).await.fails(422, "Invalid");
    api.patch(&at, "json", json!({"not": "a list"})).await.fails(400, "BadRequest");
    api.patch(&format!("{path}/none"), "merge", json!({})).await.fails(404, "NotFound");
    api.patch(&at, "merge", json!({"metadata": {"name": "b"}})).await.expect(400);
    let strange = api
        .raw("PATCH", &at, &[("content-type", "application/json")], "{}")
        .await
        .fails(415, "UnsupportedMediaType");
    assert_eq!(strange.message(), "415: Unsupported Media Type");
    api.patch(&format!("{at}?force=true"), "merge", json!({})).await.fails(422, "Invalid");

    let pods = api.core("pods");
    let mut two = pod("p");
    two["spec"]["containers"] = json!([{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:1"}]);
    api.post(&pods, two).await.expect(201);
    let image = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "a", "image": "a:2"}]}});
    let p = api.patch(&format!("{pods}/p"), "strategic-merge", image).await.expect(200).body;
    let containers = &p["spec"]["containers"];
    assert_eq!(
        (&containers[0]["image"], &containers[0]["env"][0]["value"], &containers[1]["image"]),
        (&json!("a:2"), &json!("1"), &json!("b:1"))
    );
    assert_eq!(p["metadata"]["generation"], 2);
    let frozen = api
        .patch(&format!("{pods}/p"), "merge", json!({"spec": {"restartPolicy": "Never"}}))
        .await
        .fails(422, "Invalid");
    assert!(frozen.causes().contains(&("FieldValueForbidden", "spec")), "{}", frozen.text);
    api.done().await;
}

#[tokio::test]
async fn applying() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    let at = |m: &str| format!("{path}/d?fieldManager={m}");
    let made = api.patch(&at("a"), "apply", deployment("d")).await.expect(201);
    let entry = made.body["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["manager"] == "a")
        .unwrap()
        .clone();
    assert_eq!((&entry["operation"], &entry["fieldsType"]), (&json!("Apply"), &json!("FieldsV1")));
    let owned = entry["fieldsV1"].to_string();
    assert!(
        owned.contains("f:image") && !owned.contains("f:imagePullPolicy") && !owned.contains("f:replicas"),
        "{owned}"
    );
    let same = api.patch(&at("a"), "apply", deployment("d")).await.expect(200);
    assert_eq!(same.rv(), made.rv());
    api.patch(&format!("{path}/d"), "apply", deployment("d")).await.fails(422, "Invalid");
    let mut own = deployment("d");
    own["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    api.patch(&at("a"), "apply", own).await.fails(400, "BadRequest");
    let mut other = deployment("d");
    other["apiVersion"] = json!("apps/v1beta1");
    api.patch(&at("a"), "apply", other).await.fails(400, "BadRequest");

    // Equal values are shared, others conflict, force takes them.
    let mut image = deployment("d");
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("i:2");
    api.patch(&at("b"), "apply", deployment("d")).await.expect(200);
    let lost = api.patch(&at("b"), "apply", image.clone()).await.fails(409, "Conflict");
    assert!(lost.message().starts_with("Apply failed with 1 conflict"), "{}", lost.text);
    assert_eq!(lost.causes(), [("FieldManagerConflict", ".spec.template.spec.containers[name=\"c\"].image")]);
    assert_eq!(lost.body["details"]["causes"][0]["message"], "conflict with \"a\"");
    let won = api.patch(&format!("{}&force=true", at("b")), "apply", image).await.expect(200);
    assert_eq!(won.body["spec"]["template"]["spec"]["containers"][0]["image"], "i:2");

    // What one applied alone goes when it is left out; what others hold stays.
    let config = api.core("configmaps");
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    let at = |m: &str| format!("{config}/m?fieldManager={m}");
    api.patch(&at("a"), "apply", map(json!({"x": "1", "y": "1"}))).await.expect(201);
    api.patch(&at("b"), "apply", map(json!({"y": "1"}))).await.expect(200);
    let left = api.patch(&at("a"), "apply", map(json!({}))).await.expect(200).body;
    assert_eq!(left["data"], json!({"y": "1"}));
    let unknown = api
        .patch(
            &at("a"),
            "apply",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "bogus": 1}),
        )
        .await;
    assert!(matches!(unknown.code, 400 | 500), "{}", unknown.text);
    api.done().await;
}

#[tokio::test]
async fn deleting() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let plain = api.post(&path, config_map("plain")).await.expect(201).body;
    let gone = api
        .delete(&format!("{path}/plain"), json!({"propagationPolicy": "Background"}))
        .await
        .expect(200)
        .body;
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(
        (&gone["details"]["uid"], &gone["details"]["kind"], &gone["details"]["name"]),
        (&plain["metadata"]["uid"], &json!("configmaps"), &json!("plain"))
    );
    api.delete(&format!("{path}/plain"), Value::Null).await.fails(404, "NotFound");

    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    api.post(&path, held).await.expect(201);
    let at = format!("{path}/held");
    let once = api.delete(&at, Value::Null).await.expect(200);
    assert!(once.body["metadata"]["deletionTimestamp"].is_string(), "{}", once.text);
    assert_eq!(once.body["metadata"]["deletionGracePeriodSeconds"], 0);
    let twice = api.delete(&at, Value::Null).await.expect(200);
    assert_eq!(once.rv(), twice.rv());
    let added = json!({"metadata": {"finalizers": ["test.dev/hold", "test.dev/b"]}});
    api.patch(&at, "merge", added).await.fails(422, "Invalid");
    api.patch(&at, "merge", json!({"data": {"x": "y"}})).await.expect(200);
    let last = api.patch(&at, "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(last.body["metadata"]["name"], "held");
    api.get(&at).await.expect(404);

    // Preconditions.
    let a = api.post(&path, config_map("a")).await.expect(201);
    let at = format!("{path}/a");
    let uid = api.delete(&at, json!({"preconditions": {"uid": "x"}})).await.fails(409, "Conflict");
    assert!(uid.message().contains("the UID in the precondition (x) does not match"), "{}", uid.text);
    api.delete(&at, json!({"preconditions": {"resourceVersion": "1"}})).await.fails(409, "Conflict");
    api.delete(&at, json!({"orphanDependents": true, "propagationPolicy": "Orphan"}))
        .await
        .fails(422, "Invalid");
    api.delete(&at, json!({"propagationPolicy": "Sideways"})).await.fails(422, "Invalid");
    api.delete(
        &format!("{at}?propagationPolicy=Background"),
        json!({"preconditions": {"uid": a.body["metadata"]["uid"], "resourceVersion": a.rv()}}),
    )
    .await
    .expect(200);

    // A pod with a node is given time; one without goes at once. Both answer with the pod.
    let pods = api.core("pods");
    api.post(&pods, pod("free")).await.expect(201);
    assert_eq!(api.delete(&format!("{pods}/free"), Value::Null).await.expect(200).body["kind"], "Pod");
    api.get(&format!("{pods}/free")).await.expect(404);
    api.post(&pods, pod("bound")).await.expect(201);
    let bind = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    let done = api.post(&format!("{pods}/bound/binding"), bind.clone()).await.expect(201);
    assert_eq!(done.body["status"], "Success");
    let again = api.post(&format!("{pods}/bound/binding"), bind).await.fails(409, "Conflict");
    assert_eq!(again.body["details"]["kind"], "pods/binding");
    let bound = api.get(&format!("{pods}/bound")).await.body;
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert!(
        bound["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == "PodScheduled" && c["status"] == "True")
    );
    let going = api.delete(&format!("{pods}/bound"), Value::Null).await.expect(200).body;
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    api.delete(&format!("{pods}/bound"), json!({"gracePeriodSeconds": 0})).await.expect(200);
    api.get(&format!("{pods}/bound")).await.expect(404);

    // Collections, by selector; the answer lists what went.
    for (name, app) in [("l1", "x"), ("l2", "x"), ("l3", "y")] {
        api.post(&path, json!({"metadata": {"name": name, "labels": {"app": app}}})).await.expect(201);
    }
    let list = api.delete(&format!("{path}?labelSelector=app%3Dx"), Value::Null).await.expect(200).body;
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("ConfigMapList"), 2));
    api.get(&format!("{path}/l3")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn evictions_honour_budgets() {
    let api = Api::new().await;
    let pods = api.core("pods");
    for name in ["a", "b"] {
        let mut p = pod(name);
        p["metadata"]["labels"] = json!({"app": "x"});
        api.post(&pods, p).await.expect(201);
        let bind = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        api.post(&format!("{pods}/{name}/binding"), bind).await.expect(201);
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        api.patch(&format!("{pods}/{name}/status"), "strategic-merge", running).await.expect(200);
    }
    let budgets = api.group("policy/v1", "poddisruptionbudgets");
    let budget = json!({"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    api.post(&budgets, budget).await.expect(201);
    if api.embedded().is_none() {
        // Without a controller manager the budget's status is ours to write.
        let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}});
        api.patch(&format!("{budgets}/keep/status"), "merge", status).await.expect(200);
    }
    let at = format!("{budgets}/keep");
    let one = api.until(&at, |a| a.body["status"]["disruptionsAllowed"] == 1).await.body;
    assert_eq!((&one["status"]["expectedPods"], &one["status"]["desiredHealthy"]), (&json!(2), &json!(1)));
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": api.ns}});
    let gone = api.post(&format!("{pods}/a/eviction"), evict("a")).await.expect(201);
    assert_eq!(gone.body["status"], "Success");
    let refused = api.post(&format!("{pods}/b/eviction"), evict("b")).await.fails(429, "TooManyRequests");
    assert_eq!(refused.causes()[0].0, "DisruptionBudget", "{}", refused.text);
    assert!(
        refused.message().starts_with("Cannot evict pod as it would violate the pod's disruption budget.")
    );
    api.delete(&at, Value::Null).await.expect(200);
    api.post(&format!("{pods}/b/eviction"), evict("b")).await.expect(201);
    api.post(&format!("{pods}/none/eviction"), evict("none")).await.fails(404, "NotFound");
    api.done().await;
}

#[tokio::test]
async fn services_get_addresses_and_keep_them() {
    let api = Api::new().await;
    let path = api.core("services");
    let service = |name: &str, spec: Value| {
        let mut body = json!({"metadata": {"name": name}, "spec": spec});
        if body["spec"]["ports"].is_null() {
            body["spec"]["ports"] = json!([{"port": 80}]);
        }
        body
    };
    let one = api.post(&path, service("one", json!({}))).await.expect(201).body;
    let ip = one["spec"]["clusterIP"].as_str().unwrap().to_string();
    assert!(ip.parse::<std::net::Ipv4Addr>().is_ok(), "{ip}");
    assert_eq!(one["spec"]["clusterIPs"], json!([ip]));
    assert_eq!((&one["spec"]["ipFamilies"], &one["spec"]["type"]), (&json!(["IPv4"]), &json!("ClusterIP")));
    let two = api.post(&path, service("two", json!({}))).await.expect(201).body;
    assert_ne!(two["spec"]["clusterIP"], one["spec"]["clusterIP"]);
    let taken = api.post(&path, service("three", json!({"clusterIP": ip}))).await.fails(422, "Invalid");
    assert!(taken.message().contains("provided IP is already allocated"), "{}", taken.text);
    api.post(&path, service("three", json!({"clusterIP": "192.0.2.1"}))).await.fails(422, "Invalid");
    let headless = api.post(&path, service("headless", json!({"clusterIP": "None"}))).await.expect(201).body;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));

    // A write that does not name the address keeps it; one that changes it is refused.
    let item = format!("{path}/one");
    let put = service("one", json!({"selector": {"app": "x"}}));
    assert_eq!(api.put(&item, put).await.expect(200).body["spec"]["clusterIP"], json!(ip));
    let other = json!({"spec": {"clusterIP": "10.96.250.250", "clusterIPs": ["10.96.250.250"]}});
    api.patch(&item, "merge", other).await.fails(422, "Invalid");

    // Node ports come with the type and go with it.
    let open = api.patch(&item, "merge", json!({"spec": {"type": "NodePort"}})).await.expect(200).body;
    let port = open["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30_000..=32_767).contains(&port), "{port}");
    let again = api.patch(&item, "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200).body;
    assert_eq!(again["spec"]["ports"][0]["nodePort"], port);
    let same = json!({"type": "NodePort", "ports": [{"port": 81, "nodePort": port}]});
    let refused = api.post(&path, service("four", same)).await.fails(422, "Invalid");
    assert!(refused.message().contains("provided port is already allocated"), "{}", refused.text);
    let closed = api.patch(&item, "merge", json!({"spec": {"type": "ClusterIP"}})).await.expect(200).body;
    assert!(closed["spec"]["ports"][0].get("nodePort").is_none(), "{closed}");
    let name = api
        .post(&path, service("out", json!({"type": "ExternalName", "externalName": "x.example.com"})))
        .await;
    assert!(name.expect(201).body["spec"].get("clusterIP").is_none());

    // What is deleted can be had again.
    api.delete(&item, Value::Null).await.expect(200);
    api.post(&path, service("three", json!({"clusterIP": ip}))).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn quotas_bound_what_a_namespace_holds() {
    let api = Api::new().await;
    let quotas = api.core("resourcequotas");
    let hard = json!({"secrets": "2", "count/deployments.apps": "1", "requests.cpu": "2", "limits.memory": "1Gi", "pods": "3"});
    api.post(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.expect(201);
    let at = format!("{quotas}/q");
    let known = api.until(&at, |a| a.body["status"]["used"]["secrets"] == "0").await.body;
    assert_eq!((&known["status"]["hard"], &known["status"]["used"]["requests.cpu"]), (&hard, &json!("0")));

    // Many at once never pass the bound together.
    let maps = api.core("secrets");
    let secret = |name: String| json!({"metadata": {"name": name}});
    let all = (0..8).map(|i| {
        let (api, maps) = (api.clone(), maps.clone());
        tokio::spawn(async move { api.post(&maps, secret(format!("m{i}"))).await.code })
    });
    let mut codes = Vec::new();
    for one in all.collect::<Vec<_>>() {
        codes.push(one.await.unwrap());
    }
    codes.sort();
    assert_eq!(codes, [201, 201, 403, 403, 403, 403, 403, 403]);
    let refused = api.post(&maps, secret("more".into())).await.fails(403, "Forbidden");
    let text = "secrets \"more\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=2, limited: secrets=2";
    assert_eq!(refused.message(), text);
    api.delete(&maps, Value::Null).await.expect(200);
    api.until(&at, |a| a.body["status"]["used"]["secrets"] == "0").await;
    api.post(&maps, secret("more".into())).await.expect(201);

    let deployments = api.group("apps/v1", "deployments");
    api.post(&deployments, deployment("one")).await.expect(201);
    api.post(&deployments, deployment("two")).await.fails(403, "Forbidden");

    // Amounts: every container has to state what a quota counts, and an ended pod gives its share back.
    let pods = api.core("pods");
    let silent = api.post(&pods, pod("silent")).await.fails(403, "Forbidden");
    assert!(
        silent.message().contains("failed quota: q: must specify limits.memory for: c; requests.cpu for: c"),
        "{}",
        silent.text
    );
    let asking = |name: &str, cpu: &str, memory: &str| {
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": cpu}, "limits": {"memory": memory}});
        pod
    };
    api.post(&pods, asking("wrong", "two", "1Mi")).await.fails(400, "BadRequest");
    api.post(&pods, asking("a", "1500m", "512Mi")).await.expect(201);
    let refused = api.post(&pods, asking("b", "600m", "1Mi")).await.fails(403, "Forbidden");
    assert!(
        refused.message().ends_with("exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=1500m, limited: requests.cpu=2"),
        "{}",
        refused.text
    );
    let ended = json!({"status": {"phase": "Succeeded"}});
    api.patch(&format!("{pods}/a/status"), "merge", ended).await.expect(200);
    api.until(&at, |a| a.body["status"]["used"]["requests.cpu"] == "0").await;
    api.post(&pods, asking("b", "600m", "1Mi")).await.expect(201);
    assert_eq!(api.get(&at).await.body["status"]["used"]["requests.cpu"], "600m");
    api.done().await;
}

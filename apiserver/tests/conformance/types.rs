//! What is served: discovery, schemas, custom resources, namespaces, dependents.

use crate::api::{Api, CRDS, TABLE, config_map, random};
use serde_json::{Value, json};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn version(name: &str, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": object(json!({"spec": object(spec), "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}))}})
}

#[tokio::test]
async fn discovery() {
    let api = Api::new().await;
    let version = api.get("/version?timeout=32s").await.expect(200).body;
    for part in ["major", "minor"] {
        assert!(version[part].as_str().unwrap().chars().all(|c| c.is_ascii_digit()), "{version}");
    }
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."));
    assert_eq!(api.get("/healthz").await.expect(200).text, "ok");
    for path in ["/livez", "/readyz", "/readyz/ping"] {
        api.get(path).await.expect(200);
    }
    assert!(api.get("/readyz?verbose").await.expect(200).text.contains("[+]ping ok"));
    assert_eq!(api.get("/api").await.expect(200).body["kind"], "APIVersions");
    let groups = api.get("/apis").await.expect(200).body;
    assert_eq!(groups["kind"], "APIGroupList");
    for group in groups["groups"].as_array().unwrap() {
        let preferred = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        let list = api.get(&format!("/apis/{preferred}")).await;
        if list.code == 404 && api.embedded().is_none() {
            // Another test's group has ended meanwhile.
            continue;
        }
        let list = list.expect(200).body;
        assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!(preferred)));
        let one = api.get(&format!("/apis/{}", group["name"].as_str().unwrap())).await.expect(200).body;
        assert_eq!(
            (&one["kind"], &one["preferredVersion"]["groupVersion"]),
            (&json!("APIGroup"), &json!(preferred))
        );
    }
    let core = api.get("/api/v1").await.expect(200).body;
    let find = |name: &str| {
        core["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned().unwrap_or_default()
    };
    assert_eq!((&find("pods")["shortNames"], &find("pods")["singularName"]), (&json!(["po"]), &json!("pod")));
    assert_eq!(find("pods/eviction")["group"], "policy");
    for is_core in ["/api", "/apis"] {
        let first = api.get_as(is_core, V2).await.expect(200);
        assert_eq!(first.headers["content-type"], V2);
        let tag = first.headers["etag"].to_str().unwrap().to_string();
        let again =
            api.raw("GET", is_core, &[("accept", V2), ("if-none-match", &tag)], Vec::new()).await.expect(304);
        assert!(again.text.is_empty());
    }
    // Paths that are not there, methods that are not.
    assert_eq!(api.get("/nope").await.expect(404).text.trim(), "404 page not found");
    api.get("/apis/nope.example.com/v1/things").await.expect(404);
    let unknown = api.get("/apis/apps/v1/bogus").await.expect(404);
    assert!(
        unknown.text.contains("could not find the requested resource") || unknown.text.contains("404"),
        "{}",
        unknown.text
    );
    api.post(&format!("{}/x", api.core("configmaps")), json!({})).await.fails(405, "MethodNotAllowed");
    api.done().await;
}

#[tokio::test]
async fn a_new_kind_is_served_whole() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let name = format!("things.{group}");
    let spec = json!({"max": {"type": "integer", "default": 10, "minimum": 1}, "color": {"type": "string", "enum": ["red", "blue"]},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "port": {"x-kubernetes-int-or-string": true},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "v": {"type": "integer", "default": 5}}}}});
    let mut v1 = version("v1", spec);
    v1["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.max", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.selector"}});
    v1["additionalPrinterColumns"] = json!([{"name": "Max", "type": "integer", "jsonPath": ".spec.max"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    v1["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    v1["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = json!([{"rule": "!has(self.color) || self.color != 'blue' || self.max < 100", "message": "blue is small"},
            {"rule": "!has(oldSelf.name) || self.name == oldSelf.name", "message": "name stays"}]);
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]}, "versions": [v1]}});
    api.post(CRDS, crd).await.expect(201);
    let made = api.until(&format!("{CRDS}/{name}"), |a| a.text.contains("InitialNamesAccepted")).await.body;
    assert_eq!(made["status"]["acceptedNames"]["listKind"], "ThingList");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let path = api.group(&format!("{group}/v1"), "things");
    api.until_code(&path, 200).await;
    let start = std::time::Instant::now();
    let found = loop {
        let list = api.get_as("/apis", V2).await.body;
        let hit = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|g| g["metadata"]["name"] == group.as_str())
            .cloned();
        if let Some(hit) = hit {
            break hit["versions"][0]["resources"][0].clone();
        }
        assert!(start.elapsed().as_secs() < 30, "never discovered");
    };
    assert_eq!(
        (&found["shortNames"], &found["categories"], &found["scope"]),
        (&json!(["th"]), &json!(["all"]), &json!("Namespaced"))
    );
    let subs: Vec<&str> = found["subresources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["subresource"].as_str().unwrap())
        .collect();
    assert!(subs.contains(&"status") && subs.contains(&"scale"), "{subs:?}");

    let thing = |name: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}, "spec": spec});
    api.post(&path, json!({"metadata": {"name": "x"}, "spec": {}})).await.fails(400, "BadRequest");
    let t = api.post(&path, thing("t", json!({"max": null, "zzz": 1, "free": {"k": 1}, "items": [{"name": "i"}], "name": "abc", "port": "http"}))).await.expect(201);
    assert_eq!(
        t.body["spec"],
        json!({"max": 10, "free": {"k": 1}, "items": [{"name": "i", "v": 5}], "name": "abc", "port": "http"})
    );
    assert_eq!(t.warnings(), ["299 - \"unknown field \\\"spec.zzz\\\"\""]);
    let bad = api.post(&path, thing("bad", json!({"max": 0, "color": "green", "name": "A", "tags": ["a", "a"], "items": [{"name": "x"}, {"name": "x"}, {}]}))).await.fails(422, "Invalid");
    let fields: Vec<&str> = bad.causes().iter().map(|c| c.1).collect();
    for field in
        ["spec.max", "spec.color", "spec.name", "spec.tags[1]", "spec.items[1]", "spec.items[2].name"]
    {
        assert!(fields.contains(&field), "{field} in {}", bad.text);
    }
    assert_eq!(bad.body["details"]["kind"], "Thing");
    api.post(&path, thing("bad", json!({"max": "many"}))).await.fails(422, "Invalid");
    api.post(&path, thing("bad", json!({"name": "abcdef"}))).await.fails(422, "Invalid");
    let rule =
        api.post(&path, thing("bad", json!({"color": "blue", "max": 100}))).await.fails(422, "Invalid");
    assert!(rule.message().contains("blue is small"), "{}", rule.text);
    let stays = api
        .patch(&format!("{path}/t"), "merge", json!({"spec": {"name": "other"}}))
        .await
        .fails(422, "Invalid");
    assert!(stays.message().contains("name stays"), "{}", stays.text);
    let smp = api
        .patch(&format!("{path}/t"), "strategic-merge", json!({}))
        .await
        .fails(415, "UnsupportedMediaType");
    for accepted in ["json-patch", "merge-patch", "apply-patch"] {
        assert!(smp.message().contains(accepted), "{}", smp.text);
    }
    let status = json!({"status": {"n": 3, "selector": "a=b", "conditions": [{"type": "Ready", "status": "False"}]}, "spec": {"max": 99}, "metadata": {"labels": {"a": "b"}}});
    let s = api.patch(&format!("{path}/t/status"), "merge", status).await.expect(200).body;
    assert_eq!(
        (&s["spec"]["max"], &s["status"]["n"], &s["metadata"]["generation"], s["metadata"].get("labels")),
        (&json!(10), &json!(3), &json!(1), None)
    );
    let scale = api
        .patch(&format!("{path}/t/scale"), "merge", json!({"spec": {"replicas": 8}}))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]["replicas"], &scale["status"]["selector"]),
        (&json!(8), &json!(3), &json!("a=b"))
    );
    let table = api.get_as(&path, TABLE).await.expect(200).body;
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("t"), json!(8), json!("False")]);
    api.post(&path, thing("red", json!({"color": "red"}))).await.expect(201);
    let list = api.get(&format!("{path}?fieldSelector=spec.color%3Dred")).await.expect(200).body;
    assert_eq!((list["items"].as_array().unwrap().len(), &list["items"][0]["kind"]), (1, &json!("Thing")));
    api.get(&format!("{path}?fieldSelector=spec.max%3D1")).await.fails(400, "BadRequest");
    api.put(&format!("{path}/red"), thing("red", json!({}))).await.fails(422, "Invalid");

    // Schemas for explain and validation.
    let index =
        api.until("/openapi/v3", |a| a.body["paths"].get(format!("apis/{group}/v1")).is_some()).await.body;
    let url = index["paths"][format!("apis/{group}/v1")]["serverRelativeURL"].as_str().unwrap().to_string();
    let document = api.get(&url).await.expect(200).body;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(
        schemas.values().any(|s| s["x-kubernetes-group-version-kind"][0]["kind"] == "Thing"
            && s["properties"]["spec"].is_object()),
        "{schemas:?}"
    );
    let item = format!("/apis/{group}/v1/namespaces/{{namespace}}/things/{{name}}");
    let patch = &document["paths"][&item]["patch"];
    assert!(patch["parameters"].as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));

    // Gone with everything in it.
    let mut held = thing("held", json!({}));
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    api.post(&path, held).await.expect(201);
    api.delete(&format!("{CRDS}/{name}"), Value::Null).await.expect(200);
    api.until_code(&format!("{path}/t"), 404).await;
    let late = api.post(&path, thing("late", json!({}))).await;
    assert!(matches!(late.code, 403 | 405), "{}", late.text);
    api.patch(&format!("{path}/held"), "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.until_code(&format!("{CRDS}/{name}"), 404).await;
    api.until_code(&path, 404).await;
    api.done().await;
}

#[tokio::test]
async fn versions_share_their_objects() {
    let api = Api::new().await;
    let mut old =
        version("v1beta1", json!({"size": {"type": "integer"}, "old": {"type": "string", "default": "o"}}));
    old["storage"] = json!(false);
    old["deprecated"] = json!(true);
    let new = version(
        "v1",
        json!({"size": {"type": "integer"}, "old": {"type": "string"}, "extra": {"type": "string", "default": "e"}}),
    );
    let group = api.crd("boxes", "Box", json!([new, old])).await;
    let at = |v: &str| api.group(&format!("{group}/{v}"), "boxes");
    let body = |v: &str| json!({"apiVersion": format!("{group}/{v}"), "kind": "Box", "metadata": {"name": "b"}, "spec": {"size": 1}});
    let made = api.post(&at("v1beta1"), body("v1beta1")).await.expect(201);
    assert!(made.warnings()[0].contains("is deprecated"), "{:?}", made.warnings());
    assert_eq!(
        (&made.body["apiVersion"], &made.body["spec"]["old"]),
        (&json!(format!("{group}/v1beta1")), &json!("o"))
    );
    let same = api.get(&format!("{}/b", at("v1"))).await.expect(200).body;
    assert_eq!(
        (&same["apiVersion"], &same["spec"]),
        (&json!(format!("{group}/v1")), &json!({"size": 1, "old": "o", "extra": "e"})),
        "defaults on read"
    );
    let list = api.get(&at("v1beta1")).await.expect(200).body;
    assert_eq!(list["items"][0]["apiVersion"], format!("{group}/v1beta1"));
    let events = api.events(&format!("{}?watch=true", at("v1")), "application/json", 1).await;
    assert_eq!(
        (&events[0]["object"]["apiVersion"], &events[0]["object"]["spec"]["extra"]),
        (&json!(format!("{group}/v1")), &json!("e"))
    );
    api.delete(&format!("{CRDS}/boxes.{group}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn defaults_reach_objects_stored_before_them() {
    let api = Api::new().await;
    let group = api.crd("cups", "Cup", json!([version("v1", json!({"a": {"type": "string"}}))])).await;
    let path = api.group(&format!("{group}/v1"), "cups");
    let cup = json!({"apiVersion": format!("{group}/v1"), "kind": "Cup", "metadata": {"name": "c"}, "spec": {"a": "x"}});
    let made = api.post(&path, cup).await.expect(201);
    let at = format!("{CRDS}/cups.{group}");
    let defaults = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b", "value": {"type": "string", "default": "later"}}]);
    api.patch(&at, "json", defaults).await.expect(200);
    let read = api.until(&format!("{path}/c"), |a| a.body["spec"]["b"] == "later").await;
    assert_eq!(read.rv(), made.rv(), "nothing was written");
    let list = api.until(&path, |a| a.body["items"][0]["spec"]["b"] == "later").await;
    assert_eq!(list.body["items"][0]["spec"], json!({"a": "x", "b": "later"}));
    let events = api.events(&format!("{path}?watch=true&resourceVersion=0"), "application/json", 1).await;
    assert_eq!(events[0]["object"]["spec"]["b"], "later");
    let patched = api.patch(&format!("{path}/c"), "merge", json!({"spec": {"a": "y"}})).await.expect(200);
    assert_eq!(patched.body["spec"], json!({"a": "y", "b": "later"}));
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn definitions_are_checked() {
    let api = Api::new().await;
    let group = format!("{}.example.com", random("g"));
    let good = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("as.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "as", "kind": "A"}, "versions": [version("v1", json!({"x": {"type": "string"}}))]}});
    let at = format!("{CRDS}?dryRun=All");
    api.post(&at, good.clone()).await.expect(201);
    type Edit = fn(&mut Value);
    let wrong: [(&str, Edit); 8] = [
        ("name", |c| c["metadata"]["name"] = json!("bs.other.example.com")),
        ("scope", |c| c["spec"]["scope"] = json!("Galaxy")),
        ("no storage", |c| c["spec"]["versions"][0]["storage"] = json!(false)),
        ("no schema", |c| {
            c["spec"]["versions"][0].as_object_mut().unwrap().remove("schema");
        }),
        ("bad rule", |c| {
            c["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
                json!([{"rule": "self."}])
        }),
        ("no type", |c| {
            c["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] =
                json!({"description": "no type"})
        }),
        ("root type", |c| c["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("array")),
        ("two of a version", |c| {
            let mut v = c["spec"]["versions"][0].clone();
            v["storage"] = json!(false);
            c["spec"]["versions"].as_array_mut().unwrap().push(v);
        }),
    ];
    for (what, break_it) in wrong {
        let mut crd = good.clone();
        break_it(&mut crd);
        let refused = api.post(&at, crd).await;
        assert_eq!((refused.code, refused.reason()), (422, "Invalid"), "{what}: {}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn namespaces_come_and_go_whole() {
    let api = Api::new().await;
    let name = random("ns-");
    let at = format!("/api/v1/namespaces/{name}");
    let made = api.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.expect(201).body;
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], name);
    assert_eq!(
        (&made["status"]["phase"], &made["spec"]["finalizers"]),
        (&json!("Active"), &json!(["kubernetes"]))
    );
    if api.embedded().is_some() {
        api.get(&format!("{at}/serviceaccounts/default")).await.expect(200);
        api.get(&format!("{at}/configmaps/kube-root-ca.crt")).await.expect(200);
        let mut held = config_map("held");
        held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
        api.post(&format!("{at}/configmaps"), held).await.expect(201);
        api.post(&format!("{at}/secrets"), json!({"metadata": {"name": "s"}})).await.expect(201);
        let going = api.delete(&at, Value::Null).await.expect(200).body;
        assert_eq!(going["status"]["phase"], "Terminating");
        let late = api.post(&format!("{at}/configmaps"), config_map("late")).await.fails(403, "Forbidden");
        assert_eq!(late.causes(), [("NamespaceTerminating", "metadata.namespace")]);
        api.until_code(&format!("{at}/secrets/s"), 404).await;
        api.get(&at).await.expect(200);
        api.patch(&format!("{at}/configmaps/held"), "merge", json!({"metadata": {"finalizers": null}}))
            .await
            .expect(200);
        api.until_code(&at, 404).await;
    } else {
        api.delete(&at, Value::Null).await.expect(200);
    }
    api.delete("/api/v1/namespaces/default", Value::Null).await.fails(403, "Forbidden");
    api.delete("/api/v1/namespaces/kube-system", Value::Null).await.fails(403, "Forbidden");
    for bad in ["Upper", "dot.dot", "-x", "x-", &"x".repeat(64)] {
        api.post("/api/v1/namespaces", json!({"metadata": {"name": bad}})).await.fails(422, "Invalid");
    }
    api.done().await;
}

#[tokio::test]
async fn dependents_follow_their_owners() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let path = api.core("configmaps");
    let own = |name: &str, owners: Vec<&Value>| {
        let owners: Vec<Value> = owners
            .iter()
            .map(|o| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"], "blockOwnerDeletion": true})
            })
            .collect();
        json!({"metadata": {"name": name, "ownerReferences": owners}})
    };
    let make = async |body: Value| api.post(&path, body).await.expect(201).body;
    let (a, b) = (make(config_map("a")).await, make(config_map("b")).await);
    let child = make(own("child", vec![&a])).await;
    make(own("grandchild", vec![&child])).await;
    make(own("both", vec![&a, &b])).await;
    api.delete(&format!("{path}/a"), json!({"propagationPolicy": "Background"})).await.expect(200);
    api.until_code(&format!("{path}/grandchild"), 404).await;
    let both = api
        .until(&format!("{path}/both"), |r| {
            r.body["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1)
        })
        .await
        .body;
    assert_eq!(both["metadata"]["ownerReferences"][0]["name"], "b");
    // In the foreground the owner goes last, and waits for those who block it.
    let mut held = own("held", vec![&b]);
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    make(held).await;
    let going =
        api.delete(&format!("{path}/b"), json!({"propagationPolicy": "Foreground"})).await.expect(200).body;
    assert_eq!(going["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    api.until_code(&format!("{path}/both"), 404).await;
    api.until(&format!("{path}/held"), |r| r.body["metadata"]["deletionTimestamp"].is_string()).await;
    api.get(&format!("{path}/b")).await.expect(200);
    api.patch(&format!("{path}/held"), "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.until_code(&format!("{path}/b"), 404).await;
    // Orphans stay; dangling and circular references go.
    let c = make(config_map("c")).await;
    make(own("orphan", vec![&c])).await;
    api.delete(&format!("{path}/c"), json!({"propagationPolicy": "Orphan"})).await.expect(200);
    api.until_code(&format!("{path}/c"), 404).await;
    assert_eq!(
        api.get(&format!("{path}/orphan")).await.expect(200).body["metadata"].get("ownerReferences"),
        None
    );
    make(own("dangling", vec![&c])).await;
    api.until_code(&format!("{path}/dangling"), 404).await;
    let one = make(config_map("one")).await;
    let two = make(own("two", vec![&one])).await;
    let circle = own("one", vec![&two])["metadata"]["ownerReferences"].clone();
    api.patch(&format!("{path}/one"), "merge", json!({"metadata": {"ownerReferences": circle}}))
        .await
        .expect(200);
    api.delete(&format!("{path}/one"), json!({"propagationPolicy": "Foreground"})).await.expect(200);
    api.until_code(&format!("{path}/two"), 404).await;
    api.until_code(&format!("{path}/one"), 404).await;
    let mut two_controllers = own("x", vec![&a, &b]);
    for i in 0..2 {
        two_controllers["metadata"]["ownerReferences"][i]["controller"] = json!(true);
    }
    api.post(&path, two_controllers).await.fails(422, "Invalid");
    api.done().await;
}

#[tokio::test]
async fn events_have_two_groups() {
    let api = Api::new().await;
    let new = api.group("events.k8s.io/v1", "events");
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "hello", "reason": "R", "type": "Normal",
        "action": "A", "reportingController": "example.com/c", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": api.ns}});
    api.post(&new, event).await.expect(201);
    let old = api
        .get(&format!("{}?fieldSelector=involvedObject.name%3Dp,reason%3DR", api.core("events")))
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&old["items"][0]["message"], &old["items"][0]["involvedObject"]["kind"]),
        (&json!("hello"), &json!("Pod"))
    );
    let back = api.get(&format!("{new}/e")).await.expect(200).body;
    assert_eq!((&back["note"], back.get("message")), (&json!("hello"), None));
    api.done().await;
}

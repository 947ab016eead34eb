//! Custom resources whose versions a webhook converts: in v1 a host with its port in one text, in v2 each by itself.

use crate::api::{Answer, Api, CRDS, random};
use crate::hooks::Listener;
use serde_json::{Value, json};

fn converted(object: &Value, wanted: &str) -> Value {
    let mut out = object.clone();
    out["apiVersion"] = json!(wanted);
    let spec = &object["spec"];
    if wanted.ends_with("/v2") {
        let (host, port) = spec["hostPort"].as_str().unwrap_or(":").split_once(':').unwrap_or(("", ""));
        out["spec"] = json!({"host": host, "port": port});
    } else {
        let text = |key: &str| spec[key].as_str().unwrap_or_default().to_string();
        out["spec"] = json!({"hostPort": format!("{}:{}", text("host"), text("port"))});
    }
    out["metadata"]["annotations"]["converted"] = json!(wanted.rsplit('/').next());
    out
}

/// A webhook that converts, and fails for hosts that are called so.
async fn webhook() -> Listener {
    Listener::start(|request| {
        let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
        let objects = request["objects"].as_array().cloned().unwrap_or_default();
        if objects.iter().any(|o| o["spec"].to_string().contains("unspeakable")) {
            return json!({"result": {"status": "Failure", "message": "this host has no other form"}});
        }
        let list: Vec<Value> = objects.iter().map(|o| converted(o, wanted)).collect();
        json!({"result": {"status": "Success"}, "convertedObjects": list})
    })
    .await
}

fn version(name: &str, storage: bool, fields: &[&str]) -> Value {
    let mut properties: serde_json::Map<String, Value> =
        fields.iter().map(|f| (f.to_string(), json!({"type": "string"}))).collect();
    properties.insert("color".into(), json!({"type": "string", "default": name}));
    json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "First", "type": "string", "jsonPath": format!(".spec.{}", fields[0])}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "required": [fields[0]], "properties": properties},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
}

fn definition(group: &str, hook: &Listener, stored: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("links.{group}")}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": "links", "kind": "Link"},
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": hook.config(), "conversionReviewVersions": ["v1"]}},
        "versions": [version("v1", stored == "v1", &["hostPort"]), version("v2", stored == "v2", &["host", "port"])]}})
}

fn link(group: &str, version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}/{version}"), "kind": "Link", "metadata": {"name": name}, "spec": spec})
}

fn spec(answer: &Answer) -> Value {
    answer.body["spec"].clone()
}

#[tokio::test]
async fn objects_come_in_the_version_that_is_asked_for() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let hook = webhook().await;
    let group = format!("{}.example.com", random("g"));
    api.post(CRDS, definition(&group, &hook, "v1")).await.expect(201);
    let at = |version: &str| format!("/apis/{group}/{version}/namespaces/{}/links", api.ns);
    let (one, two) = (at("v1"), at("v2"));
    api.post(&one, link(&group, "v1", "a", json!({"hostPort": "h:80"}))).await.expect(201);
    assert!(hook.asked().is_empty(), "it has the version it is stored in");
    let found = api.get(&format!("{two}/a")).await.expect(200);
    assert_eq!(spec(&found), json!({"host": "h", "port": "80", "color": "v2"}));
    assert_eq!(found.body["apiVersion"], format!("{group}/v2"));
    assert_eq!(found.body["metadata"]["annotations"]["converted"], "v2");
    let made = api.post(&two, link(&group, "v2", "b", json!({"host": "i", "port": "81"}))).await.expect(201);
    assert_eq!(
        (spec(&made)["host"].clone(), made.body["apiVersion"].clone()),
        (json!("i"), json!(format!("{group}/v2")))
    );
    assert_eq!(spec(&api.get(&format!("{one}/b")).await.expect(200))["hostPort"], "i:81");
    // What a version requires is asked of what is written in it.
    api.post(&two, link(&group, "v2", "c", json!({"hostPort": "i:81"}))).await.fails(422, "Invalid");
    let listed = api.get(&two).await.expect(200).body;
    let hosts: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|i| &i["spec"]["host"]).collect();
    assert_eq!(hosts, [&json!("h"), &json!("i")]);
    let table = api.get_as(&two, "application/json;as=Table;v=v1;g=meta.k8s.io").await.expect(200).body;
    assert_eq!(table["rows"][1]["cells"], json!(["b", "i"]));
    // A change in the other version changes what it says, and nothing else.
    let changed =
        api.patch(&format!("{two}/a"), "merge", json!({"spec": {"port": "8080"}})).await.expect(200);
    assert_eq!(spec(&changed)["port"], "8080");
    assert_eq!(spec(&api.get(&format!("{one}/a")).await.expect(200))["hostPort"], "h:8080");
    let mut whole = api.get(&format!("{two}/b")).await.expect(200).body;
    whole["spec"]["host"] = json!("j");
    api.put(&format!("{two}/b"), whole).await.expect(200);
    assert_eq!(spec(&api.get(&format!("{one}/b")).await.expect(200))["hostPort"], "j:81");
    let status =
        api.patch(&format!("{two}/b/status"), "merge", json!({"status": {"up": true}})).await.expect(200);
    assert_eq!((&status.body["status"]["up"], &status.body["spec"]["host"]), (&json!(true), &json!("j")));
    let events = api.events(&format!("{two}?watch=1"), "application/json", 2).await;
    assert_eq!(events[0]["object"]["spec"]["port"], "8080");
    assert_eq!(events[1]["object"]["apiVersion"], format!("{group}/v2"));
    api.delete(&format!("{two}/b"), Value::Null).await.expect(200);
    // What was stored in an older version stays so, and is converted the other way.
    let change = json!({"spec": definition(&group, &hook, "v2")["spec"]});
    api.patch(&format!("{CRDS}/links.{group}"), "merge", change).await.expect(200);
    api.post(&two, link(&group, "v2", "d", json!({"host": "k", "port": "82"}))).await.expect(201);
    let of = |listed: Answer, field: &str| -> Vec<Value> {
        listed.body["items"].as_array().unwrap().iter().map(|i| i["spec"][field].clone()).collect()
    };
    assert_eq!(of(api.get(&one).await.expect(200), "hostPort"), [json!("h:8080"), json!("k:82")]);
    assert_eq!(of(api.get(&two).await.expect(200), "host"), [json!("h"), json!("k")]);
    api.done().await;
}

#[tokio::test]
async fn what_cannot_be_converted_is_told() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return;
    }
    let hook = webhook().await;
    let group = format!("{}.example.com", random("g"));
    api.post(CRDS, definition(&group, &hook, "v1")).await.expect(201);
    let at = |version: &str| format!("/apis/{group}/{version}/namespaces/{}/links", api.ns);
    api.post(&at("v1"), link(&group, "v1", "a", json!({"hostPort": "unspeakable:1"}))).await.expect(201);
    let want = format!("conversion webhook for {group}/v1, Kind=Link failed: this host has no other form");
    let refused = api.get(&format!("{}/a", at("v2"))).await.expect(500);
    assert_eq!(refused.message(), want);
    api.get(&at("v2")).await.expect(500);
    api.get(&format!("{}/a", at("v1"))).await.expect(200);
    api.post(&at("v2"), link(&group, "v2", "b", json!({"host": "unspeakable", "port": "1"})))
        .await
        .expect(500);
    api.get(&format!("{}/b", at("v1"))).await.fails(404, "NotFound");
    api.delete(&format!("{}/a", at("v1")), Value::Null).await.expect(200);
    api.done().await;
}

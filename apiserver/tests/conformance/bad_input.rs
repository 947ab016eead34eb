//! Input nobody should send: every answer is a Status, and the server goes on.

use crate::api::{Api, CRDS, config_map};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// The server still works.
async fn goes_on(api: &Api) {
    api.get(&api.core("configmaps")).await.expect(200);
    assert_eq!(api.get("/readyz").await.expect(200).text, "ok");
}

/// An object nested so often, below a field.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!({"a": value}))
}

#[tokio::test]
async fn what_is_nested_too_deeply_is_not_stored() {
    let api = Api::new().await;
    // Another server has other limits.
    if api.embedded().is_none() {
        return api.done().await;
    }
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}}}]);
    let version_of = format!("{}/v1", api.crd("deeps", "Deep", version).await);
    let path = api.group(&version_of, "deeps");
    let object = |name: &str, levels: usize| json!({"apiVersion": version_of, "kind": "Deep", "metadata": {"name": name}, "spec": nested(levels)});
    let too_deep = |answer: crate::api::Answer| {
        assert!((400..500).contains(&answer.code), "{:.300}", answer.text);
        let text = answer.message();
        assert!(text.contains("levels of nested objects and lists; allowed: 100"), "{text:.600}");
    };
    too_deep(api.post(&path, object("over", 100)).await);
    api.post(&path, object("a", 99)).await.expect(201);
    let one = format!("{path}/a");
    let (merge, json_patch) = ("merge", "json");
    too_deep(api.patch(&one, merge, json!({"spec": nested(100)})).await);
    too_deep(api.patch(&format!("{one}/status"), merge, json!({"status": nested(100)})).await);
    let below = format!("/spec{}", "/a".repeat(98));
    too_deep(
        api.patch(&one, json_patch, json!([{"op": "replace", "path": below, "value": nested(100)}])).await,
    );
    // Sixty operations that hang on to each other would be six thousand levels.
    let chain: Vec<Value> = (0..60)
        .map(|n| json!({"op": "replace", "path": format!("/spec/a{}", "/a".repeat(n * 100)), "value": nested(100)}))
        .collect();
    too_deep(api.patch(&one, json_patch, json!(chain)).await);
    let mut applied = object("a", 100);
    let apply = "apply";
    too_deep(api.patch(&format!("{one}?fieldManager=x&force=true"), apply, applied.clone()).await);
    applied["metadata"]["name"] = json!("b");
    too_deep(api.patch(&format!("{path}/b?fieldManager=x"), apply, applied).await);
    let mut put = api.get(&one).await.expect(200).body;
    put["spec"] = nested(100);
    too_deep(api.put(&one, put).await);
    // Everything stored is readable, also inside others, by a reader with the usual limit of 128.
    let list = api.get(&path).await.expect(200);
    assert_eq!(list.body["items"][0]["spec"], nested(99));
    serde_json::from_str::<Value>(&list.text).expect("a list that can be read");
    api.delete(&one, json!({})).await.expect(200);
    goes_on(&api).await;
    api.done().await;
}

#[tokio::test]
async fn an_applied_configuration_of_another_type_is_refused() {
    let api = Api::new().await;
    if api.embedded().is_none() {
        return api.done().await;
    }
    let path = format!("{}/a?fieldManager=x", api.core("configmaps"));
    let map = |field: &str, value: Value| {
        let mut map = config_map("a");
        map[field] = value;
        map
    };
    for body in [
        json!(null),
        json!([]),
        json!("x"),
        map("metadata", json!([])),
        map("metadata", json!({"name": 1})),
        map("metadata", json!({"name": "a", "labels": {"x": {}}})),
        map("data", json!(5)),
        map("data", json!({"k": ["v"]})),
    ] {
        let shown = body.to_string();
        let answer = api.patch(&path, "apply", body).await;
        // As in the real server, what is an object at all fails only when it is merged.
        let want = if shown.starts_with('{') { (500, "") } else { (400, "BadRequest") };
        assert_eq!((answer.code, answer.reason()), want, "{shown}: {:.300}", answer.text);
    }
    goes_on(&api).await;
    api.done().await;
}

#[tokio::test]
async fn bodies() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let huge = format!("{{\"metadata\":{{\"name\":\"h\"}},\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(4 << 20));
    api.raw("POST", &path, &JSON, huge).await.fails(413, "RequestEntityTooLarge");
    let large = json!({"metadata": {"name": "l"}, "data": {"a": "x".repeat(1 << 20), "b": "y"}});
    let long = api.post(&path, large).await.fails(422, "Invalid");
    assert!(long.message().contains("Too long"), "{:.300}", long.text);
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    for body in [
        Vec::new(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"1".to_vec(),
        b"\"x\"".to_vec(),
        b"{\"metadata\": []}".to_vec(),
        b"{\"metadata\": {\"name\": 1}}".to_vec(),
        b"{\"metadata\": {\"name\": \"a\", \"labels\": {\"x\": {}}}}".to_vec(),
        b"{} trailing".to_vec(),
        b"{\"metadata\":{\"name\":\"\xff\xfe\"}}".to_vec(),
        b"\xef\xbb\xbf{".to_vec(),
        b"{\"a\": 1e999999}".to_vec(),
        deep("[", "]").into_bytes(),
        deep("{\"a\":", "}").into_bytes(),
    ] {
        let shown = String::from_utf8_lossy(&body).chars().take(60).collect::<String>();
        let answer = api.raw("POST", &path, &JSON, body.clone()).await;
        assert!(matches!(answer.code, 400 | 413 | 422), "{shown}: {:.300}", answer.text);
        assert_eq!(answer.body["kind"], "Status", "{shown}: {:.300}", answer.text);
        for (media, code) in [
            ("application/yaml", 400),
            ("application/vnd.kubernetes.protobuf", 400),
            ("text/plain", 415),
            ("application/xml", 415),
        ] {
            let answer = api.raw("POST", &path, &[("content-type", media)], body.clone()).await;
            assert!(
                answer.code == code || (code == 400 && matches!(answer.code, 413 | 422)),
                "{media} {shown}: {:.300}",
                answer.text
            );
            assert_eq!(answer.body["kind"], "Status", "{media} {shown}: {:.300}", answer.text);
        }
    }
    // An alias bomb stays small.
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..40 {
        bomb.push_str(&format!(
            "a{i}: &a{i} [*a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}]\n",
            i - 1
        ));
    }
    let answer = api.raw("POST", &path, &[("content-type", "application/yaml")], bomb).await;
    assert!(matches!(answer.code, 400 | 413 | 422), "{:.300}", answer.text);
    // No content type is JSON, and parameters of it do not matter.
    api.raw("POST", &path, &[], config_map("plain").to_string()).await.expect(201);
    api.raw(
        "POST",
        &path,
        &[("content-type", "application/json; charset=utf-8")],
        config_map("charset").to_string(),
    )
    .await
    .expect(201);
    goes_on(&api).await;
    api.done().await;
}

#[tokio::test]
async fn names_and_labels_at_their_limits() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let named = |name: &str| json!({"metadata": {"name": name}});
    let long = format!("{}.{}", "a".repeat(126), "b".repeat(126));
    api.post(&path, named(&long)).await.expect(201);
    api.get(&format!("{path}/{long}")).await.expect(200);
    for bad in [
        "",
        "A",
        "a_b",
        "-a",
        "a-",
        "a..b",
        ".a",
        "a/b",
        "ä",
        "a b",
        "a%2fb",
        &"a".repeat(254),
        &"a".repeat(100_000),
    ] {
        let refused = api.post(&path, named(bad)).await.fails(422, "Invalid");
        assert!(refused.causes().iter().any(|c| c.1 == "metadata.name"), "{bad:.50}: {:.300}", refused.text);
    }
    let labelled =
        |key: &str, value: &str| json!({"metadata": {"generateName": "l-", "labels": {key: value}}});
    let prefix = format!("{}.com", "p".repeat(249));
    for (key, value) in [
        ("a", ""),
        ("a", &*"v".repeat(63)),
        (&*"k".repeat(63), "v"),
        ("example.com/k", "A_b-c.9"),
        (&*format!("{prefix}/k"), "v"),
    ] {
        api.post(&path, labelled(key, value)).await.expect(201);
    }
    for (key, value) in [
        ("a", &*"v".repeat(64)),
        (&*"k".repeat(64), "v"),
        ("", "v"),
        ("/k", "v"),
        ("a/b/c", "v"),
        ("a", "-v"),
        ("a", "v v"),
        ("UP.com/k", "v"),
        (&*format!("p{prefix}/k"), "v"),
    ] {
        let refused = api.post(&path, labelled(key, value)).await.fails(422, "Invalid");
        assert!(
            refused.causes().iter().any(|c| c.1 == "metadata.labels"),
            "{key:.30}={value:.30}: {}",
            refused.text
        );
    }
    let noted = |size: usize| json!({"metadata": {"generateName": "n-", "annotations": {"example.com/note": "x".repeat(size)}}});
    api.post(&path, noted(256 * 1024 - 16)).await.expect(201);
    api.post(&path, noted(256 * 1024)).await.fails(422, "Invalid");
    api.post(&path, json!({"metadata": {"name": "f", "finalizers": ["no slash here "]}}))
        .await
        .fails(422, "Invalid");
    let keys = json!({"metadata": {"name": "k"}, "data": {"bad key": "x"}});
    api.post(&path, keys).await.fails(422, "Invalid");
    goes_on(&api).await;
    api.done().await;
}

#[tokio::test]
async fn patches() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    api.post(&path, config_map("a")).await.expect(201);
    let at = format!("{path}/a");
    let add = |n: usize| {
        Value::Array(
            (0..n)
                .map(|i| json!({"op": "add", "path": format!("/data/k{}", i % 100), "value": "v"}))
                .collect(),
        )
    };
    api.patch(&at, "json", add(10_000)).await.expect(200);
    api.patch(&at, "json", add(10_001)).await.fails(413, "RequestEntityTooLarge");
    // Copies that double what they copy.
    let mut doubling = vec![json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(1000)}})];
    doubling.extend((0..60).map(|i| json!({"op": "copy", "from": "", "path": format!("/c{i}")})));
    let grown = api.patch(&at, "json", Value::Array(doubling)).await;
    assert!(grown.code >= 400 && grown.body["kind"] == "Status", "{} {:.200}", grown.code, grown.text);
    for (kind, body) in [
        ("json", json!([{"op": "bogus", "path": "/a"}])),
        ("json", json!([{"op": "add", "path": "no slash", "value": 1}])),
        ("json", json!([{"op": "add", "path": "/metadata/name", "value": "other"}])),
        ("json", json!([{"op": "replace", "path": "", "value": 7}])),
        ("json", json!([{"op": "remove", "path": ""}])),
        ("json", json!([{"op": "move", "from": "/metadata", "path": "/metadata/x"}])),
        ("json", json!({"op": "add"})),
        ("merge", json!([1])),
        ("merge", json!("text")),
        ("merge", json!({"data": 5})),
        ("merge", json!({"kind": "Secret"})),
        ("strategic-merge", json!([1])),
        ("strategic-merge", json!({"$patch": "bogus"})),
        (
            "strategic-merge",
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": 1, "$setElementOrder/ownerReferences": "x", "finalizers": 3}}),
        ),
        ("apply", json!("text")),
        ("apply", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}})),
        (
            "apply",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": {"y": 1}}}),
        ),
    ] {
        let answer = api.patch(&format!("{at}?fieldManager=m"), kind, body.clone()).await;
        assert!(
            (400..=500).contains(&answer.code) && answer.body["kind"] == "Status",
            "{kind} {body}: {} {:.300}",
            answer.code,
            answer.text
        );
    }
    for media in [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ] {
        for body in [&b""[..], b"{", b"\xff", b"[[[[", b": : :"] {
            let answer =
                api.raw("PATCH", &format!("{at}?fieldManager=m"), &[("content-type", media)], body).await;
            assert!(
                (400..=500).contains(&answer.code) && answer.body["kind"] == "Status",
                "{media} {body:?}: {} {:.300}",
                answer.code,
                answer.text
            );
        }
    }
    let after = api.get(&at).await.expect(200).body;
    assert_eq!((&after["kind"], &after["metadata"]["name"]), (&json!("ConfigMap"), &json!("a")));
    goes_on(&api).await;
    api.done().await;
}

#[tokio::test]
async fn queries_and_paths() {
    let api = Api::new().await;
    let path = api.core("pods");
    for query in [
        "labelSelector=%ff%fe",
        "labelSelector=a%00b",
        "labelSelector=((((",
        "labelSelector=a%20in",
        "labelSelector=!",
        "fieldSelector=%ff",
        "fieldSelector=metadata.name",
        "fieldSelector=a%3Db%3Dc%3Dd",
        "resourceVersion=-1",
        "resourceVersion=99999999999999999999999",
        "continue=%00",
        "resourceVersion=1.5",
    ] {
        let answer = api.get(&format!("{path}?{query}")).await;
        assert!(
            (400..600).contains(&answer.code) && answer.body["kind"] == "Status",
            "{query}: {} {:.300}",
            answer.code,
            answer.text
        );
    }
    for query in ["limit=abc", "limit=99999999999999999999", "timeoutSeconds=-4", "a=b&a=c&&&=", "pretty=%ff"]
    {
        let answer = api.get(&format!("{path}?{query}")).await;
        assert!(matches!(answer.code, 200 | 400), "{query}: {} {:.300}", answer.code, answer.text);
    }
    for path in [
        "/api/v1/namespaces//pods",
        "/api//v1",
        "/apis/%ff/v1/x",
        "/api/v1/namespaces/%2e%2e/pods",
        "/api/v1/pods/a/b/c/d/e/f",
        "//////",
        "/apis/apps",
        "/api/v1/nodes/x/proxy/y",
        &format!("/{}", "a/".repeat(2000)),
    ] {
        let answer = api.get(path).await;
        assert!(answer.code < 500, "{path:.80}: {} {:.200}", answer.code, answer.text);
    }
    for method in ["OPTIONS", "TRACE", "BREW", "PUT", "PATCH"] {
        let answer = api.raw(method, &path, &[], Vec::new()).await;
        assert!(matches!(answer.code, 403 | 405), "{method}: {} {}", answer.code, answer.text);
    }
    // A watch of a kind that is not there, of an object that is not there, of a namespace that is not there.
    api.get("/apis/apps/v1/bogus?watch=true").await.expect(404);
    let none = api
        .events("/api/v1/namespaces/not-there/pods?watch=true&timeoutSeconds=1", "application/json", 1)
        .await;
    assert!(none.is_empty());
    goes_on(&api).await;
    api.done().await;
}

#[tokio::test]
async fn definitions() {
    let api = Api::new().await;
    for spec in [
        json!(null),
        json!([]),
        json!({}),
        json!({"versions": "x"}),
        json!({"group": "g.example.com", "versions": [null]}),
        json!({"group": "", "scope": "Namespaced", "names": {"plural": "", "kind": ""}, "versions": []}),
        json!({"group": "apps", "scope": "Namespaced", "names": {"plural": "deployments", "kind": "Deployment"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}),
    ] {
        let body = json!({"metadata": {"name": "xs.g.example.com"}, "spec": spec});
        let answer = api.post(&format!("{CRDS}?dryRun=All"), body).await;
        assert!(matches!(answer.code, 400 | 422), "{spec}: {} {:.300}", answer.code, answer.text);
    }
    let mut nested = json!({"type": "string"});
    for _ in 0..45 {
        nested = json!({"type": "object", "properties": {"a": nested}});
    }
    let group = api
        .crd(
            "deeps",
            "Deep",
            json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": nested}}]),
        )
        .await;
    let path = api.group(&format!("{group}/v1"), "deeps");
    let deep = json!({"apiVersion": format!("{group}/v1"), "kind": "Deep", "metadata": {"name": "d"}, "a": {"a": {"a": {"b": 1}}}});
    let made = api.post(&path, deep).await.expect(201);
    assert_eq!(made.body["a"], json!({"a": {"a": {}}}));
    api.delete(&format!("{CRDS}/deeps.{group}"), Value::Null).await.expect(200);
    goes_on(&api).await;
    api.done().await;
}

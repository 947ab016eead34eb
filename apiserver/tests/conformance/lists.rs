//! Lists, pages, watches and the forms they come in.

use crate::api::{Api, PARTIAL, PARTIAL_LIST, TABLE, config_map, pod};
use serde_json::{Value, json};

fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["metadata"]["name"].as_str().unwrap().to_string())
        .collect()
}

fn version(event: &Value) -> u64 {
    event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn pages_are_one_snapshot() {
    let api = Api::new().await;
    let path = api.core("secrets");
    for i in 0..7 {
        api.post(&path, json!({"metadata": {"name": format!("s{i}")}})).await.expect(201);
    }
    let first = api.get(&format!("{path}?limit=3")).await.expect(200);
    assert_eq!(
        (names(&first.body), &first.body["metadata"]["remainingItemCount"]),
        (vec!["s0".into(), "s1".into(), "s2".into()], &json!(4))
    );
    assert!(
        first.body["items"][0].get("kind").is_none(),
        "items of built-in kinds do not say their kind again"
    );
    let list_version: u64 = first.rv().parse().unwrap();
    for item in first.body["items"].as_array().unwrap() {
        assert!(
            item["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() <= list_version
        );
    }
    api.delete(&format!("{path}/s5"), Value::Null).await.expect(200);
    api.post(&path, json!({"metadata": {"name": "s55"}})).await.expect(201);
    let mut token = first.body["metadata"]["continue"].as_str().unwrap().to_string();
    let mut rest = Vec::new();
    while !token.is_empty() {
        let page = api.get(&format!("{path}?limit=3&continue={token}")).await.expect(200);
        assert_eq!(page.rv(), first.rv());
        rest.extend(names(&page.body));
        token = page.body["metadata"]["continue"].as_str().unwrap_or_default().to_string();
    }
    assert_eq!(rest, ["s3", "s4", "s5", "s6"]);
    let exact = api
        .get(&format!("{path}?resourceVersion={list_version}&resourceVersionMatch=Exact"))
        .await
        .expect(200);
    assert_eq!(names(&exact.body).len(), 7);
    assert_eq!(exact.rv(), first.rv());
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    api.get(&format!("{path}?limit=3&continue={token}&resourceVersion={list_version}"))
        .await
        .fails(400, "BadRequest");
    for bad in ["x", "!!!", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"] {
        api.get(&format!("{path}?limit=3&continue={bad}")).await.fails(400, "BadRequest");
    }
    let all = api.get(&format!("{path}?resourceVersion=0&limit=2")).await.expect(200);
    assert_eq!(names(&all.body).len(), 7, "a list at version 0 has no limit");
    assert_eq!(
        api.get(&format!("{path}?limit=-1")).await.expect(200).body["items"].as_array().unwrap().len(),
        7
    );
    let empty = api.get(&api.core("services")).await.expect(200).body;
    assert_eq!((&empty["items"], &empty["kind"]), (&json!([]), &json!("ServiceList")));
    api.done().await;
}

#[tokio::test]
async fn list_options_are_checked() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let now = api.get(&path).await.rv();
    for (query, code, reason) in [
        ("resourceVersion=abc", 400, "BadRequest"),
        ("watch=true&resourceVersion=abc", 500, ""),
        ("resourceVersionMatch=Exact", 422, "Invalid"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, "Invalid"),
        (&format!("resourceVersion={now}&resourceVersionMatch=Bogus"), 422, "Invalid"),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 422, "Invalid"),
        ("labelSelector=a%3D%3D%3Db", 400, "BadRequest"),
        ("labelSelector=a%20in%20(", 400, "BadRequest"),
        ("fieldSelector=spec.bogus%3D1", 400, "BadRequest"),
        ("watch=true&sendInitialEvents=true", 422, "Invalid"),
        ("watch=true&resourceVersionMatch=NotOlderThan", 422, "Invalid"),
    ] {
        api.get(&format!("{path}?{query}")).await.fails(code, reason);
    }
    // Another server may keep as much of the past as it likes.
    if api.embedded().is_some() {
        let past = format!("{path}?resourceVersion=1&resourceVersionMatch=Exact");
        api.get(&past).await.fails(410, "Expired");
    }
    let far = now.parse::<u64>().unwrap() + 1_000_000;
    let future = api.get(&format!("{path}?resourceVersion={far}")).await.fails(504, "Timeout");
    assert_eq!(future.causes()[0].0, "ResourceVersionTooLarge");
    assert_eq!(future.headers["retry-after"], "1");
    assert_eq!(future.body["details"]["retryAfterSeconds"], 1);
    api.get(&format!("{path}?unknown=1&pretty=false&timeout=32s")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn selectors() {
    let api = Api::new().await;
    let path = api.core("pods");
    for (name, app, tier) in [("a", "x", Some("1")), ("b", "x", Some("5")), ("c", "y", None)] {
        let mut p = pod(name);
        p["metadata"]["labels"] = json!({"app": app});
        if let Some(tier) = tier {
            p["metadata"]["labels"]["tier"] = json!(tier);
        }
        api.post(&path, p).await.expect(201);
    }
    api.post(
        &format!("{path}/a/binding"),
        json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}),
    )
    .await
    .expect(201);
    for (query, want) in [
        ("labelSelector=app%3Dx", "a b"),
        ("labelSelector=app%3D%3Dx", "a b"),
        ("labelSelector=app!%3Dx", "c"),
        ("labelSelector=app+in+%28x%2Cy%29%2Ctier", "a b"),
        ("labelSelector=app%20notin%20(x)", "c"),
        ("labelSelector=!tier", "c"),
        ("labelSelector=tier", "a b"),
        ("labelSelector=tier%3E3", "b"),
        ("labelSelector=tier%3C3", "a"),
        ("fieldSelector=metadata.name%3Da", "a"),
        ("fieldSelector=metadata.name!%3Da", "b c"),
        ("fieldSelector=spec.nodeName%3Dn1", "a"),
        ("fieldSelector=spec.nodeName%3D", "b c"),
        ("fieldSelector=status.phase%3DPending%2Cspec.nodeName!%3Dn1", "b c"),
        ("fieldSelector=spec.restartPolicy%3DAlways,metadata.namespace%3Dother", ""),
        ("labelSelector=app%3Dx&fieldSelector=metadata.name%3Dc", ""),
    ] {
        let list = api.get(&format!("{path}?{query}")).await.expect(200).body;
        assert_eq!(names(&list).join(" "), want, "{query}");
    }
    api.done().await;
}

#[tokio::test]
async fn watches_follow_the_log() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let start = api.get(&path).await.rv();
    let mut a = config_map("a");
    a["metadata"]["labels"] = json!({"x": "1"});
    api.post(&path, a).await.expect(201);
    for patch in [
        json!({"data": {"a": "2"}}),
        json!({"metadata": {"labels": {"x": "2"}}}),
        json!({"metadata": {"labels": {"x": "1"}}}),
    ] {
        api.patch(&format!("{path}/a"), "merge", patch).await.expect(200);
    }
    api.delete(&format!("{path}/a"), Value::Null).await.expect(200);
    let at = |from: &str| format!("{path}?watch=true&resourceVersion={from}&labelSelector=x%3D1");
    let events = api.events(&at(&start), "application/json", 5).await;
    let types: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
    assert_eq!(events[2]["object"]["metadata"]["labels"]["x"], "1", "leaving shows the labels before");
    assert_eq!(
        (&events[0]["object"]["kind"], &events[0]["object"]["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    let versions: Vec<u64> = events.iter().map(version).collect();
    assert!(versions.windows(2).all(|w| w[0] < w[1]), "{versions:?}");
    let (one, two) = (at(&start), at(&start));
    let (one, two) =
        tokio::join!(api.events(&one, "application/json", 5), api.events(&two, "application/json", 5));
    assert!(one == events && two == events, "all watchers see the same");
    for (i, v) in versions.iter().enumerate().take(4) {
        let suffix = api.events(&at(&v.to_string()), "application/json", 4 - i).await;
        assert_eq!(suffix, events[i + 1..], "resumed after {v}");
    }
    if api.embedded().is_some() {
        let old = api.events(&format!("{path}?watch=true&resourceVersion=1"), "application/json", 5).await;
        assert_eq!(
            (old.len(), &old[0]["type"], &old[0]["object"]["kind"]),
            (1, &json!("ERROR"), &json!("Status"))
        );
        assert_eq!(
            (&old[0]["object"]["code"], &old[0]["object"]["reason"]),
            (&json!(410), &json!("Expired"))
        );
    }
    let ended =
        api.events(&format!("{path}?watch=true&timeoutSeconds=1&resourceVersion={start}"), TABLE, 100).await;
    assert!(ended.len() >= 5, "the server ends the watch cleanly");
    assert!(
        ended[0]["object"]["columnDefinitions"].is_array()
            && ended[1]["object"]["columnDefinitions"].is_null()
    );
    assert_eq!(
        (&ended[0]["object"]["kind"], ended[0]["object"]["rows"].as_array().unwrap().len()),
        (&json!("Table"), 1)
    );
    // A watch of nothing is a watch all the same; one of a single object's path is a plain read.
    let mut nothing =
        api.watch(&format!("{path}?watch=true&fieldSelector=metadata.name%3Dlater&timeoutSeconds=30")).await;
    api.post(&path, config_map("later")).await.expect(201);
    assert_eq!(nothing.next().await.unwrap()["object"]["metadata"]["name"], "later");
    assert_eq!(api.get(&format!("{path}/later?watch=true")).await.expect(200).body["kind"], "ConfigMap");
    api.done().await;
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let api = Api::new().await;
    let path = api.core("secrets");
    for name in ["b", "a"] {
        api.post(&path, json!({"metadata": {"name": name}})).await.expect(201);
    }
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = api.watch(&format!("{path}?{query}&allowWatchBookmarks=true")).await;
    let mut seen = Vec::new();
    let end = loop {
        let event = watch.next().await.unwrap();
        if event["type"] == "BOOKMARK" {
            break event;
        }
        assert_eq!(event["type"], "ADDED");
        seen.push(event["object"]["metadata"]["name"].as_str().unwrap().to_string());
    };
    assert_eq!(seen, ["a", "b"]);
    let object = &end["object"];
    assert_eq!(
        (&object["kind"], &object["metadata"]["annotations"]["k8s.io/initial-events-end"]),
        (&json!("Secret"), &json!("true"))
    );
    let made = api.post(&path, json!({"metadata": {"name": "c"}})).await.expect(201);
    let live = watch.next().await.unwrap();
    assert_eq!((version(&live).to_string(), version(&live) > version(&end)), (made.rv(), true));
    let synthetic = api.events(&format!("{path}?watch=true&resourceVersion=0"), "application/json", 3).await;
    assert!(synthetic.iter().all(|e| e["type"] == "ADDED"));
    let only = api
        .events(
            &format!(
                "{path}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={}",
                made.rv()
            ),
            "application/json",
            1,
        )
        .await;
    if let Some(mark) = only.first() {
        assert_eq!(mark["type"], "BOOKMARK");
        assert!(version(mark) >= made.rv().parse().unwrap());
    }
    api.done().await;
}

#[tokio::test]
async fn tables_and_partial_objects() {
    let api = Api::new().await;
    let path = api.core("pods");
    api.post(&path, pod("p")).await.expect(201);
    let table = api.get_as(&path, TABLE).await.expect(200).body;
    let columns: Vec<String> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{}{}", c["name"].as_str().unwrap(), if c["priority"] == 1 { "/1" } else { "" }))
        .collect();
    assert_eq!(
        columns,
        [
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "IP/1",
            "Node/1",
            "Nominated Node/1",
            "Readiness Gates/1"
        ]
    );
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    let row = &table["rows"][0];
    assert_eq!(
        row["cells"].as_array().unwrap()[..4],
        [json!("p"), json!("0/1"), json!("Pending"), json!(0)].map(|v| if v == json!(0) {
            row["cells"][3].clone()
        } else {
            v
        })
    );
    assert_eq!(
        (&row["object"]["kind"], &row["object"]["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("p"))
    );
    let none = api.get_as(&format!("{path}?includeObject=None"), TABLE).await.expect(200).body;
    assert!(none["rows"][0]["object"].is_null());
    let whole = api.get_as(&format!("{path}/p?includeObject=Object"), TABLE).await.expect(200).body;
    assert_eq!(whole["rows"][0]["object"]["kind"], "Pod");
    api.get_as(&format!("{path}?includeObject=Some"), TABLE).await.fails(400, "BadRequest");
    let error = api.get_as(&format!("{path}/none"), TABLE).await.fails(404, "NotFound");
    assert_eq!(error.body["kind"], "Status");

    let one = api.get_as(&format!("{path}/p"), PARTIAL).await.expect(200).body;
    assert_eq!((&one["kind"], one.get("spec")), (&json!("PartialObjectMetadata"), None));
    let list = api.get_as(&path, PARTIAL_LIST).await.expect(200).body;
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]["name"]),
        (&json!("PartialObjectMetadataList"), &json!("p"))
    );
    let events = api.events(&format!("{path}?watch=true"), PARTIAL, 1).await;
    assert_eq!(events[0]["object"]["kind"], "PartialObjectMetadata");
    api.get_as(&path, PARTIAL).await.fails(406, "NotAcceptable");
    api.get_as(&path, "application/json;as=Table;v=v9;g=meta.k8s.io").await.fails(406, "NotAcceptable");
    api.get_as(&path, "text/csv").await.fails(406, "NotAcceptable");
    // Parameters come in any order, and what follows counts when the first is not known.
    api.get_as(&path, "application/json;g=meta.k8s.io;v=v1;as=Table").await.expect(200);
    api.get_as(&path, "application/vnd.kubernetes.protobuf;as=Nothing,application/json;q=0.5")
        .await
        .expect(200);
    let yaml = api.get_as(&format!("{path}/p"), "application/yaml").await.expect(200);
    assert!(yaml.text.contains("kind: Pod"), "{}", yaml.text);
    api.done().await;
}

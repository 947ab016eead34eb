//! A store that goes back in time: what clients saw of the time that was taken back is never taken for today's.

use fleet_apiserver::{Access, Config};
use serde_json::Value;
use std::fs;
use std::path::Path;

use crate::api::{self, Api, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn open(dir: &Path) -> Api {
    Api::serve(Config { data_dir: Some(dir.into()), access: Access::Rbac, ..Config::default() }).await
}

async fn close(api: Api) -> String {
    let server = api.embedded().unwrap();
    let incarnation = server.incarnation();
    server.shutdown().await;
    incarnation
}

async fn put(api: &Api, name: &str) -> String {
    api.post(MAPS, config_map(name)).await.expect(201).rv()
}

/// A token that continues a list of now.
async fn page(api: &Api) -> String {
    let first = api.get(&format!("{MAPS}?limit=1")).await.body;
    first["metadata"]["continue"].as_str().unwrap().to_string()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        } else {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

/// The first event of a watch from a revision.
async fn first(api: &Api, rv: &str) -> Value {
    let mut watch = api.watch(&format!("{MAPS}?watch=true&resourceVersion={rv}&timeoutSeconds=20")).await;
    watch.next().await.expect("an event")
}

fn gone(event: &Value) -> bool {
    event["type"] == "ERROR" && event["object"]["code"] == 410 && event["object"]["reason"] == "Expired"
}

/// What holds on a server whose store went back to where `last` was its newest revision, after clients saw `seen`.
async fn starts_over(api: &Api, last: &str, seen: &str, token: &str) {
    assert!(gone(&first(api, seen).await), "a watch from a lost revision");
    for how in ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact"] {
        api.get(&format!("{MAPS}?resourceVersion={seen}{how}")).await.fails(410, "Expired");
    }
    let page = api.get(&format!("{MAPS}?limit=1&continue={token}")).await.fails(410, "Expired");
    assert!(!page.body["metadata"]["continue"].as_str().unwrap().is_empty(), "a way to go on from now");
    // A watcher that had seen just what is there again misses nothing.
    let mut resumed = api.watch(&format!("{MAPS}?watch=true&resourceVersion={last}")).await;
    let made = put(api, &api::random("m")).await;
    let event = resumed.next().await.unwrap();
    assert_eq!(
        (&event["type"], event["object"]["metadata"]["resourceVersion"].as_str()),
        (&"ADDED".into(), Some(&*made))
    );
    assert!(made.parse::<u64>().unwrap() > seen.parse::<u64>().unwrap(), "no revision is given out twice");
    assert!(gone(&first(api, seen).await), "also once newer ones are there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_put_back_tells_everybody_to_start_over() {
    let home = tempfile::tempdir().unwrap();
    let (data, backup) = (home.path().join("data"), home.path().join("backup"));
    let api = open(&data).await;
    put(&api, "a").await;
    let last = put(&api, "b").await;
    let born = close(api).await;
    assert!(!born.is_empty());
    copy(&data, &backup);

    let api = open(&data).await;
    assert_eq!(api.embedded().unwrap().incarnation(), born, "a start as usual");
    put(&api, "lost1").await;
    let seen = put(&api, "lost2").await;
    let token = page(&api).await;
    let copied = home.path().join("snapshot");
    api.embedded().unwrap().snapshot(&copied).await.unwrap();
    let after = put(&api, "lost3").await;
    let later = page(&api).await;
    assert_eq!(close(api).await, born);

    // The store's file alone, from a copy made while it was closed.
    fs::copy(backup.join("store.redb"), data.join("store.redb")).unwrap();
    let api = open(&data).await;
    let second = api.embedded().unwrap().incarnation();
    assert_ne!(second, born);
    starts_over(&api, &last, &seen, &token).await;
    close(api).await;

    // The whole directory.
    fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    let api = open(&data).await;
    assert!(![&born, &second].contains(&&api.embedded().unwrap().incarnation()));
    starts_over(&api, &last, &seen, &token).await;
    close(api).await;

    // A snapshot, made while the server ran.
    fs::copy(copied.join("store.redb"), data.join("store.redb")).unwrap();
    let api = open(&data).await;
    assert_ne!(api.embedded().unwrap().incarnation(), born);
    starts_over(&api, &seen, &after, &later).await;
    let shown = api.get("/api/v1/namespaces/kube-system").await.body;
    let third = close(api).await;
    assert_eq!(shown["metadata"]["annotations"]["fleet.dev/incarnation"], third.as_str());
    let api = open(&data).await;
    assert_eq!(close(api).await, third, "and then it stays");
}

#[tokio::test]
async fn a_watch_from_the_future_is_not_silent() {
    let api = Api::serve(Config { access: Access::Rbac, ..Config::default() }).await;
    let newest: u64 = put(&api, "a").await.parse().unwrap();
    for ahead in [1, 1 << 40] {
        assert!(gone(&first(&api, &(newest + ahead).to_string()).await));
    }
    let listed = api.get(&format!("{MAPS}?resourceVersion={}", newest + 100)).await.fails(504, "Timeout");
    assert_eq!(listed.causes(), [("ResourceVersionTooLarge", "")]);
}

#[tokio::test]
async fn numbers_that_cannot_be_read_are_the_clients_error() {
    let api = Api::serve(Config { access: Access::Rbac, ..Config::default() }).await;
    put(&api, "a").await;
    let huge = "9999999999999999999999";
    for (query, says) in [
        (format!("resourceVersion={huge}"), "value out of range"),
        (format!("watch=true&resourceVersion={huge}"), "value out of range"),
        ("watch=true&resourceVersion=abc".into(), "invalid syntax"),
        ("watch=true&resourceVersion=-1".into(), "invalid syntax"),
        (format!("limit={huge}"), "value out of range"),
        ("limit=ten".into(), "invalid syntax"),
        (format!("watch=true&timeoutSeconds={huge}"), "value out of range"),
        ("timeoutSeconds=1.5".into(), "invalid syntax"),
    ] {
        let refused = api.get(&format!("{MAPS}?{query}")).await;
        // A watch and a get read the revision late, and fail in a way of their own.
        let late = query.starts_with("watch=true&resourceVersion");
        let refused = if late { refused.fails(500, "") } else { refused.fails(400, "BadRequest") };
        assert!(refused.message().contains(says), "{query}: {}", refused.message());
    }
    api.get(&format!("{MAPS}/a?resourceVersion={huge}")).await.fails(500, "");
    let longest = i64::MAX;
    let watch = api.watch(&format!("{MAPS}?watch=true&timeoutSeconds={longest}")).await.next().await.unwrap();
    assert_eq!(watch["type"], "ADDED");
    api.delete(&format!("{MAPS}/a?gracePeriodSeconds={huge}"), Value::Null).await.fails(400, "BadRequest");
    let options = serde_json::json!({"gracePeriodSeconds": 1e30});
    api.delete(&format!("{MAPS}/a"), options).await.fails(400, "BadRequest");
    let scale = serde_json::json!({"spec": {"replicas": 99_999_999_999_i64}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.post(deployments, api::deployment("d")).await.expect(201);
    api.patch(&format!("{deployments}/d/scale"), "merge", scale.clone()).await.fails(400, "BadRequest");
    api.patch(&format!("{deployments}/d"), "merge", scale).await.fails(422, "Invalid");
    let mut pod = api::pod("p");
    pod["spec"]["terminationGracePeriodSeconds"] = longest.into();
    pod["spec"]["nodeName"] = "n".into();
    api.post("/api/v1/namespaces/default/pods", pod).await.expect(201);
    api.delete("/api/v1/namespaces/default/pods/p", Value::Null).await.expect(200);
    let spec = serde_json::json!({"spec": {"expirationSeconds": 1e30}});
    api.post("/api/v1/namespaces/default/serviceaccounts/default/token", spec).await.fails(400, "BadRequest");
}

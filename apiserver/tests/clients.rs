//! Real clients: kube over the router and over TLS, and a store that outlives its process.

use fleet_apiserver::{Access, ApiServer, Config, ServeOptions};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Config as KubeConfig};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

async fn in_memory() -> (ApiServer, Client) {
    let api = ApiServer::open(Config::default()).await.unwrap();
    let client = Client::new(api.router(), "default");
    (api, client)
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"v": value}})).unwrap()
}

#[tokio::test]
async fn kube_client_in_process() {
    let (api, client) = in_memory().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let patch = json!({"data": {"v": "2"}});
    let a = maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(a.data.unwrap()["v"], "2");
    let apply =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"v": "x"}});
    maps.patch("b", &PatchParams::apply("me"), &Patch::Apply(&apply)).await.unwrap();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 3);
    let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let discovery = kube::discovery::Discovery::new(client.clone()).run().await.unwrap();
    assert!(discovery.has_group("apps"));
    drop(events);
    api.shutdown().await;
}

#[tokio::test]
async fn watchers_see_everything_in_both_modes() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let (_api, client) = in_memory().await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let mut stream = watcher(maps.clone(), config).applied_objects().boxed();
        const N: usize = 300;
        let writer = tokio::spawn(async move {
            for i in 0..N {
                maps.create(&PostParams::default(), &config_map(&format!("m{i:04}"), "x")).await.unwrap();
            }
        });
        let mut seen = BTreeMap::new();
        while seen.len() < N + 1 {
            let m = stream.try_next().await.unwrap().unwrap();
            *seen.entry(m.metadata.name.unwrap()).or_insert(0) += 1;
        }
        assert!(seen.values().all(|n| *n == 1), "no event twice");
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn controllers_converge() {
    let (_api, client) = in_memory().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let runs = Arc::new(AtomicUsize::new(0));
    let reconcile = |map: Arc<ConfigMap>, context: Arc<(Client, Arc<AtomicUsize>)>| async move {
        context.1.fetch_add(1, Ordering::SeqCst);
        let maps: Api<ConfigMap> = Api::default_namespaced(context.0.clone());
        let patch = json!({"metadata": {"annotations": {"seen": "yes"}}});
        maps.patch(map.metadata.name.as_deref().unwrap(), &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let mut controller = Controller::new(maps.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), Arc::new((client, runs.clone())))
        .boxed();
    for i in 0..20 {
        maps.create(&PostParams::default(), &config_map(&format!("c{i}"), "x")).await.unwrap();
    }
    let mut done = std::collections::BTreeSet::new();
    while done.len() < 21 {
        done.insert(controller.next().await.unwrap().unwrap().0.name);
    }
    // A no-op patch emits no event, so nothing keeps the controller busy.
    let all = maps.list(&ListParams::default()).await.unwrap();
    assert!(all.items.iter().all(|m| m.metadata.annotations.as_ref().unwrap()["seen"] == "yes"));
}

fn kube_config(server: &fleet_apiserver::Server, token: &str) -> KubeConfig {
    let mut config = KubeConfig::new(format!("https://{}", server.local_addr()).parse().unwrap());
    let pem = server.ca_pem();
    let body: String = pem.lines().filter(|l| !l.starts_with("-----")).collect();
    use base64::Engine;
    config.root_cert = Some(vec![base64::engine::general_purpose::STANDARD.decode(body).unwrap()]);
    config.auth_info.token = Some(token.to_string().into());
    config
}

#[tokio::test]
async fn kube_client_over_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let api = ApiServer::open(Config { access: Access::Rbac, ..Config::default() }).await.unwrap();
    let server = api.serve(ServeOptions::default()).await.unwrap();
    let client = Client::try_from(kube_config(&server, &api.admin_token())).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 4);
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut stream = watcher(maps.clone(), watcher::Config::default()).applied_objects().boxed();
    maps.create(&PostParams::default(), &config_map("tls", "1")).await.unwrap();
    while stream.try_next().await.unwrap().unwrap().metadata.name.as_deref() != Some("tls") {}
    let stranger = Client::try_from(kube_config(&server, "wrong")).unwrap();
    let refused = Api::<Pod>::default_namespaced(stranger).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(e) if e.code == 401));
    let taken = api.serve(ServeOptions { listen: server.local_addr(), ..ServeOptions::default() }).await;
    let text = taken.err().unwrap().to_string();
    assert!(text.contains(&server.local_addr().to_string()), "{text}");
    server.shutdown().await;
    api.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_disk_survives() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        || Config { data_dir: Some(dir.path().join("data")), access: Access::Rbac, ..Config::default() };
    let api = ApiServer::open(config()).await.unwrap();
    api.add_token("t", "tess", &["dev"]);
    let token = api.admin_token();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(api.router(), "default"));
    let writes: Vec<_> = (0..200)
        .map(|i| {
            let maps = maps.clone();
            tokio::spawn(async move {
                maps.create(&PostParams::default(), &config_map(&format!("k{i}"), "1")).await.unwrap();
            })
        })
        .collect();
    for w in writes {
        w.await.unwrap();
    }
    let before = maps.list(&ListParams::default()).await.unwrap();
    let busy = ApiServer::open(config()).await.err().unwrap().to_string();
    assert!(busy.contains("in use"), "{busy}");
    api.shutdown().await;
    drop((api, maps));
    let api = ApiServer::open(config()).await.unwrap();
    assert_eq!(api.admin_token(), token);
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(api.router(), "default"));
    let after = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(after.items, before.items);
    let version = |m: &kube::core::ListMeta| m.resource_version.clone().unwrap().parse::<u64>().unwrap();
    assert!(version(&after.metadata) >= version(&before.metadata));
    api.shutdown().await;
    drop((api, maps));
    std::fs::write(dir.path().join("data/store.redb"), b"this is not a store").unwrap();
    let corrupt = ApiServer::open(config()).await.err().unwrap().to_string();
    assert!(corrupt.contains("store.redb"), "{corrupt}");
}

#[tokio::test(start_paused = true)]
async fn old_events_go_on_the_tokio_clock() {
    let start = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let zero = tokio::time::Instant::now();
    let clock = fleet_apiserver::Clock(Arc::new(move || {
        start + jiff::SignedDuration::from_secs(zero.elapsed().as_secs() as i64)
    }));
    let api = ApiServer::open(Config { clock, ..Config::default() }).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(Client::new(api.router(), "default"));
    let event = serde_json::from_value(json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}}))
        .unwrap();
    let made = events.create(&PostParams::default(), &event).await.unwrap();
    assert_eq!(made.metadata.creation_timestamp.unwrap().0, start);
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert!(events.get_opt("e").await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert!(events.get_opt("e").await.unwrap().is_none());
}

#[tokio::test]
async fn a_clock_that_jumps_moves_no_revision_back() {
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(std::sync::atomic::AtomicI64::new(1_800_000_000));
    let now = time.clone();
    let clock = fleet_apiserver::Clock(Arc::new(move || {
        jiff::Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap()
    }));
    let config = || Config {
        data_dir: Some(dir.path().into()),
        clock: clock.clone(),
        access: Access::Rbac,
        ..Config::default()
    };
    let mut api = ApiServer::open(config()).await.unwrap();
    let mut newest = 0;
    // A day back, before 1970, ten years on, to the end of the calendar, and home; with a restart after each jump.
    for (i, to) in
        [1_799_913_600, -86_400, 2_115_000_000, 253_402_000_000, 1_800_000_100].into_iter().enumerate()
    {
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(api.router(), "default"));
        let list = maps.list(&ListParams::default()).await.unwrap();
        let at = list.metadata.resource_version.unwrap();
        let mut events = maps.watch(&WatchParams::default(), &at).await.unwrap().boxed();
        time.store(to, Ordering::SeqCst);
        let made = maps.create(&PostParams::default(), &config_map(&format!("jump{i}"), "1")).await.unwrap();
        let stamp = made.metadata.creation_timestamp.unwrap().0;
        assert_eq!(stamp.as_second(), to);
        let version: u64 = made.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        assert!(version > newest && version > at.parse().unwrap(), "{version} after {newest}");
        newest = version;
        match events.try_next().await.unwrap() {
            Some(WatchEvent::Added(seen)) => {
                assert_eq!(seen.metadata.resource_version, made.metadata.resource_version)
            }
            other => panic!("{other:?}"),
        }
        drop(events);
        api.shutdown().await;
        api = ApiServer::open(config()).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(api.router(), "default"));
        let list = maps.list(&ListParams::default()).await.unwrap();
        assert_eq!(list.items.len(), i + 2, "nothing is lost");
        assert!(list.metadata.resource_version.unwrap().parse::<u64>().unwrap() >= newest);
        let found = maps.get(&format!("jump{i}")).await.unwrap();
        assert_eq!(found.metadata.creation_timestamp.unwrap().0, stamp);
    }
    api.shutdown().await;
}

#[tokio::test]
async fn tokens_follow_the_clock() {
    let time = Arc::new(std::sync::atomic::AtomicI64::new(1_800_000_000));
    let now = time.clone();
    let clock = fleet_apiserver::Clock(Arc::new(move || {
        jiff::Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap()
    }));
    let api = ApiServer::open(Config { clock, access: Access::Rbac, ..Config::default() }).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(Client::new(api.router(), "default"));
    let asked =
        accounts.create_token_request("default", &PostParams::default(), &TokenRequest::default()).await;
    let token = asked.unwrap().status.unwrap().token.unwrap_or_default();
    let code = async |token: &str| {
        let request =
            http::Request::builder().uri("/version").header("authorization", format!("Bearer {token}"));
        let request = request.body(axum::body::Body::empty()).unwrap();
        tower::ServiceExt::oneshot(api.router(), request).await.unwrap().status().as_u16()
    };
    for (to, expect) in [(0, 200), (-86_400, 401), (600, 200), (10 * 365 * 86_400, 401), (1, 200)] {
        time.store(1_800_000_000 + to, Ordering::SeqCst);
        assert_eq!(code(&token).await, expect, "{to} seconds after it was made");
    }
}

/// What was opened before counts too: a hostile follower asks for the longest watch.
#[tokio::test(start_paused = true)]
async fn a_watch_ends_soon_after_its_followers_right_account_or_token() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=604800";
    let start = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let zero = tokio::time::Instant::now();
    let clock = fleet_apiserver::Clock(Arc::new(move || {
        start + jiff::SignedDuration::from_secs(zero.elapsed().as_secs() as i64)
    }));
    let api = ApiServer::open(Config { clock, access: Access::Rbac, ..Config::default() }).await.unwrap();
    let client = Client::new(api.router(), "default");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let bindings: Api<RoleBinding> = Api::default_namespaced(client);
    let binding = |name: &str| -> RoleBinding {
        serde_json::from_value(json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]}))
        .unwrap()
    };
    let mut watches = Vec::new();
    for name in ["stays", "loses-its-right", "is-deleted", "its-token-ends"] {
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        bindings.create(&PostParams::default(), &binding(name)).await.unwrap();
        let seconds = if name == "its-token-ends" { 600 } else { 86_400 };
        let asked = serde_json::from_value(json!({"spec": {"expirationSeconds": seconds}})).unwrap();
        let asked = accounts.create_token_request(name, &PostParams::default(), &asked).await.unwrap();
        let token = format!("Bearer {}", asked.status.unwrap().token.unwrap_or_default());
        let request = http::Request::builder().uri(MAPS).header("authorization", token);
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(api.router(), request).await.unwrap();
        assert_eq!(response.status(), 200, "{name}");
        watches.push(tokio::spawn(response.into_body().into_data_stream().for_each(|_| async {})));
    }
    let ended = |watches: &[tokio::task::JoinHandle<()>]| -> Vec<bool> {
        watches.iter().map(tokio::task::JoinHandle::is_finished).collect()
    };
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(ended(&watches), [false; 4]);
    bindings.delete("loses-its-right", &DeleteParams::default()).await.unwrap();
    accounts.delete("is-deleted", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(ended(&watches), [false, true, true, false]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(ended(&watches), [false, true, true, true]);
    watches.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    // A file in its place is refused to everybody, root too.
    let path = dir.path().join("data");
    std::fs::write(&path, b"a file").unwrap();
    let config = Config { data_dir: Some(path.clone()), ..Config::default() };
    let text = ApiServer::open(config).await.err().unwrap().to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
}

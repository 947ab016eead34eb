//! Informers whose connections are cut at random while objects are written: every store ends equal to the server, and
//! no event is missed or comes twice.
//!
//! `FLEET_SOAK_SECONDS` (6) and `FLEET_SOAK_RATE` (1000 writes a second) say how long and how hard. With `APISERVER_URL`
//! it runs against another server, see `conformance/api.rs`.

#[path = "../conformance/api.rs"]
mod api;
mod cutter;
mod informer;

use api::Api;
use cutter::{Cutter, random};
use informer::{Held, Informer, Start};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const WRITERS: u64 = 8;
/// Objects of each writer.
const OBJECTS: u64 = 6;
/// How long stores may take to catch up once nobody writes.
const PATIENCE: Duration = Duration::from_secs(60);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// A pause after each failed attempt, short so that cuts do not hold the test up.
#[derive(Clone)]
struct Short;

impl Iterator for Short {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(random(1..100)))
    }
}

impl Backoff for Short {
    fn reset(&mut self) {}
}

/// One writer with objects of its own. Each write gives its object the next number.
async fn write(api: Api, path: String, me: u64, every: Duration, until: Instant, count: Arc<AtomicU64>) {
    let mut live: BTreeMap<u64, bool> = BTreeMap::new();
    let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
    let mut turn = tokio::time::interval(every);
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while Instant::now() < until {
        turn.tick().await;
        let which = random(0..OBJECTS);
        let name = format!("w{me}-{which}");
        let n = numbers.get(&which).map_or(1, |n| n + 1);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"even": (n / 2).is_multiple_of(2).to_string()}},
            "data": {"n": n.to_string(), "pad": "x".repeat(random(0..600) as usize)}});
        let there = live.get(&which).copied().unwrap_or(false);
        let item = format!("{path}/{name}");
        let answer = match (there, random(0..10)) {
            (true, 0) => {
                live.insert(which, false);
                api.delete(&item, Value::Null).await.expect(200);
                count.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            (true, 1..=4) => api.put(&item, map).await,
            (true, 5..=7) => api.patch(&item, "merge", map).await,
            (true, _) => api.patch(&format!("{item}?fieldManager=soak&force=true"), "apply", map).await,
            (false, 0..=4) => api.post(&path, map).await,
            (false, _) => api.patch(&format!("{item}?fieldManager=soak&force=true"), "apply", map).await,
        };
        assert!(answer.code < 300, "{}", answer.text);
        live.insert(which, true);
        numbers.insert(which, n);
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn held(map: &ConfigMap) -> (String, (u64, u64)) {
    let name = map.metadata.name.clone().unwrap_or_default();
    let rv = map.metadata.resource_version.as_ref().and_then(|v| v.parse().ok()).unwrap_or(0);
    let n = map.data.as_ref().and_then(|d| d.get("n")).and_then(|v| v.parse().ok()).unwrap_or(0);
    (name, (rv, n))
}

/// A reflector of the kube client, whose store is compared with the server at the end.
fn reflect(
    maps: kube::Api<ConfigMap>,
    config: watcher::Config,
    end: CancellationToken,
) -> reflector::Store<ConfigMap> {
    let (reader, writer) = reflector::store();
    let stream = reflector::reflector(writer, watcher::watcher(maps, config).backoff(Short));
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                next = futures::StreamExt::next(&mut stream) => if next.is_none() { return },
            }
        }
    });
    reader
}

/// A controller of the kube client, which notes the number it last saw of each object.
fn control(maps: kube::Api<ConfigMap>, end: CancellationToken) -> Arc<Mutex<Held>> {
    let seen: Arc<Mutex<Held>> = Arc::default();
    let context = seen.clone();
    tokio::spawn(async move {
        let stream = watcher::watcher(maps, watcher::Config::default()).backoff(Short);
        let (reader, writer) = reflector::store();
        let stream = reflector::reflector(writer, stream).applied_objects();
        let reconcile = |map: Arc<ConfigMap>, seen: Arc<Mutex<Held>>| async move {
            let (name, state) = held(&map);
            seen.lock().expect("no panic").insert(name, state);
            Ok::<_, std::convert::Infallible>(Action::await_change())
        };
        let run = Controller::for_stream(stream, reader).run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            context,
        );
        let mut run = std::pin::pin!(run);
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                next = futures::StreamExt::next(&mut run) => if next.is_none() { return },
            }
        }
    });
    seen
}

async fn listed(api: &Api, path: &str) -> Held {
    let list = api.get(path).await.expect(200).body;
    let items = list["items"].as_array().expect("a list").iter();
    items.map(|o| held(&serde_json::from_value(o.clone()).expect("a ConfigMap"))).collect()
}

async fn until_equal(what: &str, expect: &Held, look: impl Fn() -> Held) {
    let start = Instant::now();
    loop {
        let found = look();
        if found == *expect {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what} never became what the server has: {found:?} {expect:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_of_informers_that_are_cut_off_end_equal_to_the_server() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let length = Duration::from_secs(setting("FLEET_SOAK_SECONDS", 6));
    let every = Duration::from_secs(WRITERS).div_f64(setting("FLEET_SOAK_RATE", 1000).max(1) as f64);
    let end = CancellationToken::new();

    let shapes = [
        ("", Start::List),
        ("", Start::List),
        ("", Start::Streaming),
        ("&labelSelector=even%3Dtrue", Start::List),
        ("&labelSelector=even%21%3Dtrue", Start::Streaming),
        ("&fieldSelector=metadata.name%3Dw0-0", Start::List),
    ];
    let (mut cutters, mut informers, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    for (selector, start) in shapes {
        let cutter = Cutter::start(api.host()).await;
        let informer = Informer::new(api.through(cutter.address), &path, selector, start);
        informers.push((selector, informer.seen.clone()));
        tasks.push(tokio::spawn(informer.run(end.clone())));
        cutters.push(cutter);
    }
    let mut reflectors = Vec::new();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let cutter = Cutter::start(api.host()).await;
        let client = kube::Client::try_from(api.kube(Some(cutter.address))).expect("a client");
        reflectors.push(reflect(kube::Api::namespaced(client, &api.ns), config, end.clone()));
        cutters.push(cutter);
    }
    let cutter = Cutter::start(api.host()).await;
    let client = kube::Client::try_from(api.kube(Some(cutter.address))).expect("a client");
    let controlled = control(kube::Api::namespaced(client, &api.ns), end.clone());
    cutters.push(cutter);

    let (count, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let writers = (0..WRITERS)
        .map(|me| tokio::spawn(write(api.clone(), path.clone(), me, every, start + length, count.clone())));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("every write is taken");
    }
    let rate = count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    cutters.iter().for_each(Cutter::spare);

    let all = listed(&api, &path).await;
    for (selector, seen) in &informers {
        let query = selector.replacen('&', "?", 1);
        let expect = listed(&api, &format!("{path}{query}")).await;
        until_equal(selector, &expect, || seen.lock().expect("no panic").held.clone()).await;
    }
    for store in &reflectors {
        until_equal("a reflector", &all, || store.state().iter().map(|o| held(o)).collect()).await;
    }
    until_equal("a controller", &all, || {
        let mut seen = controlled.lock().expect("no panic").clone();
        seen.retain(|name, _| all.contains_key(name));
        seen
    })
    .await;
    end.cancel();
    for task in tasks {
        task.await.expect("an informer saw nothing wrong");
    }
    let cuts: usize = cutters.iter().map(Cutter::cuts).sum();
    println!("{rate:.0} writes/s for {length:?}, {cuts} connections cut");
    for (selector, seen) in informers {
        let seen = seen.lock().expect("no panic");
        println!("{selector:40} {} events, resumed {}, expired {}", seen.events, seen.resumed, seen.expired);
    }
    assert!(cuts > 0, "no connection was cut");
    api.done().await;
}

//! An informer that trusts nothing: it lists, watches, resumes after each cut, and checks that every event follows from
//! what it holds.

use crate::api::Api;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What an informer holds of an object: its revision and the number the writer gave it.
pub type Held = BTreeMap<String, (u64, u64)>;

/// How an informer gets its first state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    List,
    Streaming,
}

#[derive(Default)]
pub struct Seen {
    pub held: Held,
    pub events: u64,
    /// Times it had to list anew because the log had gone on.
    pub expired: u64,
    pub resumed: u64,
}

pub struct Informer {
    api: Api,
    path: String,
    /// Part of the query, with `&` before it.
    selector: &'static str,
    start: Start,
    /// Newest number of each object, also of deleted ones.
    numbers: BTreeMap<String, u64>,
    pub seen: Arc<Mutex<Seen>>,
}

/// Name, revision and number of an object.
fn read(object: &Value) -> (String, u64, u64) {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let name = text(&object["metadata"]["name"]);
    let rv = text(&object["metadata"]["resourceVersion"]).parse().expect("a revision");
    (name, rv, text(&object["data"]["n"]).parse().unwrap_or(0))
}

impl Informer {
    pub fn new(api: Api, path: &str, selector: &'static str, start: Start) -> Informer {
        Informer { api, path: path.into(), selector, start, numbers: BTreeMap::new(), seen: Arc::default() }
    }

    /// Follows until it is told to end.
    pub async fn run(mut self, end: CancellationToken) {
        let work = async {
            let mut at = None;
            loop {
                match at {
                    Some(rv) => at = self.watch(rv, "").await,
                    None if self.start == Start::List => at = self.list().await,
                    None => {
                        // Everything it knows comes anew.
                        self.forget();
                        let more = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
                        at = self.watch(0, more).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(crate::cutter::random(1..150))).await;
            }
        };
        tokio::select! {
            () = end.cancelled() => {}
            () = work => {}
        }
    }

    fn forget(&mut self) {
        self.numbers.clear();
        self.seen.lock().expect("no panic").held.clear();
    }

    async fn list(&mut self) -> Option<u64> {
        let path = format!("{}?limit=500{}", self.path, self.selector);
        let list = self.api.try_get(&path).await?;
        self.forget();
        let mut seen = self.seen.lock().expect("no panic");
        for item in list["items"].as_array()? {
            let (name, rv, n) = read(item);
            self.numbers.insert(name.clone(), n);
            seen.held.insert(name, (rv, n));
        }
        list["metadata"]["resourceVersion"].as_str()?.parse().ok()
    }

    /// Watches until the connection ends; returns where to go on from, None to begin anew.
    async fn watch(&mut self, from: u64, more: &str) -> Option<u64> {
        let version = if more.is_empty() { from.to_string() } else { String::new() };
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds=20&resourceVersion={version}{more}{}",
            self.path, self.selector
        );
        let (mut last, mut initial) = (from, !more.is_empty());
        let Some(mut watch) = self.api.try_watch(&path).await else { return (!initial).then_some(last) };
        while let Some(event) = watch.try_next().await {
            let object = &event["object"];
            if event["type"] == "ERROR" {
                assert_eq!(object["code"], 410, "{event}");
                self.seen.lock().expect("no panic").expired += 1;
                return None;
            }
            let (name, rv, n) = read(object);
            let kind = event["type"].as_str().unwrap_or_default();
            if initial {
                // Initial events come in the order of keys; the bookmark says from where to go on.
                match kind {
                    "ADDED" => {
                        self.numbers.insert(name.clone(), n);
                        self.seen.lock().expect("no panic").held.insert(name, (rv, n));
                    }
                    "BOOKMARK" => (initial, last) = (false, rv),
                    other => panic!("{other} among the initial events"),
                }
                continue;
            }
            if kind == "BOOKMARK" {
                assert!(rv >= last, "a bookmark went back: {rv} after {last}");
                last = rv;
                continue;
            }
            assert!(rv > last, "{kind} {name}: revision {rv} after {last}");
            last = rv;
            self.event(kind, name, rv, n);
        }
        self.seen.lock().expect("no panic").resumed += 1;
        (!initial).then_some(last)
    }

    /// One event must follow from what is held. A selector hides numbers, but nothing comes back or twice.
    fn event(&mut self, kind: &str, name: String, rv: u64, n: u64) {
        let mut seen = self.seen.lock().expect("no panic");
        seen.events += 1;
        let whole = self.selector.is_empty();
        let before = self.numbers.insert(name.clone(), n);
        let step = |expect: u64| {
            if let Some(before) = before {
                let right = if whole { n == before + expect } else { n >= before };
                assert!(
                    right,
                    "{kind} {name} at {rv}: number {n} after {before}: an event is missing or doubled"
                );
            }
        };
        match kind {
            "ADDED" => {
                step(1);
                assert!(
                    seen.held.insert(name.clone(), (rv, n)).is_none(),
                    "ADDED {name} at {rv}: it was there"
                );
            }
            "MODIFIED" => {
                step(1);
                let was = seen.held.insert(name.clone(), (rv, n));
                assert!(was.is_some(), "MODIFIED {name} at {rv}: it was not there");
            }
            "DELETED" => {
                step(0);
                assert!(seen.held.remove(&name).is_some(), "DELETED {name} at {rv}: it was not there");
            }
            other => panic!("event {other}"),
        }
    }
}

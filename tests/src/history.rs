//! What happened in a fleet: every change of a pod in the members and of a binding on the hub, in the order
//! in which this process saw it.
//!
//! Within one server that order is exact. Between two servers it is the order of arrival, which is later
//! than the truth by less than the hops that tie two clusters together (member, hub, controller, hub,
//! member), so that what a history shows to overlap did overlap.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use fleet_check::{History, ObservedChange};
use futures::StreamExt;
use kube::{Client, ResourceExt, api::DynamicObject, runtime::watcher};

use tokio_util::sync::CancellationToken;

use crate::objects::{BINDING, Kind, POD};

/// Changes kept; a suite makes some thousands.
const MOST_CHANGES: usize = 1_000_000;

/// Watches a fleet until stopped.
pub struct Recorder {
    history: Arc<Mutex<History>>,
    stop: CancellationToken,
}

impl Recorder {
    /// Starts watching.
    pub fn start(hub: Client, members: BTreeMap<String, Client>) -> Self {
        let recorder = Self { history: Arc::default(), stop: CancellationToken::new() };
        recorder.watch(hub, BINDING, None);
        for (name, client) in members {
            recorder.watch(client, POD, Some(name));
        }
        recorder
    }

    fn watch(&self, client: Client, kind: Kind, cluster: Option<String>) {
        let (history, stop) = (self.history.clone(), self.stop.clone());
        tokio::spawn(async move {
            let mut events = Box::pin(watcher(kind.everywhere(&client), watcher::Config::default()));
            let mut standing: BTreeMap<(String, String), DynamicObject> = BTreeMap::new();
            let mut listed = BTreeMap::new();
            let note = |object: &DynamicObject, gone: bool| {
                let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
                let object = Arc::new(serde_json::to_value(object).unwrap_or_default());
                if history.changes.len() < MOST_CHANGES {
                    history.changes.push(ObservedChange { cluster: cluster.clone(), object, gone });
                }
            };
            let key = |object: &DynamicObject| (object.namespace().unwrap_or_default(), object.name_any());
            loop {
                let event = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    event = events.next() => event,
                };
                match event {
                    None => return,
                    // The watcher tries again by itself.
                    Some(Err(_)) => tokio::task::yield_now().await,
                    Some(Ok(watcher::Event::Init)) => listed.clear(),
                    Some(Ok(watcher::Event::InitApply(object))) => {
                        note(&object, false);
                        listed.insert(key(&object), object);
                    }
                    Some(Ok(watcher::Event::InitDone)) => {
                        for (key, object) in &standing {
                            if !listed.contains_key(key) {
                                note(object, true);
                            }
                        }
                        standing = std::mem::take(&mut listed);
                    }
                    Some(Ok(watcher::Event::Apply(object))) => {
                        note(&object, false);
                        standing.insert(key(&object), object);
                    }
                    Some(Ok(watcher::Event::Delete(object))) => {
                        note(&object, true);
                        standing.remove(&key(&object));
                    }
                }
            }
        });
    }

    pub fn history(&self) -> History {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
    }
}

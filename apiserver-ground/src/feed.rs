//! Which watchers an event wakes.
//!
//! Inputs: published events in commit order. A watcher of a whole table is woken by every event and reads the log.
//! Watchers of one key, of one namespace, or of the pods of one node share a *lane*. An event wakes only its lanes,
//! and a lane has its own few events, so no watcher has to walk the log.

use crate::table::{Event, EventKind};
use fleet_ordered as ordered;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Most events of a lane; a watcher that is further behind reads the log instead.
const LANE_EVENTS: usize = 64;

/// What all events of a lane have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Concern {
    /// One object.
    Key(Box<str>),
    /// One namespace.
    Namespace(Box<str>),
    /// Objects whose `spec.nodeName` is or was this.
    Node(Box<str>),
}

struct Lane {
    wake: ordered::Sender<u64>,
    kept: Mutex<Kept>,
}

struct Kept {
    events: VecDeque<Arc<Event>>,
    /// Events at or below this are not in the lane.
    floor: u64,
}

/// The wake-ups of one table.
pub struct Feed {
    all: ordered::Sender<u64>,
    lanes: RwLock<HashMap<Concern, Arc<Lane>>>,
    /// Lanes of nodes, so that tables without them look for no node.
    nodes: AtomicUsize,
}

impl Feed {
    /// A feed without listeners.
    pub fn new(floor: u64) -> Feed {
        Feed { all: ordered::Sender::new(floor), lanes: RwLock::default(), nodes: AtomicUsize::new(0) }
    }

    /// Called once per event, in commit order, when it may be seen.
    pub fn publish(&self, event: &Arc<Event>) {
        self.all.send_replace(event.rv);
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        if lanes.is_empty() {
            return;
        }
        let hand = |concern: Concern| {
            let Some(lane) = lanes.get(&concern) else { return };
            {
                let mut kept = lane.kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.events.len() == LANE_EVENTS
                    && let Some(old) = kept.events.pop_front()
                {
                    kept.floor = old.rv;
                }
                kept.events.push_back(event.clone());
            }
            lane.wake.send_replace(event.rv);
        };
        let key = &event.obj.key;
        hand(Concern::Key(key.clone()));
        if let Some((namespace, _)) = key.split_once('/') {
            hand(Concern::Namespace(namespace.into()));
        }
        if self.nodes.load(Ordering::Relaxed) > 0 {
            let node = |o: &crate::obj::Obj| o.text(&["spec", "nodeName"]);
            let now = node(&event.obj);
            let before = match (&event.prev, event.kind) {
                (Some(prev), EventKind::Modified) => node(prev),
                _ => String::new(),
            };
            if before != now && !before.is_empty() {
                hand(Concern::Node(before.into()));
            }
            if !now.is_empty() {
                hand(Concern::Node(now.into()));
            }
        }
    }

    /// Starts to listen; `seen` returns the newest published revision, and is called at a time when no event can be
    /// missed.
    pub fn listen(self: &Feed, concern: Option<Concern>, seen: impl FnOnce() -> u64) -> Listener {
        let Some(concern) = concern else {
            return Listener { wake: self.all.subscribe(), lane: None };
        };
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(concern.clone()).or_insert_with(|| {
            if matches!(concern, Concern::Node(_)) {
                self.nodes.fetch_add(1, Ordering::Relaxed);
            }
            let floor = seen();
            let kept = Mutex::new(Kept { events: VecDeque::new(), floor });
            Arc::new(Lane { wake: ordered::Sender::new(floor), kept })
        });
        Listener { wake: lane.wake.subscribe(), lane: Some((concern, lane.clone())) }
    }

    /// Ends listening. A lane is dropped with its last listener.
    pub fn leave(&self, listener: &mut Listener) {
        let Some((concern, lane)) = listener.lane.take() else { return };
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        // One reference is the map's, one the leaver's.
        if Arc::strong_count(&lane) == 2 && lanes.get(&concern).is_some_and(|l| Arc::ptr_eq(l, &lane)) {
            lanes.remove(&concern);
            if matches!(concern, Concern::Node(_)) {
                self.nodes.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The table went back in time: every watcher wakes, and finds that its revision is too old.
    pub fn restart(&self, start: u64) {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes.values() {
            {
                let mut kept = lane.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.events.clear();
                kept.floor = start;
            }
            lane.wake.send_replace(start);
        }
        self.all.send_replace(start);
    }

    /// Number of lanes.
    #[cfg(test)]
    pub fn lanes(&self) -> usize {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A watcher that is woken.
pub struct Listener {
    wake: ordered::Receiver<u64>,
    lane: Option<(Concern, Arc<Lane>)>,
}

impl Listener {
    /// Records what was published so far: only later events wake it.
    pub fn settle(&mut self) {
        self.wake.settle();
    }

    /// Waits for another event; false if the table is gone.
    pub async fn woken(&mut self) -> bool {
        self.wake.changed().await.is_ok()
    }

    /// The lane's events after `cursor`; None when the log has to be read.
    pub fn events(&self, cursor: u64) -> Option<Vec<Arc<Event>>> {
        let (_, lane) = self.lane.as_ref()?;
        let kept = lane.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor < kept.floor {
            return None;
        }
        Some(kept.events.iter().filter(|e| e.rv > cursor).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, Write};
    use futures::FutureExt;
    use serde_json::json;

    fn woken(listener: &mut Listener) -> bool {
        let woken = listener.woken().now_or_never().is_some();
        listener.settle();
        woken
    }

    #[tokio::test]
    async fn an_event_wakes_only_whom_it_can_concern() {
        let store = Store::memory(100);
        let table = store.table("/pods");
        let concerns = [
            None,
            Some(Concern::Key("a/p1".into())),
            Some(Concern::Key("a/p2".into())),
            Some(Concern::Namespace("a".into())),
            Some(Concern::Namespace("b".into())),
            Some(Concern::Node("n1".into())),
            Some(Concern::Node("n2".into())),
        ];
        let mut all: Vec<Listener> =
            concerns.iter().map(|c| table.feed.listen(c.clone(), || store.durable())).collect();
        let mut check = |expect: [bool; 7]| {
            let found: Vec<bool> = all.iter_mut().map(woken).collect();
            assert_eq!(found, expect);
        };
        let pod = |node: &str| json!({"metadata": {"name": "p1"}, "spec": {"nodeName": node}});
        let create = Write::Create { table: table.clone(), key: "a/p1".into(), value: pod("n1") };
        let one = store.commit(vec![create]).unwrap().remove(0);
        check([true, true, false, true, false, true, false]);
        let moved = Write::Update { table: table.clone(), prev: one.clone(), value: pod("n2") };
        let two = store.commit(vec![moved]).unwrap().remove(0);
        check([true, true, false, true, false, true, true]);
        store.commit(vec![Write::Delete { table: table.clone(), prev: two.clone(), value: None }]).unwrap();
        check([true, true, false, true, false, false, true]);

        let lane =
            |i: usize, cursor: u64| all[i].events(cursor).map(|e| e.iter().map(|e| e.rv).collect::<Vec<_>>());
        assert_eq!(lane(0, 100), None, "who watches everything reads the log");
        assert_eq!(lane(5, 100), Some(vec![one.rv, two.rv]));
        assert_eq!(lane(6, one.rv), Some(vec![two.rv, two.rv + 1]));
        assert_eq!(lane(6, 99), None, "older events are in the log alone");
        assert_eq!(table.feed.lanes(), 6);
        let mut twin = table.feed.listen(concerns[1].clone(), || 0);
        table.feed.leave(&mut twin);
        assert_eq!(table.feed.lanes(), 6, "a lane stays for the others in it");
        all.iter_mut().for_each(|l| table.feed.leave(l));
        assert_eq!(table.feed.lanes(), 0);
    }
}

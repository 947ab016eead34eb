//! All objects of one resource, and the log of their changes.
//!
//! Inputs: changes in commit order. The log ring is also the event feed of watchers: a watcher is a position in it.
//! Absent on purpose: revisions and durability (`store`), who is woken (`feed`).

use crate::feed::Feed;
use crate::obj::{ByKey, Obj};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::time::{Duration, Instant};

/// Events kept per table for watchers and for lists at an older revision: as many as Kubernetes' watch cache keeps at most.
/// With fewer, a watcher that lags half a second behind a busy table has to list all of it again.
const RING_EVENTS: usize = 100 * 1024;
/// Events a table keeps however old they are.
const RING_KEPT: usize = 1_000;
/// Beyond those, how long a watch can resume from an event; older ones are dropped as new ones come.
const RING_AGE: Duration = Duration::from_secs(75);
/// Most old events dropped with each new one: a full log shrinks, and no write waits for it.
const RING_TRIM: usize = 4;
/// The newest events keep their JSON once it was made; most watchers read these.
const RING_WRITTEN: usize = 512;
/// Tables up to this size are counted for `remainingItemCount`.
const COUNTED: usize = 2000;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Created.
    Added,
    /// Changed.
    Modified,
    /// Removed; the object is the last state with the deletion's revision.
    Deleted,
}

/// One entry of the commit log.
#[derive(Debug)]
pub struct Event {
    /// Revision of this commit, unique.
    pub rv: u64,
    /// What happened.
    pub kind: EventKind,
    /// The new state (or last, for Deleted).
    pub obj: Arc<Obj>,
    /// The state before, except for Added.
    pub prev: Option<Arc<Obj>>,
    /// When it was committed.
    at: Instant,
    json: Mutex<Option<Bytes>>,
}

impl Event {
    /// An event that happens now.
    pub fn new(kind: EventKind, obj: Arc<Obj>, prev: Option<Arc<Obj>>, at: Instant) -> Event {
        Event { rv: obj.rv, kind, obj, prev, at, json: Mutex::new(None) }
    }

    /// The object as JSON, made once for all watchers while the event is young.
    #[inline]
    pub fn json(&self) -> Bytes {
        let mut kept = self.json.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert_with(|| self.obj.json()).clone()
    }

    fn forget_json(&self) {
        *self.json.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[derive(Default)]
struct State {
    objects: BTreeSet<ByKey>,
    ring: VecDeque<Arc<Event>>,
    /// Revisions at or below this have left the ring.
    floor: u64,
    last: u64,
}

impl State {
    /// Appends to the log, and drops events that are too old to resume from.
    fn push(&mut self, event: Arc<Event>) {
        let now = event.at;
        for _ in 0..RING_TRIM {
            let full = self.ring.len() >= RING_EVENTS;
            let aged = self.ring.len() > RING_KEPT
                && self.ring.front().is_some_and(|old| now.duration_since(old.at) > RING_AGE);
            if !full && !aged {
                break;
            }
            if let Some(old) = self.ring.pop_front() {
                self.floor = old.rv;
            }
        }
        self.ring.push_back(event);
        if let Some(old) = self.ring.len().checked_sub(RING_WRITTEN).and_then(|i| self.ring.get(i)) {
            old.forget_json();
        }
    }
}

/// One object of a table that went back: what it was until then, and what it is again.
pub struct Undone {
    /// Before.
    pub now: Option<Arc<Obj>>,
    /// From now on.
    pub then: Option<Arc<Obj>>,
}

/// All objects of one resource.
pub struct Table {
    /// `group/plural`.
    pub name: Box<str>,
    /// Wakes those who wait for events.
    pub feed: Feed,
    state: RwLock<State>,
}

impl Table {
    /// An empty table in which no event is older than `floor`.
    pub fn new(name: &str, floor: u64) -> Table {
        let state = State { floor, ..State::default() };
        Table { name: name.into(), feed: Feed::new(floor), state: RwLock::new(state) }
    }

    fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        // A panic while holding the lock cannot leave the maps half changed: each change is one insert.
        f(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts an object found at start.
    pub fn restore(&self, obj: Obj) {
        self.write(|s| {
            s.last = s.last.max(obj.rv);
            s.objects.replace(ByKey(Arc::new(obj)));
        });
    }

    /// Makes a change visible to reads.
    pub fn apply(&self, event: Arc<Event>) {
        self.write(|s| {
            if event.kind == EventKind::Deleted {
                s.objects.remove(&*event.obj.key);
            } else {
                s.objects.replace(ByKey(event.obj.clone()));
            }
            s.last = event.rv;
            s.push(event);
        });
    }

    /// Undoes the newest change.
    pub fn undo(&self, event: &Event) {
        self.write(|s| {
            match &event.prev {
                Some(prev) => s.objects.replace(ByKey(prev.clone())),
                None => s.objects.take(&*event.obj.key),
            };
            if s.ring.back().is_some_and(|e| e.rv == event.rv) {
                s.ring.pop_back();
            }
            s.last = s.ring.back().map_or(s.floor, |e| e.rv);
        });
    }

    /// The state of revision `to` again. The log is empty, from revision `start` on. Returns what each object that
    /// changed was before, and what it is.
    pub fn go_back(&self, to: u64, start: u64) -> Vec<Undone> {
        self.write(|s| {
            let mut then: BTreeMap<Box<str>, Option<Arc<Obj>>> = BTreeMap::new();
            // The oldest change after that revision says what stood there.
            for event in s.ring.iter().rev().take_while(|event| event.rv > to) {
                then.insert(event.obj.key.clone(), event.prev.clone());
            }
            (s.floor, s.last) = (start, start);
            s.ring.clear();
            let undo = |(key, then): (Box<str>, Option<Arc<Obj>>)| {
                let now = s.objects.get(&*key).map(|obj| obj.0.clone());
                match &then {
                    Some(then) => drop(s.objects.replace(ByKey(then.clone()))),
                    None => drop(s.objects.take(&*key)),
                }
                Undone { now, then }
            };
            then.into_iter().map(undo).collect()
        })
    }

    /// The newest revision that was committed until `at`.
    pub fn revision_at(&self, at: Instant) -> u64 {
        self.read(|s| s.ring.iter().rev().find(|event| event.at <= at).map_or(s.floor, |event| event.rv))
    }

    /// One object, as applied (perhaps not durable yet).
    #[inline]
    pub fn get(&self, key: &str) -> Option<Arc<Obj>> {
        self.read(|s| s.objects.get(key).map(|o| o.0.clone()))
    }

    /// One object as applied, and the revision of the table's last change.
    pub fn get_at(&self, key: &str) -> (Option<Arc<Obj>>, u64) {
        self.read(|s| (s.objects.get(key).map(|o| o.0.clone()), s.last))
    }

    /// True when this very version is the current one.
    pub fn holds(&self, obj: &Arc<Obj>) -> bool {
        self.read(|s| s.objects.get(&*obj.key).is_some_and(|o| Arc::ptr_eq(&o.0, obj)))
    }

    /// True when the key is taken.
    #[inline]
    pub fn contains(&self, key: &str) -> bool {
        self.read(|s| s.objects.contains(key))
    }

    /// All objects as applied, in key order.
    pub fn objects(&self) -> Vec<Arc<Obj>> {
        self.read(|s| s.objects.iter().map(|o| o.0.clone()).collect())
    }

    /// Number of objects.
    #[inline]
    pub fn len(&self) -> usize {
        self.read(|s| s.objects.len())
    }

    /// True without objects.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Revision of the last change of this table.
    #[inline]
    pub fn last(&self) -> u64 {
        self.read(|s| s.last)
    }

    /// Events after `cursor` up to `limit`, at most `max`; None when the cursor has left the ring.
    #[inline]
    pub fn events(&self, cursor: u64, limit: u64, max: usize) -> Option<Vec<Arc<Event>>> {
        self.read(|s| {
            if cursor < s.floor {
                return None;
            }
            let start = s.ring.partition_point(|e| e.rv <= cursor);
            Some(s.ring.range(start..).take_while(|e| e.rv <= limit).take(max).cloned().collect())
        })
    }

    /// Oldest revision a watcher can start from.
    pub fn floor(&self) -> u64 {
        self.read(|s| s.floor)
    }

    /// A page as applied, with the revision of the table's last change.
    pub fn page(&self, range: Range<'_>, durable: u64) -> (Option<Page>, u64) {
        self.read(|s| (s.page(range, durable), s.last))
    }

    /// Events in the ring.
    #[cfg(test)]
    pub fn ring_len(&self) -> usize {
        self.read(|s| s.ring.len())
    }
}

/// A consistent part of a table.
pub struct Page {
    /// The objects in key order.
    pub items: Vec<Arc<Obj>>,
    /// Key after which the next page starts, if there is more.
    pub next: Option<Box<str>>,
    /// Objects after this page; 0 if unknown, as for large tables.
    pub remaining: usize,
    /// Revision the page is from.
    pub rv: u64,
}

/// What to read of a table.
#[derive(Default, Clone, Copy)]
pub struct Range<'a> {
    /// Key prefix (`namespace/`), empty for all.
    pub prefix: &'a str,
    /// Start after this key.
    pub after: Option<&'a str>,
    /// Most objects; 0: all.
    pub limit: usize,
    /// The revision to read; None: the present one.
    pub at: Option<u64>,
}

impl State {
    fn page(&self, range: Range<'_>, durable: u64) -> Option<Page> {
        let rv = self.last.max(durable);
        let mut page = Page { items: Vec::new(), next: None, remaining: 0, rv };
        let start: Bound<&str> = match range.after {
            Some(key) => Bound::Excluded(key),
            None if range.prefix.is_empty() => Bound::Unbounded,
            None => Bound::Included(range.prefix),
        };
        let inside = |key: &str| key.starts_with(range.prefix);
        let push = |page: &mut Page, obj: &Arc<Obj>| {
            if range.limit > 0 && page.items.len() == range.limit {
                page.remaining += 1;
            } else {
                page.items.push(obj.clone());
            }
        };
        let live = self.objects.range::<str, _>((start, Bound::Unbounded)).map(|o| &o.0);
        let live = live.take_while(|o| inside(&o.key));
        match range.at {
            Some(at) if at < self.last => {
                if at < self.floor {
                    return None;
                }
                page.rv = at;
                // Undo everything after the asked revision, newest first.
                let mut undo: BTreeMap<&str, Option<&Arc<Obj>>> = BTreeMap::new();
                for event in self.ring.iter().rev().take_while(|e| e.rv > at) {
                    undo.insert(&event.obj.key, event.prev.as_ref());
                }
                let after = |key: &str| range.after.is_none_or(|a| key > a);
                undo.retain(|key, _| inside(key) && after(key));
                let mut undone = undo.into_iter().peekable();
                let mut live = live.peekable();
                // Both are in key order; an undone state replaces the present one.
                loop {
                    if page.remaining > 0 && self.objects.len() > COUNTED {
                        break;
                    }
                    let take_old = match (live.peek(), undone.peek()) {
                        (None, None) => break,
                        (Some(_), None) => false,
                        (None, Some(_)) => true,
                        (Some(o), Some((key, _))) => *key <= &*o.key,
                    };
                    if !take_old {
                        live.next().into_iter().for_each(|o| push(&mut page, o));
                        continue;
                    }
                    if let Some((key, prev)) = undone.next() {
                        live.next_if(|o| &*o.key == key);
                        prev.into_iter().for_each(|o| push(&mut page, o));
                    }
                }
            }
            at => {
                page.rv = at.unwrap_or(rv);
                // Counting the rest costs a walk over it, so large tables only report that there is more.
                let most = if range.limit > 0 && self.objects.len() > COUNTED {
                    range.limit + 1
                } else {
                    usize::MAX
                };
                live.take(most).for_each(|obj| push(&mut page, obj));
            }
        }
        if page.remaining > 0 {
            page.next = page.items.last().map(|o| o.key.clone());
            if self.objects.len() > COUNTED {
                page.remaining = 0;
            }
        }
        Some(page)
    }
}

#[cfg(test)]
pub mod bounds {
    //! The bounds of the ring, for tests of the store.
    pub const KEPT: usize = super::RING_KEPT;
    pub const AGE: tokio::time::Duration = super::RING_AGE;
}

//! The object store: ordered tables in memory, one revision counter, one commit log per table.
//!
//! Inputs: writes that are already validated. The log ring of a table is also the event feed of its watchers:
//! a watcher is only a position in it. A write becomes visible to watchers and is acknowledged once durable.
//! Absent on purpose: anything about HTTP, schemas or permissions.

use crate::disk::{Batch, Disk};
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

/// Events kept per table for watchers and for lists at an older revision.
const RING_EVENTS: usize = 10_000;
/// Events a table keeps however old they are.
const RING_KEPT: usize = 1_000;
/// Beyond those, how long an event can be resumed from; what is older goes as new ones come.
const RING_AGE: Duration = Duration::from_secs(75);
/// Old events that may go with each new one, so that a full log shrinks and no write waits for it.
const RING_TRIM: usize = 4;

/// Tables up to this size are counted for `remainingItemCount`.
const COUNTED: usize = 2000;

/// One stored version of an object.
#[derive(Debug)]
pub struct Obj {
    /// `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Box<str>,
    /// Revision of this version.
    pub rv: u64,
    /// The object with its resourceVersion, without managedFields: see [`Obj::full`].
    pub value: Value,
    /// managedFields as JSON text: as a tree they would take more room than all the rest.
    managed: Option<Box<str>>,
    bytes: OnceLock<Bytes>,
}

impl Obj {
    /// An object as it will be stored.
    pub fn new(key: &str, rv: u64, mut value: Value) -> Obj {
        let meta = value.get_mut("metadata").and_then(Value::as_object_mut);
        let managed = meta.and_then(|m| m.remove("managedFields")).map(|m| m.to_string().into_boxed_str());
        Obj { key: key.into(), rv, value, managed, bytes: OnceLock::new() }
    }

    /// The whole object, with its managedFields.
    pub fn full(&self) -> Value {
        let mut value = self.value.clone();
        if let Some(managed) = self.managed.as_ref().and_then(|m| serde_json::from_str(m).ok()) {
            crate::tree::meta(&mut value).insert("managedFields".into(), managed);
        }
        value
    }

    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let (Value::Object(map), Some(managed)) = (&self.value, &self.managed) else {
            return serde_json::to_writer(out, &self.value);
        };
        out.push(b'{');
        for (i, (key, value)) in map.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, key)?;
            out.push(b':');
            let start = out.len();
            serde_json::to_writer(&mut *out, value)?;
            if key == "metadata" && out.get(start) == Some(&b'{') {
                // The text goes right after the opening brace of the metadata.
                let rest = out.split_off(start + 1);
                out.extend_from_slice(b"\"managedFields\":");
                out.extend_from_slice(managed.as_bytes());
                if rest.first() != Some(&b'}') {
                    out.push(b',');
                }
                out.extend_from_slice(&rest);
            }
        }
        out.push(b'}');
        Ok(())
    }

    /// The object as JSON, made once.
    pub fn bytes(&self) -> Bytes {
        let make = || {
            let mut out = Vec::with_capacity(1024);
            // Writing a tree of strings and numbers to memory cannot fail.
            let _ = self.write(&mut out);
            out.shrink_to_fit();
            Bytes::from(out)
        };
        self.bytes.get_or_init(make).clone()
    }
}

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
}

#[derive(Default)]
struct TableState {
    objects: BTreeMap<Box<str>, Arc<Obj>>,
    ring: VecDeque<Arc<Event>>,
    /// Revisions at or below this have left the ring.
    floor: u64,
    last: u64,
}

impl TableState {
    /// Appends to the log and lets go of what nobody resumes from any more.
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
    }
}

/// All objects of one resource.
pub struct Table {
    /// `group/plural`.
    pub name: Box<str>,
    state: RwLock<TableState>,
    feed: watch::Sender<u64>,
}

impl Table {
    fn read<T>(&self, f: impl FnOnce(&TableState) -> T) -> T {
        // A panic while holding the lock cannot leave the maps half changed: each change is one insert.
        f(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// One object, as applied (perhaps not durable yet).
    pub fn get(&self, key: &str) -> Option<Arc<Obj>> {
        self.read(|s| s.objects.get(key).cloned())
    }

    /// All objects as applied, in key order.
    pub fn objects(&self) -> Vec<Arc<Obj>> {
        self.read(|s| s.objects.values().cloned().collect())
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.read(|s| s.objects.len())
    }

    /// True without objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Revision of the last change of this table.
    pub fn last(&self) -> u64 {
        self.read(|s| s.last)
    }

    /// A receiver that wakes when new events can be read.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.feed.subscribe()
    }

    /// Events after `cursor` up to `limit`, at most `max`; None when the cursor has left the ring.
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
}

/// A consistent part of a table.
pub struct Page {
    /// The objects in key order.
    pub items: Vec<Arc<Obj>>,
    /// Key after which the next page starts, when there is more.
    pub next: Option<Box<str>>,
    /// Objects left after this page; 0 when unknown, as it is for large tables.
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
    /// At most so many objects; 0 for all.
    pub limit: usize,
    /// State at this revision instead of now.
    pub at: Option<u64>,
}

/// One write of a commit.
pub enum Write {
    /// The key must be free.
    Create { table: Arc<Table>, key: String, value: Value },
    /// The current version must be `prev`.
    Update { table: Arc<Table>, prev: Arc<Obj>, value: Value },
    /// The current version must be `prev`; `value` is the last state shown to watchers.
    Delete { table: Arc<Table>, prev: Arc<Obj>, value: Option<Value> },
}

/// Why a commit was refused; the number is the write's place in the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The key is taken.
    Exists(usize),
    /// The object changed or is gone.
    Changed(usize),
    /// The store is closed or its disk failed.
    Closed(String),
}

/// Called with each published event, in commit order, from the publishing thread.
pub type Hook = Box<dyn Fn(&Arc<Table>, &Arc<Event>) + Send + Sync>;

/// The store of one server.
pub struct Store {
    sequence: Mutex<Sequence>,
    tables: RwLock<HashMap<Box<str>, Arc<Table>>>,
    published: Arc<Published>,
    disk: Option<Disk>,
    /// Revision at start: no table has older events.
    start: u64,
}

struct Sequence {
    rv: u64,
    closed: bool,
}

/// The durable side of the store, shared with the committer thread.
pub struct Published {
    durable: AtomicU64,
    feed: watch::Sender<u64>,
    hook: OnceLock<Hook>,
    failure: OnceLock<String>,
}

impl Published {
    fn publish(&self, events: &[(Arc<Table>, Arc<Event>)], rv: u64) {
        self.durable.store(rv, Ordering::Release);
        for (table, event) in events {
            table.feed.send_replace(event.rv);
            if let Some(hook) = self.hook.get() {
                hook(table, event);
            }
        }
        self.feed.send_replace(rv);
    }

    /// Called by the committer once a batch is on disk.
    pub fn durable(&self, batch: &[Batch]) {
        for b in batch {
            self.publish(&b.events, b.rv);
        }
    }

    /// Called by the committer when the disk refused a batch.
    pub fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.feed.send_modify(|_| {});
    }
}

impl Store {
    /// A store in memory whose revisions start at `start`.
    pub fn memory(start: u64) -> Store {
        Store::with(start, None, Vec::new())
    }

    /// A store on a disk, with the objects found there.
    pub fn on_disk(disk: Disk, start: u64, found: Vec<(String, Obj)>) -> Store {
        Store::with(start, Some(disk), found)
    }

    fn with(start: u64, mut disk: Option<Disk>, found: Vec<(String, Obj)>) -> Store {
        let published = Arc::new(Published {
            durable: AtomicU64::new(start),
            feed: watch::Sender::new(start),
            hook: OnceLock::new(),
            failure: OnceLock::new(),
        });
        if let Some(d) = &mut disk {
            d.start(published.clone());
        }
        let store = Store {
            sequence: Mutex::new(Sequence { rv: start, closed: false }),
            tables: RwLock::new(HashMap::new()),
            published,
            disk,
            start,
        };
        for (table, obj) in found {
            let table = store.table(&table);
            let mut state = table.state.write().unwrap_or_else(PoisonError::into_inner);
            state.last = state.last.max(obj.rv);
            state.objects.insert(obj.key.clone(), Arc::new(obj));
        }
        store
    }

    /// Installs the hook; only the first call counts.
    pub fn on_event(&self, hook: Hook) {
        let _ = self.published.hook.set(hook);
    }

    /// The table of a resource, made when missing.
    pub fn table(&self, name: &str) -> Arc<Table> {
        if let Some(t) = self.tables.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return t.clone();
        }
        let floor = self.start;
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let state = TableState { floor, last: 0, ..TableState::default() };
            Arc::new(Table { name: name.into(), state: RwLock::new(state), feed: watch::Sender::new(floor) })
        };
        tables.entry(name.into()).or_insert_with(make).clone()
    }

    /// All tables made so far.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<Table>> = tables.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The newest durable revision.
    pub fn durable(&self) -> u64 {
        self.published.durable.load(Ordering::Acquire)
    }

    fn sequence(&self) -> MutexGuard<'_, Sequence> {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a revision is durable.
    pub async fn wait(&self, rv: u64) -> Result<(), Refused> {
        if self.durable() >= rv {
            return Ok(());
        }
        let mut feed = self.published.feed.subscribe();
        loop {
            if self.durable() >= rv {
                return Ok(());
            }
            if let Some(why) = self.published.failure.get() {
                return Err(Refused::Closed(why.clone()));
            }
            if feed.changed().await.is_err() {
                return Err(Refused::Closed("the store is closed".into()));
            }
        }
    }

    /// One object, once it is durable.
    pub async fn read(&self, table: &Table, key: &str) -> Result<Option<Arc<Obj>>, Refused> {
        let (found, last) = table.read(|s| (s.objects.get(key).cloned(), s.last));
        match &found {
            Some(obj) => self.wait(obj.rv).await?,
            // The object may just have been deleted.
            None => self.wait(last).await?,
        }
        Ok(found)
    }

    /// A page of a table, once it is durable. None when the asked revision has left the log.
    pub async fn page(&self, table: &Table, range: Range<'_>) -> Result<Option<Page>, Refused> {
        let durable = self.durable();
        let (page, last) = table.read(|s| (read_page(s, range, durable), s.last));
        self.wait(last).await?;
        Ok(page)
    }

    /// Applies all writes or none. The result is not durable yet: see [`Store::wait`].
    pub fn commit(&self, writes: Vec<Write>) -> Result<Vec<Arc<Obj>>, Refused> {
        if let Some(why) = self.published.failure.get() {
            return Err(Refused::Closed(why.clone()));
        }
        let mut sequence = self.sequence();
        if sequence.closed {
            return Err(Refused::Closed("the server is shutting down".into()));
        }
        for (i, write) in writes.iter().enumerate() {
            match write {
                Write::Create { table, key, .. } => {
                    if table.read(|s| s.objects.contains_key(key.as_str())) {
                        return Err(Refused::Exists(i));
                    }
                }
                Write::Update { table, prev, .. } | Write::Delete { table, prev, .. } => {
                    let same = table.read(|s| s.objects.get(&prev.key).is_some_and(|o| Arc::ptr_eq(o, prev)));
                    if !same {
                        return Err(Refused::Changed(i));
                    }
                }
            }
        }
        let at = Instant::now();
        let mut objs = Vec::with_capacity(writes.len());
        let mut events = Vec::with_capacity(writes.len());
        for write in writes {
            sequence.rv += 1;
            let rv = sequence.rv;
            let (table, event) = match write {
                Write::Create { table, key, value } => {
                    let obj = Arc::new(Obj::new(&key, rv, stamp(value, rv)));
                    (table, Event { rv, kind: EventKind::Added, obj, prev: None, at })
                }
                Write::Update { table, prev, value } => {
                    let obj = Arc::new(Obj::new(&prev.key, rv, stamp(value, rv)));
                    (table, Event { rv, kind: EventKind::Modified, obj, prev: Some(prev), at })
                }
                Write::Delete { table, prev, value } => {
                    let value = value.unwrap_or_else(|| prev.full());
                    let obj = Arc::new(Obj::new(&prev.key, rv, stamp(value, rv)));
                    (table, Event { rv, kind: EventKind::Deleted, obj, prev: Some(prev), at })
                }
            };
            let event = Arc::new(event);
            objs.push(event.obj.clone());
            {
                let mut state = table.state.write().unwrap_or_else(PoisonError::into_inner);
                if event.kind == EventKind::Deleted {
                    state.objects.remove(&event.obj.key);
                } else {
                    state.objects.insert(event.obj.key.clone(), event.obj.clone());
                }
                state.last = rv;
                state.push(event.clone());
            }
            events.push((table, event));
        }
        match &self.disk {
            // In memory: publishing under the sequence lock keeps hooks in commit order.
            None => self.published.publish(&events, sequence.rv),
            Some(disk) => disk.send(Batch { events, rv: sequence.rv }),
        }
        Ok(objs)
    }

    /// Keeps a small document beside the objects (tokens and the like).
    pub fn put_note(&self, key: &str, value: &str) {
        if let Some(disk) = &self.disk {
            disk.note(key, value);
        }
    }

    /// Refuses further writes, writes out what is queued and closes the disk.
    pub fn close(&self) {
        self.sequence().closed = true;
        if let Some(disk) = &self.disk {
            disk.close();
        }
    }
}

fn stamp(mut value: Value, rv: u64) -> Value {
    crate::tree::meta(&mut value).insert("resourceVersion".into(), Value::String(rv.to_string()));
    value
}

fn read_page(s: &TableState, range: Range<'_>, durable: u64) -> Option<Page> {
    let rv = s.last.max(durable);
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
    let live = s.objects.range::<str, _>((start, Bound::Unbounded)).take_while(|(k, _)| inside(k));
    match range.at {
        Some(at) if at < s.last => {
            if at < s.floor {
                return None;
            }
            page.rv = at;
            // Undo everything after the asked revision, newest first.
            let mut undo: BTreeMap<&str, Option<&Arc<Obj>>> = BTreeMap::new();
            for event in s.ring.iter().rev().take_while(|e| e.rv > at) {
                undo.insert(&event.obj.key, event.prev.as_ref());
            }
            let mut merged: BTreeMap<&str, &Arc<Obj>> = live.map(|(k, v)| (&**k, v)).collect();
            let after = |key: &str| range.after.is_none_or(|a| key > a);
            for (key, prev) in undo.into_iter().filter(|(k, _)| inside(k) && after(k)) {
                match prev {
                    Some(obj) => merged.insert(key, obj),
                    None => merged.remove(key),
                };
            }
            merged.values().for_each(|obj| push(&mut page, obj));
        }
        at => {
            page.rv = at.unwrap_or(rv);
            // Counting what is left costs a walk over it, so large tables only learn that there is more.
            let most =
                if range.limit > 0 && s.objects.len() > COUNTED { range.limit + 1 } else { usize::MAX };
            live.take(most).for_each(|(_, obj)| push(&mut page, obj));
        }
    }
    if page.remaining > 0 {
        page.next = page.items.last().map(|o| o.key.clone());
        if s.objects.len() > COUNTED {
            page.remaining = 0;
        }
    }
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn older_revisions_are_rebuilt_from_the_log() {
        let store = Store::memory(100);
        let table = store.table("/things");
        let create = |k: &str| Write::Create { table: table.clone(), key: k.into(), value: json!({"n": k}) };
        let a = store.commit(vec![create("x/a")]).unwrap().remove(0);
        let b = store.commit(vec![create("x/b")]).unwrap().remove(0);
        assert_eq!(store.commit(vec![create("x/b")]).unwrap_err(), Refused::Exists(0));
        store.commit(vec![Write::Delete { table: table.clone(), prev: a.clone(), value: None }]).unwrap();
        let now = store.page(&table, Range::default()).await.unwrap().unwrap();
        assert_eq!(now.items.len(), 1);
        let then = store.page(&table, Range { at: Some(b.rv), ..Range::default() }).await.unwrap().unwrap();
        assert_eq!(then.items.iter().map(|o| &*o.key).collect::<Vec<_>>(), ["x/a", "x/b"]);
        let events = table.events(100, store.durable(), 10).unwrap();
        assert_eq!(events.len(), 3);
        assert!(table.events(99, store.durable(), 10).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn old_events_go_as_new_ones_come_and_their_revisions_are_too_old() {
        let store = Store::memory(100);
        let table = store.table("/things");
        let create =
            |n: usize| Write::Create { table: table.clone(), key: format!("x/{n:05}"), value: json!({}) };
        for n in 0..RING_KEPT + 8 {
            store.commit(vec![create(n)]).unwrap();
        }
        assert!(table.events(100, store.durable(), 1).is_some(), "young events all stay");
        tokio::time::advance(RING_AGE + Duration::from_secs(1)).await;
        for n in 0..4 {
            store.commit(vec![create(RING_KEPT + 8 + n)]).unwrap();
        }
        assert!(table.events(100, store.durable(), 1).is_none());
        let kept = table.read(|state| state.ring.len());
        assert!((RING_KEPT..RING_KEPT + 8).contains(&kept), "{kept}");
    }
}

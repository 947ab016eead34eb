//! The object store: ordered tables in memory, one revision counter, one commit log per table.
//!
//! Inputs: valid writes. A write is visible to watchers and acknowledged once it is durable. A write that the disk
//! refuses is undone without a trace. Absent on purpose: HTTP, schemas and permissions.

use crate::dict::Dicts;
use crate::disk::{Disk, FileContents};
use crate::nesting::{self, TooDeep};
pub use crate::obj::Obj;
use crate::published::{Batch, Published};
pub use crate::published::{Hook, Refused};
use crate::room::Room;
pub use crate::table::{Event, EventKind, Page, Range, Table};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::time::Instant;

/// What a deletion mark and its progress may take on a full disk.
const MARK_BYTES: usize = 4096;

/// Why a full disk refuses a write.
const FULL: &str = "the disk is full; only what gives room back is written until there is room again";

/// One write of a commit.
pub enum Write {
    /// The key must be free.
    Create { table: Arc<Table>, key: String, value: Value },
    /// The current version must be `prev`.
    Update { table: Arc<Table>, prev: Arc<Obj>, value: Value },
    /// The current version must be `prev`; `value` is the last state shown to watchers.
    Delete { table: Arc<Table>, prev: Arc<Obj>, value: Option<Value> },
}

impl Write {
    fn check_nesting(&self) -> Result<(), TooDeep> {
        match self {
            Write::Create { value, .. } => nesting::check(value),
            Write::Update { prev, value, .. } => match nesting::check(value) {
                Ok(()) => Ok(()),
                Err(_) => nesting::check_change(Some(&prev.full()), value),
            },
            // Nobody reads it any more but watchers, who saw it before.
            Write::Delete { .. } => Ok(()),
        }
    }
}

/// The store of one server.
pub struct Store {
    pub(crate) published: Arc<Published>,
    dicts: Dicts,
    tables: RwLock<HashMap<Box<str>, Arc<Table>>>,
    pub(crate) disk: Option<Disk>,
    room: Room,
    pub(crate) lives: RwLock<Vec<Life>>,
}

/// What a store was between two starts. Revisions after `resumed` and before `start` are of a time that was undone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    /// Last revision before the start.
    pub resumed: u64,
    /// Revision at start: no table has older events.
    pub start: u64,
}

/// Where a client's revision is in the history of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the past; the number is the revision of the same state in this history.
    Reached(u64),
    /// In the future; the number is the newest revision.
    Ahead(u64),
    /// In another history: the store was restored to an older state since.
    Elsewhere,
}

/// Least number of revisions skipped at each start, for a clock that went back.
pub(crate) const GAP: u64 = 1 << 20;

impl Store {
    /// A store in memory whose revisions start at `start`.
    pub fn memory(start: u64) -> Store {
        Store::with(start, None, FileContents::default())
    }

    /// A store on disk, with the objects found there. Its revisions start at `floor` at least, and leave a gap: a
    /// revision from a time that a restore has undone is never used again, nor taken for one of this history. With
    /// a floor of the wall clock (seconds << 20, with fraction), that is true while the server makes fewer than a
    /// million writes per second.
    pub fn on_disk(disk: Disk, floor: u64, found: FileContents) -> Store {
        let start = if floor > found.rv { floor } else { found.rv + GAP };
        Store::with(start, Some(disk), found)
    }

    /// Where a revision is in this store's history.
    pub fn place(&self, rv: u64) -> Place {
        let newest = self.durable();
        let lives = self.lives.read().unwrap_or_else(PoisonError::into_inner);
        match lives.last() {
            // Nothing happened between the last commit and the start.
            Some(life) if rv == life.resumed => Place::Reached(life.start),
            _ if rv > newest => Place::Ahead(newest),
            _ if lives.iter().any(|life| rv > life.resumed && rv < life.start) => Place::Elsewhere,
            _ => Place::Reached(rv),
        }
    }

    fn life(&self) -> Life {
        let lives = self.lives.read().unwrap_or_else(PoisonError::into_inner);
        lives.last().copied().unwrap_or(Life { resumed: 0, start: 0 })
    }

    fn with(start: u64, disk: Option<Disk>, found: FileContents) -> Store {
        let published = Arc::new(Published::new(start));
        let store = Store {
            published: published.clone(),
            dicts: Dicts::new(found.dicts),
            tables: RwLock::new(HashMap::new()),
            disk,
            room: Room::default(),
            lives: RwLock::new(vec![Life { resumed: if found.rv == 0 { start } else { found.rv }, start }]),
        };
        let mut table: Option<Arc<Table>> = None;
        for (name, obj) in found.objects {
            // Objects come table by table.
            let into = match table.take() {
                Some(t) if *t.name == *name => t,
                _ => store.table(&name),
            };
            into.restore(obj);
            table = Some(into);
        }
        if let Some(disk) = &store.disk {
            disk.start(published);
        }
        store
    }

    /// Installs the hook; only the first call counts.
    pub fn on_event(&self, hook: Hook) {
        let _ = self.published.hook.set(hook);
    }

    /// The table of a resource; it is made if missing.
    #[inline]
    pub fn table(&self, name: &str) -> Arc<Table> {
        if let Some(t) = self.tables.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return t.clone();
        }
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(Table::new(name, self.life().start));
        tables.entry(name.into()).or_insert_with(make).clone()
    }

    /// All tables made so far.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<Table>> = tables.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// A version that is not stored.
    pub fn draft(&self, key: &str, rv: u64, value: &Value) -> Obj {
        Obj::new(&self.dicts, key, rv, value)
    }

    /// The newest durable revision.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.published.durable.load(Ordering::Acquire)
    }

    /// Every event up to this revision was given to the feeds.
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.published.delivered.load(Ordering::Acquire)
    }

    /// Waits until a revision is durable.
    pub async fn wait(&self, rv: u64) -> Result<(), Refused> {
        if let Some(known) = self.published.outcome(rv) {
            return known;
        }
        let mut feed = self.published.feed.subscribe();
        loop {
            if let Some(known) = self.published.outcome(rv) {
                return known;
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
        loop {
            let (found, last) = table.get_at(key);
            // If there is no object, it may just have been deleted.
            match self.wait(found.as_ref().map_or(last, |o| o.rv)).await {
                // What was read was undone.
                Err(Refused::NotStored(_)) => {}
                other => return other.map(|()| found),
            }
        }
    }

    /// A page of a table, once it is durable. None if the requested revision has left the log.
    pub async fn page(&self, table: &Table, range: Range<'_>) -> Result<Option<Page>, Refused> {
        loop {
            let (page, last) = table.page(range, self.durable());
            match self.wait(last).await {
                Err(Refused::NotStored(_)) => {}
                other => return other.map(|()| page),
            }
        }
    }

    /// Applies all writes or none. The result is not durable yet: see [`Store::wait`].
    pub fn commit(&self, writes: Vec<Write>) -> Result<Vec<Arc<Obj>>, Refused> {
        self.commit_if(writes, || true)
    }

    /// As [`Store::commit`], for writes that are needed to remove something: on a full disk they may use the
    /// reserve.
    pub fn commit_to_free(&self, writes: Vec<Write>) -> Result<Vec<Arc<Obj>>, Refused> {
        self.commit_in(writes, true, || true)
    }

    /// As [`Store::commit`], if a condition holds at the time of the commit, while nothing else changes.
    pub fn commit_if(
        &self,
        writes: Vec<Write>,
        condition: impl FnOnce() -> bool,
    ) -> Result<Vec<Arc<Obj>>, Refused> {
        self.commit_in(writes, false, condition)
    }

    fn commit_in(
        &self,
        writes: Vec<Write>,
        to_free: bool,
        condition: impl FnOnce() -> bool,
    ) -> Result<Vec<Arc<Obj>>, Refused> {
        if let Some(why) = self.published.failure.get() {
            return Err(Refused::Closed(why.clone()));
        }
        // What was stored must be readable inside lists and events, too.
        writes.iter().try_for_each(Write::check_nesting).map_err(Refused::TooDeep)?;
        // Packed before the lock, numbered under it.
        let mut packed: Vec<Option<Obj>> = writes
            .iter()
            .map(|write| match write {
                Write::Create { key, value, .. } => Some(self.draft(key, 0, value)),
                Write::Update { prev, value, .. } | Write::Delete { prev, value: Some(value), .. } => {
                    Some(self.draft(&prev.key, 0, value))
                }
                Write::Delete { .. } => None,
            })
            .collect();
        let frees = to_free || writes.iter().zip(&packed).all(|(write, new)| frees(write, new.as_ref()));
        if !frees && self.disk.as_ref().is_some_and(|disk| !disk.admits()) {
            return Err(Refused::NotStored(FULL.into()));
        }
        let growth = writes.iter().zip(&packed).map(|(write, new)| growth(write, new.as_ref())).sum();
        let mut objs = Vec::with_capacity(writes.len());
        let mut events = Vec::with_capacity(writes.len());
        let mut sequence = self.published.sequence();
        if sequence.closed {
            return Err(Refused::Closed("the server is shutting down".into()));
        }
        for (i, write) in writes.iter().enumerate() {
            match write {
                Write::Create { table, key, .. } if table.contains(key) => return Err(Refused::Exists(i)),
                Write::Create { .. } => {}
                Write::Update { table, prev, .. } | Write::Delete { table, prev, .. } => {
                    if !table.holds(prev) {
                        return Err(Refused::Changed(i));
                    }
                }
            }
        }
        if !condition() {
            return Err(Refused::Barred);
        }
        if !self.room.take(growth, frees) {
            return Err(Refused::NotStored(FULL.into()));
        }
        let at = Instant::now();
        for (write, packed) in writes.iter().zip(&mut packed) {
            sequence.rv += 1;
            let rv = sequence.rv;
            let (table, kind, prev) = match write {
                Write::Create { table, .. } => (table, EventKind::Added, None),
                Write::Update { table, prev, .. } => (table, EventKind::Modified, Some(prev)),
                Write::Delete { table, prev, .. } => (table, EventKind::Deleted, Some(prev)),
            };
            let obj = match (packed.take(), prev) {
                (Some(obj), _) => obj.numbered(rv),
                (None, Some(prev)) => prev.at_revision(rv),
                // Only a delete comes without a state of its own, and it has a former version.
                (None, None) => continue,
            };
            let event = Arc::new(Event::new(kind, Arc::new(obj), prev.cloned(), at));
            objs.push(event.obj.clone());
            table.apply(event.clone());
            events.push((table.clone(), event));
        }
        match &self.disk {
            // In memory: publishing under the sequence lock keeps hooks in commit order.
            None => self.published.publish(&events, sequence.rv),
            Some(disk) => disk.send(Batch { events, rv: sequence.rv, frees }),
        }
        drop(sequence);
        // The trees are freed outside the lock.
        drop(writes);
        Ok(objs)
    }

    /// For simulations: from now on the objects may grow by so many bytes in all, as on a disk that is nearly full.
    /// Beyond that, writes are refused as a full disk refuses them. `None`: there is no limit.
    pub fn limit_room(&self, bytes: Option<u32>) {
        self.room.limit(bytes);
    }

    /// Stores a small document beside the objects (tokens and the like).
    pub fn put_note(&self, key: &str, value: &str) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.note(key, value))
    }

    /// The newest revision on disk.
    pub fn last(&self) -> u64 {
        let newest = self.durable();
        let life = self.life();
        if newest == life.start { life.resumed } else { newest }
    }

    /// Copies one revision of a store on disk into another directory, which can then be opened. Blocks until it is
    /// done.
    pub fn snapshot(&self, dir: &std::path::Path) -> Result<(), String> {
        match &self.disk {
            Some(disk) => disk.snapshot(dir),
            None => Err("a store in memory has no snapshots".into()),
        }
    }

    /// Refuses further writes, writes out what is queued and closes the disk.
    pub fn close(&self) {
        self.published.sequence().closed = true;
        if let Some(disk) = &self.disk {
            disk.close();
        }
    }
}

/// True for a write that frees space, now or at the end of the deletion it belongs to, or that takes none.
fn frees(write: &Write, new: Option<&Obj>) -> bool {
    match (write, new) {
        (Write::Delete { .. }, _) => true,
        (Write::Update { prev, .. }, Some(new)) => {
            let more = if new.deleting() { MARK_BYTES } else { 0 };
            new.size() <= prev.size() + more
        }
        _ => false,
    }
}

/// Bytes that a write adds to the objects; negative if it frees some.
fn growth(write: &Write, new: Option<&Obj>) -> i64 {
    let before = match write {
        Write::Create { .. } => 0,
        Write::Update { prev, .. } | Write::Delete { prev, .. } => prev.size(),
    };
    let after = match write {
        Write::Delete { .. } => 0,
        _ => new.map_or(0, Obj::size),
    };
    i64::try_from(after).unwrap_or(i64::MAX).saturating_sub_unsigned(before as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::bounds;
    use serde_json::json;
    use std::time::Duration;

    #[tokio::test]
    async fn older_revisions_are_rebuilt_from_the_log() {
        let store = Store::memory(100);
        let table = store.table("/things");
        let create = |k: &str| Write::Create { table: table.clone(), key: k.into(), value: json!({"n": k}) };
        let a = store.commit(vec![create("x/a")]).unwrap().remove(0);
        let b = store.commit(vec![create("x/b")]).unwrap().remove(0);
        assert_eq!(store.commit(vec![create("x/b")]).unwrap_err(), Refused::Exists(0));
        assert_eq!(store.commit_if(vec![create("x/c")], || false).unwrap_err(), Refused::Barred);
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
        for n in 0..bounds::KEPT + 8 {
            store.commit(vec![create(n)]).unwrap();
        }
        assert!(table.events(100, store.durable(), 1).is_some(), "young events all stay");
        tokio::time::advance(bounds::AGE + Duration::from_secs(1)).await;
        for n in 0..4 {
            store.commit(vec![create(bounds::KEPT + 8 + n)]).unwrap();
        }
        assert!(table.events(100, store.durable(), 1).is_none());
        let kept = table.ring_len();
        assert!((bounds::KEPT..bounds::KEPT + 8).contains(&kept), "{kept}");
    }

    #[test]
    fn without_room_only_what_frees_some_is_written() {
        let store = Store::memory(100);
        let table = store.table("/things");
        let create = |k: &str| Write::Create {
            table: table.clone(),
            key: k.into(),
            value: json!({"n": "x".repeat(100)}),
        };
        let old = store.commit(vec![create("x/a")]).unwrap().remove(0);
        store.limit_room(Some(0));
        let full = Err(Refused::NotStored(FULL.into()));
        assert_eq!(store.commit(vec![create("x/b")]).map(drop), full);
        let longer = json!({"n": "x".repeat(200)});
        let update = |prev: &Arc<Obj>, value: &serde_json::Value| Write::Update {
            table: table.clone(),
            prev: prev.clone(),
            value: value.clone(),
        };
        assert_eq!(store.commit(vec![update(&old, &longer)]).map(drop), full);
        assert_eq!(store.durable(), old.rv, "what is refused leaves no trace");
        let shorter = store.commit(vec![update(&old, &json!({"n": "y"}))]).unwrap().remove(0);
        let mut marked = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "n": "y"});
        let marked_obj = store.commit(vec![update(&shorter, &marked)]).unwrap().remove(0);
        marked["n"] = "z".into();
        let gone = Write::Delete { table: table.clone(), prev: marked_obj, value: Some(marked) };
        store.commit(vec![gone]).unwrap();
        // What was there before is the room that is left now; what the first one taught the dictionary makes others smaller.
        let fits = |n: &usize| store.commit(vec![create(&format!("x/b{n}"))]).is_ok();
        let fitted = (0..10).take_while(fits).count();
        assert!((1..4).contains(&fitted), "{fitted} fit into the room of one");
        store.limit_room(None);
        store.commit(vec![create("x/c")]).unwrap();
    }
}

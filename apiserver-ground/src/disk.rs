//! The durable side of the store: one redb file, written by one committer thread.
//!
//! Inputs: batches of events in commit order. Each transaction takes everything that is queued and ends with a real
//! fsync, so many writers share one. A batch that the disk refuses is returned to be undone, and the file is opened
//! again for the next one. Absent on purpose: reads, which use the copy in memory.

use crate::obj::Obj;
use crate::published::{Batch, Published};
use crate::table::{EventKind, Table};
use crate::{incarnation, private};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTableMetadata};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

mod error;
mod format;
#[cfg(test)]
mod power;
mod reserve;
#[cfg(test)]
mod tests;

pub use error::DiskError;
pub use format::FileContents;
use format::{NOTES, OBJECTS, SHARED};
use reserve::{Reserve, out_of_room};

/// Directory of keys and certificates beside the store.
pub const SECRETS: &str = "pki";
/// Name of the file in its directory.
pub const FILE: &str = "store.redb";
/// The server's own files at the top of its directory. Other files in a shared directory are left alone.
const OWN: [&str; 6] = [FILE, SECRETS, "kubeconfig", "kubeconfig.last", "incarnation", reserve::FILE];
/// Page cache of the file: reads happen only at start, so a small one is enough.
const CACHE_BYTES: usize = 16 << 20;
/// Batches written in one transaction at most.
const MAX_GROUP: usize = 4096;
/// A file is compacted at start when it is larger than this and has less than a third in use.
const COMPACT_FROM: u64 = 64 << 20;
/// How long a killed process may hold the file.
const HOLDER_GOES_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);

enum Message {
    Commit(Batch),
    Note(String, String, Sender<bool>),
    Snapshot(PathBuf, Sender<Result<(), String>>),
    Close,
}

/// Opens the file; again after the disk refused something.
type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// The open file and its committer.
pub struct Disk {
    sender: Sender<Message>,
    reserve: Arc<Reserve>,
    waiting: Mutex<Option<Committer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Disk {
    /// Opens or makes the file in a directory. With `accept_loss`, damaged objects are left out.
    pub fn open(dir: &Path, accept_loss: bool) -> Result<(Disk, FileContents), DiskError> {
        let path = dir.join(FILE);
        let io = |e| DiskError::Io(dir.into(), e);
        private::directory(dir).map_err(io)?;
        private::touch(&path).map_err(io)?;
        for name in OWN {
            private::mend(&dir.join(name)).map_err(io)?;
        }
        let file = path.clone();
        let opener = move || Database::builder().set_cache_size(CACHE_BYTES).create(&file);
        Disk::open_with(&path, accept_loss, Box::new(opener))
    }

    fn open_with(path: &Path, accept_loss: bool, open: Opener) -> Result<(Disk, FileContents), DiskError> {
        // Pages that are no longer what they were can also make the file's library panic.
        let reserve = Arc::new(Reserve::new(path.parent().unwrap_or(Path::new("."))));
        let guarded = std::panic::AssertUnwindSafe(|| {
            let mut db = match patiently(&open).map_err(redb::Error::from) {
                Err(e) if out_of_room(&e) && reserve.release() => patiently(&open).map_err(redb::Error::from),
                other => other,
            }
            .map_err(|e| DiskError::of(path, e))?;
            let found = format::load(&db, path, accept_loss)?;
            compact(&mut db, path, &found);
            Ok((db, found))
        });
        let (db, found) = std::panic::catch_unwind(guarded)
            .unwrap_or_else(|_| Err(DiskError::Corrupt(path.into(), "its pages are inconsistent".into())))?;
        reserve.keep();
        let (sender, receiver) = channel();
        let committer = Committer {
            open,
            reserve: reserve.clone(),
            path: path.into(),
            db: Some(db),
            receiver,
            written: found.dicts.iter().map(|d| (d.generation, d.len())).collect(),
            notes: BTreeMap::new(),
            amends: Vec::new(),
        };
        let (waiting, thread) = (Mutex::new(Some(committer)), Mutex::new(None));
        Ok((Disk { sender, reserve, waiting, thread }, found))
    }

    /// Rewrites the store of a directory without some notes, and with others instead. Nothing of what is left out
    /// remains in the file.
    pub fn rewrite(dir: &Path, without: &[&str], with: &[(&str, String)]) -> Result<(), DiskError> {
        let (path, partial) = (dir.join(FILE), dir.join(format!("{FILE}.partial")));
        let io = |e| DiskError::Io(dir.into(), e);
        let fail = |e: redb::Error| DiskError::of(&path, e);
        let _ = std::fs::remove_file(&partial);
        private::touch(&partial).map_err(io)?;
        {
            let builder = || {
                let mut builder = Database::builder();
                builder.set_cache_size(CACHE_BYTES);
                builder
            };
            let from = builder().open(&path).map_err(|e| fail(e.into()))?;
            let to = builder().create(&partial).map_err(|e| fail(e.into()))?;
            let read = from.begin_read().map_err(|e| fail(e.into()))?;
            format::copy(&read, &to, without, with).map_err(fail)?;
        }
        std::fs::rename(&partial, &path).map_err(io)
    }

    /// Whether a write that takes space may be queued: not while the disk is full.
    pub fn admits(&self) -> bool {
        self.reserve.admits()
    }

    /// Starts the committer.
    pub fn start(&self, published: Arc<Published>) {
        let committer = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut committer) = committer {
            let run = move || committer.run(&published);
            if let Ok(handle) = std::thread::Builder::new().name("store-committer".into()).spawn(run) {
                *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
            }
        }
    }

    /// Queues a commit. The queue is bounded by the number of writers, each of which waits for its own commit.
    pub fn send(&self, batch: Batch) {
        let _ = self.sender.send(Message::Commit(batch));
    }

    /// Writes a small document and waits until it is on disk; false: it was refused, and is kept for the next
    /// transaction.
    pub fn note(&self, key: &str, value: &str) -> bool {
        let (done, wait) = channel();
        self.sender.send(Message::Note(key.into(), value.into(), done)).is_ok()
            && wait.recv().unwrap_or(false)
    }

    /// Copies one revision of the store into another directory, which can then be opened. Writes go on meanwhile.
    pub fn snapshot(&self, dir: &Path) -> Result<(), String> {
        let (done, wait) = channel();
        self.sender
            .send(Message::Snapshot(dir.into(), done))
            .map_err(|_| "the store is closed".to_string())?;
        wait.recv().unwrap_or_else(|_| Err("the store is closed".into()))
    }

    /// Writes out the queue and releases the file.
    pub fn close(&self) {
        let _ = self.sender.send(Message::Close);
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            let _ = handle.join();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the file; retries for a while if another process holds it. A killed process releases it only when its last
/// write to the disk has ended.
fn patiently(open: &Opener) -> Result<Database, DatabaseError> {
    let asked = std::time::Instant::now();
    loop {
        match open() {
            Err(DatabaseError::DatabaseAlreadyOpen) if asked.elapsed() < HOLDER_GOES_WITHIN => {
                std::thread::sleep(ASK_AGAIN);
            }
            other => return other,
        }
    }
}

/// Frees disk space after most of a large store was deleted. While the store runs, each transaction reuses the
/// space that earlier ones freed, so nothing else has to be compacted.
fn compact(db: &mut Database, path: &Path, found: &FileContents) {
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    let used: u64 = found.objects.iter().map(|(_, o)| o.size() as u64).sum();
    if size > COMPACT_FROM && used < size / 3 {
        match db.compact() {
            Ok(_) => tracing::info!(path = %path.display(), before = size, "store compacted"),
            Err(error) => tracing::warn!(path = %path.display(), %error, "the store could not be compacted"),
        }
    }
}

/// An object's table, its key, and what it was; `None`: it was not there.
type Amend = (Arc<Table>, Box<str>, Option<Arc<Obj>>);

struct Committer {
    open: Opener,
    reserve: Arc<Reserve>,
    path: PathBuf,
    db: Option<Database>,
    receiver: Receiver<Message>,
    /// Entries of each dictionary that are on disk.
    written: HashMap<u32, usize>,
    /// Notes that are not on disk yet.
    notes: BTreeMap<String, String>,
    /// States to write after a refusal, oldest last: the disk may have kept what was undone in memory.
    amends: Vec<Amend>,
}

impl Committer {
    fn run(&mut self, published: &Published) {
        let mut closing = false;
        while !closing {
            let Ok(first) = self.receiver.recv() else { return };
            let (mut batches, mut answers, mut snapshots) = (Vec::new(), Vec::new(), Vec::new());
            let mut next = Some(first);
            while let Some(message) = next.take() {
                match message {
                    Message::Commit(batch) => batches.push(batch),
                    Message::Note(k, v, done) => {
                        self.notes.insert(k, v);
                        answers.push(done);
                    }
                    Message::Snapshot(dir, done) => snapshots.push((dir, done)),
                    Message::Close => closing = true,
                }
                if batches.len() < MAX_GROUP && !closing {
                    next = self.receiver.try_recv().ok();
                }
            }
            let mut stored = true;
            if !batches.is_empty() || !self.notes.is_empty() || (closing && !self.amends.is_empty()) {
                match self.write_or_make_room(&batches) {
                    Ok(()) => {
                        self.reserve.taken();
                        published.durable(&batches);
                    }
                    Err(why) => {
                        stored = false;
                        self.refused(published, batches, &why);
                    }
                }
            }
            for done in answers {
                let _ = done.send(stored);
            }
            for (dir, done) in snapshots {
                self.snapshot(&dir, done);
            }
        }
    }

    /// Undoes what the disk refused. Reads go on; the next write tries the disk again.
    fn refused(&mut self, published: &Published, batches: Vec<Batch>, e: &redb::Error) {
        tracing::error!(path = %self.path.display(), error = %e, "the store could not be written");
        // After a failure the library wants the file opened anew.
        self.db = None;
        let why = format!("the store could not be written: {e}");
        let mut others = Vec::new();
        let queued = || {
            let mut queued = Vec::new();
            for message in self.receiver.try_iter() {
                match message {
                    Message::Commit(batch) => queued.push(batch),
                    other => others.push(other),
                }
            }
            queued
        };
        let undone = published.refuse(batches, queued, why);
        for (table, event) in undone.iter().rev().flat_map(|b| b.events.iter().rev()) {
            self.amends.push((table.clone(), event.obj.key.clone(), event.prev.clone()));
        }
        for other in others {
            match other {
                Message::Note(k, v, done) => {
                    self.notes.insert(k, v);
                    let _ = done.send(false);
                }
                Message::Snapshot(_, done) => {
                    let _ = done.send(Err("the store could not be written".into()));
                }
                Message::Close | Message::Commit(_) => return published.fail("the store is closed".into()),
            }
        }
        if matches!(e, redb::Error::DatabaseAlreadyOpen | redb::Error::Corrupted(_)) {
            published.fail(format!("the store was lost: {e}"));
        }
    }

    /// As [`Committer::write`]; writes that free space may use the reserve.
    fn write_or_make_room(&mut self, batches: &[Batch]) -> Result<(), redb::Error> {
        let refused = match self.write(batches) {
            Err(e) if out_of_room(&e) => e,
            other => return other,
        };
        self.reserve.refused();
        if !batches.iter().all(|b| b.frees) || !self.reserve.release() {
            return Err(refused);
        }
        // After a failure the library wants the file opened anew.
        self.db = None;
        self.write(batches)
    }

    fn write(&mut self, batches: &[Batch]) -> Result<(), redb::Error> {
        let db = match self.db.take() {
            Some(db) => db,
            None => (self.open)()?,
        };
        let db = self.db.insert(db);
        let transaction = db.begin_write()?;
        let mut written = self.written.clone();
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut shared = transaction.open_table(SHARED)?;
            let (mut key, mut out) = (String::new(), Vec::new());
            let mut put = |table: &Table, name: &str, obj: Option<&Obj>| -> Result<(), redb::Error> {
                key.clear();
                key.push_str(&table.name);
                key.push('\0');
                key.push_str(name);
                let Some(obj) = obj else {
                    objects.remove(key.as_str())?;
                    return Ok(());
                };
                let dict = obj.parts().0;
                let next = written.entry(dict.generation).or_default();
                for number in *next..dict.len() {
                    let Some(entry) = dict.get(number as u32) else { break };
                    let id = format::shared_key(dict.generation, number);
                    format::shared_record(id, &entry.shared, &mut out);
                    shared.insert(id, out.as_slice())?;
                    *next = number + 1;
                }
                format::record(&key, obj, &mut out);
                objects.insert(key.as_str(), out.as_slice())?;
                Ok(())
            };
            for (table, name, state) in &self.amends {
                put(table, name, state.as_deref())?;
            }
            for (table, event) in batches.iter().flat_map(|b| &b.events) {
                let obj = (event.kind != EventKind::Deleted).then_some(&*event.obj);
                put(table, &event.obj.key, obj)?;
            }
            let mut table = transaction.open_table(NOTES)?;
            if let Some(last) = batches.last() {
                table.insert("rv", last.rv.to_string().as_str())?;
            }
            for (k, v) in &self.notes {
                table.insert(k.as_str(), v.as_str())?;
            }
            table.insert("count", objects.len()?.to_string().as_str())?;
        }
        transaction.commit()?;
        self.written = written;
        self.notes.clear();
        self.amends.clear();
        Ok(())
    }

    /// Starts a thread that copies the present state.
    fn snapshot(&mut self, dir: &Path, done: Sender<Result<(), String>>) {
        let Some(read) = self.db.as_ref().and_then(|db| db.begin_read().ok()) else {
            let _ = done.send(Err("the store cannot be read now".into()));
            return;
        };
        let dir = dir.to_path_buf();
        let from = self.path.parent().map(Path::to_path_buf).unwrap_or_default();
        let run = move || {
            let _ = done.send(copy_to(&read, &from, &dir));
        };
        let _ = std::thread::Builder::new().name("store-snapshot".into()).spawn(run);
    }
}

/// Copies the keys and certificates beside a store, so that its certificates and tokens stay valid.
fn copy_keys(from: &Path, to: &Path) -> std::io::Result<()> {
    let (from, to) = (from.join(SECRETS), to.join(SECRETS));
    if !from.is_dir() {
        return Ok(());
    }
    private::directory(&to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        private::write(&to.join(entry.file_name()), &std::fs::read_to_string(entry.path())?)?;
    }
    Ok(())
}

fn copy_to(read: &redb::ReadTransaction, from: &Path, dir: &Path) -> Result<(), String> {
    let fail = |e: &dyn std::fmt::Display| format!("snapshot {}: {e}", dir.display());
    private::directory(dir).map_err(|e| fail(&e))?;
    let (path, partial) = (dir.join(FILE), dir.join(format!("{FILE}.partial")));
    if path.exists() {
        return Err(fail(&"there is a store already; choose another directory"));
    }
    let _ = std::fs::remove_file(&partial);
    private::touch(&partial).map_err(|e| fail(&e))?;
    {
        let db = Database::builder().set_cache_size(CACHE_BYTES).create(&partial).map_err(|e| fail(&e))?;
        format::copy(read, &db, &[], &[(incarnation::BOOT, incarnation::COPIED.into())])
            .map_err(|e| fail(&e))?;
    }
    copy_keys(from, dir).map_err(|e| fail(&e))?;
    std::fs::rename(&partial, &path).map_err(|e| fail(&e))
}

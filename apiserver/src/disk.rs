//! Durable storage: one redb file, written by one committer thread in groups.
//!
//! Inputs: batches in commit order. All batches that queued while the previous fsync ran go into one transaction.
//! Absent on purpose: reading objects after start; the tables in memory are the readers' copy.

use crate::store::{Event, EventKind, Obj, Published, Table};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const NOTES: TableDefinition<&str, &str> = TableDefinition::new("notes");
const FORMAT: u64 = 1;
/// Page cache of the file: reads happen only at start, so a small one is enough.
const CACHE_BYTES: usize = 4 << 20;
/// Batches written in one transaction at most.
const MAX_GROUP: usize = 4096;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has it.
    #[error("data directory {0}: in use by another process; stop that server or choose another directory")]
    InUse(PathBuf),
    /// The operating system refused.
    #[error("data directory {0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// The file is not a store, or is damaged.
    #[error("{0}: not a usable store ({1}); restore it from a copy or remove it to start empty")]
    Corrupt(PathBuf, String),
    /// The file was written by a newer program.
    #[error("{0}: has format {1}, this program reads formats up to {FORMAT}; use the newer program")]
    Newer(PathBuf, String),
}

/// One commit on its way to the disk.
pub struct Batch {
    /// The events of the commit.
    pub events: Vec<(Arc<Table>, Arc<Event>)>,
    /// The last revision of the commit.
    pub rv: u64,
}

enum Message {
    Commit(Batch),
    Note(String, String, Sender<()>),
    Close,
}

/// The open file and its committer.
pub struct Disk {
    db: Option<Database>,
    sender: Sender<Message>,
    receiver: Mutex<Option<Receiver<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What was found in the file.
pub struct Found {
    /// Objects with their table names.
    pub objects: Vec<(String, Obj)>,
    /// Last revision given out, 0 in a new file.
    pub rv: u64,
    /// Small documents.
    pub notes: Vec<(String, String)>,
}

impl Disk {
    /// Opens or makes the file in a directory.
    pub fn open(dir: &Path) -> Result<(Disk, Found), DiskError> {
        std::fs::create_dir_all(dir).map_err(|e| DiskError::Io(dir.into(), e))?;
        let path = dir.join("store.redb");
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create(&path)
            .map_err(|e| open_error(&path, e))?;
        let found = load(&db, &path)?;
        let (sender, receiver) = channel();
        Ok((
            Disk { db: Some(db), sender, receiver: Mutex::new(Some(receiver)), thread: Mutex::new(None) },
            found,
        ))
    }

    /// Starts the committer.
    pub fn start(&mut self, published: Arc<Published>) {
        if let (Some(db), Some(receiver)) =
            (self.db.take(), self.receiver.get_mut().unwrap_or_else(PoisonError::into_inner).take())
        {
            let run = move || committer(&db, &receiver, &published);
            if let Ok(handle) = std::thread::Builder::new().name("store-committer".into()).spawn(run) {
                *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
            }
        }
    }

    /// Queues a commit. The queue is bounded by the writers, each of which waits for its own commit.
    pub fn send(&self, batch: Batch) {
        let _ = self.sender.send(Message::Commit(batch));
    }

    /// Writes a small document and waits until it is on disk.
    pub fn note(&self, key: &str, value: &str) {
        let (done, wait) = channel();
        if self.sender.send(Message::Note(key.into(), value.into(), done)).is_ok() {
            let _ = wait.recv();
        }
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

fn open_error(path: &Path, e: DatabaseError) -> DiskError {
    match e {
        DatabaseError::DatabaseAlreadyOpen => DiskError::InUse(path.into()),
        DatabaseError::UpgradeRequired(v) => DiskError::Newer(path.into(), v.to_string()),
        DatabaseError::Storage(redb::StorageError::Io(e)) if e.kind() != std::io::ErrorKind::InvalidData => {
            DiskError::Io(path.into(), e)
        }
        other => DiskError::Corrupt(path.into(), other.to_string()),
    }
}

fn load(db: &Database, path: &Path) -> Result<Found, DiskError> {
    let corrupt = |e: String| DiskError::Corrupt(path.into(), e);
    let fail = |e: redb::Error| DiskError::Corrupt(path.into(), e.to_string());
    let write = db.begin_write().map_err(|e| fail(e.into()))?;
    {
        write.open_table(OBJECTS).map_err(|e| fail(e.into()))?;
        let mut notes = write.open_table(NOTES).map_err(|e| fail(e.into()))?;
        let format = notes.get("format").map_err(|e| fail(e.into()))?.map(|v| v.value().to_string());
        match format {
            None => {
                notes.insert("format", FORMAT.to_string().as_str()).map_err(|e| fail(e.into()))?;
            }
            Some(f) => match f.parse::<u64>() {
                Ok(n) if n <= FORMAT => {}
                Ok(_) => return Err(DiskError::Newer(path.into(), f)),
                Err(_) => return Err(corrupt(format!("format note is {f:?}"))),
            },
        }
    }
    write.commit().map_err(|e| fail(e.into()))?;
    let read = db.begin_read().map_err(|e| fail(e.into()))?;
    let mut found = Found { objects: Vec::new(), rv: 0, notes: Vec::new() };
    let notes = read.open_table(NOTES).map_err(|e| fail(e.into()))?;
    for entry in notes.iter().map_err(|e| fail(e.into()))? {
        let (key, value) = entry.map_err(|e| fail(e.into()))?;
        if key.value() == "rv" {
            found.rv =
                value.value().parse().map_err(|_| corrupt("the revision note is not a number".into()))?;
        } else {
            found.notes.push((key.value().to_string(), value.value().to_string()));
        }
    }
    let objects = read.open_table(OBJECTS).map_err(|e| fail(e.into()))?;
    for entry in objects.iter().map_err(|e| fail(e.into()))? {
        let (key, value) = entry.map_err(|e| fail(e.into()))?;
        let full = key.value();
        let Some((table, key)) = full.split_once('\0') else {
            return Err(corrupt(format!("key {full:?} has no table")));
        };
        let value: serde_json::Value =
            serde_json::from_slice(value.value()).map_err(|e| corrupt(format!("object {key}: {e}")))?;
        let rv = crate::tree::meta_text(&value, "resourceVersion").parse().unwrap_or(0);
        found.rv = found.rv.max(rv);
        found.objects.push((table.to_string(), Obj::new(key, rv, value)));
    }
    Ok(found)
}

fn committer(db: &Database, receiver: &Receiver<Message>, published: &Published) {
    let mut closing = false;
    while !closing {
        let Ok(first) = receiver.recv() else { return };
        let (mut batches, mut notes) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                Message::Commit(batch) => batches.push(batch),
                Message::Note(k, v, done) => notes.push((k, v, done)),
                Message::Close => closing = true,
            }
            if batches.len() < MAX_GROUP && !closing {
                next = receiver.try_recv().ok();
            }
        }
        if batches.is_empty() && notes.is_empty() {
            continue;
        }
        match write(db, &batches, &notes) {
            Ok(()) => {
                published.durable(&batches);
                notes.iter().for_each(|(_, _, done)| {
                    let _ = done.send(());
                });
            }
            Err(e) => {
                tracing::error!(error = %e, "the store could not be written");
                published.fail(format!("the store could not be written: {e}"));
                return;
            }
        }
    }
}

fn write(
    db: &Database,
    batches: &[Batch],
    notes: &[(String, String, Sender<()>)],
) -> Result<(), redb::Error> {
    let transaction = db.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut key = String::new();
        for (table, event) in batches.iter().flat_map(|b| &b.events) {
            key.clear();
            key.push_str(&table.name);
            key.push('\0');
            key.push_str(&event.obj.key);
            if event.kind == EventKind::Deleted {
                objects.remove(key.as_str())?;
            } else {
                objects.insert(key.as_str(), &*event.obj.bytes())?;
            }
        }
        let mut table = transaction.open_table(NOTES)?;
        if let Some(last) = batches.last() {
            table.insert("rv", last.rv.to_string().as_str())?;
        }
        for (k, v, _) in notes {
            table.insert(k.as_str(), v.as_str())?;
        }
    }
    transaction.commit()?;
    Ok(())
}

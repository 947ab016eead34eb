//! Whether a store continues from where it was closed, or is an older state that was restored.
//!
//! Inputs: the store's own notes, and `DIR/incarnation` beside it, which a restore of the store does not replace. A
//! server with a restored store is another incarnation: the annotation [`ANNOTATION`] of the namespace kube-system
//! gets a new value. Revisions from the lost time are refused without any of this: each start begins at a revision
//! far above those used before (see `Store::place`). Absent on purpose: a whole directory that was copied while in
//! use, and restored with its own note, looks like a crash at that time.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::private;

/// Annotation of the namespace kube-system: the incarnation of the server's state. On other servers an
/// administrator sets it after a restore.
pub const ANNOTATION: &str = "fleet.dev/incarnation";
/// Note in the store: how often it was opened.
pub const BOOT: &str = "boot";
/// Its value in a snapshot, so that a snapshot is never taken for the store it was copied from.
pub const COPIED: &str = "copied";
/// Name of the file in the data directory.
const FILE: &str = "incarnation";
/// The file is padded to this size, so that it is overwritten in place: that takes no space on a full disk.
const BYTES: usize = 256;

/// Tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Print {
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Print {
    /// Of the present file; None if there is none.
    pub fn of(file: &Path) -> Option<Print> {
        let m = std::fs::metadata(file).ok()?;
        Some(Print { inode: m.ino(), changed_s: m.ctime(), changed_ns: m.ctime_nsec() })
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    boot: u64,
    /// Whether the store has recorded this boot is not known.
    unsure: bool,
    /// The store had at least this revision.
    rv: u64,
    /// The store's file when it was closed; none while it is open.
    closed: Option<Print>,
}

/// What is stored beside a store.
pub struct Ledger {
    path: PathBuf,
    kept: Kept,
    known: bool,
    /// The store's file before it was opened.
    found: Option<Print>,
}

impl Ledger {
    /// Reads the notes of a directory. Call it before the store in the directory is opened.
    pub fn read(dir: &Path, store: &Path) -> Ledger {
        let path = dir.join(FILE);
        let mut text = String::new();
        let read = File::open(&path).and_then(|mut f| f.read_to_string(&mut text));
        let kept = read.ok().and_then(|_| serde_json::from_str::<Kept>(text.trim()).ok());
        Ledger { path, known: kept.is_some(), kept: kept.unwrap_or_default(), found: Print::of(store) }
    }

    /// True if a store with this note and last revision is the one that was open last, in its last state.
    pub fn continues(&self, boot: Option<&str>, rv: u64) -> bool {
        let Some(boot) = boot else {
            // A new store, or one of an older version.
            return !self.known;
        };
        let Ok(boot) = boot.parse::<u64>() else { return false };
        let same = self.known && boot == self.kept.boot;
        let unsure = self.kept.unsure && boot + 1 == self.kept.boot;
        let untouched = self.kept.closed.is_none() || self.kept.closed == self.found;
        (same || unsure) && untouched && rv >= self.kept.rv
    }

    /// Records another boot. `store` writes its number into the store and returns whether that worked.
    pub fn open(&mut self, boot: Option<&str>, rv: u64, store: impl FnOnce(&str) -> bool) {
        let last = boot.and_then(|b| b.parse().ok()).unwrap_or(0);
        let boot = self.kept.boot.max(last) + 1;
        self.kept = Kept { boot, unsure: true, rv, closed: None };
        self.write();
        if store(&boot.to_string()) {
            self.kept.unsure = false;
            self.write();
        }
    }

    /// Records that the store is closed.
    pub fn close(&mut self, rv: u64, store: &Path) {
        self.kept.rv = rv;
        self.kept.closed = Print::of(store);
        self.write();
    }

    fn write(&self) {
        let mut text = serde_json::to_string(&self.kept).unwrap_or_default();
        text.push_str(&" ".repeat(BYTES.saturating_sub(text.len())));
        let write = || -> io::Result<()> {
            private::touch(&self.path)?;
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()
        };
        if let Err(error) = write() {
            // The next start takes the store for another one, which is safe.
            tracing::warn!(path = %self.path.display(), %error, "the incarnation cannot be noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_state_of_the_last_store_continues() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        std::fs::write(&store, "1").unwrap();
        let read = || Ledger::read(dir.path(), &store);
        assert!(read().continues(None, 0), "a new one");
        assert!(!read().continues(Some("4"), 10), "a store that was elsewhere");
        let mut ledger = read();
        ledger.open(None, 10, |boot| boot == "1");
        assert!(read().continues(Some("1"), 10), "killed while open");
        assert!(read().continues(Some("1"), 20));
        assert!(!read().continues(Some("1"), 9), "went back");
        assert!(!read().continues(None, 20), "older than the first boot");
        assert!(!read().continues(Some(COPIED), 20), "a snapshot");
        ledger.close(30, &store);
        assert!(read().continues(Some("1"), 30));
        std::fs::copy(&store, dir.path().join("copy")).unwrap();
        std::fs::rename(dir.path().join("copy"), &store).unwrap();
        assert!(!read().continues(Some("1"), 30), "another file in its place");
        let mut ledger = read();
        ledger.open(Some("1"), 30, |_| false);
        assert!(read().continues(Some("1"), 30) && read().continues(Some("2"), 30), "killed in between");
        let size = std::fs::metadata(dir.path().join(FILE)).unwrap().len();
        assert_eq!(size, BYTES as u64);
    }
}

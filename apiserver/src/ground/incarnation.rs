//! Whether a store goes on from where it was closed, or from an older state that was put back.
//!
//! Inputs: what the store says of itself, and `DIR/incarnation` beside it, which a restored store does not bring along.
//! A server whose store went back in time is another incarnation: the annotation [`ANNOTATION`] of the namespace
//! kube-system gets a new value. What clients saw of the lost time is refused by revision alone, without any of this: each
//! start begins at a revision far above those handed out before (see `Store::place`).
//! Absent on purpose: a whole directory put back as it was killed, beside its own note, looks like that crash.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::ground::private;

/// Of the namespace kube-system: says which incarnation of its state a server is. On another server an administrator sets
/// it after a restore.
pub const ANNOTATION: &str = "fleet.dev/incarnation";
/// Note in the store: how often it was opened.
pub const BOOT: &str = "boot";
/// What a snapshot has in place of it, so that it is never taken for the store it was copied from.
pub const COPIED: &str = "copied";
/// Name of the file in the data directory.
const FILE: &str = "incarnation";
/// The file is padded to this, so that it is written over in place: that needs no room on a full disk.
const BYTES: usize = 256;

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Print {
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Print {
    /// Of a file as it is now; None when there is none.
    pub fn of(file: &Path) -> Option<Print> {
        let m = std::fs::metadata(file).ok()?;
        Some(Print { inode: m.ino(), changed_s: m.ctime(), changed_ns: m.ctime_nsec() })
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    boot: u64,
    /// Whether the store has noted this boot is not known.
    unsure: bool,
    /// The store had at least this revision.
    rv: u64,
    /// The store's file when it was closed; none while it is open.
    closed: Option<Print>,
}

/// What is kept beside a store.
pub struct Ledger {
    path: PathBuf,
    kept: Kept,
    known: bool,
    /// The store's file before it was opened.
    found: Option<Print>,
}

impl Ledger {
    /// Reads what is kept in a directory. To be called before the store in it is opened.
    pub fn read(dir: &Path, store: &Path) -> Ledger {
        let path = dir.join(FILE);
        let mut text = String::new();
        let read = File::open(&path).and_then(|mut f| f.read_to_string(&mut text));
        let kept = read.ok().and_then(|_| serde_json::from_str::<Kept>(text.trim()).ok());
        Ledger { path, known: kept.is_some(), kept: kept.unwrap_or_default(), found: Print::of(store) }
    }

    /// True when a store with this note and last revision is the one that was open last, in its last state.
    pub fn continues(&self, boot: Option<&str>, rv: u64) -> bool {
        let Some(boot) = boot else {
            // Made by an older program, or new.
            return !self.known;
        };
        let Ok(boot) = boot.parse::<u64>() else { return false };
        let same = self.known && boot == self.kept.boot;
        let unsure = self.kept.unsure && boot + 1 == self.kept.boot;
        let untouched = self.kept.closed.is_none() || self.kept.closed == self.found;
        (same || unsure) && untouched && rv >= self.kept.rv
    }

    /// Notes a further boot; `store` writes its number into the store and says whether that is done.
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

    /// Notes that the store is closed.
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

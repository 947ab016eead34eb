//! Why a data directory cannot be used, and what a damaged file lost.

use std::fmt;
use std::path::{Path, PathBuf};

/// The format this program writes.
pub const FORMAT: u64 = 2;
/// Lost objects that are named one by one.
const NAMED: usize = 20;

/// What a damaged file lost.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Names of objects whose record does not have its checksum; at most [`NAMED`].
    pub names: Vec<String>,
    /// How many such objects.
    pub objects: u64,
    /// Objects that were counted when written and are not there.
    pub missing: u64,
    /// Values shared by several objects that are damaged.
    pub shared: u64,
}

impl Damage {
    /// Counts a lost object.
    pub fn lost(&mut self, key: &str) {
        self.objects += 1;
        if self.names.len() < NAMED {
            self.names.push(key.replace('\0', " ").trim_start_matches('/').to_string());
        }
    }

    /// True if anything is lost.
    pub fn is_some(&self) -> bool {
        self.objects + self.missing + self.shared > 0
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects are damaged", self.objects)?;
        if !self.names.is_empty() {
            write!(f, " ({}", self.names.join(", "))?;
            f.write_str(if self.objects as usize > self.names.len() { ", ...)" } else { ")" })?;
        }
        if self.missing > 0 {
            write!(f, "; {} more are missing", self.missing)?;
        }
        if self.shared > 0 {
            write!(f, "; {} values that objects share are damaged", self.shared)?;
        }
        Ok(())
    }
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has it.
    #[error("data directory {0}: in use by another process; stop that server or choose another directory")]
    InUse(PathBuf),
    /// The operating system refused.
    #[error("data directory {0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// The file is not a store, or is damaged beyond reading.
    #[error("{0}: not a usable store ({1}); restore it from a snapshot or remove it to start empty")]
    Corrupt(PathBuf, String),
    /// Parts of the file are damaged.
    #[error("{0}: {1}; restore it from a snapshot, or accept the loss to go on without them")]
    Damaged(PathBuf, Damage),
    /// The file was written by a newer program.
    #[error("{0}: has format {1}, this program reads formats up to {FORMAT}; use the newer program")]
    Newer(PathBuf, String),
}

impl DiskError {
    /// What an error of the file means.
    pub fn of(path: &Path, e: redb::Error) -> DiskError {
        match e {
            redb::Error::DatabaseAlreadyOpen => DiskError::InUse(path.into()),
            redb::Error::UpgradeRequired(v) => DiskError::Newer(path.into(), v.to_string()),
            redb::Error::Io(e) if e.kind() != std::io::ErrorKind::InvalidData => {
                DiskError::Io(path.into(), e)
            }
            other => DiskError::Corrupt(path.into(), other.to_string()),
        }
    }
}

//! The data directory of a local fleet: its lock, its layout, and its record of the members.
//!
//! Layout: `fleet.json` (the members), `lock`, `hub/`, `members/<name>/`, `kubeconfig`,
//! `members/<name>.kubeconfig`.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use fleet_apiserver::private;
use serde::{Deserialize, Serialize};

use super::{MemberSpec, StartError};

/// What this program keeps at the top of a data directory. Other files in the directory are left alone.
const OWN: [&str; 6] = ["fleet.json", "lock", "kubeconfig", "bin", "hub", "members"];
/// How long a killed process may take to release the directory.
const HOLDER_GOES_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A data directory locked by this process; released when dropped.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    _lock: File,
}

/// The part of the fleet's spec that is stored in the data directory.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    members: Vec<MemberSpec>,
}

impl Home {
    /// Opens or creates `path` and takes its lock.
    ///
    /// # Errors
    /// The directory cannot be created or written, or another process holds the lock.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        let unusable = |error: std::io::Error| StartError::Directory {
            path: path.to_path_buf(),
            message: error.to_string(),
        };
        for directory in [path, &path.join("members")] {
            private::directory(directory).map_err(unusable)?;
        }
        for name in OWN {
            private::mend(&path.join(name)).map_err(unusable)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(unusable)?;
        let asked = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path: path.to_path_buf(), _lock: lock }),
                // A killed process releases the lock only when its last write to the disk has ended.
                Err(TryLockError::WouldBlock) if asked.elapsed() < HOLDER_GOES_WITHIN => {
                    std::thread::sleep(ASK_AGAIN);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StartError::InUse { path: path.to_path_buf() });
                }
                Err(TryLockError::Error(error)) => return Err(unusable(error)),
            }
        }
    }

    /// Whether a process holds the lock of this data directory: a fleet runs there.
    pub fn is_held(path: &Path) -> bool {
        // A shared lock, released at once: a start at this moment retries.
        match File::open(path.join("lock")).map(|lock| lock.try_lock_shared()) {
            Ok(tried) => matches!(tried, Err(TryLockError::WouldBlock)),
            Err(_) => false,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn hub_data(&self) -> PathBuf {
        self.path.join("hub")
    }

    pub fn member_data(&self, name: &str) -> PathBuf {
        self.path.join("members").join(name)
    }

    /// The run log of this fleet.
    pub fn run_log(&self) -> PathBuf {
        self.path.join("run.jsonl")
    }

    pub fn hub_kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    pub fn member_kubeconfig(&self, name: &str) -> PathBuf {
        self.path.join("members").join(format!("{name}.kubeconfig"))
    }

    /// The members this directory was made with, if it was used before.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn members(&self) -> Result<Option<Vec<MemberSpec>>, StartError> {
        let file = self.path.join("fleet.json");
        let unreadable = |message: String| StartError::Directory { path: file.clone(), message };
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error.to_string())),
        };
        let remembered: Remembered =
            serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        Ok(Some(remembered.members))
    }

    /// Stores the members for the next start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remember(&self, members: &[MemberSpec]) -> Result<(), StartError> {
        let remembered = Remembered { members: members.to_vec() };
        let text = serde_json::to_string_pretty(&remembered).unwrap_or_default();
        self.write_private(&self.path.join("fleet.json"), &format!("{text}\n"))
    }

    /// Writes a file that only its owner may read, atomically; an unchanged file is not written.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_private(&self, file: &Path, text: &str) -> Result<(), StartError> {
        private::write(file, text)
            .map_err(|error| StartError::Directory { path: file.to_path_buf(), message: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_holder_and_remembers_its_members() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::open(directory.path()).expect("opens");
        assert!(matches!(Home::open(directory.path()), Err(StartError::InUse { .. })));
        assert!(Home::is_held(directory.path()) && !Home::is_held(Path::new("/nowhere")));
        assert!(home.members().expect("readable").is_none());
        let members = MemberSpec::many(4, 2, 8, "64", "512Gi");
        home.remember(&members).expect("written");
        drop(home);
        assert!(!Home::is_held(directory.path()));
        let home = Home::open(directory.path()).expect("opens again");
        assert_eq!(home.members().expect("readable"), Some(members));
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("taken");
        std::fs::write(&file, "").expect("written");
        let error = Home::open(&file).expect_err("refused").to_string();
        assert!(error.contains("taken"), "{error}");
    }
}

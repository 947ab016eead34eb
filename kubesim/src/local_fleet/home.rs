//! The data directory of a local fleet: its lock, its layout, and what it remembers of the members.
//!
//! Layout: `fleet.json` (the members), `lock`, `hub/`, `members/<name>/`, `kubeconfig`,
//! `members/<name>.kubeconfig`.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{MemberSpec, StartError};

/// A data directory held by this process; let go when dropped.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    _lock: File,
}

/// What a data directory remembers of its fleet.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    members: Vec<MemberSpec>,
}

impl Home {
    /// Opens or makes `path` and takes its lock.
    ///
    /// # Errors
    /// The directory cannot be made or written, or another process holds it.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        let unusable = |error: std::io::Error| StartError::Directory {
            path: path.to_path_buf(),
            message: error.to_string(),
        };
        make_private_directory(path).map_err(unusable)?;
        make_private_directory(&path.join("members")).map_err(unusable)?;
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_path_buf(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StartError::InUse { path: path.to_path_buf() }),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
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

    /// Remembers the members for the next start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remember(&self, members: &[MemberSpec]) -> Result<(), StartError> {
        let remembered = Remembered { members: members.to_vec() };
        let text = serde_json::to_string_pretty(&remembered).unwrap_or_default();
        self.write_private(&self.path.join("fleet.json"), &format!("{text}\n"))
    }

    /// Writes a file only its owner may read; a reader never sees half of it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_private(&self, file: &Path, text: &str) -> Result<(), StartError> {
        let write = || -> std::io::Result<()> {
            let mut draft = file.as_os_str().to_owned();
            draft.push(".new");
            let mut out =
                OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            fs::rename(&draft, file)
        };
        write()
            .map_err(|error| StartError::Directory { path: file.to_path_buf(), message: error.to_string() })
    }
}

fn make_private_directory(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_holder_and_remembers_its_members() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::open(directory.path()).expect("opens");
        assert!(matches!(Home::open(directory.path()), Err(StartError::InUse { .. })));
        assert!(home.members().expect("readable").is_none());
        let members = MemberSpec::many(4, 2, 8, "64", "512Gi");
        home.remember(&members).expect("written");
        drop(home);
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

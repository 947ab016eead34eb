//! The two files of a run log.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Length of a file's end in which its last line is searched.
const TAIL: u64 = 1 << 20;

pub(super) struct Parts {
    path: PathBuf,
    newer: File,
    size: u64,
    /// Size limit of each of the two files.
    most: u64,
}

impl Parts {
    /// Opens a log; an incomplete last line is removed.
    pub fn open(path: &Path, size: u64) -> io::Result<Self> {
        let mut newer = open(path)?;
        let end = newer.metadata()?.len();
        newer.seek(SeekFrom::Start(end.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        newer.read_to_end(&mut tail)?;
        let broken = tail.iter().rev().position(|byte| *byte == b'\n').unwrap_or(tail.len()) as u64;
        let size_now = end - broken;
        newer.set_len(size_now)?;
        newer.seek(SeekFrom::Start(size_now))?;
        Ok(Self { path: path.to_owned(), newer, size: size_now, most: size / 2 })
    }

    /// An eighth of a file is left for the lines of one batch.
    pub fn is_full(&self) -> bool {
        self.size >= self.most - self.most / 8
    }

    /// Bytes of one file.
    pub fn most(&self) -> usize {
        usize::try_from(self.most).unwrap_or(usize::MAX)
    }

    /// The newer file replaces the older one.
    pub fn turn(&mut self) -> io::Result<()> {
        let mut older = self.path.as_os_str().to_owned();
        older.push(".1");
        match std::fs::rename(&self.path, PathBuf::from(older)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.newer = open(&self.path)?;
        self.newer.set_len(0)?;
        self.size = 0;
        Ok(())
    }

    pub fn append(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = lines.join("\n");
        text.push('\n');
        let written = self.newer.write_all(text.as_bytes());
        self.size += text.len() as u64;
        written
    }
}

/// Readable by the owner only: it names the jobs of all namespaces.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

//! What of a log's two files was read, and the text that has come since.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Bytes taken in at once: a long log is read piece by piece.
const PIECE: u64 = 8 << 20;

/// Which file, and how much of it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    inode: u64,
    read: u64,
}

/// The files as they were read last.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The older part, where there is one.
    older: Option<Part>,
    newer: Option<Part>,
    /// Nothing that was read before counts.
    pub is_new: bool,
}

impl Parts {
    /// Where each part was read to, and a piece of the text that was not known; an empty one at the end.
    pub fn read_on(&self, path: &Path) -> io::Result<(Self, Vec<u8>)> {
        let mut newer = File::open(path)?;
        let mut older = match File::open(older_part(path)) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let begin = |file: &File| Ok::<_, io::Error>(Part { inode: file.metadata()?.ino(), read: 0 });
        let fresh =
            Self { older: older.as_ref().map(begin).transpose()?, newer: Some(begin(&newer)?), is_new: true };
        let size = newer.metadata()?.len();
        let mut parts = if self.is_of(&fresh, size) { Self { is_new: false, ..self.clone() } } else { fresh };
        let mut bytes = Vec::new();
        if let (Some(file), Some(part)) = (&mut older, &mut parts.older) {
            part.piece(file, &mut bytes)?;
        }
        if let Some(part) = parts.newer.as_mut().filter(|_| bytes.is_empty()) {
            part.piece(&mut newer, &mut bytes)?;
        }
        Ok((parts, bytes))
    }

    /// Whether these are the files that were read, and the newer has not shrunk.
    fn is_of(&self, now: &Self, size: u64) -> bool {
        let inode = |part: &Option<Part>| part.map(|part| part.inode);
        inode(&self.older) == inode(&now.older)
            && inode(&self.newer) == inode(&now.newer)
            && self.newer.is_some_and(|part| part.read <= size)
    }
}

impl Part {
    fn piece(&mut self, file: &mut File, into: &mut Vec<u8>) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.take(PIECE).read_to_end(into)? as u64;
        Ok(())
    }
}

/// The part of a log that was written before.
fn older_part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

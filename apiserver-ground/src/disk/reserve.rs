//! Reserved disk space, so that writes that free space succeed on a full disk.
//!
//! Inputs: the store's directory. The reserve is a file of a fixed size. It is removed when the disk refuses a
//! write that frees space, and made again afterwards. While the disk is full, writes that take space are refused
//! before they are queued, so that those that free space do not fail with them.

use crate::private;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the file in its directory.
pub const FILE: &str = "reserve";
/// Its size. A delete takes about twenty pages of 4 KiB before it frees any.
const BYTES: u64 = 4 << 20;
/// The least that is worth reserving, if there is no space for all of it.
const LEAST: u64 = 256 << 10;
/// Space that must be free beside the reserve before a disk that was full takes more writes.
const BESIDE: u64 = 1 << 20;

/// The reserve of one store, and whether its disk is full.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    full: AtomicBool,
    /// Space was freed inside the store since a write was last refused.
    eased: AtomicBool,
    trying: Mutex<()>,
}

impl Reserve {
    /// The reserve in a directory. Nothing is made yet.
    pub fn new(dir: &Path) -> Reserve {
        let (full, eased) = (AtomicBool::new(false), AtomicBool::new(false));
        Reserve { path: dir.join(FILE), full, eased, trying: Mutex::new(()) }
    }

    /// Makes the reserve, as large as there is space for. True if it has its full size.
    pub fn keep(&self) -> bool {
        let have = fs::metadata(&self.path).map_or(0, |m| m.len());
        if have >= BYTES {
            return true;
        }
        let mut wanted = BYTES;
        while wanted >= LEAST && wanted > have {
            if allocate(&self.path, wanted).is_ok() {
                return wanted == BYTES;
            }
            wanted /= 2;
        }
        false
    }

    /// Gives the reserve up. False if there was none.
    pub fn release(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }

    /// The disk refused a write because it is full.
    pub fn refused(&self) {
        self.eased.store(false, Ordering::Release);
        self.full.store(true, Ordering::Release);
    }

    /// The disk took a write.
    pub fn taken(&self) {
        if self.full.load(Ordering::Acquire) {
            // What the write freed is for those that free more first.
            self.keep();
            self.eased.store(true, Ordering::Release);
        }
    }

    /// Whether a write that takes space may be tried.
    pub fn admits(&self) -> bool {
        if !self.full.load(Ordering::Acquire) {
            return true;
        }
        let Ok(_one) = self.trying.try_lock() else { return false };
        if self.keep() && self.room_beside() {
            self.full.store(false, Ordering::Release);
            return true;
        }
        // One write may try what was freed inside the store; it says whether there is more.
        self.eased.swap(false, Ordering::AcqRel)
    }

    fn room_beside(&self) -> bool {
        let mut probe = self.path.as_os_str().to_owned();
        probe.push(".probe");
        let there = allocate(Path::new(&probe), BESIDE).is_ok();
        let _ = fs::remove_file(&probe);
        there
    }
}

/// A file of this size with allocated disk space; none if there is not enough.
fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    private::touch(path)?;
    let filled = OpenOptions::new().write(true).open(path).and_then(|file| fill(&file, bytes));
    if filled.is_err() {
        let _ = fs::remove_file(path);
    }
    filled
}

fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(error) => match io::Error::from(error) {
            // A file system that cannot reserve: written out, it holds its room as well.
            error if error.kind() == ErrorKind::Unsupported => {
                let zeros = vec![0; 64 << 10];
                (0..bytes.div_ceil(zeros.len() as u64)).try_for_each(|_| file.write_all(&zeros))?;
                file.sync_data()
            }
            error => Err(error),
        },
    }
}

/// True for the error of a full disk, or of a full disk quota.
pub fn out_of_room(error: &redb::Error) -> bool {
    match error {
        redb::Error::Io(e) => {
            matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
        }
        _ => false,
    }
}

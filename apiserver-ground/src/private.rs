//! Modes of files and directories in a data directory: only their owner may read them.
//!
//! Inputs: paths. Files are created 0600 and directories 0700. Other modes, from older versions or copies, are
//! corrected when the directory is opened. Absent on purpose: what the files contain.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Permissions of group and others.
const OTHERS: u32 = 0o077;
/// A directory that many share, such as `/tmp`: its own mode is not ours to change.
const STICKY: u32 = 0o1000;

/// Creates a directory, and its parents, for its owner only. The mode of an existing one is corrected.
///
/// # Errors
/// It cannot be created, or something else has its name.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    close_to_others(path)
}

/// Makes an empty file for its owner alone, if there is none.
///
/// # Errors
/// It cannot be made.
pub fn touch(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file for its owner only; a reader never sees half of it. A file that has the text already is not
/// written, so this works on a full disk.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
        return close_to_others(path);
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    let written = create(draft).and_then(|mut out| {
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(draft, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(draft);
    }
    written
}

/// An empty file for its owner alone, in the place of any that was there.
fn create(path: &Path) -> io::Result<File> {
    // A draft left by a killed process may have another mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes the permissions of group and others at and below a path. Links are not followed, and files of another
/// user are left alone.
///
/// # Errors
/// Something cannot be listed or changed; a missing path is no error.
pub fn mend(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    close_to_others(path)?;
    if !found.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        mend(&entry?.path())?;
    }
    Ok(())
}

fn close_to_others(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        // Removed meanwhile, as a draft is.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mode = found.mode();
    if found.is_symlink() || mode & OTHERS == 0 || (found.is_dir() && mode & STICKY != 0) {
        return Ok(());
    }
    match fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS)) {
        // Another user's: whoever may change it has to.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o7777), "others may read this file");
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_made_is_private_and_what_was_not_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let (deep, file) = (dir.path().join("a/b"), dir.path().join("a/b/file"));
        directory(&deep).unwrap();
        assert_eq!((mode(&deep), mode(&dir.path().join("a"))), (0o700, 0o700));
        write(&file, "one").unwrap();
        assert_eq!(mode(&file), 0o600);
        let program = deep.join("program");
        fs::write(&program, "").unwrap();
        for (path, open) in [(&deep, 0o755), (&file, 0o644), (&program, 0o755)] {
            fs::set_permissions(path, Permissions::from_mode(open)).unwrap();
        }
        let outside = dir.path().join("outside");
        fs::write(&outside, "").unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&outside, deep.join("link")).unwrap();
        mend(&dir.path().join("a")).unwrap();
        assert_eq!((mode(&deep), mode(&file), mode(&program)), (0o700, 0o600, 0o700));
        assert_eq!(mode(&outside), 0o644, "links are not followed");
        mend(&dir.path().join("nothing")).unwrap();
    }

    #[test]
    fn an_unchanged_file_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        write(&file, "one").unwrap();
        let before = fs::metadata(&file).unwrap();
        write(&file, "one").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().ino(), before.ino());
        write(&file, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_directory_that_many_share_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        directory(&shared).unwrap();
        assert_eq!(mode(&shared), 0o1777);
    }
}

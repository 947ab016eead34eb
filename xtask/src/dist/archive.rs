//! Tar archives without times and owners: the same files give the same bytes.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use flate2::{Compression, GzBuilder};

/// One file of an archive.
pub struct ArchiveEntry {
    path: String,
    content: Content,
}

enum Content {
    Data { bytes: Vec<u8>, mode: u32 },
    Link(String),
}

impl ArchiveEntry {
    /// A program, which anybody may run.
    pub fn program(path: String, file: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(file).with_context(|| format!("program {}", file.display()))?;
        Ok(Self { path, content: Content::Data { bytes, mode: 0o755 } })
    }

    pub fn text(path: String, bytes: Vec<u8>) -> Self {
        Self { path, content: Content::Data { bytes, mode: 0o644 } }
    }

    /// A symbolic link to `target`.
    pub fn link(path: String, target: &str) -> Self {
        Self { path, content: Content::Link(target.to_string()) }
    }
}

/// Every file below a directory, in order of their names, under `prefix`.
pub fn directory(directory: &Path, prefix: &str) -> anyhow::Result<Vec<ArchiveEntry>> {
    let context = || format!("directory {}", directory.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(directory).with_context(context)? {
        files.push(entry.with_context(context)?.path());
    }
    files.sort();
    let mut entries = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let path = format!("{prefix}/{name}");
        if file.is_dir() {
            entries.extend(self::directory(&file, &path)?);
        } else {
            let bytes = fs::read(&file).with_context(|| format!("{}", file.display()))?;
            entries.push(ArchiveEntry::text(path, bytes));
        }
    }
    Ok(entries)
}

/// The archive, not compressed.
pub fn tar(entries: &[ArchiveEntry]) -> anyhow::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match &entry.content {
            Content::Data { bytes, mode } => {
                header.set_mode(*mode);
                header.set_size(bytes.len() as u64);
                builder.append_data(&mut header, &entry.path, bytes.as_slice())?;
            }
            Content::Link(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                builder.append_link(&mut header, &entry.path, target)?;
            }
        }
    }
    Ok(builder.into_inner()?)
}

/// Compresses without a time in the head.
pub fn gz(data: &[u8], level: u32) -> anyhow::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::new(level));
    writer.write_all(data)?;
    Ok(writer.finish()?)
}

pub fn write_gz(entries: &[ArchiveEntry], level: u32, file: &Path) -> anyhow::Result<()> {
    fs::write(file, gz(&tar(entries)?, level)?).with_context(|| format!("{}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_bytes() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let packed = |text: &str| {
            fs::write(folder.path().join("b"), text)?;
            fs::write(folder.path().join("a"), "a")?;
            let mut entries = directory(folder.path(), "root")?;
            entries.push(ArchiveEntry::program("root/bin/a".to_string(), &folder.path().join("a"))?);
            entries.push(ArchiveEntry::link("root/bin/b".to_string(), "a"));
            gz(&tar(&entries)?, 9)
        };
        let first = packed("b")?;
        // Times of files have the grain of the file system.
        fs::remove_file(folder.path().join("a"))?;
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        assert_eq!(first, packed("b")?);
        assert_ne!(first, packed("c")?);
        Ok(())
    }
}

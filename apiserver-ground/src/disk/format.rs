//! The format of the file: records with checksums, the shared values they refer to, notes; and conversion of older
//! formats.
//!
//! Inputs: an open file. Every record has a checksum over its key and content, and the number of records is stored,
//! so a start can name what a damaged disk has lost.

use crate::dict::{Dict, Dicts, Shared};
use crate::obj::Obj;
use crate::packed;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition, TableError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::error::{Damage, DiskError, FORMAT};

/// `table\0key` to a record.
pub const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");
/// Generation << 32 | number to a shared value.
pub const SHARED: TableDefinition<u64, &[u8]> = TableDefinition::new("shared");
/// Small documents; of the store itself: `format`, `rv`, `count`.
pub const NOTES: TableDefinition<&str, &str> = TableDefinition::new("notes");
/// Objects of format 1, as JSON.
const OBJECTS_1: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");

const TEXT: u8 = b't';
const TREE: u8 = b'o';

/// What was found in a file.
#[derive(Default)]
pub struct FileContents {
    /// Objects with their table names, table by table.
    pub objects: Vec<(Arc<str>, Obj)>,
    /// The dictionaries they refer to, oldest first.
    pub dicts: Vec<Arc<Dict>>,
    /// Last revision given out, 0 in a new file.
    pub rv: u64,
    /// Small documents.
    pub notes: Vec<(String, String)>,
}

/// Checksum of a record.
fn sum(key: &[u8], parts: &[&[u8]]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(key);
    parts.iter().for_each(|p| crc.update(p));
    crc.sum().to_le_bytes()
}

/// Writes the record of an object.
pub fn record(key: &str, obj: &Obj, out: &mut Vec<u8>) {
    let (dict, packed) = obj.parts();
    out.clear();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&obj.rv.to_le_bytes());
    out.extend_from_slice(&dict.generation.to_le_bytes());
    out.extend_from_slice(packed);
    let sum = sum(key.as_bytes(), &[&out[4..]]);
    out[..4].copy_from_slice(&sum);
}

/// Writes the record of a shared value.
pub fn shared_record(id: u64, shared: &Shared, out: &mut Vec<u8>) {
    let (kind, bytes): (u8, &[u8]) = match shared {
        Shared::Text(t) => (TEXT, t.as_bytes()),
        Shared::Tree(t) => (TREE, t),
    };
    out.clear();
    out.extend_from_slice(&sum(&id.to_le_bytes(), &[&[kind], bytes]));
    out.push(kind);
    out.extend_from_slice(bytes);
}

/// Key of a shared value.
pub fn shared_key(generation: u32, number: usize) -> u64 {
    u64::from(generation) << 32 | number as u64
}

fn parse_shared(id: u64, bytes: &[u8]) -> Option<Shared> {
    let (crc, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, content) = rest.split_first()?;
    if *crc != sum(&id.to_le_bytes(), &[rest]) {
        return None;
    }
    match *kind {
        TEXT => Some(Shared::Text(std::str::from_utf8(content).ok()?.into())),
        TREE => Some(Shared::Tree(content.into())),
        _ => None,
    }
}

/// Revision, generation and packed bytes of a record.
fn parse_record<'a>(key: &str, bytes: &'a [u8]) -> Option<(u64, u32, &'a [u8])> {
    let (crc, rest) = bytes.split_first_chunk::<4>()?;
    if *crc != sum(key.as_bytes(), &[rest]) {
        return None;
    }
    let (rv, rest) = rest.split_first_chunk::<8>()?;
    let (generation, packed) = rest.split_first_chunk::<4>()?;
    Some((u64::from_le_bytes(*rv), u32::from_le_bytes(*generation), packed))
}

/// The format a file has; None in a new one.
fn format(db: &Database, path: &Path) -> Result<Option<u64>, DiskError> {
    let fail = |e: redb::Error| DiskError::of(path, e);
    let read = db.begin_read().map_err(|e| fail(e.into()))?;
    let notes = match read.open_table(NOTES) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        other => other.map_err(|e| fail(e.into()))?,
    };
    let Some(text) = notes.get("format").map_err(|e| fail(e.into()))?.map(|v| v.value().to_string()) else {
        return Ok(None);
    };
    match text.parse::<u64>() {
        Ok(n) if n <= FORMAT => Ok(Some(n)),
        Ok(_) => Err(DiskError::Newer(path.into(), text)),
        Err(_) => Err(DiskError::Corrupt(path.into(), format!("format note is {text:?}"))),
    }
}

/// Reads a file, after converting it to the present format. Damaged records are left out with `accept_loss`;
/// otherwise an error names them.
pub fn load(db: &Database, path: &Path, accept_loss: bool) -> Result<FileContents, DiskError> {
    match format(db, path)? {
        Some(FORMAT) => {}
        Some(1) => upgrade_1(db, path)?,
        _ => start(db).map_err(|e| DiskError::of(path, e))?,
    }
    let fail = |e: redb::Error| DiskError::of(path, e);
    let read = db.begin_read().map_err(|e| fail(e.into()))?;
    let mut found = FileContents::default();
    let mut damage = Damage::default();
    let mut count = None;
    let notes = read.open_table(NOTES).map_err(|e| fail(e.into()))?;
    for entry in notes.iter().map_err(|e| fail(e.into()))? {
        let (key, value) = entry.map_err(|e| fail(e.into()))?;
        let number = || {
            let text = value.value();
            text.parse::<u64>().map_err(|_| {
                DiskError::Corrupt(
                    path.into(),
                    format!("the note {:?} is {text:?}, not a number", key.value()),
                )
            })
        };
        match key.value() {
            "rv" => found.rv = number()?,
            "count" => count = Some(number()?),
            "format" => {}
            other => found.notes.push((other.to_string(), value.value().to_string())),
        }
    }
    let dicts = load_dicts(&read, path, &mut damage)?;
    let objects = read.open_table(OBJECTS).map_err(|e| fail(e.into()))?;
    let length = objects.len().map_err(|e| fail(e.into()))?;
    if let Some(missing) = count.and_then(|c| c.checked_sub(length)).filter(|n| *n > 0) {
        damage.missing = missing;
    }
    found.objects.reserve(usize::try_from(length).unwrap_or_default());
    let mut table: Arc<str> = "".into();
    for entry in objects.iter().map_err(|e| fail(e.into()))? {
        let (key, value) = entry.map_err(|e| fail(e.into()))?;
        let full = key.value();
        let Some((name, key)) = full.split_once('\0') else {
            damage.lost(full);
            continue;
        };
        let sound = parse_record(full, value.value()).and_then(|(rv, generation, packed)| {
            let dict = dicts.get(&generation)?;
            let whole = damage.shared == 0 || packed::sound(dict, packed);
            whole.then(|| (rv, dict.clone(), packed))
        });
        let Some((rv, dict, packed)) = sound else {
            damage.lost(full);
            continue;
        };
        if *table != *name {
            table = name.into();
        }
        found.rv = found.rv.max(rv);
        found.objects.push((table.clone(), Obj::restored(key, rv, dict, packed)));
    }
    found.dicts = dicts.into_values().collect();
    if damage.is_some() {
        if !accept_loss {
            return Err(DiskError::Damaged(path.into(), damage));
        }
        tracing::error!(path = %path.display(), %damage, "the store goes on without what is damaged");
    }
    Ok(found)
}

fn load_dicts(
    read: &redb::ReadTransaction,
    path: &Path,
    damage: &mut Damage,
) -> Result<BTreeMap<u32, Arc<Dict>>, DiskError> {
    let fail = |e: redb::Error| DiskError::of(path, e);
    let mut generations: BTreeMap<u32, Vec<Shared>> = BTreeMap::new();
    let table = read.open_table(SHARED).map_err(|e| fail(e.into()))?;
    for entry in table.iter().map_err(|e| fail(e.into()))? {
        let (key, value) = entry.map_err(|e| fail(e.into()))?;
        let id = key.value();
        let entries = generations.entry((id >> 32) as u32).or_default();
        // A hole keeps its place, so that the numbers after it stay right.
        while entries.len() < (id & u64::from(u32::MAX)) as usize {
            damage.shared += 1;
            entries.push(hole(entries.len()));
        }
        match parse_shared(id, value.value()) {
            Some(shared) => entries.push(shared),
            None => {
                damage.shared += 1;
                entries.push(hole(entries.len()));
            }
        }
    }
    let make = |(g, entries)| (g, Arc::new(Dict::restored(g, entries)));
    let mut dicts: BTreeMap<u32, Arc<Dict>> = generations.into_iter().map(make).collect();
    // Objects may share nothing at all.
    if dicts.is_empty() {
        dicts.insert(1, Arc::new(Dict::new(1)));
    }
    Ok(dicts)
}

/// Marks a damaged shared value: records that refer to it are damaged, too.
fn hole(number: usize) -> Shared {
    Shared::Tree(Box::from([packed::HOLE, number as u8, (number >> 8) as u8, (number >> 16) as u8]))
}

/// Makes the tables of a new file.
pub fn start(db: &Database) -> Result<(), redb::Error> {
    let write = db.begin_write()?;
    write.open_table(OBJECTS)?;
    write.open_table(SHARED)?;
    write.open_table(NOTES)?.insert("format", FORMAT.to_string().as_str())?;
    write.commit()?;
    Ok(())
}

/// Format 1 had objects as JSON under the same keys. One transaction converts all of it, or nothing.
fn upgrade_1(db: &Database, path: &Path) -> Result<(), DiskError> {
    let fail = |e: redb::Error| DiskError::of(path, e);
    let write = db.begin_write().map_err(|e| fail(e.into()))?;
    let mut lost = Damage::default();
    {
        let mut copy = || -> Result<(), redb::Error> {
            let old = write.open_table(OBJECTS_1)?;
            let mut objects = write.open_table(OBJECTS)?;
            let mut shared = write.open_table(SHARED)?;
            let dicts = Dicts::new(Vec::new());
            let mut generations = BTreeSet::new();
            let mut dict = dicts.current();
            let mut kept = Vec::new();
            let (mut out, mut count) = (Vec::new(), 0u64);
            for entry in old.iter()? {
                let (full, bytes) = entry?;
                let full = full.value();
                let value = serde_json::from_slice::<serde_json::Value>(bytes.value());
                let (Some((_, key)), Ok(value)) = (full.split_once('\0'), value) else {
                    lost.lost(full);
                    continue;
                };
                let rv = crate::tree::meta_text(&value, "resourceVersion").parse().unwrap_or(0);
                let obj = Obj::new(&dicts, key, rv, &value);
                if generations.insert(obj.parts().0.generation) {
                    dict = obj.parts().0.clone();
                    kept.push(dict.clone());
                }
                record(full, &obj, &mut out);
                objects.insert(full, out.as_slice())?;
                count += 1;
            }
            drop(dict);
            for dict in kept {
                for number in 0..dict.len() {
                    let Some(entry) = dict.get(number as u32) else { break };
                    let id = shared_key(dict.generation, number);
                    shared_record(id, &entry.shared, &mut out);
                    shared.insert(id, out.as_slice())?;
                }
            }
            let mut notes = write.open_table(NOTES)?;
            notes.insert("format", FORMAT.to_string().as_str())?;
            notes.insert("count", count.to_string().as_str())?;
            Ok(())
        };
        copy().map_err(fail)?;
        write.delete_table(OBJECTS_1).map_err(|e| fail(e.into()))?;
    }
    if lost.is_some() {
        return Err(DiskError::Damaged(path.into(), lost));
    }
    write.commit().map_err(|e| fail(e.into()))?;
    tracing::info!(path = %path.display(), "store brought from format 1 to format {FORMAT}");
    Ok(())
}

/// Copies a moment of one file into another; some notes are left out, others are added.
pub fn copy(
    read: &redb::ReadTransaction,
    to: &Database,
    without: &[&str],
    with: &[(&str, String)],
) -> Result<(), redb::Error> {
    let write = to.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        for entry in read.open_table(OBJECTS)?.iter()? {
            let (key, value) = entry?;
            objects.insert(key.value(), value.value())?;
        }
        let mut shared = write.open_table(SHARED)?;
        for entry in read.open_table(SHARED)?.iter()? {
            let (key, value) = entry?;
            shared.insert(key.value(), value.value())?;
        }
        let mut notes = write.open_table(NOTES)?;
        for entry in read.open_table(NOTES)?.iter()? {
            let (key, value) = entry?;
            if !without.contains(&key.value()) {
                notes.insert(key.value(), value.value())?;
            }
        }
        for (key, value) in with {
            notes.insert(*key, value.as_str())?;
        }
    }
    write.commit()?;
    Ok(())
}

/// Names of the tables, for tests of upgrades.
#[cfg(test)]
pub fn tables(db: &Database) -> Vec<String> {
    use redb::TableHandle;
    let read = db.begin_read().unwrap();
    read.list_tables().unwrap().map(|t| t.name().to_string()).collect()
}

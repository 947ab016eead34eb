//! Full disks, damage, older formats, locks and snapshots.

use super::*;
use crate::store::{Range, Refused, Store, Write};
use redb::ReadableTable;
use redb::backends::FileBackend;
use serde_json::{Value, json};
use std::io::{Error, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk that can be made full.
#[derive(Debug)]
struct Bounded {
    file: FileBackend,
    full: Arc<AtomicBool>,
    /// When given, a full disk has the room of this file once it is gone.
    reserve: Option<PathBuf>,
}

impl Bounded {
    fn room(&self) -> Result<(), Error> {
        let given_up = self.reserve.as_ref().is_some_and(|r| !r.exists());
        if self.full.load(Ordering::Acquire) && !given_up {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl redb::StorageBackend for Bounded {
    fn len(&self) -> Result<u64, Error> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> Result<(), Error> {
        self.room()?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> Result<(), Error> {
        self.room()?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.room()?;
        self.file.write(offset, data)
    }
    fn close(&self) -> Result<(), Error> {
        self.file.close()
    }
}

fn bounded(path: &Path, full: &Arc<AtomicBool>, reserve: Option<PathBuf>) -> (Disk, FileContents) {
    let (file, full) = (path.to_path_buf(), full.clone());
    let open = move || {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&file)?;
        let backend = Bounded { file: FileBackend::new(file)?, full: full.clone(), reserve: reserve.clone() };
        Database::builder().create_with_backend(backend)
    };
    Disk::open_with(path, false, Box::new(open)).unwrap()
}

fn thing(n: u64) -> Value {
    json!({"kind": "Thing", "metadata": {"name": format!("n{n}")}, "spec": {"n": n}})
}

fn create(table: &Arc<Table>, n: u64) -> Write {
    Write::Create { table: table.clone(), key: format!("x/n{n}"), value: thing(n) }
}

async fn put(store: &Store, write: Write) -> Result<Arc<Obj>, Refused> {
    let obj = store.commit(vec![write])?.remove(0);
    store.wait(obj.rv).await.map(|()| obj)
}

async fn all(store: &Store, table: &Table) -> Vec<(String, u64)> {
    let page = store.page(table, Range::default()).await.unwrap().unwrap();
    page.items.iter().map(|o| (o.key.to_string(), o.rv)).collect()
}

#[tokio::test]
async fn a_full_disk_refuses_writes_takes_them_back_and_takes_them_again_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let full = Arc::new(AtomicBool::new(false));
    let (disk, found) = bounded(&path, &full, None);
    let store = Store::on_disk(disk, 100, found);
    let table = store.table("/things");
    let first = put(&store, create(&table, 1)).await.unwrap();
    let before = all(&store, &table).await;

    full.store(true, Ordering::Release);
    for n in 2..5 {
        let refused = put(&store, create(&table, n)).await.unwrap_err();
        assert!(
            matches!(&refused, Refused::NotStored(why) if why.contains("could not be written")),
            "{refused:?}"
        );
    }
    let change = Write::Update { table: table.clone(), prev: first.clone(), value: thing(9) };
    put(&store, change).await.unwrap_err();
    put(&store, Write::Delete { table: table.clone(), prev: first.clone(), value: None }).await.unwrap_err();
    assert_eq!(all(&store, &table).await, before, "reads go on, and what was refused never was");
    let events = table.events(100, u64::MAX, 10).unwrap();
    assert_eq!(events.len(), 1, "watchers hear nothing of it");

    full.store(false, Ordering::Release);
    let second = put(&store, create(&table, 2)).await.unwrap();
    assert!(second.rv > first.rv);
    let after = all(&store, &table).await;
    assert_eq!(after.len(), 2);
    store.close();
    let (_disk, found) = bounded(&path, &full, None);
    let kept: Vec<(String, u64)> = found.objects.iter().map(|(_, o)| (o.key.to_string(), o.rv)).collect();
    assert_eq!(kept, after);
    assert_eq!(found.rv, second.rv);
}

#[tokio::test]
async fn what_frees_room_passes_on_a_full_disk_and_leaves_room_for_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (path, kept) = (dir.path().join(FILE), dir.path().join(reserve::FILE));
    let full = Arc::new(AtomicBool::new(false));
    let (disk, found) = bounded(&path, &full, Some(kept.clone()));
    assert!(kept.metadata().unwrap().len() >= 1 << 20);
    let store = Store::on_disk(disk, 100, found);
    let table = store.table("/things");
    let mut things = Vec::new();
    for n in 0..6 {
        things.push(put(&store, create(&table, n)).await.unwrap());
    }
    full.store(true, Ordering::Release);
    put(&store, create(&table, 9)).await.unwrap_err();
    for thing in &things[..3] {
        let gone = Write::Delete { table: table.clone(), prev: thing.clone(), value: None };
        put(&store, gone).await.unwrap();
        assert!(kept.exists(), "the reserve is made again for the next");
    }
    // The mark of a deletion, and a change that takes no more than there was.
    let mut marked = things[3].full();
    marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mark = Write::Update { table: table.clone(), prev: things[3].clone(), value: marked };
    put(&store, mark).await.unwrap();
    let same = Write::Update { table: table.clone(), prev: things[4].clone(), value: things[4].full() };
    put(&store, same).await.unwrap();
    // A mark is no door for what takes room.
    let mut grown = things[5].full();
    grown["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    grown["spec"]["x"] = (0..5000).map(|n| format!("{n} ")).collect::<String>().into();
    let grow = Write::Update { table: table.clone(), prev: things[5].clone(), value: grown };
    put(&store, grow).await.unwrap_err();

    full.store(false, Ordering::Release);
    put(&store, create(&table, 10)).await.unwrap();
    store.close();
    let (_disk, found) = bounded(&path, &full, None);
    let names: Vec<&str> = found.objects.iter().map(|(_, o)| &*o.key).collect();
    assert_eq!(names, ["x/n10", "x/n3", "x/n4", "x/n5"]);
}

#[tokio::test]
async fn damage_is_named_and_nothing_starts_without_consent() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (disk, found) = Disk::open(dir.path(), false).unwrap();
        let store = Store::on_disk(disk, 100, found);
        let table = store.table("/things");
        for n in 0..30 {
            put(&store, create(&table, n)).await.unwrap();
        }
        store.close();
    }
    {
        let db = Database::create(dir.path().join(FILE)).unwrap();
        let write = db.begin_write().unwrap();
        {
            let mut records = write.open_table(OBJECTS).unwrap();
            let mut bytes = records.get("/things\0x/n7").unwrap().unwrap().value().to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            records.insert("/things\0x/n7", bytes.as_slice()).unwrap();
            records.remove("/things\0x/n8").unwrap();
        }
        write.commit().unwrap();
    }
    let refused = Disk::open(dir.path(), false).err().unwrap();
    let text = refused.to_string();
    assert!(
        text.contains("1 objects are damaged (things x/n7)") && text.contains("1 more are missing"),
        "{text}"
    );
    let (_disk, found) = Disk::open(dir.path(), true).unwrap();
    assert_eq!(found.objects.len(), 28);
    assert!(matches!(Disk::open(dir.path(), true), Err(DiskError::InUse(_))), "one process at a time");
}

#[tokio::test]
async fn a_lost_shared_value_takes_only_those_who_refer_to_it() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (disk, found) = Disk::open(dir.path(), false).unwrap();
        let store = Store::on_disk(disk, 100, found);
        let table = store.table("/things");
        for n in 0..10 {
            put(&store, create(&table, n)).await.unwrap();
        }
        store.close();
    }
    {
        let db = Database::create(dir.path().join(FILE)).unwrap();
        let write = db.begin_write().unwrap();
        write.open_table(SHARED).unwrap().remove(format::shared_key(1, 0)).unwrap();
        write.commit().unwrap();
    }
    let Err(DiskError::Damaged(_, damage)) = Disk::open(dir.path(), false) else { panic!("opens") };
    assert_eq!(damage.shared, 1);
    let (_disk, found) = Disk::open(dir.path(), true).unwrap();
    assert!(!found.objects.is_empty(), "the first object shares nothing");
    assert_eq!(found.objects.len() as u64 + damage.objects, 10);
    for (_, obj) in &found.objects {
        assert_eq!(obj.full()["kind"], "Thing");
    }
}

#[test]
fn a_file_that_is_no_store_and_a_directory_that_is_none_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE), vec![7u8; 8192]).unwrap();
    let text = Disk::open(dir.path(), false).err().unwrap().to_string();
    assert!(text.contains("not a usable store"), "{text}");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let text = Disk::open(&file, false).err().unwrap().to_string();
    assert!(text.starts_with("data directory"), "{text}");
}

/// Written by the program before format 2.
const FORMAT_1: &[u8] = include_bytes!("../../../apiserver/tests/data/store-format-1.redb.gz");

#[test]
fn a_store_of_format_1_is_brought_forward_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(FORMAT_1).read_to_end(&mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    for _ in 0..2 {
        let (disk, found) = Disk::open(dir.path(), false).unwrap();
        let maps = found.objects.iter().filter(|(t, _)| **t == *"/configmaps");
        let c7 = maps.map(|(_, o)| o).find(|o| &*o.key == "default/c7").unwrap();
        let value = c7.full();
        assert_eq!(value["data"]["x"], "7");
        assert_eq!(value["metadata"]["resourceVersion"], c7.rv.to_string());
        assert_eq!(value["metadata"]["managedFields"][0]["manager"], "bench");
        assert!(found.rv >= c7.rv);
        assert!(found.notes.iter().any(|(k, v)| k == "admin-token" && !v.is_empty()));
        drop(disk);
    }
    let tables = format::tables(&Database::create(&path).unwrap());
    assert!(!tables.iter().any(|t| t == "objects"), "{tables:?}");
}

#[test]
fn a_newer_format_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Disk::open(dir.path(), false).unwrap());
    {
        let db = Database::create(dir.path().join(FILE)).unwrap();
        let write = db.begin_write().unwrap();
        write.open_table(NOTES).unwrap().insert("format", "99").unwrap();
        write.commit().unwrap();
    }
    assert!(matches!(Disk::open(dir.path(), true), Err(DiskError::Newer(_, f)) if f == "99"));
}

#[tokio::test]
async fn a_snapshot_is_a_store_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let (disk, found) = Disk::open(&dir.path().join("live"), false).unwrap();
    let store = Store::on_disk(disk, 100, found);
    let table = store.table("/things");
    for n in 0..20 {
        put(&store, create(&table, n)).await.unwrap();
    }
    let moment = all(&store, &table).await;
    store.snapshot(&copy).unwrap();
    put(&store, create(&table, 99)).await.unwrap();
    assert!(store.snapshot(&copy).unwrap_err().contains("there is a store already"));
    let (_disk, found) = Disk::open(&copy, false).unwrap();
    let kept: Vec<(String, u64)> = found.objects.iter().map(|(_, o)| (o.key.to_string(), o.rv)).collect();
    assert_eq!(kept, moment);
}

//! Power that goes at any moment: what was answered is there afterwards, and every commit is there whole or not at all.
//!
//! The disk of these tests keeps what was written since the last fsync apart. When the power goes, each such write is
//! there whole, in part (its first sectors), or not at all, whatever became of those before it.

use super::*;
use crate::obj::Obj;
use crate::store::{Range, Store, Write};
use proptest::prelude::*;
use serde_json::json;
use std::io::{Error, ErrorKind};

/// What a disk writes whole.
const SECTOR: usize = 512;
const KEYS: u64 = 6;

#[derive(Clone, Debug)]
enum DiskWrite {
    Length(u64),
    Bytes(u64, Vec<u8>),
}

impl DiskWrite {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(len) => bytes.resize(*len as usize, 0),
            Self::Bytes(at, data) => {
                let end = *at as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at as usize..end].copy_from_slice(data);
            }
        }
    }

    /// The part that reached the disk.
    fn torn(&self, draw: &mut Draw) -> Option<Self> {
        match (draw.below(3), self) {
            (0, _) => None,
            (1, Self::Bytes(at, data)) => {
                let sectors = draw.below(data.len().div_ceil(SECTOR) as u64) as usize;
                Some(Self::Bytes(*at, data[..data.len().min(sectors * SECTOR)].to_vec()))
            }
            _ => Some(self.clone()),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// What is on the disk for sure, and what was written since.
    synced: Vec<u8>,
    pending: Vec<DiskWrite>,
    /// What reads see.
    seen: Vec<u8>,
    /// Writes and fsyncs until the power goes.
    left: u64,
    /// An fsync answers and does nothing.
    lies: bool,
}

impl State {
    fn act(&mut self) -> Result<(), Error> {
        if self.left == 0 {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.left -= 1;
        Ok(())
    }

    fn change(&mut self, change: DiskWrite) -> Result<(), Error> {
        self.act()?;
        change.apply(&mut self.seen);
        self.pending.push(change);
        Ok(())
    }

    /// The power is back after so many more steps until it goes again.
    fn cycle(&mut self, left: u64, draw: &mut Draw) {
        for change in std::mem::take(&mut self.pending) {
            if let Some(change) = change.torn(draw) {
                change.apply(&mut self.synced);
            }
        }
        self.seen = self.synced.clone();
        self.left = left;
    }
}

#[derive(Clone, Debug, Default)]
struct Platter(Arc<Mutex<State>>);

impl Platter {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl redb::StorageBackend for Platter {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.state().seen.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let (state, at) = (self.state(), offset as usize);
        let bytes = state.seen.get(at..at + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<(), Error> {
        self.state().change(DiskWrite::Length(len))
    }
    fn sync_data(&self) -> Result<(), Error> {
        let mut state = self.state();
        state.act()?;
        if !state.lies {
            state.synced = state.seen.clone();
            state.pending.clear();
        }
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.state().change(DiskWrite::Bytes(offset, data.to_vec()))
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

/// Object by name: its revision and a number in it.
type Objects = BTreeMap<String, (u64, u64)>;

fn shown(obj: &Obj) -> (u64, u64) {
    (obj.rv, obj.full()["spec"]["n"].as_u64().unwrap_or_default())
}

/// A commit of up to three writes to different objects.
fn writes(table: &Arc<Table>, known: &BTreeMap<String, Arc<Obj>>, n: u64, draw: &mut Draw) -> Vec<Write> {
    let first = draw.below(KEYS);
    let keys = (0..=draw.below(3)).map(|next| format!("x/n{}", (first + next) % KEYS));
    let filler = "x".repeat(draw.below(9000) as usize);
    keys.map(|key| {
        let value = json!({"kind": "Thing", "metadata": {"name": key}, "spec": {"n": n, "filler": filler}});
        let table = table.clone();
        match known.get(&key).cloned() {
            None => Write::Create { table, key, value },
            Some(prev) if draw.below(4) == 0 => Write::Delete { table, prev, value: None },
            Some(prev) => Write::Update { table, prev, value },
        }
    })
    .collect()
}

fn deleted(write: &Write) -> Option<String> {
    match write {
        Write::Delete { prev, .. } => Some(prev.key.to_string()),
        Write::Create { .. } | Write::Update { .. } => None,
    }
}

/// Opens, writes until the power goes, and starts over, a few times.
///
/// # Errors
/// What the disk forgot, or has of a commit in part.
async fn history(seed: u64, lies: bool) -> Result<(), String> {
    let mut draw = Draw(seed | 1);
    let dir = tempfile::tempdir().unwrap();
    let (path, platter) = (dir.path().join(FILE), Platter::default());
    platter.state().lies = lies;
    // States after each commit that may be there, the first for sure.
    let mut may_be: Vec<Objects> = vec![Objects::new()];
    for _ in 0..4 {
        let left = 20 + draw.below(120);
        platter.state().cycle(u64::MAX, &mut draw);
        let disk = platter.clone();
        let open = move || Database::builder().create_with_backend(disk.clone());
        let (disk, found) = Disk::open_with(&path, false, Box::new(open)).map_err(|e| e.to_string())?;
        let there: Objects = found.objects.iter().map(|(_, o)| (o.key.to_string(), shown(o))).collect();
        if !may_be.contains(&there) {
            return Err(format!("found {there:?}, answered {:?}", may_be[0]));
        }
        may_be = vec![there];
        platter.state().left = left;
        let store = Store::on_disk(disk, 100, found);
        let table = store.table("/things");
        let page = store.page(&table, Range::default()).await.map_err(|e| format!("{e:?}"))?;
        let items = page.into_iter().flat_map(|page| page.items);
        let mut known: BTreeMap<String, Arc<Obj>> = items.map(|o| (o.key.to_string(), o)).collect();
        for n in 0.. {
            let (mut last, mut sent) = (None, 0);
            for _ in 0..=draw.below(4) {
                let writes = writes(&table, &known, n, &mut draw);
                let gone: Vec<Option<String>> = writes.iter().map(deleted).collect();
                let Ok(stored) = store.commit(writes) else { break };
                let mut state = may_be.last().cloned().unwrap_or_default();
                for (gone, obj) in gone.into_iter().zip(stored) {
                    last = Some(obj.rv);
                    match gone {
                        Some(key) => {
                            known.remove(&key);
                            state.remove(&key);
                        }
                        None => {
                            state.insert(obj.key.to_string(), shown(&obj));
                            known.insert(obj.key.to_string(), obj);
                        }
                    }
                }
                may_be.push(state);
                sent += 1;
            }
            let Some(last) = last else { break };
            if store.wait(last).await.is_err() {
                break;
            }
            debug_assert!(sent > 0);
            may_be.drain(..may_be.len() - 1);
        }
        store.close();
    }
    Ok(())
}

fn run(seed: u64, lies: bool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(history(seed, lies))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn what_was_answered_is_there_when_the_power_comes_back(seed in any::<u64>()) {
        prop_assert_eq!(run(seed, false), Ok(()));
    }
}

/// The disk above can forget: without fsync it is seen to.
#[test]
fn a_disk_whose_fsync_does_nothing_is_found_out() {
    let lost = (1..60).filter(|seed| run(seed * 7919, true).is_err()).count();
    assert!(lost > 0, "no power loss lost anything");
}

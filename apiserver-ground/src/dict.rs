//! Texts and subtrees that many objects share, each stored once.
//!
//! Inputs: texts and encoded subtrees of objects that are being packed. An entry is added when a second object has
//! it, so names, uids and other unique values stay out. Entries are never removed. A full dictionary is followed by
//! a new one, and is dropped with the last object that refers to it. Absent on purpose: the encoding (`packed`).

use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};

/// Entries of one dictionary.
const MOST: usize = if cfg!(test) { 2 * CHUNK } else { 256 * CHUNK };
const CHUNK: usize = 1024;
/// Things seen once that are remembered; a power of two.
const SEEN: usize = 1 << 15;
/// Most dictionaries in use; after that, a full one stays and new values are written out in each object.
const GENERATIONS: usize = 4;

/// The value of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Shared {
    /// A string, as a value or as a key.
    Text(Box<str>),
    /// An encoded value; it refers to earlier entries only.
    Tree(Box<[u8]>),
}

impl Shared {
    fn is(&self, kind: Kind, bytes: &[u8]) -> bool {
        match (self, kind) {
            (Shared::Text(t), Kind::Text) => t.as_bytes() == bytes,
            (Shared::Tree(t), Kind::Tree) => **t == *bytes,
            _ => false,
        }
    }
}

/// One entry with its JSON text, made when first wanted.
#[derive(Debug)]
pub struct DictEntry {
    /// The value.
    pub shared: Shared,
    /// Its JSON.
    pub json: OnceLock<Box<str>>,
}

/// The kind of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// An encoded value.
    Tree,
}

/// Hashes are already mixed when they reach the map.
#[derive(Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// Number of each entry by the hash of its content.
pub type Index = HashMap<u64, u32, BuildHasherDefault<Mixed>>;

/// A fast hash; two contents with the same one cost a missed saving, never a mistake.
pub fn hash(bytes: &[u8]) -> u64 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xe703_7ed1_a0b4_28db;
    let mix = |a: u64, b: u64| {
        let wide = u128::from(a ^ A) * u128::from(b ^ B);
        (wide as u64) ^ ((wide >> 64) as u64)
    };
    let mut state = bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut w = [0; 8];
        w.copy_from_slice(word);
        state = mix(state, u64::from_le_bytes(w));
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    mix(state, u64::from_le_bytes(last))
}

type Chunk = Box<[OnceLock<DictEntry>]>;

/// One generation of shared things.
pub struct Dict {
    /// Tells dictionaries of one store apart, also on disk.
    pub generation: u32,
    chunks: Box<[OnceLock<Chunk>]>,
    index: RwLock<Index>,
    /// Hash and owner of things seen once.
    seen: Box<[AtomicU64]>,
}

impl std::fmt::Debug for Dict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dict {} of {}", self.generation, self.len())
    }
}

impl Dict {
    /// An empty dictionary.
    pub fn new(generation: u32) -> Dict {
        Dict {
            generation,
            chunks: (0..MOST / CHUNK).map(|_| OnceLock::new()).collect(),
            index: RwLock::default(),
            seen: (0..SEEN).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A dictionary as it was written, entries in order.
    pub fn restored(generation: u32, entries: Vec<Shared>) -> Dict {
        let dict = Dict::new(generation);
        for shared in entries {
            let (kind, bytes): (Kind, &[u8]) = match &shared {
                Shared::Text(t) => (Kind::Text, t.as_bytes()),
                Shared::Tree(t) => (Kind::Tree, t),
            };
            let h = seeded(kind, bytes);
            dict.add(h, shared);
        }
        dict
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.index().len()
    }

    /// True when it has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when nothing more can be taken in.
    pub fn is_full(&self) -> bool {
        self.len() >= MOST
    }

    /// The entry of a number.
    pub fn get(&self, id: u32) -> Option<&DictEntry> {
        let id = id as usize;
        self.chunks.get(id / CHUNK)?.get()?.get(id % CHUNK)?.get()
    }

    /// The text of a number.
    pub fn text(&self, id: u32) -> Option<&str> {
        match &self.get(id)?.shared {
            Shared::Text(t) => Some(t),
            Shared::Tree(_) => None,
        }
    }

    /// The index, to look several things up under one lock.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of something, when it is shared.
    pub fn find(&self, index: &Index, kind: Kind, bytes: &[u8]) -> (u64, Option<u32>) {
        let h = seeded(kind, bytes);
        let id = index.get(&h).copied().filter(|id| self.get(*id).is_some_and(|e| e.shared.is(kind, bytes)));
        (h, id)
    }

    /// Notes that `owner` brought a thing; true when another owner has brought it before.
    pub fn again(&self, h: u64, owner: u32) -> bool {
        // The number of slots is a power of two, and the mask stays below it.
        let slot = &self.seen[h as usize & (SEEN - 1)];
        let was = slot.load(Ordering::Relaxed);
        let print = h >> 32;
        if was >> 32 == print {
            return was as u32 != owner;
        }
        slot.store(print << 32 | u64::from(owner), Ordering::Relaxed);
        false
    }

    /// Adds a value; None if there is no room, or another value has its hash.
    pub fn add(&self, h: u64, shared: Shared) -> Option<u32> {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = index.get(&h) {
            return self.get(*id).is_some_and(|e| e.shared == shared).then_some(*id);
        }
        let id = index.len();
        let chunk =
            self.chunks.get(id / CHUNK)?.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        // Under the write lock the next place is always free.
        let _ = chunk.get(id % CHUNK)?.set(DictEntry { shared, json: OnceLock::new() });
        let id = u32::try_from(id).ok()?;
        index.insert(h, id);
        Some(id)
    }
}

fn seeded(kind: Kind, bytes: &[u8]) -> u64 {
    hash(bytes) ^ if kind == Kind::Tree { 0x5851_f42d_4c95_7f2d } else { 0 }
}

/// The dictionary in use and those before it.
pub struct Dicts {
    current: ArcSwap<Dict>,
    old: Mutex<Vec<Weak<Dict>>>,
}

impl Dicts {
    /// Starts from dictionaries found on disk; the last one is extended if it has room.
    pub fn new(mut found: Vec<Arc<Dict>>) -> Dicts {
        let current = found.pop().unwrap_or_else(|| Arc::new(Dict::new(1)));
        let old = found.iter().map(Arc::downgrade).collect();
        Dicts { current: ArcSwap::new(current), old: Mutex::new(old) }
    }

    /// The dictionary new objects are packed with.
    pub fn current(&self) -> Arc<Dict> {
        let current = self.current.load_full();
        if !current.is_full() {
            return current;
        }
        let mut old = self.old.lock().unwrap_or_else(PoisonError::into_inner);
        old.retain(|d| d.strong_count() > 0);
        let latest = self.current.load_full();
        if latest.generation == current.generation && old.len() + 1 < GENERATIONS {
            old.push(Arc::downgrade(&latest));
            self.current.store(Arc::new(Dict::new(latest.generation + 1)));
        }
        self.current.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_shared_once_a_second_owner_brings_it() {
        let dict = Dict::new(1);
        let h = dict.find(&dict.index(), Kind::Text, b"registry/train:1").0;
        assert!(!dict.again(h, 1));
        assert!(!dict.again(h, 1), "versions of one object are one owner");
        assert!(dict.again(h, 2));
        assert_eq!(dict.add(h, Shared::Text("registry/train:1".into())), Some(0));
        assert_eq!(dict.add(h, Shared::Text("another".into())), None, "a taken hash is left alone");
        assert_eq!(dict.find(&dict.index(), Kind::Text, b"registry/train:1").1, Some(0));
        assert_eq!(dict.find(&dict.index(), Kind::Tree, b"registry/train:1").1, None);
    }

    #[test]
    fn a_full_dictionary_is_followed_by_a_new_one_up_to_a_bound() {
        let dicts = Dicts::new(Vec::new());
        let mut kept = Vec::new();
        for generation in 1..=GENERATIONS as u32 + 1 {
            let dict = dicts.current();
            assert_eq!(dict.generation, generation.min(GENERATIONS as u32));
            for n in dict.len()..MOST {
                dict.add(hash(&n.to_le_bytes()), Shared::Text(n.to_string().into()));
            }
            kept.push(dict);
        }
        kept.truncate(1);
        assert_eq!(dicts.current().generation, GENERATIONS as u32 + 1, "room again once objects are gone");
    }
}

//! The cache of one kind.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use crate::{Change, Key, Listing, Metadata, Version, ended::Ended};

/// Deletions remembered; far more than answers can be in flight.
const ENDED_KEPT: usize = 4096;

/// How often the store was seen to go back in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// The change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<V> {
    pub key: Key,
    /// The former object; the mirror has the present one.
    pub before: Option<V>,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<V> {
    pub changed: Vec<Changed<V>>,
    /// The store was restored: anything derived from it outside this mirror may be wrong.
    pub restored: bool,
}

impl<V> Outcome<V> {
    fn none() -> Self {
        Self { changed: Vec::new(), restored: false }
    }

    /// The keys that changed.
    pub fn keys(self) -> Vec<Key> {
        self.changed.into_iter().map(|changed| changed.key).collect()
    }
}

#[derive(Debug)]
struct Mark {
    uid: String,
    version: Version,
    /// The round of its last report.
    round: u64,
}

/// The objects of one kind, read as a map. Only received changes alter them.
#[derive(Debug)]
pub struct Mirror<V> {
    objects: BTreeMap<Key, V>,
    marks: BTreeMap<Key, Mark>,
    ended: Ended,
    /// Counts up when a list begins and when it ends. What is reported in the round in which a list ends may be
    /// newer than the list.
    round: u64,
    /// Everything up to this version was received.
    complete: Version,
    incarnation: Option<String>,
    epoch: Epoch,
    is_listed: bool,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Self::with_ends(ENDED_KEPT)
    }
}

impl<V> Deref for Mirror<V> {
    type Target = BTreeMap<Key, V>;

    fn deref(&self) -> &Self::Target {
        &self.objects
    }
}

impl<V> Mirror<V> {
    /// Remembers this many deletions.
    pub fn with_ends(capacity: usize) -> Self {
        Self {
            objects: BTreeMap::new(),
            marks: BTreeMap::new(),
            ended: Ended::new(capacity),
            round: 0,
            complete: Version::Unknown,
            incarnation: None,
            epoch: Epoch::default(),
            is_listed: false,
        }
    }

    /// Whether a whole list was received.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// To be recorded with each request whose answer will be passed to [`answer`](Self::answer).
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Applies a change. `read` makes the cached value, given the present one of the same key.
    pub fn take<M, K>(&mut self, change: Change<K>, read: impl FnMut(K, Option<&V>) -> V) -> Outcome<V>
    where
        M: Metadata<K>,
    {
        match change {
            Change::Listing => {
                self.round += 1;
                Outcome::none()
            }
            Change::Reset(listing) => self.reset::<M, K>(listing, read),
            Change::Apply(object) => {
                let version = M::version(&object);
                let told = self.put::<M, K>(object, read);
                self.complete.raise(&version);
                told
            }
            Change::Delete(object) => {
                let (key, version) = (M::key(&object), M::version(&object));
                let gone = self.end(&key, M::uid(&object), &version);
                self.complete.raise(&version);
                gone
            }
            Change::Answer(object) => self.answer::<M, K>(object, self.epoch, read),
        }
    }

    /// Applies the answer to a request that was sent in this epoch. An answer from before a restore is ignored.
    pub fn answer<M, K>(&mut self, object: K, sent: Epoch, read: impl FnMut(K, Option<&V>) -> V) -> Outcome<V>
    where
        M: Metadata<K>,
    {
        let version = M::version(&object);
        // Up to `complete` the watch has reported everything: an object that is unknown was deleted.
        let is_old = version.compare(&self.complete).is_some_and(|order| order.is_le());
        let known = self.marks.get(&M::key(&object));
        let is_unclear = known.is_some_and(|known| version.compare(&known.version).is_none());
        if sent != self.epoch || is_old || is_unclear {
            return Outcome::none();
        }
        self.put::<M, K>(object, read)
    }

    /// Applies a list that was requested beside those of [`Change::Reset`]. It may be late. It proves neither that
    /// everything up to it was received nor that the store was restored.
    pub fn check<M, K>(&mut self, listing: Listing<K>, mut read: impl FnMut(K, Option<&V>) -> V) -> Outcome<V>
    where
        M: Metadata<K>,
    {
        let mut outcome = Outcome::none();
        // The watch has reported more by now.
        if listing.version.is_older(&self.complete) {
            return outcome;
        }
        let named: BTreeSet<Key> = listing.objects.iter().map(M::key).collect();
        let is_gone = |(key, mark): &(&Key, &Mark)| {
            let is_shown = mark.version.compare(&listing.version).is_some_and(|order| order.is_le());
            is_shown && !named.contains(*key)
        };
        let gone: Vec<(Key, String)> =
            self.marks.iter().filter(is_gone).map(|(key, mark)| (key.clone(), mark.uid.clone())).collect();
        for (key, uid) in gone {
            outcome.changed.extend(self.end(&key, &uid, &listing.version).changed);
        }
        for object in listing.objects {
            outcome.changed.extend(self.answer::<M, K>(object, self.epoch, &mut read).changed);
        }
        outcome
    }

    /// Changes a cached value before the API server shows the change; returns what `change` returns.
    pub fn amend<T>(&mut self, key: &Key, change: impl FnOnce(&mut V) -> T) -> Option<T> {
        self.objects.get_mut(key).map(change)
    }

    /// Drops a key that is no longer watched; it may come back.
    pub fn forget(&mut self, key: &Key) -> Option<V> {
        self.marks.remove(key);
        self.objects.remove(key)
    }

    fn put<M, K>(&mut self, object: K, mut read: impl FnMut(K, Option<&V>) -> V) -> Outcome<V>
    where
        M: Metadata<K>,
    {
        let (key, version, round) = (M::key(&object), M::version(&object), self.round);
        if self.ended.has(M::uid(&object)) {
            return Outcome::none();
        }
        if let Some(known) = self.marks.get_mut(&key) {
            let is_it = known.uid == M::uid(&object);
            if version.is_older(&known.version) {
                return Outcome::none();
            }
            if is_it && version.is_same(&known.version) {
                known.round = round;
                return Outcome::none();
            }
        }
        Outcome { changed: vec![self.set::<M, K>(key, object, &mut read)], restored: false }
    }

    fn set<M, K>(&mut self, key: Key, object: K, read: &mut impl FnMut(K, Option<&V>) -> V) -> Changed<V>
    where
        M: Metadata<K>,
    {
        let uid = M::uid(&object).to_owned();
        let mark = Mark { uid, version: M::version(&object), round: self.round };
        self.marks.insert(key.clone(), mark);
        let value = read(object, self.objects.get(&key));
        let before = self.objects.insert(key.clone(), value);
        Changed { key, before }
    }

    fn end(&mut self, key: &Key, uid: &str, version: &Version) -> Outcome<V> {
        self.ended.note(uid, version, self.round);
        // A successor with the same name may be known already.
        if self.marks.get(key).is_none_or(|mark| mark.uid != uid) {
            return Outcome::none();
        }
        let before = self.forget(key);
        Outcome { changed: vec![Changed { key: key.clone(), before }], restored: false }
    }

    fn reset<M, K>(&mut self, listing: Listing<K>, mut read: impl FnMut(K, Option<&V>) -> V) -> Outcome<V>
    where
        M: Metadata<K>,
    {
        let restored = self.is_listed && self.went_back::<M, K>(&listing);
        if restored {
            self.ended.clear();
            self.complete = Version::Unknown;
            self.epoch.0 += 1;
        }
        let (mut changed, mut named) = (Vec::new(), BTreeSet::new());
        for object in listing.objects {
            let key = M::key(&object);
            named.insert(key.clone());
            if !restored && self.ended.is_after(M::uid(&object), &listing.version, self.round) {
                continue;
            }
            self.ended.forget(M::uid(&object));
            let round = self.round;
            if let Some(known) = self.marks.get_mut(&key) {
                let is_it = known.uid == M::uid(&object);
                let is_same = is_it && M::version(&object).is_same(&known.version);
                let is_ahead = !restored && known.is_ahead(&listing.version, &M::version(&object), round);
                if is_same || is_ahead {
                    known.round = round;
                    continue;
                }
            }
            changed.push(self.set::<M, K>(key, object, &mut read));
        }
        changed.extend(self.drop_unnamed(&named, &listing.version, restored));
        self.complete.raise(&listing.version);
        self.incarnation = listing.incarnation;
        self.is_listed = true;
        self.round += 1;
        Outcome { changed, restored }
    }

    fn drop_unnamed(&mut self, named: &BTreeSet<Key>, listing: &Version, restored: bool) -> Vec<Changed<V>> {
        let mut gone = Vec::new();
        for (key, mark) in self.marks.iter().filter(|(key, _)| !named.contains(*key)) {
            if restored {
                gone.push((key.clone(), None));
                continue;
            }
            match mark.version.compare(listing) {
                // The watch that follows will report it.
                Some(order) if order.is_gt() => {}
                // It was reported while the list was in flight, and nothing says which is newer. The next list has
                // it, or it was deleted.
                None if mark.round >= self.round => {}
                _ => gone.push((key.clone(), Some(mark.uid.clone()))),
            }
        }
        let mut changed = Vec::new();
        for (key, uid) in gone {
            if let Some(uid) = uid {
                self.ended.note(&uid, listing, self.round);
            }
            let before = self.forget(&key);
            changed.push(Changed { key, before });
        }
        changed
    }

    /// Whether a list shows an earlier state than was known before it was requested.
    fn went_back<M, K>(&self, listing: &Listing<K>) -> bool
    where
        M: Metadata<K>,
    {
        if listing.incarnation != self.incarnation || listing.version.is_older(&self.complete) {
            return true;
        }
        listing.objects.iter().any(|object| {
            let known = self.marks.get(&M::key(object)).filter(|known| known.uid == M::uid(object));
            known.is_some_and(|known| {
                let was_told = match known.version.compare(&listing.version) {
                    Some(order) => order.is_le(),
                    None => known.round < self.round,
                };
                was_told && M::version(object).is_older(&known.version)
            })
        })
    }
}

impl Mark {
    /// Whether the cached object is newer than a list that ends in this round and shows the object at `listed`.
    fn is_ahead(&self, listing: &Version, listed: &Version, round: u64) -> bool {
        match self.version.compare(listing) {
            Some(order) => order.is_gt(),
            None => self.round >= round && listed.is_older(&self.version),
        }
    }
}

#[cfg(test)]
mod tests;

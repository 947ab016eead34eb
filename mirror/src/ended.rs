//! Uids of deleted objects. An answer that arrives after the deletion must not revive the object.

use std::collections::{BTreeMap, VecDeque};

use crate::Version;

#[derive(Debug)]
pub(crate) struct Ended {
    capacity: usize,
    ends: BTreeMap<String, End>,
    /// Oldest first.
    order: VecDeque<String>,
}

/// When an object was gone at the latest.
#[derive(Debug)]
struct End {
    version: Version,
    round: u64,
}

impl Ended {
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), ends: BTreeMap::new(), order: VecDeque::new() }
    }

    pub fn note(&mut self, uid: &str, version: &Version, round: u64) {
        if uid.is_empty() {
            return;
        }
        let end = End { version: version.clone(), round };
        if self.ends.insert(uid.to_owned(), end).is_some() {
            return;
        }
        self.order.push_back(uid.to_owned());
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.ends.remove(&oldest);
        }
    }

    pub fn has(&self, uid: &str) -> bool {
        self.ends.contains_key(uid)
    }

    /// Whether the object was deleted after a list of this version, requested in this round, was taken.
    pub fn is_after(&self, uid: &str, listing: &Version, round: u64) -> bool {
        self.ends.get(uid).is_some_and(|end| match end.version.compare(listing) {
            Some(order) => order.is_gt(),
            None => end.round >= round,
        })
    }

    pub fn forget(&mut self, uid: &str) {
        if self.ends.remove(uid).is_some() {
            self.order.retain(|one| one != uid);
        }
    }

    pub fn clear(&mut self) {
        self.ends.clear();
        self.order.clear();
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

//! Deletions that were sent: until the watch reports the end, an object is not deleted again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fleet_hub_core::writes::{Verb, Write};

use super::lane::Lane;

/// Most uids remembered; far more than deletions in flight.
const KEPT: usize = 4096;

/// Uids of objects whose deletion was sent. A uid is never used twice, so the oldest can be forgotten.
#[derive(Debug, Default)]
pub(super) struct Deletes {
    /// Each with the other lanes that wanted the same deletion since: they rely on it.
    uids: BTreeMap<String, BTreeSet<Lane>>,
    order: VecDeque<String>,
}

impl Deletes {
    /// Whether a write of this lane must be sent: false for a deletion that was sent already.
    pub(super) fn note(&mut self, lane: &Lane, write: &Write) -> bool {
        let Some(uid) = uid_of(write) else { return true };
        if let Some(others) = self.uids.get_mut(uid) {
            others.insert(lane.clone());
            return false;
        }
        self.uids.insert(uid.to_string(), BTreeSet::new());
        self.order.push_back(uid.to_string());
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
        true
    }

    /// The deletion failed: the object may still exist. Returns the other lanes that want it deleted.
    pub(super) fn failed(&mut self, uid: &str) -> BTreeSet<Lane> {
        let Some(others) = self.uids.remove(uid) else { return BTreeSet::new() };
        self.order.retain(|known| known != uid);
        others
    }
}

/// The uid of the object that a write deletes.
pub(super) fn uid_of(write: &Write) -> Option<&str> {
    match &write.verb {
        Verb::Delete { uid } => Some(uid.as_str()).filter(|uid| !uid.is_empty()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fleet_hub_core::{world::Dirty, writes::Target};

    use super::*;

    fn delete(uid: &str) -> Write {
        Write::new(Target::Reservation, "fleet-east", "r", Verb::Delete { uid: uid.to_string() })
    }

    fn lane(name: &str) -> Lane {
        Lane::Reconcile(Dirty::Orphan(("fleet-east".to_string(), name.to_string())))
    }

    #[test]
    fn what_is_being_deleted_is_not_deleted_again_unless_that_failed() {
        let (mut deletes, one) = (Deletes::default(), lane("one"));
        assert!(deletes.note(&one, &delete("a")));
        assert!(!deletes.note(&one, &delete("a")));
        assert!(deletes.note(&one, &delete("b")), "its successor");
        deletes.failed("a");
        assert!(deletes.note(&one, &delete("a")));
        assert!(
            deletes.note(&one, &delete("")) && deletes.note(&one, &delete("")),
            "nothing tells these apart"
        );
        for n in 0..KEPT {
            deletes.note(&one, &delete(&format!("n{n}")));
        }
        assert_eq!((deletes.uids.len(), deletes.order.len()), (KEPT, KEPT));
    }

    #[test]
    fn who_relied_on_a_deletion_hears_that_it_failed() {
        let mut deletes = Deletes::default();
        assert!(deletes.note(&lane("one"), &delete("a")));
        assert!(!deletes.note(&lane("two"), &delete("a")) && !deletes.note(&lane("two"), &delete("a")));
        assert_eq!(deletes.failed("a"), [lane("two")].into());
        assert!(deletes.note(&lane("two"), &delete("a")));
        assert_eq!(deletes.failed("a"), [].into());
        assert_eq!(deletes.failed("a"), [].into());
    }
}

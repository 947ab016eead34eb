//! Deletions that were sent: until the watch reports the end, an object is not deleted again.

use std::collections::{BTreeSet, VecDeque};

use fleet_hub_core::writes::{Verb, Write};

/// Most uids remembered; far more than deletions in flight.
const KEPT: usize = 4096;

/// Uids of objects whose deletion was sent. A uid is never used twice, so the oldest can be forgotten.
#[derive(Debug, Default)]
pub(super) struct Deletes {
    uids: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Deletes {
    /// Whether a write must be sent: false for a deletion that was sent already.
    pub(super) fn note(&mut self, write: &Write) -> bool {
        let Some(uid) = uid_of(write) else { return true };
        if !self.uids.insert(uid.to_string()) {
            return false;
        }
        self.order.push_back(uid.to_string());
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
        true
    }

    /// The deletion failed: the object may still exist.
    pub(super) fn failed(&mut self, uid: &str) {
        if self.uids.remove(uid) {
            self.order.retain(|known| known != uid);
        }
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
    use fleet_hub_core::writes::Target;

    use super::*;

    fn delete(uid: &str) -> Write {
        Write::new(Target::Reservation, "fleet-east", "r", Verb::Delete { uid: uid.to_string() })
    }

    #[test]
    fn what_is_being_deleted_is_not_deleted_again_unless_that_failed() {
        let mut deletes = Deletes::default();
        assert!(deletes.note(&delete("a")));
        assert!(!deletes.note(&delete("a")));
        assert!(deletes.note(&delete("b")), "its successor");
        deletes.failed("a");
        assert!(deletes.note(&delete("a")));
        assert!(deletes.note(&delete("")) && deletes.note(&delete("")), "nothing tells these apart");
        for n in 0..KEPT {
            deletes.note(&delete(&format!("n{n}")));
        }
        assert_eq!((deletes.uids.len(), deletes.order.len()), (KEPT, KEPT));
    }
}

//! Pods beyond what was reserved for their run.

use super::{MemberState, PodEntry};

impl MemberState {
    /// How many more pods of a run may use capacity, of those for which the hub reserved places; `None` if no hold says so.
    /// Pods that are being deleted use theirs until they have ended.
    pub fn places_left(&self, entry: &PodEntry) -> Option<usize> {
        let hold = self.hold_named(entry.reservation.as_deref()?)?;
        let using = self.pods_of_reservation(&hold.name).filter(|pod| pod.counted_on().is_some());
        Some(hold.size().saturating_sub(using.count()))
    }
}

//! Deliberate bugs, to see that the simulation finds them. A test-only switch: nothing but the simulation turns one
//! on, and off it costs one relaxed load where a bug could stand.

use std::sync::atomic::{AtomicU8, Ordering};

static ACTIVE: AtomicU8 = AtomicU8::new(0);

macro_rules! mutations {
    ($($(#[doc = $what:literal])+ $name:ident,)+) => {
        /// One deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Mutation {
            /// No bug.
            None,
            $($(#[doc = $what])+ $name,)+
        }

        impl Mutation {
            /// All but `None`.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What is wrong, as a sentence.
            pub fn what(self) -> &'static str {
                match self {
                    Self::None => "",
                    $(Self::$name => concat!($($what,)+),)+
                }
            }
        }
    };
}

mutations! {
    /// The hub clears a run's target, and starts the next run, without waiting for its Work to be gone.
    TargetClearedTooEarly,
    /// The hub forgets since when a job is unhealthy, so that a toleration never ends.
    TolerationForgotten,
    /// The hub deletes the Work of a run that ended without recording the result first.
    WorkDeletedBeforeResult,
    /// The hub keeps the reservation of a job that has ended.
    ReservationKept,
    /// The hub takes a deleted job's binding down without deleting its Work, then or later.
    WorkLeftBehind,
    /// The hub does not count what is bound against the quota.
    QuotaNotCounted,
    /// The hub never gives the quota of an ended job back.
    QuotaKept,
    /// The agent takes over an object that Fleet did not make.
    ForeignAdopted,
    /// The agent lets a Work go before the pods of its run are gone.
    FinalizerTooEarly,
    /// The agent takes an older run of a binding for the one that is wanted now.
    OlderRunKept,
    /// The agent does not stop the jobs of a cluster that is cut off.
    FenceForgotten,
    /// The hub takes a cluster for lost as soon as its lease has lapsed, without the agent's grace.
    GraceForgotten,
    /// The agent never gives the places of a run back.
    HoldKept,
    /// The hub leaves the unit of a deleted job, and has not said whose it is.
    UnitLeftBehind,
    /// The hub takes a Work or a reservation that it made itself for ended when an older listing does not name it.
    ListingEndsAnswers,
}

/// Turns one bug on for this process, `None` all off.
pub fn set(mutation: Mutation) {
    ACTIVE.store(mutation as u8, Ordering::Relaxed);
}

/// Whether this bug is on.
#[inline]
pub fn is_on(mutation: Mutation) -> bool {
    ACTIVE.load(Ordering::Relaxed) == mutation as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bug_at_a_time_and_none_by_default() {
        assert!(Mutation::ALL.iter().all(|mutation| !is_on(*mutation)));
        set(Mutation::QuotaKept);
        assert!(is_on(Mutation::QuotaKept) && !is_on(Mutation::QuotaNotCounted));
        set(Mutation::None);
        assert!(Mutation::ALL.iter().all(|mutation| !is_on(*mutation) && mutation.what().ends_with('.')));
    }
}

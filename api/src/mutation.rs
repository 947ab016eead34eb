//! Deliberate bugs, to see that the simulation finds them.
//!
//! Only a build with the feature `deliberate-bugs` has them, and only tests and the example `simulate` of `kubesim` are
//! such builds. In every other build [`is_on`] is a constant, and no branch is left where a bug could stand.

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
    /// The hub takes an edit of a gang that runs at once: what it is counted for is not what was sent.
    BoundGangEdited,
    /// The agent binds the pods of a gang one by one as they come, and takes those back that stay without the others.
    GangBoundOneByOne,
    /// The agent gives each pod of a group the leaf cells of the group's first pod.
    LeafCellsOfFirst,
    /// The hub waits for the jobs that stand on a virtual cluster's cells, and does not end their runs.
    BorrowedCellsKept,
    /// After a restart the hub does not know the cells of the jobs that run.
    CellsForgotten,
    /// The agent places other pods on nodes that are kept for cells.
    CellNodesOpen,
}

/// Whether this bug is on.
#[cfg(not(feature = "deliberate-bugs"))]
#[inline(always)]
pub const fn is_on(_: Mutation) -> bool {
    false
}

#[cfg(feature = "deliberate-bugs")]
pub use switch::{is_on, set};

#[cfg(feature = "deliberate-bugs")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Mutation;

    static ACTIVE: AtomicU8 = AtomicU8::new(0);

    /// Turns one bug on for this process, `None` all off.
    pub fn set(mutation: Mutation) {
        ACTIVE.store(mutation as u8, Ordering::Relaxed);
    }

    /// Whether this bug is on.
    #[inline]
    pub fn is_on(mutation: Mutation) -> bool {
        ACTIVE.load(Ordering::Relaxed) == mutation as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "deliberate-bugs"))]
    #[test]
    fn a_build_without_the_feature_has_no_bugs() {
        const NONE: bool = is_on(Mutation::QuotaKept);
        const { assert!(!NONE) };
        assert!(Mutation::ALL.iter().all(|mutation| !is_on(*mutation)));
    }

    #[cfg(feature = "deliberate-bugs")]
    #[test]
    fn one_bug_at_a_time_and_none_by_default() {
        assert!(Mutation::ALL.iter().all(|mutation| !is_on(*mutation)));
        set(Mutation::QuotaKept);
        assert!(is_on(Mutation::QuotaKept) && !is_on(Mutation::QuotaNotCounted));
        set(Mutation::None);
        assert!(Mutation::ALL.iter().all(|mutation| !is_on(*mutation) && mutation.what().ends_with('.')));
    }
}

//! Deliberate bugs, to check that the simulation finds them.
//!
//! Only builds with the feature `deliberate-bugs` have them: tests, and the example `simulate` of
//! `fault-simulation`. In every other build [`is_on`] is a constant, and the branches are compiled out.

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

            /// What the bug breaks, as a sentence.
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
    /// The hub forgets since when a job has been unhealthy, so a toleration never ends.
    TolerationForgotten,
    /// The hub deletes the Work of a run that ended without recording the result first.
    WorkDeletedBeforeResult,
    /// The hub keeps the reservation of a job that has ended.
    ReservationKept,
    /// The hub removes a deleted job's binding and never deletes its Work.
    WorkLeftBehind,
    /// The hub does not count bound jobs against the quota.
    QuotaNotCounted,
    /// The hub never releases the quota of an ended job.
    QuotaKept,
    /// The agent takes over an object that Fleet did not make.
    ForeignAdopted,
    /// The agent removes its finalizer from a Work before the pods of its run are gone.
    FinalizerTooEarly,
    /// The agent accepts an older run of a binding as the current one.
    OlderRunKept,
    /// The agent does not stop the jobs of a cluster that is cut off.
    FenceForgotten,
    /// The agent stops the pods of a fenced job only after it has written the job's mark.
    FenceAfterMark,
    /// The hub counts a cluster as lost as soon as its lease has expired, without the agent's grace period.
    GraceForgotten,
    /// The agent never releases the places of a run.
    HoldKept,
    /// The hub keeps the QueueUnit of a deleted job, and never set its owner.
    UnitLeftBehind,
    /// When an older list lacks a Work, a reservation or a unit that the hub itself created, the hub treats it
    /// as deleted.
    ListingEndsAnswers,
    /// The hub applies an edit of a running gang at once, so the member runs something else than what was
    /// counted.
    BoundGangEdited,
    /// The agent binds the pods of a gang one by one as they appear, and deletes them again if the others do
    /// not follow.
    GangBoundOneByOne,
    /// The agent gives each pod of a group the leaf cells of the group's first pod.
    LeafCellsOfFirst,
    /// The hub waits for the jobs that borrow a virtual cluster's cells instead of evicting them.
    BorrowedCellsKept,
    /// After a restart the hub does not recover the cells of running jobs.
    CellsForgotten,
    /// The agent places other pods on nodes that are kept for cells.
    CellNodesOpen,
    /// A server answers before its commit is on the disk, and loses it with its power.
    CommitNotSynced,
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

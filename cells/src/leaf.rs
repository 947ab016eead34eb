//! The states of a leaf cell, as in HiveD, with a total transition function.
//!
//! Free → Used → Free without preemption; Free → Used → Reserving → Reserved → Used → Free with it. The victim of a
//! preemption keeps running on a reserved leaf until its pods are gone.

use crate::topology::GroupNo;

/// A group on a leaf, with its priority there; -1: opportunistic or lazily preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub group: GroupNo,
    pub priority: i16,
}

impl Holder {
    pub(crate) fn guaranteed(self) -> bool {
        self.priority >= 0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeafState {
    #[default]
    Free,
    Used(Holder),
    /// `victim` still runs there; `by` gets it.
    Reserving {
        victim: Holder,
        by: Holder,
    },
    Reserved(Holder),
}

/// What can happen to a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafEvent {
    /// A group is allocated here.
    Allocate(Holder),
    /// A preempting group wants it.
    Reserve(Holder),
    /// The group's pods are gone.
    Gone(GroupNo),
    /// The group cancels its reservation.
    Cancel(GroupNo),
    /// The group's priority here changes (lazy preemption).
    Reprice(Holder),
}

/// An impossible transition; the state stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Impossible {
    pub state: LeafState,
    pub event: LeafEvent,
}

impl LeafState {
    /// The group that counts as the leaf's user: the preempting group if it is reserved.
    pub(crate) fn holder(self) -> Option<Holder> {
        match self {
            LeafState::Free => None,
            LeafState::Used(holder)
            | LeafState::Reserved(holder)
            | LeafState::Reserving { by: holder, .. } => Some(holder),
        }
    }

    /// The group that runs there.
    pub(crate) fn occupant(self) -> Option<Holder> {
        match self {
            LeafState::Used(holder) | LeafState::Reserving { victim: holder, .. } => Some(holder),
            LeafState::Free | LeafState::Reserved(_) => None,
        }
    }

    /// All who lose the leaf if another gets it.
    pub(crate) fn holders(self) -> impl Iterator<Item = Holder> {
        [self.occupant(), self.reserver()].into_iter().flatten()
    }

    /// The group that reserved it.
    pub(crate) fn reserver(self) -> Option<Holder> {
        match self {
            LeafState::Reserving { by, .. } | LeafState::Reserved(by) => Some(by),
            LeafState::Free | LeafState::Used(_) => None,
        }
    }

    pub(crate) fn apply(self, event: LeafEvent) -> Result<LeafState, Impossible> {
        use LeafEvent::{Allocate, Cancel, Gone, Reprice, Reserve};
        use LeafState::{Free, Reserved, Reserving, Used};
        let impossible = Impossible { state: self, event };
        match (self, event) {
            (Free, Allocate(holder)) => Ok(Used(holder)),
            (Used(_), Allocate(holder)) if crate::faults::leaf_given_twice() => Ok(Used(holder)),
            (Reserved(by), Allocate(holder)) if by.group == holder.group => Ok(Used(holder)),
            (Free, Reserve(by)) => Ok(Reserved(by)),
            (Used(victim), Reserve(by)) if victim.group != by.group && victim.priority < by.priority => {
                Ok(Reserving { victim, by })
            }
            (Used(holder), Gone(group)) if holder.group == group => Ok(Free),
            (Reserving { victim, by }, Gone(group)) if victim.group == group => Ok(Reserved(by)),
            (Reserving { victim, by }, Cancel(group)) if by.group == group => Ok(Used(victim)),
            (Reserved(by), Cancel(group)) if by.group == group => Ok(Free),
            (Used(holder), Reprice(new)) if holder.group == new.group => Ok(Used(new)),
            (Reserving { victim, by }, Reprice(new))
                if victim.group == new.group && new.priority < by.priority =>
            {
                Ok(Reserving { victim: new, by })
            }
            // Not this group's leaf, or not its turn: another group's reservation must be cancelled first, a leaf
            // in use is never allocated, and an absent group cannot leave.
            (Free, Gone(_) | Cancel(_) | Reprice(_))
            | (Used(_), Allocate(_) | Reserve(_) | Gone(_) | Cancel(_) | Reprice(_))
            | (Reserving { .. }, Allocate(_) | Reserve(_) | Gone(_) | Cancel(_) | Reprice(_))
            | (Reserved(_), Allocate(_) | Reserve(_) | Gone(_) | Cancel(_) | Reprice(_)) => Err(impossible),
        }
    }
}

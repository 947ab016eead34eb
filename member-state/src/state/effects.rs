//! Consequences of a change of the state.

use std::collections::BTreeSet;

use super::gangs::GangKey;

/// Changes since `MemberState::take_effects` was last called.
#[derive(Debug, Default)]
pub struct Effects {
    /// Gangs with pods that might be placed now.
    pub dirty: BTreeSet<GangKey>,
    /// Capacity may have been freed: waiting gangs are tried again.
    pub freed: bool,
    /// Nodes or use changed: the capacity report is outdated.
    pub capacity: bool,
    /// Reservations whose pods might be released from their gates.
    pub gates: BTreeSet<String>,
}

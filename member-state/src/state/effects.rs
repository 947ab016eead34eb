//! What a change of the state entails.

use std::collections::BTreeSet;

use super::gangs::GangKey;

/// What has changed since `MemberState::take_effects` was last called.
#[derive(Debug, Default)]
pub struct Effects {
    /// Gangs with pods that may be placeable now.
    pub dirty: BTreeSet<GangKey>,
    /// Room may have come free: gangs that wait are worth another look.
    pub freed: bool,
    /// Nodes or use changed: the capacity report is out of date.
    pub capacity: bool,
    /// Reservations whose pods may be let go now.
    pub gates: BTreeSet<String>,
}

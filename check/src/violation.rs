//! A broken invariant.

use std::collections::BTreeMap;

use fleet_resources::Resources;

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Violation {
    /// Number in `docs/ARCHITECTURE.md`.
    pub invariant: u8,
    /// The objects, and what is wrong with them.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.what)
    }
}

pub(crate) fn broken(invariant: u8, what: String) -> Violation {
    Violation { invariant, what }
}

/// 3: for each node of a member, requests <= allocatable.
pub(crate) fn over_node(
    nodes: &BTreeMap<(String, String), Resources>,
    place: &(String, String),
    sum: &Resources,
) -> Option<Violation> {
    // A node nobody listed cannot be judged.
    let allocatable = nodes.get(place)?;
    let short = sum.shortages(allocatable);
    let what = || format!("node {}/{}: requests {sum} exceed allocatable {allocatable}", place.0, place.1);
    (!short.is_empty()).then(|| broken(3, what()))
}

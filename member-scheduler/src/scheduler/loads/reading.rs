//! What a source says of one node.

/// How much of a node is in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    /// Of the whole, 0 to 1.
    Share(f64),
    /// In base units.
    Amount(i64),
}

/// What was measured of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub node: String,
    pub cpu: Use,
    pub memory: Use,
}

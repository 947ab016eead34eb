//! A reading of one node.

/// Use of a resource of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    /// Fraction of the whole, 0 to 1.
    Share(f64),
    /// In base units.
    Amount(i64),
}

/// The measured load of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub node: String,
    pub cpu: Use,
    pub memory: Use,
}

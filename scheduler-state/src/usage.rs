//! Measured load of nodes.

/// A measurement older than this many seconds is ignored.
pub const STALE_AFTER_S: i64 = 300;
/// The load of a fully busy node.
pub const BUSY: i64 = 1_000_000;

/// Measured load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Parts of [`BUSY`].
    pub cpu: i64,
    /// Parts of [`BUSY`].
    pub memory: i64,
    /// When, in seconds since the epoch.
    pub at: i64,
}

/// A measurement, and the requests of the node's pods at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    pub load: Load,
    /// Of cpu and memory.
    pub used: [i64; 2],
}

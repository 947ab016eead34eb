//! Shares of queues inside one cluster, as Volcano's plugins `proportion`, `capacity` and `drf` define them.
//!
//! Amounts are vectors over the caller's dimensions, all of the same length. `None` in a limit means no limit in
//! that dimension. Shares are fixed-point numbers; [`WHOLE`] is one. Deliberately absent: the order of queues (the
//! scheduler orders them by these shares), and floats.

pub mod fair_tree;
mod hierarchy;
mod proportion;

pub use hierarchy::{CapacityQueue, CapacityShares, TreeProblem, capacity_shares};
pub use proportion::{ProportionQueue, proportion};

/// A share of one.
pub const WHOLE: i64 = 1_000_000_000;

/// `held` divided by `of`, at most `i64::MAX`; anything divided by nothing is one.
pub fn ratio(held: i64, of: i64) -> i64 {
    if held <= 0 {
        return 0;
    }
    if of <= 0 {
        return WHOLE;
    }
    let share = i128::from(held) * i128::from(WHOLE) / i128::from(of);
    i64::try_from(share).unwrap_or(i64::MAX)
}

/// Dominant share: the largest part of any resource of `total` that is held. Resources that `total` lacks are
/// ignored.
pub fn dominant_share(held: &[i64], total: &[i64]) -> i64 {
    let parts = held.iter().zip(total).filter(|(_, total)| **total > 0).map(|(held, of)| ratio(*held, *of));
    parts.max().unwrap_or(0)
}

/// Share of a queue with `deserved` amounts; a queue that deserves nothing has a share of one.
pub fn deserved_share(held: &[i64], deserved: &[Option<i64>]) -> i64 {
    let parts = held.iter().zip(deserved).filter_map(|(held, of)| of.map(|of| ratio(*held, of)));
    parts.max().unwrap_or(WHOLE)
}

#[cfg(test)]
mod tests;

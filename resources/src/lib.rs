//! What pods request and what nodes offer: resource vectors, Kubernetes quantities, and the constraints (selectors,
//! taints, tolerations) that decide whether a pod may use a node at all; and durations as text.
//!
//! Amounts are integers in base units: millicores for `cpu`, bytes for memory and storage, whole units for
//! everything else. Deliberately absent: floats, clocks, IO, and any Kubernetes client type.

pub mod constraints;
mod duration;
mod name;
pub mod pod;
pub mod quantity;
mod vector;

pub use constraints::{
    NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, Taint, TaintEffect, Toleration,
    TolerationOperator,
};
pub use duration::duration_us;
pub use name::ResourceName;
pub use pod::PodSum;
pub use quantity::QuantityError;
pub use vector::{Resources, Shortage};

/// The sum of numbers that others chose. Like all amounts, it stays at the bounds of `i64`: no number of a user or of a
/// member may end the process that adds it.
pub fn sum(numbers: impl IntoIterator<Item = i64>) -> i64 {
    numbers.into_iter().fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_sum_stays_at_the_bounds() {
        assert_eq!(super::sum([1, 2, 3]), 6);
        assert_eq!(super::sum([i64::MAX, 1]), i64::MAX);
        assert_eq!(super::sum([i64::MIN, -1]), i64::MIN);
    }
}

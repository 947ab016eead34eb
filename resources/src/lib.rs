//! What pods request and what nodes offer: resource vectors, Kubernetes quantities, and the constraints (selectors,
//! taints, tolerations) that decide whether a pod may use a node at all.
//!
//! Amounts are integers in base units: millicores for `cpu`, bytes for memory and storage, whole units for
//! everything else. Deliberately absent: floats, clocks, IO, and any Kubernetes client type.

pub mod constraints;
mod name;
pub mod quantity;
mod vector;

pub use constraints::{
    NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, Taint, TaintEffect, Toleration,
    TolerationOperator,
};
pub use name::ResourceName;
pub use quantity::QuantityError;
pub use vector::{Resources, Shortage};

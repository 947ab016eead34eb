//! Pure rules of placement: whether the whole gang of a job fits on a cluster's nodes, where, and which cluster
//! suits it best.
//!
//! Inputs are nodes (or shapes of nodes) and gangs as plain data. Deliberately absent: clocks, clients, and any
//! choice that depends on hash order. The same input gives the same places.

mod choice;
pub mod devices;
mod gang;
#[cfg(test)]
mod gang_tests;
mod grouped;
mod node;
mod place;
mod refusal;
mod shape;
mod solver;

pub use choice::{Candidate, ClusterOrder, choose_cluster};
pub use fleet_resources::constraints::{NodeSelectorTerm, Taint, TaintEffect, Toleration};
pub use gang::{Gang, GangComponent, PodShape};
pub use grouped::{GroupedNodes, Places};
pub use node::{Node, NodeIndex};
pub use place::{GangPlacement, fits_empty, place_gang};
pub use refusal::{ComponentRefusal, Lack, LackOf, Refusal, listed};
pub use shape::{
    NodeShape, ShapePlacement, expand, first_fit_counts, fits_shapes_empty, fits_sum, free_sum,
    place_on_shapes, summarize, summarize_named,
};
pub use solver::pack;

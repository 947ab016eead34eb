//! What the scheduler of one cluster knows: nodes, pods, groups and queues in numbered lists, updated by events.
//!
//! [`State`] has every sum over them. It knows no rule of placement: the crate `scheduler` reads it, and moves pods.
//! Deliberately absent: clocks, clients, IO, and any choice that depends on hash order.

pub mod action;
pub mod amounts;
pub mod budgets;
pub mod extender;
pub mod fair;
pub mod group;
pub mod ids;
pub mod node;
pub mod node_groups;
pub mod numa;
pub mod pod;
pub mod queue;
pub mod resource_quotas;
pub mod shares;
pub mod state;
pub mod sub_groups;
pub mod task_topology;
pub mod terms;
pub mod topology;
pub mod usage;

pub use fleet_placement::devices;
pub use state::State;

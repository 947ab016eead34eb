//! The scheduler of one cluster, pure: which groups are admitted to queues, which pods go to which nodes, which
//! pods are preempted.
//!
//! Events tell [`Cluster`] about nodes, pods, groups and queues. [`Cluster::cycle`] runs the configured actions and
//! returns pods to bind and pods to evict. A cycle costs by what changed: classes of equal pods share indexes of
//! nodes that follow a log, sums move with pods, and a search undoes itself. Deliberately absent: clocks, clients,
//! IO, and any choice that depends on hash order. A restart loses back-offs and explanations only.

mod actions;
mod cluster;
pub mod config;
mod cycle;
mod index;
mod misfit;
mod order;
pub mod plugins;
mod score;
pub mod settings;
mod shares;
mod shuffle;

#[cfg(test)]
mod tests;

pub use fleet_scheduler_state::{
    State, action, amounts, budgets, devices, extender, fair, group, ids, node, node_groups, numa, pod,
    queue, resource_quotas, state, sub_groups, task_topology, terms, topology, usage,
};

pub use actions::asked::NoPlaces;
pub use cluster::Cluster;
pub use config::{Action, Config, Hook, Plugin, PluginName, Policy};
pub use cycle::{Eviction, Limits, Outcome};
pub use group::{GroupInput, Phase};
pub use ids::{GroupId, NodeId, PodId, QueueId};
pub use pod::{Extras, Labels, PodInput, PodSpec, PodTerm, Port, Spread, Status};
pub use queue::{QueueInput, QueueState};

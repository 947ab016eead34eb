//! The scheduler of one cluster, pure: which groups are admitted to queues, which pods go to which nodes, which
//! pods are preempted.
//!
//! Events tell [`Cluster`] about nodes, pods, groups and queues. [`Cluster::cycle`] runs the configured actions and
//! returns pods to bind and pods to evict. A cycle costs by what changed: classes of equal pods share indexes of
//! nodes that follow a log, sums move with pods, and a search undoes itself. Deliberately absent: clocks, clients,
//! IO, and any choice that depends on hash order. A restart loses back-offs and explanations only.

mod actions;
pub mod amounts;
pub mod budgets;
mod cluster;
pub mod config;
mod cycle;
pub mod devices;
pub mod extender;
mod fair;
pub mod group;
mod index;
pub mod node;
pub mod node_groups;
pub mod numa;
mod order;
pub mod pod;
pub mod queue;
pub mod resource_quotas;
mod score;
mod shares;
mod shuffle;
pub mod sub_groups;
pub mod task_topology;
mod terms;
pub mod topology;
pub mod usage;

#[cfg(test)]
mod tests;

pub use cluster::{Cluster, asked::NoPlaces};
pub use config::{Action, Config, Hook, Plugin, PluginName, Policy};
pub use cycle::{Eviction, Limits, Outcome};
pub use group::{GroupId, GroupInput, Phase};
pub use node::NodeId;
pub use pod::{Extras, Labels, PodId, PodInput, PodSpec, PodTerm, Port, Spread, Status};
pub use queue::{QueueId, QueueInput, QueueState};
pub use score::Scoring;

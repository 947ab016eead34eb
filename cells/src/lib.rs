//! Cells: what a virtual cluster was promised, in devices and topology, it always gets (HiveD, OSDI'20).
//!
//! [`Cells`] is made from a [`config::ClusterConfig`], hears of nodes, and decides about groups of pods:
//! [`Cells::schedule`] proposes, [`Cells::commit`] does it. Everything is plain data: the same input gives the same
//! placement, ties go by the order of the configuration. Deliberately absent: clocks (time is an argument), YAML,
//! Kubernetes types, queues (which group is asked about next is the caller's).

mod admit;
mod audit;
mod bind_info;
mod cells;
mod commit;
mod compile;
pub mod config;
mod decision;
mod faults;
mod group;
mod leaf;
mod places;
mod pods;
mod reason;
mod reconfigure;
mod recover;
mod request;
mod schedule;
mod search;
mod spec;
mod state;
#[cfg(test)]
mod tests;
mod topology;
mod views;
mod wait;

pub use bind_info::{MemberBindInfo, PodBindInfo, PodPlacementInfo};
pub use cells::{Cells, Unreported};
pub use decision::{Ask, Decision, Phase, Placement, PodPlacement, Proposal, Stale, Victim};
pub use group::{GroupState, LazyPreemption};
pub use pods::PodDecision;
pub use reason::{Refusal, Scope, WaitCause, WaitReason};
pub use reconfigure::{Difference, PromiseChange};
pub use recover::{BoundGroup, PromiseLost, Recovered};
pub use request::{AffinityGroup, GroupRequest, MAX_PODS, MAX_PRIORITY, Member, OPPORTUNISTIC, PodGroup};
pub use spec::PodSpec;
pub use topology::NodeName;
pub use views::{CellStatus, GroupStatus, VcCells, VcLeaves, VcStatus};

//! Numbers of nodes, pods, groups, queues, classes of pods and terms. Those of nodes are not reused.

pub type NodeId = u32;
pub type PodId = u32;
/// Pods with the same request and constraints.
pub type ClassId = u32;
pub type GroupId = u32;
pub type QueueId = u32;
/// Pods selected by label in a topology domain.
pub type TermId = u32;

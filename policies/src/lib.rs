//! Pure rules of propagation: which policy governs an object, which clusters it admits, the requests, health and
//! dependencies of a workload, and the form in which a member gets it.
//!
//! Inputs are plain JSON values and data; times are text. Deliberately absent: clients, clocks, logging, and any
//! choice that depends on hash order.

pub mod affinity;
pub mod choice;
pub mod credentials;
pub mod division;
pub mod json_path;
pub mod names;
pub mod nesting;
pub mod overrides;
pub mod pod_security;
pub mod policy_index;
pub mod priority;
pub mod reason;
pub mod selector;
pub mod service_reach;
pub mod spec;
pub mod state_preservation;
pub mod workload;

pub use affinity::{ClusterFacts, cluster_matches};
pub use choice::{ClaimRef, ObjectRef, PolicyRule, PolicyScope, choose};
pub use fleet_resources::constraints::{self, tolerates};
pub use reason::Reason;
pub use selector::{ImplicitPriority, LabelSelector, ResourceSelector, match_selector};
pub use spec::PropagationSpec;
pub use workload::{Component, Health, Outcome, PodRequirements, WorkloadKind};

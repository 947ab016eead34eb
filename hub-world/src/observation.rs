//! Observations of the hub: one change of one kind.

use fleet_api::{
    CellConfiguration, Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, ElasticQuotaTree,
    OverridePolicy, PropagationPolicy, Queue, QueueUnit, Reservation, ResourceBinding, VirtualCluster, Work,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace, scheduling::v1::PriorityClass};
use kube_core::DynamicObject;

use crate::kinds::KindRef;

pub use fleet_mirror::Change;

/// One change seen on the hub.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is stored in one bounded channel; a box would cost an allocation per event"
)]
pub enum Observation {
    Object(KindRef, Change<DynamicObject>),
    Policy(Change<PropagationPolicy>),
    ClusterPolicy(Change<ClusterPropagationPolicy>),
    Override(Change<OverridePolicy>),
    ClusterOverride(Change<ClusterOverridePolicy>),
    Binding(Change<ResourceBinding>),
    Unit(Change<QueueUnit>),
    Queue(Change<Queue>),
    Tree(Change<ElasticQuotaTree>),
    CellConfiguration(Change<CellConfiguration>),
    VirtualCluster(Change<VirtualCluster>),
    Cluster(Change<Cluster>),
    Reservation(Change<Reservation>),
    Work(Change<Work>),
    Lease(Change<Lease>),
    Namespace(Change<Namespace>),
    PriorityClass(Change<PriorityClass>),
}

/// Kinds whose first list the controller waits for before it plans anything, as named by [`Observation::listed`].
pub const BASE_KINDS: [&str; 16] = [
    "Policy",
    "ClusterPolicy",
    "Override",
    "ClusterOverride",
    "Binding",
    "Unit",
    "Queue",
    "Tree",
    "CellConfiguration",
    "VirtualCluster",
    "Cluster",
    "Reservation",
    "Work",
    "Lease",
    "Namespace",
    "PriorityClass",
];

impl Observation {
    /// The kind that this observation lists, if it is a list.
    pub fn listed(&self) -> Option<String> {
        use Change::Reset;
        let name = match self {
            Self::Object(kind, Reset(_)) => return Some(format!("{} {}", kind.api_version, kind.kind)),
            Self::Policy(Reset(_)) => "Policy",
            Self::ClusterPolicy(Reset(_)) => "ClusterPolicy",
            Self::Override(Reset(_)) => "Override",
            Self::ClusterOverride(Reset(_)) => "ClusterOverride",
            Self::Binding(Reset(_)) => "Binding",
            Self::Unit(Reset(_)) => "Unit",
            Self::Queue(Reset(_)) => "Queue",
            Self::Tree(Reset(_)) => "Tree",
            Self::CellConfiguration(Reset(_)) => "CellConfiguration",
            Self::VirtualCluster(Reset(_)) => "VirtualCluster",
            Self::Cluster(Reset(_)) => "Cluster",
            Self::Reservation(Reset(_)) => "Reservation",
            Self::Work(Reset(_)) => "Work",
            Self::Lease(Reset(_)) => "Lease",
            Self::Namespace(Reset(_)) => "Namespace",
            Self::PriorityClass(Reset(_)) => "PriorityClass",
            _ => return None,
        };
        Some(name.to_string())
    }
}

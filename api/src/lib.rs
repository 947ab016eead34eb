//! The Kubernetes API types of Fleet: every group as Rust types, the generated CustomResourceDefinitions,
//! names that several crates share, and the only module that reads and writes YAML.
//!
//! Deliberately absent: decisions (they are in the pure crates), clients and IO (they are in the processes),
//! except the request timeout that all of them use (`patience`).

pub mod access;
pub mod advice;
pub mod binding;
#[cfg(feature = "schemas")]
pub mod bounds;
pub mod cell_answers;
pub mod cell_places;
pub mod cells;
pub mod clock;
pub mod cluster;
pub mod conditions;
pub mod convert;
pub mod crds;
pub mod jobs;
pub mod kinds;
pub mod mutation;
pub mod names;
pub use fleet_ordered as ordered;
pub mod patch;
pub mod patience;
pub mod policy;
pub mod queue;
pub mod quota_tree;
pub mod reservation;
#[cfg(feature = "schemas")]
pub mod rules;
#[cfg(feature = "schemas")]
pub mod schema;
#[cfg(feature = "schemas")]
pub mod texts;
pub mod volcano;
pub mod work;
pub mod yaml;

pub use binding::{ResourceBinding, ResourceBindingSpec, ResourceBindingStatus};
pub use cells::{CellConfiguration, CellConfigurationSpec, VirtualCluster, VirtualClusterSpec};
pub use cluster::{Cluster, ClusterSpec, ClusterStatus};
pub use policy::{
    ClusterOverridePolicy, ClusterPropagationPolicy, OverridePolicy, PropagationPolicy, PropagationSpec,
};
pub use queue::{Queue, QueueSpec, QueueStatus, QueueUnit, QueueUnitSpec, QueueUnitStatus};
pub use quota_tree::{ElasticQuotaTree, ElasticQuotaTreeSpec, ElasticQuotaTreeStatus};
pub use reservation::{Reservation, ReservationSpec, ReservationStatus};
pub use work::{Work, WorkSpec, WorkStatus};

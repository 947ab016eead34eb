//! The Kubernetes API types of Fleet: every group of the design as Rust types, the generated
//! CustomResourceDefinitions, names that several rooms agree on, and the one YAML module.
//!
//! Inputs: none; this room holds data definitions. Deliberately absent: decisions (they live in
//! the pure rooms), clients and IO (they live in the processes), but for how long both wait (`patience`).

pub mod access;
pub mod advice;
pub mod binding;
pub mod bounds;
pub mod cell_places;
pub mod cells;
pub mod clock;
pub mod cluster;
pub mod convert;
pub mod crds;
pub mod jobs;
pub mod mutation;
pub mod names;
pub use fleet_ordered as ordered;
pub mod patch;
pub mod patience;
pub mod policy;
pub mod queue;
pub mod quota_tree;
pub mod reservation;
pub mod rules;
pub mod schema;
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

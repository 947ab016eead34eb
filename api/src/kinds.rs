//! The kinds of objects that Fleet propagates and that jobs depend on.

use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
    sync::Arc,
};

use fleet_policies::workload::WorkloadKind;
use kube::core::{ApiResource, GroupVersionKind};

/// One kind of the hub's API, compared by API version and kind; how it is served may be discovered later.
#[derive(Clone, Debug)]
pub struct Kind {
    pub api_version: String,
    pub kind: String,
    pub plural: String,
    /// Whether its status is a subresource.
    pub status: bool,
}

impl Kind {
    fn id(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.id().cmp(&other.id())
    }
}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

/// A kind, shared by all objects of it.
pub type KindRef = Arc<Kind>;

impl Kind {
    pub fn new(api_version: &str, kind: &str, plural: &str, status: bool) -> KindRef {
        Arc::new(Self {
            api_version: api_version.to_string(),
            kind: kind.to_string(),
            plural: plural.to_string(),
            status,
        })
    }

    /// The ApiResource with which kube addresses objects of this kind.
    pub fn resource(&self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &self.kind), &self.plural)
    }

    pub fn workload(&self) -> WorkloadKind {
        WorkloadKind::of(&self.api_version, &self.kind)
    }
}

/// Kinds that are watched from the start: the jobs.
pub fn jobs() -> Vec<KindRef> {
    vec![
        Kind::new("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", true),
        Kind::new("kubeflow.org/v1", "TFJob", "tfjobs", true),
        Kind::new("kubeflow.org/v2beta1", "MPIJob", "mpijobs", true),
        Kind::new("batch.volcano.sh/v1alpha1", "Job", "jobs", true),
        Kind::new("batch/v1", "Job", "jobs", true),
    ]
}

/// Kinds that pod templates reference and `propagateDeps` sends; watched when first needed.
pub fn dependencies() -> Vec<KindRef> {
    vec![
        Kind::new("v1", "ConfigMap", "configmaps", false),
        Kind::new("v1", "Secret", "secrets", false),
        Kind::new("v1", "ServiceAccount", "serviceaccounts", false),
        Kind::new("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ]
}

/// Kinds that are known without discovery.
pub fn known(api_version: &str, kind: &str) -> Option<KindRef> {
    jobs()
        .into_iter()
        .chain(dependencies())
        .chain([
            Kind::new("apps/v1", "Deployment", "deployments", true),
            Kind::new("apps/v1", "StatefulSet", "statefulsets", true),
            Kind::new("v1", "Service", "services", true),
        ])
        .find(|known| known.api_version == api_version && known.kind == kind)
}

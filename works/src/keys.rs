//! Keys of the work queue.

use fleet_agent_ground::key_of;
use kube::{api::DynamicObject, discovery::ApiResource};
use serde_json::Value;

/// Something to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Work(String),
    /// An object in the member that Fleet created and that may belong to no Work any more.
    Leftover(ObjectId),
    /// A job that must not run while this cluster is cut off.
    Fence(ObjectId),
}

/// API version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KindId {
    pub api_version: String,
    pub kind: String,
}

impl KindId {
    pub fn of(resource: &ApiResource) -> Self {
        Self { api_version: resource.api_version.clone(), kind: resource.kind.clone() }
    }
}

/// An object of the member. The namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub kind: KindId,
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    pub fn of_manifest(manifest: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            kind: KindId { api_version: text(&manifest["apiVersion"]), kind: text(&manifest["kind"]) },
            namespace: text(&manifest["metadata"]["namespace"]),
            name: text(&manifest["metadata"]["name"]),
        }
    }

    pub fn of_object(kind: &KindId, object: &DynamicObject) -> Self {
        let (namespace, name) = key_of(object);
        Self { kind: kind.clone(), namespace, name }
    }

    pub fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace.as_str() {
            "" => write!(f, "{} {name}", kind.kind),
            namespace => write!(f, "{} {namespace}/{name}", kind.kind),
        }
    }
}

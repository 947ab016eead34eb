//! The metadata of Kubernetes objects.

use kube_core::Resource;

use crate::{Key, Metadata, Version};

/// Of the namespace kube-system: which incarnation of its state a server is.
pub const INCARNATION_ANNOTATION: &str = "fleet.dev/incarnation";

/// Reads the metadata of Kubernetes objects.
#[derive(Clone, Copy, Debug)]
pub struct Kube;

impl<K: Resource> Metadata<K> for Kube {
    fn key(object: &K) -> Key {
        let meta = object.meta();
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }

    fn uid(object: &K) -> &str {
        object.meta().uid.as_deref().unwrap_or_default()
    }

    fn version(object: &K) -> Version {
        Version::of(object.meta().resource_version.as_ref())
    }
}

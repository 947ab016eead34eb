//! The name of a resource, cheap to clone and ordered as text.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A resource's name as Kubernetes spells it: `cpu`, `memory`, `nvidia.com/gpu`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    pub const CPU: &'static str = "cpu";
    pub const MEMORY: &'static str = "memory";
    pub const EPHEMERAL_STORAGE: &'static str = "ephemeral-storage";
    pub const PODS: &'static str = "pods";

    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for resources only some nodes have (`nvidia.com/gpu` and the like):
    /// everything with a domain prefix other than Kubernetes' own.
    pub fn is_extended(&self) -> bool {
        self.0.contains('/') && !self.0.starts_with("kubernetes.io/")
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ResourceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for ResourceName {
    fn from(name: String) -> Self {
        Self(Arc::from(name))
    }
}

impl Serialize for ResourceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ResourceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

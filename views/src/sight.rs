//! What a viewer may see.

use std::collections::BTreeSet;

use serde::Serialize;

/// Namespaces whose jobs a viewer may list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Namespaces {
    All,
    Only(BTreeSet<String>),
}

impl Namespaces {
    pub fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }
}

/// What a viewer may see, as the hub's RBAC says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sight {
    pub jobs: Namespaces,
    /// The quota trees.
    pub queues: bool,
    pub clusters: bool,
}

impl Sight {
    pub fn all() -> Self {
        Self { jobs: Namespaces::All, queues: true, clusters: true }
    }

    pub fn nothing() -> Self {
        Self { jobs: Namespaces::Only(BTreeSet::new()), queues: false, clusters: false }
    }
}

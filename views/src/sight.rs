//! What a viewer may see.

use std::collections::BTreeSet;

use serde::Serialize;

/// Namespaces whose jobs a viewer may list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// What a viewer may see, by the hub's RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Sight {
    pub jobs: Namespaces,
    /// The quota trees.
    pub queues: bool,
    pub clusters: bool,
    pub virtual_clusters: bool,
    /// CellConfigurations.
    pub cells: bool,
}

impl Sight {
    pub fn all() -> Self {
        Self { jobs: Namespaces::All, queues: true, clusters: true, virtual_clusters: true, cells: true }
    }

    pub fn nothing() -> Self {
        Self {
            jobs: Namespaces::Only(BTreeSet::new()),
            queues: false,
            clusters: false,
            virtual_clusters: false,
            cells: false,
        }
    }
}

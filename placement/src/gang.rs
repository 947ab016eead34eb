//! Gangs: pods of one job that start together or not at all.

use std::collections::BTreeMap;

use fleet_resources::Resources;
use fleet_resources::constraints::{NodeSelectorTerm, Toleration};
use serde::{Deserialize, Serialize};

/// What one pod requests and where it may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodShape {
    pub requests: Resources,
    pub node_selector: BTreeMap<String, String>,
    /// Required terms, of which one must match; empty: no requirement.
    pub node_affinity: Vec<NodeSelectorTerm>,
    pub tolerations: Vec<Toleration>,
}

/// A number of equal pods of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangComponent {
    pub name: String,
    pub replicas: i64,
    /// How many must be placed for the gang to start, at most `replicas`.
    pub min: i64,
    pub shape: PodShape,
}

impl GangComponent {
    /// A component all of whose pods must be placed.
    pub fn whole(name: &str, replicas: i64, shape: PodShape) -> Self {
        Self { name: name.to_owned(), replicas, min: replicas, shape }
    }

    fn least(&self) -> i64 {
        self.min.clamp(0, self.replicas.max(0))
    }
}

/// All components of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    pub components: Vec<GangComponent>,
}

impl Gang {
    /// The sum of the requests of the gang's minimum.
    pub fn total(&self) -> Resources {
        let mut total = Resources::new();
        for component in &self.components {
            total.add(&component.shape.requests.scaled(component.least()));
        }
        total
    }

    /// Number of pods of the gang's minimum.
    pub fn pods(&self) -> i64 {
        self.components.iter().map(GangComponent::least).sum()
    }

    pub(crate) fn minimum(&self) -> Vec<i64> {
        self.components.iter().map(GangComponent::least).collect()
    }

    pub(crate) fn wanted(&self) -> Vec<i64> {
        self.components.iter().map(|component| component.replicas.max(0)).collect()
    }
}

//! The configuration of cells: HiveD's file as types.
//!
//! [`ClusterConfig::read`] takes the parsed document and reports all errors in it at once, each with its path in
//! the file. Errors of the file as a whole (addresses, promises that do not fit) are found by
//! [`crate::Cells::new`]. Deliberately absent: YAML text, which the caller parses.

mod read;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize};

pub use read::{Document, read_document};
pub(crate) use read::{MAX_DEPTH, any, quote};

/// One error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: found {found}; allowed: {allowed}")]
pub struct ConfigError {
    /// Where in the file, e.g. `physicalCluster.physicalCells[0].cellChildren[1].cellAddress`.
    pub path: String,
    pub found: String,
    pub allowed: String,
}

/// All errors in a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// HiveD's file: the physical cells, and the promises to virtual clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfig {
    pub physical_cluster: PhysicalCluster,
    pub virtual_clusters: BTreeMap<String, VirtualCluster>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhysicalCluster {
    /// What one leaf cell of a type has. Cell allocation does not use it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sku_types: BTreeMap<String, SkuType>,
    pub cell_types: BTreeMap<String, CellType>,
    pub physical_cells: Vec<PhysicalCell>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkuType {
    /// GPUs of one leaf cell; none or 0: a SKU without GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<i64>,
    /// A Kubernetes quantity, e.g. `4096Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellType {
    pub child_cell_type: String,
    pub child_cell_number: i64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_node_level: bool,
}

/// A tree of cells; what the file leaves out is inferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhysicalCell {
    /// Required at the top; below, it follows from the parent's type.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cell_type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cell_address: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pinned_cell_id: String,
    /// The member cluster of this tree's nodes; at the top only. Optional if there is one member, or if node names
    /// are unique.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cell_children: Vec<PhysicalCell>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualCluster {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub virtual_cells: Vec<VirtualCell>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pinned_cells: Vec<PinnedCell>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualCell {
    /// A path of types joined by dots: the first is the chain, the last the promised type.
    pub cell_type: String,
    pub cell_number: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedCell {
    pub pinned_cell_id: String,
}

impl ClusterConfig {
    /// Reads a parsed document: the file itself, not its wrapper (see [`read_document`]).
    ///
    /// # Errors
    /// Everything that has the wrong form, each with its path.
    pub fn read(document: &serde_json::Value) -> Result<Self, ConfigErrors> {
        read::config(document)
    }
}

impl<'de> Deserialize<'de> for ClusterConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = serde_json::Value::deserialize(deserializer)?;
        Self::read(&document).map_err(serde::de::Error::custom)
    }
}

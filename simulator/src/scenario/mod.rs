//! Scenario files: clusters, objects and timed events, the same for the fast and the whole mode.
//!
//! [`Scenario::read`] takes the text of a file and returns everything with defaults filled in: the shorthand `job`
//! is a real manifest, and policy and quota tree exist even if the file has none. The format is described in
//! `docs/scenarios.md`. Deliberately absent: running a scenario, which the modes do.

mod defaults;
mod error;
pub(crate) mod fields;
mod job;
pub mod log;
mod model;
mod read;
mod remarks;
#[cfg(test)]
mod tests;
mod tree;

pub use error::ScenarioError;
pub use model::{
    ASSUMED, Action, ClusterSpec, Event, MAX_NODES, MAX_REPLICAS, Manifest, Mode, NodePool, ObjectName,
    Process, Scenario,
};
pub use remarks::Remark;

impl Scenario {
    /// Reads a file's text. `file` is how the user named it.
    ///
    /// # Errors
    /// The first mistake, with line and field.
    pub fn read(file: &str, text: &str) -> Result<Self, ScenarioError> {
        read::scenario(file, text)
    }

    /// Reads the clusters of a file that holds nothing but `clusters` (for traces).
    ///
    /// # Errors
    /// The first mistake, with line and field.
    pub fn read_clusters(file: &str, text: &str) -> Result<Vec<ClusterSpec>, ScenarioError> {
        read::clusters_only(file, text)
    }

    /// What the file says that does not count as it is written, and how many such things are left out.
    pub fn remarks(&self) -> (Vec<Remark>, usize) {
        remarks::remarks(self)
    }

    pub fn cluster(&self, name: &str) -> Option<&ClusterSpec> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }
}

//! The virtual clusters on the hub: the configuration in force, and which job uses which cells.
//!
//! Running jobs are read from their bindings and restored into `fleet-cells`, as the controller does when it
//! starts. So the command line, the portal and the REST API show the same state. Not here: scheduling
//! decisions, and reservations that are not yet in a binding.

pub mod file;
pub mod plan;
#[cfg(test)]
pub(crate) mod tests;
pub mod tree;
pub mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{
    CellConfiguration, Cluster, ElasticQuotaTree, ResourceBinding, VirtualCluster,
    cells::{
        class::class_name,
        read::{self, ConfigurationView},
    },
    names::VIRTUAL_CLUSTER_LABEL,
    quota_tree,
};
use fleet_cells::{
    BoundGroup, Cells, NodeName, Recovered, Unreported,
    config::{ClusterConfig, ConfigErrors},
};
use fleet_policies::workload::WorkloadKind;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::server::{AskError, Selectors, Server};

const GROUP: &str = "/apis/fleet.dev/v1alpha1";

/// Path of the CellConfigurations in the API.
pub fn configurations_path() -> String {
    format!("{GROUP}/cellconfigurations")
}

/// Why the state of the cells cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum CellsError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(
        "the hub has no virtual clusters; allowed: a hub with the definitions of this version (`fleet crds --hub`)"
    )]
    NotServed,
    #[error("an object cannot be read: {0}")]
    Object(#[from] serde_json::Error),
    /// The configuration in force was written by another version of Fleet.
    #[error("the configuration in force cannot be read:\n{0}")]
    InForce(ConfigErrors),
}

/// Objects of one kind.
async fn list<T: DeserializeOwned>(server: &Server, plural: &str) -> Result<Vec<T>, CellsError> {
    let path = format!("{GROUP}/{plural}");
    let mut listed = match server.list(&path, &Selectors::default(), "application/json").await {
        Ok(listed) => listed,
        Err(error) if error.is_not_found() => return Err(CellsError::NotServed),
        Err(error) => return Err(error.into()),
    };
    let items = listed["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok(items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?)
}

/// The VirtualClusters, by name.
///
/// # Errors
/// The hub does not answer, or refuses.
pub async fn virtual_clusters(server: &Server) -> Result<Vec<VirtualCluster>, CellsError> {
    let mut found: Vec<VirtualCluster> = list(server, "virtualclusters").await?;
    found.sort_by_key(ResourceExt::name_any);
    Ok(found)
}

/// The configurations.
///
/// # Errors
/// The hub does not answer, or refuses.
pub async fn configurations(server: &Server) -> Result<Vec<CellConfiguration>, CellsError> {
    list(server, "cellconfigurations").await
}

/// The configuration in force, or none.
///
/// # Errors
/// It was written by another version of Fleet.
pub fn config_in_force(objects: &[CellConfiguration]) -> Result<Option<ClusterConfig>, CellsError> {
    let view = read::in_force(objects);
    view.map(|view| view.config().map_err(CellsError::InForce)).transpose()
}

/// Everything on the hub that determines which job uses which cells.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    pub configurations: Vec<CellConfiguration>,
    pub bindings: Vec<ResourceBinding>,
    pub clusters: Vec<Cluster>,
}

/// A job by its namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobName {
    pub namespace: String,
    pub kind: String,
    pub name: String,
}

impl std::fmt::Display for JobName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The cells with everything that runs in them.
pub struct Picture {
    pub cells: Cells,
    /// Jobs by the names of their groups.
    pub jobs: BTreeMap<String, JobName>,
    /// Virtual cluster and priority that groups asked for, by their names.
    asked: BTreeMap<String, (String, i32)>,
    /// The running groups that have cells which the configuration no longer contains.
    pub lost: Vec<Recovered>,
}

impl Picture {
    /// Virtual cluster and priority that a group asked for. What `fleet-cells` says of a group also has all its pods.
    pub fn asked(&self, group: &str) -> Option<(&str, i32)> {
        self.asked.get(group).map(|(vc, priority)| (vc.as_str(), *priority))
    }

    /// The job of a group, or the group's own name.
    pub fn job(&self, group: &str) -> String {
        self.jobs.get(group).map_or_else(|| group.to_string(), ToString::to_string)
    }
}

impl Standing {
    /// # Errors
    /// The hub does not answer, or refuses to show one of the kinds.
    pub async fn read(server: &Server) -> Result<Self, CellsError> {
        let (configurations, bindings, clusters) = tokio::try_join!(
            configurations(server),
            list(server, "resourcebindings"),
            list(server, "clusters"),
        )?;
        Ok(Self { configurations, bindings, clusters })
    }

    pub fn in_force(&self) -> Option<ConfigurationView<'_>> {
        read::in_force(&self.configurations)
    }

    /// The state of the cells; none without a configuration in force.
    ///
    /// # Errors
    /// The configuration in force was written by another version of Fleet.
    pub fn picture(&self, now: Timestamp) -> Result<Option<Picture>, CellsError> {
        let Some(view) = self.in_force() else { return Ok(None) };
        let config = view.config().map_err(CellsError::InForce)?;
        // The controller reports this in the status as soon as it has read the object.
        let (config, _) = read::name_members(config, &self.members());
        let status = view.object.status.as_ref();
        let bad: BTreeSet<&str> =
            status.iter().flat_map(|status| &status.bad_nodes).map(String::as_str).collect();
        self.recover(config, &bad, now).map(Some).map_err(CellsError::InForce)
    }

    /// The running groups in a configuration with the given bad nodes.
    fn recover(
        &self,
        config: ClusterConfig,
        bad: &BTreeSet<&str>,
        now: Timestamp,
    ) -> Result<Picture, ConfigErrors> {
        let idle = Cells::new(config.clone(), Unreported::Good)?;
        let good: BTreeSet<NodeName> =
            idle.nodes().filter(|node| !bad.contains(node.to_string().as_str())).cloned().collect();
        let (jobs, running): (BTreeMap<_, _>, Vec<_>) = self
            .running()
            .into_iter()
            .map(|(job, group)| ((group.request.name().to_string(), job), group))
            .unzip();
        let asked = |group: &BoundGroup| {
            let request = &group.request;
            (request.name().to_string(), (request.vc.clone(), request.priority))
        };
        let asked = running.iter().map(asked).collect();
        let (cells, lost) = Cells::recover(config, &good, running, now.as_millisecond())?;
        Ok(Picture { cells, jobs, asked, lost })
    }

    /// The groups that have cells, each with its job. Records that cannot be read are from another version
    /// and are skipped.
    fn running(&self) -> Vec<(JobName, BoundGroup)> {
        let mut running = Vec::new();
        for binding in &self.bindings {
            let status = binding.status.as_ref();
            if status.is_some_and(|status| status.result.is_some()) {
                continue;
            }
            let started = status.and_then(|status| status.run.as_ref()?.started_at.clone());
            let started = started.and_then(|at| at.parse::<Timestamp>().ok());
            let job = job_of(binding);
            for group in binding.spec.cells.iter().flat_map(|cells| &cells.groups) {
                if let Ok(bound) = group.bound(started.map_or(0, Timestamp::as_millisecond)) {
                    running.push((job.clone(), bound));
                }
            }
        }
        running
    }

    /// The members that are known here, for trees that name none.
    fn members(&self) -> read::Members {
        let before = self.in_force().and_then(|view| view.config().ok());
        let before = before.and_then(|config| Cells::new(config, Unreported::Good).ok());
        let nodes: Vec<NodeName> = before.iter().flat_map(Cells::nodes).cloned().collect();
        read::members(&self.clusters, &nodes)
    }
}

/// Virtual cluster and class that a job asks for, however it says so; `of_leaf` is what the attribute of its queue's leaf
/// says. Both empty of a job that asks for no cells, or for what cannot be read.
pub fn asked(kind: WorkloadKind, job: &Value, of_leaf: Option<&str>) -> (String, String) {
    let Ok(request) = fleet_cell_requests::read(kind, job) else { return Default::default() };
    match request.vc.as_deref().or(of_leaf).filter(|vc| !vc.is_empty()) {
        Some(vc) => (vc.to_owned(), class_name(request.class)),
        None => Default::default(),
    }
}

/// The virtual cluster that the attribute of a leaf of the tree in force names.
pub fn of_leaf(trees: &[ElasticQuotaTree], path: &str) -> Option<String> {
    let mut names = path.split('/');
    let mut node = quota_tree::in_force(trees)?.root;
    if node.name != names.next()? {
        return None;
    }
    for name in names {
        node = node.children.iter().find(|child| child.name == name)?;
    }
    node.attributes.get(VIRTUAL_CLUSTER_LABEL).cloned()
}

/// The job of a binding.
pub fn job_of(binding: &ResourceBinding) -> JobName {
    let resource = &binding.spec.resource;
    JobName {
        namespace: resource.namespace.clone(),
        kind: resource.kind.clone(),
        name: resource.name.clone(),
    }
}

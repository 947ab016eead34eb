//! Conversion between the objects and the types of `fleet-cells`.

use std::collections::{BTreeMap, BTreeSet};

use fleet_cells::{
    BoundGroup, GroupRequest, LazyPreemption, NodeName, Placement, PodPlacement,
    config::{ClusterConfig, ConfigError, ConfigErrors, PhysicalCell},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{Cluster, ClusterStatus};

use super::{
    AccessRules, CellConfiguration, CellConfigurationSpec, CellGroup, CellPod, CellsInForce, LazilyPreempted,
};

/// The name of the VirtualCluster object of a virtual cluster: HiveD allows capitals, Kubernetes does not.
pub fn object_name(vc: &str) -> String {
    vc.to_lowercase()
}

impl CellConfigurationSpec {
    /// A configuration as an object's spec, open to everybody.
    pub fn of(config: &ClusterConfig) -> Self {
        let mut document = serde_json::to_value(config).unwrap_or_default();
        Self {
            physical_cluster: document["physicalCluster"].take(),
            virtual_clusters: document["virtualClusters"].take(),
            access: AccessRules::new(),
        }
    }

    /// The configuration as `fleet-cells` reads it. `Cells::new` checks it as a whole.
    ///
    /// # Errors
    /// Every part of the wrong form, with its path below `spec`.
    pub fn config(&self) -> Result<ClusterConfig, ConfigErrors> {
        config(&self.physical_cluster, &self.virtual_clusters)
    }
}

impl CellsInForce {
    /// The configuration as `fleet-cells` reads it.
    ///
    /// # Errors
    /// Every part of the wrong form, with its path.
    pub fn config(&self) -> Result<ClusterConfig, ConfigErrors> {
        config(&self.physical_cluster, &self.virtual_clusters)
    }
}

fn config(physical_cluster: &Value, virtual_clusters: &Value) -> Result<ClusterConfig, ConfigErrors> {
    let document = json!({"physicalCluster": physical_cluster, "virtualClusters": virtual_clusters});
    let config = ClusterConfig::read(&document)?;
    check_names(&config)?;
    Ok(config)
}

/// Checks that no two virtual clusters have objects of the same name.
///
/// # Errors
/// Each virtual cluster with the object name of an earlier one, with its path.
pub fn check_names(config: &ClusterConfig) -> Result<(), ConfigErrors> {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for vc in config.virtual_clusters.keys() {
        if let Some(other) = names.insert(object_name(vc), vc) {
            wrong.push(ConfigError {
                path: format!("virtualClusters.{vc}"),
                found: format!("`{vc}` beside `{other}`"),
                allowed: "names that differ in more than capitals".into(),
            });
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(ConfigErrors(wrong)) }
}

/// Members by name, each with its known nodes.
pub type Members = BTreeMap<String, BTreeSet<String>>;

/// The known members: nodes named by their reports, and nodes that an earlier configuration assigns to them.
pub fn members<'c>(
    clusters: impl IntoIterator<Item = &'c Cluster>,
    before: impl IntoIterator<Item = &'c NodeName>,
) -> Members {
    let mut members = Members::new();
    for cluster in clusters {
        members.insert(cluster.name_any(), cluster.status.iter().flat_map(nodes_named).cloned().collect());
    }
    for node in before {
        if let Some(nodes) = members.get_mut(&node.cluster) {
            nodes.insert(node.node.clone());
        }
    }
    members
}

/// Nodes of a configuration that a member does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbsentNodes {
    pub cluster: String,
    pub names: Vec<String>,
    /// Nodes that the member has and that are no cells, the most alike first: one of them may be meant.
    pub others: Vec<String>,
}

/// Most names that a message lists.
const LISTED: usize = 8;

impl AbsentNodes {
    /// `cells` are all nodes of the configuration.
    pub fn of(cluster: &Cluster, names: Vec<String>, cells: &[NodeName]) -> Self {
        let cluster_name = cluster.name_any();
        let of_it = cells.iter().filter(|node| node.cluster == cluster_name);
        let cells: BTreeSet<&str> = of_it.map(|node| node.node.as_str()).collect();
        let has = cluster.status.iter().flat_map(nodes_named);
        let others: BTreeSet<&String> = has.filter(|name| !cells.contains(name.as_str())).collect();
        let mut others: Vec<String> = others.into_iter().cloned().collect();
        let likeness = |other: &String| names.iter().take(LISTED).map(|name| alike(name, other)).max();
        others.sort_by_cached_key(|other| std::cmp::Reverse(likeness(other)));
        Self { cluster: cluster_name, names, others }
    }
}

/// Characters that two names begin and end with in common.
fn alike(one: &str, other: &str) -> usize {
    let same = |(left, right): &(char, char)| left == right;
    let begin = one.chars().zip(other.chars()).take_while(same).count();
    begin + one.chars().rev().zip(other.chars().rev()).take_while(same).count()
}

impl std::fmt::Display for AbsentNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cluster = &self.cluster;
        let names: Vec<String> = self.names.iter().map(|name| format!("{cluster}/{name}")).collect();
        write!(f, "found {}; allowed: nodes of {cluster}", listed(&names))?;
        match self.others.is_empty() {
            true => Ok(()),
            false => write!(f, ", of which these are no cells: {}", listed(&self.others)),
        }
    }
}

fn listed(names: &[String]) -> String {
    match names.len() {
        all if all > LISTED => format!("{} and {} more", names[..LISTED].join(", "), all - LISTED),
        _ => names.join(", "),
    }
}

/// Nodes of a configuration that their member does not have, for each member that reports the names of all its nodes.
pub fn absent_nodes<'c>(
    nodes: &[NodeName],
    clusters: impl IntoIterator<Item = &'c Cluster>,
) -> Vec<AbsentNodes> {
    let mut absent = Vec::new();
    for cluster in clusters {
        let Some(status) = &cluster.status else { continue };
        let has: BTreeSet<&String> = nodes_named(status).collect();
        let total = status.node_summary.as_ref().map(|summary| summary.total_num);
        if total.is_none_or(|total| usize::try_from(total).is_ok_and(|total| has.len() < total)) {
            continue;
        }
        let name = cluster.name_any();
        let missing = nodes.iter().filter(|node| node.cluster == name && !has.contains(&node.node));
        let missing: Vec<String> = missing.map(|node| node.node.clone()).collect();
        if !missing.is_empty() {
            absent.push(AbsentNodes::of(cluster, missing, nodes));
        }
    }
    absent
}

/// All nodes that a report names, whether something runs on them, they are kept for cells, or they take no pods.
fn nodes_named(status: &ClusterStatus) -> impl Iterator<Item = &String> {
    let shapes = status.node_shapes.iter().chain(&status.cell_node_shapes);
    let unusable = status.unusable_nodes.iter().map(|node| &node.name);
    shapes.flat_map(|shape| &shape.nodes).chain(&status.idle_nodes).chain(unusable)
}

/// Fills in the member cluster of each tree without one: the only member, or the one known to have nodes of
/// that tree. Other trees stay unchanged and are returned with their paths.
pub fn name_members(mut config: ClusterConfig, members: &Members) -> (ClusterConfig, Vec<ConfigError>) {
    let mut unnamed = Vec::new();
    let known = members.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let node_types = node_types(&config);
    for (index, tree) in config.physical_cluster.physical_cells.iter_mut().enumerate() {
        if !tree.cluster.is_empty() || members.is_empty() {
            continue;
        }
        let nodes = nodes_of(tree, &node_types);
        let has = |have: &BTreeSet<String>| nodes.iter().any(|node| have.contains(*node));
        let found: Vec<&String> = match members.len() {
            1 => members.keys().collect(),
            _ => members.iter().filter(|(_, have)| has(have)).map(|(name, _)| name).collect(),
        };
        let found = match found.as_slice() {
            [one] => {
                tree.cluster = (*one).clone();
                continue;
            }
            [] => format!("nothing, and no member known to have a node of {}", nodes.join(", ")),
            several => {
                let several = several.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
                format!("nothing, and nodes of these names in {several}")
            }
        };
        let path = format!("physicalCluster.physicalCells[{index}].cluster");
        unnamed.push(ConfigError { path, found, allowed: known.clone() });
    }
    (config, unnamed)
}

/// For each type above nodes, how many levels below it the nodes are; 0 for a node itself.
fn node_types(config: &ClusterConfig) -> BTreeMap<String, usize> {
    let types = &config.physical_cluster.cell_types;
    let depth = |name: &String| {
        let mut step = (name, 0);
        // `Cells::new` finds cycles of types.
        while step.1 <= types.len() {
            let kind = types.get(step.0)?;
            if kind.is_node_level {
                return Some(step.1);
            }
            step = (&kind.child_cell_type, step.1 + 1);
        }
        None
    };
    types.keys().filter_map(|name| Some((name.clone(), depth(name)?))).collect()
}

fn nodes_of<'t>(tree: &'t PhysicalCell, types: &BTreeMap<String, usize>) -> Vec<&'t str> {
    let Some(depth) = types.get(&tree.cell_type) else { return Vec::new() };
    let mut cells = vec![tree];
    for _ in 0..*depth {
        cells = cells.into_iter().flat_map(|cell| &cell.cell_children).collect();
    }
    cells.into_iter().map(|cell| cell.cell_address.as_str()).filter(|name| !name.is_empty()).collect()
}

/// The state of a hub's configurations, from their objects alone.
#[derive(Clone, Copy, Debug)]
pub struct ConfigurationView<'c> {
    /// The object that holds the configuration in force.
    pub object: &'c CellConfiguration,
    pub physical_cluster: &'c Value,
    pub virtual_clusters: &'c Value,
    pub access: &'c AccessRules,
    /// The generation of the object that it was read from.
    pub generation: i64,
}

impl ConfigurationView<'_> {
    /// The configuration as `fleet-cells` reads it.
    ///
    /// # Errors
    /// Every part of the wrong form, with its path.
    pub fn config(&self) -> Result<ClusterConfig, ConfigErrors> {
        config(self.physical_cluster, self.virtual_clusters)
    }
}

/// The configuration in force: the one kept in a status, else the oldest that is not marked invalid.
pub fn in_force(objects: &[CellConfiguration]) -> Option<ConfigurationView<'_>> {
    let mut sorted: Vec<&CellConfiguration> = objects.iter().collect();
    sorted.sort_by_cached_key(|object| (object.creation_timestamp().map(|time| time.0), object.name_any()));
    let kept = sorted.iter().find_map(|object| {
        let kept = object.status.as_ref()?.in_force.as_ref()?;
        Some(ConfigurationView {
            object,
            physical_cluster: &kept.physical_cluster,
            virtual_clusters: &kept.virtual_clusters,
            access: &kept.access,
            generation: kept.generation,
        })
    });
    kept.or_else(|| {
        let object = sorted.into_iter().find(|object| invalid(object).is_none())?;
        Some(ConfigurationView {
            object,
            physical_cluster: &object.spec.physical_cluster,
            virtual_clusters: &object.spec.virtual_clusters,
            access: &object.spec.access,
            generation: object.metadata.generation.unwrap_or(0),
        })
    })
}

/// Why the object's configuration is not in force, from its condition.
pub fn invalid(object: &CellConfiguration) -> Option<&str> {
    let conditions = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let valid = conditions.iter().find(|condition| condition.type_ == "Valid")?;
    (valid.status == "False").then_some(valid.message.as_str())
}

impl CellGroup {
    /// A group as `fleet-cells` placed it; `names` are its pods in order.
    pub fn of(group: &BoundGroup) -> Self {
        let placement = &group.placement;
        let name = |at: usize| group.pods.get(at).cloned().flatten().unwrap_or_default();
        let pods = placement.pods.iter().enumerate().map(|(at, pod)| CellPod {
            name: name(at),
            node: pod.node.clone(),
            leaf_cells: pod.leaf_cells.clone(),
            preassigned_cell_type: pod.preassigned_cell_type.clone(),
        });
        Self {
            request: serde_json::to_value(&group.request).unwrap_or_default(),
            cluster: placement.cluster.clone(),
            cell_chain: placement.cell_chain.clone(),
            leaf_cell_type: placement.leaf_cell_type.clone(),
            pods: pods.collect(),
            lazily_preempted: group
                .lazily_preempted
                .as_ref()
                .map(|lazy| LazilyPreempted { preemptor: lazy.preemptor.clone(), at_ms: lazy.at_ms }),
        }
    }

    /// Input of [`fleet_cells::Cells::recover`].
    ///
    /// # Errors
    /// The request is not one of this API version.
    pub fn bound(&self, work_since_ms: i64) -> Result<BoundGroup, serde_json::Error> {
        let request: GroupRequest = serde_json::from_value(self.request.clone())?;
        let pods = self.pods.iter().map(|pod| PodPlacement {
            node: pod.node.clone(),
            leaf_cells: pod.leaf_cells.clone(),
            preassigned_cell_type: pod.preassigned_cell_type.clone(),
        });
        Ok(BoundGroup {
            request,
            placement: Placement {
                cluster: self.cluster.clone(),
                cell_chain: self.cell_chain.clone(),
                leaf_cell_type: self.leaf_cell_type.clone(),
                pods: pods.collect(),
            },
            pods: self.pods.iter().map(|pod| (!pod.name.is_empty()).then(|| pod.name.clone())).collect(),
            lazily_preempted: self
                .lazily_preempted
                .as_ref()
                .map(|lazy| LazyPreemption { preemptor: lazy.preemptor.clone(), at_ms: lazy.at_ms }),
            work_since_ms,
        })
    }
}

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

/// The known members, from which trees of cells without a member get theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Members by name, each with the nodes that its report names.
    pub reported: BTreeMap<String, BTreeSet<String>>,
    /// Those that have not reported the names of all their nodes: what they have may not be known yet.
    pub partial: BTreeSet<String>,
    /// Nodes of the configuration in force, with the members that have them by it.
    pub before: BTreeSet<NodeName>,
}

/// The known members: nodes named by their reports, and nodes that an earlier configuration assigns to them.
pub fn members<'c>(
    clusters: impl IntoIterator<Item = &'c Cluster>,
    before: impl IntoIterator<Item = &'c NodeName>,
) -> Members {
    let mut members = Members::default();
    for cluster in clusters {
        let (names, is_complete) = reported(cluster);
        if !is_complete {
            members.partial.insert(cluster.name_any());
        }
        members.reported.insert(cluster.name_any(), names.into_iter().cloned().collect());
    }
    members.before = before.into_iter().filter(|node| !node.cluster.is_empty()).cloned().collect();
    members
}

/// The nodes that a member's report names, and whether these are all that it says to have.
pub fn reported(cluster: &Cluster) -> (BTreeSet<&String>, bool) {
    let names: BTreeSet<&String> = cluster.status.iter().flat_map(nodes_named).collect();
    let summary = cluster.status.as_ref().and_then(|status| status.node_summary.as_ref());
    let is_complete = summary
        .is_some_and(|summary| usize::try_from(summary.total_num).is_ok_and(|total| names.len() >= total));
    (names, is_complete)
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

fn listed(names: &[impl AsRef<str>]) -> String {
    let mut text = names.iter().take(LISTED).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(LISTED);
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// Nodes of a configuration that their member does not have, for each member that reports the names of all its nodes.
pub fn absent_nodes<'c>(
    nodes: &[NodeName],
    clusters: impl IntoIterator<Item = &'c Cluster>,
) -> Vec<AbsentNodes> {
    let mut absent = Vec::new();
    for cluster in clusters {
        let (has, is_complete) = reported(cluster);
        if !is_complete {
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

/// Fills in the member cluster of each tree without one: that which has its nodes in the configuration in force; else the
/// only member, or the only one that reports nodes of that tree when every other has named all of its nodes. Other trees
/// stay unchanged and are returned with their paths.
///
/// A report is the member's own word. So it decides once: what is assigned stays so, whatever members report later.
pub fn name_members(mut config: ClusterConfig, members: &Members) -> (ClusterConfig, Vec<ConfigError>) {
    let mut unnamed = Vec::new();
    let known = members.reported.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let node_types = node_types(&config);
    // Members may have nodes of the same names: those of trees with a member are no others'.
    let named: BTreeSet<NodeName> = (config.physical_cluster.physical_cells.iter())
        .filter(|tree| !tree.cluster.is_empty())
        .flat_map(|tree| {
            nodes_of(tree, &node_types).into_iter().map(|node| NodeName::new(&tree.cluster, node))
        })
        .collect();
    let mut assigned: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in members.before.difference(&named) {
        assigned.entry(&node.node).or_default().insert(&node.cluster);
    }
    for (index, tree) in config.physical_cluster.physical_cells.iter_mut().enumerate() {
        if !tree.cluster.is_empty() {
            continue;
        }
        let nodes = nodes_of(tree, &node_types);
        let before: BTreeSet<&str> =
            nodes.iter().filter_map(|node| assigned.get(node)).flatten().copied().collect();
        let found = match before.into_iter().collect::<Vec<_>>().as_slice() {
            [] if members.reported.is_empty() => continue,
            [] => claimant(&nodes, members),
            [one] => Ok((*one).to_owned()),
            several => Err(in_several(several)),
        };
        let found = match found {
            Ok(one) => {
                tree.cluster = one;
                continue;
            }
            Err(found) => found,
        };
        let path = format!("physicalCluster.physicalCells[{index}].cluster");
        unnamed.push(ConfigError { path, found, allowed: known.clone() });
    }
    (config, unnamed)
}

/// The member that alone can have these nodes, by the reports.
///
/// # Errors
/// What is found instead.
fn claimant(nodes: &[&str], members: &Members) -> Result<String, String> {
    let has = |have: &BTreeSet<String>| nodes.iter().any(|node| have.contains(*node));
    let found: Vec<&str> = match members.reported.len() {
        1 => members.reported.keys().map(String::as_str).collect(),
        _ => members.reported.iter().filter(|(_, have)| has(have)).map(|(name, _)| name.as_str()).collect(),
    };
    let one = match found.as_slice() {
        [one] => *one,
        [] => {
            return Err(format!("nothing, and no member known to have a node of {}", listed(nodes)));
        }
        several => return Err(in_several(several)),
    };
    let silent: Vec<&str> = members.partial.iter().map(String::as_str).filter(|name| *name != one).collect();
    match silent.is_empty() {
        true => Ok(one.to_owned()),
        false => Err(format!(
            "nothing, and nodes of these names in {one}, but not yet the names of all nodes of {}",
            listed(&silent)
        )),
    }
}

fn in_several(members: &[&str]) -> String {
    format!("nothing, and nodes of these names in {}", members.join(", "))
}

/// What members report about nodes of trees that were assigned to another one, in a sentence for each member. `trees` are
/// the positions of trees that were assigned by reports: of others an administrator has named the member.
pub fn other_claims<'c>(
    config: &ClusterConfig,
    trees: &[usize],
    clusters: impl IntoIterator<Item = &'c Cluster>,
) -> Vec<String> {
    if trees.is_empty() {
        return Vec::new();
    }
    let node_types = node_types(config);
    let mut owners: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for index in trees {
        let Some(tree) = config.physical_cluster.physical_cells.get(*index) else { continue };
        let nodes = nodes_of(tree, &node_types).into_iter();
        owners.extend(nodes.map(|node| (node, (*index, tree.cluster.as_str()))));
    }
    let mut told = Vec::new();
    for cluster in clusters {
        let name = cluster.name_any();
        let owned = |node: &&String| owners.get(node.as_str()).filter(|(_, owner)| *owner != name);
        let (names, _) = reported(cluster);
        let claimed: Vec<&String> = names.into_iter().filter(|node| owned(node).is_some()).collect();
        let Some((index, owner)) = claimed.first().and_then(owned) else { continue };
        told.push(format!(
            "physicalCluster.physicalCells[{index}].cluster: found nothing, and {owner} had its nodes first; {name} \
             reports nodes of such names too ({}), which changes nothing; allowed: the member that has them",
            listed(&claimed)
        ));
    }
    told
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

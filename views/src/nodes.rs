//! Nodes of one cluster as rows: what the heat map draws, in words, with those who are on each.
//!
//! Reports name the nodes on which something runs. Others are one row for all that are alike.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    clusters::{ClusterRow, cluster, clusters},
    facts::{ClusterFacts, NodeGroup},
    heat::{CORDONED, Who},
    job::State,
    known::Known,
    natural::natural_order,
    sight::Sight,
};

/// Rows of one cluster beside its map, fewer where there are many clusters.
const MOST_BESIDE: usize = 20;
const MOST_BESIDE_ALL: usize = 400;
/// Jobs of one node that are named.
const MOST_JOBS: usize = 8;

/// A node, or several without names that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub nodes: i64,
    /// Empty where it is not known.
    pub name: String,
    /// Its HyperNode, rack or zone; empty if the cluster says none.
    pub domain: String,
    pub gpus: i64,
    pub gpus_free: i64,
    /// `ready`, `reserved`, `cordoned` or `not ready`.
    pub state: String,
    pub taints: Vec<String>,
    /// Kept for cells of virtual clusters.
    pub is_of_cells: bool,
    pub jobs: Vec<NodeJob>,
    /// Jobs that are not named: the viewer may not see them, or there are too many.
    pub others: usize,
}

/// A job that is on a node, or has places reserved there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeJob {
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub is_reserved: bool,
}

/// Some rows of a cluster's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePage {
    pub rows: Vec<NodeRow>,
    /// Rows before these, where the page before begins, and rows of the whole cluster.
    pub before: usize,
    pub previous: Option<usize>,
    pub total: usize,
}

/// A cluster with some of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterPage {
    #[serde(flatten)]
    pub row: ClusterRow,
    #[serde(rename = "nodeRows")]
    pub table: NodePage,
}

/// Every cluster by name with its first nodes; none for a viewer who may not list them.
pub fn cluster_pages(known: &Known, sight: &Sight) -> Vec<ClusterPage> {
    let rows = clusters(known, sight);
    let most = (MOST_BESIDE_ALL / rows.len().max(1)).min(MOST_BESIDE);
    rows.into_iter().filter_map(|row| page(known, sight, row, 0, most)).collect()
}

/// One cluster with at most so many of its nodes, after so many others. `None`: there is none that the viewer may see.
pub fn cluster_page(
    known: &Known,
    sight: &Sight,
    name: &str,
    before: usize,
    most: usize,
) -> Option<ClusterPage> {
    let row = cluster(known, sight, name)?;
    page(known, sight, row, before, most)
}

fn page(known: &Known, sight: &Sight, row: ClusterRow, before: usize, most: usize) -> Option<ClusterPage> {
    let facts = known.clusters().get(&row.name)?;
    let table = nodes(facts, &Who { known, sight, cluster: &row.name }, before, most);
    Some(ClusterPage { row, table })
}

/// Domain by domain and by name, so that a page of them stays the same while jobs come and go.
fn nodes(cluster: &ClusterFacts, who: &Who<'_>, before: usize, most: usize) -> NodePage {
    let mut all: Vec<(&NodeGroup, i64, &str)> = Vec::new();
    for group in cluster.groups.iter().filter(|group| group.count > 0) {
        let named = group.names.iter().take(usize::try_from(group.count).unwrap_or(usize::MAX));
        all.extend(named.map(|name| (group, 1, name.as_str())));
        let unnamed = group.count - i64::try_from(group.names.len()).unwrap_or(i64::MAX);
        if unnamed > 0 {
            all.push((group, unnamed, ""));
        }
    }
    all.sort_by(|(group, _, name), (other, _, other_name)| {
        let rest = |group: &NodeGroup| (group.gpus, group.gpus_free);
        natural_order(&group.domain, &other.domain)
            .then_with(|| name.is_empty().cmp(&other_name.is_empty()))
            .then_with(|| natural_order(name, other_name))
            .then_with(|| group.unusable.cmp(&other.unusable))
            .then_with(|| rest(group).cmp(&rest(other)))
    });
    let total = all.len();
    let rows = all.into_iter().skip(before).take(most);
    let rows = rows.map(|(group, nodes, name)| node(group, nodes, name, who)).collect();
    let previous = (before > 0).then(|| before.saturating_sub(most));
    NodePage { rows, before, previous, total }
}

fn node(group: &NodeGroup, nodes: i64, name: &str, who: &Who<'_>) -> NodeRow {
    let (mut jobs, mut others) = (Vec::new(), 0);
    for job in who.known.on_node(who.cluster, name) {
        if !who.sight.jobs.has(job.namespace()) || jobs.len() >= MOST_JOBS {
            others += 1;
            continue;
        }
        jobs.push(NodeJob {
            namespace: job.namespace().to_owned(),
            resource: job.binding.resource.clone(),
            name: job.name().to_owned(),
            is_reserved: job.state() == State::Waiting,
        });
    }
    let state = match group.unusable.as_str() {
        "" if who.is_reserved(name) => "reserved",
        "" => "ready",
        CORDONED => "cordoned",
        "NotReady" => "not ready",
        other => other,
    };
    NodeRow {
        nodes,
        name: name.to_owned(),
        domain: group.domain.clone(),
        gpus: group.gpus,
        gpus_free: group.gpus_free,
        state: state.to_owned(),
        taints: group.taints.clone(),
        is_of_cells: group.of_cells,
        jobs,
        others,
    }
}

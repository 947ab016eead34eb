//! Nodes as cells of a heat map by their GPUs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    facts::{ClusterFacts, NodeGroup},
    job::State,
    known::Known,
    natural::natural_order,
    sight::Sight,
};

/// Most cells of one cluster; in a larger cluster, a cell represents several nodes with the same usage.
const MOST_CELLS: i64 = 600;
/// As a member reports a node that is ready and takes no pods.
pub(crate) const CORDONED: &str = "Cordoned";
/// Shades from free to full.
const SHADES: i64 = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeatCell {
    /// Nodes that the cell represents.
    pub nodes: i64,
    /// A node's name, if known.
    pub name: String,
    pub gpus: i64,
    pub gpus_free: i64,
    /// 0: all free, 4: none free.
    pub shade: i64,
    pub is_tainted: bool,
    /// Its HyperNode, rack or zone; empty if the cluster says none.
    pub domain: String,
    /// Kept for cells of virtual clusters.
    pub is_of_cells: bool,
    /// It takes no pods: not ready, or cordoned.
    pub is_unusable: bool,
    /// It takes no pods because somebody has said so; it is ready.
    pub is_cordoned: bool,
    /// Places are reserved there for a job that has not started.
    pub is_reserved: bool,
    /// Who is on it, as far as its name is known: `namespace/name` of jobs that the viewer may see.
    pub jobs: Vec<String>,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heat {
    pub cells: Vec<HeatCell>,
    /// Most nodes that one cell represents.
    pub nodes_per_cell: i64,
}

/// Domain by domain, in each the fullest nodes first.
pub fn heat(cluster: &ClusterFacts, who: &Who<'_>) -> Heat {
    let mut groups: Vec<&NodeGroup> = cluster.groups.iter().filter(|group| group.count > 0).collect();
    groups.sort_by(|one, other| {
        let by_use = |group: &NodeGroup| {
            (!group.unusable.is_empty(), std::cmp::Reverse(group.gpus - group.gpus_free), group.gpus)
        };
        natural_order(&one.domain, &other.domain)
            .then_with(|| by_use(one).cmp(&by_use(other)))
            .then_with(|| natural_order(first_name(one), first_name(other)))
    });
    let nodes: i64 = groups.iter().map(|group| group.count).sum();
    let nodes_per_cell = (nodes + MOST_CELLS - 1) / MOST_CELLS;
    let mut cells = Vec::new();
    for group in groups {
        let mut left = group.count;
        let mut names: Vec<&String> = group.names.iter().collect();
        names.sort_by(|one, other| natural_order(one, other));
        let mut names = names.into_iter();
        while left > 0 {
            let nodes = left.min(nodes_per_cell.max(1));
            left -= nodes;
            let named: Vec<&String> = names.by_ref().take(usize::try_from(nodes).unwrap_or(1)).collect();
            let is_reserved = named.iter().any(|name| who.is_reserved(name));
            let name = named.first().filter(|_| nodes == 1).map_or_else(String::new, |name| (*name).clone());
            cells.push(HeatCell { is_reserved, ..cell(group, nodes, name, who) });
        }
    }
    Heat { cells, nodes_per_cell: nodes_per_cell.max(1) }
}

fn first_name(group: &NodeGroup) -> &str {
    let names = group.names.iter().map(String::as_str);
    names.min_by(|one, other| natural_order(one, other)).unwrap_or_default()
}

/// Tells who is on a node of one cluster.
pub struct Who<'k> {
    pub known: &'k Known,
    pub sight: &'k Sight,
    pub cluster: &'k str,
}

/// Jobs of one node that are named.
const MOST_JOBS: usize = 8;

impl Who<'_> {
    /// Whether a job that has not started has places there, whoever may see it.
    pub(crate) fn is_reserved(&self, node: &str) -> bool {
        self.known.on_node(self.cluster, node).any(|job| job.state() == State::Waiting)
    }

    /// Names of jobs, and all of it as a part of a sentence.
    fn is_on(&self, node: &str) -> (Vec<String>, String) {
        let (mut jobs, mut said, mut others) = (Vec::new(), Vec::new(), 0);
        for job in self.known.on_node(self.cluster, node) {
            if !self.sight.jobs.has(job.namespace()) || jobs.len() >= MOST_JOBS {
                others += 1;
                continue;
            }
            let name = format!("{}/{}", job.namespace(), job.name());
            said.push(match job.state() {
                State::Waiting => format!("reserved for {name}"),
                _ => name.clone(),
            });
            jobs.push(name);
        }
        if others > 0 {
            said.push(format!("{others} other {}", if others == 1 { "job" } else { "jobs" }));
        }
        (jobs, said.join(", "))
    }
}

fn cell(group: &NodeGroup, nodes: i64, name: String, who: &Who<'_>) -> HeatCell {
    let used = (group.gpus - group.gpus_free).clamp(0, group.gpus.max(0));
    // Rounded up: a node of which anything is used is not shown as free.
    let shade = if group.gpus > 0 { (used * SHADES + group.gpus - 1) / group.gpus } else { 0 };
    let (jobs, said) = if name.is_empty() { Default::default() } else { who.is_on(&name) };
    let who = match (nodes, name.is_empty()) {
        (1, false) => name.clone(),
        (1, true) => "a node".to_owned(),
        (nodes, _) => format!("{nodes} nodes, each"),
    };
    let mut text = match (group.unusable.as_str(), group.gpus) {
        ("", 0) => format!("{who}: no GPUs"),
        ("", gpus) => format!("{who}: {used} of {gpus} GPUs used"),
        (why, gpus) => format!("{who}: {why}, {gpus} GPUs"),
    };
    if !said.is_empty() {
        text.push_str(&format!(": {said}"));
    }
    if group.of_cells {
        text.push_str("; for cells of virtual clusters");
    }
    if !group.taints.is_empty() {
        text.push_str(&format!("; tainted {}", group.taints.join(", ")));
    }
    HeatCell {
        nodes,
        name,
        gpus: group.gpus,
        gpus_free: group.gpus_free,
        shade,
        is_tainted: !group.taints.is_empty(),
        domain: group.domain.clone(),
        is_of_cells: group.of_cells,
        is_unusable: !group.unusable.is_empty(),
        is_cordoned: group.unusable == CORDONED,
        is_reserved: false,
        jobs,
        text,
    }
}

/// How many nodes have each number of free GPUs; nodes without GPUs are left out.
pub fn nodes_by_free<'f>(clusters: impl Iterator<Item = &'f ClusterFacts>) -> Vec<(i64, i64)> {
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    for group in clusters
        .flat_map(|cluster| &cluster.groups)
        .filter(|group| group.gpus > 0 && group.unusable.is_empty())
    {
        // Every step up to the largest node is in the histogram, so that gaps are visible.
        for free in 0..=group.gpus.min(64) {
            counts.entry(free).or_default();
        }
        *counts.entry(group.gpus_free).or_default() += group.count;
    }
    counts.into_iter().collect()
}

//! Nodes as cells of a heat map by their GPUs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::facts::{ClusterFacts, NodeGroup};

/// Cells drawn of one cluster; in a larger one a cell stands for several nodes that are alike.
const MOST_CELLS: i64 = 600;
/// Shades from free to full.
const SHADES: i64 = 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeatCell {
    /// Nodes that the cell stands for.
    pub nodes: i64,
    /// A node's name where it is known.
    pub name: String,
    pub gpus: i64,
    pub gpus_free: i64,
    /// 0: all free, 4: none free.
    pub shade: i64,
    pub is_tainted: bool,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heat {
    pub cells: Vec<HeatCell>,
    /// Nodes that one cell stands for at most.
    pub nodes_per_cell: i64,
}

/// The fullest nodes first.
pub fn heat(cluster: &ClusterFacts) -> Heat {
    let mut groups: Vec<&NodeGroup> = cluster.groups.iter().filter(|group| group.count > 0).collect();
    groups.sort_by_key(|group| {
        (std::cmp::Reverse(group.gpus - group.gpus_free), group.gpus, group.names.clone())
    });
    let nodes: i64 = groups.iter().map(|group| group.count).sum();
    let nodes_per_cell = (nodes + MOST_CELLS - 1) / MOST_CELLS;
    let mut cells = Vec::new();
    for group in groups {
        let mut left = group.count;
        let mut names = group.names.iter();
        while left > 0 {
            let nodes = left.min(nodes_per_cell.max(1));
            left -= nodes;
            let name = if nodes == 1 { names.next().cloned().unwrap_or_default() } else { String::new() };
            cells.push(cell(group, nodes, name));
        }
    }
    Heat { cells, nodes_per_cell: nodes_per_cell.max(1) }
}

fn cell(group: &NodeGroup, nodes: i64, name: String) -> HeatCell {
    let used = (group.gpus - group.gpus_free).clamp(0, group.gpus.max(0));
    // Rounded up: a node of which anything is used is not shown as free.
    let shade = if group.gpus > 0 { (used * SHADES + group.gpus - 1) / group.gpus } else { 0 };
    let who = match (nodes, name.is_empty()) {
        (1, false) => name.clone(),
        (1, true) => "a node".to_owned(),
        (nodes, _) => format!("{nodes} nodes, each"),
    };
    let mut text = match group.gpus {
        0 => format!("{who}: no GPUs"),
        gpus => format!("{who}: {used} of {gpus} GPUs used"),
    };
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
        text,
    }
}

/// How many nodes have so many free GPUs; nodes without GPUs are left out.
pub fn nodes_by_free<'f>(clusters: impl Iterator<Item = &'f ClusterFacts>) -> Vec<(i64, i64)> {
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    for group in clusters.flat_map(|cluster| &cluster.groups).filter(|group| group.gpus > 0) {
        // Every step up to the largest node stands in the histogram, so that gaps show.
        for free in 0..=group.gpus.min(64) {
            counts.entry(free).or_default();
        }
        *counts.entry(group.gpus_free).or_default() += group.count;
    }
    counts.into_iter().collect()
}

//! Configurations and requests of random histories.

use std::collections::BTreeMap;

use super::history::Dice;
use crate::{
    Cells, GroupRequest, Member, PodGroup, Unreported,
    config::{
        CellType, ClusterConfig, PhysicalCell, PhysicalCluster, PinnedCell, VirtualCell, VirtualCluster,
    },
};

/// What the configurations of a history look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shapes {
    /// One chain of whole trees with two children each, at most one pin, one or two clusters.
    Plain,
    /// Up to three chains of one or two leaf types, two to four children, some of them missing, pins at three levels, up
    /// to three clusters.
    Many,
}

const VCS: [&str; 3] = ["a", "b", "c"];
/// Types of the plain chain, from the leaf up, with the number of children.
const TYPES: [(&str, usize); 4] = [("gpu", 1), ("socket", 2), ("node", 2), ("rack", 2)];
/// Most leaves of one tree: a history must be quick.
const MAX_TREE: usize = 18;

impl Shapes {
    pub fn config(self, dice: &mut Dice) -> ClusterConfig {
        for attempt in 0.. {
            let candidate = match self {
                Shapes::Plain => plain(dice),
                Shapes::Many => many(dice, attempt),
            };
            if Cells::new(candidate.clone(), Unreported::Good).is_ok() {
                return candidate;
            }
        }
        unreachable!("one without promises is valid")
    }

    pub fn request(self, dice: &mut Dice, number: usize, config: &ClusterConfig) -> GroupRequest {
        match self {
            Shapes::Plain => plain_request(dice, number, config),
            Shapes::Many => any_request(dice, number, config),
        }
    }
}

fn plain(dice: &mut Dice) -> ClusterConfig {
    let mut cell_types = BTreeMap::new();
    for level in 1..TYPES.len() {
        cell_types.insert(
            TYPES[level].0.to_string(),
            CellType {
                child_cell_type: TYPES[level - 1].0.to_string(),
                child_cell_number: TYPES[level].1 as i64,
                is_node_level: TYPES[level].0 == "node",
            },
        );
    }
    let racks = 2 + dice.below(3);
    let clusters = if dice.one_in(3) { 2 } else { 1 };
    let mut pinned = false;
    let physical_cells = (0..racks)
        .map(|rack| {
            let mut cell = PhysicalCell { cell_type: "rack".into(), ..PhysicalCell::default() };
            if clusters == 2 {
                cell.cluster = format!("cluster-{}", rack % 2);
            }
            cell.cell_children = (0..2)
                .map(|node| {
                    let mut child = PhysicalCell {
                        cell_address: format!("n{}", rack * 2 + node),
                        ..PhysicalCell::default()
                    };
                    if !pinned && dice.one_in(8) {
                        pinned = true;
                        child.pinned_cell_id = "pin".into();
                    }
                    child
                })
                .collect();
            cell
        })
        .collect();
    let mut virtual_clusters: BTreeMap<String, VirtualCluster> = BTreeMap::new();
    for vc in VCS.iter().take(2 + dice.below(2)) {
        let mut own = VirtualCluster::default();
        for level in 0..TYPES.len() {
            let path: Vec<&str> = TYPES[level..].iter().rev().map(|(name, _)| *name).collect();
            let cell = VirtualCell { cell_type: path.join("."), cell_number: dice.below(3) as i64 };
            if cell.cell_number > 0 && dice.one_in(2) {
                own.virtual_cells.push(cell);
            }
        }
        virtual_clusters.insert((*vc).to_string(), own);
    }
    if pinned && let Some(vc) = virtual_clusters.get_mut("a") {
        vc.pinned_cells.push(PinnedCell { pinned_cell_id: "pin".into() });
    }
    let physical_cluster = PhysicalCluster { sku_types: BTreeMap::new(), cell_types, physical_cells };
    ClusterConfig { physical_cluster, virtual_clusters }
}

/// Types of a chain from the leaf up: name and number of children. The third is the node.
type Chain = Vec<(String, usize)>;

const NODE: usize = 2;

fn chains(dice: &mut Dice) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    for number in 0..1 + dice.below(3) {
        let rack = (format!("rack-{number}"), 2 + dice.below(3));
        let mut chain: Chain = match chains.first() {
            // Racks of another size with nodes of the same type.
            Some(first) if dice.one_in(3) => first[..=NODE].to_vec(),
            _ => {
                let leaf = if dice.one_in(3) { "npu" } else { "gpu" };
                vec![
                    (leaf.to_string(), 1),
                    (format!("socket-{number}"), 2 + dice.below(3)),
                    (format!("node-{number}"), 2 + dice.below(3)),
                ]
            }
        };
        chain.push(rack);
        for level in [NODE, 1, NODE + 1] {
            while chain.iter().map(|(_, children)| children).product::<usize>() > MAX_TREE
                && chain[level].1 > 2
            {
                chain[level].1 -= 1;
            }
        }
        // Shared types have the size that the first chain gave them.
        if let Some(first) = chains.iter().find(|first| first[1].0 == chain[1].0) {
            chain[..=NODE].clone_from_slice(&first[..=NODE]);
        }
        chains.push(chain);
    }
    chains
}

fn many(dice: &mut Dice, attempt: usize) -> ClusterConfig {
    let chains = chains(dice);
    let mut cell_types = BTreeMap::new();
    for (level, (name, children)) in chains.iter().flat_map(|chain| chain.iter().enumerate().skip(1)) {
        let below =
            chains.iter().find(|chain| chain[level].0 == *name).map(|chain| chain[level - 1].0.clone());
        let cell_type = CellType {
            child_cell_type: below.unwrap_or_default(),
            child_cell_number: *children as i64,
            is_node_level: level == NODE,
        };
        cell_types.insert(name.clone(), cell_type);
    }
    let clusters = if dice.one_in(2) { 1 } else { 2 + dice.below(2) };
    let mut pins = Vec::new();
    let mut physical_cells = Vec::new();
    for chain in &chains {
        for _ in 0..1 + dice.below(if chains.len() > 1 { 3 } else { 4 }) {
            let mut tree = tree(dice, chain, chain.len() - 1, &mut pins);
            tree.cell_type.clone_from(&chain[chain.len() - 1].0);
            tree.cell_address = format!("t{}", physical_cells.len());
            if clusters > 1 {
                tree.cluster = format!("cluster-{}", dice.below(clusters));
            }
            for (index, node) in tree.cell_children.iter_mut().enumerate() {
                node.cell_address = format!("n{}-{index}", physical_cells.len());
            }
            physical_cells.push(tree);
        }
    }
    let mut virtual_clusters: BTreeMap<String, VirtualCluster> = BTreeMap::new();
    for vc in VCS.iter().take(2 + dice.below(2)) {
        let mut own = VirtualCluster::default();
        for chain in &chains {
            for level in 0..chain.len() {
                let path: Vec<&str> = chain[level..].iter().rev().map(|(name, _)| name.as_str()).collect();
                let cell = VirtualCell { cell_type: path.join("."), cell_number: dice.below(4) as i64 };
                // Fewer promises with each attempt, so that some fit.
                if cell.cell_number > 0 && dice.one_in(2 + attempt / 4) {
                    own.virtual_cells.push(cell);
                }
            }
        }
        virtual_clusters.insert((*vc).to_string(), own);
    }
    for pin in pins {
        let vc = VCS[dice.below(virtual_clusters.len())];
        if let Some(vc) = virtual_clusters.get_mut(vc).filter(|_| dice.below(attempt + 2) < 2) {
            vc.pinned_cells.push(PinnedCell { pinned_cell_id: pin });
        }
    }
    let physical_cluster = PhysicalCluster { sku_types: BTreeMap::new(), cell_types, physical_cells };
    ClusterConfig { physical_cluster, virtual_clusters }
}

/// A cell of a level with what is below it, down to the sockets.
fn tree(dice: &mut Dice, chain: &Chain, level: usize, pins: &mut Vec<String>) -> PhysicalCell {
    let mut cell = PhysicalCell::default();
    if dice.one_in(14) {
        cell.pinned_cell_id = format!("pin-{}", pins.len());
        pins.push(cell.pinned_cell_id.clone());
    }
    if level > 1 {
        let all = chain[level].1;
        let listed = if dice.one_in(6) { 1 + dice.below(all - 1) } else { all };
        cell.cell_children = (0..listed).map(|_| tree(dice, chain, level - 1, pins)).collect();
    }
    cell
}

/// Priority, preemption, suggestions and release.
fn manners(dice: &mut Dice, request: &mut GroupRequest, config: &ClusterConfig) {
    let pinned = &config.virtual_clusters[&request.vc].pinned_cells;
    if let Some(pin) = pinned.first()
        && request.priority >= 0
        && dice.one_in(2)
    {
        request.pinned_cell_id = pin.pinned_cell_id.clone();
    }
    request.lazy_preemption_enable = dice.one_in(2);
    request.ignore_k8s_suggested_nodes = dice.one_in(2);
    request.gang_release_enable = dice.one_in(2);
}

fn blank(dice: &mut Dice, number: usize, config: &ClusterConfig) -> GroupRequest {
    let vcs: Vec<&String> = config.virtual_clusters.keys().collect();
    let vc = dice.pick(&vcs).map(|vc| (*vc).clone()).unwrap_or_default();
    let priority = [-1, -1, 0, 1, 1, 5][dice.below(6)];
    let mut request = GroupRequest::new(&format!("g{number}"), &vc, priority, 1, 1);
    request.affinity_group.root = PodGroup::default();
    request
}

fn plain_request(dice: &mut Dice, number: usize, config: &ClusterConfig) -> GroupRequest {
    let mut request = blank(dice, number, config);
    let members = 1 + dice.below(2);
    let root = &mut request.affinity_group.root;
    for _ in 0..members {
        let mut member = Member {
            pod_number: 1 + dice.below(3) as i64,
            leaf_cell_number: 1 + dice.below(4) as i64,
            ..Member::default()
        };
        if dice.one_in(6) {
            member.cell_type = "socket".into();
            member.leaf_cell_number = 1 + dice.below(2) as i64;
        }
        root.members.push(member);
    }
    if dice.one_in(5) {
        root.within_one_cell = TYPES[1 + dice.below(3)].0.to_string();
    }
    if dice.one_in(8) {
        let child = PodGroup {
            within_one_cell: "node".into(),
            members: root.members.clone(),
            child_groups: Vec::new(),
        };
        root.child_groups.push(child);
    }
    manners(dice, &mut request, config);
    request
}

/// For one chain, so that its types are those of one: a group that names types of two chains fits nowhere.
fn any_request(dice: &mut Dice, number: usize, config: &ClusterConfig) -> GroupRequest {
    let mut request = blank(dice, number, config);
    let physical = &config.physical_cluster;
    let top = dice.pick(&physical.physical_cells).map(|tree| tree.cell_type.clone()).unwrap_or_default();
    let mut types = vec![top];
    while let Some(below) = physical.cell_types.get(&types[0]) {
        types.insert(0, below.child_cell_type.clone());
    }
    let node = types.iter().position(|name| physical.cell_types.get(name).is_some_and(|t| t.is_node_level));
    let below_node = node.unwrap_or(NODE);
    let members = 1 + dice.below(2);
    let root = &mut request.affinity_group.root;
    for _ in 0..members {
        let mut member = Member {
            pod_number: 1 + dice.below(3) as i64,
            leaf_cell_number: 1 + dice.below(5) as i64,
            ..Member::default()
        };
        if dice.one_in(5) {
            member.cell_type = types[1 + dice.below(below_node)].clone();
            member.leaf_cell_number = 1 + dice.below(2) as i64;
        }
        root.members.push(member);
    }
    if dice.one_in(5) {
        root.within_one_cell = types[1 + dice.below(types.len() - 1)].clone();
    }
    if dice.one_in(8) {
        let child = PodGroup {
            within_one_cell: types[1 + dice.below(below_node)].clone(),
            members: root.members.clone(),
            child_groups: Vec::new(),
        };
        root.child_groups.push(child);
    }
    if dice.one_in(4) {
        request.leaf_cell_type = types[0].clone();
    }
    manners(dice, &mut request, config);
    // `manners` takes the first pin, which leaves the others to nobody.
    let pins = &config.virtual_clusters[&request.vc].pinned_cells;
    if !request.pinned_cell_id.is_empty()
        && let Some(pin) = dice.pick(pins)
    {
        request.pinned_cell_id = pin.pinned_cell_id.clone();
    }
    request
}

//! Physical cells: infers the addresses and children that the file leaves out, from the top down.

use std::collections::BTreeSet;

use super::{
    types::{Path, Types},
    wrongs::{MAX_CELLS, Wrongs, chain_number},
};
use crate::{
    config::{PhysicalCell, any, quote},
    topology::{
        Cell, CellNo, Chain, ChainNo, ClusterNo, Leaf, LeafNo, LevelType, Node, NodeName, NodeNo, Topology,
    },
};

pub(super) fn build(topology: &mut Topology, types: &Types, wrongs: &mut Wrongs) {
    let trees = std::mem::take(&mut topology.config.physical_cluster.physical_cells);
    make_chains(topology, &trees, types);
    let mut devices = BTreeSet::new();
    let mut tops = BTreeSet::new();
    for (index, tree) in trees.iter().enumerate() {
        let place = Place::Top(index);
        let Some(path) = top_type(tree, &place, types, wrongs) else { continue };
        let cluster = cluster_number(topology, tree, &place, wrongs);
        let Some(chain) = chain_number(topology, &tree.cell_type) else { continue };
        if !topology.chain(chain).clusters.contains(&cluster) {
            topology.chains[chain.at()].clusters.push(cluster);
        }
        let grown = topology.cells.len() as u64 + 2 * u64::from(path.steps[path.steps.len() - 1].leaves);
        if grown > MAX_CELLS {
            wrongs.add(place.path(), format!("{grown} cells up to here"), format!("at most {MAX_CELLS}"));
            break;
        }
        let seed =
            Seed { level: path.steps.len(), default: index as u64, parent: None, prefix: "", node: None };
        let mut builder = Builder { topology, wrongs, path, chain, cluster, devices: &mut devices };
        let Some(top) = builder.cell(tree, &place, &seed) else { continue };
        let address = topology.cell(top).address.clone();
        if !tops.insert((chain, cluster, address.clone())) {
            let allowed = "an address that no other top cell of the type and cluster has";
            wrongs.add(format!("{}.cellAddress", place.path()), quote(&address), allowed);
        }
    }
    topology.config.physical_cluster.physical_cells = trees;
}

/// Where in the file a cell is; formatted only for an error.
enum Place<'a> {
    Top(usize),
    Child(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn path(&self) -> String {
        match self {
            Place::Top(index) => format!("physicalCluster.physicalCells[{index}]"),
            Place::Child(parent, index) => format!("{}.cellChildren[{index}]", parent.path()),
        }
    }
}

fn make_chains(topology: &mut Topology, trees: &[PhysicalCell], types: &Types) {
    let names: BTreeSet<&str> = trees.iter().map(|tree| tree.cell_type.as_str()).collect();
    for name in names {
        let Some(path) = types.get(name) else { continue };
        let Some(node_level) = path.node_level else { continue };
        let levels = path
            .steps
            .iter()
            .map(|step| LevelType {
                name: step.name.clone(),
                children: step.children,
                leaves: step.leaves,
                cells: Vec::new(),
            })
            .collect();
        topology.chains.push(Chain { name: name.to_string(), levels, node_level, clusters: Vec::new() });
    }
}

fn top_type<'t>(
    tree: &PhysicalCell,
    place: &Place,
    types: &'t Types,
    wrongs: &mut Wrongs,
) -> Option<&'t Path> {
    let field = format!("{}.cellType", place.path());
    let Some(path) = types.get(&tree.cell_type) else {
        let known = any(types.keys().map(String::as_str));
        let found = if tree.cell_type.is_empty() { "nothing".into() } else { quote(&tree.cell_type) };
        wrongs.add(field, found, format!("a type of physicalCluster.cellTypes: {known}"));
        return None;
    };
    if path.node_level.is_none() {
        let found = format!("`{}`, which is below node level", tree.cell_type);
        wrongs.add(field, found, "a type that is a node or contains nodes (isNodeLevel)");
        return None;
    }
    Some(path)
}

fn cluster_number(
    topology: &mut Topology,
    tree: &PhysicalCell,
    place: &Place,
    wrongs: &mut Wrongs,
) -> ClusterNo {
    if tree.cluster.contains('/') {
        let path = format!("{}.cluster", place.path());
        wrongs.add(path, quote(&tree.cluster), "the name of a member cluster, without `/`");
    }
    let position = topology.clusters.iter().position(|name| *name == tree.cluster).unwrap_or_else(|| {
        topology.clusters.push(tree.cluster.clone());
        topology.clusters.len() - 1
    });
    ClusterNo::of(position)
}

/// What a cell inherits.
struct Seed<'a> {
    level: usize,
    /// Its address when it has none of its own.
    default: u64,
    parent: Option<CellNo>,
    prefix: &'a str,
    node: Option<(NodeNo, u32)>,
}

struct Builder<'b, 'a> {
    topology: &'b mut Topology,
    wrongs: &'b mut Wrongs,
    path: &'a Path,
    chain: ChainNo,
    cluster: ClusterNo,
    /// Devices seen so far: within a node, the devices of one leaf type are numbered over all its chains.
    devices: &'b mut BTreeSet<(NodeNo, &'a str, i32)>,
}

impl Builder<'_, '_> {
    fn cell(&mut self, spec: &PhysicalCell, place: &Place, seed: &Seed) -> Option<CellNo> {
        let step = &self.path.steps[seed.level - 1];
        self.check_own(spec, place, seed);
        let own =
            if spec.cell_address.is_empty() { seed.default.to_string() } else { spec.cell_address.clone() };
        let address = if seed.prefix.is_empty() { own.clone() } else { format!("{}/{own}", seed.prefix) };
        let number = CellNo::of(self.topology.cells.len());
        let node = if step.is_node { Some(self.node(&own, number, place)?) } else { seed.node };
        let first_node = node.map_or(self.topology.node_cells.len() as u32, |(_, position)| position);
        let first_leaf = LeafNo::of(self.topology.leaves.len());
        let level = u8::try_from(seed.level).unwrap_or(u8::MAX);
        let pinned = (!spec.pinned_cell_id.is_empty()).then(|| spec.pinned_cell_id.clone());
        self.pin(pinned.as_deref(), number, place);
        self.topology.chains[self.chain.at()].levels[seed.level - 1].cells.push(number);
        self.topology.cells.push(Cell {
            chain: self.chain,
            level,
            cluster: self.cluster,
            parent: seed.parent,
            children: Vec::new(),
            size: 1,
            first_leaf,
            leaves: 0,
            first_node,
            nodes: 1,
            whole: true,
            address: address.clone(),
            pinned,
        });
        if seed.level == 1 {
            self.leaf(&own, number, node, place);
        } else {
            let default = if step.is_node { 0 } else { seed.default };
            let below = Seed { level: seed.level - 1, default, parent: Some(number), prefix: &address, node };
            self.children(spec, place, &below, step.children);
        }
        let leaves = self.topology.leaves.len() as u32 - first_leaf.0;
        let size = self.topology.cells.len() as u32 - number.0;
        let nodes = self.topology.node_cells.len() as u32;
        let cell = &mut self.topology.cells[number.at()];
        cell.leaves = leaves;
        cell.size = size;
        cell.nodes = if node.is_some() { 1 } else { nodes - first_node };
        cell.whole = leaves == step.leaves;
        Some(number)
    }

    fn children(&mut self, spec: &PhysicalCell, place: &Place, below: &Seed, number: u32) {
        let listed = spec.cell_children.len();
        if listed > number as usize {
            let path = format!("{}.cellChildren", place.path());
            self.wrongs.add(
                path,
                format!("{listed} children"),
                format!("at most {number}, as its type says"),
            );
            return;
        }
        let inferred = PhysicalCell::default();
        let count = if listed == 0 { number as usize } else { listed };
        let mut addresses = BTreeSet::new();
        for index in 0..count {
            let child = spec.cell_children.get(index).unwrap_or(&inferred);
            let place = Place::Child(place, index);
            let default = below.default * u64::from(number) + index as u64;
            let seed = Seed { default, ..*below };
            let Some(built) = self.cell(child, &place, &seed) else { continue };
            if let Some(parent) = below.parent {
                self.topology.cells[parent.at()].children.push(built);
            }
            let address = self.topology.cell(built).address.clone();
            if !addresses.insert(address.clone()) {
                let path = format!("{}.cellAddress", place.path());
                self.wrongs.add(path, quote(&address), "an address that no sibling has");
            }
        }
    }

    fn check_own(&mut self, spec: &PhysicalCell, place: &Place, seed: &Seed) {
        let step = &self.path.steps[seed.level - 1];
        if !spec.cell_type.is_empty() && spec.cell_type != step.name {
            let allowed = format!("nothing or `{}`, which follows from the parent's type", step.name);
            self.wrongs.add(format!("{}.cellType", place.path()), quote(&spec.cell_type), allowed);
        }
        if spec.cell_address.contains('/') {
            let path = format!("{}.cellAddress", place.path());
            self.wrongs.add(
                path,
                quote(&spec.cell_address),
                "the cell's own part of the address, without `/`",
            );
        }
        if !spec.cluster.is_empty() && seed.parent.is_some() {
            let path = format!("{}.cluster", place.path());
            self.wrongs.add(path, quote(&spec.cluster), "nothing here; the top cell names the cluster");
        }
        if seed.level == 1 && !spec.cell_children.is_empty() {
            let path = format!("{}.cellChildren", place.path());
            let found = format!("{} children of a leaf cell of type {}", spec.cell_children.len(), step.name);
            self.wrongs.add(path, found, "nothing; leaf cells have no children");
        }
    }

    /// Registers the node of a node-level cell, and its position among all of them.
    fn node(&mut self, name: &str, cell: CellNo, place: &Place) -> Option<(NodeNo, u32)> {
        let cluster = self.topology.clusters[self.cluster.at()].clone();
        let name = NodeName { cluster, node: name.to_string() };
        let known = self.topology.node_numbers.get(&name).copied();
        let number = known.unwrap_or_else(|| {
            let number = NodeNo::of(self.topology.nodes.len());
            self.topology.nodes.push(Node { name: name.clone(), cells: Vec::new() });
            self.topology.node_numbers.insert(name.clone(), number);
            number
        });
        let cells = &self.topology.nodes[number.at()].cells;
        if cells.iter().any(|other| self.topology.cell(*other).chain == self.chain) {
            let chain = &self.topology.chain(self.chain).name;
            let allowed = format!("a node once in chain {chain}");
            let path = format!("{}.cellAddress", place.path());
            self.wrongs.add(path, format!("node {name} for a second time"), allowed);
            return None;
        }
        self.topology.nodes[number.at()].cells.push(cell);
        self.topology.node_cells.push(cell);
        Some((number, self.topology.node_cells.len() as u32 - 1))
    }

    fn leaf(&mut self, own: &str, cell: CellNo, node: Option<(NodeNo, u32)>, place: &Place) {
        let index = own.parse::<i32>().ok().filter(|index| *index >= 0);
        let (Some(index), Some((node, node_cell))) = (index, node) else {
            let path = format!("{}.cellAddress", place.path());
            self.wrongs.add(path, quote(own), "the number of the device in its node, 0 or more");
            return;
        };
        if !self.devices.insert((node, self.path.steps[0].name.as_str(), index)) {
            let name = &self.topology.nodes[node.at()].name;
            let found = format!("device {index} of node {name} for a second time");
            self.wrongs.add(format!("{}.cellAddress", place.path()), found, "each device once");
        }
        self.topology.leaves.push(Leaf { cell, node, node_cell, index });
    }

    fn pin(&mut self, pinned: Option<&str>, cell: CellNo, place: &Place) {
        let Some(id) = pinned else { return };
        if self.topology.pins.insert(id.to_string(), cell).is_some() {
            let path = format!("{}.pinnedCellId", place.path());
            self.wrongs.add(path, quote(id), "an id that no other physical cell has");
        }
    }
}

//! The compiled configuration: numbered cells, leaves, nodes, virtual clusters and the cells promised to them.
//!
//! Cells are numbered in the order of the file, each tree from the top down. So a cell's subtree, its leaves and
//! its nodes are ranges of numbers. It never changes after `compile`.

use std::collections::BTreeMap;

use crate::config::ClusterConfig;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub u32);
        impl $name {
            pub(crate) fn at(self) -> usize {
                self.0 as usize
            }
            pub(crate) fn of(position: usize) -> Self {
                Self(u32::try_from(position).unwrap_or(u32::MAX))
            }
        }
    };
}

number!(/** A physical cell. */ CellNo);
number!(/** A physical cell of level 1. */ LeafNo);
number!(/** A cell promised to a virtual cluster: HiveD's preassigned virtual cell. */ SlotNo);
number!(/** A group that holds cells. */ GroupNo);
number!(/** A node of a cluster; may have cells in several chains. */ NodeNo);
number!(/** A chain: all trees with one type at the top. */ ChainNo);
number!(/** A virtual cluster. */ VcNo);
number!(/** A member cluster. */ ClusterNo);

/// Leaf cells have level 1.
pub(crate) type Level = u8;

/// A node: its member cluster (empty if the configuration names none) and its name.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct NodeName {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    pub node: String,
}

impl NodeName {
    #[must_use]
    pub fn new(cluster: &str, node: &str) -> Self {
        Self { cluster: cluster.to_string(), node: node.to_string() }
    }
}

impl std::fmt::Display for NodeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.cluster.is_empty() {
            write!(f, "{}", self.node)
        } else {
            write!(f, "{}/{}", self.cluster, self.node)
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LevelType {
    pub name: String,
    /// Children of a full cell of this type; 0 for leaves.
    pub children: u32,
    /// Leaves of a full cell of this type.
    pub leaves: u32,
    /// Cells of this level, in order.
    pub cells: Vec<CellNo>,
}

#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub name: String,
    /// From level 1.
    pub levels: Vec<LevelType>,
    pub node_level: Level,
    /// Clusters that have trees of this chain, in order of the file.
    pub clusters: Vec<ClusterNo>,
}

impl Chain {
    pub(crate) fn level(&self, level: Level) -> &LevelType {
        &self.levels[usize::from(level) - 1]
    }

    pub(crate) fn top(&self) -> Level {
        Level::try_from(self.levels.len()).unwrap_or(Level::MAX)
    }

    pub(crate) fn leaf_type(&self) -> &str {
        &self.levels[0].name
    }

    pub(crate) fn level_of(&self, cell_type: &str) -> Option<Level> {
        self.levels.iter().position(|level| level.name == cell_type).and_then(|p| Level::try_from(p + 1).ok())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub chain: ChainNo,
    pub level: Level,
    pub cluster: ClusterNo,
    pub parent: Option<CellNo>,
    pub children: Vec<CellNo>,
    /// Cells of the subtree, this one included.
    pub size: u32,
    pub first_leaf: LeafNo,
    pub leaves: u32,
    /// Position of its first node (or the node it is in) in [`Topology::node_cells`], and how many there are.
    pub first_node: u32,
    pub nodes: u32,
    /// It has all children of its type, at every level below. Only such cells can be promised.
    pub whole: bool,
    pub address: String,
    pub pinned: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub cell: CellNo,
    pub node: NodeNo,
    /// Position of its node-level cell in [`Topology::node_cells`].
    pub node_cell: u32,
    /// Number of the device in its node.
    pub index: i32,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: NodeName,
    /// Its node-level cells, one for each chain.
    pub cells: Vec<CellNo>,
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub vc: VcNo,
    pub chain: ChainNo,
    pub level: Level,
    /// The `k` of its address `vc/k`.
    pub index: u32,
    /// The cell to which it is bound forever.
    pub pinned: Option<CellNo>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Vc {
    pub name: String,
    /// In order of their addresses.
    pub slots: Vec<SlotNo>,
    /// Slots that are not pinned, by chain and level.
    pub by_level: BTreeMap<(ChainNo, Level), Vec<SlotNo>>,
    pub pins: BTreeMap<String, SlotNo>,
}

impl Vc {
    /// Levels of a chain at which the VC was promised cells, smallest first.
    pub(crate) fn levels(&self, chain: ChainNo) -> impl Iterator<Item = (Level, &[SlotNo])> {
        self.by_level
            .range((chain, 0)..=(chain, Level::MAX))
            .map(|((_, level), slots)| (*level, slots.as_slice()))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub config: ClusterConfig,
    pub clusters: Vec<String>,
    /// By name.
    pub chains: Vec<Chain>,
    pub cells: Vec<Cell>,
    pub leaves: Vec<Leaf>,
    pub nodes: Vec<Node>,
    /// Node-level cells in order.
    pub node_cells: Vec<CellNo>,
    pub node_numbers: BTreeMap<NodeName, NodeNo>,
    pub slots: Vec<Slot>,
    /// By name.
    pub vcs: Vec<Vc>,
    pub vc_numbers: BTreeMap<String, VcNo>,
    pub pins: BTreeMap<String, CellNo>,
}

impl Topology {
    pub(crate) fn cell(&self, cell: CellNo) -> &Cell {
        &self.cells[cell.at()]
    }

    pub(crate) fn chain(&self, chain: ChainNo) -> &Chain {
        &self.chains[chain.at()]
    }

    pub(crate) fn chain_of(&self, cell: CellNo) -> &Chain {
        self.chain(self.cell(cell).chain)
    }

    pub(crate) fn leaf(&self, leaf: LeafNo) -> &Leaf {
        &self.leaves[leaf.at()]
    }

    pub(crate) fn slot(&self, slot: SlotNo) -> &Slot {
        &self.slots[slot.at()]
    }

    pub(crate) fn vc(&self, vc: VcNo) -> &Vc {
        &self.vcs[vc.at()]
    }

    pub(crate) fn type_of(&self, cell: CellNo) -> &str {
        &self.chain_of(cell).level(self.cell(cell).level).name
    }

    pub(crate) fn leaves_of(&self, cell: CellNo) -> impl DoubleEndedIterator<Item = LeafNo> + use<> {
        let cell = self.cell(cell);
        (cell.first_leaf.0..cell.first_leaf.0 + cell.leaves).map(LeafNo)
    }

    /// Node-level cells at or below a cell, or the one that contains it.
    pub(crate) fn nodes_of(&self, cell: CellNo) -> &[CellNo] {
        let cell = self.cell(cell);
        &self.node_cells[cell.first_node as usize..(cell.first_node + cell.nodes) as usize]
    }

    /// Cells of a level in a cell.
    pub(crate) fn cells_in(&self, cell: CellNo, level: Level) -> &[CellNo] {
        let cells = &self.chain_of(cell).level(level).cells;
        let end = CellNo(cell.0 + self.cell(cell).size);
        let first = cells.partition_point(|other| *other < cell);
        let after = cells.partition_point(|other| *other < end);
        &cells[first..after]
    }

    /// The node a cell at or below node level belongs to, or the first of several.
    pub(crate) fn node_of(&self, cell: CellNo) -> NodeNo {
        self.leaf(self.cell(cell).first_leaf).node
    }

    pub(crate) fn at_or_below_node(&self, cell: CellNo) -> bool {
        self.cell(cell).level <= self.chain_of(cell).node_level
    }

    /// The cell itself, its parent, and so on to the top.
    pub(crate) fn upward(&self, cell: CellNo) -> impl Iterator<Item = CellNo> + '_ {
        std::iter::successors(Some(cell), |cell| self.cell(*cell).parent)
    }

    /// The ancestor of a given level, or the cell itself.
    pub(crate) fn ancestor(&self, cell: CellNo, level: Level) -> Option<CellNo> {
        self.upward(cell).find(|cell| self.cell(*cell).level == level)
    }

    /// Whether `inner` is `outer` or lies in it.
    pub(crate) fn contains(&self, outer: CellNo, inner: CellNo) -> bool {
        (outer.0..outer.0 + self.cell(outer).size).contains(&inner.0)
    }

    /// Chains with leaves of a type, in the order in which they are tried: by name, descending, as in HiveD's
    /// examples.
    pub(crate) fn chains_of_type<'a>(&'a self, leaf_type: &'a str) -> impl Iterator<Item = ChainNo> + 'a {
        (0..self.chains.len()).rev().map(ChainNo::of).filter(move |c| self.chain(*c).leaf_type() == leaf_type)
    }

    /// Leaf types of the cluster, by name.
    pub(crate) fn leaf_types(&self) -> Vec<&str> {
        let mut types: Vec<_> = self.chains.iter().map(Chain::leaf_type).collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    pub(crate) fn slot_address(&self, slot: SlotNo) -> String {
        let slot = self.slot(slot);
        format!("{}/{}", self.vc(slot.vc).name, slot.index)
    }
}

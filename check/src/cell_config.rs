//! A CellConfiguration as the checker reads it: which nodes are cells, and what each virtual cluster was promised.
//!
//! Only configurations whose trees name all their nodes are read; of others nothing is judged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A node, with its cluster.
pub(super) type Node = (String, String);

/// Deepest tree of cell types that is followed.
const MAX_DEPTH: usize = 16;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Config {
    pub trees: Vec<Tree>,
    pub vcs: BTreeMap<String, Promises>,
}

/// One tree of physical cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tree {
    pub chain: String,
    pub leaf_type: String,
    /// Leaf cells of each of its nodes.
    pub node_leaves: usize,
    pub nodes: Vec<Node>,
    /// Pinned cells that are whole nodes, or the whole tree.
    pub pins: BTreeMap<String, BTreeSet<Node>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Promises {
    pub cells: Vec<Promise>,
    pub pins: BTreeSet<String>,
}

/// So many cells of one type in one chain.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Promise {
    pub chain: String,
    pub cell_type: String,
    /// Leaf cells of one of them.
    pub leaves: usize,
    pub number: usize,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Config {
    /// `homes`: the clusters that have a node of that name.
    pub fn read(spec: &Value, homes: &BTreeMap<String, BTreeSet<String>>) -> Option<Self> {
        let types = &spec["physicalCluster"]["cellTypes"];
        let mut config = Self::default();
        for tree in spec["physicalCluster"]["physicalCells"].as_array()? {
            config.trees.push(Tree::read(types, tree, homes)?);
        }
        for (name, vc) in spec["virtualClusters"].as_object()? {
            let mut promises = Promises::default();
            for cell in vc["virtualCells"].as_array().into_iter().flatten() {
                let path: Vec<&str> = text(&cell["cellType"]).split('.').collect();
                let (chain, cell_type) = (path.first()?, path.last()?);
                let leaves = leaves_of(types, cell_type, 0)?;
                let number = usize::try_from(cell["cellNumber"].as_i64()?).ok()?;
                let (chain, cell_type) = ((*chain).to_string(), (*cell_type).to_string());
                promises.cells.push(Promise { chain, cell_type, leaves, number });
            }
            let pins = vc["pinnedCells"].as_array().into_iter().flatten();
            promises.pins.extend(pins.map(|pin| text(&pin["pinnedCellId"]).to_string()));
            config.vcs.insert(name.clone(), promises);
        }
        Some(config)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.trees.iter().flat_map(|tree| &tree.nodes)
    }

    /// The nodes of a pinned cell.
    pub fn pinned(&self, pin: &str) -> Option<&BTreeSet<Node>> {
        self.trees.iter().find_map(|tree| tree.pins.get(pin))
    }

    /// The trees of a chain.
    pub fn chain<'c>(&'c self, chain: &'c str) -> impl Iterator<Item = &'c Tree> {
        self.trees.iter().filter(move |tree| tree.chain == chain)
    }

    /// The cell with so many leaf cells that has this one, by its tree and number in it.
    pub fn cell_of(&self, (cluster, node): (&str, &str), leaf: i64, leaves: usize) -> Option<(usize, usize)> {
        self.trees.iter().enumerate().find_map(|(at, tree)| {
            let position = tree.nodes.iter().position(|known| known.0 == cluster && known.1 == node)?;
            let leaf = position * tree.node_leaves + usize::try_from(leaf).ok()?;
            Some((at, leaf.checked_div(leaves)?))
        })
    }

    /// Leaf cells of a type, where it is one of a chain.
    pub fn tree_of(&self, (cluster, node): (&str, &str)) -> Option<&Tree> {
        self.trees.iter().find(|tree| tree.nodes.iter().any(|known| known.0 == cluster && known.1 == node))
    }
}

impl Tree {
    fn read(types: &Value, tree: &Value, homes: &BTreeMap<String, BTreeSet<String>>) -> Option<Self> {
        let chain = text(&tree["cellType"]).to_string();
        let mut level = chain.as_str();
        for _ in 0..MAX_DEPTH {
            if types[level]["isNodeLevel"] == true {
                break;
            }
            level = types[level]["childCellType"].as_str()?;
        }
        let node_leaves = leaves_of(types, level, 0)?;
        let mut leaf_type = level;
        while let Some(child) = types[leaf_type]["childCellType"].as_str() {
            leaf_type = child;
        }
        let (leaf_type, named) = (leaf_type.to_string(), text(&tree["cluster"]));
        let mut read = Self { chain: chain.clone(), leaf_type, node_leaves, ..Self::default() };
        read.add(types, &chain, tree, &|node| match named {
            "" => homes.get(node).filter(|homes| homes.len() == 1)?.first().cloned(),
            named => Some(named.to_string()),
        })?;
        Some(read)
    }

    fn add(
        &mut self,
        types: &Value,
        level: &str,
        cell: &Value,
        home: &dyn Fn(&str) -> Option<String>,
    ) -> Option<()> {
        let before = self.nodes.len();
        if types[level]["isNodeLevel"] == true {
            let name = text(&cell["cellAddress"]).rsplit('/').next().filter(|name| !name.is_empty())?;
            self.nodes.push((home(name)?, name.to_string()));
        } else {
            let children = cell["cellChildren"].as_array()?;
            for child in children {
                self.add(types, types[level]["childCellType"].as_str()?, child, home)?;
            }
        }
        if let Some(pin) = cell["pinnedCellId"].as_str() {
            self.pins.insert(pin.to_string(), self.nodes[before..].iter().cloned().collect());
        }
        Some(())
    }
}

/// Leaf cells of one cell of a type.
pub(super) fn leaves_of(types: &Value, cell_type: &str, depth: usize) -> Option<usize> {
    let Some(child) = types[cell_type]["childCellType"].as_str() else { return Some(1) };
    let number = usize::try_from(types[cell_type]["childCellNumber"].as_i64()?).ok()?;
    (depth < MAX_DEPTH).then(|| leaves_of(types, child, depth + 1))?.map(|leaves| leaves * number)
}

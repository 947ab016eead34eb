//! The allocator: configuration, state, and the groups that hold cells.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    compile::compile,
    config::{ClusterConfig, ConfigErrors},
    group::Groups,
    state::State,
    topology::{NodeName, Topology},
};

/// The state of a node before it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreported {
    /// As in HiveD: no node is used before it was reported good.
    Bad,
    Good,
}

/// Cells, virtual clusters, and the groups that have cells.
#[derive(Clone, Debug)]
pub struct Cells {
    pub(crate) topology: Arc<Topology>,
    pub(crate) state: State,
    pub(crate) groups: Groups,
    /// The state with everything free and good; made on first use.
    pub(crate) pristine: Option<Box<State>>,
    /// Bad nodes that their cluster does not have.
    pub(crate) absent: BTreeSet<NodeName>,
    pub(crate) generation: u64,
}

impl Cells {
    /// # Errors
    /// Everything that is wrong in the configuration, each with its path in the file.
    pub fn new(config: ClusterConfig, unreported: Unreported) -> Result<Self, ConfigErrors> {
        let topology = Arc::new(compile(config)?);
        let state = State::new(&topology, unreported == Unreported::Good);
        let absent = BTreeSet::new();
        Ok(Self { topology, state, groups: Groups::default(), pristine: None, absent, generation: 0 })
    }

    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.topology.config
    }

    /// Changes whenever a decision could change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Sets whether a node is good (ready and not cordoned). Groups on a bad node stay; no new ones go there. False
    /// if no cell is on the node.
    pub fn set_node_health(&mut self, node: &NodeName, good: bool) -> bool {
        let Some(number) = self.topology.node_numbers.get(node).copied() else { return false };
        if self.state.good(number) != good {
            self.state.set_good(&self.topology, number, good);
            self.generation += 1;
        }
        true
    }

    /// Nodes of the configuration that their cluster does not have: the reason why they are bad.
    /// `false` where nothing changes.
    pub fn set_absent_nodes(&mut self, absent: BTreeSet<NodeName>) -> bool {
        if self.absent == absent {
            return false;
        }
        self.absent = absent;
        self.generation += 1;
        true
    }

    /// Nodes of the configuration.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.topology.nodes.iter().map(|node| &node.name)
    }

    /// The same with the number of leaf cells of each.
    pub fn leaves_by_node(&self) -> impl Iterator<Item = (&NodeName, u64)> {
        self.topology.nodes.iter().map(|node| {
            let leaves = node.cells.iter().map(|cell| u64::from(self.topology.cell(*cell).leaves));
            (&node.name, leaves.sum())
        })
    }

    #[must_use]
    pub fn is_good(&self, node: &NodeName) -> bool {
        self.topology.node_numbers.get(node).is_some_and(|node| self.state.good(*node))
    }

    /// Whether a node is part of a cell.
    #[must_use]
    pub fn has_node(&self, node: &NodeName) -> bool {
        self.topology.node_numbers.contains_key(node)
    }

    /// All nodes that are good now.
    #[must_use]
    pub fn good_nodes(&self) -> BTreeSet<NodeName> {
        self.nodes().filter(|node| self.is_good(node)).cloned().collect()
    }
}

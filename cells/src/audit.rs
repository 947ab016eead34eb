//! Checks the invariants of the state, counted again from leaves and groups alone.

use std::collections::BTreeSet;

use crate::{
    cells::Cells,
    group::{Group, GroupState},
    leaf::LeafState,
    state::{Pool, State},
    topology::{CellNo, ChainNo, GroupNo, LeafNo, NodeNo, SlotNo},
};

impl Cells {
    /// What is broken, one sentence each; empty if nothing is.
    ///
    /// The rules: every promise that is not in use can be bound; no leaf has two users; groups, leaves, promises,
    /// counts and indexes agree with each other.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut broken = Vec::new();
        self.audit_promises(&mut broken);
        self.audit_slots(&mut broken);
        self.audit_leaves(&mut broken);
        for (number, group) in self.groups.iter() {
            self.audit_group(number, group, &mut broken);
        }
        self.audit_counts(&mut broken);
        broken
    }

    fn audit_promises(&self, broken: &mut Vec<String>) {
        for (position, chain) in self.topology.chains.iter().enumerate() {
            let number = ChainNo::of(position);
            for (position, left) in self.state.left(&self.topology, number).into_iter().enumerate() {
                if left < 0 {
                    let name = &chain.levels[position].name;
                    broken.push(format!(
                        "chain {}: {} promised cells of type {name} cannot be bound",
                        chain.name, -left
                    ));
                }
            }
        }
    }

    fn audit_slots(&self, broken: &mut Vec<String>) {
        for position in 0..self.topology.slots.len() {
            let slot = SlotNo::of(position);
            let address = self.topology.slot_address(slot);
            let Some(cell) = self.state.slot_cell(slot) else { continue };
            if self.state.pool(cell) != Pool::Bound(slot) {
                broken.push(format!(
                    "promise {address} and its cell {} disagree",
                    self.topology.cell(cell).address
                ));
            }
            if self.topology.slot(slot).pinned.is_none() && self.state.counts(cell).guaranteed == 0 {
                broken.push(format!("promise {address} is bound and not in use"));
            }
            if self.topology.upward(cell).skip(1).any(|above| self.state.pool(above) != Pool::Split) {
                broken.push(format!("promise {address} lies in a cell that is free or bound itself"));
            }
        }
    }

    fn audit_leaves(&self, broken: &mut Vec<String>) {
        for position in 0..self.topology.leaves.len() {
            let leaf = LeafNo::of(position);
            let state = self.state.leaf(leaf);
            for holder in [state.occupant(), state.reserver()].into_iter().flatten() {
                let known =
                    self.groups.get(holder.group).is_some_and(|group| group.leaves().any(|own| own == leaf));
                if !known {
                    let address = &self.topology.cell(self.topology.leaf(leaf).cell).address;
                    let name = self.groups.name(holder.group);
                    broken.push(format!("cell {address} is {state:?}, but group {name:?} does not have it"));
                }
            }
        }
    }

    fn audit_group(&self, number: GroupNo, group: &Group, broken: &mut Vec<String>) {
        let name = group.request.name();
        let mut seen = BTreeSet::new();
        let mut reserved = 0;
        for pod in &group.pods {
            for leaf in &pod.leaves {
                let address = &self.topology.cell(self.topology.leaf(*leaf).cell).address;
                if !seen.insert(*leaf) {
                    broken.push(format!("group {name} has cell {address} twice"));
                }
                let state = self.state.leaf(*leaf);
                let own = match (group.state, state) {
                    (GroupState::Preempting, LeafState::Reserving { by, .. } | LeafState::Reserved(by)) => by,
                    (GroupState::Allocated | GroupState::BeingPreempted, LeafState::Used(own)) => own,
                    (GroupState::BeingPreempted, LeafState::Reserving { victim, .. }) => {
                        reserved += 1;
                        victim
                    }
                    _ => {
                        broken.push(format!(
                            "group {name} is {:?}, its cell {address} is {state:?}",
                            group.state
                        ));
                        continue;
                    }
                };
                if (own.group, own.priority) != (number, group.priority) {
                    broken.push(format!("group {name} has cell {address}, which says {state:?}"));
                }
                let over = self.state.slot_over(&self.topology, self.topology.leaf(*leaf).cell);
                if group.priority >= 0 && (over.is_none() || over != pod.slot) {
                    broken.push(format!("group {name} is guaranteed cell {address} outside of its promise"));
                }
            }
            if let Some(slot) = pod.slot
                && self.topology.vc(self.topology.slot(slot).vc).name != group.request.vc
            {
                broken.push(format!("group {name} is in a promise of another VC"));
            }
        }
        if group.state == GroupState::BeingPreempted && reserved == 0 {
            broken.push(format!("group {name} is being preempted by nobody"));
        }
    }

    /// Rebuilds the state from promises, leaves and nodes, and compares.
    fn audit_counts(&self, broken: &mut Vec<String>) {
        let topology = &*self.topology;
        let mut again = State::new(topology, true);
        for position in 0..topology.nodes.len() {
            let node = NodeNo::of(position);
            again.set_good(topology, node, self.state.good(node));
        }
        for position in 0..topology.slots.len() {
            let slot = SlotNo::of(position);
            if let Some(cell) = self.state.slot_cell(slot)
                && topology.slot(slot).pinned.is_none()
                && !again.bind(topology, slot, cell)
            {
                broken.push(format!("promise {} cannot be bound again", topology.slot_address(slot)));
            }
        }
        for position in 0..topology.leaves.len() {
            let leaf = LeafNo::of(position);
            again.set_leaves(topology, &[(leaf, self.state.leaf(leaf))]);
        }
        for position in 0..topology.cells.len() {
            let cell = CellNo::of(position);
            if again.counts(cell) != self.state.counts(cell) || again.pool(cell) != self.state.pool(cell) {
                broken.push(format!("cell {} is counted wrongly", topology.cell(cell).address));
            }
        }
        if let Some(index) = self.state.differs_from(&again) {
            broken.push(format!("the index of {index} does not follow the cells"));
        }
    }
}

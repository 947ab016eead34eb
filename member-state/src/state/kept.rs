//! Nodes that are kept for cells: those named by the hub's reservations, within the limits of the member's
//! administrator.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_ground::permits::CellNodes;

use super::MemberState;

/// Nodes for cells, as the hub requests them and as they are kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    permits: CellNodes,
    /// Requested nodes, by reservation.
    asked: BTreeMap<String, BTreeSet<String>>,
    /// Those that are kept.
    nodes: BTreeSet<String>,
}

/// Unusable nodes of a reservation of cell nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnusableNodes {
    /// Not ready, cordoned, or not permitted.
    pub bad: Vec<String>,
    /// Nodes that do not exist.
    pub unknown: Vec<String>,
    /// Bad nodes that the hub may not keep.
    pub not_permitted: Vec<String>,
}

impl MemberState {
    /// Which nodes the hub may keep.
    pub fn permit_cell_nodes(&mut self, permits: CellNodes) {
        self.kept.permits = permits;
        self.keep_cell_nodes();
    }

    pub fn cell_node_permits(&self) -> &CellNodes {
        &self.kept.permits
    }

    /// Sets the nodes that a reservation of the hub requests.
    pub fn set_cell_nodes(&mut self, reservation: &str, nodes: &[String]) {
        if nodes.is_empty() {
            self.kept.asked.remove(reservation);
        } else {
            self.kept.asked.insert(reservation.to_owned(), nodes.iter().cloned().collect());
        }
        self.keep_cell_nodes();
    }

    /// Whether a node takes only pods with places by cells.
    pub fn is_cell_node(&self, name: &str) -> bool {
        self.kept.nodes.contains(name)
    }

    /// Keeps the requested nodes, as far as permitted.
    fn keep_cell_nodes(&mut self) {
        let asked: BTreeSet<String> = self.kept.asked.values().flatten().cloned().collect();
        let nodes = match self.kept.permits.is_open() {
            true => asked,
            false => self.permitted(&asked),
        };
        let before = std::mem::replace(&mut self.kept.nodes, nodes);
        let changed: Vec<String> = before.symmetric_difference(&self.kept.nodes).cloned().collect();
        for name in &changed {
            if let Some(node) = self.nodes().get(name).cloned() {
                self.tell_scheduler(&node);
                self.note_capacity();
            }
        }
        if !changed.is_empty() {
            self.cells_changed.extend(self.kept.asked.keys().cloned());
        }
    }

    /// Nodes that are already kept come first, so that a change of another node moves none of them.
    fn permitted(&self, asked: &BTreeSet<String>) -> BTreeSet<String> {
        let is_selected = |name: &&String| {
            self.nodes().get(name).is_some_and(|node| self.kept.permits.select(&node.labels))
        };
        let (before, fresh): (Vec<&String>, Vec<&String>) =
            asked.iter().filter(is_selected).partition(|name| self.kept.nodes.contains(*name));
        let max = self.kept.permits.max.unwrap_or(usize::MAX);
        before.into_iter().chain(fresh).take(max).cloned().collect()
    }

    /// The unusable nodes of a reservation of cell nodes.
    pub fn unusable_cell_nodes(&self, nodes: &[String]) -> UnusableNodes {
        let mut found = UnusableNodes::default();
        for name in nodes {
            match self.nodes().get(name) {
                None => found.unknown.push(name.clone()),
                Some(_) if !self.is_cell_node(name) => {
                    found.not_permitted.push(name.clone());
                    found.bad.push(name.clone());
                }
                Some(node) if !node.ready || node.unschedulable => found.bad.push(name.clone()),
                Some(_) => {}
            }
        }
        found
    }

    /// A node was created, changed or deleted.
    pub(super) fn note_cell_node(&mut self, name: &str) {
        let asking = self.kept.asked.iter().filter(|(_, nodes)| nodes.contains(name));
        let asking: Vec<String> = asking.map(|(reservation, _)| reservation.clone()).collect();
        if !asking.is_empty() {
            self.cells_changed.extend(asking);
            self.keep_cell_nodes();
        }
    }
}

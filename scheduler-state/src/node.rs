//! Nodes: what they offer, their use, and a log of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_placement::Node;
use fleet_resources::ResourceName;
use fleet_resources::constraints::Taint;

use crate::amounts::{Dimensions, PODS, UNBOUNDED};
use crate::devices::Card;
use crate::ids::{NodeId, PodId};
use crate::numa::Numa;
use crate::pod::Port;
use crate::usage::{Load, Measured};

/// Entries of the change log kept at least.
const MIN_LOG: usize = 1 << 14;

/// One resource of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub allocatable: i64,
    /// By pods that are bound or being bound, terminating ones included.
    pub used: i64,
    /// The part of `used` whose pods are terminating.
    pub releasing: i64,
    /// Reserved for pods that wait for what is being released.
    pub pipelined: i64,
}

impl Cell {
    #[inline]
    pub fn idle(&self) -> i64 {
        self.allocatable - self.used
    }

    /// Free once everything terminating is gone and everything pipelined is placed.
    #[inline]
    pub fn future_idle(&self) -> i64 {
        self.allocatable - self.used + self.releasing - self.pipelined
    }

    /// Free for other pods now, without what is pipelined.
    pub fn free(&self) -> i64 {
        self.idle().min(self.future_idle())
    }
}

#[derive(Clone, Debug)]
pub struct NodeState {
    pub name: Arc<str>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub ready: bool,
    /// Kept for pods that are placed by name: nothing else goes here, whatever it tolerates.
    pub kept: bool,
    /// False: pods are here, and the node itself was not seen yet or is gone.
    pub known: bool,
    /// Counts changes of everything but use.
    pub version: u32,
    /// Pods that are bound, being bound, terminating, or pipelined here.
    pub pods: Vec<PodId>,
    /// Host ports in use.
    pub ports: Vec<Port>,
    /// Cards that are shared in parts (plugin deviceshare).
    pub cards: Vec<Card>,
    /// Its cpus by NUMA node, if an exporter reports them (plugin numa-aware).
    pub numa: Option<Arc<Numa>>,
    /// Its load when it was last measured (plugin usage).
    pub measured: Option<Measured>,
    /// Loads of the last minutes, oldest first (plugin rescheduling with `metricsPeriod`).
    pub recent: Vec<Load>,
    /// The group for which the node is reserved.
    pub claimed_by: Option<u32>,
}

/// All nodes, by number; numbers are not reused.
#[derive(Debug, Default)]
pub struct Nodes {
    list: Vec<NodeState>,
    by_name: BTreeMap<Arc<str>, NodeId>,
    cells: Vec<Cell>,
    stride: usize,
    log: Vec<NodeId>,
    log_start: u64,
    /// Sum over known, ready nodes.
    total: Vec<i64>,
}

impl Nodes {
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[inline]
    pub fn get(&self, node: NodeId) -> &NodeState {
        &self.list[node as usize]
    }

    #[inline]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    #[inline]
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        0..self.list.len() as NodeId
    }

    /// Known nodes.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &NodeState)> {
        self.by_name.values().map(|id| (*id, self.get(*id))).filter(|(_, node)| node.known)
    }

    #[inline]
    pub fn cells(&self, node: NodeId) -> &[Cell] {
        let at = node as usize * self.stride;
        &self.cells[at..at + self.stride]
    }

    #[inline]
    pub fn cell(&self, node: NodeId, place: usize) -> Cell {
        if place >= self.stride { Cell::default() } else { self.cells[node as usize * self.stride + place] }
    }

    #[inline]
    pub fn total(&self) -> &[i64] {
        &self.total
    }

    /// Adds dimensions.
    pub fn widen(&mut self, dimensions: usize) {
        if dimensions <= self.stride {
            return;
        }
        let mut cells = vec![Cell::default(); self.list.len() * dimensions];
        for node in 0..self.list.len() {
            let old = &self.cells[node * self.stride..(node + 1) * self.stride];
            cells[node * dimensions..node * dimensions + self.stride].copy_from_slice(old);
        }
        self.cells = cells;
        self.stride = dimensions;
        self.total.resize(dimensions, 0);
    }

    /// The node's number; pods may name a node that was never seen.
    pub fn intern(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let id = self.list.len() as NodeId;
        let name: Arc<str> = name.into();
        self.by_name.insert(name.clone(), id);
        self.list.push(NodeState {
            name,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            unschedulable: false,
            ready: false,
            kept: false,
            known: false,
            version: 0,
            pods: Vec::new(),
            ports: Vec::new(),
            cards: Vec::new(),
            numa: None,
            measured: None,
            recent: Vec::new(),
            claimed_by: None,
        });
        self.cells.resize(self.list.len() * self.stride, Cell::default());
        id
    }

    /// Sets what the node offers; its use is kept. Returns whether anything changed.
    pub fn put(&mut self, dimensions: &mut Dimensions, node: &Node) -> Option<NodeId> {
        let id = self.intern(&node.name);
        let mut offered = dimensions.vector(&node.allocatable);
        self.widen(dimensions.len());
        offered.resize(self.stride, 0);
        offered[PODS] = if node.max_pods > 0 { node.max_pods } else { UNBOUNDED };
        let at = id as usize * self.stride;
        let state = &self.list[id as usize];
        let same_offer =
            self.cells[at..at + self.stride].iter().zip(&offered).all(|(cell, n)| cell.allocatable == *n);
        let same = state.known
            && same_offer
            && state.ready == node.ready
            && state.unschedulable == node.unschedulable
            && state.taints == node.taints
            && state.labels == node.labels;
        if same {
            return None;
        }
        self.count_total(id, -1);
        for (cell, amount) in self.cells[at..].iter_mut().zip(offered) {
            cell.allocatable = amount;
        }
        let state = &mut self.list[id as usize];
        state.labels.clone_from(&node.labels);
        state.taints.clone_from(&node.taints);
        state.unschedulable = node.unschedulable;
        state.ready = node.ready;
        state.known = true;
        state.version += 1;
        self.count_total(id, 1);
        self.note(id);
        Some(id)
    }

    /// Keeps a node for pods that are placed by name, or no longer.
    pub fn keep(&mut self, name: &str, kept: bool) {
        let id = self.intern(name);
        let state = &mut self.list[id as usize];
        if state.kept != kept {
            state.kept = kept;
            state.version += 1;
            self.note(id);
        }
    }

    /// The node is gone; its pods count until they are gone, too.
    pub fn remove(&mut self, name: &str) -> Option<NodeId> {
        let id = self.find(name).filter(|id| self.get(*id).known)?;
        self.count_total(id, -1);
        let at = id as usize * self.stride;
        self.cells[at..at + self.stride].iter_mut().for_each(|cell| cell.allocatable = 0);
        let state = &mut self.list[id as usize];
        state.known = false;
        state.ready = false;
        state.claimed_by = None;
        state.version += 1;
        self.note(id);
        Some(id)
    }

    fn count_total(&mut self, id: NodeId, sign: i64) {
        let state = &self.list[id as usize];
        if !state.known || !state.ready {
            return;
        }
        let at = id as usize * self.stride;
        for (sum, cell) in self.total.iter_mut().zip(&self.cells[at..at + self.stride]) {
            *sum = sum.saturating_add(sign * cell.allocatable);
        }
    }

    /// Uses or releases capacity for one pod: its request, and one of the node's pods.
    pub fn change(&mut self, id: NodeId, request: &[(u16, i64)], pods: i64, change: impl Fn(&mut Cell, i64)) {
        let at = id as usize * self.stride;
        change(&mut self.cells[at + PODS], pods);
        for (place, amount) in request {
            change(&mut self.cells[at + usize::from(*place)], *amount);
        }
        self.note(id);
    }

    pub fn state_mut(&mut self, id: NodeId) -> &mut NodeState {
        &mut self.list[id as usize]
    }

    /// Sets for which group the node is reserved; `None`: none.
    pub fn claim(&mut self, id: NodeId, group: Option<u32>) {
        if self.list[id as usize].claimed_by != group {
            self.list[id as usize].claimed_by = group;
            self.note(id);
        }
    }

    /// What is free on the node now, by name, in base units; for reports.
    pub fn free(&self, dimensions: &Dimensions, id: NodeId) -> fleet_resources::Resources {
        let free: Vec<i64> = self.cells(id).iter().map(Cell::idle).collect();
        let mut free = dimensions.resources(&free);
        free.set(ResourceName::PODS, 0);
        free
    }

    // ---- the log of changes

    pub fn note(&mut self, id: NodeId) {
        if self.log.last() == Some(&id) {
            return;
        }
        self.log.push(id);
        let most = MIN_LOG.max(self.list.len() * 2);
        if self.log.len() > 2 * most {
            self.log_start += most as u64;
            self.log.drain(..most);
        }
    }

    /// The end of the log. An entry equal to the last one is not repeated, so a reader must read the last entry it
    /// has seen again.
    pub fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// Changes since `cursor`; `None` if that is too long ago.
    pub fn changes_since(&self, cursor: u64) -> Option<&[NodeId]> {
        if cursor < self.log_start {
            return None;
        }
        let from = cursor.saturating_sub(1).max(self.log_start);
        Some(&self.log[(from - self.log_start) as usize..])
    }
}

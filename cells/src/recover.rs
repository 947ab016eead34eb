//! Rebuilds the state from running groups: at a start, and under another configuration.
//!
//! Only the annotations of bound pods are known: their devices, and the promised type to which these belonged. No
//! running group is ever evicted here. If a group's promise cannot be found again, because its VC no longer has it
//! or because another VC's promise would break, the group becomes opportunistic in place. A restart loses
//! reservations and waiting pods.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    cells::{Cells, Unreported},
    config::{ClusterConfig, ConfigErrors},
    decision::{Placement, PodPlacement},
    group::{Group, GroupPod, GroupState, LazyPreemption, PodState},
    leaf::{Holder, LeafEvent, LeafState},
    request::GroupRequest,
    topology::{CellNo, ChainNo, LeafNo, NodeName, SlotNo, Topology, VcNo},
};

/// A running group, as its pods' annotations have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundGroup {
    pub request: GroupRequest,
    pub placement: Placement,
    /// By number: the name of each present pod.
    pub pods: Vec<Option<String>>,
    /// It became opportunistic before the restart.
    pub lazily_preempted: Option<LazyPreemption>,
    pub work_since_ms: i64,
}

/// Why a group lost its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum PromiseLost {
    VcGone,
    PinnedCellGone,
    /// The chain has no such type any more.
    TypeGone,
    /// The VC has no such cells of the chain.
    NotInVc,
    /// The VC has fewer of them now, and other groups use those.
    TooFewCells,
    /// Its cells belong to other promises now.
    CellsPromisedElsewhere,
}

/// What a group lost in the recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovered {
    pub group: String,
    pub vc: String,
    /// It is opportunistic now.
    pub promise_lost: Option<PromiseLost>,
    /// Devices that the configuration does not have: the pods run on, and are counted nowhere.
    pub unknown_cells: Vec<(NodeName, i32)>,
    /// Devices that another group uses.
    pub taken_cells: Vec<(NodeName, i32)>,
}

impl Cells {
    /// Starts from a configuration, the good nodes, and the running groups. Higher priorities get their promises
    /// first, then older work. Returns the groups that lost something.
    ///
    /// # Errors
    /// All errors in the configuration.
    pub fn recover(
        config: ClusterConfig,
        good: &BTreeSet<NodeName>,
        mut running: Vec<BoundGroup>,
        now_ms: i64,
    ) -> Result<(Self, Vec<Recovered>), ConfigErrors> {
        let mut cells = Self::new(config, Unreported::Bad)?;
        for node in good {
            cells.set_node_health(node, true);
        }
        running.sort_by(|a, b| recovery_order(a).cmp(&recovery_order(b)));
        let mut recovered = Vec::new();
        for group in &running {
            let report = cells.recover_group(group, now_ms);
            if report.promise_lost.is_some()
                || !report.unknown_cells.is_empty()
                || !report.taken_cells.is_empty()
            {
                recovered.push(report);
            }
        }
        cells.state.forget_journal();
        recovered.sort_by(|a, b| a.group.cmp(&b.group));
        Ok((cells, recovered))
    }

    /// Takes in a running group that has no promise, on the cells that it has. Returns `false`, and nothing has changed,
    /// where it has a promise or a cell of it is not free: then a recovery of all groups says who has what.
    pub fn adopt(&mut self, bound: &BoundGroup, now_ms: i64) -> bool {
        let promised = bound.request.priority >= 0 && bound.lazily_preempted.is_none();
        if promised || self.groups.named(bound.request.name()).is_some() {
            return false;
        }
        let mut report = Recovered::default();
        for pod in &bound.placement.pods {
            self.find_leaves(&bound.placement, pod, &mut report);
        }
        if !report.taken_cells.is_empty() {
            return false;
        }
        self.recover_group(bound, now_ms);
        true
    }

    /// What [`Cells::recover`] needs of a running group; none for pending groups and for groups that have only
    /// reservations.
    #[must_use]
    pub fn bound_group(&self, name: &str) -> Option<BoundGroup> {
        let (_, group) = self.groups.named(name)?;
        self.bound(group)
    }

    /// All running groups, by name.
    #[must_use]
    pub fn bound_groups(&self) -> Vec<BoundGroup> {
        self.groups.iter().filter_map(|(_, group)| self.bound(group)).collect()
    }

    fn bound(&self, group: &Group) -> Option<BoundGroup> {
        if group.state == GroupState::Preempting {
            return None;
        }
        let name = |pod: &GroupPod| match &pod.state {
            PodState::Live(name) => Some(name.clone()),
            PodState::Expected | PodState::Gone => None,
        };
        Some(BoundGroup {
            request: group.request.clone(),
            placement: self.group_placement(group),
            pods: group.pods.iter().map(name).collect(),
            lazily_preempted: group.lazy.clone(),
            work_since_ms: group.work_since_ms,
        })
    }

    fn recover_group(&mut self, bound: &BoundGroup, now_ms: i64) -> Recovered {
        let mut report = Recovered {
            group: bound.request.name().to_string(),
            vc: bound.request.vc.clone(),
            ..Recovered::default()
        };
        let mut pods: Vec<Vec<LeafNo>> = Vec::new();
        for pod in &bound.placement.pods {
            pods.push(self.find_leaves(&bound.placement, pod, &mut report));
        }
        let promised = bound.request.priority >= 0 && bound.lazily_preempted.is_none();
        let mark = self.state.mark();
        let slots = if promised { self.find_promises(bound, &pods) } else { Ok(vec![None; pods.len()]) };
        let (slots, lost) = match slots {
            Ok(slots) => (slots, None),
            Err(lost) => {
                self.state.roll_back(&self.topology, mark);
                (vec![None; pods.len()], Some(lost))
            }
        };
        self.state.forget_journal();
        report.promise_lost = lost;
        let guaranteed = promised && lost.is_none();
        let first =
            pods.iter().flatten().next().map(|leaf| self.topology.cell(self.topology.leaf(*leaf).cell).chain);
        let named = self.topology.chains.iter().position(|chain| chain.name == bound.placement.cell_chain);
        let chain = first.or(named.map(ChainNo::of)).unwrap_or(ChainNo(0));
        let lazy = match lost {
            Some(_) => Some(LazyPreemption { preemptor: "reconfiguration".to_string(), at_ms: now_ms }),
            None => bound.lazily_preempted.clone(),
        };
        let priority = if guaranteed { i16::try_from(bound.request.priority).unwrap_or(-1) } else { -1 };
        let state = |pod: usize| match bound.pods.get(pod).cloned().flatten() {
            Some(name) => PodState::Live(name),
            None => PodState::Expected,
        };
        let number = self.groups.insert(Group {
            request: bound.request.clone(),
            state: GroupState::Allocated,
            priority,
            chain,
            pods: pods
                .iter()
                .zip(slots)
                .enumerate()
                .map(|(at, (leaves, slot))| GroupPod { leaves: leaves.clone(), slot, state: state(at) })
                .collect(),
            lazy,
            waiting: BTreeSet::new(),
            work_since_ms: bound.work_since_ms,
        });
        for leaves in &pods {
            self.change(leaves, LeafEvent::Allocate(Holder { group: number, priority }));
        }
        report
    }

    /// Leaves of a pod by node and number, in the recorded chain, or in any ("moved").
    fn find_leaves(&self, placement: &Placement, pod: &PodPlacement, report: &mut Recovered) -> Vec<LeafNo> {
        let name = NodeName { cluster: placement.cluster.clone(), node: pod.node.clone() };
        let cells =
            self.topology.node_numbers.get(&name).map(|node| self.topology.nodes[node.at()].cells.as_slice());
        let mut cells: Vec<CellNo> = cells.unwrap_or_default().to_vec();
        cells.sort_by_key(|cell| {
            let chain = self.topology.chain_of(*cell);
            (chain.name != placement.cell_chain, chain.leaf_type() != placement.leaf_cell_type, *cell)
        });
        let mut leaves = Vec::with_capacity(pod.leaf_cells.len());
        for index in &pod.leaf_cells {
            let mut of_node = cells.iter().flat_map(|cell| self.topology.leaves_of(*cell));
            match of_node.find(|leaf| self.topology.leaf(*leaf).index == *index) {
                None => report.unknown_cells.push((name.clone(), *index)),
                Some(leaf) if self.state.leaf(leaf) != LeafState::Free || leaves.contains(&leaf) => {
                    report.taken_cells.push((name.clone(), *index));
                }
                Some(leaf) => leaves.push(leaf),
            }
        }
        leaves.sort_unstable();
        leaves
    }

    /// The promise of each pod, bound to the cell that its leaves are in.
    fn find_promises(
        &mut self,
        bound: &BoundGroup,
        pods: &[Vec<LeafNo>],
    ) -> Result<Vec<Option<SlotNo>>, PromiseLost> {
        let request = &bound.request;
        let vc = self.topology.vc_numbers.get(&request.vc).copied().ok_or(PromiseLost::VcGone)?;
        let mut slots = Vec::with_capacity(pods.len());
        for (leaves, placement) in pods.iter().zip(&bound.placement.pods) {
            if leaves.is_empty() {
                slots.push(None);
                continue;
            }
            let slot = if request.pinned_cell_id.is_empty() {
                self.find_promise(vc, leaves, &placement.preassigned_cell_type)?
            } else {
                let slot = self.topology.vc(vc).pins.get(&request.pinned_cell_id).copied();
                let slot = slot.ok_or(PromiseLost::PinnedCellGone)?;
                let cell = self.topology.slot(slot).pinned.ok_or(PromiseLost::PinnedCellGone)?;
                if !all_in(&self.topology, cell, leaves) {
                    return Err(PromiseLost::PinnedCellGone);
                }
                slot
            };
            slots.push(Some(slot));
        }
        Ok(slots)
    }

    fn find_promise(&mut self, vc: VcNo, leaves: &[LeafNo], cell_type: &str) -> Result<SlotNo, PromiseLost> {
        let topology = self.topology.clone();
        let first = topology.leaf(leaves[0]).cell;
        let chain = topology.cell(first).chain;
        let level = topology.chain(chain).level_of(cell_type).ok_or(PromiseLost::TypeGone)?;
        if !topology.vc(vc).by_level.contains_key(&(chain, level)) {
            return Err(PromiseLost::NotInVc);
        }
        let cell = topology.ancestor(first, level).filter(|cell| all_in(&topology, *cell, leaves));
        let cell = cell.ok_or(PromiseLost::CellsPromisedElsewhere)?;
        if let Some(slot) = self.state.slot_over(&topology, cell) {
            let found = topology.slot(slot);
            let same = found.vc == vc && found.level == level && found.pinned.is_none();
            return if same { Ok(slot) } else { Err(PromiseLost::CellsPromisedElsewhere) };
        }
        let unbound = self.state.vc(vc).unbound.get(&(chain, level)).and_then(|slots| slots.first().copied());
        let slot = unbound.ok_or(PromiseLost::TooFewCells)?;
        let block = self.state.block_of(&topology, cell).ok_or(PromiseLost::CellsPromisedElsewhere)?;
        if !self.state.may_split(&topology, chain, level, topology.cell(block).level) {
            return Err(PromiseLost::CellsPromisedElsewhere);
        }
        self.state.bind(&topology, slot, cell);
        Ok(slot)
    }
}

fn recovery_order(group: &BoundGroup) -> (bool, std::cmp::Reverse<i32>, i64, &str) {
    let request = &group.request;
    (
        group.lazily_preempted.is_some(),
        std::cmp::Reverse(request.priority),
        group.work_since_ms,
        request.name(),
    )
}

fn all_in(topology: &Topology, cell: CellNo, leaves: &[LeafNo]) -> bool {
    leaves.iter().all(|leaf| topology.contains(cell, topology.leaf(*leaf).cell))
}

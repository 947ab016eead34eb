//! Views for inspection: the cell tree with its users, the promises and use of each VC, groups. The tree has the
//! field names of HiveD's inspect API.

mod unbound;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    cells::Cells,
    decision::Placement,
    group::{Group, GroupState, LazyPreemption, PodState},
    leaf::LeafState,
    state::Pool,
    topology::{CellNo, ChainNo, Level, SlotNo},
};

/// A cell of the physical cluster, or of a virtual cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellStatus {
    /// At the top only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub leaf_cell_type: String,
    pub cell_type: String,
    pub is_node_level: bool,
    pub cell_address: String,
    /// Free, Used, Reserving or Reserved.
    pub cell_state: &'static str,
    /// Healthy or Bad.
    pub cell_healthiness: &'static str,
    /// -2 is free, -1 opportunistic.
    pub cell_priority: i16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vc: String,
    /// Address of the other view's cell.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub virtual_cell: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub physical_cell: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pinned_cell_id: String,
    /// Of a leaf: the group that runs there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Of a leaf: the group that has reserved it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reserved_by: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cell_children: Vec<CellStatus>,
}

/// Promised cells of one type in one chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VcCells {
    pub chain: String,
    pub cell_type: String,
    pub guaranteed: u64,
    /// In use by a guaranteed group.
    pub used: u64,
    /// Bound to a cell with a bad node, or more than good cells could keep now together with the larger promises of
    /// the VC ("doomed").
    pub bad: u64,
}

/// Leaves of one type, over all chains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VcLeaves {
    pub guaranteed: u64,
    pub used: u64,
    /// Used ones on bad nodes.
    #[serde(skip)]
    pub used_bad: u64,
    pub bad: u64,
    /// Promised to this VC and used by opportunistic groups of others. An unbound promise counts with what they use
    /// of the cell that it would get.
    pub borrowed_out: u64,
    /// Used by opportunistic groups of this VC.
    pub borrowed_in: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VcStatus {
    pub vc: String,
    pub cells: Vec<VcCells>,
    /// By leaf cell type.
    pub leaves: BTreeMap<String, VcLeaves>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    pub name: String,
    pub vc: String,
    /// The priority it requested.
    pub priority: i32,
    pub state: GroupState,
    pub placement: Placement,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazy_preemption_status: Option<LazyPreemption>,
    /// Names of its present pods.
    pub pods: Vec<String>,
    /// Groups that it waits for, or that wait for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
}

impl Cells {
    /// Names of the virtual clusters.
    pub fn virtual_clusters(&self) -> impl Iterator<Item = &str> {
        self.topology.vcs.iter().map(|vc| vc.name.as_str())
    }

    /// Leaves of all trees by type.
    #[must_use]
    pub fn leaves_by_type(&self) -> BTreeMap<&str, u64> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for chain in &self.topology.chains {
            *counts.entry(chain.leaf_type()).or_default() += chain.level(1).cells.len() as u64;
        }
        counts
    }

    /// All trees, in order of the configuration.
    #[must_use]
    pub fn physical_cells(&self) -> Vec<CellStatus> {
        let tops = (0..self.topology.cells.len()).map(CellNo::of);
        tops.filter(|cell| self.topology.cell(*cell).parent.is_none())
            .map(|cell| self.physical_cell(cell, true))
            .collect()
    }

    fn physical_cell(&self, number: CellNo, top: bool) -> CellStatus {
        let topology = &self.topology;
        let cell = topology.cell(number);
        let mut status = self.bare(number);
        if top {
            status.leaf_cell_type = topology.chain(cell.chain).leaf_type().to_string();
        }
        if let Some(slot) = self.state.slot_over(topology, number) {
            status.vc = topology.vc(topology.slot(slot).vc).name.clone();
            status.virtual_cell = self.virtual_address(slot, number);
        }
        let children = &cell.children;
        status.cell_children = children.iter().map(|child| self.physical_cell(*child, false)).collect();
        status
    }

    /// A cell without parents and children.
    fn bare(&self, number: CellNo) -> CellStatus {
        let topology = &self.topology;
        let cell = topology.cell(number);
        let states = || topology.leaves_of(number).map(|leaf| self.state.leaf(leaf));
        let priority =
            states().map(|state| state.holder().map_or(-2, |holder| holder.priority)).max().unwrap_or(-2);
        let leaf = (cell.level == 1).then(|| self.state.leaf(cell.first_leaf));
        let name = |holder: Option<crate::leaf::Holder>| {
            holder.map(|holder| self.groups.name(holder.group)).unwrap_or_default()
        };
        CellStatus {
            cell_type: topology.type_of(number).to_string(),
            is_node_level: cell.level == topology.chain(cell.chain).node_level,
            cell_address: cell.address.clone(),
            cell_state: joint_state(states()),
            cell_healthiness: healthiness(self.state.bad_nodes(topology, number) > 0),
            cell_priority: priority,
            pinned_cell_id: cell.pinned.clone().unwrap_or_default(),
            group: name(leaf.and_then(LeafState::occupant)),
            reserved_by: name(leaf.and_then(LeafState::reserver)),
            ..CellStatus::default()
        }
    }

    /// Address of the virtual cell that is bound to a physical one: the promise's address, and the path below it.
    fn virtual_address(&self, slot: SlotNo, number: CellNo) -> String {
        let topology = &self.topology;
        let Some(root) = self.state.slot_cell(slot) else { return String::new() };
        let path: Vec<CellNo> = topology.upward(number).take_while(|cell| *cell != root).collect();
        let (mut address, mut parent, mut index) = (topology.slot_address(slot), root, 0);
        for cell in path.into_iter().rev() {
            let children = &topology.cell(parent).children;
            let own = children.iter().position(|child| *child == cell).unwrap_or_default();
            // Below the promise an index counts on through all children of its level.
            index = index * children.len() + own;
            address = format!("{address}/{index}");
            parent = cell;
        }
        address
    }

    /// The promises of a VC as cells, and an extra top cell for each leaf that an opportunistic group of the VC
    /// uses.
    #[must_use]
    pub fn virtual_cells(&self, vc: &str) -> Option<Vec<CellStatus>> {
        let number = self.topology.vc_numbers.get(vc).copied()?;
        let topology = &self.topology;
        let mut doomed = self.doomed_slots(number);
        let mut cells = Vec::new();
        for slot in &topology.vc(number).slots {
            let promise = topology.slot(*slot);
            let mut status = match self.state.slot_cell(*slot) {
                Some(cell) => self.virtual_cell(*slot, cell),
                None => self.unbound_cell(*slot, doomed.remove(slot)),
            };
            status.leaf_cell_type = topology.chain(promise.chain).leaf_type().to_string();
            cells.push(status);
        }
        for (_, group) in self.groups.iter() {
            if group.request.vc == vc && group.priority < 0 {
                cells.extend(group.leaves().map(|leaf| {
                    let cell = topology.leaf(leaf).cell;
                    let bare = self.bare(cell);
                    let leaf_cell_type = bare.cell_type.clone();
                    let cell_address = format!("{}-opp", bare.cell_address);
                    let physical_cell = bare.cell_address.clone();
                    CellStatus {
                        leaf_cell_type,
                        cell_address,
                        physical_cell,
                        cell_priority: -1,
                        cell_state: "Used",
                        ..bare
                    }
                }));
            }
        }
        Some(cells)
    }

    /// The VC's view of a bound cell, without opportunistic groups.
    fn virtual_cell(&self, slot: SlotNo, number: CellNo) -> CellStatus {
        let topology = &self.topology;
        let own = |state: LeafState| match state {
            LeafState::Used(holder) if !holder.guaranteed() => LeafState::Free,
            other => other,
        };
        let states = || topology.leaves_of(number).map(|leaf| own(self.state.leaf(leaf)));
        let priority =
            states().map(|state| state.holder().map_or(-2, |holder| holder.priority)).max().unwrap_or(-2);
        let bare = self.bare(number);
        let children = &topology.cell(number).children;
        let opportunistic = topology.cell(number).level == 1 && priority == -2;
        CellStatus {
            cell_address: self.virtual_address(slot, number),
            physical_cell: bare.cell_address.clone(),
            cell_state: joint_state(states()),
            cell_priority: priority,
            group: if opportunistic { String::new() } else { bare.group.clone() },
            cell_children: children.iter().map(|child| self.virtual_cell(slot, *child)).collect(),
            ..bare
        }
    }

    /// An unbound promise: free, with its whole subtree. If it is doomed, its health is that of the bad cell that
    /// stands for it.
    fn unbound_cell(&self, slot: SlotNo, doomed: Option<Option<CellNo>>) -> CellStatus {
        let promise = self.topology.slot(slot);
        let mut status = self.unbound_below(
            promise.chain,
            promise.level,
            self.topology.slot_address(slot),
            0,
            doomed.flatten(),
        );
        status.cell_healthiness = healthiness(doomed.is_some());
        status
    }

    fn unbound_below(
        &self,
        chain: ChainNo,
        level: Level,
        address: String,
        index: usize,
        stands_for: Option<CellNo>,
    ) -> CellStatus {
        let topology = &self.topology;
        let levels = topology.chain(chain);
        let number = levels.level(level).children as usize;
        let below = stands_for.map(|cell| topology.cell(cell).children.as_slice()).unwrap_or_default();
        let child = |own: usize| {
            let index = index * number + own;
            let address = format!("{address}/{index}");
            self.unbound_below(chain, level - 1, address, index, below.get(own).copied())
        };
        CellStatus {
            cell_type: levels.level(level).name.clone(),
            is_node_level: level == levels.node_level,
            cell_state: "Free",
            cell_healthiness: healthiness(
                stands_for.is_some_and(|cell| self.state.bad_nodes(topology, cell) > 0),
            ),
            cell_priority: -2,
            physical_cell: stands_for.map(|cell| topology.cell(cell).address.clone()).unwrap_or_default(),
            cell_children: (0..number).map(child).collect(),
            cell_address: address.clone(),
            ..CellStatus::default()
        }
    }

    #[must_use]
    pub fn vc_status(&self, vc: &str) -> Option<VcStatus> {
        let number = self.topology.vc_numbers.get(vc).copied()?;
        let mut rows: BTreeMap<(ChainNo, Level), VcCells> = BTreeMap::new();
        let mut leaves: BTreeMap<String, VcLeaves> = BTreeMap::new();
        for slot in &self.topology.vc(number).slots {
            self.count_promise(*slot, &mut rows, &mut leaves);
        }
        for ((chain, level), doomed) in self.doomed(number) {
            if let Some(row) = rows.get_mut(&(chain, level)) {
                row.bad += doomed.number;
            }
            let leaf_type = self.topology.chain(chain).leaf_type().to_string();
            leaves.entry(leaf_type).or_default().bad += self.doomed_leaves(chain, level, &doomed);
        }
        for (_, group) in self.groups.iter() {
            if group.request.vc == vc && group.priority < 0 && group.state != GroupState::Preempting {
                let leaf_type = self.topology.chain(group.chain).leaf_type().to_string();
                leaves.entry(leaf_type).or_default().borrowed_in += group.leaves().count() as u64;
            }
        }
        for position in 0..self.topology.chains.len() {
            let chain = ChainNo::of(position);
            let share = self.lent_unbound(chain).remove(&number).unwrap_or(0);
            if share > 0 {
                let leaf_type = self.topology.chain(chain).leaf_type().to_string();
                leaves.entry(leaf_type).or_default().borrowed_out += share;
            }
        }
        Some(VcStatus { vc: vc.to_string(), cells: rows.into_values().collect(), leaves })
    }

    fn count_promise(
        &self,
        slot: SlotNo,
        rows: &mut BTreeMap<(ChainNo, Level), VcCells>,
        leaves: &mut BTreeMap<String, VcLeaves>,
    ) {
        let topology = &self.topology;
        let promise = topology.slot(slot);
        let chain = topology.chain(promise.chain);
        let level = chain.level(promise.level);
        let row = rows.entry((promise.chain, promise.level)).or_insert_with(|| VcCells {
            chain: chain.name.clone(),
            cell_type: level.name.clone(),
            guaranteed: 0,
            used: 0,
            bad: 0,
        });
        let entry = leaves.entry(chain.leaf_type().to_string()).or_default();
        row.guaranteed += 1;
        entry.guaranteed += u64::from(level.leaves);
        let Some(cell) = self.state.slot_cell(slot) else { return };
        let counts = self.state.counts(cell);
        row.used += u64::from(counts.guaranteed > 0);
        row.bad += u64::from(self.state.bad_nodes(topology, cell) > 0);
        entry.used += u64::from(counts.guaranteed);
        for leaf in topology.leaves_of(cell) {
            let is_bad = !self.state.good(topology.leaf(leaf).node);
            entry.bad += u64::from(is_bad);
            let own = self.state.leaf(leaf).holder().is_some_and(|holder| holder.guaranteed());
            entry.used_bad += u64::from(is_bad && own);
            if let LeafState::Used(holder) = self.state.leaf(leaf)
                && !holder.guaranteed()
                && self
                    .groups
                    .get(holder.group)
                    .is_some_and(|group| group.request.vc != topology.vc(promise.vc).name)
            {
                entry.borrowed_out += 1;
            }
        }
    }

    #[must_use]
    pub fn group(&self, name: &str) -> Option<GroupStatus> {
        self.groups.named(name).map(|(number, group)| self.group_status(number, group))
    }

    /// Groups that have or have reserved cells, by name.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupStatus> {
        self.groups.iter().map(|(number, group)| self.group_status(number, group)).collect()
    }

    fn group_status(&self, number: crate::topology::GroupNo, group: &Group) -> GroupStatus {
        let live = |pod: &crate::group::GroupPod| match &pod.state {
            PodState::Live(name) => Some(name.clone()),
            PodState::Expected | PodState::Gone => None,
        };
        GroupStatus {
            name: group.request.name().to_string(),
            vc: group.request.vc.clone(),
            priority: group.request.priority,
            state: group.state,
            placement: self.group_placement(group),
            lazy_preemption_status: group.lazy.clone(),
            pods: group.pods.iter().filter_map(live).collect(),
            victims: self.victims_of(number).into_iter().map(|victim| self.groups.name(victim)).collect(),
        }
    }

    /// Bound promises and their cells, by address.
    pub fn bindings(&self) -> impl Iterator<Item = (String, String)> + '_ {
        (0..self.topology.cells.len()).map(CellNo::of).filter_map(|cell| match self.state.pool(cell) {
            Pool::Bound(slot) => {
                Some((self.topology.slot_address(slot), self.topology.cell(cell).address.clone()))
            }
            _ => None,
        })
    }
}

fn healthiness(bad: bool) -> &'static str {
    if bad { "Bad" } else { "Healthy" }
}

/// Used if any is used; another state only if all have it.
fn joint_state(states: impl Iterator<Item = LeafState>) -> &'static str {
    let mut joint: Option<&'static str> = None;
    for state in states {
        let own = match state {
            LeafState::Free => "Free",
            LeafState::Used(_) => "Used",
            LeafState::Reserving { .. } => "Reserving",
            LeafState::Reserved(_) => "Reserved",
        };
        match joint {
            None => joint = Some(own),
            Some(before) if before == own => {}
            Some(_) => return "Used",
        }
    }
    joint.unwrap_or("Free")
}

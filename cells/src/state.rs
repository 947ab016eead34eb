//! The mutable state: which group uses which leaf, which promise is bound to which cell, which nodes are good; with
//! counts and indexes that follow each change, and a journal to undo a search.
//!
//! A promise that is not in use is *unbound*: any cell of its type will do, and the cell is chosen on first use
//! (dynamic binding). A bound promise has one physical cell with its whole subtree, so inside it the virtual
//! cluster's view and the physical view are the same. Which cells are bound, free or split is in `pool`.

mod pool;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    leaf::LeafState,
    topology::{CellNo, ChainNo, ClusterNo, LeafNo, Level, NodeNo, SlotNo, Topology, VcNo},
};

/// Leaves in use at or below a cell, and bad nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub guaranteed: u32,
    pub opportunistic: u32,
    /// From node level up.
    pub bad_nodes: u32,
}

/// The state of a cell in the buddy allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Part of a larger free or bound cell.
    #[default]
    Inside,
    /// A largest free cell.
    Free,
    /// Some cell below is bound, or some child is missing.
    Split,
    Bound(SlotNo),
}

/// Free cells of a chain and level: bad nodes, opportunistic leaves, position.
pub(crate) type BlockKey = (ClusterNo, u32, u32, CellNo);
/// Nodes in bound promises of a VC: level of the promise, free leaves, opportunistic leaves, position in the VC. Ties
/// go by the VC's own order, so that a VC decides as it would in a private cluster, whatever cells it got.
pub(crate) type ViewKey = (ClusterNo, Level, u32, u32, SlotNo, CellNo);
/// Nodes for opportunistic groups: first those with most opportunistic leaves, then those with fewest guaranteed
/// leaves.
pub(crate) type OppKey = (ClusterNo, Reverse<u32>, u32, CellNo);

#[derive(Clone, Debug)]
enum Undo {
    Leaves(Vec<(LeafNo, LeafState)>),
    Bound(SlotNo),
    Unbound(SlotNo, CellNo),
}

/// A position of the journal to go back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VcState {
    /// Promises that are not in use.
    pub unbound: BTreeMap<(ChainNo, Level), BTreeSet<SlotNo>>,
    /// Good nodes with free leaves in promises that are in use.
    pub views: BTreeMap<ChainNo, BTreeSet<ViewKey>>,
    /// Leaves of guaranteed groups by priority.
    pub priorities: BTreeMap<i16, u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    leaves: Vec<LeafState>,
    counts: Vec<Counts>,
    pool: Vec<Pool>,
    slots: Vec<Option<CellNo>>,
    good: Vec<bool>,
    vcs: Vec<VcState>,
    /// By chain and level.
    blocks: Vec<Vec<BTreeSet<BlockKey>>>,
    /// Unbound promises by chain and level, over all VCs.
    demand: Vec<Vec<u32>>,
    /// By chain and free leaves.
    opp: Vec<Vec<BTreeSet<OppKey>>>,
    block_keys: Vec<Option<BlockKey>>,
    view_keys: Vec<Option<(VcNo, ViewKey)>>,
    opp_keys: Vec<Option<(u32, OppKey)>>,
    journal: Vec<Undo>,
    recording: bool,
}

impl State {
    /// An empty state; all nodes are `good`.
    pub(crate) fn new(topology: &Topology, good: bool) -> Self {
        let cells = topology.cells.len();
        let per_level = |chain: &crate::topology::Chain| vec![BTreeSet::new(); chain.levels.len()];
        let mut state = Self {
            leaves: vec![LeafState::Free; topology.leaves.len()],
            counts: vec![Counts::default(); cells],
            pool: vec![Pool::Inside; cells],
            slots: vec![None; topology.slots.len()],
            good: vec![good; topology.nodes.len()],
            vcs: vec![VcState::default(); topology.vcs.len()],
            blocks: topology.chains.iter().map(per_level).collect(),
            demand: topology.chains.iter().map(|chain| vec![0; chain.levels.len()]).collect(),
            opp: Vec::new(),
            block_keys: vec![None; cells],
            view_keys: vec![None; cells],
            opp_keys: vec![None; cells],
            journal: Vec::new(),
            recording: false,
        };
        for chain in &topology.chains {
            let nodes = &chain.level(chain.node_level).cells;
            let most = nodes.iter().map(|cell| topology.cell(*cell).leaves).max().unwrap_or(0);
            state.opp.push(vec![BTreeSet::new(); most as usize + 1]);
        }
        for cell in &topology.node_cells {
            if !good {
                for cell in topology.upward(*cell) {
                    state.counts[cell.at()].bad_nodes += 1;
                }
            }
        }
        state.fill(topology);
        for cell in &topology.node_cells {
            state.rekey_opp(topology, *cell);
        }
        state
    }

    /// Puts all complete cells into the pool, and pinned ones under their promises.
    fn fill(&mut self, topology: &Topology) {
        for (position, slot) in topology.slots.iter().enumerate() {
            if slot.pinned.is_none() {
                self.demand[slot.chain.at()][usize::from(slot.level) - 1] += 1;
                let unbound = self.vcs[slot.vc.at()].unbound.entry((slot.chain, slot.level)).or_default();
                unbound.insert(SlotNo::of(position));
            }
        }
        let mut open: Vec<CellNo> =
            topology.chains.iter().flat_map(|chain| chain.level(chain.top()).cells.clone()).collect();
        while let Some(cell) = open.pop() {
            if topology.cell(cell).whole {
                self.pool[cell.at()] = Pool::Free;
                self.rekey_block(topology, cell);
            } else {
                self.pool[cell.at()] = Pool::Split;
                open.extend(&topology.cell(cell).children);
            }
        }
        for (position, slot) in topology.slots.iter().enumerate() {
            if let Some(cell) = slot.pinned {
                self.bind(topology, SlotNo::of(position), cell);
            }
        }
    }

    pub(crate) fn leaf(&self, leaf: LeafNo) -> LeafState {
        self.leaves[leaf.at()]
    }

    pub(crate) fn counts(&self, cell: CellNo) -> Counts {
        self.counts[cell.at()]
    }

    pub(crate) fn pool(&self, cell: CellNo) -> Pool {
        self.pool[cell.at()]
    }

    pub(crate) fn slot_cell(&self, slot: SlotNo) -> Option<CellNo> {
        self.slots[slot.at()]
    }

    pub(crate) fn good(&self, node: NodeNo) -> bool {
        self.good[node.at()]
    }

    pub(crate) fn vc(&self, vc: VcNo) -> &VcState {
        &self.vcs[vc.at()]
    }

    pub(crate) fn opp_index(&self, chain: ChainNo) -> &[BTreeSet<OppKey>] {
        &self.opp[chain.at()]
    }

    pub(crate) fn blocks(&self, chain: ChainNo, level: Level) -> &BTreeSet<BlockKey> {
        &self.blocks[chain.at()][usize::from(level) - 1]
    }

    /// Leaves without a guaranteed group.
    pub(crate) fn virtually_free(&self, topology: &Topology, cell: CellNo) -> u32 {
        topology.cell(cell).leaves - self.counts[cell.at()].guaranteed
    }

    /// Leaves without a group.
    pub(crate) fn free(&self, topology: &Topology, cell: CellNo) -> u32 {
        self.virtually_free(topology, cell) - self.counts[cell.at()].opportunistic
    }

    /// Bad nodes of a cell; of a cell within a node: that node.
    pub(crate) fn bad_nodes(&self, topology: &Topology, cell: CellNo) -> u32 {
        if topology.at_or_below_node(cell) {
            u32::from(!self.good(topology.node_of(cell)))
        } else {
            self.counts[cell.at()].bad_nodes
        }
    }

    /// The promise to which a leaf belongs, if that promise is in use (or pinned).
    pub(crate) fn slot_over(&self, topology: &Topology, cell: CellNo) -> Option<SlotNo> {
        topology.upward(cell).find_map(|cell| match self.pool(cell) {
            Pool::Bound(slot) => Some(slot),
            _ => None,
        })
    }

    pub(crate) fn mark(&mut self) -> Mark {
        self.recording = true;
        Mark(self.journal.len())
    }

    /// Undoes everything since the mark.
    pub(crate) fn roll_back(&mut self, topology: &Topology, mark: Mark) {
        self.recording = false;
        while self.journal.len() > mark.0 {
            match self.journal.pop() {
                Some(Undo::Leaves(old)) => self.set_leaves(topology, &old),
                Some(Undo::Bound(slot)) => self.unbind(topology, slot),
                Some(Undo::Unbound(slot, cell)) => {
                    self.bind(topology, slot, cell);
                }
                None => break,
            }
        }
        self.recording = true;
    }

    /// Ends a search whose changes were all undone, or keeps its changes.
    pub(crate) fn forget_journal(&mut self) {
        self.journal.clear();
        self.recording = false;
    }

    /// Sets the state of leaves; fastest in the order of nodes.
    pub(crate) fn set_leaves(&mut self, topology: &Topology, changes: &[(LeafNo, LeafState)]) {
        if self.recording {
            let old = changes.iter().map(|(leaf, _)| (*leaf, self.leaf(*leaf))).collect();
            self.journal.push(Undo::Leaves(old));
        }
        let mut touched: Vec<(CellNo, Option<CellNo>)> = Vec::new();
        for (leaf, new) in changes {
            let old = std::mem::replace(&mut self.leaves[leaf.at()], *new);
            let (was, is) = (share(old), share(*new));
            let (from, to) = (guaranteed_priority(old), guaranteed_priority(*new));
            if was == is && from == to {
                continue;
            }
            let mut anchor = None;
            for cell in topology.upward(topology.leaf(*leaf).cell) {
                let counts = &mut self.counts[cell.at()];
                counts.guaranteed = counts.guaranteed - was.0 + is.0;
                counts.opportunistic = counts.opportunistic - was.1 + is.1;
                if anchor.is_none() && matches!(self.pool[cell.at()], Pool::Bound(_) | Pool::Free) {
                    anchor = Some(cell);
                }
            }
            if let Some(Pool::Bound(slot)) = anchor.map(|anchor| self.pool(anchor)) {
                self.count_priority(topology.slot(slot).vc, from, to);
            }
            let node = topology.node_cells[topology.leaf(*leaf).node_cell as usize];
            if touched.last() != Some(&(node, anchor)) {
                touched.push((node, anchor));
            }
        }
        for (node, anchor) in touched {
            self.rekey_opp(topology, node);
            match anchor {
                Some(anchor) if self.pool(anchor) == Pool::Free => self.rekey_block(topology, anchor),
                Some(anchor) if topology.contains(anchor, node) => self.rekey_view(topology, node),
                Some(anchor) => self.rekey_view(topology, anchor),
                None => {}
            }
        }
    }

    /// Guaranteed groups are on leaves of bound promises only, so each of their leaves is counted here.
    fn count_priority(&mut self, vc: VcNo, from: Option<i16>, to: Option<i16>) {
        let counts = &mut self.vcs[vc.at()].priorities;
        if let Some(from) = from
            && let Some(count) = counts.get_mut(&from)
        {
            *count -= 1;
            if *count == 0 {
                counts.remove(&from);
            }
        }
        if let Some(to) = to {
            *counts.entry(to).or_default() += 1;
        }
    }

    /// Whether a guaranteed group of lower priority uses some promise of the VC.
    pub(crate) fn has_lower(&self, vc: VcNo, priority: i16) -> bool {
        self.vc(vc).priorities.range(..priority).next().is_some()
    }

    /// Marks a node good or bad.
    pub(crate) fn set_good(&mut self, topology: &Topology, node: NodeNo, good: bool) {
        if std::mem::replace(&mut self.good[node.at()], good) == good {
            return;
        }
        for node_cell in &topology.nodes[node.at()].cells {
            for cell in topology.upward(*node_cell) {
                let bad = &mut self.counts[cell.at()].bad_nodes;
                *bad = if good { *bad - 1 } else { *bad + 1 };
                if self.pool(cell) == Pool::Free {
                    self.rekey_block(topology, cell);
                }
            }
            self.rekey_opp(topology, *node_cell);
            self.rekey_view(topology, *node_cell);
            for below in node_cell.0 + 1..node_cell.0 + topology.cell(*node_cell).size {
                let below = CellNo(below);
                match self.pool(below) {
                    Pool::Free => self.rekey_block(topology, below),
                    Pool::Bound(_) => self.rekey_view(topology, below),
                    Pool::Inside | Pool::Split => {}
                }
            }
        }
    }

    /// The first index that differs.
    pub(crate) fn differs_from(&self, other: &State) -> Option<&'static str> {
        let views = |state: &State| -> Vec<(usize, ChainNo, BTreeSet<ViewKey>)> {
            let all = state.vcs.iter().enumerate();
            let views =
                all.flat_map(|(vc, of)| of.views.iter().map(move |(chain, set)| (vc, *chain, set.clone())));
            views.filter(|(_, _, set)| !set.is_empty()).collect()
        };
        let unbound = |state: &State| -> Vec<(usize, (ChainNo, Level), BTreeSet<SlotNo>)> {
            let all = state.vcs.iter().enumerate();
            let slots =
                all.flat_map(|(vc, of)| of.unbound.iter().map(move |(at, set)| (vc, *at, set.clone())));
            slots.filter(|(_, _, set)| !set.is_empty()).collect()
        };
        if self.blocks != other.blocks {
            Some("free cells")
        } else if self.demand != other.demand || unbound(self) != unbound(other) {
            Some("unbound promises")
        } else if self.opp != other.opp {
            Some("nodes for opportunistic groups")
        } else if views(self) != views(other) {
            Some("nodes in promises")
        } else if (0..self.vcs.len()).any(|vc| self.vcs[vc].priorities != other.vcs[vc].priorities) {
            Some("priorities in promises")
        } else {
            None
        }
    }

    fn rekey_opp(&mut self, topology: &Topology, node: CellNo) {
        let cell = topology.cell(node);
        let free = self.free(topology, node);
        let counts = self.counts(node);
        let key = (self.good(topology.node_of(node)) && free > 0)
            .then_some((free, (cell.cluster, Reverse(counts.opportunistic), counts.guaranteed, node)));
        let old = std::mem::replace(&mut self.opp_keys[node.at()], key);
        if old == key {
            return;
        }
        if let Some((free, old)) = old {
            self.opp[cell.chain.at()][free as usize].remove(&old);
        }
        if let Some((free, key)) = key {
            self.opp[cell.chain.at()][free as usize].insert(key);
        }
    }

    fn rekey_block(&mut self, topology: &Topology, number: CellNo) {
        let cell = topology.cell(number);
        let key = (self.pool(number) == Pool::Free).then(|| {
            let opportunistic = self.counts(number).opportunistic;
            (cell.cluster, self.bad_nodes(topology, number), opportunistic, number)
        });
        let old = std::mem::replace(&mut self.block_keys[number.at()], key);
        if old == key {
            return;
        }
        let blocks = &mut self.blocks[cell.chain.at()][usize::from(cell.level) - 1];
        if let Some(old) = old {
            blocks.remove(&old);
        }
        if let Some(key) = key {
            blocks.insert(key);
        }
    }

    /// A view is a node-level cell within a bound promise, or a bound promise within a node.
    fn rekey_view(&mut self, topology: &Topology, view: CellNo) {
        let cell = topology.cell(view);
        let slot = if cell.level == topology.chain(cell.chain).node_level {
            self.slot_over(topology, view)
        } else {
            match self.pool(view) {
                Pool::Bound(slot) => Some(slot),
                _ => None,
            }
        };
        let key = slot.filter(|slot| topology.slot(*slot).pinned.is_none()).and_then(|slot| {
            let free = self.virtually_free(topology, view);
            let level = topology.slot(slot).level;
            let opportunistic = self.counts(view).opportunistic;
            (free > 0 && self.good(topology.node_of(view)))
                .then(|| (topology.slot(slot).vc, (cell.cluster, level, free, opportunistic, slot, view)))
        });
        let old = std::mem::replace(&mut self.view_keys[view.at()], key);
        if old == key {
            return;
        }
        if let Some((vc, old)) = old
            && let Some(views) = self.vcs[vc.at()].views.get_mut(&cell.chain)
        {
            views.remove(&old);
        }
        if let Some((vc, key)) = key {
            self.vcs[vc.at()].views.entry(cell.chain).or_default().insert(key);
        }
    }
}

/// What a leaf adds to the counts: guaranteed, opportunistic.
fn share(leaf: LeafState) -> (u32, u32) {
    match leaf.holder() {
        None => (0, 0),
        Some(holder) if holder.guaranteed() => (1, 0),
        Some(_) => (0, 1),
    }
}

fn guaranteed_priority(leaf: LeafState) -> Option<i16> {
    leaf.holder().filter(|holder| holder.guaranteed()).map(|holder| holder.priority)
}

//! Buddy allocation: promises are bound to free cells; larger cells are split, and buddies merge again.
//!
//! Its safety is one sum per level, [`State::left`]: free cells of the level, plus the cells that can be split off
//! larger free cells beyond the promises that need those, less the unbound promises of the level. While it is not
//! negative, every unbound promise can be bound, whatever the others do. Splitting a larger cell takes one from
//! each level above the wanted one. So it is allowed if each of these levels has one left, even if a smaller free
//! cell exists but is bad or not suggested (HiveD's safe relaxed buddy allocation).

use super::{Pool, State, Undo};
use crate::topology::{CellNo, ChainNo, ClusterNo, Level, SlotNo, Topology};

impl State {
    /// By level (index 0 is level 1): cells that are free and needed by no promise.
    pub(crate) fn left(&self, topology: &Topology, chain: ChainNo) -> Vec<i64> {
        let levels = &topology.chain(chain).levels;
        let mut left = vec![0_i64; levels.len()];
        for position in (0..levels.len()).rev() {
            let above = match levels.get(position + 1) {
                Some(upper) => left[position + 1] * i64::from(upper.children),
                None => 0,
            };
            let free = self.blocks[chain.at()][position].len() as i64;
            left[position] = above + free - i64::from(self.demand[chain.at()][position]);
        }
        left
    }

    /// By level: cells that can still be provided, and how many of them have a bad node.
    pub(crate) fn obtainable(&self, topology: &Topology, chain: ChainNo) -> Vec<(u64, u64)> {
        let levels = &topology.chain(chain).levels;
        let mut sums = vec![(0_u64, 0_u64); levels.len()];
        for position in (0..levels.len()).rev() {
            let children = levels.get(position + 1).map_or(0, |upper| u64::from(upper.children));
            let above = sums.get(position + 1).map_or(0, |(all, _)| all * children);
            sums[position].0 = above + self.blocks[chain.at()][position].len() as u64;
        }
        for (sum, bad) in sums.iter_mut().zip(self.bad_obtainable(topology, chain, 0)) {
            sum.1 = bad;
        }
        sums
    }

    /// By level, for those above a level: free cells and parts of free cells that have a bad node.
    fn bad_obtainable(&self, topology: &Topology, chain: ChainNo, above: Level) -> Vec<u64> {
        let levels = &topology.chain(chain).levels;
        let mut bad = vec![0; levels.len()];
        let clusters = &topology.chain(chain).clusters;
        let blocks = (above + 1..=topology.chain(chain).top())
            .flat_map(|level| clusters.iter().flat_map(move |cluster| self.damaged(chain, level, *cluster)));
        let mut open: Vec<CellNo> = blocks.collect();
        while let Some(cell) = open.pop() {
            let level = topology.cell(cell).level;
            if level > above && self.bad_nodes(topology, cell) > 0 {
                bad[usize::from(level) - 1] += 1;
                open.extend(&topology.cell(cell).children);
            }
        }
        bad
    }

    /// Free cells of a level and cluster that have a bad node, those with fewest first.
    pub(crate) fn damaged(
        &self,
        chain: ChainNo,
        level: Level,
        cluster: ClusterNo,
    ) -> impl Iterator<Item = CellNo> + '_ {
        let (first, after) = ((cluster, 1, 0, CellNo(0)), (ClusterNo(cluster.0 + 1), 0, 0, CellNo(0)));
        self.blocks(chain, level).range(first..after).map(|key| key.3)
    }

    /// By level, right for those above a level: as [`State::left`], of cells without a bad node. Where it is negative,
    /// some promise cannot get a good cell.
    pub(crate) fn good_left(&self, topology: &Topology, chain: ChainNo, above: Level) -> Vec<i64> {
        let bad = self.bad_obtainable(topology, chain, above);
        self.left(topology, chain).into_iter().zip(bad).map(|(left, bad)| left - bad as i64).collect()
    }

    /// Whether a promise of `level` may be split off a free cell of `block_level` without breaking another promise.
    pub(crate) fn may_split(
        &self,
        topology: &Topology,
        chain: ChainNo,
        level: Level,
        block_level: Level,
    ) -> bool {
        if crate::faults::split_breaks_promise() {
            return true;
        }
        let left = self.left(topology, chain);
        (level + 1..=block_level).all(|level| left[usize::from(level) - 1] >= 1)
    }

    /// The free cell that a cell is or belongs to.
    pub(crate) fn block_of(&self, topology: &Topology, cell: CellNo) -> Option<CellNo> {
        for cell in topology.upward(cell) {
            match self.pool(cell) {
                Pool::Free => return Some(cell),
                Pool::Inside => {}
                Pool::Split | Pool::Bound(_) => return None,
            }
        }
        None
    }

    /// Binds a promise to a cell that is free or part of a free one. Otherwise returns false and changes nothing.
    pub(crate) fn bind(&mut self, topology: &Topology, slot: SlotNo, cell: CellNo) -> bool {
        let Some(block) = self.block_of(topology, cell) else { return false };
        self.record(Undo::Bound(slot));
        self.pool[block.at()] = Pool::Inside;
        self.rekey_block(topology, block);
        let path: Vec<CellNo> = topology.upward(cell).take_while(|on_path| *on_path != block).collect();
        let mut upper = block;
        for on_path in path.into_iter().rev() {
            self.pool[upper.at()] = Pool::Split;
            for child in &topology.cell(upper).children {
                if *child != on_path {
                    self.pool[child.at()] = Pool::Free;
                    self.rekey_block(topology, *child);
                }
            }
            upper = on_path;
        }
        self.pool[cell.at()] = Pool::Bound(slot);
        self.slots[slot.at()] = Some(cell);
        let promise = topology.slot(slot);
        if promise.pinned.is_none() {
            self.demand[promise.chain.at()][usize::from(promise.level) - 1] -= 1;
            if let Some(unbound) = self.vcs[promise.vc.at()].unbound.get_mut(&(promise.chain, promise.level))
            {
                unbound.remove(&slot);
            }
        }
        self.rekey_views(topology, cell);
        true
    }

    /// Releases the cell of a promise; buddies merge.
    pub(crate) fn unbind(&mut self, topology: &Topology, slot: SlotNo) {
        let Some(cell) = self.slots[slot.at()].take() else { return };
        self.record(Undo::Unbound(slot, cell));
        self.pool[cell.at()] = Pool::Free;
        let promise = topology.slot(slot);
        self.demand[promise.chain.at()][usize::from(promise.level) - 1] += 1;
        let unbound = self.vcs[promise.vc.at()].unbound.entry((promise.chain, promise.level)).or_default();
        unbound.insert(slot);
        self.rekey_views(topology, cell);
        let mut merged = cell;
        while let Some(parent) = topology.cell(merged).parent {
            let children = &topology.cell(parent).children;
            let all_free = children.iter().all(|child| self.pool(*child) == Pool::Free);
            if !topology.cell(parent).whole || !all_free {
                break;
            }
            for child in children {
                self.pool[child.at()] = Pool::Inside;
                self.rekey_block(topology, *child);
            }
            self.pool[parent.at()] = Pool::Free;
            merged = parent;
        }
        self.rekey_block(topology, merged);
    }

    /// Unbinds the promise above a cell if no guaranteed group uses it any more.
    pub(crate) fn unbind_if_idle(&mut self, topology: &Topology, slot: SlotNo) {
        if topology.slot(slot).pinned.is_some() {
            return;
        }
        if let Some(cell) = self.slot_cell(slot)
            && self.counts(cell).guaranteed == 0
        {
            self.unbind(topology, slot);
        }
    }

    fn rekey_views(&mut self, topology: &Topology, cell: CellNo) {
        if topology.at_or_below_node(cell) {
            self.rekey_view(topology, cell);
            return;
        }
        for node in topology.nodes_of(cell) {
            self.rekey_view(topology, *node);
        }
    }

    fn record(&mut self, undo: Undo) {
        if self.recording {
            self.journal.push(undo);
        }
    }
}

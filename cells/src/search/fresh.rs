//! The free cell to which an unbound promise is bound on first use.

use std::{collections::BTreeSet, ops::Bound};

use super::Search;
use crate::topology::{CellNo, ClusterNo, Level, SlotNo};

/// The order of preference: usable nodes, no promise of another that only a bad cell could keep afterwards, no
/// eviction (if they are spared), the smallest free cell to split (buddy allocation), the least work lost by evictions,
/// the fewest opportunistic leaves, the order of the file.
type Rank = (u32, usize, bool, Level, i64, u32, CellNo);

/// Cells whose evictions are compared if each has some.
const COMPARED: usize = 16;

impl Search<'_> {
    /// The first usable unbound promise of a level.
    pub(super) fn unbound(&self, level: Level) -> Option<SlotNo> {
        let unbound = self.state.vc(self.asker.vc).unbound.get(&(self.chain, level))?;
        match &self.only {
            None => unbound.first().copied(),
            Some(only) => unbound.iter().find(|slot| only.contains(slot)).copied(),
        }
    }

    /// The cell for a promise of this level: one with a usable node.
    pub(super) fn fresh(&self, level: Level) -> Option<CellNo> {
        let mut best: Option<Rank> = None;
        let good_left = self.good_left(level);
        for block_level in level..=self.topology.chain(self.chain).top() {
            if !self.state.may_split(self.topology, self.chain, level, block_level) {
                break;
            }
            self.compare_blocks(level, block_level, &good_left, &mut best);
            if block_level > level && !best.as_ref().is_some_and(is_harmless) {
                self.compare_damaged(level, block_level, &good_left, &mut best);
            }
            if best.as_ref().is_some_and(is_harmless) {
                break;
            }
        }
        best.map(|best| best.6)
    }

    /// By level: good cells that no promise needs. None if health does not matter.
    fn good_left(&self, level: Level) -> Option<Vec<i64>> {
        let heeds = self.filter.heed_health && !crate::faults::bad_node_shown();
        heeds.then(|| self.state.good_left(self.topology, self.chain, level))
    }

    fn compare_blocks(
        &self,
        level: Level,
        block_level: Level,
        good_left: &Option<Vec<i64>>,
        best: &mut Option<Rank>,
    ) {
        let first = (self.cluster, 0, 0, CellNo(0));
        let after = (ClusterNo(self.cluster.0 + 1), 0, 0, CellNo(0));
        let blocks = self.state.blocks(self.chain, block_level);
        let mut compared = 0;
        for key in blocks.range((Bound::Included(first), Bound::Excluded(after))) {
            let rank = self.rank(self.descend(key.3, level), block_level, good_left);
            let can_be_used = rank.0 < self.topology.cell(rank.6).nodes;
            if can_be_used && best.is_none_or(|best| rank < best) {
                *best = Some(rank);
            }
            // Blocks are ordered by bad nodes and opportunistic leaves. If no nodes are named, the first usable one is
            // the best of its level, but for what it dooms; with evictions, some are compared.
            compared += usize::from(can_be_used);
            let is_first_best =
                compared > 0 && !self.filter.names_nodes() && (!rank.2 || compared == COMPARED);
            if is_first_best || best.as_ref().is_some_and(is_harmless) {
                break;
            }
        }
    }

    /// A bad node hides best in a cell that is split, so good cells within damaged ones are compared too.
    fn compare_damaged(
        &self,
        level: Level,
        block_level: Level,
        good_left: &Option<Vec<i64>>,
        best: &mut Option<Rank>,
    ) {
        if good_left.is_none() {
            return;
        }
        let damaged = self.state.damaged(self.chain, block_level, self.cluster);
        let hidden = damaged.filter_map(|block| self.hidden(block, level));
        for (compared, (_, _, cell)) in hidden.enumerate() {
            let rank = self.rank(cell, block_level, good_left);
            if best.is_none_or(|best| rank < best) {
                *best = Some(rank);
            }
            let enough = compared >= COMPARED && best.is_some_and(|best| best.1 == 0);
            if enough || best.as_ref().is_some_and(is_harmless) {
                return;
            }
        }
    }

    fn rank(&self, cell: CellNo, block_level: Level, good_left: &Option<Vec<i64>>) -> Rank {
        let opportunistic = self.state.counts(cell).opportunistic;
        let unusable = self.filter.unusable(self.topology, self.state, cell);
        let evicts = self.borrowed(cell) > 0;
        let lost = if evicts { self.work_on(cell) } else { 0 };
        let doomed = good_left.as_ref().map_or(0, |left| self.doomed(cell, block_level, left));
        (unusable, doomed, evicts, block_level, lost, opportunistic, cell)
    }

    /// How many larger good cells would be split that are the last ones for some promise.
    fn doomed(&self, cell: CellNo, block_level: Level, good_left: &[i64]) -> usize {
        let level = |cell: &CellNo| self.topology.cell(*cell).level;
        let split = self.topology.upward(cell).skip(1).take_while(|cell| level(cell) <= block_level);
        split
            .filter(|cell| good_left[usize::from(level(cell)) - 1] <= 0)
            .filter(|cell| self.state.bad_nodes(self.topology, *cell) == 0)
            .count()
    }

    /// The usable cell of a level in a damaged one for which the smallest good cell is split: that cell's level, the
    /// opportunistic leaves, the cell.
    fn hidden(&self, damaged: CellNo, level: Level) -> Option<(Level, u32, CellNo)> {
        let children = self.topology.cell(damaged).children.iter();
        let found = children.filter_map(|child| {
            let own = self.topology.cell(*child).level;
            if own > level && self.state.bad_nodes(self.topology, *child) > 0 {
                return self.hidden(*child, level);
            }
            let cell = self.descend(*child, level);
            let usable = self.filter.unusable(self.topology, self.state, cell) == 0;
            usable.then(|| (own, self.state.counts(cell).opportunistic, cell))
        });
        found.min()
    }

    /// Work of the opportunistic groups on a cell, counting each as a whole.
    fn work_on(&self, cell: CellNo) -> i64 {
        let leaves = self.topology.leaves_of(cell);
        let groups: BTreeSet<_> =
            leaves.filter_map(|leaf| self.state.leaf(leaf).occupant()).map(|holder| holder.group).collect();
        groups.into_iter().map(|group| self.lost_work(group)).sum()
    }

    /// From a free cell down to one of the wanted level.
    fn descend(&self, block: CellNo, level: Level) -> CellNo {
        let mut cell = block;
        while self.topology.cell(cell).level > level {
            let children = &self.topology.cell(cell).children;
            let best = children.iter().min_by_key(|child| {
                let unusable = self.filter.unusable(self.topology, self.state, **child);
                (unusable, self.state.counts(**child).opportunistic, **child)
            });
            match best {
                Some(child) => cell = *child,
                None => break,
            }
        }
        cell
    }
}

/// Usable as a whole, without an eviction that should be spared, and no promise of another is doomed.
fn is_harmless(rank: &Rank) -> bool {
    rank.0 == 0 && rank.1 == 0 && !rank.2
}

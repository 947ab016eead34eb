//! The free cell to which an unbound promise is bound on first use.

use std::{collections::BTreeSet, ops::Bound};

use super::Search;
use crate::topology::{CellNo, ClusterNo, Level, SlotNo};

/// The order of preference: usable nodes, no eviction, the smallest free cell to split (buddy allocation), the
/// least work lost by evictions, the fewest opportunistic leaves, the order of the file.
type Rank = (u32, bool, Level, i64, u32, CellNo);

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
        for block_level in level..=self.topology.chain(self.chain).top() {
            if !self.state.may_split(self.topology, self.chain, level, block_level) {
                break;
            }
            let first = (self.cluster, 0, 0, CellNo(0));
            let after = (ClusterNo(self.cluster.0 + 1), 0, 0, CellNo(0));
            let blocks = self.state.blocks(self.chain, block_level);
            let mut compared = 0;
            for key in blocks.range((Bound::Included(first), Bound::Excluded(after))) {
                let cell = self.descend(key.3, level);
                let opportunistic = self.state.counts(cell).opportunistic;
                let unusable = self.filter.unusable(self.topology, self.state, cell);
                let lost = if opportunistic > 0 { self.work_on(cell) } else { 0 };
                let rank = (unusable, opportunistic > 0, block_level, lost, opportunistic, cell);
                let can_be_used = unusable < self.topology.cell(cell).nodes;
                if can_be_used && best.is_none_or(|best| rank < best) {
                    best = Some(rank);
                }
                // Blocks are ordered by bad nodes and opportunistic leaves. Without suggestions the first usable
                // one is the best of its level; with evictions, some are compared.
                compared += usize::from(can_be_used);
                if compared > 0
                    && !self.filter.has_suggestions()
                    && (opportunistic == 0 || compared == COMPARED)
                {
                    break;
                }
            }
            if best.is_some_and(|best| best.0 == 0 && !best.1) {
                break;
            }
        }
        best.map(|best| best.5)
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

//! Promises that are not in use: which of them no good cell can keep, and what opportunistic groups use of the cells
//! that they would get. Both are computed for each request, so nothing has to be undone when nodes come back.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    cells::Cells,
    topology::{CellNo, ChainNo, Level, SlotNo, VcNo},
};

/// Promises of one type that good cells cannot keep.
pub(super) struct Doomed {
    pub number: u64,
    /// Bad cells that stand for them, the least damaged first. There may be fewer.
    pub stand_ins: Vec<CellNo>,
}

impl Cells {
    /// The unbound promises of a VC that good cells cannot keep. The largest are kept first, and what they need is
    /// not there for smaller ones.
    pub(super) fn doomed(&self, vc: VcNo) -> BTreeMap<(ChainNo, Level), Doomed> {
        let mut doomed = BTreeMap::new();
        let mut kept: Vec<(ChainNo, u64)> = Vec::new();
        let mut taken: Vec<CellNo> = Vec::new();
        for ((chain, level), slots) in self.state.vc(vc).unbound.iter().rev() {
            let (all, bad) = self.state.obtainable(&self.topology, *chain)[usize::from(*level) - 1];
            let leaves = u64::from(self.topology.chain(*chain).level(*level).leaves);
            let larger =
                kept.iter().filter(|(of, _)| of == chain).map(|(_, kept)| kept / leaves).sum::<u64>();
            let inside = taken.iter().map(|cell| self.good_cells(*chain, *cell, *level)).sum::<u64>();
            let own = slots.len() as u64;
            let number = own.saturating_sub((all - bad).saturating_sub(larger + inside));
            kept.push((*chain, (own - number) * leaves));
            if number > 0 {
                let stand_ins = self.stand_ins(*chain, *level, number, &taken);
                taken.extend(&stand_ins);
                doomed.insert((*chain, *level), Doomed { number, stand_ins });
            }
        }
        doomed
    }

    /// Cells of a level without a bad node in a cell.
    fn good_cells(&self, chain: ChainNo, cell: CellNo, level: Level) -> u64 {
        if self.topology.cell(cell).chain != chain {
            return 0;
        }
        let cells = self.topology.cells_in(cell, level).iter();
        cells.filter(|cell| self.state.bad_nodes(&self.topology, **cell) == 0).count() as u64
    }

    fn stand_ins(&self, chain: ChainNo, level: Level, most: u64, taken: &[CellNo]) -> Vec<CellNo> {
        let cells = self.topology.chain(chain).level(level).cells.iter().copied();
        let mut bad: Vec<(u32, CellNo)> = cells
            .map(|cell| (self.state.bad_nodes(&self.topology, cell), cell))
            .filter(|(bad, cell)| *bad > 0 && self.state.block_of(&self.topology, *cell).is_some())
            .filter(|(_, cell)| !taken.iter().any(|taken| self.topology.contains(*taken, *cell)))
            .collect();
        bad.sort_unstable();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        bad.into_iter().map(|(_, cell)| cell).take(most).collect()
    }

    /// The doomed promises, the last ones of each type, with the cells that stand for them.
    pub(super) fn doomed_slots(&self, vc: VcNo) -> BTreeMap<SlotNo, Option<CellNo>> {
        let mut slots = BTreeMap::new();
        for (of, doomed) in self.doomed(vc) {
            let unbound = self.state.vc(vc).unbound.get(&of).into_iter().flat_map(BTreeSet::iter).rev();
            let number = usize::try_from(doomed.number).unwrap_or(usize::MAX);
            let stand_ins = doomed.stand_ins.into_iter().map(Some).chain(std::iter::repeat(None));
            slots.extend(unbound.take(number).copied().zip(stand_ins));
        }
        slots
    }

    /// Leaves on bad nodes in the cells that stand for doomed promises; all leaves where no cell does.
    pub(super) fn doomed_leaves(&self, chain: ChainNo, level: Level, doomed: &Doomed) -> u64 {
        let topology = &self.topology;
        let of_cells = doomed.stand_ins.iter().flat_map(|cell| topology.leaves_of(*cell));
        let bad = of_cells.filter(|leaf| !self.state.good(topology.leaf(*leaf).node)).count() as u64;
        let without = doomed.number - doomed.stand_ins.len() as u64;
        bad + without * u64::from(topology.chain(chain).level(level).leaves)
    }

    /// Leaves that opportunistic groups use of the cells that unbound promises would get if all came into use now:
    /// the largest first, each a cell with the fewest such leaves. Promises of one type share alike.
    pub(super) fn lent_unbound(&self, chain: ChainNo) -> BTreeMap<VcNo, u64> {
        let topology = &self.topology;
        let mut lent = BTreeMap::new();
        let opportunistic = |cell: &CellNo| self.state.counts(*cell).opportunistic;
        let tops = topology.chain(chain).level(topology.chain(chain).top());
        if tops.cells.iter().all(|top| opportunistic(top) == 0) {
            return lent;
        }
        // Free cells of a level, and those with opportunistic leaves.
        let (mut free, mut used): (u64, Vec<CellNo>) = (0, Vec::new());
        for level in (1..=topology.chain(chain).top()).rev() {
            if level < topology.chain(chain).top() {
                free *= u64::from(topology.chain(chain).level(level + 1).children);
            }
            let split = used.iter().flat_map(|cell| topology.cell(*cell).children.iter().copied());
            let blocks = self.state.blocks(chain, level).iter().map(|key| key.3);
            let (lends, idle): (Vec<_>, Vec<_>) =
                split.chain(blocks).partition(|cell| opportunistic(cell) > 0);
            free += idle.len() as u64;
            used = lends;
            used.sort_by_key(|cell| (opportunistic(cell), *cell));
            let promised = self.unbound_at(chain, level);
            let number: u64 = promised.values().sum();
            let lending = usize::try_from(number.saturating_sub(free)).unwrap_or(usize::MAX).min(used.len());
            free = free.saturating_sub(number);
            let given: Vec<CellNo> = used.drain(..lending).collect();
            self.share_lent(&given, &promised, &mut lent);
        }
        lent
    }

    /// Unbound promises of a type by VC.
    fn unbound_at(&self, chain: ChainNo, level: Level) -> BTreeMap<VcNo, u64> {
        let vcs = (0..self.topology.vcs.len()).map(VcNo::of);
        let unbound =
            |vc: VcNo| self.state.vc(vc).unbound.get(&(chain, level)).map_or(0, BTreeSet::len) as u64;
        vcs.map(|vc| (vc, unbound(vc))).filter(|(_, number)| *number > 0).collect()
    }

    /// Divides the opportunistic leaves of some cells among the VCs by their promises. What groups of a VC use itself
    /// it does not lend.
    fn share_lent(&self, cells: &[CellNo], promised: &BTreeMap<VcNo, u64>, into: &mut BTreeMap<VcNo, u64>) {
        let number: u64 = promised.values().sum();
        if cells.is_empty() || number == 0 {
            return;
        }
        let mut users: BTreeMap<String, u64> = BTreeMap::new();
        for leaf in cells.iter().flat_map(|cell| self.topology.leaves_of(*cell)) {
            let holder = self.state.leaf(leaf).holder().filter(|holder| !holder.guaranteed());
            if let Some(group) = holder.and_then(|holder| self.groups.get(holder.group)) {
                *users.entry(group.request.vc.clone()).or_default() += 1;
            }
        }
        let lent: u64 = users.values().sum();
        let mut shares: Vec<(VcNo, u64, u64)> =
            promised.iter().map(|(vc, own)| (*vc, own * lent / number, own * lent % number)).collect();
        let rest = lent - shares.iter().map(|share| share.1).sum::<u64>();
        shares.sort_by_key(|(vc, _, remainder)| (Reverse(*remainder), *vc));
        for (position, (vc, share, _)) in shares.into_iter().enumerate() {
            let share = share + u64::from((position as u64) < rest);
            let own = users.get(&self.topology.vc(vc).name).copied().unwrap_or(0);
            *into.entry(vc).or_default() += share.min(lent - own);
        }
    }
}

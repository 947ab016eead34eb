//! `withinOneCell`: the whole group in one cell of a type, or in a smaller promise.

use super::{Order, Pass, Region, Search};
use crate::{
    request::GroupNeed,
    topology::{CellNo, GroupNo, Level, SlotNo},
};

/// Cells whose victims are compared when a group preempts.
const COMPARED: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    cell: CellNo,
    /// The promise that it is part of; none for opportunistic groups.
    slot: Option<SlotNo>,
    /// The promise is bound to that cell first.
    bind: Option<CellNo>,
}

/// Cells that can be used as a whole, smaller promises, smaller cells, fuller cells, fewer evictions, promises in use,
/// the VC's order of promises, the order of the file.
type Rank = (bool, Level, Level, u64, u32, bool, Option<SlotNo>, CellNo);

impl Search<'_> {
    pub(super) fn place_within(&mut self, region: Region, level: Level, need: &GroupNeed) -> bool {
        let candidates = self.candidates(region, level, need.leaves);
        if self.pass == Pass::Preempt {
            return self.place_cheapest(candidates, need);
        }
        candidates.into_iter().any(|candidate| self.try_in(candidate, need).is_some())
    }

    /// Tries a cell; a failure changes nothing.
    fn try_in(&mut self, candidate: Candidate, need: &GroupNeed) -> Option<usize> {
        let mark = self.mark();
        if let (Some(slot), Some(cell)) = (candidate.slot, candidate.bind) {
            self.state.bind(self.topology, slot, cell);
        }
        if self.place_in(Region::Within(candidate.cell), need) {
            return Some(mark.1);
        }
        self.roll_back(mark);
        None
    }

    fn place_cheapest(&mut self, candidates: Vec<Candidate>, need: &GroupNeed) -> bool {
        let mut best: Option<(i64, Candidate)> = None;
        let mut compared = 0;
        for candidate in candidates {
            let mark = self.mark();
            let Some(from) = self.try_in(candidate, need) else { continue };
            let displaced: Vec<GroupNo> = self.displaced(from).into_iter().collect();
            self.roll_back(mark);
            let aside = candidate.slot.is_some_and(|slot| self.move_aside(slot, &displaced));
            let cost = if aside { 0 } else { self.work_of(&displaced) };
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, candidate));
            }
            compared += 1;
            if cost == 0 || compared == COMPARED {
                break;
            }
        }
        best.is_some_and(|(_, candidate)| self.try_in(candidate, need).is_some())
    }

    /// Work that these groups would lose, if it counts.
    fn work_of(&self, displaced: &[GroupNo]) -> i64 {
        let counts = |group: &&GroupNo| {
            self.spares() || self.groups.get(**group).is_some_and(|group| group.priority >= 0)
        };
        displaced.iter().filter(counts).map(|group| self.lost_work(*group)).sum()
    }

    fn candidates(&self, region: Region, level: Level, leaves: u64) -> Vec<Candidate> {
        let mut ranked: Vec<(Rank, Candidate)> = Vec::new();
        match region {
            Region::Within(cell) => {
                let slot = if self.guaranteed() { self.state.slot_over(self.topology, cell) } else { None };
                self.add_cells(cell, slot, level, leaves, &mut ranked);
            }
            Region::Whole if self.guaranteed() => self.add_promised(level, leaves, &mut ranked),
            Region::Whole => {
                for cell in &self.topology.chain(self.chain).level(level).cells {
                    if self.topology.cell(*cell).cluster == self.cluster {
                        self.add_cells(*cell, None, level, leaves, &mut ranked);
                    }
                }
            }
        }
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// Cells of the level in a cell, or the cell itself if it is smaller.
    fn add_cells(
        &self,
        cell: CellNo,
        slot: Option<SlotNo>,
        level: Level,
        leaves: u64,
        into: &mut Vec<(Rank, Candidate)>,
    ) {
        if self.topology.cell(cell).level <= level {
            self.add_candidate(Candidate { cell, slot, bind: None }, leaves, into);
            return;
        }
        for inner in self.topology.cells_in(cell, level) {
            self.add_candidate(Candidate { cell: *inner, slot, bind: None }, leaves, into);
        }
    }

    fn add_promised(&self, level: Level, leaves: u64, into: &mut Vec<(Rank, Candidate)>) {
        for (promised, slots) in self.topology.vc(self.asker.vc).levels(self.chain) {
            let size = self.topology.chain(self.chain).level(promised).leaves;
            if u64::from(size) < leaves {
                continue;
            }
            let usable = |slot: &&SlotNo| self.only.as_ref().is_none_or(|only| only.contains(slot));
            for slot in slots.iter().filter(usable) {
                if let Some(cell) = self.state.slot_cell(*slot)
                    && self.topology.cell(cell).cluster == self.cluster
                {
                    self.add_cells(cell, Some(*slot), level, leaves, into);
                }
            }
            if let Some(slot) = self.unbound(promised)
                && let Some(cell) = self.fresh(promised)
            {
                let inner =
                    if promised <= level { vec![cell] } else { self.topology.cells_in(cell, level).to_vec() };
                for inner in inner {
                    self.add_candidate(
                        Candidate { cell: inner, slot: Some(slot), bind: Some(cell) },
                        leaves,
                        into,
                    );
                }
            }
        }
    }

    fn add_candidate(&self, candidate: Candidate, leaves: u64, into: &mut Vec<(Rank, Candidate)>) {
        let cell = candidate.cell;
        let room = match self.pass {
            Pass::Free => self.room(cell),
            Pass::Preempt => {
                self.topology.leaves_of(cell).filter(|leaf| self.preemptible(*leaf).is_some()).count() as u32
            }
        };
        if u64::from(room) < leaves {
            return;
        }
        let counts = self.state.counts(cell);
        let unusable = self.filter.unusable(self.topology, self.state, cell) > 0;
        let level = self.topology.cell(cell).level;
        let (fuller, fewer) = if self.guaranteed() {
            (self.room(cell), self.borrowed(cell))
        } else {
            (u32::MAX - counts.opportunistic, counts.guaranteed)
        };
        let fresh = candidate.bind.is_some();
        let promised = candidate.slot.map_or(0, |slot| self.topology.slot(slot).level);
        // Promises that are not in use come after those that are, the largest first.
        let promised = match (self.manner.order, fresh) {
            (Order::Compact, true) => Level::MAX - promised,
            _ => promised,
        };
        into.push((
            (unusable, promised, level, u64::from(fuller), fewer, fresh, candidate.slot, cell),
            candidate,
        ));
    }
}

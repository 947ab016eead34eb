//! Victims that prove unnecessary are kept.

use std::collections::{BTreeMap, BTreeSet};

use super::{Choice, Manner, NEWCOMER, Pass, Pick, Search};
use crate::{
    group::GroupState,
    leaf::{Holder, LeafEvent, LeafState},
    request::{GroupNeed, Need},
    topology::{CellNo, ChainNo, GroupNo, LeafNo, SlotNo},
};

/// Most searches without one of the victims.
const REPRIEVES: usize = 48;
/// Steps and views after which no further search begins: one through a large virtual cluster may take as long as many
/// through a small one.
const VISITS: u32 = 10_000;

/// The result of a search.
pub(crate) struct SearchResult {
    pub chain: ChainNo,
    pub picks: Vec<Pick>,
    pub binds: Vec<(SlotNo, CellNo)>,
    pub lazy: Vec<GroupNo>,
}

impl SearchResult {
    pub(crate) fn new(search: &Search<'_>, lazy: Vec<GroupNo>) -> Self {
        Self { chain: search.chain, picks: search.picks.clone(), binds: search.binds().collect(), lazy }
    }

    /// Groups that have or reserve what was picked.
    fn displaced(&self, kind: impl Fn(Holder) -> bool) -> BTreeSet<GroupNo> {
        let was = self.picks.iter().flat_map(|pick| &pick.was);
        let holders = was.flat_map(|was| was.holders()).filter(|holder| holder.group != NEWCOMER);
        holders.filter(|holder| kind(*holder)).map(|holder| holder.group).collect()
    }

    /// Of those, the ones with a guarantee.
    pub(crate) fn guaranteed(&self) -> BTreeSet<GroupNo> {
        self.displaced(Holder::guaranteed)
    }
}

/// Each pod takes the cheapest victims for itself, which are not the fewest for all. So the search is repeated without
/// each of the guaranteed ones, the most valuable first, until all of the rest have to go. Of the others, only they may
/// be preempted from then on.
pub(crate) fn reprieve(search: &mut Search<'_>, need: &GroupNeed, mut found: SearchResult) -> SearchResult {
    let value = |search: &Search<'_>, group: GroupNo| {
        let priority = search.groups.get(group).map(|group| group.priority);
        (priority, search.lost_work(group), group)
    };
    let (mut left, until) = (REPRIEVES, search.visits.get().saturating_add(VISITS));
    loop {
        let before = found.guaranteed();
        let mut victims: Vec<GroupNo> = before.iter().copied().collect();
        victims.sort_by_key(|group| std::cmp::Reverse(value(search, *group)));
        for victim in victims {
            left = if search.visits.get() < until { left } else { 0 };
            if left > 0 && found.guaranteed().contains(&victim) {
                left -= 1;
                found = search.without(victim, need, &found).unwrap_or(found);
            }
        }
        if left == 0 || found.guaranteed() == before {
            break;
        }
    }
    search.victims = Some(found.guaranteed());
    found
}

/// What a search found where others had left before it.
struct Vacant {
    picks: Vec<(u32, Vec<LeafNo>, Option<SlotNo>)>,
    cells: BTreeMap<SlotNo, CellNo>,
}

impl Search<'_> {
    fn binds(&self) -> impl Iterator<Item = (SlotNo, CellNo)> + use<> {
        let slots: BTreeSet<SlotNo> = self.picks.iter().filter_map(|pick| pick.slot).collect();
        let binds = slots.into_iter().filter_map(|slot| Some((slot, self.state.slot_cell(slot)?)));
        binds.collect::<Vec<_>>().into_iter()
    }

    /// A placement that displaces fewer guaranteed groups: not this one, and none that the other does not displace.
    fn without(&mut self, victim: GroupNo, need: &GroupNeed, found: &SearchResult) -> Option<SearchResult> {
        let mut others = found.guaranteed();
        others.remove(&victim);
        let outer = self.victims.replace(others.clone());
        let mark = self.mark();
        let mut fewer = self.run(need).then(|| SearchResult::new(self, Vec::new()));
        self.roll_back(mark);
        if fewer.is_none() {
            let mut gone = found.displaced(|_| true);
            gone.remove(&victim);
            fewer = self.where_others_were(need, &gone);
        }
        self.victims = outer;
        fewer
    }

    /// The search with preemption goes pod by pod, and may miss a placement that the search without it finds once the
    /// others have left, in whatever manner. That one is taken over to the cells that they have.
    fn where_others_were(&mut self, need: &GroupNeed, others: &BTreeSet<GroupNo>) -> Option<SearchResult> {
        let trial = (self.pass, self.manner);
        let found = Manner::ALL.into_iter().find_map(|manner| {
            self.manner = manner;
            let vacant = self.vacant(need, others)?;
            let mark = self.mark();
            let found = self.take_over(&vacant).then(|| SearchResult::new(self, Vec::new()));
            self.roll_back(mark);
            found
        });
        (self.pass, self.manner) = trial;
        found
    }

    fn vacant(&mut self, need: &GroupNeed, others: &BTreeSet<GroupNo>) -> Option<Vacant> {
        let pass = std::mem::replace(&mut self.pass, Pass::Free);
        let mark = self.mark();
        self.vacate(others);
        let vacant = self.run(need).then(|| Vacant {
            picks: self.picks.iter().map(|pick| (pick.pod, pick.leaves.clone(), pick.slot)).collect(),
            cells: self.binds().collect(),
        });
        self.roll_back(mark);
        self.pass = pass;
        vacant
    }

    /// Groups leave: they and their reservations are gone, and promises that nobody uses.
    fn vacate(&mut self, groups: &BTreeSet<GroupNo>) {
        for group in groups {
            let Some(of) = self.groups.get(*group) else { continue };
            let event = match of.state {
                GroupState::Preempting => LeafEvent::Cancel(*group),
                GroupState::Allocated | GroupState::BeingPreempted => LeafEvent::Gone(*group),
            };
            let change = |leaf: LeafNo| Some((leaf, self.state.leaf(leaf).apply(event).ok()?));
            let changes: Vec<(LeafNo, LeafState)> = of.leaves().filter_map(change).collect();
            self.state.set_leaves(self.topology, &changes);
            for slot in of.slots() {
                self.state.unbind_if_idle(self.topology, slot);
            }
        }
    }

    /// Takes the same leaves of the same promises, in the cells that these are bound to. False if that is impossible.
    fn take_over(&mut self, vacant: &Vacant) -> bool {
        for (pod, leaves, slot) in &vacant.picks {
            let Some((slot, from)) = slot.and_then(|slot| Some((slot, *vacant.cells.get(&slot)?))) else {
                return false;
            };
            let level = self.topology.slot(slot).level;
            let Some(cell) = self.state.slot_cell(slot).or_else(|| self.fresh(level)) else { return false };
            let (from, to) = (self.topology.cell(from).first_leaf, self.topology.cell(cell).first_leaf);
            let leaves: Vec<LeafNo> = leaves.iter().map(|leaf| LeafNo(leaf.0 - from.0 + to.0)).collect();
            let can = |leaf: &LeafNo| {
                self.preemptible(*leaf).is_some()
                    && self.filter.usable(self.state, self.topology.leaf(*leaf).node)
            };
            if !leaves.iter().all(can) {
                return false;
            }
            let bind = self.state.slot_cell(slot).is_none().then_some(cell);
            let need = Need { pod: *pod, cells: 0, level: 1, leaves: leaves.len() as u32 };
            self.take(&need, Choice { slot: Some(slot), bind, leaves });
        }
        true
    }
}

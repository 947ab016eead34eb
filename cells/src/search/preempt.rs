//! Places for a pod by preemption of groups with a lower priority in the same VC: lowest priority first, then the
//! least lost work.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Choice, Region, Search,
    costs::Rank,
    pick::{Losers, Loss},
};
use crate::{
    group::GroupState,
    leaf::{Holder, LeafState},
    request::Need,
    topology::{CellNo, GroupNo, LeafNo, SlotNo},
};

impl Search<'_> {
    /// Whether a leaf is available, by preemption if necessary; the groups that lose it.
    pub(super) fn preemptible(&self, leaf: LeafNo) -> Option<Losers> {
        let state = self.state.leaf(leaf);
        let may = state.holders().all(|holder| self.guaranteed() && self.may_preempt(holder));
        may.then(|| [state.occupant(), state.reserver()].map(|holder| self.loser(holder?)))
    }

    /// The group, if it counts what it loses.
    pub(super) fn loser(&self, holder: Holder) -> Option<GroupNo> {
        (holder.guaranteed() || self.spares()).then_some(holder.group)
    }

    fn may_preempt(&self, holder: Holder) -> bool {
        let may = |victims: &BTreeSet<GroupNo>| !holder.guaranteed() || victims.contains(&holder.group);
        holder.priority < self.asker.priority && self.victims.as_ref().is_none_or(may)
    }

    pub(super) fn preempting(&self, region: Region, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        if !self.guaranteed() || !self.state.has_lower(self.asker.vc, self.asker.priority) {
            return;
        }
        let taken = self.displaced(0);
        let ranked = self.priced(region, need, &taken);
        let choices = ranked.into_iter().filter_map(|(_, _, slot, view)| {
            let (_, victims) = self.cheapest(view, need, &taken)?;
            let leaves = self.pick_from(view, need, &victims)?;
            Some(Choice { slot: Some(slot), bind: None, leaves })
        });
        into.extend(choices.take(limit));
    }

    /// What a place for the pod in a view costs; none if there is no such place.
    pub(super) fn price(
        &self,
        view: CellNo,
        slot: SlotNo,
        need: &Need,
        taken: &BTreeSet<GroupNo>,
    ) -> Option<Rank> {
        self.visits.set(self.visits.get().saturating_add(1));
        if !self.filter.usable(self.state, self.topology.node_of(view)) {
            return None;
        }
        let (mut cost, victims) = self.cheapest(view, need, taken)?;
        if self.move_aside(slot, &victims) {
            (cost.1, cost.2) = (0, 0);
        }
        // Opportunistic groups on it would go as well.
        Some((cost, self.borrowed(view), slot, view))
    }

    pub(super) fn preemptible_views(&self, region: Region, need: &Need) -> Vec<(CellNo, SlotNo)> {
        match region {
            Region::Within(cell) => match self.state.slot_over(self.topology, cell) {
                Some(slot) => self.views_in(cell).into_iter().map(|view| (view, slot)).collect(),
                None => Vec::new(),
            },
            Region::Whole => {
                let levels = self.topology.vc(self.asker.vc).levels(self.chain).map(|(level, _)| level);
                levels
                    .filter(|level| self.topology.chain(self.chain).level(*level).leaves >= need.leaves)
                    .flat_map(|level| self.bound_views(level).collect::<Vec<_>>())
                    .collect()
            }
        }
    }

    /// The cheapest victims that free enough leaves in a view; none if no victims do.
    fn cheapest(&self, view: CellNo, need: &Need, taken: &BTreeSet<GroupNo>) -> Option<(Loss, Vec<GroupNo>)> {
        // Of each leaf, the guaranteed groups that lose it.
        let mut leaves: Vec<Losers> = Vec::new();
        let mut groups: BTreeMap<GroupNo, i16> = BTreeMap::new();
        for leaf in self.topology.leaves_of(view).filter(|leaf| self.preemptible(*leaf).is_some()) {
            let state = self.state.leaf(leaf);
            let losers =
                [state.occupant(), state.reserver()].map(|holder| holder.filter(|of| of.guaranteed()));
            groups.extend(losers.iter().flatten().map(|holder| (holder.group, holder.priority)));
            leaves.push(losers.map(|holder| Some(holder?.group)));
        }
        if (leaves.len() as u32) < need.leaves {
            return None;
        }
        let mut order: Vec<_> = groups
            .into_iter()
            .map(|(group, priority)| {
                let lazy = self.groups.get(group).is_some_and(|group| group.request.lazy_preemption_enable);
                let new = !taken.contains(&group) && !self.goes_anyhow(group, |by| taken.contains(&by));
                (new, priority, !lazy, self.lost_work(group), group)
            })
            .collect();
        order.sort_unstable();
        // Victims are added from the cheapest on until enough leaves are free.
        let mut victims = Vec::new();
        let (mut highest, mut lost, mut number) = (i16::MIN, 0_i64, 0);
        for (new, priority, _, work, group) in order {
            victims.push(group);
            if new {
                (highest, lost, number) = (highest.max(priority), lost.saturating_add(work), number + 1);
            }
            let freed = |losers: &&Losers| losers.iter().flatten().all(|loser| victims.contains(loser));
            let room = leaves.iter().filter(freed).count() as u32;
            if room >= need.leaves && (need.level == 1 || self.pick_from(view, need, &victims).is_some()) {
                return Some(((highest, lost, number), victims));
            }
        }
        None
    }

    /// Whether these victims lose nothing: all users of a promise allow lazy preemption, and its next user finds
    /// another cell.
    pub(super) fn move_aside(&self, slot: SlotNo, victims: &[GroupNo]) -> bool {
        let Some(cell) = self.state.slot_cell(slot) else { return false };
        if self.topology.slot(slot).pinned.is_some() {
            return false;
        }
        let lazy = |group: GroupNo| {
            victims.contains(&group)
                && self.groups.get(group).is_some_and(|group| {
                    group.request.lazy_preemption_enable && group.state == GroupState::Allocated
                })
        };
        let mut holders = self.topology.leaves_of(cell).filter_map(|leaf| self.state.leaf(leaf).holder());
        holders.all(|holder| !holder.guaranteed() || lazy(holder.group))
            && self.fresh(self.topology.cell(cell).level).is_some_and(|other| {
                self.borrowed(other) == 0 && self.filter.unusable(self.topology, self.state, other) == 0
            })
    }

    /// Picks leaves of a view, without those of guaranteed groups that are not victims.
    fn pick_from(&self, view: CellNo, need: &Need, victims: &[GroupNo]) -> Option<Vec<LeafNo>> {
        let goes = |holder: Holder| !holder.guaranteed() || victims.contains(&holder.group);
        self.pick_of(view, need, |leaf| {
            self.state.leaf(leaf).holders().all(goes).then(|| self.preemptible(leaf)).flatten()
        })
    }

    /// Work that an eviction of the group would lose now; none if it is ending already or only waits.
    pub(crate) fn lost_work(&self, group: GroupNo) -> i64 {
        match self.groups.get(group) {
            Some(of) if of.state != GroupState::Preempting && !self.goes_anyhow(group, |_| false) => {
                of.lost_work(self.now_ms)
            }
            _ => 0,
        }
    }

    /// Whether a group is being preempted by another that does not lose its reservation.
    pub(super) fn goes_anyhow(&self, group: GroupNo, loses: impl Fn(GroupNo) -> bool) -> bool {
        let stays = |by: Holder| by.group != super::NEWCOMER && !loses(by.group);
        let reserved = |leaf: LeafNo| match self.state.leaf(leaf) {
            LeafState::Reserving { victim, by } => victim.group == group && stays(by),
            LeafState::Free | LeafState::Used(_) | LeafState::Reserved(_) => false,
        };
        // The state of the group is as it was before the search.
        let preempted = self.groups.get(group).filter(|of| of.state == GroupState::BeingPreempted);
        preempted.is_some_and(|of| of.leaves().any(reserved))
    }
}

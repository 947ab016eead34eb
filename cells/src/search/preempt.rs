//! Places for a pod by preemption of groups with a lower priority in the same VC: lowest priority first, then the
//! least lost work.

use std::collections::BTreeSet;

use super::{Choice, Region, Search, pick::Loss};
use crate::{
    group::GroupState,
    leaf::Holder,
    request::Need,
    topology::{CellNo, GroupNo, LeafNo, SlotNo},
};

impl Search<'_> {
    /// Whether a leaf is available, by preemption if necessary; the group that loses it.
    pub(super) fn preemptible(&self, leaf: LeafNo) -> Option<Option<GroupNo>> {
        match self.state.leaf(leaf).holder() {
            None => Some(None),
            Some(holder) => (self.guaranteed() && self.may_preempt(holder)).then_some(Some(holder.group)),
        }
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
        let mut ranked: Vec<(Loss, u32, SlotNo, CellNo, Vec<GroupNo>)> = Vec::new();
        for (view, slot) in self.preemptible_views(region, need) {
            if !self.filter.usable(self.state, self.topology.node_of(view)) {
                continue;
            }
            if let Some((mut cost, victims)) = self.cheapest(view, need, &taken) {
                if self.move_aside(slot, &victims) {
                    (cost.1, cost.2) = (0, 0);
                }
                // Opportunistic groups on it would go as well.
                ranked.push((cost, self.state.counts(view).opportunistic, slot, view, victims));
            }
        }
        ranked.sort_unstable();
        let choices = ranked.into_iter().filter_map(|(_, _, slot, view, victims)| {
            let leaves = self.pick_from(view, need, &victims)?;
            Some(Choice { slot: Some(slot), bind: None, leaves })
        });
        into.extend(choices.take(limit));
    }

    fn preemptible_views(&self, region: Region, need: &Need) -> Vec<(CellNo, SlotNo)> {
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
        let mut room = 0;
        let mut groups: Vec<(GroupNo, i16, u32)> = Vec::new();
        for leaf in self.topology.leaves_of(view) {
            match self.state.leaf(leaf).holder() {
                Some(holder) if holder.guaranteed() => {
                    if !self.may_preempt(holder) {
                        continue;
                    }
                    match groups.iter_mut().find(|(group, _, _)| *group == holder.group) {
                        Some((_, _, leaves)) => *leaves += 1,
                        None => groups.push((holder.group, holder.priority, 1)),
                    }
                }
                _ => room += 1,
            }
        }
        if room + groups.iter().map(|(_, _, leaves)| leaves).sum::<u32>() < need.leaves {
            return None;
        }
        let mut order: Vec<_> = groups
            .into_iter()
            .map(|(group, priority, leaves)| {
                let lazy = self.groups.get(group).is_some_and(|group| group.request.lazy_preemption_enable);
                (!taken.contains(&group), priority, !lazy, self.lost_work(group), group, leaves)
            })
            .collect();
        order.sort_unstable();
        // Victims are added from the cheapest on until enough leaves are free.
        let mut victims = Vec::new();
        let (mut highest, mut lost, mut number) = (i16::MIN, 0_i64, 0);
        for (new, priority, _, work, group, leaves) in order {
            victims.push(group);
            room += leaves;
            if new {
                (highest, lost, number) = (highest.max(priority), lost.saturating_add(work), number + 1);
            }
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
                self.state.counts(other).opportunistic == 0
                    && self.filter.unusable(self.topology, self.state, other) == 0
            })
    }

    /// Picks leaves of a view, without those of guaranteed groups that are not victims.
    fn pick_from(&self, view: CellNo, need: &Need, victims: &[GroupNo]) -> Option<Vec<LeafNo>> {
        self.pick_of(view, need, |leaf| match self.state.leaf(leaf).holder() {
            Some(holder) if holder.guaranteed() && !victims.contains(&holder.group) => None,
            _ => self.preemptible(leaf),
        })
    }

    /// Work that an eviction of the group would lose now; none if it is ending already or only waits.
    pub(crate) fn lost_work(&self, group: GroupNo) -> i64 {
        match self.groups.get(group) {
            Some(group) if group.state == GroupState::Allocated => group.lost_work(self.now_ms),
            _ => 0,
        }
    }
}

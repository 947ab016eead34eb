//! Places for a pod at the cost of groups with a lower priority in the same VC: the least of these first, by
//! priority, then by the work that an eviction would lose.

use std::collections::{BTreeMap, BTreeSet};

use super::{Choice, Region, Search, pick::pick};
use crate::{
    group::GroupState,
    request::Need,
    topology::{CellNo, GroupNo, LeafNo, SlotNo},
};

/// Highest priority among the victims, work lost, victims, position.
type Cost = (i16, i64, usize, CellNo);

impl Search<'_> {
    /// Whether a leaf can be had, taking it from a lower priority where it must be; 1 where somebody loses it.
    pub(super) fn preemptible(&self, leaf: LeafNo) -> Option<u32> {
        match self.state.leaf(leaf).holder() {
            None => Some(0),
            Some(holder) => (self.guaranteed() && holder.priority < self.asker.priority).then_some(1),
        }
    }

    pub(super) fn preempting(&self, region: Region, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        if !self.guaranteed() {
            return;
        }
        let taken = self.displaced(0);
        let mut ranked: Vec<(Cost, Choice)> = Vec::new();
        for (view, slot) in self.preemptible_views(region, need) {
            if !self.filter.usable(self.state, self.topology.node_of(view)) {
                continue;
            }
            if let Some((cost, leaves)) = self.cheapest(view, need, &taken) {
                ranked.push((cost, Choice { slot: Some(slot), bind: None, leaves }));
            }
        }
        ranked.sort_by_key(|(cost, _)| *cost);
        into.extend(ranked.into_iter().take(limit).map(|(_, choice)| choice));
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

    /// The least costly leaves of a view.
    fn cheapest(&self, view: CellNo, need: &Need, taken: &BTreeSet<GroupNo>) -> Option<(Cost, Vec<LeafNo>)> {
        let mut groups: BTreeMap<GroupNo, i16> = BTreeMap::new();
        let mut room = 0;
        for leaf in self.topology.leaves_of(view) {
            if self.preemptible(leaf).is_none() {
                continue;
            }
            room += 1;
            if let Some(holder) = self.state.leaf(leaf).holder().filter(|holder| holder.guaranteed()) {
                groups.insert(holder.group, holder.priority);
            }
        }
        if room < need.leaves {
            return None;
        }
        let mut order: Vec<_> = groups
            .into_iter()
            .map(|(group, priority)| {
                let lazy = self.groups.get(group).is_some_and(|group| group.request.lazy_preemption_enable);
                (!taken.contains(&group), priority, !lazy, self.lost_work(group), group)
            })
            .collect();
        order.sort_unstable();
        // Victims are added from the cheapest on until there is room.
        for number in 1..=order.len() {
            let allowed: Vec<GroupNo> = order[..number].iter().map(|entry| entry.4).collect();
            let leaves = pick(self.topology, view, need.cells, need.level, |leaf| {
                match self.state.leaf(leaf).holder() {
                    Some(holder) if holder.guaranteed() && !allowed.contains(&holder.group) => None,
                    _ => self.preemptible(leaf),
                }
            });
            if let Some(leaves) = leaves {
                return Some((self.cost_of(&leaves, view, taken), leaves));
            }
        }
        None
    }

    fn cost_of(&self, leaves: &[LeafNo], view: CellNo, taken: &BTreeSet<GroupNo>) -> Cost {
        let mut victims: BTreeMap<GroupNo, i16> = BTreeMap::new();
        for leaf in leaves {
            if let Some(holder) = self.state.leaf(*leaf).holder()
                && !taken.contains(&holder.group)
            {
                victims.insert(holder.group, holder.priority);
            }
        }
        let highest = victims.values().max().copied().unwrap_or(i16::MIN);
        let lost = victims.keys().map(|group| self.lost_work(*group)).sum();
        (highest, lost, victims.len(), view)
    }

    /// What evicting a group now would lose; nothing when it is on its way out already or only waits.
    pub(super) fn lost_work(&self, group: GroupNo) -> i64 {
        match self.groups.get(group) {
            Some(group) if group.state == GroupState::Allocated => group.lost_work(self.now_ms),
            _ => 0,
        }
    }
}

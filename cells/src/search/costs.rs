//! What preemption costs in each view, kept from pod to pod of one search: of the views of a large virtual cluster a
//! pod changes few.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pick, Region, Search, pick::Loss};
use crate::{
    leaf::LeafState,
    request::Need,
    topology::{CellNo, GroupNo, LeafNo, Level, SlotNo},
};

/// A view with a place, the cheapest first: the loss, opportunistic leaves in it, its promise, the view.
pub(super) type Rank = (Loss, u32, SlotNo, CellNo);

/// The costs for one kind of pod in one region.
#[derive(Default)]
pub(super) struct Costs {
    of: Option<(Region, u32, Level)>,
    ranked: BTreeSet<Rank>,
    by_view: BTreeMap<CellNo, Rank>,
    /// Views to price again.
    stale: BTreeSet<(CellNo, SlotNo)>,
}

impl Costs {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn set(&mut self, view: CellNo, rank: Option<Rank>) {
        if let Some(old) = self.by_view.remove(&view) {
            self.ranked.remove(&old);
        }
        if let Some(rank) = rank {
            self.by_view.insert(view, rank);
            self.ranked.insert(rank);
        }
    }
}

impl Search<'_> {
    /// All views with a place for the pod, the cheapest first.
    pub(super) fn priced(&self, region: Region, need: &Need, taken: &BTreeSet<GroupNo>) -> Vec<Rank> {
        // Where few groups may go, few views are worth a look: without them none has a place, or it would have been
        // found before.
        if let Some(victims) = &self.victims {
            let views = self.views_with(region, need, victims.iter().copied());
            let mut ranked: Vec<Rank> = self.price_all(views, need, taken);
            ranked.sort_unstable();
            return ranked;
        }
        let mut costs = self.costs.borrow_mut();
        let of = Some((region, need.cells, need.level));
        if costs.of != of {
            costs.clear();
            costs.of = of;
            for rank in self.price_all(self.preemptible_views(region, need), need, taken) {
                costs.set(rank.3, Some(rank));
            }
        }
        for (view, slot) in std::mem::take(&mut costs.stale) {
            costs.set(view, self.price(view, slot, need, taken));
        }
        let ranked: Vec<Rank> = costs.ranked.iter().copied().collect();
        #[cfg(test)]
        {
            let mut fresh = self.price_all(self.preemptible_views(region, need), need, taken);
            fresh.sort_unstable();
            assert_eq!(ranked, fresh, "costs that were kept");
        }
        ranked
    }

    fn price_all(
        &self,
        views: impl IntoIterator<Item = (CellNo, SlotNo)>,
        need: &Need,
        taken: &BTreeSet<GroupNo>,
    ) -> Vec<Rank> {
        views.into_iter().filter_map(|(view, slot)| self.price(view, slot, need, taken)).collect()
    }

    /// A pod was placed: views of its promise cost something else now, and views with groups that have to go anyhow.
    pub(super) fn note_pick(&self, pick: &Pick, is_bound_anew: bool) {
        let mut costs = self.costs.borrow_mut();
        let Some((region, cells, level)) = costs.of else { return };
        let Some(slot) = pick.slot.filter(|_| !is_bound_anew) else {
            costs.clear();
            return;
        };
        let leaves = cells * self.topology.chain(self.chain).level(level).leaves;
        let need = Need { pod: 0, cells, level, leaves };
        let of_promise =
            self.state.slot_cell(slot).into_iter().flat_map(|cell| self.topology.leaves_of(cell));
        costs.stale.extend(of_promise.filter_map(|leaf| self.view_with(region, &need, leaf)));
        let mut gone: BTreeSet<GroupNo> =
            pick.was.iter().flat_map(|was| was.holders()).map(|holder| holder.group).collect();
        // Whom one of these preempts does not have to go on its account any more.
        let preempted = |leaf: LeafNo| match self.state.leaf(leaf) {
            LeafState::Reserving { victim, by } if gone.contains(&by.group) => Some(victim.group),
            _ => None,
        };
        let spared: Vec<GroupNo> =
            gone.iter().flat_map(|group| self.leaves_of(*group)).filter_map(preempted).collect();
        gone.extend(spared);
        costs.stale.extend(self.views_with(region, &need, gone.into_iter()));
    }

    fn leaves_of(&self, group: GroupNo) -> Vec<LeafNo> {
        self.groups.get(group).into_iter().flat_map(|group| group.leaves()).collect()
    }

    /// Of the views that preemption considers, those with leaves of these groups.
    fn views_with(
        &self,
        region: Region,
        need: &Need,
        groups: impl Iterator<Item = GroupNo>,
    ) -> BTreeSet<(CellNo, SlotNo)> {
        let leaves = groups.flat_map(|group| self.leaves_of(group));
        leaves.filter_map(|leaf| self.view_with(region, need, leaf)).collect()
    }

    fn view_with(&self, region: Region, need: &Need, leaf: LeafNo) -> Option<(CellNo, SlotNo)> {
        let own = self.topology.leaf(leaf);
        let (cell, slot) = match region {
            Region::Within(cell) => {
                let slot = self.state.slot_over(self.topology, cell)?;
                self.topology.contains(cell, own.cell).then_some((cell, slot))?
            }
            Region::Whole => {
                let slot = self.state.slot_over(self.topology, own.cell)?;
                let (promise, cell) = (self.topology.slot(slot), self.state.slot_cell(slot)?);
                let is_considered = promise.vc == self.asker.vc
                    && promise.chain == self.chain
                    && promise.pinned.is_none()
                    && self.topology.cell(cell).cluster == self.cluster
                    && self.topology.chain(self.chain).level(promise.level).leaves >= need.leaves
                    && self.only.as_ref().is_none_or(|only| only.contains(&slot));
                is_considered.then_some((cell, slot))?
            }
        };
        let node = self.topology.node_cells[own.node_cell as usize];
        Some((if self.topology.at_or_below_node(cell) { cell } else { node }, slot))
    }
}

//! Candidate nodes for one pod, best first.

use std::{cell::OnceCell, collections::BTreeSet, ops::Bound};

use super::{
    Choice, Order, Pass, Region, Search,
    pick::{Losers, Loss, NO_LOSS, pick},
};
use crate::{
    request::Need,
    topology::{CellNo, ClusterNo, GroupNo, LeafNo, Level, SlotNo},
};

impl Search<'_> {
    /// At most `limit` ways to place a pod.
    pub(super) fn options(&self, region: Region, need: &Need, limit: usize) -> Vec<Choice> {
        let mut choices = Vec::new();
        match (region, self.guaranteed()) {
            (Region::Whole, true) => self.promised(need, limit, &mut choices),
            (Region::Whole, false) => self.anywhere(need, limit, &mut choices),
            (Region::Within(cell), _) => self.inside(cell, need, limit, &mut choices),
        }
        if choices.is_empty() && self.pass == Pass::Preempt {
            self.preempting(region, need, limit, &mut choices);
        }
        choices
    }

    /// Whether a leaf is available without preemption in the VC; the opportunistic group that would be evicted.
    pub(super) fn available(&self, leaf: LeafNo) -> Option<Losers> {
        let given_twice = |group| crate::faults::leaf_given_twice() && group != super::NEWCOMER;
        match self.state.leaf(leaf).holder() {
            None => Some([None, None]),
            Some(holder) if self.guaranteed() && !holder.guaranteed() => Some([self.loser(holder), None]),
            Some(holder) => given_twice(holder.group).then_some([Some(holder.group), None]),
        }
    }

    /// Picks leaves of a view by which other groups lose least.
    pub(super) fn pick_of(
        &self,
        view: CellNo,
        need: &Need,
        available: impl Fn(LeafNo) -> Option<Losers>,
    ) -> Option<Vec<LeafNo>> {
        let taken = OnceCell::new();
        let loss = |victims: &[GroupNo]| self.loss(victims, taken.get_or_init(|| self.displaced(0)));
        pick(self.topology, view, need.cells, need.level, available, loss)
    }

    /// What evictions lose, of groups that do not have to go anyhow.
    fn loss(&self, victims: &[GroupNo], taken: &BTreeSet<GroupNo>) -> Loss {
        let gone = |group: GroupNo| taken.contains(&group) || victims.contains(&group);
        let spared =
            victims.iter().filter(|group| !taken.contains(group) && !self.goes_anyhow(**group, gone));
        spared.filter_map(|group| Some((group, self.groups.get(*group)?))).fold(
            NO_LOSS,
            |sum, (group, of)| {
                (sum.0.max(of.priority), sum.1.saturating_add(self.lost_work(*group)), sum.2 + 1)
            },
        )
    }

    /// Free leaves that a group of this kind sees in a cell.
    pub(super) fn room(&self, cell: CellNo) -> u32 {
        if crate::faults::leaf_given_twice() {
            return self.topology.cell(cell).leaves;
        }
        if self.guaranteed() {
            self.state.virtually_free(self.topology, cell)
        } else {
            self.state.free(self.topology, cell)
        }
    }

    /// Adds the leaves of a view if enough are free and its node is usable.
    fn add(
        &self,
        view: CellNo,
        slot: Option<SlotNo>,
        bind: Option<CellNo>,
        need: &Need,
        into: &mut Vec<Choice>,
    ) {
        let node = self.topology.node_of(view);
        if self.room(view) < need.leaves || !self.filter.usable(self.state, node) {
            return;
        }
        if let Some(leaves) = self.pick_of(view, need, |leaf| self.available(leaf)) {
            into.push(Choice { slot, bind, leaves });
        }
    }

    /// In the promises of the VC: smallest promised cells first, among these the fullest nodes; unused promises
    /// last. In [`Order::Compact`] all promises in use come before the others.
    fn promised(&self, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        let enough = |level: &Level| self.topology.chain(self.chain).level(*level).leaves >= need.leaves;
        let levels = self.topology.vc(self.asker.vc).levels(self.chain).map(|(level, _)| level);
        let levels: Vec<Level> = levels.filter(enough).collect();
        if self.manner.order == Order::Compact {
            for level in &levels {
                self.in_use(*level, need, limit, into);
            }
            for level in levels.iter().rev() {
                self.not_in_use(*level, need, limit, into);
            }
        } else {
            for level in &levels {
                self.in_use(*level, need, limit, into);
                self.not_in_use(*level, need, limit, into);
            }
        }
    }

    fn in_use(&self, level: Level, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        if into.len() >= limit {
            return;
        }
        if self.filter.heed_health && self.only.is_none() {
            self.in_index(level, need, limit, into);
        } else {
            self.in_bound(level, need, limit, into);
        }
    }

    fn not_in_use(&self, level: Level, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        if into.len() < limit
            && let Some(slot) = self.unbound(level)
            && let Some(cell) = self.fresh(level)
        {
            self.in_fresh(slot, cell, need, into);
        }
    }

    fn in_index(&self, level: Level, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        let Some(views) = self.state.vc(self.asker.vc).views.get(&self.chain) else { return };
        let first = (self.cluster, level, need.leaves, 0, SlotNo(0), CellNo(0));
        let after = (self.cluster, level + 1, 0, 0, SlotNo(0), CellNo(0));
        let mut keys = views.range((Bound::Included(first), Bound::Excluded(after)));
        if self.spares() {
            let views = keys.map(|key| (key.2, key.4, key.5));
            self.add_each(views, need, limit, into);
            return;
        }
        // Of those with as many free leaves, opportunistic ones do not count.
        let mut next = keys.next();
        while let Some(first) = next {
            let mut same = vec![(first.2, first.4, first.5)];
            next = keys.next();
            while let Some(key) = next.filter(|key| key.2 == first.2) {
                same.push((key.2, key.4, key.5));
                next = keys.next();
            }
            same.sort_unstable();
            self.add_each(same.into_iter(), need, limit, into);
            if into.len() >= limit {
                return;
            }
        }
    }

    /// Adds views with their free leaves, in this order.
    fn add_each(
        &self,
        views: impl Iterator<Item = (u32, SlotNo, CellNo)>,
        need: &Need,
        limit: usize,
        into: &mut Vec<Choice>,
    ) {
        let mut last = None;
        for (free, slot, view) in views {
            if self.manner.order == Order::Compact && last == Some(free) {
                continue;
            }
            let before = into.len();
            self.add(view, Some(slot), None, need, into);
            if into.len() > before {
                last = Some(free);
            }
            if into.len() >= limit {
                return;
            }
        }
    }

    /// As [`Self::in_index`], over the bound promises themselves: bad nodes are in no index.
    fn in_bound(&self, level: Level, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        let views = self.bound_views(level);
        let mut views: Vec<(u32, u32, SlotNo, CellNo)> =
            views.map(|(view, slot)| (self.room(view), self.borrowed(view), slot, view)).collect();
        views.sort_unstable();
        self.add_each(views.into_iter().map(|(free, _, slot, view)| (free, slot, view)), need, limit, into);
    }

    /// Views of the bound promises of a level, in this cluster.
    pub(super) fn bound_views(&self, level: Level) -> impl Iterator<Item = (CellNo, SlotNo)> + '_ {
        let slots = self.topology.vc(self.asker.vc).by_level.get(&(self.chain, level));
        slots
            .into_iter()
            .flatten()
            .filter(|slot| self.only.as_ref().is_none_or(|only| only.contains(slot)))
            .filter_map(|slot| Some((*slot, self.state.slot_cell(*slot)?)))
            .filter(|(_, cell)| self.topology.cell(*cell).cluster == self.cluster)
            .flat_map(|(slot, cell)| self.views_in(cell).into_iter().map(move |view| (view, slot)))
    }

    /// The nodes of a cell, or the cell itself if it is within a node.
    pub(super) fn views_in(&self, cell: CellNo) -> Vec<CellNo> {
        if self.topology.at_or_below_node(cell) { vec![cell] } else { self.topology.nodes_of(cell).to_vec() }
    }

    fn in_fresh(&self, slot: SlotNo, cell: CellNo, need: &Need, into: &mut Vec<Choice>) {
        let mut views = self.views_in(cell);
        views.sort_by_key(|view| (self.borrowed(*view), *view));
        let before = into.len();
        for view in views {
            self.add(view, Some(slot), Some(cell), need, into);
            if into.len() > before {
                return;
            }
        }
    }

    fn inside(&self, cell: CellNo, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        let slot = if self.guaranteed() { self.state.slot_over(self.topology, cell) } else { None };
        let mut views = self.views_in(cell);
        views.sort_by_key(|view| {
            let counts = self.state.counts(*view);
            if self.guaranteed() {
                (self.room(*view), self.borrowed(*view), *view)
            } else {
                (u32::MAX - counts.opportunistic, counts.guaranteed, *view)
            }
        });
        for view in views {
            self.add(view, slot, None, need, into);
            if into.len() >= limit {
                return;
            }
        }
    }

    /// For opportunistic groups: nodes with most opportunistic leaves, then those with fewest guaranteed leaves.
    fn anywhere(&self, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        if !self.filter.heed_health {
            self.anywhere_bad_too(need, limit, into);
            return;
        }
        let index = self.state.opp_index(self.chain);
        let first = (self.cluster, std::cmp::Reverse(u32::MAX), 0, CellNo(0));
        let after = (ClusterNo(self.cluster.0 + 1), std::cmp::Reverse(u32::MAX), 0, CellNo(0));
        let least = if crate::faults::leaf_given_twice() { 1 } else { need.leaves as usize };
        let mut found = Vec::new();
        for nodes in index.iter().skip(least) {
            let mut of_this = Vec::new();
            for key in nodes.range((Bound::Included(first), Bound::Excluded(after))) {
                self.add(key.3, None, None, need, &mut of_this);
                if of_this.len() >= limit {
                    found.push((*key, of_this.pop()));
                    break;
                }
                found.extend(of_this.pop().map(|choice| (*key, Some(choice))));
            }
        }
        found.sort_by_key(|(key, _)| *key);
        into.extend(found.into_iter().filter_map(|(_, choice)| choice).take(limit));
    }

    fn anywhere_bad_too(&self, need: &Need, limit: usize, into: &mut Vec<Choice>) {
        let chain = self.topology.chain(self.chain);
        for view in &chain.level(chain.node_level).cells {
            if self.topology.cell(*view).cluster == self.cluster {
                self.add(*view, None, None, need, into);
            }
            if into.len() >= limit {
                return;
            }
        }
    }
}

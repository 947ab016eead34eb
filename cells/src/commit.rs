//! Changes of allocation: commits of proposals, ends of pods and groups, cancelled reservations.

use std::collections::BTreeSet;

use crate::{
    cells::Cells,
    decision::{NewGroup, Proposal, Stale, Step},
    group::{Group, GroupEvent, GroupPod, GroupState, LazyPreemption, PodState},
    leaf::{Holder, LeafEvent, LeafState},
    topology::{GroupNo, LeafNo},
};

impl Cells {
    /// Commits a proposal: the group is allocated, or its cells are reserved and its victims marked. All its pods
    /// count as present, named by their numbers.
    ///
    /// # Errors
    /// Something changed since the proposal was made.
    pub fn commit(&mut self, proposal: &Proposal) -> Result<(), Stale> {
        self.commit_with(proposal, |pod| PodState::Live(pod.to_string()))
    }

    pub(crate) fn commit_with(
        &mut self,
        proposal: &Proposal,
        pod: impl Fn(usize) -> PodState,
    ) -> Result<(), Stale> {
        let plan = &proposal.plan;
        if plan.generation != self.generation {
            return Err(Stale { made: plan.generation, now: self.generation });
        }
        match &plan.step {
            Step::Nothing => return Ok(()),
            Step::TakeReserved(group) => self.take_reserved(*group, plan.now_ms),
            Step::New(new) => self.add(new, proposal, pod),
        }
        self.generation += 1;
        Ok(())
    }

    fn add(&mut self, new: &NewGroup, proposal: &Proposal, pod: impl Fn(usize) -> PodState) {
        let plan = &proposal.plan;
        for group in &new.lazy {
            self.lazy_preempt(*group, plan.request.name(), plan.now_ms);
        }
        for group in &new.cancels {
            self.cancel(*group);
        }
        for (slot, cell) in &new.binds {
            if self.state.slot_cell(*slot) != Some(*cell) {
                self.state.bind(&self.topology, *slot, *cell);
            }
        }
        let preempts = !new.victims.is_empty();
        let state = if preempts { GroupState::Preempting } else { GroupState::Allocated };
        let pods = new.pods.iter().enumerate();
        let number = self.groups.insert(Group {
            request: plan.request.clone(),
            state,
            priority: new.priority,
            chain: new.chain,
            pods: pods
                .map(|(at, (leaves, slot))| GroupPod { leaves: leaves.clone(), slot: *slot, state: pod(at) })
                .collect(),
            lazy: None,
            waiting: BTreeSet::new(),
            work_since_ms: plan.now_ms,
        });
        let holder = Holder { group: number, priority: new.priority };
        let event = if preempts { LeafEvent::Reserve(holder) } else { LeafEvent::Allocate(holder) };
        for (leaves, _) in &new.pods {
            self.change(leaves, event);
        }
        for victim in &new.victims {
            self.group_event(*victim, GroupEvent::CellReserved);
        }
    }

    fn take_reserved(&mut self, number: GroupNo, now_ms: i64) {
        let Some(group) = self.groups.get_mut(number) else { return };
        group.state = group.state.apply(GroupEvent::VictimsGone);
        group.work_since_ms = now_ms;
        let holder = Holder { group: number, priority: group.priority };
        let leaves: Vec<LeafNo> = group.leaves().collect();
        self.change(&leaves, LeafEvent::Allocate(holder));
    }

    /// Makes a group opportunistic in place; its promises are released.
    pub(crate) fn lazy_preempt(&mut self, number: GroupNo, preemptor: &str, now_ms: i64) {
        let Some(group) = self.groups.get_mut(number) else { return };
        group.priority = -1;
        group.lazy = Some(LazyPreemption { preemptor: preemptor.to_string(), at_ms: now_ms });
        let slots = group.slots();
        let leaves: Vec<LeafNo> = group.leaves().collect();
        for pod in &mut group.pods {
            pod.slot = None;
        }
        self.change(&leaves, LeafEvent::Reprice(Holder { group: number, priority: -1 }));
        for slot in slots {
            self.state.unbind_if_idle(&self.topology, slot);
        }
    }

    /// Cancels the reservations of a preempting group: victims keep their cells, the group is pending again.
    pub(crate) fn cancel(&mut self, number: GroupNo) {
        let victims = self.victims_of(number);
        let Some(group) = self.groups.remove(number) else { return };
        let leaves: Vec<LeafNo> = group.leaves().collect();
        self.change(&leaves, LeafEvent::Cancel(number));
        for slot in group.slots() {
            self.state.unbind_if_idle(&self.topology, slot);
        }
        for victim in victims {
            if !self.is_reserved(victim) {
                self.group_event(victim, GroupEvent::CellsReturned);
            }
        }
        self.generation += 1;
    }

    fn is_reserved(&self, number: GroupNo) -> bool {
        let leaves = self.groups.get(number).into_iter().flat_map(Group::leaves);
        leaves.into_iter().any(|leaf| {
            matches!(self.state.leaf(leaf), LeafState::Reserving { victim, .. } if victim.group == number)
        })
    }

    fn group_event(&mut self, number: GroupNo, event: GroupEvent) {
        if let Some(group) = self.groups.get_mut(number) {
            group.state = group.state.apply(event);
        }
    }

    /// All pods of a group are gone, or a preempting group is withdrawn. Returns the preempting groups that waited
    /// for it and may have their cells now; none if there is no such group.
    pub fn release(&mut self, name: &str) -> Option<Vec<String>> {
        let number = self.groups.number(name)?;
        let state = self.groups.get(number)?.state;
        if state == GroupState::Preempting {
            self.cancel(number);
            return Some(Vec::new());
        }
        let group = self.groups.remove(number)?;
        let leaves: Vec<LeafNo> = group.leaves().collect();
        let heirs = self.give_back(number, &leaves, &group);
        self.generation += 1;
        Some(heirs)
    }

    /// One pod of a group is gone. With gang release, its cells stay with the group until all its pods are gone.
    /// True if that was the last one.
    pub fn release_pod(&mut self, name: &str, pod: usize) -> bool {
        let Some(number) = self.groups.number(name) else { return false };
        let Some(group) = self.groups.get_mut(number) else { return false };
        let Some(entry) = group.pods.get_mut(pod) else { return false };
        entry.state = PodState::Gone;
        if !group.pods.iter().any(|pod| matches!(pod.state, PodState::Live(_))) {
            return self.release(name).is_some();
        }
        if group.request.gang_release_enable || group.state == GroupState::Preempting {
            return false;
        }
        let leaves = std::mem::take(&mut group.pods[pod].leaves);
        let slot = group.pods[pod].slot.take();
        let gone = GroupPod { leaves: leaves.clone(), slot, state: PodState::Gone };
        let part = Group { pods: vec![gone], ..group.clone() };
        self.give_back(number, &leaves, &part);
        if !self.is_reserved(number) {
            self.group_event(number, GroupEvent::CellsReturned);
        }
        self.generation += 1;
        false
    }

    fn give_back(&mut self, number: GroupNo, leaves: &[LeafNo], group: &Group) -> Vec<String> {
        let heirs: BTreeSet<GroupNo> =
            leaves.iter().filter_map(|leaf| self.state.leaf(*leaf).reserver()).map(|by| by.group).collect();
        self.change(leaves, LeafEvent::Gone(number));
        for slot in group.slots() {
            self.state.unbind_if_idle(&self.topology, slot);
        }
        heirs
            .into_iter()
            .filter(|heir| self.victims_of(*heir).is_empty())
            .map(|heir| self.groups.name(heir))
            .collect()
    }

    /// The group saved a checkpoint: an eviction loses only the work after it.
    pub fn set_checkpoint(&mut self, name: &str, at_ms: i64) -> bool {
        let Some(group) = self.groups.number(name).and_then(|number| self.groups.get_mut(number)) else {
            return false;
        };
        group.work_since_ms = group.work_since_ms.max(at_ms);
        true
    }

    /// Applies an event to leaves. A leaf for which the event is impossible stays as it is. Nobody else can have
    /// taken over a group's leaf, so that is a defect, which [`Cells::audit`] reports.
    pub(crate) fn change(&mut self, leaves: &[LeafNo], event: LeafEvent) {
        let changes: Vec<_> = leaves
            .iter()
            .filter_map(|leaf| Some((*leaf, self.state.leaf(*leaf).apply(event).ok()?)))
            .collect();
        debug_assert_eq!(changes.len(), leaves.len(), "{event:?} on {leaves:?}");
        self.state.set_leaves(&self.topology, &changes);
    }
}

//! Groups pod by pod, as HiveD's extender sees them. A pod arrives with its group's specification and gets the
//! first place of its size that no pod has yet. It releases the place when it is deleted.

use crate::{
    cells::Cells,
    decision::{Ask, Decision, PodPlacement, Proposal, Victim},
    group::{GroupState, PodState},
    reason::{Refusal, WaitReason},
    request::{GroupRequest, MAX_PODS, Member, PodGroup, number_refused},
};

/// The answer for one pod.
#[derive(Clone, Debug)]
pub enum PodDecision {
    /// The pod is bound here; the whole group has its cells.
    Bind(PodPlacement),
    /// The group's cells are reserved (in phase Preempting); these victims have to leave first.
    Preempt(Vec<Victim>),
    Wait(WaitReason),
    Refuse(Refusal),
}

impl Cells {
    /// Schedules a pod and commits the result: a bound pod counts as present. `leaf_cells` is the pod's own number
    /// of leaves, which selects its member of the group. A pod that was bound before gets the same answer again.
    pub fn schedule_pod(
        &mut self,
        request: &GroupRequest,
        pod: &str,
        leaf_cells: i64,
        ask: &Ask<'_>,
    ) -> PodDecision {
        if leaf_cells <= 0 {
            let own = request.affinity_group.root.members.first();
            let cell_type = own.map_or("", |member| member.cell_type.as_str());
            return PodDecision::Refuse(number_refused(cell_type, leaf_cells));
        }
        let mut members = Vec::new();
        flatten(&request.affinity_group.root, &mut members);
        if !members.is_empty() && !members.iter().any(|member| member.leaf_cell_number == leaf_cells) {
            let group = request.name().to_string();
            let mut allowed: Vec<i64> = members.iter().map(|member| member.leaf_cell_number).collect();
            allowed.sort_unstable();
            allowed.dedup();
            return PodDecision::Refuse(Refusal::NoSuchMember { group, found: leaf_cells, allowed });
        }
        let sizes = members.iter().flat_map(|member| {
            std::iter::repeat_n(member.leaf_cell_number, usize::try_from(member.pod_number).unwrap_or(0))
        });
        let places: Vec<usize> = sizes
            .take(MAX_PODS as usize)
            .enumerate()
            .filter(|(_, size)| *size == leaf_cells)
            .map(|(place, _)| place)
            .collect();
        self.schedule_pod_at(request, pod, leaf_cells, &places, ask)
    }

    /// As [`Cells::schedule_pod`], for a pod that may have only one of these places of its group.
    pub fn schedule_pod_at(
        &mut self,
        request: &GroupRequest,
        pod: &str,
        leaf_cells: i64,
        places: &[usize],
        ask: &Ask<'_>,
    ) -> PodDecision {
        match self.schedule(request, ask) {
            Decision::Refuse(refusal) => PodDecision::Refuse(refusal),
            Decision::Wait(reason) => PodDecision::Wait(reason),
            Decision::Place(proposal) => self.bind_pod(&proposal, places, pod, leaf_cells),
            Decision::Preempt(proposal) => {
                let victims = proposal.victims.clone();
                if ask.phase == crate::decision::Phase::Preempting
                    && self.commit_with(&proposal, |_| PodState::Expected).is_err()
                {
                    debug_assert!(false, "nothing changes between a proposal and its commit");
                }
                let name = request.name();
                if let Some(group) = self.groups.number(name).and_then(|number| self.groups.get_mut(number)) {
                    group.waiting.insert(pod.to_string());
                }
                PodDecision::Preempt(victims)
            }
        }
    }

    fn bind_pod(&mut self, proposal: &Proposal, places: &[usize], pod: &str, leaf_cells: i64) -> PodDecision {
        let name = proposal.plan.request.name().to_string();
        if self.commit_with(proposal, |_| PodState::Expected).is_err() {
            debug_assert!(false, "nothing changes between a proposal and its commit");
        }
        let Some(group) = self.groups.number(&name).and_then(|number| self.groups.get_mut(number)) else {
            return PodDecision::Refuse(Refusal::GroupNameEmpty);
        };
        let is =
            |place: &&usize, state: &PodState| group.pods.get(**place).is_some_and(|pod| pod.state == *state);
        let own = PodState::Live(pod.to_string());
        let place = places
            .iter()
            .find(|place| is(place, &own))
            .or_else(|| places.iter().find(|place| is(place, &PodState::Expected)))
            .or_else(|| {
                places
                    .iter()
                    .find(|place| is(place, &PodState::Gone) && !group.pods[**place].leaves.is_empty())
            });
        let Some(place) = place.copied() else {
            let declared = u32::try_from(places.len()).unwrap_or(u32::MAX);
            return PodDecision::Refuse(Refusal::TooManyOfMember { group: name, declared, leaf_cells });
        };
        group.waiting.remove(pod);
        group.pods[place].state = own;
        PodDecision::Bind(proposal.placement.pods.get(place).cloned().unwrap_or_default())
    }

    /// A pod is gone. True if its group is gone with it.
    pub fn delete_pod(&mut self, group: &str, pod: &str) -> bool {
        let Some(number) = self.groups.number(group) else { return false };
        let Some(found) = self.groups.get_mut(number) else { return false };
        found.waiting.remove(pod);
        let own = PodState::Live(pod.to_string());
        match found.pods.iter().position(|entry| entry.state == own) {
            Some(place) => self.release_pod(group, place),
            // A preempting group has no bound pods; it ends with the last pod that waits.
            None if found.state == GroupState::Preempting && found.waiting.is_empty() => {
                self.release(group).is_some()
            }
            None => false,
        }
    }
}

/// Members in the order of their pods' numbers.
fn flatten<'a>(group: &'a PodGroup, into: &mut Vec<&'a Member>) {
    into.extend(&group.members);
    for child in &group.child_groups {
        flatten(child, into);
    }
}

//! Which groups each job has in the allocator, and what of it stands in reservations.

use std::collections::BTreeSet;

use fleet_api::{
    cell_places::{CellGroup, CellPlace, LazilyPreempted},
    mutation::{self, Mutation},
};
use fleet_cells::{BoundGroup, GroupRequest, GroupState, LazyPreemption, Placement, PodPlacement, Proposal};
use fleet_quota::JobId;

use super::{CellRoom, ask::CellGroupAsk, place};
use crate::job::{Held, Job};

impl CellRoom {
    /// A committed group is the job's from now on.
    pub(crate) fn note_group(&mut self, id: &JobId, ask: &CellGroupAsk) {
        let name = ask.request.name().to_string();
        self.job_of.insert(name.clone(), id.clone());
        self.of_job.entry(id.clone()).or_default().insert(name, ask.clone());
    }

    fn forget_group(&mut self, name: &str) {
        let Some(id) = self.job_of.remove(name) else { return };
        if let Some(groups) = self.of_job.get_mut(&id) {
            groups.remove(name);
            if groups.is_empty() {
                self.of_job.remove(&id);
            }
        }
    }

    pub(crate) fn release_group(&mut self, name: &str) {
        if let Some(cells) = self.cells.as_mut() {
            cells.release(name);
        }
        self.unrecovered.remove(name);
        self.forget_group(name);
        self.growth += 1;
    }

    /// The job holds and reserves nothing any more.
    pub fn release_job(&mut self, id: &JobId) {
        let names: Vec<String> =
            self.of_job.get(id).into_iter().flat_map(|groups| groups.keys().cloned()).collect();
        for name in names {
            self.release_group(&name);
        }
        self.changed.remove(id);
        self.growing.retain(|place| place.4 != *id);
        self.never.remove(id);
        self.admitted.remove(id);
        self.claims.forget(id);
    }

    /// What a job holds by its reservation: what is not known yet is taken in at the next plan, what its pods have left
    /// is given back.
    pub fn hold(&mut self, job: &Job, held: &Held) {
        for group in &held.cells {
            if self.job_of.contains_key(&group.name) || mutation::is_on(Mutation::CellsForgotten) {
                continue;
            }
            let Some((ask, bound)) = read(group, held, job) else { continue };
            self.note_group(&job.id, &ask);
            self.unrecovered.insert(group.name.clone(), bound);
        }
        if let Some(cells) = self.cells.as_mut()
            && let Some(saved_ms) = job.checkpoint_at_ms.max(job.started_at_ms)
        {
            for name in self.of_job.get(&job.id).into_iter().flat_map(|groups| groups.keys()) {
                cells.set_checkpoint(name, saved_ms);
            }
        }
        self.give_back_ungiven(held);
        self.give_back_ended(job, held);
        // What its reservation says of it may be of before a change that was never written.
        if !held.cells.is_empty()
            && self.unrecovered.is_empty()
            && self.is_on()
            && self.groups_of(&job.id) != held.cells
        {
            self.changed.insert(job.id.clone());
        }
        self.growing.retain(|place| place.4 != job.id);
        if self.missing(job, held).next().is_some() && !held.ending {
            self.growing.extend(place(job));
        }
    }

    /// Groups that a running job does not have and whose pods have not ended.
    pub(crate) fn missing<'j>(
        &'j self,
        job: &'j Job,
        held: &'j Held,
    ) -> impl Iterator<Item = &'j CellGroupAsk> {
        let asks = job.cells.as_ref().filter(|_| self.is_on());
        let known = self.of_job.get(&job.id);
        let groups = asks.into_iter().flat_map(|asks| &asks.groups);
        groups.filter(move |ask| {
            let has = known.is_some_and(|known| known.contains_key(ask.request.name()));
            let preempting = || self.state_of(ask.request.name()) == Some(GroupState::Preempting);
            (!has || preempting())
                && !ask.pods.iter().all(|(component, index)| has_ended(held, component, *index))
        })
    }

    pub(crate) fn state_of(&self, name: &str) -> Option<GroupState> {
        self.cells.as_ref()?.group(name).map(|group| group.state)
    }

    /// Groups whose cells the member could not give are asked for anew.
    fn give_back_ungiven(&mut self, held: &Held) {
        let lacks = |group: &&CellGroup| {
            let mut places = group.places.iter();
            places.any(|place| held.ungiven.contains(&(place.component.clone(), place.index)))
        };
        for group in held.cells.iter().filter(lacks) {
            if self.job_of.contains_key(&group.name) {
                self.release_group(&group.name);
            }
        }
    }

    /// Cells of pods that have ended go to others: with their group, or one by one where the group says so.
    fn give_back_ended(&mut self, job: &Job, held: &Held) {
        let single = job.cells.as_ref().is_some_and(|asks| asks.groups.len() > 1 && !asks.whole);
        let Some(groups) = self.of_job.get(&job.id).filter(|_| !held.ended.is_empty()).cloned() else {
            return;
        };
        for (name, ask) in groups {
            let ended: Vec<usize> = (0..ask.pods.len())
                .filter(|pod| has_ended(held, &ask.pods[*pod].0, ask.pods[*pod].1))
                .collect();
            if single && ended.len() == ask.pods.len() {
                self.release_group(&name);
                self.changed.insert(job.id.clone());
            } else if !ask.request.gang_release_enable && self.unrecovered.is_empty() {
                self.give_back_pods(job, &name, &ended);
            }
        }
    }

    fn give_back_pods(&mut self, job: &Job, name: &str, ended: &[usize]) {
        let Some(cells) = self.cells.as_mut() else { return };
        let Some(placement) = cells.placement(name) else { return };
        for pod in
            ended.iter().filter(|pod| placement.pods.get(**pod).is_some_and(|pod| !pod.leaf_cells.is_empty()))
        {
            // Its last pod ends the group with the job.
            if ended.len() < placement.pods.len() {
                cells.release_pod(name, *pod);
                self.changed.insert(job.id.clone());
                self.growth += 1;
            }
        }
    }

    /// What a commit changed of other jobs.
    pub(crate) fn note_commit(&mut self, proposal: &Proposal) {
        for name in &proposal.lazily_preempted {
            self.changed.extend(self.job_of.get(name).cloned());
        }
        for name in &proposal.cancelled {
            self.forget_group(name);
        }
        if !proposal.cancelled.is_empty() || !proposal.lazily_preempted.is_empty() {
            self.growth += 1;
        }
    }

    /// The cells that a job has now; what it only reserves while victims leave is not its own yet.
    pub fn groups_of(&self, id: &JobId) -> Vec<CellGroup> {
        let Some(cells) = &self.cells else { return Vec::new() };
        let groups = self.of_job.get(id).into_iter().flatten();
        groups.filter_map(|(name, ask)| Some(write(&cells.bound_group(name)?, ask))).collect()
    }

    /// The cells that a job has now, each pod named by its component and index.
    pub fn bound_of(&self, id: &JobId) -> Vec<BoundGroup> {
        let Some(cells) = &self.cells else { return Vec::new() };
        let named = |(name, ask): (&String, &CellGroupAsk)| {
            let mut bound = cells.bound_group(name)?;
            for (pod, (component, index)) in bound.pods.iter_mut().zip(&ask.pods) {
                if pod.is_some() {
                    *pod = Some(format!("{component}-{index}"));
                }
            }
            Some(bound)
        };
        self.of_job.get(id).into_iter().flatten().filter_map(named).collect()
    }

    /// Groups that others still have on cells that the job has reserved, by job.
    pub(crate) fn jobs_of(&self, groups: impl Iterator<Item = String>) -> BTreeSet<JobId> {
        groups.filter_map(|name| self.job_of.get(&name).cloned()).collect()
    }
}

pub(crate) fn has_ended(held: &Held, component: &str, index: i64) -> bool {
    held.ended.get(component).is_some_and(|indices| indices.contains(&index))
}

fn write(bound: &BoundGroup, ask: &CellGroupAsk) -> CellGroup {
    let place = |(placed, (component, index)): (&PodPlacement, &(String, i64))| CellPlace {
        component: component.clone(),
        index: *index,
        node: if placed.leaf_cells.is_empty() { String::new() } else { placed.node.clone() },
        leaf_cells: placed.leaf_cells.clone(),
        cell_type: placed.preassigned_cell_type.clone(),
    };
    CellGroup {
        name: bound.request.name().to_string(),
        virtual_cluster: bound.request.vc.clone(),
        priority: bound.request.priority,
        // Texts, numbers and lists of them are written without fail.
        request: serde_json::to_value(&bound.request).unwrap_or_default(),
        cell_chain: bound.placement.cell_chain.clone(),
        leaf_cell_type: bound.placement.leaf_cell_type.clone(),
        places: bound.placement.pods.iter().zip(&ask.pods).map(place).collect(),
        lazily_preempted: bound
            .lazily_preempted
            .as_ref()
            .map(|lazy| LazilyPreempted { by: lazy.preemptor.clone(), at_ms: lazy.at_ms }),
    }
}

/// A group from its reservation. One that somebody else has written into it is none.
fn read(group: &CellGroup, held: &Held, job: &Job) -> Option<(CellGroupAsk, BoundGroup)> {
    let request: GroupRequest = serde_json::from_value(group.request.clone()).ok()?;
    if request.name() != group.name {
        return None;
    }
    let pod = |place: &CellPlace| PodPlacement {
        node: place.node.clone(),
        leaf_cells: place.leaf_cells.clone(),
        preassigned_cell_type: place.cell_type.clone(),
    };
    let placement = Placement {
        cluster: held.cluster.clone(),
        cell_chain: group.cell_chain.clone(),
        leaf_cell_type: group.leaf_cell_type.clone(),
        pods: group.places.iter().map(pod).collect(),
    };
    let pods = group.places.iter().map(|place| (place.component.clone(), place.index)).collect();
    let lazy = group.lazily_preempted.as_ref();
    let bound = BoundGroup {
        request: request.clone(),
        pods: group
            .places
            .iter()
            .enumerate()
            .map(|(pod, place)| (!place.node.is_empty()).then(|| pod.to_string()))
            .collect(),
        placement,
        lazily_preempted: lazy.map(|lazy| LazyPreemption { preemptor: lazy.by.clone(), at_ms: lazy.at_ms }),
        work_since_ms: job.checkpoint_at_ms.max(job.started_at_ms).unwrap_or(job.enqueued_at_ms),
    };
    Some((CellGroupAsk { request, pods }, bound))
}

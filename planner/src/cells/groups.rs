//! The groups of each job in the allocator, and their form in reservations.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{
    cell_places::{CellGroup, CellPlace, LazilyPreempted, Preempted},
    mutation::{self, Mutation},
};
use fleet_cells::{BoundGroup, GroupRequest, GroupState, LazyPreemption, Placement, PodPlacement, Proposal};
use fleet_quota::JobId;

use super::{CellRoom, ask::CellGroupAsk, place};
use crate::job::{Held, Job};

impl CellRoom {
    /// Records a committed group of the job.
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
        self.leaving.remove(name);
        self.forget_group(name);
        self.growth += 1;
    }

    /// Releases everything that the job holds or reserves.
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

    /// Updates what a job holds from its reservation: unknown groups are recovered in the next plan, cells of
    /// ended pods are released.
    pub fn hold(&mut self, job: &Job, held: &Held) {
        for group in held.cells.iter().filter(|group| has_cells(group)) {
            if self.job_of.contains_key(&group.name) || mutation::is_on(Mutation::CellsForgotten) {
                continue;
            }
            if is_vacated(group, held) {
                self.changed.insert(job.id.clone());
                continue;
            }
            let Some((ask, bound)) = read(group, held, job) else { continue };
            self.note_group(&job.id, &ask);
            self.unrecovered.insert(group.name.clone(), bound);
            self.leaving.extend(group.preempted.clone().map(|preempted| (group.name.clone(), preempted)));
        }
        if let Some(cells) = self.cells.as_mut()
            && let Some(saved_ms) = job.checkpoint_at_ms.max(job.started_at_ms)
        {
            for name in self.of_job.get(&job.id).into_iter().flat_map(|groups| groups.keys()) {
                cells.set_checkpoint(name, saved_ms);
            }
        }
        self.give_back_ungiven(held);
        self.give_back_vacated(job, held);
        self.give_back_ended(job, held);
        // Its reservation may be older than a change that was never written.
        if !held.cells.is_empty()
            && self.unrecovered.is_empty()
            && self.is_on()
            && !held.cells.iter().filter(|group| has_cells(group)).eq(&self.groups_of(&job.id, Some(held)))
        {
            self.changed.insert(job.id.clone());
        }
        self.growing.retain(|place| place.4 != job.id);
        if self.missing(job, held).next().is_some() && !held.ending {
            self.growing.extend(place(job));
        }
    }

    /// Groups that a running job lacks and whose pods have not ended.
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

    /// Groups whose cells the member could not provide are requested again.
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

    /// Preempted groups whose pods are gone release their cells, and wait for others.
    fn give_back_vacated(&mut self, job: &Job, held: &Held) {
        let is_gone = |(name, at_ms): &(&String, &i64)| {
            self.leaving.get(*name).is_some_and(|preempted| preempted.at_ms == **at_ms)
        };
        let gone: Vec<String> = held.vacated.iter().filter(is_gone).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.release_group(&name);
            self.changed.insert(job.id.clone());
        }
    }

    /// Makes these groups of a running job leave their cells, if other pods of the job can run on: its pods started one by
    /// one, and some of them stay. Returns whether they leave; otherwise the whole job must.
    pub(crate) fn preempt_groups(
        &mut self,
        job: &Job,
        victims: &BTreeSet<&str>,
        taker: &JobId,
        now_ms: i64,
    ) -> bool {
        let Some(asks) = job.cells.as_ref().filter(|asks| !asks.whole && asks.groups.len() > 1) else {
            return false;
        };
        let stays = |ask: &CellGroupAsk| {
            let name = ask.request.name();
            !victims.contains(name)
                && !self.leaving.contains_key(name)
                && self.state_of(name).is_some_and(|state| state != GroupState::Preempting)
        };
        if !asks.groups.iter().any(stays) {
            return false;
        }
        for name in victims {
            if !self.leaving.contains_key(*name) {
                let preempted = Preempted { by: taker.to_string(), at_ms: now_ms };
                self.leaving.insert((*name).to_string(), preempted);
                self.changed.insert(job.id.clone());
            }
        }
        true
    }

    /// Releases cells of ended pods: with their group, or one by one if the group allows it.
    fn give_back_ended(&mut self, job: &Job, held: &Held) {
        let single = job.shape.gang.pods() > 1 && job.cells.as_ref().is_some_and(|asks| !asks.whole);
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
            // The last pod ends the group together with the job.
            if ended.len() < placement.pods.len() {
                cells.release_pod(name, *pod);
                self.changed.insert(job.id.clone());
                self.growth += 1;
            }
        }
    }

    /// Applies the effects of a commit on other jobs.
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

    /// The cells that a job has now. Cells that it only reserves while victims leave are not included.
    pub fn groups_of(&self, id: &JobId, held: Option<&Held>) -> Vec<CellGroup> {
        let groups = self.of_job.get(id).into_iter().flatten();
        let told = held.map(Told::of);
        let written = |(name, ask): (&String, &CellGroupAsk)| {
            let group = write(&self.bound_group(name, ask, told.as_ref())?, ask);
            Some(CellGroup { preempted: self.leaving.get(name).cloned(), ..group })
        };
        groups.filter_map(written).collect()
    }

    /// A group as the allocator has it. Cells that are no longer in the configuration stay with their pods,
    /// as recorded, until the pods have ended.
    fn bound_group(&self, name: &str, ask: &CellGroupAsk, told: Option<&Told<'_>>) -> Option<BoundGroup> {
        let mut bound = self.cells.as_ref()?.bound_group(name)?;
        if let Some(told) = told {
            told.complete(name, ask, &mut bound);
        }
        Some(bound)
    }

    /// Groups that lost cells to a configuration are recovered again from the reservations: the new
    /// configuration may have these cells.
    pub(crate) fn forget_incomplete(&mut self) {
        let Some(cells) = &self.cells else { return };
        let lacks = |name: &&String| {
            cells
                .placement(name)
                .is_some_and(|placed| placed.pods.iter().any(|pod| pod.leaf_cells.is_empty()))
        };
        let names: Vec<String> = self.job_of.keys().filter(lacks).cloned().collect();
        for name in names {
            self.release_group(&name);
        }
    }

    /// The cells that a job has now, each pod named by its component and index.
    pub fn bound_of(&self, id: &JobId, held: Option<&Held>) -> Vec<BoundGroup> {
        let told = held.map(Told::of);
        let named = |(name, ask): (&String, &CellGroupAsk)| {
            let mut bound = self.bound_group(name, ask, told.as_ref())?;
            for (pod, (component, index)) in bound.pods.iter_mut().zip(&ask.pods) {
                if pod.is_some() {
                    *pod = Some(format!("{component}-{index}"));
                }
            }
            Some(bound)
        };
        self.of_job.get(id).into_iter().flatten().filter_map(named).collect()
    }

    /// Jobs, by their groups, that still use cells which the job has reserved.
    pub(crate) fn jobs_of(&self, groups: impl Iterator<Item = String>) -> BTreeSet<JobId> {
        groups.filter_map(|name| self.job_of.get(&name).cloned()).collect()
    }
}

/// What a job holds by its reservation, whose groups are found by their names: a job may have as many groups as pods.
struct Told<'h> {
    held: &'h Held,
    groups: BTreeMap<&'h str, &'h CellGroup>,
}

impl<'h> Told<'h> {
    fn of(held: &'h Held) -> Self {
        let mut groups = BTreeMap::new();
        for group in &held.cells {
            groups.entry(group.name.as_str()).or_insert(group);
        }
        Self { held, groups }
    }

    /// Gives each pod without cells those that it has by the reservation, unless it is over.
    fn complete(&self, name: &str, ask: &CellGroupAsk, bound: &mut BoundGroup) {
        let Some(group) = self.groups.get(name) else { return };
        if bound.placement.pods.iter().all(|pod| !pod.leaf_cells.is_empty()) {
            return;
        }
        let mut places: BTreeMap<(&str, i64), &CellPlace> = BTreeMap::new();
        for place in &group.places {
            places.entry((place.component.as_str(), place.index)).or_insert(place);
        }
        for (number, (component, index)) in ask.pods.iter().enumerate() {
            let Some(pod) = bound.placement.pods.get_mut(number).filter(|pod| pod.leaf_cells.is_empty())
            else {
                continue;
            };
            let own = places.get(&(component.as_str(), *index)).filter(|place| !place.node.is_empty());
            let Some(place) = own else { continue };
            let is_over = has_ended(self.held, component, *index)
                || self.held.ungiven.contains(&(component.clone(), *index));
            if !is_over {
                *pod = place_of(place);
                if let Some(name) = bound.pods.get_mut(number) {
                    name.get_or_insert_with(|| number.to_string());
                }
            }
        }
    }
}

pub(crate) fn has_ended(held: &Held, component: &str, index: i64) -> bool {
    held.ended.get(component).is_some_and(|indices| indices.contains(&index))
}

/// Not one whose pods have all ended.
pub(crate) fn has_cells(group: &CellGroup) -> bool {
    group.places.iter().any(|place| !place.node.is_empty())
}

/// The member reports that the pods of this preempted group are gone.
fn is_vacated(group: &CellGroup, held: &Held) -> bool {
    group.preempted.as_ref().is_some_and(|preempted| held.vacated.get(&group.name) == Some(&preempted.at_ms))
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
        // Strings, numbers and lists of them always serialize.
        request: serde_json::to_value(&bound.request).unwrap_or_default(),
        cell_chain: bound.placement.cell_chain.clone(),
        leaf_cell_type: bound.placement.leaf_cell_type.clone(),
        places: bound.placement.pods.iter().zip(&ask.pods).map(place).collect(),
        lazily_preempted: bound
            .lazily_preempted
            .as_ref()
            .map(|lazy| LazilyPreempted { by: lazy.preemptor.clone(), at_ms: lazy.at_ms }),
        preempted: None,
    }
}

fn place_of(place: &CellPlace) -> PodPlacement {
    PodPlacement {
        node: place.node.clone(),
        leaf_cells: place.leaf_cells.clone(),
        preassigned_cell_type: place.cell_type.clone(),
    }
}

/// A group from its reservation; `None` if another writer put it there.
fn read(group: &CellGroup, held: &Held, job: &Job) -> Option<(CellGroupAsk, BoundGroup)> {
    let request: GroupRequest = serde_json::from_value(group.request.clone()).ok()?;
    if request.name() != group.name {
        return None;
    }
    let placement = Placement {
        cluster: held.cluster.clone(),
        cell_chain: group.cell_chain.clone(),
        leaf_cell_type: group.leaf_cell_type.clone(),
        pods: group.places.iter().map(place_of).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Counted;

    /// Each pod looked for among all places takes minutes.
    #[test]
    fn pods_of_a_large_group_get_their_recorded_places_without_a_search() {
        const PODS: i64 = 100_000;
        let name = "default/large";
        let request = GroupRequest::new(name, "vc", 0, PODS, 1);
        let place = |index: i64| CellPlace {
            component: "train".to_owned(),
            index,
            node: if index == 7 { String::new() } else { format!("n{index}") },
            leaf_cells: vec![0],
            cell_type: "NODE".to_owned(),
        };
        let group = |name: &str, places: Vec<CellPlace>| CellGroup {
            name: name.to_owned(),
            places,
            ..CellGroup::default()
        };
        let mut held = Held::here("east", Counted::ByPlanner);
        // Of two of one name the first counts.
        held.cells = vec![group(name, (0..PODS).rev().map(place).collect()), group(name, Vec::new())];
        held.ended = BTreeMap::from([("train".to_owned(), BTreeSet::from([1]))]);
        held.ungiven = BTreeSet::from([("train".to_owned(), 2)]);
        let ask = CellGroupAsk {
            request: request.clone(),
            pods: (0..PODS).map(|index| ("train".to_owned(), index)).collect(),
        };
        let mut pods = vec![PodPlacement::default(); 100_000];
        pods[0] = PodPlacement { node: "other".to_owned(), leaf_cells: vec![5], ..PodPlacement::default() };
        let mut bound = BoundGroup {
            request,
            placement: Placement { pods, ..Placement::default() },
            pods: vec![None; 100_000],
            lazily_preempted: None,
            work_since_ms: 0,
        };
        let told = Told::of(&held);
        told.complete("default/other", &ask, &mut bound);
        assert_eq!(bound.placement.pods[99_999].node, "");
        told.complete(name, &ask, &mut bound);
        let nodes: Vec<&str> = bound.placement.pods[..9].iter().map(|pod| pod.node.as_str()).collect();
        assert_eq!(nodes, ["other", "", "", "n3", "n4", "n5", "n6", "", "n8"]);
        assert_eq!(bound.placement.pods[99_999].node, "n99999");
        assert_eq!((bound.pods[2].as_deref(), bound.pods[3].as_deref()), (None, Some("3")));
    }
}

//! Chooses a member with capacity for a gang, or explains why there is none.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_placement::{Candidate, ClusterOrder, choose_cluster};
use fleet_policies::{
    affinity::{self, ClusterFacts, Unfit},
    reason::Reason,
};
use fleet_quota::{ClusterName, JobId, Places, WaitingJob};
use fleet_resources::ResourceName;

use crate::{
    entry::JobEntry,
    job::{Job, JobPhase, JobShape, Waiting},
    learnt::Learnt,
    refusals::Refusals,
    room::{Room, Rooms},
};

/// Clusters that a shape may use, with the affinity group that admits each; or why there is none.
type Open = Result<Vec<(String, usize)>, String>;

/// Cache: the clusters that each shape may use. Valid until the facts about a member change.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenClusters {
    facts_version: u64,
    of_shape: BTreeMap<u64, Open>,
}

/// Most shapes cached; others are computed again.
const SHAPES_KEPT: usize = 4096;

impl OpenClusters {
    pub fn of<'s>(&'s mut self, rooms: &Rooms, shape: &JobShape) -> &'s Open {
        if self.facts_version != rooms.facts_version || self.of_shape.len() > SHAPES_KEPT {
            self.of_shape.clear();
            self.facts_version = rooms.facts_version;
        }
        self.of_shape.entry(shape.id).or_insert_with(|| open(rooms, shape))
    }
}

fn open(rooms: &Rooms, shape: &JobShape) -> Open {
    let facts: Vec<ClusterFacts> = rooms.iter().map(|(_, room)| room.facts.clone()).collect();
    let groups = affinity::admitted_groups(&shape.placement, &facts, &[]);
    let mut open = Vec::new();
    for (at, group) in groups.into_iter().enumerate() {
        let serving =
            |name: &String| rooms.get(name).is_some_and(|room| room.serves(&shape.api_version, &shape.kind));
        open.extend(group.clusters.into_iter().filter(serving).map(|name| (name, at)));
    }
    if open.is_empty() {
        let why = |facts: &ClusterFacts| {
            format!("{}: {}", facts.name, unfit_text(affinity::unfit(&shape.placement, facts)))
        };
        return Err(facts.iter().map(why).collect::<Vec<_>>().join("; "));
    }
    Ok(open)
}

/// Answers the quota planner's questions about places, and records why jobs found none.
pub(super) struct ClusterPlaces<'a> {
    pub rooms: &'a mut Rooms,
    pub open: &'a mut OpenClusters,
    pub jobs: &'a BTreeMap<JobId, JobEntry>,
    pub learnt: &'a Learnt,
    pub now_ms: i64,
    pub no_place: BTreeMap<JobId, Waiting>,
}

impl ClusterPlaces<'_> {
    /// Takes capacity for the job in the best cluster that has it.
    pub fn place(&mut self, id: &JobId, avoid: &BTreeSet<ClusterName>) -> Option<String> {
        let entry = self.jobs.get(id)?;
        let mut finder = Finder { rooms: self.rooms, open: self.open, now_ms: self.now_ms };
        match finder.find(&entry.job, &entry.refusals, avoid) {
            Ok(cluster) => {
                self.no_place.remove(id);
                Some(cluster)
            }
            Err(waiting) => {
                self.no_place.insert(id.clone(), waiting);
                None
            }
        }
    }

    fn fits(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId], settled: bool) -> bool {
        let known = self.jobs;
        let shape_of = |id: &JobId| Some(Arc::clone(&known.get(id)?.job.shape));
        self.rooms.fits_without(cluster.as_str(), jobs, &shape_of, gone, settled)
    }
}

impl Places for ClusterPlaces<'_> {
    fn take(&mut self, job: &WaitingJob, avoid: &BTreeSet<ClusterName>) -> Option<ClusterName> {
        self.place(&job.id, avoid).map(|name| ClusterName::new(&name))
    }

    fn put_back(&mut self, job: &WaitingJob, cluster: &ClusterName) {
        self.rooms.give_back(cluster.as_str(), &job.id);
    }

    fn could_hold(&mut self, job: &WaitingJob) -> Vec<ClusterName> {
        let Some(JobEntry { job, refusals, .. }) = self.jobs.get(&job.id) else { return Vec::new() };
        // No victim is chosen, and no capacity is reserved, in a cluster that would not be tried.
        if job.blocked.is_some() || refusals.is_held_back(self.now_ms) {
            return Vec::new();
        }
        let Ok(ranked) = ranked(self.rooms, self.open, job) else { return Vec::new() };
        let rooms = &mut *self.rooms;
        let holds = |name: &&String| {
            !refusals.tried.contains(*name)
                && rooms.get_mut(name).is_some_and(|room| room.holds_when_empty(&job.shape))
        };
        ranked.iter().filter(holds).map(|name| ClusterName::new(name)).collect()
    }

    fn fits_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool {
        self.fits(jobs, cluster, gone, false)
    }

    fn will_fit_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool {
        self.fits(jobs, cluster, gone, true)
    }

    fn cluster_of(&self, job: &JobId) -> Option<ClusterName> {
        match &self.jobs.get(job)?.job.phase {
            JobPhase::Holds(held) => Some(ClusterName::new(&held.cluster)),
            JobPhase::Waits => None,
        }
    }

    fn running_in(&self, cluster: &ClusterName) -> Vec<JobId> {
        self.rooms.running_in(cluster.as_str())
    }

    fn short_in(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> Vec<ResourceName> {
        let asked = jobs.iter().filter_map(|job| Some(&self.jobs.get(&job.id)?.job.shape.total));
        self.rooms.get(cluster.as_str()).map_or(Vec::new(), |room| room.short_of(asked, gone))
    }

    fn ends_at_ms(&self, job: &JobId) -> Option<i64> {
        self.learnt.ends_at_ms(&self.jobs.get(job)?.job, self.now_ms)
    }

    fn has_outrun(&self, job: &JobId) -> bool {
        self.jobs.get(job).is_some_and(|entry| self.learnt.has_outrun(&entry.job, self.now_ms))
    }

    fn lost_work_ms(&self, job: &JobId) -> i64 {
        self.jobs.get(job).map_or(0, |entry| entry.job.lost_work_ms(self.now_ms))
    }

    fn ran_ms(&self, job: &JobId) -> i64 {
        self.jobs.get(job).map_or(0, |entry| entry.job.ran_ms(self.now_ms))
    }
}

/// The clusters that a job may use, best first; or why there is none.
fn ranked(rooms: &Rooms, open: &mut OpenClusters, job: &Job) -> Result<Vec<String>, Waiting> {
    let open = open.of(rooms, &job.shape).as_ref().map_err(|why| {
        // It is told to all jobs of this shape, so it names none.
        Waiting::new(Reason::ClusterNotAdmitted, format!("no cluster admits it: {why}"))
    })?;
    let candidate = |(name, group): &'_ (String, usize)| {
        let (name, room) = rooms.get_key_value(name).filter(|(name, _)| !job.barred.contains_key(*name))?;
        Some(Candidate {
            name,
            group: *group,
            avoided: job.avoided.contains(name),
            current: false,
            allocatable: &room.allocatable,
            free: &room.free,
        })
    };
    let candidates: Vec<Candidate<'_>> = open.iter().filter_map(candidate).collect();
    if candidates.is_empty()
        && let Some(waiting) = open.iter().find_map(|(name, _)| job.barred.get(name))
    {
        return Err(waiting.clone());
    }
    let chosen = choose_cluster(&candidates, &job.shape.total, ClusterOrder::Spread);
    Ok(chosen.into_iter().map(|candidate| candidate.name.to_string()).collect())
}

struct Finder<'a> {
    rooms: &'a mut Rooms,
    open: &'a mut OpenClusters,
    now_ms: i64,
}

impl Finder<'_> {
    fn find(
        &mut self,
        job: &Job,
        refusals: &Refusals,
        avoid: &BTreeSet<ClusterName>,
    ) -> Result<String, Waiting> {
        if let Some(waiting) = &job.blocked {
            return Err(waiting.clone());
        }
        if refusals.is_held_back(self.now_ms) {
            return Err(Waiting::new(Reason::ReservationRefused, refusals.message.clone()));
        }
        if self.rooms.is_empty() {
            let message = "no member cluster has reported its capacity yet";
            return Err(Waiting::new(Reason::ClusterNotReady, message));
        }
        let ranked = ranked(self.rooms, self.open, job)?;
        // In the order of names: what is told depends on what clusters lack, not on which was tried first.
        let mut short = BTreeMap::new();
        let mut tried = false;
        for name in &ranked {
            if refusals.tried.contains(name) {
                tried = true;
                continue;
            }
            if avoid.iter().any(|avoided| avoided.as_str() == name) {
                short.insert(name, "its free capacity is reserved for another job".to_owned());
                continue;
            }
            let Some(room) = self.rooms.get_mut(name) else { continue };
            match room.take(&job.id, &job.shape) {
                Ok(()) => return Ok(name.clone()),
                Err(sentence) => drop(short.insert(name, sentence)),
            }
        }
        if tried {
            return Err(Waiting::new(Reason::ReservationRefused, refusals.message.clone()));
        }
        let rooms = &mut *self.rooms;
        let mut holds = ranked
            .iter()
            .filter(|name| rooms.get_mut(name).is_some_and(|room| room.holds_when_empty(&job.shape)));
        if holds.next().is_none() {
            return Err(too_large(&job.shape, ranked.iter()));
        }
        let clusters = if ranked.len() == 1 { "cluster" } else { "clusters" };
        let short: Vec<String> = short.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        let message =
            format!("0 of {} {clusters} can hold the whole job now: {}", ranked.len(), short.join("; "));
        Err(Waiting::new(Reason::NoClusterFits, message))
    }
}

/// That no cluster which the job's policy admits could ever hold the job, whatever runs there and whether or not it is
/// open now. `None` if one could, or if none is known.
pub(super) fn exceeds_every_cluster(rooms: &mut Rooms, shape: &JobShape) -> Option<Waiting> {
    let admits = |room: &Room| {
        room.serves(&shape.api_version, &shape.kind)
            && affinity::unfit(&shape.placement, &room.facts) != Some(Unfit::Affinity)
    };
    let names: Vec<String> =
        rooms.iter().filter(|(_, room)| admits(room)).map(|(name, _)| name.clone()).collect();
    let holds = |name: &String| rooms.get_mut(name).is_some_and(|room| room.holds_when_empty(shape));
    let exceeds = !names.is_empty() && !names.iter().any(holds);
    exceeds.then(|| too_large(shape, names.iter()))
}

fn too_large<'n>(shape: &JobShape, clusters: impl Iterator<Item = &'n String>) -> Waiting {
    let names: BTreeSet<&str> = clusters.map(String::as_str).collect();
    let message = format!(
        "requests {} in {}; none of {} could hold it even if empty",
        shape.total,
        components_text(shape),
        names.into_iter().collect::<Vec<_>>().join(", ")
    );
    Waiting::new(Reason::ExceedsEveryCluster, message)
}

pub fn unfit_text(unfit: Option<Unfit>) -> String {
    match unfit {
        None => "does not serve the kind".to_string(),
        Some(Unfit::NotReady) => "not ready".to_string(),
        Some(Unfit::Cordoned) => "cordoned".to_string(),
        Some(Unfit::Taint(taint)) => format!("taint {} is not tolerated", taint.key),
        Some(Unfit::Affinity) => "excluded by the policy's affinity".to_string(),
    }
}

/// `[{master 1} {worker 2}]`.
fn components_text(shape: &JobShape) -> String {
    let each: Vec<String> =
        shape.gang.components.iter().map(|c| format!("{{{} {}}}", c.name, c.replicas)).collect();
    format!("[{}]", each.join(" "))
}

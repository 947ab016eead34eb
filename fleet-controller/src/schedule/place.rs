//! Finding a member whose room holds one gang, or saying why there is none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fleet_placement::{Candidate, ClusterOrder, choose_cluster};
use fleet_policies::{
    affinity::{self, Unfit},
    reason::Reason,
};
use fleet_quota::{ClusterName, JobId, Places, WaitingJob};
use jiff::Timestamp;

use super::{earliest, key_of};
use crate::{
    binding::BindingEntry,
    dispatch::{self, Avoid, Waiting},
    manifests,
    options::Options,
    room::Rooms,
    world::{Key, World},
};

/// A job that was refused lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals {
    /// Clusters that refused it since it was last held back.
    pub tried: BTreeSet<String>,
    pub rounds: u32,
    pub until: Option<Timestamp>,
    pub message: String,
}

/// Finds a member for one gang and takes the room there.
pub(super) struct Placer<'a> {
    pub world: &'a World,
    pub rooms: &'a mut Rooms,
    pub refusals: &'a mut BTreeMap<Key, Refusals>,
    pub options: &'a Options,
    pub now: Timestamp,
    /// Why the jobs that were looked at found no place.
    pub no_place: HashMap<Key, Waiting>,
    pub placed: Vec<(Key, String)>,
    pub wake: Option<Timestamp>,
}

/// The planner may take room only: places of running jobs are not counted apart yet, so that nothing is
/// taken from them and no room is claimed.
impl Places for Placer<'_> {
    fn take(&mut self, job: &WaitingJob, _avoid: &BTreeSet<ClusterName>) -> Option<ClusterName> {
        let key = key_of(&job.id);
        let entry = self.world.bindings.get(&key)?;
        self.place(&key, entry).ok()?;
        self.placed.last().map(|(_, cluster)| ClusterName::new(cluster))
    }

    fn put_back(&mut self, _: &WaitingJob, _: &ClusterName) {}

    fn could_hold(&mut self, _: &WaitingJob) -> Vec<ClusterName> {
        Vec::new()
    }

    fn fits_without(&mut self, _: &WaitingJob, _: &ClusterName, _: &[JobId]) -> bool {
        false
    }

    fn cluster_of(&self, _: &JobId) -> Option<ClusterName> {
        None
    }

    fn running_in(&self, _: &ClusterName) -> Vec<JobId> {
        Vec::new()
    }

    fn ends_at_ms(&self, _: &JobId) -> Option<i64> {
        None
    }

    fn lost_work_ms(&self, _: &JobId) -> i64 {
        0
    }
}

impl Placer<'_> {
    pub fn place(&mut self, key: &Key, entry: &BindingEntry) -> Result<(), Waiting> {
        let found = self.find(key, entry);
        match found {
            Ok(cluster) => {
                self.placed.push((key.clone(), cluster));
                Ok(())
            }
            Err(waiting) => {
                self.no_place.insert(key.clone(), waiting.clone());
                Err(waiting)
            }
        }
    }

    fn find(&mut self, key: &Key, entry: &BindingEntry) -> Result<String, Waiting> {
        let wait = |reason: Reason, message: String| Err(Waiting { reason, message });
        if entry.object.spec.suspension.as_ref().is_some_and(|s| s.dispatching == Some(true)) {
            return wait(Reason::Suspended, "the policy suspends dispatching".to_string());
        }
        let taken = match dispatch::older_runs(self.world, key, entry, self.now) {
            Ok(taken) => taken,
            Err(message) => return wait(Reason::Backoff, message),
        };
        if let Some(missing) = manifests::missing_dependencies(self.world, entry) {
            return wait(Reason::WaitingForDependencies, missing);
        }
        if let Some(until) = self.refusals.get(key).and_then(|refusals| refusals.until)
            && self.now < until
        {
            self.wake = earliest(self.wake, Some(until));
            let message = self.refusals.get(key).map(|refusals| refusals.message.clone()).unwrap_or_default();
            return wait(Reason::ReservationRefused, message);
        }
        if self.rooms.is_empty() {
            return wait(
                Reason::ClusterNotReady,
                "no member cluster has reported its capacity yet".to_string(),
            );
        }
        let candidates = self.candidates(key, entry, &taken)?;
        let mut short = Vec::new();
        let mut tried = false;
        for candidate in choose_cluster(&candidates, &entry.total, ClusterOrder::Spread) {
            if self.refusals.get(key).is_some_and(|refusals| refusals.tried.contains(&candidate.name)) {
                tried = true;
                continue;
            }
            let Some(room) = self.rooms.get_mut(&candidate.name) else { continue };
            match room.take(&entry.gang) {
                Ok(()) => return Ok(candidate.name.clone()),
                Err(sentence) => short.push(format!("{}: {sentence}", candidate.name)),
            }
        }
        if tried {
            return self.hold_back(key);
        }
        let ever = candidates.iter().any(|candidate| {
            self.rooms.get_mut(&candidate.name).is_some_and(|room| room.holds_when_empty(&entry.gang))
        });
        if !ever {
            let names: Vec<&str> = candidates.iter().map(|c| c.name.as_str()).collect();
            let message = format!(
                "asks for {} in {}; none of {} could hold it if nothing else ran there",
                entry.total,
                components_text(entry),
                names.join(", ")
            );
            return wait(Reason::ExceedsEveryCluster, message);
        }
        wait(
            Reason::NoClusterFit,
            format!("0 of {} clusters can hold the whole job now: {}", candidates.len(), short.join("; ")),
        )
    }

    /// Every candidate that seemed to have room refused: a pause, then all of them again.
    fn hold_back(&mut self, key: &Key) -> Result<String, Waiting> {
        let refusals = self.refusals.entry(key.clone()).or_default();
        let factor = 1u32 << refusals.rounds.min(16);
        let pause = (self.options.backoff_base * factor).min(self.options.backoff_max);
        let until =
            self.now + jiff::SignedDuration::try_from(pause).unwrap_or(jiff::SignedDuration::from_secs(1));
        refusals.rounds += 1;
        refusals.tried.clear();
        refusals.until = Some(until);
        self.wake = earliest(self.wake, Some(until));
        Err(Waiting { reason: Reason::ReservationRefused, message: refusals.message.clone() })
    }

    fn candidates(
        &mut self,
        key: &Key,
        entry: &BindingEntry,
        taken: &BTreeSet<String>,
    ) -> Result<Vec<Candidate>, Waiting> {
        let reference = &entry.object.spec.resource;
        let facts: Vec<affinity::ClusterFacts> =
            self.rooms.iter().map(|(_, room)| room.facts.clone()).collect();
        let groups = affinity::admitted_groups(&entry.placement, &facts, &[]);
        let mut candidates = Vec::new();
        let mut kept_off = None;
        for (group, names) in groups.iter().enumerate() {
            for name in &names.clusters {
                let Some((_, room)) = self.rooms.iter().find(|(known, _)| *known == name) else { continue };
                if !room.serves(&reference.api_version, &reference.kind) {
                    continue;
                }
                if taken.contains(name) {
                    let message = format!("an older run of this name still stands in {name}");
                    kept_off.get_or_insert(Waiting { reason: Reason::Backoff, message });
                    continue;
                }
                let avoid = dispatch::avoidance(entry, name, self.options, self.now);
                if let Avoid::Until(until) = avoid {
                    self.wake = earliest(self.wake, Some(until));
                    let message = format!("an object of that name in {name} is not Fleet's");
                    kept_off.get_or_insert(Waiting { reason: Reason::NameTaken, message });
                    continue;
                }
                candidates.push(Candidate {
                    name: name.clone(),
                    group,
                    avoided: avoid == Avoid::Last,
                    current: false,
                    allocatable: room.allocatable.clone(),
                    free: room.free.clone(),
                });
            }
        }
        if let Some(waiting) = kept_off.filter(|_| candidates.is_empty()) {
            return Err(waiting);
        }
        if candidates.is_empty() {
            let why: Vec<String> = facts
                .iter()
                .map(|facts| {
                    format!("{}: {}", facts.name, unfit_text(affinity::unfit(&entry.placement, facts)))
                })
                .collect();
            let message = format!("no cluster is open to {}/{}: {}", key.0, reference.name, why.join("; "));
            return Err(Waiting { reason: Reason::ClusterNotAdmitted, message });
        }
        Ok(candidates)
    }
}

pub(super) fn unfit_text(unfit: Option<Unfit>) -> String {
    match unfit {
        None => "does not serve the kind".to_string(),
        Some(Unfit::NotReady) => "not ready".to_string(),
        Some(Unfit::Cordoned) => "cordoned".to_string(),
        Some(Unfit::Taint(taint)) => format!("taint {} is not tolerated", taint.key),
        Some(Unfit::Affinity) => "kept off by the policy's affinity".to_string(),
    }
}

/// `[{master 1} {worker 2}]`.
pub(super) fn components_text(entry: &BindingEntry) -> String {
    let each: Vec<String> =
        entry.object.spec.components.iter().map(|c| format!("{{{} {}}}", c.name, c.replicas)).collect();
    format!("[{}]", each.join(" "))
}

//! The planner's inputs, from the objects of the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use fleet_api::mutation::{self, Mutation};
use fleet_api::{
    Reservation,
    cell_answers::ungiven,
    names,
    reservation::{ReservationPhase, ReservationStatus},
};
use fleet_policies::{reason::Reason, workload};
use jiff::Timestamp;

use super::{
    Scheduler,
    facts::{cluster_of, is_next, job_id},
    is_held_back,
};
use crate::{
    asked,
    binding::BindingEntry,
    dispatch::{self, Avoid},
    forms,
    intents::Intents,
    manifests,
    planner::{self, Counted, Held, Job, JobPhase, JobShape, Waiting},
    queue_place, run_time, unqueued,
    world::{Key, Object, World},
};

/// Policies times objects that are compared on each look; the results of more are kept.
const SEEN_AT_ONCE: usize = 1_000;
/// Number of shapes at which unused ones are dropped.
const SHAPES_SWEPT_AT: usize = 1024;

impl Scheduler {
    /// The job of a binding; `None` if it places nothing: gone, finished, or no gang.
    pub(super) fn job(&mut self, world: &World, intents: &Intents, key: &Key, now: Timestamp) -> Option<Job> {
        let entry = world.bindings.get(key).filter(|entry| entry.is_gang())?;
        let object = world.bound_object(entry);
        let goes = world.is_going(entry);
        let is_over = goes || (entry.is_finished() && !mutation::is_on(Mutation::QuotaKept));
        if is_over && !runs_on(world, key, entry, goes) {
            return None;
        }
        let phase = self.phase(world, key, entry);
        // An ended job gets nothing new, nor one whose object is not known yet.
        if (is_over || object.is_none()) && phase == JobPhase::Waits {
            return None;
        }
        let quota_labels = object.map(|object| queue_place::quota_labels(&object.labels)).unwrap_or_default();
        let mut ask = match phase {
            JobPhase::Waits => self.obstacles(world, intents, key, entry, now),
            JobPhase::Holds(_) => Obstacles::default(),
        };
        let cells = match object.map(|object| self.cell_job(world, key, entry, object)).transpose() {
            Ok(cells) => cells.flatten(),
            Err(why) => {
                ask.blocked = ask.blocked.or(Some(why).filter(|_| phase == JobPhase::Waits));
                None
            }
        };
        let cells = match &phase {
            JobPhase::Waits => cells,
            JobPhase::Holds(held) => planner::as_admitted(cells, held, self.admits_run(key, held)),
        };
        // Before it is bound, a job counts where it asks: its unit may still name the leaf of an earlier run. Bindings of
        // earlier releases name no leaf.
        let unit = || world.units.get(&(key.0.clone(), entry.unit_name()))?.spec.queue.clone();
        let holds = phase != JobPhase::Waits && entry.is_bound();
        let last_leaf = holds.then(|| entry.object.spec.queue.clone().or_else(unit)).flatten();
        let run = entry.object.status.as_ref().and_then(|status| status.run.as_ref());
        let run = run.filter(|run| run.epoch == entry.object.spec.epoch);
        Some(Job {
            id: job_id(key),
            shape: self.shape(entry),
            quota_labels,
            last_leaf,
            queued: entry.is_suspended(),
            left_queue: entry.has_left_queue(),
            priority: i64::from(entry.object.spec.priority),
            preemptible: unqueued::is_preemptible(entry, object),
            preemptions: dispatch::preemptions(entry),
            enqueued_at_ms: manifests::complete_ms(world, entry).max(entry.place_ms()),
            avoided: ask.avoided,
            barred: ask.barred,
            blocked: ask.blocked,
            phase,
            runtime_ms: run_time::of_job(entry, object, manifests::running(world, key, entry)),
            started_at_ms: run.and_then(|run| time_ms(run.started_at.as_deref()?)),
            checkpoint_at_ms: object
                .and_then(|object| annotation(object, names::LAST_CHECKPOINT_ANNOTATION))
                .and_then(time_ms),
            cells,
        })
    }

    /// What keeps a waiting job from being placed, other than quota and capacity, in all or in some clusters.
    fn obstacles(
        &mut self,
        world: &World,
        intents: &Intents,
        key: &Key,
        entry: &BindingEntry,
        now: Timestamp,
    ) -> Obstacles {
        let mut found = Obstacles::default();
        if is_held_back(entry) {
            found.blocked = Some(Waiting::new(Reason::Suspended, "the policy suspends dispatching"));
            return found;
        }
        if dispatch::waits_for_resume(world, entry) {
            found.blocked = Some(Waiting::new(Reason::Suspended, dispatch::WAITS_FOR_RESUME));
            return found;
        }
        if !unqueued::is_told(world, entry) {
            found.blocked = Some(Waiting::new(Reason::Queuing, "the quota tree makes it queue"));
            return found;
        }
        match dispatch::older_runs(world, intents, key, entry, now) {
            Err(message) => found.blocked = Some(Waiting::new(Reason::Backoff, message)),
            Ok(taken) => {
                for cluster in taken {
                    let message = format!("an older run of this name still exists in {cluster}");
                    found.barred.insert(cluster, Waiting::new(Reason::Backoff, message));
                }
            }
        }
        if let Some(missing) = manifests::missing_dependencies(world, entry) {
            found.blocked = Some(Waiting::new(Reason::WaitingForDependencies, missing));
        }
        if let Some(unsendable) = manifests::unsendable(world, entry) {
            found.blocked = Some(unsendable);
        }
        self.requests_obstacles(world, key, entry, &mut found);
        for (name, cluster) in &world.clusters {
            let limit = dispatch::taints::limit(cluster, &entry.placement);
            let Some(limit) = limit.filter(|limit| limit.is_tolerated) else { continue };
            if now < limit.until {
                self.rereads.insert((limit.until, key.clone()));
                continue;
            }
            // A new run would be evicted at once.
            let message = format!("taint {} of {name} is no longer tolerated", limit.taint);
            found.barred.insert(name.clone(), Waiting::new(Reason::ClusterNotAdmitted, message));
        }
        let time = |ms| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
        let attempts = entry.object.status.iter().flat_map(|status| &status.attempts);
        let clusters: BTreeSet<&String> = attempts.map(|attempt| &attempt.cluster).collect();
        for cluster in clusters {
            match dispatch::avoidance(entry, cluster, &self.options, now) {
                Avoid::No => {}
                Avoid::Last { until_ms } => {
                    self.rereads.insert((time(until_ms), key.clone()));
                    found.avoided.insert(cluster.clone());
                }
                Avoid::Until { until_ms, why } => {
                    self.rereads.insert((time(until_ms), key.clone()));
                    found.barred.insert(cluster.clone(), Waiting::new(why.reason, why.message));
                }
            }
        }
        found
    }

    /// What keeps a waiting job from being placed because of what it requests, before or after overrides.
    fn requests_obstacles(&mut self, world: &World, key: &Key, entry: &BindingEntry, found: &mut Obstacles) {
        let Some(object) = world.bound_object(entry) else { return };
        let put_off = || {
            let message = "override policies of its namespace are being applied";
            Waiting::new(Reason::Edited, message)
        };
        let policies = forms::policies(world, entry.namespace());
        if policies > 0 && !self.forms.affords(key) {
            found.blocked = Some(put_off());
            return;
        }
        if !self.forms.is_current(world, entry, object) {
            let message = "the job was changed; its new requests are being counted";
            found.blocked = Some(Waiting::new(Reason::Edited, message));
            return;
        }
        if policies == 0 {
            return;
        }
        let counted = &entry.object.spec.components;
        let parts = manifests::parts(world, entry, object);
        let is_overridden = |part: &&Object| asked::is_overridden(world, entry.namespace(), part);
        if parts.len() * policies <= SEEN_AT_ONCE && !parts.iter().any(is_overridden) {
            return;
        }
        for cluster in world.clusters.keys() {
            let Some(asked) = self.forms.sendable_in(world, entry, &parts, cluster) else {
                found.blocked = Some(put_off());
                return;
            };
            let fits = asked.and_then(|asked| {
                let within = asked.map_or(Ok(()), |asked| fleet_api::convert::within(&asked, counted));
                within.map_err(|why| Waiting::new(Reason::Edited, why))
            });
            found.barred.extend(fits.err().map(|why| (cluster.clone(), why)));
        }
    }

    fn phase(&self, world: &World, key: &Key, entry: &BindingEntry) -> JobPhase {
        let held = |cluster: &str, counted, reservation: Option<&Reservation>| {
            let status = reservation.and_then(|reservation| reservation.status.as_ref());
            JobPhase::Holds(Held {
                cluster: cluster.to_string(),
                counted,
                nodes: status.map(|status| status.nodes.clone()).unwrap_or_default(),
                ending: entry.is_bound()
                    && (entry.is_given_up() || entry.is_finished() || world.is_going(entry)),
                lingers: entry.is_bound()
                    && entry.is_finished()
                    && world.works_of(key).any(|(_, work)| dispatch::lingers(world, entry, work)),
                cells: reservation.map(|reservation| reservation.spec.cells.clone()).unwrap_or_default(),
                ended: status.map(ReservationStatus::ended_pods).unwrap_or_default(),
                ungiven: reservation.map(|r| ungiven(r).0).unwrap_or_default(),
                excluded: status.map(|status| status.excluded_nodes.clone()).unwrap_or_default(),
                vacated: status.map(|status| status.vacated.clone()).unwrap_or_default(),
            })
        };
        if let Some(target) = entry.object.spec.clusters.first() {
            let own = world.reservation_of_run(entry).map(|(_, reservation)| reservation);
            let counted = match own {
                Some(reservation) => counted(reservation),
                None if world.reserves(&target.name) || is_running(entry) => Counted::ByReports,
                // Without reservations, a bound gang counts until its pods are seen running.
                None => Counted::ByPlanner,
            };
            return held(&target.name, counted, own);
        }
        let asked = world.reservations_of(key).find(|(_, reservation)| {
            let phase = reservation.status.as_ref().and_then(|status| status.phase);
            is_next(entry, reservation)
                && reservation.metadata.deletion_timestamp.is_none()
                && matches!(phase, None | Some(ReservationPhase::Reserved))
        });
        if let Some((place, reservation)) = asked {
            return held(cluster_of(&place.0), counted(reservation), Some(reservation));
        }
        match self.asking.get(key) {
            Some(cluster) => held(cluster, Counted::ByPlanner, None),
            None => JobPhase::Waits,
        }
    }

    fn shape(&mut self, entry: &BindingEntry) -> Arc<JobShape> {
        self.shape_of(&entry.class, |id| {
            let reference = &entry.object.spec.resource;
            JobShape {
                id,
                gang: entry.gang.clone(),
                total: entry.total.clone(),
                placement: entry.placement.clone(),
                api_version: reference.api_version.clone(),
                kind: reference.kind.clone(),
            }
        })
    }

    /// The shape of a class, created once and shared.
    pub(super) fn shape_of(&mut self, class: &str, make: impl FnOnce(u64) -> JobShape) -> Arc<JobShape> {
        if let Some(known) = self.shapes.get(class).and_then(Weak::upgrade) {
            return known;
        }
        if self.shapes.len() >= SHAPES_SWEPT_AT.max(self.shapes_left * 2) {
            self.shapes.retain(|_, shape| shape.strong_count() > 0);
            self.shapes_left = self.shapes.len();
        }
        self.shape_count += 1;
        let shape = Arc::new(make(self.shape_count));
        self.shapes.insert(Arc::from(class), Arc::downgrade(&shape));
        shape
    }
}

/// Whether pods of an ended run may still be alive in a member: its object was deleted and its Work is being
/// cleaned up, or it has a result and the member reports live pods.
fn runs_on(world: &World, key: &Key, entry: &BindingEntry, goes: bool) -> bool {
    world.works_of(key).any(|((namespace, _), work)| {
        work.spec.binding.uid == entry.uid()
            && !dispatch::is_gone(world, cluster_of(namespace))
            && (!entry.is_finished() && goes
                || work.status.as_ref().is_some_and(|status| status.live_pods > Some(0)))
    })
}

fn counted(reservation: &Reservation) -> Counted {
    let Some(status) = reservation.status.as_ref() else { return Counted::ByPlanner };
    match (status.phase, status.report_sequence) {
        (None, _) => Counted::ByPlanner,
        (Some(ReservationPhase::Reserved), Some(first)) => Counted::FromReport(first),
        _ => Counted::ByReports,
    }
}

fn is_running(entry: &BindingEntry) -> bool {
    let mut items = entry.object.status.iter().flat_map(|status| &status.aggregated_status);
    items.any(|item| workload::is_running(entry.workload, &item.status))
}

/// See [`Scheduler::obstacles`].
#[derive(Default)]
struct Obstacles {
    avoided: BTreeSet<String>,
    barred: BTreeMap<String, Waiting>,
    blocked: Option<Waiting>,
}

fn annotation<'o>(object: &'o Object, name: &str) -> Option<&'o str> {
    object.value["metadata"]["annotations"][name].as_str()
}

/// RFC 3339 to milliseconds; an invalid time counts as absent.
fn time_ms(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

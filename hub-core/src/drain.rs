//! Draining a cluster: its gangs move one at a time, the smallest loss first.
//!
//! Pure function of (world, now). The intent is a taint of the Cluster, and progress is recorded in the
//! bindings, so a drain goes on after any crash.

use fleet_api::{ResourceBinding, binding::RunStatus};
use fleet_policies::reason::Reason;
use fleet_resources::Resources;
use jiff::{SignedDuration, Timestamp};

use crate::{
    binding::BindingEntry,
    intents::{Eviction, Intents},
    options::Options,
    world::{Key, World, is_drained},
};

/// The gang to move next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    pub next: Option<(Key, Eviction)>,
    /// Reconcile again at this time.
    pub wake: Option<Timestamp>,
}

/// The next gang to move off a draining cluster, once the previous one has left it.
pub fn turn(world: &World, intents: &Intents, name: &str, options: &Options, now: Timestamp) -> Turn {
    if !world.clusters.get(name).is_some_and(is_drained) {
        return Turn::default();
    }
    let here = |entry: &BindingEntry| entry.object.spec.clusters.iter().any(|target| target.name == name);
    let wait = SignedDuration::try_from(options.drain_interval).unwrap_or(SignedDuration::from_secs(1));
    let pause = |from: Timestamp| Turn { next: None, wake: Some(from + wait) };
    // A gang that was evicted and has not left yet.
    let leaving = |key: &Key, entry: &BindingEntry| {
        here(entry) && !entry.is_finished() && (intents.evictions.contains_key(key) || entry.is_given_up())
    };
    if world.bindings.iter().any(|(key, entry)| leaving(key, entry)) {
        return pause(now);
    }
    let drained = Reason::Drained.as_str();
    let attempts =
        world.bindings.values().flat_map(|entry| entry.object.status.iter()).flat_map(|s| &s.attempts);
    let last: Option<Timestamp> = attempts
        .filter(|attempt| attempt.cluster == name && attempt.reason == drained)
        .filter_map(|attempt| attempt.ended_at.parse().ok())
        .max();
    if let Some(last) = last.filter(|last| *last + wait > now) {
        return pause(last);
    }
    let runs =
        world.bindings.iter().filter(|(_, entry)| here(entry) && entry.is_gang() && !entry.is_finished());
    let first = runs.min_by_key(|(key, entry)| (loss(&entry.object, &entry.total, now), (*key).clone()));
    let Some((key, entry)) = first else { return Turn::default() };
    let eviction = Eviction {
        epoch: entry.object.spec.epoch,
        reason: Reason::Drained,
        message: format!("cluster {name} is being drained"),
    };
    Turn { next: Some((key.clone(), eviction)), wake: Some(now + wait) }
}

/// Loss when a run is evicted: its run time times what it holds, devices before cpu; 0 before it has started.
pub fn loss(binding: &ResourceBinding, total: &Resources, now: Timestamp) -> (i64, i64) {
    let run = binding.status.as_ref().and_then(|status| status.run.as_ref());
    let started = run.and_then(|run: &RunStatus| run.started_at.as_ref()?.parse::<Timestamp>().ok());
    let ran = started.map_or(0, |started| now.duration_since(started).as_secs().max(0));
    let devices = fleet_resources::sum(
        total.iter().filter(|(name, _)| name.as_str().contains('/')).map(|(_, amount)| amount),
    );
    let cpu = total.get("cpu");
    (ran.saturating_mul(devices), ran.saturating_mul(cpu))
}

//! Decisions and writes of this process that the hub does not show yet.
//!
//! In memory only: a restart loses them and decides again from the hub's objects. Deliberately absent: how
//! each is handled, which the rules decide.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::names;
use fleet_policies::reason::Reason;
use fleet_quota::JobId;
use kube_core::ResourceExt;

use crate::{
    binding::BindingEntry,
    observation::Observation,
    sent::SentWorks,
    world::{Key, World},
};

/// A run to be ended for a reason outside its own binding: a drain or a preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Epoch of the run to be ended; later runs are not affected.
    pub epoch: i64,
    pub reason: Reason,
    pub message: String,
}

#[derive(Debug, Default)]
pub struct Intents {
    /// Runs to be ended, by binding.
    pub evictions: BTreeMap<Key, Eviction>,
    /// Works whose pods outlive their job or their run, and for which job they are to end.
    pub pod_ends: BTreeMap<Key, JobId>,
    /// Lost clusters off which a job is to be moved; their leases get the mark of loss first.
    pub to_declare: BTreeSet<String>,
    /// Works that were sent and not seen yet.
    pub sent: SentWorks,
}

impl Intents {
    /// Applies an observation to the world, and drops the intents that it settles.
    pub fn observe(&mut self, world: &mut World, observation: Observation) {
        let heard = self.hear(&observation);
        let mut touched = world.observe(observation);
        for binding in heard {
            world.mark_binding(&binding);
            touched.insert(binding);
        }
        for binding in touched {
            self.follow(world, &binding);
        }
    }

    /// Bindings for which the observed Works were sent, whichever binding their spec names now.
    fn hear(&mut self, observation: &Observation) -> BTreeSet<Key> {
        let Observation::Work(change) = observation else { return BTreeSet::new() };
        let works = change.objects().iter();
        let keys = works.map(|work| (work.namespace().unwrap_or_default(), work.name_any()));
        keys.filter_map(|key| self.sent.heard(&key)).collect()
    }

    fn follow(&mut self, world: &mut World, binding: &Key) {
        let entry = world.bindings.get(binding);
        let asked = self.evictions.get(binding);
        if asked.is_some_and(|asked| entry.is_none_or(|entry| is_settled(entry, asked))) {
            self.evictions.remove(binding);
        }
        self.pod_ends.retain(|work, _| {
            let work = world.works.get(work).filter(|work| work.metadata.deletion_timestamp.is_none());
            work.is_some_and(|work| !work.annotations().contains_key(names::END_PODS_ANNOTATION))
        });
        let lost = self.sent.of(binding).filter(|(_, sent)| {
            let entry = world.bindings.get(binding);
            entry.is_none_or(|entry| entry.uid() != sent.binding.uid)
        });
        let lost: Vec<Key> = lost.map(|(work, _)| work.clone()).collect();
        world.orphans.extend(lost);
    }
}

/// The run to be ended has ended, or its end is recorded.
fn is_settled(entry: &BindingEntry, asked: &Eviction) -> bool {
    entry.object.spec.epoch != asked.epoch || entry.is_finished() || entry.is_given_up()
}

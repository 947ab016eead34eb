//! What this process has decided or sent and the hub does not show yet.
//!
//! Only for the life of a process: a restart loses all of it, and decides anew from what stands on the hub.
//! Deliberately absent: what to do about any of it, which the rules say.

use std::collections::{BTreeMap, BTreeSet};

use fleet_policies::reason::Reason;
use kube_core::ResourceExt;

use crate::{
    binding::BindingEntry,
    observation::Observation,
    sent::SentWorks,
    world::{Key, World},
};

/// A run that something other than its own binding wants over: a cluster is drained, a quota taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Of the run that is meant; a later one is not touched.
    pub epoch: i64,
    pub reason: Reason,
    pub message: String,
}

#[derive(Debug, Default)]
pub struct Intents {
    /// Runs that are to end, by binding.
    pub evictions: BTreeMap<Key, Eviction>,
    /// Lost clusters off which a job is to be moved: their leases get the mark of loss first.
    pub to_declare: BTreeSet<String>,
    /// Works on their way to the hub.
    pub sent: SentWorks,
}

impl Intents {
    /// Tells the world what was observed, and drops what it settles.
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

    /// Bindings for which the Works of an observation were sent, whatever binding they name now.
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
        let lost = self.sent.of(binding).filter(|(_, sent)| {
            let entry = world.bindings.get(binding);
            entry.is_none_or(|entry| entry.uid() != sent.binding.uid)
        });
        let lost: Vec<Key> = lost.map(|(work, _)| work.clone()).collect();
        world.orphans.extend(lost);
    }
}

/// The run that was to end has ended, or its end is noted.
fn is_settled(entry: &BindingEntry, asked: &Eviction) -> bool {
    entry.object.spec.epoch != asked.epoch || entry.is_finished() || entry.is_given_up()
}

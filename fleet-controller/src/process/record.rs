//! Input of the run log: current facts about changed objects.
//!
//! Only the names of changed objects are kept. Frequent changes are merged, and a slow log gets facts later.

use std::{collections::BTreeSet, time::Duration};

use fleet_api::ElasticQuotaTree;
use fleet_hub_core::{
    binding::UNIT_SUFFIX,
    facts,
    observation::Observation,
    world::{Key, World},
};
use kube::ResourceExt;
use tokio::time::Instant;

use crate::run_log::{Batch, Fact, RunLog};
use fleet_api::clock::Clock;

/// Pause between two batches, which also bounds the size of one.
const REST: Duration = Duration::from_millis(100);
const MOST: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Noted {
    Tree,
    Cluster(String),
    VirtualCluster(String),
    Binding(Key),
}

/// Changes that the log does not have yet.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    noted: BTreeSet<Noted>,
    has_begun: bool,
    rested: Option<Instant>,
}

impl Recorded {
    /// When the next batch is due; `None` if there are no changes.
    pub fn due(&self) -> Option<Instant> {
        (!self.noted.is_empty()).then(|| self.rested.unwrap_or_else(Instant::now))
    }

    /// Records the objects of an observation before the world applies it; for a list, also those that it
    /// lacks.
    pub fn note(&mut self, world: &World, observation: &Observation) {
        match observation {
            Observation::Binding(change) => {
                self.noted.extend(change.objects().iter().map(|binding| Noted::Binding(key(binding))));
                if change.is_listing() {
                    self.noted.extend(world.bindings.keys().cloned().map(Noted::Binding));
                }
            }
            Observation::Unit(change) => {
                let of_unit = |(namespace, name): Key| {
                    let name = name.strip_suffix(UNIT_SUFFIX).unwrap_or(&name).to_owned();
                    Noted::Binding((namespace, name))
                };
                self.noted.extend(change.objects().iter().map(|unit| of_unit(key(unit))));
                if change.is_listing() {
                    self.noted.extend(world.units.keys().cloned().map(of_unit));
                }
            }
            Observation::Cluster(change) => {
                self.noted.extend(change.objects().iter().map(|cluster| Noted::Cluster(cluster.name_any())));
                if change.is_listing() {
                    self.noted.extend(world.clusters.keys().cloned().map(Noted::Cluster));
                }
            }
            Observation::VirtualCluster(change) => {
                let noted = |name: String| Noted::VirtualCluster(name);
                self.noted.extend(change.objects().iter().map(|object| noted(object.name_any())));
                if change.is_listing() {
                    self.noted.extend(world.virtual_clusters.keys().map(|(_, name)| noted(name.clone())));
                }
            }
            Observation::Tree(_) => {
                self.noted.insert(Noted::Tree);
            }
            _ => {}
        }
    }

    /// Sends the changed facts to the log once the pause is over.
    pub fn tell(&mut self, world: &World, log: &RunLog, at: Instant, clock: &Clock) {
        if self.noted.is_empty() || self.rested.is_some_and(|rested| rested > at) {
            return;
        }
        self.rested = Some(at + REST);
        let noted: Vec<Noted> = self.noted.iter().take(MOST).cloned().collect();
        let mut facts: Vec<Fact> = noted.iter().map(|noted| facts_of(world, noted)).collect();
        if !self.has_begun {
            facts.insert(0, Fact::Begin);
        }
        let at_ms = clock.now().as_millisecond();
        // If the log is busy, it gets later facts later.
        if log.tell(Batch { at_ms, facts }).is_ok() {
            self.has_begun = true;
            for noted in &noted {
                self.noted.remove(noted);
            }
        }
    }
}

fn key(object: &impl ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn facts_of(world: &World, noted: &Noted) -> Fact {
    match noted {
        Noted::Tree => {
            let trees: Vec<ElasticQuotaTree> = world.trees.values().cloned().collect();
            Fact::Tree(facts::tree(&trees))
        }
        Noted::Cluster(name) => Fact::Cluster(name.clone(), world.clusters.get(name).map(facts::cluster)),
        Noted::VirtualCluster(name) => {
            let found = world.virtual_clusters.get(&(String::new(), name.clone()));
            Fact::VirtualCluster(name.clone(), found.map(facts::virtual_cluster))
        }
        Noted::Binding(key) => {
            let (namespace, name) = key;
            let unit = world.units.get(&(namespace.clone(), format!("{name}{UNIT_SUFFIX}")));
            let unit = unit.map(|unit| facts::unit(unit.clone()).1);
            let binding = world.bindings.get(key).and_then(facts::entry);
            Fact::Job(key.clone(), binding.map(|binding| Box::new((binding, unit))))
        }
    }
}

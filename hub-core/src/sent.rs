//! Works that were sent and whose outcome is unknown: a run of theirs may have begun.
//!
//! In memory only: a restarted process lists the existing Works. How they are handled: `dispatch`.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::reservation::BindingReference;

use crate::{
    world::Key,
    writes::{Target, Verb, Write},
};

/// A Work that was sent and not seen yet.
#[derive(Clone, Debug, PartialEq)]
pub struct SentWork {
    pub binding: BindingReference,
    pub epoch: i64,
}

impl SentWork {
    fn binding_key(&self) -> Key {
        (self.binding.namespace.clone(), self.binding.name.clone())
    }
}

#[derive(Debug, Default)]
pub struct SentWorks {
    /// By the Work's key.
    works: BTreeMap<Key, SentWork>,
    /// Works by the binding they were sent for.
    by_binding: BTreeMap<Key, BTreeSet<Key>>,
}

impl SentWorks {
    /// Records that a write was sent.
    pub fn note(&mut self, write: &Write) {
        let (Target::Work, Verb::Create(body)) = (&write.target, &write.verb) else { return };
        let spec = &body["spec"];
        let text = |field: &str| spec["binding"][field].as_str().unwrap_or_default().to_owned();
        let binding = BindingReference { namespace: text("namespace"), name: text("name"), uid: text("uid") };
        let epoch = spec["epoch"].as_i64().unwrap_or_default();
        let (key, sent) = ((write.namespace.clone(), write.name.clone()), SentWork { binding, epoch });
        self.heard(&key);
        self.by_binding.entry(sent.binding_key()).or_default().insert(key.clone());
        self.works.insert(key, sent);
    }

    /// The outcome of the write is known.
    pub fn heard(&mut self, work: &Key) -> Option<Key> {
        let binding = self.works.remove(work)?.binding_key();
        if let Some(works) = self.by_binding.get_mut(&binding) {
            works.remove(work);
            if works.is_empty() {
                self.by_binding.remove(&binding);
            }
        }
        Some(binding)
    }

    pub fn get(&self, work: &Key) -> Option<&SentWork> {
        self.works.get(work)
    }

    /// Works sent for bindings of this name.
    pub fn of<'s>(&'s self, binding: &Key) -> impl Iterator<Item = (&'s Key, &'s SentWork)> + use<'s> {
        let works = self.by_binding.get(binding).into_iter().flatten();
        works.filter_map(|work| self.works.get_key_value(work))
    }
}

#[cfg(test)]
mod tests;

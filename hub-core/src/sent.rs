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
mod tests {
    use serde_json::json;

    use super::*;

    fn work(name: &str, binding: &str, uid: &str) -> Write {
        let binding = json!({"namespace": "team", "name": binding, "uid": uid});
        Write::new(
            Target::Work,
            "fleet-west",
            name,
            Verb::Create(json!({"spec": {"binding": binding, "epoch": 2}})),
        )
    }

    #[test]
    fn a_work_is_on_its_way_until_it_is_heard_of() {
        let mut sent = SentWorks::default();
        let (key, old) =
            (("team".to_owned(), "job".to_owned()), ("fleet-west".to_owned(), "job-a".to_owned()));
        sent.note(&work("job-a", "job", "a"));
        sent.note(&work("other-c", "other", "c"));
        let mut change = work("job-b", "job", "b");
        change.verb = Verb::Delete { uid: String::new() };
        sent.note(&change);
        let keys: Vec<&Key> = sent.of(&key).map(|(work, _)| work).collect();
        assert_eq!(keys, [&old], "a delete sends no run");
        assert_eq!(sent.get(&old).map(|sent| (sent.binding.uid.as_str(), sent.epoch)), Some(("a", 2)));
        assert_eq!((sent.heard(&old), sent.heard(&old)), (Some(key.clone()), None));
        assert_eq!(sent.of(&key).count(), 0);
    }
}

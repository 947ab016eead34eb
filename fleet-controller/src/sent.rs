//! Works that were sent and of which nothing has been heard: a run of theirs may have begun.
//!
//! Only for the life of a process: one that starts lists what stands. Deliberately absent: what to do about
//! them, which is `dispatch`'s.

use std::collections::BTreeMap;

use crate::{
    world::Key,
    writes::{Target, Verb, Write},
};

#[derive(Debug, Default)]
pub struct SentWorks {
    /// By the Work's key: its binding, and the uid of that.
    works: BTreeMap<Key, (Key, String)>,
}

impl SentWorks {
    /// A write is on its way.
    pub fn note(&mut self, write: &Write) {
        let (Target::Work, Verb::Create(body)) = (&write.target, &write.verb) else { return };
        let text = |field: &str| body["spec"]["binding"][field].as_str().unwrap_or_default().to_owned();
        let binding = (text("namespace"), text("name"));
        self.works.insert((write.namespace.clone(), write.name.clone()), (binding, text("uid")));
    }

    /// What has become of the Work is known.
    pub fn heard(&mut self, work: &Key) -> Option<Key> {
        self.works.remove(work).map(|(binding, _)| binding)
    }

    /// The uid of the binding that the Work was sent for.
    pub fn binding_of(&self, work: &Key) -> Option<(&Key, &str)> {
        self.works.get(work).map(|(binding, uid)| (binding, uid.as_str()))
    }

    /// Works sent for bindings of this name, and the uid of the binding.
    pub fn of<'s>(&'s self, binding: &'s Key) -> impl Iterator<Item = (&'s Key, &'s str)> {
        let of = self.works.iter().filter(move |(_, (of, _))| of == binding);
        of.map(|(work, (_, uid))| (work, uid.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(name: &str, binding: &str, uid: &str) -> Write {
        let binding = json!({"namespace": "team", "name": binding, "uid": uid});
        Write::new(Target::Work, "fleet-west", name, Verb::Create(json!({"spec": {"binding": binding}})))
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
        assert_eq!(sent.of(&key).collect::<Vec<_>>(), [(&old, "a")], "a delete sends no run");
        assert_eq!(sent.binding_of(&old), Some((&key, "a")));
        assert_eq!((sent.heard(&old), sent.heard(&old)), (Some(key.clone()), None));
        assert_eq!(sent.of(&key).count(), 0);
    }
}

//! What a look at one binding comes to.

use fleet_api::Work;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    planner::earliest,
    world::Key,
    writes::{Target, Verb, Write},
};

/// What a look at one binding came to.
#[derive(Debug, Default)]
pub struct Step {
    pub writes: Vec<Write>,
    /// Look again then, if nothing else happens before.
    pub wake: Option<Timestamp>,
    /// A lost cluster that the job is to be moved off, whose lease has to carry the mark of loss first.
    pub declare_lost: Option<String>,
}

impl Step {
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = earliest(self.wake, Some(at));
    }

    /// Milliseconds since 1970.
    pub(super) fn wake_at_ms(&mut self, at_ms: i64) {
        self.wake_at(Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::MAX));
    }
}

pub(super) fn delete_work(key: &Key, work: &Work, step: &mut Step) {
    delete(Target::Work, key, &work.metadata, step);
}

pub(super) fn delete(target: Target, key: &Key, meta: &ObjectMeta, step: &mut Step) {
    if meta.deletion_timestamp.is_none() {
        let uid = meta.uid.clone().unwrap_or_default();
        step.writes.push(Write::new(target, &key.0, &key.1, Verb::Delete { uid }));
    }
}

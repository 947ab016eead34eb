//! Result of a reconcile of one binding.

use fleet_api::Work;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    planner::earliest,
    world::Key,
    writes::{Target, Verb, Write},
};

/// How soon a status is written, soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    Now,
    /// Progress of a run. Written at once, unless many writes are pending.
    Progress,
    /// Why a job waits.
    Reason,
    /// An intermediate state: placed, and no report on the run yet.
    Between,
}

/// Result of a reconcile of one binding.
#[derive(Debug, Default)]
pub struct Step {
    pub writes: Vec<Write>,
    /// Statuses that later ones may replace.
    pub later: Vec<(Pace, Write)>,
    /// Reconcile again at this time, if nothing else happens before.
    pub wake: Option<Timestamp>,
    /// A lost cluster that the job is to leave, once its lease has the mark of loss.
    pub declare_lost: Option<String>,
    /// What overrides have visited of the objects that are sent.
    pub visited: usize,
}

impl Step {
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = earliest(self.wake, Some(at));
    }

    /// Milliseconds since 1970.
    pub(super) fn wake_at_ms(&mut self, at_ms: i64) {
        self.wake_at(Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::MAX));
    }

    /// Writes `told` at that pace. The objects that it depends on are created at once.
    pub(super) fn tell(&mut self, pace: Pace, told: Vec<Write>) {
        for write in told {
            let makes = pace == Pace::Between && matches!(write.verb, Verb::Create(_));
            match pace {
                Pace::Now => self.writes.push(write),
                _ if makes => self.writes.push(write),
                pace => self.later.push((pace, write)),
            }
        }
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

#[cfg(test)]
mod tests;

//! Pods that outlive their job or its run, and the Works that they belong to.

use fleet_api::Work;
use fleet_quota::JobId;
use kube_core::ResourceExt;

use super::facts::key_of;
use crate::{
    dispatch,
    intents::Intents,
    world::{Dirty, Key, World},
};

/// Distinguishes the remains of a run from the job and from its other runs.
pub(super) fn mark(work: &Work) -> String {
    format!("#{}-{}", work.name_any(), work.spec.epoch)
}

/// Ends the pods that a job has left behind: of the run that its suffix tells, or of the run that gave the result.
pub(super) fn end(world: &mut World, intents: &mut Intents, job: &JobId, taker: &JobId) {
    let (name, run) = match job.as_str().split_once('#') {
        Some((name, run)) => (name, Some(run)),
        None => (job.as_str(), None),
    };
    let key = key_of(&JobId::new(name));
    let entry = world.bindings.get(&key);
    let is_left = |work: &Work| match run {
        Some(run) => mark(work).strip_prefix('#') == Some(run),
        None => entry.is_some_and(|entry| dispatch::lingers(world, entry, work)),
    };
    let left: Vec<Key> =
        world.works_of(&key).filter(|(_, work)| is_left(work)).map(|(work, _)| work.clone()).collect();
    for work in left {
        if intents.pod_ends.insert(work, taker.clone()).is_none() {
            world.mark(Dirty::Binding(key.clone()));
        }
    }
}

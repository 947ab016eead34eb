//! Gangs: pods that are bound together or not at all.

use std::collections::BTreeSet;

use fleet_scheduler::GroupId;
use tokio::time::Instant;

use super::PodKey;

/// A named gang, or a pod that is a gang of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GangKey {
    Named { namespace: String, gang: String },
    Single(PodKey),
}

impl GangKey {
    pub fn new(pod: &PodKey, gang: Option<&str>) -> Self {
        match gang.filter(|gang| !gang.is_empty()) {
            Some(gang) => Self::Named { namespace: pod.namespace.clone(), gang: gang.to_owned() },
            None => Self::Single(pod.clone()),
        }
    }
}

#[derive(Debug, Default)]
pub struct GangEntry {
    pub pods: BTreeSet<PodKey>,
    /// Pods whose requests cannot be parsed.
    pub unreadable: BTreeSet<PodKey>,
    /// Pods that must be placeable before any is bound.
    pub size: usize,
    /// When the reason for waiting was last reported on its pods.
    pub told_at: Option<Instant>,
    /// Since when fewer pods exist than it needs.
    pub incomplete_since: Option<Instant>,
    /// Since when it is half bound and cannot be completed.
    pub half_bound_since: Option<Instant>,
    /// Since when its bindings have been refused without a success in between.
    pub bind_refused_since: Option<Instant>,
    /// A PodGroup for it has been requested.
    pub described: bool,
    /// Its id in the scheduler.
    pub group: Option<GroupId>,
}

//! Handles and settings of this crate.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fleet_agent_ground::{
    Clock, Counts, JobController, LeaseClock, Link, Owned, Permits, Reservations, Sorted, Terms,
};

pub struct Handles {
    pub hub: Link,
    pub member: Link,
    pub clock: Clock,
    pub counts: Counts,
    pub lease: LeaseClock,
    pub terms: Arc<Terms>,
    /// Written here: jobs that Fleet created and that have places.
    pub owned: Owned,
    /// Notified when a Work arrives, and when its job is gone.
    pub places: Reservations,
    /// Written here.
    pub sorted: Sorted,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// What the hub may do in this member.
    pub permits: Permits,
    /// Scheduler names whose pods the agent binds.
    pub scheduler_names: BTreeSet<String>,
    /// Kinds whose pods the agent creates itself.
    pub controllers: BTreeSet<JobController>,
    /// How long after the lease's end pods of fenced jobs may still exist.
    pub fence_grace: Duration,
    /// How long pods that Fleet ends may take, whatever they ask for.
    pub max_pod_grace: Duration,
    /// How long the member's server works on a request at most, also after its sender has given it up.
    pub member_request_timeout: Duration,
    /// Image of the side container of jobs with fencing Watchdog; without it such jobs are refused.
    pub watchdog_image: Option<String>,
    /// How long after the lease's end a watchdog has stopped the last process of its pod.
    pub watchdog_stops_within: Duration,
}

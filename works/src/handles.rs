//! What this room needs of the agent it runs in.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fleet_agent_ground::{
    Clock, JobController, LeaseClock, Link, Owned, Permits, Reservations, Sorted, Terms,
};

pub struct Handles {
    pub hub: Link,
    pub member: Link,
    pub clock: Clock,
    pub lease: LeaseClock,
    pub terms: Arc<Terms>,
    /// Written here: the jobs that Fleet made and that have places.
    pub owned: Owned,
    /// Told when a Work arrives, and when its job is gone.
    pub places: Reservations,
    /// Written here.
    pub sorted: Sorted,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// What the hub may do in this member.
    pub permits: Permits,
    /// Whose pods the agent's scheduler binds.
    pub scheduler_names: BTreeSet<String>,
    /// Kinds whose pods the agent makes itself.
    pub controllers: BTreeSet<JobController>,
    /// How long after the lease's end pods of fenced jobs may take to be gone.
    pub fence_grace: Duration,
    /// Image of the side container of jobs with fencing Watchdog; without one such jobs are refused.
    pub watchdog_image: Option<String>,
    /// How long after the lease's end a watchdog has stopped the last process of its pod.
    pub watchdog_stops_within: Duration,
}

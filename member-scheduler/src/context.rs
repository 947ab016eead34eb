//! What this room needs of the agent it runs in, and what its parts share.
//!
//! Deliberately absent: state of the member. It has one owner, the core task.

use std::{collections::BTreeSet, ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use fleet_agent_ground::{Admissions, Clock, Link, Owned, Permits, Terms};
use tokio_util::sync::CancellationToken;

use crate::urgent::Urgent;

pub struct Handles {
    pub hub: Link,
    pub member: Link,
    pub clock: Clock,
    pub terms: Arc<Terms>,
    /// Read here: the jobs that Fleet made and that have places.
    pub owned: Owned,
    /// Written here: which Volcano Jobs are let into their queues.
    pub admissions: Admissions,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// Which `schedulerName`s this agent binds pods for; empty turns the scheduler off.
    pub scheduler_names: BTreeSet<String>,
    /// The scheduler's configuration in Volcano's format, read again when it changes; `None` is the built-in one.
    pub scheduler_conf: Option<PathBuf>,
    /// What the hub may do in this member.
    pub permits: Permits,
    /// Whether to answer reservations; otherwise the hub compares sums.
    pub reservation: bool,
    /// Shortest time between two capacity reports.
    pub report_interval: Duration,
    /// How long a half-bound gang without a hold may stay so before its places are given back, and an
    /// incomplete one before its pods are told.
    pub gang_grace: Duration,
}

pub(crate) struct Context {
    handles: Handles,
    pub settings: Settings,
    /// Cancelled when the agent is to stop.
    pub shutdown: CancellationToken,
    /// Bindings under way.
    pub urgent: Urgent,
}

impl Context {
    pub fn new(handles: Handles, settings: Settings, shutdown: CancellationToken) -> Self {
        Self { handles, settings, shutdown, urgent: Urgent::default() }
    }

    /// Namespace on the hub that belongs to this member.
    pub fn cluster_namespace(&self) -> String {
        fleet_api::names::cluster_namespace(self.member.cluster())
    }
}

impl Deref for Context {
    type Target = Handles;

    fn deref(&self) -> &Handles {
        &self.handles
    }
}

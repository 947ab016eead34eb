//! Handles and settings of this crate, and state that its parts share.
//!
//! Deliberately absent: the member's state. The core task owns it.

use std::{collections::BTreeSet, ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use fleet_agent_ground::{Admissions, Clock, Counts, Link, Owned, Permits, Terms};
use tokio_util::sync::CancellationToken;

use crate::urgent::Urgent;

pub struct Handles {
    pub hub: Link,
    pub member: Link,
    pub clock: Clock,
    pub counts: Counts,
    pub terms: Arc<Terms>,
    /// Read here: jobs that Fleet created and that have places.
    pub owned: Owned,
    /// Written here: which Volcano Jobs are admitted to their queues.
    pub admissions: Admissions,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// Scheduler names whose pods this agent binds; empty turns the scheduler off.
    pub scheduler_names: BTreeSet<String>,
    /// The scheduler's configuration in Volcano's format, read again when it changes; `None` is the built-in one.
    pub scheduler_conf: Option<PathBuf>,
    /// What the hub may do in this member.
    pub permits: Permits,
    /// Whether the agent answers reservations; otherwise the hub compares sums of free resources.
    pub reservation: bool,
    /// Least time between two capacity reports.
    pub report_interval: Duration,
    /// How long a half-bound gang without a hold may stay so before its places are released, and an
    /// incomplete one before that is reported on its pods.
    pub gang_grace: Duration,
}

pub(crate) struct Context {
    handles: Handles,
    pub settings: Settings,
    /// Cancelled when the agent is to stop.
    pub shutdown: CancellationToken,
    /// Number of bindings in flight.
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

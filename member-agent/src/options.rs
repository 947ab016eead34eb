//! How an agent runs. Every bound and period is here, so that tests can shrink it.

use fleet_agent_ground::JobController;
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use fleet_api::clock::Clock;

use fleet_agent_ground::Permits;

/// Default of [`Options::fence_grace`].
pub const DEFAULT_FENCE_GRACE: Duration = Duration::from_secs(20);
/// Default of [`Options::watchdog_image`].
pub const DEFAULT_WATCHDOG_IMAGE: &str = "registry.example.com/fleet/watchdog:0.1.0";

/// Settings of one agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the Cluster on the hub.
    pub cluster: String,
    /// Where the hub's users reach the member. It is proposed in the Cluster's status, as are provider, region, zones
    /// and labels: an administrator confirms them.
    pub api_endpoint: Option<String>,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
    /// Labels for the Cluster object.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Whether to answer reservations; otherwise the hub compares sums.
    pub reservation: bool,
    /// Which `schedulerName`s this agent binds pods for; empty turns the scheduler off.
    pub scheduler_names: BTreeSet<String>,
    /// The scheduler's configuration in Volcano's format, read again when it changes; `None` is the built-in one.
    pub scheduler_conf: Option<std::path::PathBuf>,
    /// The admission webhook; `None` for none.
    pub webhook: Option<Webhook>,
    /// Which job controllers run.
    pub controllers: BTreeSet<JobController>,
    pub lease_duration: Duration,
    pub lease_renew: Duration,
    /// How long after the lease's end pods of fenced jobs may take to be gone.
    pub fence_grace: Duration,
    /// Image of the side container that stops pods of jobs with fencing Watchdog; without one such jobs are refused.
    pub watchdog_image: Option<String>,
    /// How long after the lease's end a watchdog has stopped the last process of its pod.
    pub watchdog_stops_within: Duration,
    /// Shortest time between two capacity reports.
    pub report_interval: Duration,
    /// How long a half-bound gang without a hold may stay so before its places are given back, and an
    /// incomplete one before its pods are told.
    pub gang_grace: Duration,
    /// Whether to ask the member which rights are missing, and to report them.
    pub check_rights: bool,
    /// What the hub may do in this member.
    pub permits: Permits,
    /// Wall-clock time.
    pub clock: Clock,
    /// Name of this installation, when the member keeps none yet; `None` makes one up.
    pub installation: Option<String>,
}

/// Where the admission webhook listens, and how the member's API server reaches it.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Port 0 takes any that is free.
    pub listen: SocketAddr,
    pub reach: Reach,
}

impl Webhook {
    /// For an API server on the same machine, at any port that is free.
    pub fn on_loopback() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), reach: Reach::Listener }
    }
}

/// How an API server reaches a webhook.
#[derive(Clone, Debug)]
pub enum Reach {
    /// At the address it listens on.
    Listener,
    /// Through a Service of the member, at its port 443.
    Service { namespace: String, name: String },
}

impl Options {
    /// Settings for a member that has its own scheduler and operators.
    pub fn new(cluster: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            api_endpoint: None,
            provider: None,
            region: None,
            zones: Vec::new(),
            labels: Default::default(),
            reservation: true,
            scheduler_names: ["fleet".to_string(), "volcano".to_string()].into(),
            scheduler_conf: None,
            webhook: None,
            controllers: BTreeSet::new(),
            lease_duration: Duration::from_secs(40),
            lease_renew: Duration::from_secs(10),
            fence_grace: DEFAULT_FENCE_GRACE,
            watchdog_image: Some(DEFAULT_WATCHDOG_IMAGE.to_owned()),
            watchdog_stops_within: fleet_watchdog::ANSWER_TIMEOUT + fleet_watchdog::KILL_GRACE,
            report_interval: Duration::from_millis(100),
            gang_grace: Duration::from_secs(5),
            check_rights: false,
            permits: Permits::default(),
            clock: Clock::start(),
            installation: None,
        }
    }
}

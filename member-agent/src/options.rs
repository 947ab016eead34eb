//! Options of an agent. All limits and periods are here, so that tests can shrink them.

use fleet_agent_ground::{AgentMetrics, JobController};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use fleet_api::clock::Clock;

use crate::leadership::Election;
use fleet_agent_ground::Permits;

/// Default of [`Options::fence_grace`].
pub const DEFAULT_FENCE_GRACE: Duration = Duration::from_secs(20);
/// Default of [`Options::max_pod_grace`].
pub const DEFAULT_MAX_POD_GRACE: Duration = Duration::from_secs(120);
/// Default of [`Options::member_request_timeout`], and of kube-apiserver's `--request-timeout`.
pub const DEFAULT_MEMBER_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Default of [`Options::watchdog_image`].
pub const DEFAULT_WATCHDOG_IMAGE: &str = "registry.example.com/fleet/watchdog:0.1.0";

/// Settings of one agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the Cluster on the hub.
    pub cluster: String,
    /// Address of the member for users of the hub. A proposal in the Cluster's status, like provider, region,
    /// zones and labels: an administrator confirms them.
    pub api_endpoint: Option<String>,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
    /// Labels for the Cluster object.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Whether the agent answers reservations; otherwise the hub compares sums of free resources.
    pub reservation: bool,
    /// Scheduler names whose pods this agent binds; empty turns the scheduler off.
    pub scheduler_names: BTreeSet<String>,
    /// The scheduler's configuration in Volcano's format, read again when it changes; `None` is the built-in one.
    pub scheduler_conf: Option<std::path::PathBuf>,
    /// The admission webhook; `None` for none.
    pub webhook: Option<Webhook>,
    /// Which job controllers run.
    pub controllers: BTreeSet<JobController>,
    pub lease_duration: Duration,
    pub lease_renew: Duration,
    /// How long after the lease's end pods of fenced jobs may still exist.
    pub fence_grace: Duration,
    /// How long pods that Fleet ends may take to end, whatever `terminationGracePeriodSeconds` they have.
    pub max_pod_grace: Duration,
    /// How long the member's API server works on a request at most: a create without an answer may take effect for as
    /// long after it was given up, and its run is not over before.
    pub member_request_timeout: Duration,
    /// Image of the side container that stops pods of jobs with fencing Watchdog; without it such jobs are
    /// refused.
    pub watchdog_image: Option<String>,
    /// How long after the lease's end a watchdog has stopped the last process of its pod.
    pub watchdog_stops_within: Duration,
    /// Least time between two capacity reports.
    pub report_interval: Duration,
    /// How long a half-bound gang without a hold may stay so before its places are released, and an
    /// incomplete one before that is reported on its pods.
    pub gang_grace: Duration,
    /// Whether to check which rights are missing in the member, and to report them.
    pub check_rights: bool,
    /// What the hub may do in this member.
    pub permits: Permits,
    /// Wall-clock time.
    pub clock: Clock,
    /// Metrics; shared with the HTTP server.
    pub metrics: AgentMetrics,
    /// The election among several agents of this member; `None`: this is certainly the only one.
    pub election: Option<Election>,
    /// Identity of this installation if the member has none yet; `None` creates one.
    pub installation: Option<String>,
}

/// Listen address of the admission webhook, and how the member's API server reaches it.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Port 0 uses any free port.
    pub listen: SocketAddr,
    pub reach: Reach,
}

impl Webhook {
    /// For an API server on the same machine, on any free port.
    pub fn on_loopback() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), reach: Reach::Listener }
    }
}

/// How the API server reaches the webhook.
#[derive(Clone, Debug)]
pub enum Reach {
    /// At its listen address.
    Listener,
    /// Through a Service of the member, at its port 443.
    Service { namespace: String, name: String },
}

impl Options {
    /// Options for a member with its own scheduler and operators.
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
            lease_duration: fleet_api::names::LEASE_DURATION,
            lease_renew: fleet_api::names::LEASE_RENEW,
            fence_grace: DEFAULT_FENCE_GRACE,
            max_pod_grace: DEFAULT_MAX_POD_GRACE,
            member_request_timeout: DEFAULT_MEMBER_REQUEST_TIMEOUT,
            watchdog_image: Some(DEFAULT_WATCHDOG_IMAGE.to_owned()),
            watchdog_stops_within: fleet_watchdog::ANSWER_TIMEOUT + fleet_watchdog::KILL_GRACE,
            report_interval: Duration::from_millis(100),
            gang_grace: Duration::from_secs(5),
            check_rights: false,
            permits: Permits::default(),
            clock: Clock::start(),
            metrics: AgentMetrics::default(),
            election: None,
            installation: None,
        }
    }
}

//! The watchdog of a pod: stops the pod's containers when the lease of its cluster lapses.
//!
//! `judge` decides, as a pure state machine that hollow kubelets use, too; `lease` reads the lease over HTTPS;
//! `guard` ties them to a way of stopping containers. Deliberately absent: any knowledge of the hub or of jobs.

pub mod guard;
pub mod judge;
pub mod lease;

use std::time::Duration;

/// Namespace and name of the lease.
pub const LEASE_NAMESPACE: &str = "fleet-system";
pub const LEASE_NAME: &str = "member-agent";
/// Name of the side container and of its scratch volume.
pub const CONTAINER: &str = "fleet-watchdog";
/// Where the container finds the pod's token and the certificate of the API server.
pub const TOKEN_FOLDER: &str = "/var/run/secrets/fleet-watchdog";
/// Where it notes that it is content.
pub const STATE_FOLDER: &str = "/run/fleet-watchdog";
/// Set in the side container; without it the program stops nothing, so that started by hand it does no harm.
pub const IN_POD_VARIABLE: &str = "FLEET_WATCHDOG_IN_POD";

/// Time between two questions.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Longest wait for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL.
pub const KILL_GRACE: Duration = Duration::from_secs(10);

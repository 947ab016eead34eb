//! What the parts of a watchdog and those who put it into pods agree on.

use std::time::Duration;

/// Namespace and name of the lease.
pub const LEASE_NAMESPACE: &str = "fleet-system";
pub const LEASE_NAME: &str = "member-agent";
/// Name of the side container and of its scratch volume.
pub const CONTAINER: &str = "fleet-watchdog";
/// Where the container finds the pod's token and the certificate of the API server.
pub const TOKEN_FOLDER: &str = "/var/run/secrets/fleet-watchdog";
/// Folder of the file that exists while the lease holds.
pub const STATE_FOLDER: &str = "/run/fleet-watchdog";
/// Set in the side container. Without it the program stops nothing, so that it does no harm when it is started by
/// hand.
pub const IN_POD_VARIABLE: &str = "FLEET_WATCHDOG_IN_POD";

/// Time between two requests.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Longest wait for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL.
pub const KILL_GRACE: Duration = Duration::from_secs(10);

//! The hub process: gather -> plan -> check -> send.

use tokio_util::sync::CancellationToken;

/// How a controller runs. Every bound and period is here, so that tests can shrink it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Identity for leader election and events.
    pub identity: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { identity: "fleet-controller".to_string() }
    }
}

/// Runs the controller against a hub until `shutdown` is cancelled.
pub async fn run(hub: kube::Client, options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    let _ = (hub, options);
    shutdown.cancelled().await;
    Ok(())
}

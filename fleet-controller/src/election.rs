//! Leader election: one controller leads, and its term is in every request to members, which refuse an older
//! one. The rules are those of [`fleet_election`].

use std::{future::Future, time::Duration};

use fleet_api::names;
use fleet_election::Seat;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// Name of the Lease.
pub const LEASE_NAME: &str = "fleet-controller";

/// Settings of the election.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// This controller's name. A controller takes over a lease of its own name at once.
    pub identity: String,
    /// Time without a renewal after which others take the lease.
    pub duration: Duration,
}

/// Runs `body` with the term whenever this controller leads, until `shutdown`. The token passed to `body` is
/// cancelled when it stops leading; the lease is released at once on `shutdown`.
///
/// # Errors
/// The error of `body` when it ends by itself.
pub async fn lead<F, R>(
    hub: Client,
    election: Election,
    shutdown: CancellationToken,
    body: F,
) -> anyhow::Result<()>
where
    F: Fn(i64, CancellationToken) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let identity = election.identity.clone();
    let mut seat = Seat::new(
        hub,
        fleet_election::Election {
            namespace: election.namespace,
            lease: LEASE_NAME,
            manager: names::CONTROLLER_MANAGER,
            identity: election.identity,
            // Controllers run on any machine: nobody knows whether another one lives.
            has_ended: |_| false,
            duration: election.duration,
        },
    );
    loop {
        let Some(mut held) = shutdown.run_until_cancelled(seat.acquire()).await else { return Ok(()) };
        tracing::info!(term = held.term, %identity, "leading");
        let stop = shutdown.child_token();
        let mut running = std::pin::pin!(body(held.term, stop.clone()));
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            () = async { while seat.renew(&mut held).await.is_ok() {} } => {
                tracing::warn!(term = held.term, "lost the lease; standing by");
                None
            }
            ended = &mut running => Some(ended),
        };
        stop.cancel();
        let ended = match ended {
            Some(ended) => ended,
            None => running.await,
        };
        if shutdown.is_cancelled() || ended.is_err() {
            seat.give_back(held).await;
            return ended;
        }
    }
}

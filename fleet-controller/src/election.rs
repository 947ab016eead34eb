//! Leader election: the leader holds one Lease on the hub, and renews it at a third of its duration.
//!
//! No wall clock counts. The leader counts from the moment it sent the last renewal that succeeded, and steps
//! down well before others may take over; the others count from the moment they saw the lease change. Each
//! acquisition of the lease begins a new term, whose number is raised by compare-and-swap, also when the same
//! identity acquires it again. Requests to members carry the term, and members refuse an older one.

use std::{future::Future, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use fleet_api::names;

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

impl Election {
    fn period(&self) -> Duration {
        self.duration / 3
    }

    /// The leader steps down this long after it sent its last renewal that succeeded.
    fn hold(&self) -> Duration {
        self.duration * 2 / 3
    }
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
    let mut seat = Seat { leases: Api::namespaced(hub, &election.namespace), election, seen: None };
    loop {
        let Some(mut held) = shutdown.run_until_cancelled(seat.acquire()).await else { return Ok(()) };
        tracing::info!(term = held.term, identity = %seat.election.identity, "leading");
        let stop = shutdown.child_token();
        let mut running = std::pin::pin!(body(held.term, stop.clone()));
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            () = seat.keep(&mut held) => {
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

struct Seat {
    leases: Api<Lease>,
    election: Election,
    /// Version of the lease at its last observed change, and when that was.
    seen: Option<(String, Instant)>,
}

/// The lease as this controller last wrote it.
struct Held {
    lease: Lease,
    term: i64,
    sent: Instant,
}

impl Seat {
    async fn acquire(&mut self) -> Held {
        loop {
            match timeout(self.election.period(), self.try_acquire()).await {
                Ok(Ok(Some(held))) => return held,
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot acquire the leader's lease; retrying"),
                Err(_) => tracing::warn!("the hub does not answer; retrying to acquire the leader's lease"),
            }
            sleep(self.election.period() / 4).await;
        }
    }

    /// Acquires the lease if it is free, has this controller's identity, or has not changed for its whole
    /// duration.
    async fn try_acquire(&mut self) -> kube::Result<Option<Held>> {
        let known = self.leases.get_opt(LEASE_NAME).await?;
        let spec = known.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if let Some(lease) = known.as_ref().filter(|_| !holder.is_empty() && holder != self.election.identity)
        {
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            let now = Instant::now();
            let since = match &self.seen {
                Some((seen, since)) if *seen == version => *since,
                _ => {
                    self.seen = Some((version, now));
                    now
                }
            };
            let said = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
            let duration = self.election.duration.max(Duration::from_secs(said));
            if now < since + duration {
                return Ok(None);
            }
        }
        let term = spec.lease_transitions.unwrap_or(0).saturating_add(1);
        let now = MicroTime(Timestamp::now());
        let mut wanted = known.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(LEASE_NAME.to_string()), ..ObjectMeta::default() },
            spec: None,
        });
        wanted.spec = Some(LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            // The field has whole seconds; for a shorter duration, the standby's own setting applies.
            lease_duration_seconds: i32::try_from(self.election.duration.as_secs()).ok().filter(|s| *s > 0),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(term),
            ..LeaseSpec::default()
        });
        let sent = Instant::now();
        let written = match known {
            Some(_) => self.leases.replace(LEASE_NAME, &params(), &wanted).await,
            None => self.leases.create(&params(), &wanted).await,
        };
        match written {
            Ok(lease) => Ok(Some(Held { lease, term: i64::from(term), sent })),
            // Another controller was faster.
            Err(error) if is_conflict(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renews until another controller holds the lease, or no renewal has succeeded for too long.
    async fn keep(&self, held: &mut Held) {
        loop {
            let until = held.sent + self.election.hold();
            sleep(self.election.period().min(until.saturating_duration_since(Instant::now()))).await;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                match timeout(left, self.renew(held)).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) if is_conflict(&error) => {
                        // The answer to an own renewal may have been lost, or another controller has taken
                        // the lease.
                        match timeout(left, self.leases.get(LEASE_NAME)).await {
                            Ok(Ok(lease)) if self.is_own(&lease, held.term) => held.lease = lease,
                            Ok(Ok(_)) => return,
                            _ => {}
                        }
                    }
                    Ok(Err(error)) => tracing::warn!(%error, "cannot renew the leader's lease"),
                    Err(_) => {}
                }
                sleep(self.election.period() / 8).await;
            }
        }
    }

    fn is_own(&self, lease: &Lease, term: i64) -> bool {
        lease.spec.as_ref().is_some_and(|spec| {
            spec.holder_identity.as_deref() == Some(self.election.identity.as_str())
                && spec.lease_transitions.map(i64::from) == Some(term)
        })
    }

    async fn renew(&self, held: &mut Held) -> kube::Result<()> {
        let mut wanted = held.lease.clone();
        if let Some(spec) = wanted.spec.as_mut() {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let sent = Instant::now();
        held.lease = self.leases.replace(LEASE_NAME, &params(), &wanted).await?;
        held.sent = sent;
        Ok(())
    }

    /// Lets the next leader start at once; otherwise it waits until the lease expires.
    async fn give_back(&self, held: Held) {
        let mut wanted = held.lease;
        if let Some(spec) = wanted.spec.as_mut() {
            spec.holder_identity = None;
        }
        let _ = timeout(self.election.period(), self.leases.replace(LEASE_NAME, &params(), &wanted)).await;
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(names::CONTROLLER_MANAGER.to_string()), ..PostParams::default() }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

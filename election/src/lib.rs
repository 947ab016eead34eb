//! Election of one process among several: the leader holds one Lease, and renews it at a third of its duration.
//!
//! No wall clock counts. The leader counts from the moment it sent the last renewal that succeeded, and steps
//! down well before others may take over; the others count from the moment they saw the lease change. Each
//! acquisition of the lease begins a new term, whose number is raised by compare-and-swap, also when the same
//! identity acquires it again. Deliberately absent: what a leader does.

use std::time::Duration;

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

/// Settings of an election.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace and name of the Lease.
    pub namespace: String,
    pub lease: &'static str,
    /// Field manager of the writes.
    pub manager: &'static str,
    /// This process's name. A process takes over a lease of its own name at once.
    pub identity: String,
    /// Whether the process of that name is known to have ended: its lease is free, too.
    pub has_ended: fn(&str) -> bool,
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

/// One process's part in the election.
pub struct Seat {
    leases: Api<Lease>,
    election: Election,
    /// Version of the lease at its last observed change, and when that was.
    seen: Option<(String, Instant)>,
}

/// The lease as this process last wrote it.
pub struct Held {
    lease: Lease,
    pub term: i64,
    sent: Instant,
}

/// How a term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Another process has the lease.
    Taken,
    /// No renewal has succeeded for too long: another process may take it.
    Unrenewed,
}

/// What came of one renewal.
enum Renewal {
    Done,
    Taken,
    Failed,
}

impl Seat {
    pub fn new(client: Client, election: Election) -> Self {
        Self { leases: Api::namespaced(client, &election.namespace), election, seen: None }
    }

    /// Until when this process leads, if it is renewed no more.
    pub fn leads_until(&self, held: &Held) -> Instant {
        held.sent + self.election.hold()
    }

    /// Waits until this process holds the lease.
    pub async fn acquire(&mut self) -> Held {
        loop {
            match timeout(self.election.period(), self.try_acquire()).await {
                Ok(Ok(Some(held))) => return held,
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot acquire the leader's lease; retrying"),
                Err(_) => {
                    tracing::warn!("the API server does not answer; retrying to acquire the leader's lease");
                }
            }
            sleep(self.election.period() / 4).await;
        }
    }

    /// Acquires the lease if it is free, has this process's identity or that of a process that has ended, or has
    /// not changed for its whole duration.
    async fn try_acquire(&mut self) -> kube::Result<Option<Held>> {
        let known = self.leases.get_opt(self.election.lease).await?;
        let spec = known.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let is_free =
            holder.is_empty() || holder == self.election.identity || (self.election.has_ended)(&holder);
        if let Some(lease) = known.as_ref().filter(|_| !is_free) {
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
            metadata: ObjectMeta { name: Some(self.election.lease.to_string()), ..ObjectMeta::default() },
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
            Some(_) => self.leases.replace(self.election.lease, &self.params(), &wanted).await,
            None => self.leases.create(&self.params(), &wanted).await,
        };
        match written {
            Ok(lease) => Ok(Some(Held { lease, term: i64::from(term), sent })),
            // Another process was faster.
            Err(error) if is_conflict(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renews the lease once, when the next renewal is due. A process whose renewals have failed for too long may
    /// go on trying: it leads again if one succeeds.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn renew(&self, held: &mut Held) -> Result<(), Lost> {
        let until = self.leads_until(held);
        let left = || until.saturating_duration_since(Instant::now());
        if left().is_zero() {
            return match timeout(self.election.period(), self.try_renew(held)).await {
                Ok(Renewal::Done) => Ok(()),
                Ok(Renewal::Taken) => Err(Lost::Taken),
                Ok(Renewal::Failed) | Err(_) => {
                    sleep(self.election.period() / 8).await;
                    Err(Lost::Unrenewed)
                }
            };
        }
        sleep(self.election.period().min(left())).await;
        while !left().is_zero() {
            match timeout(left(), self.try_renew(held)).await {
                Ok(Renewal::Done) => return Ok(()),
                Ok(Renewal::Taken) => return Err(Lost::Taken),
                Ok(Renewal::Failed) | Err(_) => sleep(self.election.period() / 8).await,
            }
        }
        Err(Lost::Unrenewed)
    }

    async fn try_renew(&self, held: &mut Held) -> Renewal {
        let mut wanted = held.lease.clone();
        if let Some(spec) = wanted.spec.as_mut() {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let sent = Instant::now();
        match self.leases.replace(self.election.lease, &self.params(), &wanted).await {
            Ok(lease) => {
                (held.lease, held.sent) = (lease, sent);
                Renewal::Done
            }
            Err(error) if is_conflict(&error) => {
                // The answer to an own renewal may have been lost, or another process has taken the lease.
                match self.leases.get(self.election.lease).await {
                    Ok(lease) if self.is_own(&lease, held.term) => {
                        held.lease = lease;
                        Renewal::Failed
                    }
                    Ok(_) => Renewal::Taken,
                    Err(_) => Renewal::Failed,
                }
            }
            // Somebody has deleted it: whoever creates it next leads.
            Err(kube::Error::Api(status)) if status.code == 404 => Renewal::Taken,
            Err(error) => {
                tracing::warn!(%error, "cannot renew the leader's lease");
                Renewal::Failed
            }
        }
    }

    fn is_own(&self, lease: &Lease, term: i64) -> bool {
        lease.spec.as_ref().is_some_and(|spec| {
            spec.holder_identity.as_deref() == Some(self.election.identity.as_str())
                && spec.lease_transitions.map(i64::from) == Some(term)
        })
    }

    /// Lets the next leader start at once; otherwise it waits until the lease expires.
    pub async fn give_back(&self, held: Held) {
        let mut wanted = held.lease;
        if let Some(spec) = wanted.spec.as_mut() {
            spec.holder_identity = None;
        }
        let params = self.params();
        let written = self.leases.replace(self.election.lease, &params, &wanted);
        let _ = timeout(self.election.period(), written).await;
    }

    fn params(&self) -> PostParams {
        PostParams { field_manager: Some(self.election.manager.to_string()), ..PostParams::default() }
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

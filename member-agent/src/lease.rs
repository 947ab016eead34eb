//! The agent's Lease on the hub, and the clock with its deadline.
//!
//! The deadline counts from the moment the last renewal that succeeded was *sent*, on this process's
//! monotonic clock, so it is never later than the hub's own count.

use fleet_agent_ground::LeaseState;
use fleet_agent_ground::Sorted;
use std::{sync::Arc, time::Duration};

use fleet_api::{names, ordered};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{Api, api::PostParams};
use tokio::time::Instant;

use crate::context::Context;
use fleet_agent_ground::{Backoff, CallError, call};

/// The agent of another member runs under the cluster's name.
#[derive(Debug, thiserror::Error)]
#[error(
    "cluster {cluster:?}: its lease {namespace}/{lease} is held by {holder:?}, which keeps renewing it; allowed: one \
     agent for each cluster name (this one is {own:?})",
    lease = names::LEASE_NAME
)]
pub struct TwoAgents {
    pub cluster: String,
    pub namespace: String,
    pub holder: String,
    pub own: String,
}

/// Acquires and renews the Lease.
pub(crate) struct Holder {
    context: Arc<Context>,
    sorted: Sorted,
    leases: Api<Lease>,
    identity: String,
    /// What the names of all agents of this member begin with.
    installation: String,
    state: Arc<ordered::Sender<LeaseState>>,
    /// The Lease as last read or written.
    lease: Option<Lease>,
}

impl Holder {
    /// `installation` distinguishes the agents of this member from those of another one under the same name.
    pub fn new(context: Arc<Context>, sorted: Sorted, installation: &str) -> Self {
        let installation = format!("{}-{installation}", context.options.cluster);
        let process = context.options.election.as_ref().map(|election| &election.identity);
        Self {
            leases: Api::namespaced(context.lease_client.clone(), &context.cluster_namespace()),
            identity: process
                .map_or_else(|| installation.clone(), |process| format!("{installation}/{process}")),
            installation,
            state: context.lease.sender(),
            context,
            sorted,
            lease: None,
        }
    }

    /// Acquires the lease: at once if it is free or belongs to this installation, of whose processes only one
    /// leads; otherwise after it has expired.
    ///
    /// # Errors
    /// [`TwoAgents`] if its holder renews it meanwhile.
    pub async fn acquire(&mut self) -> Result<(), TwoAgents> {
        let mut backoff = Backoff::new(&self.identity);
        loop {
            match self.renew().await {
                Ok(Renewal::Held) => return Ok(()),
                Ok(Renewal::Other { holder, duration, version }) => {
                    tracing::info!(%holder, "another agent holds the lease; waiting for it to expire");
                    self.wait_for_lapse(holder, duration, version).await?;
                }
                Err(error) => {
                    self.context.counts.lease_failed();
                    tracing::warn!(cluster = %self.context.options.cluster, %error, "cannot take the lease");
                    backoff.wait().await;
                }
            }
        }
    }

    fn is_of_this_member(&self, holder: &str) -> bool {
        let rest = holder.strip_prefix(self.installation.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The incarnation of the hub for which no run without a Work is left here.
    fn sorted_for(&self) -> Option<String> {
        self.sorted.is_noted().then(|| self.context.sources.hub.incarnation()).flatten()
    }

    /// Renews until the agent stops.
    ///
    /// # Errors
    /// [`TwoAgents`] if another agent has taken the lease and renews it.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let shutdown = self.context.shutdown.clone();
        let mut backoff = Backoff::new(&self.identity);
        let period = self.context.options.lease_renew;
        let mut wait = period;
        while shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
            match shutdown.run_until_cancelled(self.renew()).await {
                None => break,
                Some(Ok(Renewal::Held)) => {
                    backoff.reset();
                    wait = period;
                }
                Some(Ok(Renewal::Other { .. })) => {
                    if let Some(acquired) = shutdown.run_until_cancelled(self.acquire()).await {
                        acquired?;
                    }
                }
                Some(Err(error)) => {
                    self.context.counts.lease_failed();
                    tracing::warn!(cluster = %self.context.options.cluster, %error, "cannot renew the lease");
                    wait = backoff.next_delay().min(period);
                }
            }
        }
        Ok(())
    }

    /// Waits until the lease of another holder expires.
    async fn wait_for_lapse(
        &mut self,
        holder: String,
        duration: Duration,
        version: Option<String>,
    ) -> Result<(), TwoAgents> {
        tokio::time::sleep(duration).await;
        let Ok(now) = call(self.leases.get_opt(names::LEASE_NAME)).await else { return Ok(()) };
        let renewed = now.as_ref().is_some_and(|lease| {
            lease.metadata.resource_version != version && holder_of(lease) == Some(holder.as_str())
        });
        if renewed {
            return Err(TwoAgents {
                cluster: self.context.options.cluster.clone(),
                namespace: self.context.cluster_namespace(),
                holder,
                own: self.identity.clone(),
            });
        }
        // Not renewed in its whole duration, by this process's own clock: it is free.
        self.lease = now.map(|mut lease| {
            lease.spec = None;
            lease
        });
        Ok(())
    }

    /// One renewal, by compare-and-swap.
    async fn renew(&mut self) -> Result<Renewal, CallError> {
        if self.lease.is_none() {
            self.lease = call(self.leases.get_opt(names::LEASE_NAME)).await?;
        }
        let (options, now) = (&self.context.options, self.context.clock.now());
        if let Some(lease) = &self.lease
            && let Some(holder) = holder_of(lease).filter(|holder| *holder != self.identity)
            && !(self.is_of_this_member(holder) && self.context.leadership.holds())
        {
            let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
            let other = Renewal::Other {
                holder: holder.to_owned(),
                duration: seconds.map_or(options.lease_duration, |s| Duration::from_secs(s.max(0) as u64)),
                version: lease.metadata.resource_version.clone(),
            };
            if self.is_of_this_member(holder) {
                // It took over while this process could not renew the lease in the member.
                self.context.leadership.is_replaced();
            } else {
                self.context.counts.lease_refused();
            }
            self.lease = None;
            return Ok(other);
        }
        let mut wanted = self.lease.clone().unwrap_or_default();
        wanted.metadata.name = Some(names::LEASE_NAME.to_owned());
        // Rounded up to whole seconds: the hub waits at least as long as this agent takes.
        let grace = options.fence_grace.as_secs() + u64::from(options.fence_grace.subsec_nanos() > 0);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(names::FENCE_GRACE_ANNOTATION.to_owned(), grace.to_string());
        // Until unknown runs have been removed, the earlier value stays and tells the hub so.
        if let Some(incarnation) = self.sorted_for() {
            annotations.insert(names::SORTED_ANNOTATION.to_owned(), incarnation);
        }
        let spec = wanted.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(MicroTime(now));
        }
        // The field takes whole seconds; a shorter duration counts as one.
        spec.lease_duration_seconds = Some(options.lease_duration.as_secs().clamp(1, i32::MAX as u64) as i32);
        spec.renew_time = Some(MicroTime(now));
        let params =
            PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() };
        let sent = Instant::now();
        let known = self.lease.take();
        let written = if known.is_some() {
            call(self.leases.replace(names::LEASE_NAME, &params, &wanted)).await
        } else {
            call(self.leases.create(&params, &wanted)).await
        };
        // After a failure the lease is read again.
        let written = written?;
        let is_declared_lost = written
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|marks| marks.contains_key(names::DECLARED_LOST_ANNOTATION));
        self.lease = Some(written);
        self.context.counts.lease_renewed(sent + options.lease_duration);
        self.state.send_modify(|state| {
            state.deadline = Some(sent + options.lease_duration);
            state.is_declared_lost = is_declared_lost;
        });
        Ok(Renewal::Held)
    }
}

enum Renewal {
    Held,
    Other { holder: String, duration: Duration, version: Option<String> },
}

fn holder_of(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

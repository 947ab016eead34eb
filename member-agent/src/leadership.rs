//! Which agent of a member acts: of several processes one holds a Lease in the member; the others stand by.
//!
//! A process that leads reads and writes. One that stands by does neither; it learns everything by listing when
//! it leads, like a process that was restarted. The clients check at the moment of each write that this process
//! still leads, so a process that was paused writes nothing when it resumes.
//!
//! When renewals fail, nobody may have taken over: all agents of the member may have lost its API server. So the
//! agent stops writing, but still renews its lease on the hub, until it finds another holder in the member or,
//! on the hub, another process of its own installation. Otherwise the loss of a member's API server would look
//! like the loss of the cluster, and jobs that still run would be started elsewhere.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fleet_agent_ground::{Backoff, call};
use fleet_api::names;
use fleet_election::{Lost, Seat};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::process_name;

/// Settings of the election among the agents of one member.
#[derive(Clone, Debug)]
pub struct Election {
    /// Name of this process, unique among those that run.
    pub identity: String,
    /// Time without a renewal after which another agent takes over.
    pub duration: Duration,
}

/// A write of a process that does not lead.
#[derive(Debug, thiserror::Error)]
#[error("this agent does not lead any more; another agent of this member may act")]
struct NotLeading;

/// Whether this process leads.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// Until then; `None`: for ever, as it is the only one.
    until: Arc<Mutex<Option<Instant>>>,
    /// Cancelled when another process of this member was seen to lead.
    replaced: CancellationToken,
}

impl Leadership {
    /// The leadership of an agent without others.
    pub fn alone() -> Self {
        Self::until(None)
    }

    fn until(until: Option<Instant>) -> Self {
        Self { until: Arc::new(Mutex::new(until)), replaced: CancellationToken::new() }
    }

    pub fn holds(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| Instant::now() < until)
    }

    fn set(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Another process of this member leads.
    pub fn is_replaced(&self) {
        self.replaced.cancel();
    }

    /// A client whose writes fail while this process does not lead. Deletions of pods pass: they start nothing, and
    /// fenced jobs must be stopped also when the lease in the member cannot be renewed.
    fn guard(&self, client: Client) -> Client {
        let (namespace, leadership) = (client.default_namespace().to_owned(), self.clone());
        let send = service_fn(move |request: http::Request<kube::client::Body>| {
            let is_guarded = match *request.method() {
                http::Method::GET => false,
                http::Method::DELETE => request.uri().path().rsplit('/').nth(1) != Some("pods"),
                _ => true,
            };
            let client = (!is_guarded || leadership.holds()).then(|| client.clone());
            async move {
                match client {
                    Some(client) => client.send(request).await,
                    None => Err(kube::Error::Service(Box::new(NotLeading))),
                }
            }
        });
        Client::new(send, namespace)
    }
}

/// The clients of an agent that leads.
#[derive(Clone)]
pub(crate) struct Clients {
    pub hub: Client,
    pub member: Client,
    /// For the lease on the hub only: it is renewed also while it is unknown who leads.
    pub lease: Client,
}

/// Runs `body` whenever this process leads, until `shutdown`. The token passed to `body` is cancelled when it
/// stops leading; the lease is released at once on `shutdown`.
///
/// # Errors
/// The error of `body`.
pub(crate) async fn lead<F, R>(
    (hub, member): (Client, Client),
    election: Election,
    shutdown: &CancellationToken,
    body: F,
) -> anyhow::Result<()>
where
    F: Fn(Clients, Leadership, CancellationToken) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let identity = election.identity.clone();
    let settings = fleet_election::Election {
        namespace: names::MEMBER_NAMESPACE.to_owned(),
        lease: names::AGENT_LEADER_LEASE,
        manager: names::AGENT_MANAGER,
        identity: election.identity,
        has_ended: process_name::has_ended,
        duration: election.duration,
    };
    let mut seat = Seat::new(member.clone(), settings);
    loop {
        let acquiring = async {
            make_namespace(&member).await;
            tracing::info!(%identity, "stands by until it leads in this member");
            seat.acquire().await
        };
        let Some(mut held) = shutdown.run_until_cancelled(acquiring).await else { return Ok(()) };
        tracing::info!(%identity, term = held.term, "leads in this member");
        let leadership = Leadership::until(Some(seat.leads_until(&held)));
        let clients = Clients {
            hub: leadership.guard(hub.clone()),
            member: leadership.guard(member.clone()),
            lease: hub.clone(),
        };
        let stop = shutdown.child_token();
        let mut running = std::pin::pin!(body(clients, leadership.clone(), stop.clone()));
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            () = keep(&seat, &mut held, &leadership) => None,
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
        tracing::warn!(%identity, "another agent of this member leads");
    }
}

/// Renews the lease until another process leads.
async fn keep(seat: &Seat, held: &mut fleet_election::Held, leadership: &Leadership) {
    let renewing = async {
        loop {
            match seat.renew(held).await {
                Ok(()) => leadership.set(seat.leads_until(held)),
                Err(Lost::Unrenewed) => {}
                Err(Lost::Taken) => return,
            }
        }
    };
    leadership.replaced.run_until_cancelled(renewing).await;
    leadership.set(Instant::now());
}

/// Creates the agent's namespace in the member, in which the lease is.
async fn make_namespace(member: &Client) {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(names::MEMBER_NAMESPACE.to_owned());
    let params = PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() };
    let mut backoff = Backoff::new("leader/namespace");
    loop {
        let namespaces: Api<Namespace> = Api::all(member.clone());
        match call(namespaces.create(&params, &namespace)).await {
            Ok(_) => return,
            Err(error) if error.is_conflict() => return,
            Err(error) => tracing::warn!(%error, "cannot prepare the member; retrying"),
        }
        backoff.wait().await;
    }
}

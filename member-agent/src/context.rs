//! What every part of one agent shares: the two clients, the options, the stop signal, the lease clock
//! and the way to the holds.
//!
//! Deliberately absent: state of the member. It has one owner, the core task; other parts ask it
//! through handles.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fleet_informer::{Feed, Selection, Source};
use kube::Api;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Options;
use fleet_agent_ground::{Admissions, Clock, LeaseClock, Link, Owned, Reservations, Sorted, Terms};

/// Counts writes under way that others wait for, so that what nobody waits for can let them pass.
#[derive(Debug, Default)]
pub(crate) struct Urgent {
    under_way: AtomicUsize,
    ended: Notify,
}

/// One write under way.
pub(crate) struct UnderWay<'u>(&'u Urgent);

impl Urgent {
    pub fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Waits until at most `most` are under way, no longer than `patience`.
    pub async fn let_pass(&self, most: usize, patience: Duration) {
        let quiet = async {
            loop {
                let ended = self.ended.notified();
                if self.under_way.load(Ordering::Relaxed) <= most {
                    return;
                }
                ended.await;
            }
        };
        // Out of patience: the write goes out beside the others.
        let _ = tokio::time::timeout(patience, quiet).await;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

/// The two API servers of an agent.
pub(crate) struct Sources {
    pub hub: Source,
    pub member: Source,
}

/// Shared by all parts of one agent.
pub struct Context {
    /// Client of the hub.
    pub hub: kube::Client,
    /// Client of the member.
    pub member: kube::Client,
    pub options: Options,
    /// Cancelled when the agent is to stop.
    pub shutdown: CancellationToken,
    /// Until when the hub believes this agent alive.
    pub lease: LeaseClock,
    /// The newest term of a leader of the hub.
    pub(crate) terms: Arc<Terms>,
    /// Wall-clock time.
    pub clock: Clock,
    /// Which Volcano Jobs are let into their queues.
    pub(crate) admissions: Admissions,
    /// The jobs that Fleet made here and that have places.
    pub(crate) owned: Owned,
    reservations: Reservations,
    /// The hub and the member, as this agent follows them.
    pub(crate) sources: Sources,
    /// Whether nothing runs here that no Work of the hub names.
    pub(crate) sorted: Sorted,
    /// Bindings under way.
    pub(crate) urgent: Urgent,
}

impl Context {
    pub(crate) fn new(
        hub: kube::Client,
        member: kube::Client,
        options: Options,
        shutdown: CancellationToken,
        lease: LeaseClock,
        reservations: Reservations,
    ) -> Self {
        let clock = options.clock;
        let sources = Sources {
            hub: Source::asked(hub.clone(), &format!("hub of {}", options.cluster)),
            member: Source::unasked(&options.cluster),
        };
        let terms = Arc::new(Terms::new(member.clone(), sources.hub.clone(), &options.cluster));
        Self {
            hub,
            member,
            options,
            shutdown,
            lease,
            terms,
            clock,
            admissions: Admissions::default(),
            owned: Owned::default(),
            reservations,
            sources,
            sorted: Sorted::default(),
            urgent: Urgent::default(),
        }
    }

    /// The incarnation of the hub for which that is so.
    pub(crate) fn sorted_for(&self) -> Option<String> {
        self.sorted.is_noted().then(|| self.sources.hub.incarnation()).flatten()
    }

    /// The hub, as rooms ask and follow it.
    pub(crate) fn hub_link(&self) -> Link {
        Link::new(self.hub.clone(), self.sources.hub.clone(), &self.options.cluster)
    }

    /// The member.
    pub(crate) fn member_link(&self) -> Link {
        Link::new(self.member.clone(), self.sources.member.clone(), &self.options.cluster)
    }

    /// A feed from the hub. `name` says what of.
    pub(crate) fn hub_feed<K>(&self, api: Api<K>, selection: Selection, name: &str) -> Feed<K> {
        self.feed(&self.sources.hub, api, selection, name)
    }

    /// A feed from the member.
    pub(crate) fn member_feed<K>(&self, api: Api<K>, selection: Selection, name: &str) -> Feed<K> {
        self.feed(&self.sources.member, api, selection, name)
    }

    fn feed<K>(&self, source: &Source, api: Api<K>, selection: Selection, name: &str) -> Feed<K> {
        Feed { source: source.clone(), api, selection, name: format!("{}/{name}", self.options.cluster) }
    }

    /// Namespace on the hub that belongs to this member.
    pub fn cluster_namespace(&self) -> String {
        fleet_api::names::cluster_namespace(&self.options.cluster)
    }

    /// The way to the holds: `consume` when a Work has arrived, `release` when its job is gone.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }
}

//! Shared by the parts of the process: the two API servers, the options, the stop signal and the lease clock.
//! Other crates get only what their handles name.

use std::sync::Arc;

use fleet_agent_ground::{Clock, Counts, LeaseClock, Link, Terms};
use fleet_informer::Source;
use tokio_util::sync::CancellationToken;

use crate::{
    leadership::{Clients, Leadership},
    options::Options,
};

/// The two API servers of an agent.
pub(crate) struct Sources {
    pub hub: Source,
    pub member: Source,
}

pub(crate) struct Context {
    /// Client of the hub.
    pub hub: kube::Client,
    /// Client of the member.
    pub member: kube::Client,
    /// Client of the hub for the lease.
    pub lease_client: kube::Client,
    /// Whether this process acts for the member.
    pub leadership: Leadership,
    pub options: Options,
    /// Cancelled when the agent is to stop.
    pub shutdown: CancellationToken,
    /// Until when the hub counts this agent as alive.
    pub lease: LeaseClock,
    /// The newest term of a leader of the hub.
    pub terms: Arc<Terms>,
    /// Wall-clock time.
    pub clock: Clock,
    pub counts: Counts,
    /// The watched hub and member.
    pub sources: Sources,
}

impl Context {
    pub fn new(
        Clients { hub, member, lease: lease_client }: Clients,
        leadership: Leadership,
        options: Options,
        shutdown: CancellationToken,
        lease: LeaseClock,
    ) -> Self {
        let clock = options.clock;
        let counts = options.metrics.of(&options.cluster);
        let sources = Sources {
            hub: Source::asked(hub.clone(), &format!("hub of {}", options.cluster)),
            member: Source::unasked(&options.cluster),
        };
        let terms = Arc::new(Terms::new(member.clone(), sources.hub.clone(), &options.cluster));
        Self {
            hub,
            member,
            lease_client,
            leadership,
            options,
            shutdown,
            lease,
            terms,
            clock,
            counts,
            sources,
        }
    }

    /// Requests to and watches of the hub.
    pub fn hub_link(&self) -> Link {
        Link::new(self.hub.clone(), self.sources.hub.clone(), &self.options.cluster)
    }

    /// The member.
    pub fn member_link(&self) -> Link {
        Link::new(self.member.clone(), self.sources.member.clone(), &self.options.cluster)
    }

    /// Namespace on the hub that belongs to this member.
    pub fn cluster_namespace(&self) -> String {
        fleet_api::names::cluster_namespace(&self.options.cluster)
    }
}

//! What the tests of this room need of an agent beside its servers.

use std::{ops::Deref, sync::Arc};

use fleet_agent_fixture::Fixture as Servers;
use fleet_agent_ground::{HoldRequest, JobController, LeaseClock, Permits, Reservations};
use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{Context, Options};

pub(crate) struct Fixture {
    servers: Servers,
    pub context: Arc<Context>,
    pub holds: mpsc::Receiver<HoldRequest>,
}

impl Deref for Fixture {
    type Target = Servers;

    fn deref(&self) -> &Servers {
        &self.servers
    }
}

impl Fixture {
    /// Servers and a context.
    pub async fn new(controllers: &[JobController]) -> Self {
        let servers = Servers::new(controllers).await;
        let (context, holds) = context_of(&servers.hub, &servers.member, Options::new("east"));
        Self { servers, context, holds }
    }

    /// The same servers with an agent that is told what the hub may do.
    pub fn permit(&mut self, permits: Permits) {
        let options = Options { permits, ..self.context.options.clone() };
        (self.context, self.holds) = context_of(&self.hub, &self.member, options);
    }

    /// Another agent over the same servers, as after a restart.
    pub fn restart(&mut self) {
        self.context.shutdown.cancel();
        (self.context, self.holds) = context_of(&self.hub, &self.member, Options::new("east"));
    }

    /// A whole agent whose scheduler is configured so, until the fixture is dropped.
    pub fn run_agent(&self, scheduler_conf: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("volcano-scheduler.conf");
        std::fs::write(&file, scheduler_conf).expect("a file");
        let options = Options { scheduler_conf: Some(file), ..Options::new("east") };
        let agent = crate::run(self.hub.clone(), self.member.clone(), options, self.servers.shutdown.clone());
        tokio::spawn(async move {
            agent.await.expect("the agent ends well");
            drop(folder);
        });
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.context.shutdown.cancel();
    }
}

fn context_of(
    hub: &Client,
    member: &Client,
    options: Options,
) -> (Arc<Context>, mpsc::Receiver<HoldRequest>) {
    let (reservations, holds, _) = Reservations::new();
    let (stop, lease) = (CancellationToken::new(), LeaseClock::held());
    (Arc::new(Context::new(hub.clone(), member.clone(), options, stop, lease, reservations)), holds)
}

//! What the tests of this room need of an agent beside its servers.

use std::{ops::Deref, sync::Arc};

use fleet_agent_fixture::Fixture as Servers;
use fleet_agent_ground::{JobController, LeaseClock, Reservations};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{Context, Options};

pub(crate) struct Fixture {
    servers: Servers,
    pub context: Arc<Context>,
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
        let context = context_of(&servers.hub, &servers.member, Options::new("east"));
        Self { servers, context }
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

fn context_of(hub: &Client, member: &Client, options: Options) -> Arc<Context> {
    let (reservations, _, _) = Reservations::new();
    let (stop, lease) = (CancellationToken::new(), LeaseClock::held());
    Arc::new(Context::new(hub.clone(), member.clone(), options, stop, lease, reservations))
}

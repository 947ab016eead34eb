//! A hub and its members in one process: API servers, controller, agents and hollow nodes.
//!
//! Inputs: a [`FleetSpec`]. The parts communicate as in production, through API servers only; here their
//! clients call the servers' routers without a socket. Not here: anything that only works because the parts
//! share a process.

mod admit;
mod ends;
mod home;
mod ready;
mod requests;
mod spec;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fleet_api::{
    ClusterSpec,
    crds::{self, Side},
    names,
};
use fleet_apiserver::{Access, ApiServer, Config, ServeOptions, Server};
use fleet_metrics::{Exposed, Process};
use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use member_agent::{AgentMetrics, JobController, Webhook};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use admit::{AdmitError, MemberAccess, admit_member, prepare_hub, prepare_users};
pub use home::Home;
pub use ready::NotReady;
pub use requests::{RequestKind, Requests};
pub use spec::{FleetSpec, Listen, MemberSpec, node_name};

use crate::{hollow, standins};

/// How long the parts may take to end before they are abandoned.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Nothing else writes the fields of these managers' objects, so managedFields need not be written with each
/// change.
const UNTRACKED: [&str; 3] = [names::CONTROLLER_MANAGER, names::AGENT_MANAGER, hollow::FIELD_MANAGER];

/// Provider of every member.
const PROVIDER: &str = "fleet-up";

/// Why a fleet did not start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "data directory {}: in use by another process; stop that `fleet up` or choose another with --data-dir",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("data directory {}: {message}; give a directory you can write with --data-dir", path.display())]
    Directory { path: PathBuf, message: String },
    #[error(
        "port {port} for {of} is taken ({message}); free it or choose another first port with --port \
         (a fleet of {members} members needs {needed} ports in a row)"
    )]
    Port { port: u16, of: String, message: String, members: usize, needed: usize },
    #[error("{of}: {message}")]
    Server { of: String, message: String },
    #[error("members: found none; allowed: 1 or more")]
    NoMembers,
}

/// A running fleet. Call [`LocalFleet::shutdown`] to end it in order.
pub struct LocalFleet {
    hub: Part,
    members: BTreeMap<String, Part>,
    /// In the order of the spec, in which tables and messages list the members.
    names: Vec<String>,
    /// Number of nodes of each member.
    nodes: BTreeMap<String, i64>,
    home: Option<Home>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    of_controller: fleet_controller::Metrics,
    of_agents: AgentMetrics,
    /// The first task that ended with an error.
    failure: watch::Receiver<Option<String>>,
}

/// One API server and its address.
struct Part {
    server: ApiServer,
    served: Option<Server>,
    client: Client,
}

impl LocalFleet {
    /// Opens the servers and starts every part. Returns before the fleet is ready: see [`Self::ready`].
    ///
    /// # Errors
    /// The directory, a port or a server cannot be used; nothing is left running then.
    pub fn start(spec: FleetSpec) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::start_in_place(spec))
    }

    async fn start_in_place(spec: FleetSpec) -> Result<Self, StartError> {
        check_ports(&spec)?;
        let home = spec.data_dir.as_deref().map(Home::open).transpose()?;
        Self::start_in(spec, home).await
    }

    /// As [`Self::start`], in a directory that this process has locked already.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_in(spec: FleetSpec, home: Option<Home>) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::start_in_in_place(spec, home))
    }

    async fn start_in_in_place(spec: FleetSpec, home: Option<Home>) -> Result<Self, StartError> {
        if spec.members.is_empty() {
            return Err(StartError::NoMembers);
        }
        if let Some(home) = &home {
            home.remember(&spec.members)?;
        }
        // Each in a task of its own: opening a store uses a processor.
        let (hub_crds, member_crds) = (crds::definitions(Side::Hub), crds::definitions(Side::Member));
        let mut opening = Vec::new();
        for (offset, name) in
            std::iter::once("hub").chain(spec.members.iter().map(|member| member.name.as_str())).enumerate()
        {
            let (crds, data_dir) = match offset {
                0 => (hub_crds.clone(), home.as_ref().map(Home::hub_data)),
                _ => (member_crds.clone(), home.as_ref().map(|home| home.member_data(name))),
            };
            // Callers over the network authenticate; the parts in this process call the router directly.
            let untracked = UNTRACKED.map(str::to_string).into();
            let config = Config { data_dir, crds, access: Access::Rbac, untracked, ..Config::default() };
            let listen = listen_at(spec.listen, offset);
            opening.push(tokio::spawn(Part::open(name.to_string(), config, listen)));
        }
        let mut parts = Vec::new();
        let mut failed = None;
        for opened in opening {
            match opened.await {
                Ok(Ok(part)) => parts.push(part),
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(error) => {
                    let message = error.to_string();
                    failed = failed.or(Some(StartError::Server { of: "a server".to_string(), message }));
                }
            }
        }
        if let Some(error) = failed {
            futures::future::join_all(parts.into_iter().map(Part::close)).await;
            return Err(error);
        }
        let mut parts = parts.into_iter();
        let Some(hub) = parts.next() else {
            return Err(StartError::NoMembers);
        };
        let names: Vec<String> = spec.members.iter().map(|member| member.name.clone()).collect();
        let members: BTreeMap<String, Part> = names.iter().cloned().zip(parts).collect();
        if let Err(error) = admit_all(&hub, &members, &spec.members).await {
            futures::future::join_all(members.into_values().chain([hub]).map(Part::close)).await;
            return Err(StartError::Server { of: "hub".to_string(), message: error.to_string() });
        }
        if let Some(home) = &home {
            write_kubeconfigs(home, &hub, &members)?;
        }
        let mut fleet = Self {
            hub,
            members,
            names,
            nodes: spec
                .members
                .iter()
                .map(|member| (member.name.clone(), i64::try_from(member.nodes).unwrap_or(i64::MAX)))
                .collect(),
            home,
            shutdown: CancellationToken::new(),
            tasks: JoinSet::new(),
            of_controller: fleet_controller::Metrics::default(),
            of_agents: AgentMetrics::default(),
            failure: watch::channel(None).1,
        };
        fleet.spawn_parts(&spec);
        Ok(fleet)
    }

    /// A fleet with a directory keeps a log there; it starts even if the log cannot be opened.
    fn run_log(&self) -> Option<fleet_controller::RunLog> {
        let path = self.home.as_ref()?.run_log();
        let kept = fleet_controller::RunLog::keep(&path, fleet_controller::RUN_LOG_SIZE);
        kept.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "no run log is kept")).ok()
    }

    fn spawn_parts(&mut self, spec: &FleetSpec) {
        let (report, failure) = watch::channel(None);
        self.failure = failure;
        let hub = self.hub.client.clone();
        let metrics = self.of_controller.clone();
        let options = fleet_controller::Options { metrics, run_log: self.run_log(), ..Default::default() };
        let controller = fleet_controller::run(hub, options, self.shutdown.clone());
        self.spawn("fleet-controller".to_string(), report.clone(), controller);
        for member in &spec.members {
            let Some(part) = self.members.get(&member.name) else {
                continue;
            };
            let (hub, client) = (self.hub.client.clone(), part.client.clone());
            if spec.ends_only {
                let (member, default, stop) = (member.clone(), spec.default_run_time, self.shutdown.clone());
                let name = format!("stand-in for {}", member.name);
                self.spawn(name, report.clone(), ends::run(hub, member, default, stop));
                continue;
            }
            let mut options = agent_options(member, part);
            options.scheduler_conf.clone_from(&spec.scheduler_conf);
            options.metrics = self.of_agents.clone();
            let nodes = hollow::NodeSpec {
                count: member.nodes,
                cpu: member.cpu.clone(),
                memory: member.memory.clone(),
                gpus: member.gpus,
                labels: BTreeMap::from([
                    ("topology.kubernetes.io/region".to_string(), member.region()),
                    ("topology.kubernetes.io/zone".to_string(), member.zone()),
                ]),
                taints: Vec::new(),
            };
            let mut hollow_options = hollow::Options::new(&member.name, nodes, spec.default_run_time);
            for (node, name) in hollow_options.nodes.iter_mut().zip(&member.node_names) {
                node.name.clone_from(name);
            }
            if let Some(tenants) = &spec.shared {
                hollow_options.admission = true;
                options.scheduler_names = ["fleet".to_string()].into();
                options.controllers.clear();
                let (of, stop) = (client.clone(), self.shutdown.clone());
                let parts = [
                    ("operator", standins::operator::run(of.clone(), stop.clone())),
                    ("scheduler", standins::scheduler::run(of.clone(), stop.clone())),
                    ("tenants", standins::tenants::run(of, tenants.clone(), stop)),
                ];
                for (what, part) in parts {
                    self.spawn(format!("{what} of {}", member.name), report.clone(), part);
                }
            }
            let nodes = hollow::run(client.clone(), hollow_options, self.shutdown.clone());
            let agent = member_agent::run(hub, client, options, self.shutdown.clone());
            self.spawn(format!("hollow nodes of {}", member.name), report.clone(), nodes);
            self.spawn(format!("member-agent of {}", member.name), report.clone(), agent);
        }
    }

    fn spawn(
        &mut self,
        name: String,
        report: watch::Sender<Option<String>>,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            if let Err(error) = or_panic(work).await {
                tracing::error!(%name, "{error:#}");
                report.send_if_modified(|first| {
                    let is_first = first.is_none();
                    first.get_or_insert(format!("{name}: {error:#}"));
                    is_first
                });
            }
        });
    }

    /// A client of the hub, in this process.
    pub fn hub(&self) -> Client {
        self.hub.client.clone()
    }

    /// A client of a member, in this process.
    pub fn member(&self, name: &str) -> Option<Client> {
        self.members.get(name).map(|part| part.client.clone())
    }

    /// Names of the members, in the order of the spec.
    pub fn members(&self) -> &[String] {
        &self.names
    }

    pub fn home(&self) -> Option<&Path> {
        self.home.as_ref().map(Home::path)
    }

    /// A kubeconfig of the hub, when it is served.
    pub fn kubeconfig(&self) -> Option<String> {
        self.hub.served.as_ref().map(|served| served.kubeconfig("fleet"))
    }

    /// Metrics of this process, the controller and the agents.
    pub fn metrics(&self) -> Vec<Arc<dyn Exposed>> {
        let process = Process::new("fleet", env!("CARGO_PKG_VERSION"));
        vec![Arc::new(process), Arc::new(self.of_controller.clone()), Arc::new(self.of_agents.clone())]
    }

    /// The first part that ended with an error, as a sentence; waits until there is one.
    pub async fn failed(&self) -> String {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(found) => found.clone().unwrap_or_default(),
            // Every part ended without an error: nothing to report.
            Err(_) => futures::future::pending().await,
        }
    }

    /// Ends the parts, then the servers. State on disk is complete afterwards.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(self.shutdown_in_place())
    }

    async fn shutdown_in_place(mut self) {
        self.shutdown.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
            tracing::warn!("some parts did not end in {SHUTDOWN_TIMEOUT:?}");
            self.tasks.shutdown().await;
        }
        let parts = self.members.into_values().chain([self.hub]);
        let closing = futures::future::join_all(parts.map(Part::close));
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, closing).await.is_err() {
            tracing::warn!("some servers did not close in {SHUTDOWN_TIMEOUT:?}");
        }
    }
}

/// The end of a part, which fails if it panics: a fleet that goes on without one of its parts looks well and does nothing.
async fn or_panic(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // The part is dropped, so nobody sees its state.
    let panic = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(ended) => return ended,
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    Err(anyhow::anyhow!("ended by a defect of this program: {text}"))
}

impl Part {
    async fn open(name: String, config: Config, listen: Option<SocketAddr>) -> Result<Self, StartError> {
        let failed = |message: String| StartError::Server { of: name.clone(), message };
        let server = ApiServer::open(config).await.map_err(|error| failed(error.to_string()))?;
        let client = Client::new(server.router(), "default");
        let served = match listen {
            Some(listen) => {
                let options = ServeOptions { listen, ..ServeOptions::default() };
                Some(server.serve(options).await.map_err(|error| failed(error.to_string()))?)
            }
            None => None,
        };
        Ok(Self { server, served, client })
    }

    async fn close(self) {
        if let Some(served) = self.served {
            served.shutdown().await;
        }
        self.server.shutdown().await;
    }
}

/// The administrator's setup before the agents start: admission policies of the hub, and each member's
/// objects.
async fn admit_all(
    hub: &Part,
    members: &BTreeMap<String, Part>,
    specs: &[MemberSpec],
) -> Result<(), AdmitError> {
    prepare_hub(&hub.client).await?;
    let admitted = specs.iter().map(async |member| {
        let part = members.get(&member.name);
        let access =
            part.and_then(|part| part.served.as_ref().map(|served| (part, served))).map(|(part, served)| {
                MemberAccess {
                    url: format!("https://{}", served.local_addr()),
                    token: part.server.admin_token().to_string(),
                    ca_pem: served.ca_pem().to_string(),
                }
            });
        let spec = ClusterSpec {
            provider: Some(PROVIDER.to_string()),
            region: Some(member.region()),
            zones: vec![member.zone()],
            ..ClusterSpec::default()
        };
        admit_member(&hub.client, &member.name, spec, access.as_ref()).await
    });
    futures::future::try_join_all(admitted).await.map(drop)
}

fn agent_options(member: &MemberSpec, part: &Part) -> member_agent::Options {
    let mut options = member_agent::Options::new(&member.name);
    if let Some(served) = &part.served {
        options.api_endpoint = Some(format!("https://{}", served.local_addr()));
        options.webhook = Some(Webhook::on_loopback());
    }
    options.provider = Some(PROVIDER.to_string());
    options.region = Some(member.region());
    options.zones = vec![member.zone()];
    options.scheduler_names =
        ["fleet", "volcano", "default-scheduler"].into_iter().map(str::to_string).collect();
    options.controllers = JobController::ALL.into_iter().collect();
    options
}

fn write_kubeconfigs(home: &Home, hub: &Part, members: &BTreeMap<String, Part>) -> Result<(), StartError> {
    if let Some(served) = &hub.served {
        home.write_private(&home.hub_kubeconfig(), &served.kubeconfig("fleet"))?;
    }
    for (name, part) in members {
        if let Some(served) = &part.served {
            home.write_private(&home.member_kubeconfig(name), &served.kubeconfig(name))?;
        }
    }
    Ok(())
}

fn listen_at(listen: Listen, offset: usize) -> Option<SocketAddr> {
    match listen {
        Listen::InProcess => None,
        Listen::Ephemeral => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)),
        Listen::From { host, first_port } => {
            let offset = u16::try_from(offset).unwrap_or(u16::MAX);
            Some(SocketAddr::new(host, first_port.saturating_add(offset)))
        }
    }
}

/// Reports a port in use before anything is opened or written.
///
/// # Errors
/// The first port that cannot be listened on.
pub fn check_ports(spec: &FleetSpec) -> Result<(), StartError> {
    let Listen::From { first_port, .. } = spec.listen else {
        return Ok(());
    };
    let needed = spec.members.len() + 1;
    for offset in 0..needed {
        let of = match offset.checked_sub(1).and_then(|index| spec.members.get(index)) {
            Some(member) => format!("member {:?}", member.name),
            None => "the hub".to_string(),
        };
        let error = |port: u16, message: String| StartError::Port {
            port,
            of: of.clone(),
            message,
            members: spec.members.len(),
            needed,
        };
        if usize::from(first_port) + offset > usize::from(u16::MAX) {
            return Err(error(u16::MAX, "the last port is 65535".to_string()));
        }
        if let Some(address) = listen_at(spec.listen, offset)
            && let Err(found) = TcpListener::bind(address)
        {
            return Err(error(address.port(), found.to_string()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_panics_fails_by_name() {
        let spec = FleetSpec { members: MemberSpec::many(1, 1, 0, "4", "8Gi"), ..FleetSpec::default() };
        let mut fleet = LocalFleet::start(spec).await.expect("starts");
        let (report, failure) = watch::channel(None);
        fleet.failure = failure;
        let counts = [i64::MAX];
        let work = async move {
            tokio::task::yield_now().await;
            let sum = counts.iter().try_fold(1_i64, |sum, count| sum.checked_add(*count));
            anyhow::ensure!(sum.expect("a small sum") > 0);
            Ok(())
        };
        fleet.spawn("a part".to_string(), report, work);
        assert_eq!(fleet.failed().await, "a part: ended by a defect of this program: a small sum");
        fleet.shutdown().await;
    }
}

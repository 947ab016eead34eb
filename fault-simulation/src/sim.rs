//! The fleet of one run: API servers in memory, and the processes between them, each behind its own faults.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::Context;
use fleet_api::{clock::Clock, crds};
use fleet_apiserver::{
    ApiServer, Config, Ids,
    faults::{FaultLayer, Link},
};
use fleet_controller::Election;
use kube::Client;
use member_agent::JobController;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tower::Layer;

use super::{
    network_faults::{FaultRates, FaultScript, Faults, Reports},
    plan::{Process, Rates, Server, Side, SimulationPlan, Way},
    random::Random,
};
use fleet_kubesim::hollow;
use fleet_simulator::{RunTime, scenario::ClusterSpec};

/// When every run begins; any moment would do, as long as it is always the same.
const BEGIN: &str = "2026-01-01T00:00:00Z";

/// How long a leader's lease lasts.
const ELECTION: Duration = Duration::from_secs(15);

/// One process that runs.
struct Running {
    life: u64,
    script: Arc<FaultScript>,
    links: Vec<(Server, Link)>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// State of the ways of a process, which outlives it.
#[derive(Clone, Copy, Debug, Default)]
struct Ways {
    requests_cut: bool,
    answers_cut: bool,
    hub_refused: bool,
    member_refused: bool,
    member_hung: bool,
}

/// What the loss of power does to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    /// It still works, and nobody hears of it any more.
    Failing,
    Off,
}

pub struct Sim {
    seed: u64,
    drift_ppm: i32,
    standby: bool,
    lingering: bool,
    /// Of each cluster, what runs on while its kubelets are away.
    containers: BTreeMap<String, hollow::Containers>,
    servers: BTreeMap<Server, ApiServer>,
    /// Without faults: for the user, the observer and the checker.
    pub direct: BTreeMap<Server, Client>,
    clusters: BTreeMap<String, ClusterSpec>,
    running: BTreeMap<Process, Running>,
    ways: BTreeMap<Process, Ways>,
    /// Servers without power, or about to lose it.
    unpowered: BTreeMap<Server, Power>,
    fault_rates: BTreeMap<Process, FaultRates>,
    lives: BTreeMap<Process, u64>,
    /// Of the machines on which the processes run.
    clocks: BTreeMap<Process, Clock>,
    reports: Reports,
}

impl Sim {
    /// Opens the servers and starts every process.
    ///
    /// # Errors
    /// A server does not open.
    pub async fn start(
        plan: &SimulationPlan,
        deaths: mpsc::UnboundedSender<(Process, u64)>,
    ) -> anyhow::Result<Self> {
        let clock = clock(0)?;
        let mut servers = BTreeMap::new();
        let names = plan.clusters.iter().map(|cluster| Server::Member(cluster.name.clone()));
        for (index, server) in std::iter::once(Server::Hub).chain(names).enumerate() {
            let side = if server == Server::Hub { crds::Side::Hub } else { crds::Side::Member };
            let config = Config {
                crds: crds::definitions(side),
                clock: fleet_apiserver::Clock(Arc::new(move || clock.now())),
                ids: Ids::seeded(plan.seed.wrapping_mul(31).wrapping_add(index as u64 * 7_919)),
                ..Config::default()
            };
            let opened = ApiServer::open(config).await.with_context(|| server.to_string())?;
            servers.insert(server, opened);
        }
        let direct =
            servers.iter().map(|(name, server)| (name.clone(), Client::new(server.router(), "default")));
        let mut sim = Self {
            seed: plan.seed,
            drift_ppm: plan.drift_ppm,
            standby: plan.standby,
            lingering: plan.lingering,
            containers: BTreeMap::new(),
            direct: direct.collect(),
            servers,
            clusters: plan.clusters.iter().map(|cluster| (cluster.name.clone(), cluster.clone())).collect(),
            running: BTreeMap::new(),
            ways: BTreeMap::new(),
            unpowered: BTreeMap::new(),
            fault_rates: BTreeMap::new(),
            lives: BTreeMap::new(),
            clocks: BTreeMap::new(),
            reports: Reports {
                faults: Arc::new(Faults::default()),
                requests: Arc::new(AtomicU64::new(0)),
                deaths,
            },
        };
        for process in sim.processes() {
            sim.begin(&process)?;
        }
        Ok(sim)
    }

    pub fn processes(&self) -> Vec<Process> {
        let of_members = self
            .clusters
            .keys()
            .flat_map(|name| [Process::Nodes(name.clone()), Process::Agent(name.clone())]);
        let standby = self.standby.then_some(Process::Standby);
        std::iter::once(Process::Controller).chain(standby).chain(of_members).collect()
    }

    pub fn hub(&self) -> &Client {
        &self.direct[&Server::Hub]
    }

    /// Clients of the members by cluster name.
    pub fn members(&self) -> BTreeMap<String, Client> {
        let member = |(server, client): (&Server, &Client)| match server {
            Server::Hub => None,
            Server::Member(name) => Some((name.clone(), client.clone())),
        };
        self.direct.iter().filter_map(member).collect()
    }

    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.reports.faults.by_kind()
    }

    pub fn count_fault(&self, kind: &'static str) {
        self.reports.faults.count(kind);
    }

    pub fn requests(&self) -> u64 {
        self.reports.requests.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn is_running(&self, process: &Process) -> bool {
        self.running.contains_key(process)
    }

    /// Starts a process that does not run.
    ///
    /// # Errors
    /// Its cluster is not in the plan.
    pub fn begin(&mut self, process: &Process) -> anyhow::Result<()> {
        let life = self.lives.entry(process.clone()).or_default();
        *life += 1;
        let life = *life;
        let rates = self.fault_rates.get(process).copied().unwrap_or_default();
        let script = FaultScript::new(process.clone(), life, self.seed, rates, &self.reports);
        let stop = CancellationToken::new();
        let mut links = Vec::new();
        let mut client = |server: Server| -> anyhow::Result<Client> {
            let router = self.servers.get(&server).with_context(|| format!("no {server}"))?.router();
            let link = Link::default();
            let side = if server == Server::Hub { Side::Hub } else { Side::Own };
            let link_script = script.link_script(link.clone(), side);
            links.push((server, link.clone()));
            Ok(Client::new(FaultLayer::new(link, link_script).layer(router), "default"))
        };
        // Each process has its own drift, the same over all of its lives: it is the machine's.
        let drift = drift(self.seed, process, self.drift_ppm);
        let fresh = || clock(drift);
        let clock = match self.clocks.get(process) {
            Some(clock) => *clock,
            None => *self.clocks.entry(process.clone()).or_insert(fresh()?),
        };
        let task = match process {
            Process::Controller | Process::Standby => {
                let mut options = controller_options(clock, drift);
                options.election = self.standby.then(|| Election {
                    namespace: "kube-system".to_string(),
                    identity: process.to_string(),
                    duration: drifted(ELECTION, drift),
                });
                let work = fleet_controller::run(client(Server::Hub)?, options, stop.clone());
                tokio::spawn(ends(process.clone(), work))
            }
            Process::Agent(name) => {
                let cluster = self.clusters.get(name).with_context(|| format!("no cluster {name}"))?;
                let options = agent_options(cluster, clock, drift);
                let (hub, member) = (client(Server::Hub)?, client(Server::Member(name.clone()))?);
                tokio::spawn(ends(process.clone(), member_agent::run(hub, member, options, stop.clone())))
            }
            Process::Nodes(name) => {
                let cluster = self.clusters.get(name).with_context(|| format!("no cluster {name}"))?;
                let mut options = hollow_options(cluster, clock);
                options.lingering = self.lingering;
                options.containers = self.containers.entry(name.clone()).or_default().clone();
                let member = client(Server::Member(name.clone()))?;
                tokio::spawn(ends(process.clone(), hollow::run(member, options, stop.clone())))
            }
        };
        self.running.insert(process.clone(), Running { life, script, links, stop, task });
        self.apply_ways(process);
        Ok(())
    }

    /// Ends a process between two of its instructions. Returns whether that life still ran.
    pub fn end(&mut self, process: &Process, life: Option<u64>) -> bool {
        if life.is_some_and(|life| self.running.get(process).is_none_or(|running| running.life != life)) {
            return false;
        }
        let Some(running) = self.running.remove(process) else { return false };
        running.script.cut_off();
        running.task.abort();
        // What it has spawned is tied to this.
        running.stop.cancel();
        true
    }

    /// The process dies at a later write of this life.
    pub fn die_in(&mut self, process: &Process, writes: u64, unheard: bool) {
        if let Some(running) = self.running.get(process) {
            running.script.die_in(writes, unheard);
        }
    }

    pub fn set_rates(&mut self, process: &Process, side: Side, rates: Rates) {
        let both = self.fault_rates.entry(process.clone()).or_default();
        both.set(side, rates);
        if let Some(running) = self.running.get(process) {
            running.script.set_rates(*both);
        }
    }

    /// Closes the way between a process and the hub.
    pub fn partition(&mut self, process: &Process, way: Way) {
        let ways = self.ways.entry(process.clone()).or_default();
        ways.requests_cut = way != Way::Answers;
        ways.answers_cut = way != Way::Requests;
        self.apply_ways(process);
    }

    pub fn heal(&mut self, process: &Process) {
        let ways = self.ways.entry(process.clone()).or_default();
        (ways.requests_cut, ways.answers_cut) = (false, false);
        self.apply_ways(process);
    }

    /// Every watch of a process on the hub breaks, and cannot go on from where it was.
    pub fn lose_history(&mut self, process: &Process, over: bool) {
        self.ways.entry(process.clone()).or_default().hub_refused = !over;
        if let Some(running) = self.running.get(process).filter(|_| !over) {
            running.script.lose_history();
        }
        self.apply_ways(process);
    }

    /// The same of one resource, when this life of a process next creates one.
    pub fn lose_history_at_create(&mut self, process: &Process, resource: &'static str) {
        if let Some(running) = self.running.get(process) {
            running.script.lose_history_at_create(resource);
        }
    }

    /// A member's API server hangs, or is gone, for its agent and its nodes.
    pub fn member_down(&mut self, cluster: &str, down: Option<bool>) {
        for process in [Process::Agent(cluster.to_string()), Process::Nodes(cluster.to_string())] {
            let ways = self.ways.entry(process.clone()).or_default();
            (ways.member_hung, ways.member_refused) = (down == Some(true), down == Some(false));
            self.apply_ways(&process);
        }
    }

    /// A server's disk is nearly full, or has room again.
    pub fn limit_room(&self, server: &Server, bytes: Option<u32>) {
        if let Some(server) = self.servers.get(server) {
            server.limit_room(bytes);
        }
    }

    /// A server works on and answers nobody. Returns its state: what it has answered.
    pub fn fail_power(&mut self, server: &Server) -> Option<u64> {
        let revision = self.servers.get(server)?.revision();
        self.unpowered.insert(server.clone(), Power::Failing);
        self.apply_all_ways();
        Some(revision)
    }

    /// The server is off, and has lost what it did since that state. Returns whether it has.
    pub fn lose_power(&mut self, server: &Server, revision: u64) -> bool {
        self.unpowered.insert(server.clone(), Power::Off);
        self.break_links(server);
        self.apply_all_ways();
        self.servers.get(server).is_some_and(|server| server.lose_after(revision))
    }

    pub fn return_power(&mut self, server: &Server) {
        self.unpowered.remove(server);
        self.apply_all_ways();
    }

    /// The hub is what it was so long ago, as another incarnation. Returns whether it knew that state.
    pub fn restore_hub(&mut self, back: Duration) -> bool {
        self.break_links(&Server::Hub);
        self.servers.get(&Server::Hub).is_some_and(|hub| hub.restore(back))
    }

    /// Every connection to a server breaks, with what is under way on it.
    fn break_links(&self, server: &Server) {
        let links = self.running.values().flat_map(|running| &running.links);
        for (_, link) in links.filter(|(to, _)| to == server) {
            link.set(|state| state.breaks += 1);
        }
    }

    fn apply_all_ways(&self) {
        for process in self.running.keys() {
            self.apply_ways(process);
        }
    }

    fn apply_ways(&self, process: &Process) {
        let ways = self.ways.get(process).copied().unwrap_or_default();
        let Some(running) = self.running.get(process) else { return };
        for (server, link) in &running.links {
            let power = self.unpowered.get(server);
            let (off, unheard) = (power == Some(&Power::Off), power.is_some());
            link.set(|state| match server {
                Server::Hub => {
                    (state.requests_cut, state.answers_cut) =
                        (ways.requests_cut, ways.answers_cut || unheard);
                    state.refused = ways.hub_refused || off;
                }
                Server::Member(_) => {
                    (state.requests_cut, state.answers_cut) = (ways.member_hung, ways.member_hung || unheard);
                    state.refused = ways.member_refused || off;
                }
            });
        }
    }

    /// Everything that is down comes back, every way opens, every disk has room, no request meets a fault any more.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn calm(&mut self) -> anyhow::Result<()> {
        for process in self.processes() {
            self.set_rates(&process, Side::Hub, Rates::default());
            self.set_rates(&process, Side::Own, Rates::default());
            self.die_in(&process, u64::MAX, false);
        }
        for server in self.servers.values() {
            server.limit_room(None);
        }
        self.ways.clear();
        self.unpowered.clear();
        self.apply_all_ways();
        for process in self.processes() {
            if !self.is_running(&process) {
                self.begin(&process)?;
            }
        }
        Ok(())
    }

    /// Processes that ended by themselves, which none should; they are forgotten, to be started again.
    pub fn ended(&mut self) -> Vec<Process> {
        let ended: Vec<Process> = self
            .running
            .iter()
            .filter(|(_, running)| running.task.is_finished())
            .map(|(process, _)| process.clone())
            .collect();
        for process in &ended {
            self.end(process, None);
        }
        ended
    }
}

async fn ends(process: Process, work: impl Future<Output = anyhow::Result<()>>) {
    if let Err(error) = work.await {
        tracing::warn!(%process, "ended: {error:#}");
    }
}

fn clock(drift_ppm: i32) -> anyhow::Result<Clock> {
    Ok(Clock::from(BEGIN.parse()?, drift_ppm))
}

fn drift(seed: u64, process: &Process, bound_ppm: i32) -> i32 {
    let mut random = Random::branch(seed, &format!("drift {process}"));
    let span = u64::try_from(bound_ppm).unwrap_or(0) * 2;
    i32::try_from(random.between(0, span)).unwrap_or(0) - bound_ppm
}

/// What a process with this drift takes for so much time.
fn drifted(time: Duration, drift_ppm: i32) -> Duration {
    let nanoseconds = time.as_nanos() as i128 * 1_000_000 / (1_000_000 + i128::from(drift_ppm));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

fn controller_options(clock: Clock, drift_ppm: i32) -> fleet_controller::Options {
    let mut options = fleet_controller::Options { clock, ..fleet_controller::Options::default() };
    let rules = &mut options.rules;
    rules.lease_duration = drifted(rules.lease_duration, drift_ppm);
    rules.lease_margin = drifted(rules.lease_margin, drift_ppm);
    options
}

fn agent_options(cluster: &ClusterSpec, clock: Clock, drift_ppm: i32) -> member_agent::Options {
    let mut options = member_agent::Options::new(&cluster.name);
    options.clock = clock;
    options.installation = Some(format!("installation-of-{}", cluster.name));
    options.lease_duration = drifted(options.lease_duration, drift_ppm);
    options.lease_renew = drifted(options.lease_renew, drift_ppm);
    options.provider = cluster.provider.clone();
    options.region = cluster.region.clone();
    options.zones = cluster.zones.clone();
    options.labels = cluster.labels.clone();
    options.reservation = cluster.reservation;
    options.scheduler_names =
        ["fleet", "volcano", "default-scheduler"].into_iter().map(str::to_string).collect();
    options.controllers = JobController::ALL.into_iter().collect();
    options
}

fn hollow_options(cluster: &ClusterSpec, clock: Clock) -> hollow::Options {
    let mut nodes = Vec::new();
    for pool in &cluster.node_pools {
        for index in 0..pool.count {
            nodes.push(hollow::HollowNode {
                name: pool.node_name(index),
                allocatable: pool.allocatable.clone(),
                labels: pool.labels.clone(),
                taints: pool.taints.iter().map(|taint| serde_json::json!(taint)).collect(),
            });
        }
    }
    let mut options = hollow::Options::with_nodes(&cluster.name, nodes, RunTime::Forever);
    options.clock = hollow::Clock::new(move || clock.now());
    options.heartbeat = None;
    options
}

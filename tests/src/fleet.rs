//! A whole fleet in the test's process: hub, members, controller, agents, hollow nodes.
//!
//! The parts are the production ones and meet only in the API servers, which are a parameter. Each part can
//! be ended and started again alone, as a process would be.

mod stored;

pub use stored::Stored;

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use anyhow::{Context, bail};
use fleet_api::{ClusterSpec, crds::Side};
use fleet_check::{self as check, History, Snapshot};
use fleet_kubesim::{
    RunTime, hollow,
    local_fleet::{MemberAccess, admit_member},
    standins,
};
use kube::Client;
use member_agent::{JobController, Webhook};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    gate::Gate,
    history::Recorder,
    objects::{self, Kind},
    rights::Hub,
    servers::{ApiServers, Door, Plane},
    wait::{self, Polled},
};

/// Bound of everything that happens by itself and is quick; generous, because tests share two cores.
pub const SOON: Duration = Duration::from_secs(20);

/// What a test wants.
#[derive(Clone, Debug)]
pub struct FleetSpec {
    pub members: Vec<MemberSpec>,
    /// Of pods that do not say how long they run.
    pub run_time: RunTime,
    pub door: Door,
    pub controller: fleet_controller::Options,
    /// Leases that run out within seconds.
    pub quick_leases: bool,
    /// The agents refuse what only other objects show to be wrong.
    pub webhook: bool,
    /// The members have a training operator and a scheduler of their own; their agents bring none but `fleet`.
    pub shared: bool,
    /// Under whose rights agents apply; the members then ask their roles who may do what.
    pub impersonate: Option<String>,
}

/// One member and its nodes, all alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    pub name: String,
    pub nodes: usize,
    pub gpus: u32,
    pub cpu: String,
    pub memory: String,
    /// Of its nodes, where they are not to be numbered.
    pub node_names: Vec<String>,
}

impl FleetSpec {
    /// Members in a small text form: `east 2x8, west 1x4` is east with two nodes of eight GPUs and west with
    /// one of four. A node has 16 cpu and 64Gi.
    pub fn of(members: &str) -> Self {
        let read = |text: &str| {
            let (name, shape) = text.trim().split_once(' ')?;
            let (nodes, gpus) = shape.split_once('x')?;
            Some(MemberSpec {
                name: name.to_string(),
                nodes: nodes.parse().ok()?,
                gpus: gpus.parse().ok()?,
                cpu: "16".to_string(),
                memory: "64Gi".to_string(),
                node_names: Vec::new(),
            })
        };
        let members = members.split(',').map(|text| {
            // A typo in a test.
            read(text).unwrap_or_else(|| panic!("{text:?} is no member; allowed: NAME NODESxGPUS"))
        });
        Self {
            members: members.collect(),
            run_time: RunTime::For(Duration::from_millis(300)),
            door: Door::InProcess,
            controller: fleet_controller::Options::default(),
            quick_leases: false,
            webhook: false,
            shared: false,
            impersonate: None,
        }
    }

    /// Agents apply under the rights of this account of each namespace.
    pub fn impersonating(mut self, account: &str) -> Self {
        self.impersonate = Some(format!("system:serviceaccount:{{namespace}}:{account}"));
        self
    }

    /// Members as clusters are that others own: see [`fleet_kubesim::standins`].
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Gives every node this much cpu.
    pub fn cpu(mut self, cpu: &str) -> Self {
        for member in &mut self.members {
            member.cpu = cpu.to_string();
        }
        self
    }

    /// Names the nodes of the first member.
    pub fn nodes(mut self, names: &[&str]) -> Self {
        if let Some(member) = self.members.first_mut() {
            member.node_names = names.iter().map(|name| (*name).to_string()).collect();
        }
        self
    }

    pub fn listening(mut self) -> Self {
        self.door = Door::Listening;
        self
    }

    pub fn webhook(mut self) -> Self {
        self.webhook = true;
        self
    }

    pub fn run_time(mut self, run_time: RunTime) -> Self {
        self.run_time = run_time;
        self
    }

    /// A member that does not answer is lost after 3.5 s.
    pub fn quick_leases(mut self) -> Self {
        self.quick_leases = true;
        self.controller.rules.lease_duration = Duration::from_secs(2);
        self.controller.rules.lease_margin = Duration::from_millis(500);
        self
    }

    /// Starts it and waits until every member is ready.
    ///
    /// # Errors
    /// A server does not start, or a member does not get ready.
    pub async fn start(self) -> anyhow::Result<TestFleet> {
        TestFleet::start(self).await
    }
}

/// A part that can be ended and started again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Controller,
    Agent(String),
    Nodes(String),
    /// The cluster's own operator and scheduler.
    Operator(String),
    Scheduler(String),
}

struct RunningPart {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

/// A running fleet. End a test with [`TestFleet::finish`].
pub struct TestFleet {
    spec: FleetSpec,
    hub: Hub,
    /// The hub as controller and agents reach it, with the rights that the charts give them.
    callers: BTreeMap<Part, Client>,
    members: BTreeMap<String, Plane>,
    parts: BTreeMap<Part, RunningPart>,
    recorder: Recorder,
    /// The agents' links to the hub.
    links: BTreeMap<String, Gate>,
}

impl TestFleet {
    async fn start(spec: FleetSpec) -> anyhow::Result<Self> {
        let mut fleet = Self::prepare(spec).await?;
        let names: Vec<String> = fleet.members.keys().cloned().collect();
        fleet.begin(Part::Controller)?;
        for name in &names {
            fleet.begin(Part::Nodes(name.clone()))?;
            fleet.begin(Part::Agent(name.clone()))?;
            if fleet.spec.shared {
                fleet.begin(Part::Operator(name.clone()))?;
                fleet.begin(Part::Scheduler(name.clone()))?;
            }
        }
        fleet.ready().await?;
        Ok(fleet)
    }

    /// Servers with what an administrator does for controller and agents before they come.
    async fn prepare(spec: FleetSpec) -> anyhow::Result<Self> {
        let servers = ApiServers::from_env()?;
        let hub = Hub::start(spec.door).await?;
        let starts = spec.members.iter().map(async |member| match &spec.impersonate {
            Some(_) => servers.start_with_roles(&member.name, Side::Member, spec.door).await,
            None => servers.start(&member.name, Side::Member, spec.door).await,
        });
        let planes = futures::future::try_join_all(starts).await?;
        let members: BTreeMap<String, Plane> =
            planes.into_iter().map(|plane| (plane.name.clone(), plane)).collect();
        let clients = members.iter().map(|(name, plane)| (name.clone(), plane.client.clone()));
        let recorder = Recorder::start(hub.client.clone(), clients.collect());
        let links = members.keys().map(|name| (name.clone(), Gate::default())).collect();
        let callers = BTreeMap::from([(Part::Controller, hub.controller().await?)]);
        let mut fleet = Self { spec, hub, callers, members, parts: BTreeMap::new(), recorder, links };
        let names: Vec<String> = fleet.members.keys().cloned().collect();
        for name in &names {
            fleet.admit(name).await?;
        }
        Ok(fleet)
    }

    /// What an administrator does for a member before its agent comes.
    async fn admit(&mut self, name: &str) -> anyhow::Result<()> {
        let plane = self.members.get(name).with_context(|| format!("no member {name}"))?;
        let spec = ClusterSpec { region: Some(format!("region-{name}")), ..ClusterSpec::default() };
        let access = plane.address.as_ref().map(|address| MemberAccess {
            url: address.url.clone(),
            token: address.token.clone(),
            ca_pem: address.ca_pem.clone(),
        });
        admit_member(&self.hub.client, name, spec, access.as_ref()).await?;
        let namespace = fleet_api::names::cluster_namespace(name);
        let agent = self.hub.account(&namespace, "member-agent").await?;
        self.callers.insert(Part::Agent(name.to_string()), agent);
        Ok(())
    }

    async fn ready(&self) -> anyhow::Result<()> {
        for member in &self.spec.members {
            let what = format!("cluster {} to be ready with its nodes", member.name);
            self.wait_for(&what, async || {
                let found = self.get(objects::CLUSTER, "", &member.name).await?.unwrap_or_default();
                let ready = objects::condition(&found, "Ready").is_some_and(|c| c["status"] == "True");
                let nodes = found["status"]["nodeSummary"]["readyNum"].as_u64().unwrap_or(0);
                let all = nodes as usize >= member.nodes;
                Ok(Polled::when(ready && all, || found["status"].to_string()))
            })
            .await?;
        }
        Ok(())
    }

    /// Starts a part that does not run.
    ///
    /// # Errors
    /// The part's member does not exist.
    pub fn begin(&mut self, part: Part) -> anyhow::Result<()> {
        let stop = CancellationToken::new();
        let hub = self.callers.get(&part).unwrap_or(&self.hub.client).clone();
        let task = match &part {
            Part::Controller => {
                tokio::spawn(fleet_controller::run(hub, self.spec.controller.clone(), stop.clone()))
            }
            Part::Agent(name) => {
                let options = self.agent_options(name)?;
                let hub = self.link(name)?.client(hub);
                tokio::spawn(member_agent::run(hub, self.member(name)?, options, stop.clone()))
            }
            Part::Nodes(name) => {
                let options = self.hollow_options(name)?;
                tokio::spawn(hollow::run(self.member(name)?, options, stop.clone()))
            }
            Part::Operator(name) => tokio::spawn(standins::operator::run(self.member(name)?, stop.clone())),
            Part::Scheduler(name) => tokio::spawn(standins::scheduler::run(self.member(name)?, stop.clone())),
        };
        self.parts.insert(part, RunningPart { stop, task });
        Ok(())
    }

    /// The link of a member's agent to the hub, to cut and to heal.
    ///
    /// # Errors
    /// There is no such member.
    pub fn link(&self, name: &str) -> anyhow::Result<&Gate> {
        self.links.get(name).with_context(|| format!("no member {name}"))
    }

    /// Ends a part between any two of its instructions, as SIGKILL does.
    pub async fn kill(&mut self, part: &Part) {
        if let Some(running) = self.parts.remove(part) {
            running.task.abort();
            let _ = running.task.await;
            // What the part has spawned and tied to this token ends too.
            running.stop.cancel();
        }
    }

    fn member_spec(&self, name: &str) -> anyhow::Result<&MemberSpec> {
        self.spec.members.iter().find(|m| m.name == name).with_context(|| format!("no member {name}"))
    }

    fn agent_options(&self, name: &str) -> anyhow::Result<member_agent::Options> {
        let plane = self.members.get(name).with_context(|| format!("no member {name}"))?;
        let mut options = member_agent::Options::new(name);
        if let Some(address) = &plane.address {
            options.api_endpoint = Some(address.url.clone());
        }
        if self.spec.quick_leases {
            options.lease_duration = Duration::from_secs(2);
            options.lease_renew = Duration::from_millis(500);
            options.fence_grace = Duration::from_secs(1);
            // Hollow watchdogs stop a pod at once.
            options.watchdog_stops_within = Duration::ZERO;
        }
        options.permits.impersonate.clone_from(&self.spec.impersonate);
        options.webhook = self.spec.webhook.then(Webhook::on_loopback);
        options.scheduler_names =
            ["fleet", "volcano", "default-scheduler"].into_iter().map(str::to_string).collect();
        options.controllers = JobController::ALL.into_iter().collect();
        if self.spec.shared {
            options.scheduler_names = ["fleet".to_string()].into();
            options.controllers.clear();
        }
        Ok(options)
    }

    fn hollow_options(&self, name: &str) -> anyhow::Result<hollow::Options> {
        let member = self.member_spec(name)?;
        let nodes = hollow::NodeSpec {
            count: member.nodes,
            cpu: member.cpu.clone(),
            memory: member.memory.clone(),
            gpus: member.gpus,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        };
        let mut options = hollow::Options::new(name, nodes, self.spec.run_time);
        for (node, wanted) in options.nodes.iter_mut().zip(&member.node_names) {
            node.name.clone_from(wanted);
        }
        Ok(hollow::Options { admission: self.spec.shared, ..options })
    }

    /// The hub, to make callers with roles of their own.
    pub fn hub_with_roles(&self) -> &Hub {
        &self.hub
    }

    pub fn hub(&self) -> Client {
        self.hub.client.clone()
    }

    /// A client of a member.
    ///
    /// # Errors
    /// No such member.
    pub fn member(&self, name: &str) -> anyhow::Result<Client> {
        self.members.get(name).map(|plane| plane.client.clone()).with_context(|| format!("no member {name}"))
    }

    pub fn member_names(&self) -> Vec<&str> {
        self.members.keys().map(String::as_str).collect()
    }

    /// A kubeconfig of the hub, when it listens.
    pub fn kubeconfig(&self) -> Option<&str> {
        self.hub.plane.address.as_ref().map(|address| address.kubeconfig.as_str())
    }

    /// Applies every document of a file to the hub.
    ///
    /// # Errors
    /// The file cannot be read, or the hub refuses one.
    pub async fn apply_file(&self, file: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        for manifest in fleet_api::yaml::read_all::<Value>(&text)? {
            self.apply(&manifest).await?;
        }
        Ok(())
    }

    /// Applies one manifest to the hub.
    ///
    /// # Errors
    /// What the hub says.
    pub async fn apply(&self, manifest: &Value) -> anyhow::Result<Value> {
        objects::apply(&self.hub(), manifest).await
    }

    /// An object of the hub.
    ///
    /// # Errors
    /// The hub does not answer.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Option<Value>> {
        objects::get(&self.hub(), kind, namespace, name).await
    }

    /// Deletes an object of the hub.
    ///
    /// # Errors
    /// What the hub says.
    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<()> {
        objects::delete(&self.hub(), kind, namespace, name).await
    }

    /// Objects of a kind in every member, with the member's name.
    ///
    /// # Errors
    /// A member does not answer.
    pub async fn member_objects(&self, kind: Kind) -> anyhow::Result<Vec<(String, Value)>> {
        let mut found = Vec::new();
        for (name, plane) in &self.members {
            let listed = objects::list(&plane.client, kind).await?;
            found.extend(listed.into_iter().map(|object| (name.clone(), object)));
        }
        Ok(found)
    }

    /// Pods of one job in every member, with the member's name.
    ///
    /// # Errors
    /// A member does not answer.
    pub async fn pods_of(&self, job: &str) -> anyhow::Result<Vec<(String, Value)>> {
        let mut pods = self.member_objects(objects::POD).await?;
        pods.retain(|(_, pod)| pod["metadata"]["ownerReferences"][0]["name"] == job);
        Ok(pods)
    }

    /// Events on the hub about one object, oldest first.
    ///
    /// # Errors
    /// The hub does not answer.
    pub async fn events_of(&self, kind: Kind, name: &str) -> anyhow::Result<Vec<Value>> {
        let mut events = objects::list(&self.hub(), objects::EVENT).await?;
        events.retain(|event| {
            event["involvedObject"]["kind"] == kind.kind && event["involvedObject"]["name"] == name
        });
        events.sort_by_key(|event| event["metadata"]["name"].as_str().map(str::to_string));
        Ok(events)
    }

    /// State of a job of the namespace `default`; empty when there is none.
    ///
    /// # Errors
    /// The hub does not answer.
    pub async fn job_state(&self, kind: Kind, name: &str) -> anyhow::Result<String> {
        let job = self.get(kind, "default", name).await?;
        Ok(job.as_ref().map(objects::job_state).unwrap_or_default())
    }

    /// The binding of a job of the namespace `default`.
    ///
    /// # Errors
    /// The hub does not answer, or there is none.
    pub async fn binding(&self, kind: Kind, name: &str) -> anyhow::Result<Value> {
        let binding = fleet_api::names::binding_name(kind.api_version, kind.kind, name);
        let found = self.get(objects::BINDING, "default", &binding).await?;
        found.with_context(|| format!("no binding {binding}"))
    }

    /// As [`wait::wait_for`] with the usual bound; a failure shows the whole fleet.
    ///
    /// # Errors
    /// As there.
    pub async fn wait_for<T>(
        &self,
        what: &str,
        look: impl AsyncFnMut() -> anyhow::Result<Polled<T>>,
    ) -> anyhow::Result<T> {
        match wait::wait_for(what, SOON, look).await {
            Ok(found) => Ok(found),
            Err(error) => bail!("{error:#}\n{}{}", self.picture().await, self.ended_parts()),
        }
    }

    /// Waits until a job of the namespace `default` is in a state; returns it.
    ///
    /// # Errors
    /// It does not get there in time.
    pub async fn wait_state(&self, kind: Kind, name: &str, state: &str) -> anyhow::Result<Value> {
        self.wait_for(&format!("{} {name} to be {state}", kind.kind), async || {
            let job = self.get(kind, "default", name).await?.unwrap_or_default();
            let seen = objects::job_state(&job);
            Ok(if seen == state { Polled::Yes(job) } else { Polled::NotYet(format!("state {seen:?}")) })
        })
        .await
    }

    /// Waits until a job of the namespace `default` waits for this reason; returns its binding.
    ///
    /// # Errors
    /// It does not get there in time.
    pub async fn wait_reason(&self, kind: Kind, name: &str, reason: &str) -> anyhow::Result<Value> {
        let binding = fleet_api::names::binding_name(kind.api_version, kind.kind, name);
        self.wait_for(&format!("{} {name} to wait for {reason}", kind.kind), async || {
            let found = self.get(objects::BINDING, "default", &binding).await?.unwrap_or_default();
            let scheduled = objects::condition(&found, "Scheduled").cloned().unwrap_or_default();
            Ok(if scheduled["status"] == "False" && scheduled["reason"] == reason {
                Polled::Yes(found)
            } else {
                Polled::NotYet(scheduled.to_string())
            })
        })
        .await
    }

    /// Waits until an object of the hub is gone.
    ///
    /// # Errors
    /// It stays.
    pub async fn wait_gone(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<()> {
        self.wait_for(&format!("{} {name} to be gone", kind.kind), async || {
            Ok(match self.get(kind, namespace, name).await? {
                None => Polled::Yes(()),
                Some(found) => Polled::NotYet(found["metadata"].to_string()),
            })
        })
        .await
    }

    /// What happened so far.
    pub fn history(&self) -> History {
        self.recorder.history()
    }

    /// Checks the invariants over all that happened and at rest, then ends the fleet.
    ///
    /// # Errors
    /// An invariant does not hold; all violations are named.
    pub async fn finish(mut self) -> anyhow::Result<()> {
        let settled = self.wait_for("holds to be given back and gangs to be whole", async || {
            let snapshot = self.snapshot().await?;
            let mut found = check::check_at_rest(&snapshot);
            if found.is_empty() {
                // Statuses of virtual clusters follow a little later.
                found = check::check_invariants(&self.history(), &snapshot);
            }
            Ok(Polled::when(found.is_empty(), || format!("{found:#?}")))
        });
        // A violation in the history does not go away, so this look is the one that counts.
        if let Err(error) = settled.await {
            anyhow::bail!("{error:#}\n{}", self.picture().await);
        }
        let ended = self.ended_parts();
        anyhow::ensure!(ended.is_empty(), "{ended}");
        self.recorder.stop();
        for running in self.parts.values() {
            running.stop.cancel();
        }
        for (part, running) in std::mem::take(&mut self.parts) {
            let ended = tokio::time::timeout(Duration::from_secs(5), running.task).await;
            let ended = ended.with_context(|| format!("{part:?} does not end when told to"))?;
            ended?.with_context(|| format!("{part:?}"))?;
        }
        for plane in self.members.into_values().chain([self.hub.plane]) {
            plane.stop().await;
        }
        Ok(())
    }

    /// Parts that ended though nobody asked them to.
    fn ended_parts(&self) -> String {
        let ended: Vec<&Part> =
            self.parts.iter().filter(|(_, part)| part.task.is_finished()).map(|(name, _)| name).collect();
        if ended.is_empty() { String::new() } else { format!("these parts have ended: {ended:?}\n") }
    }

    /// All that the invariants are about.
    ///
    /// # Errors
    /// A server does not answer.
    pub async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let members = self.members.iter().map(|(name, plane)| (name.clone(), plane.client.clone()));
        Ok(Snapshot::take(&self.hub(), &members.collect()).await?)
    }

    /// The fleet in some lines, for a failure.
    async fn picture(&self) -> String {
        let mut text = String::new();
        match self.snapshot().await {
            Err(error) => text = format!("no picture of the fleet: {error:#}\n"),
            Ok(snapshot) => {
                // Writing to a String cannot fail.
                let _ = write!(text, "{snapshot}");
            }
        }
        text
    }
}

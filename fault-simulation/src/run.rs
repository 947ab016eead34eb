//! Drives one run on a paused clock: events at their times, crashes and restarts, then quiet, then the final
//! checks.

mod power;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context;
use fleet_check::{self as check, Bounds, Judge, Quota, Snapshot, Violation};
use fleet_resources::{Resources, quantity};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    lies,
    observe::{JOBS, Line, ObservedViolation, Observer, resource},
    people::HOSTILE,
    plan::{EXPECT_LABEL, Process, Server, SimulationPlan, What},
    sim::Sim,
};
use writes::is_of;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub found: Vec<ObservedViolation>,
    pub lines: Vec<Line>,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Requests of all processes.
    pub requests: u64,
    /// Virtual time.
    pub took: Duration,
    /// The fleet at the end, in lines, when something was found.
    pub picture: String,
}

impl Outcome {
    pub fn injected(&self) -> u64 {
        self.faults.values().sum()
    }

    pub fn passed(&self) -> bool {
        self.found.is_empty()
    }
}

/// How often the end is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// A scenario without an end is over when nothing has happened for so long.
const STILL: Duration = Duration::from_secs(120);
/// And while a job is bound, which may run long before the next thing happens.
const STILL_WITH_RUNS: Duration = Duration::from_secs(1800);
/// Longest wait for every cluster to join, and how often it is looked.
const JOINED_WITHIN: Duration = Duration::from_secs(60);
const JOIN_LOOK: Duration = Duration::from_millis(50);

/// Runs a plan to its end on a runtime of its own. The same plan gives the same outcome.
///
/// # Errors
/// The fleet does not start, or the hub refuses an object of the plan's beginning.
pub fn run_plan(plan: &SimulationPlan) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("no runtime")?;
    runtime.block_on(async { Run::start(plan).await?.drive().await })
}

struct Run<'p> {
    plan: &'p SimulationPlan,
    sim: Sim,
    observer: Observer,
    began: Instant,
    deaths: mpsc::UnboundedReceiver<(Process, u64)>,
    /// When dead processes come back, by the crash that was ordered for them.
    returns: BTreeMap<Process, Option<Duration>>,
    restarts: BTreeMap<(Instant, Process), ()>,
    namespaces: BTreeSet<(Server, String)>,
    strangers: Vec<(String, Value)>,
    /// Jobs that the hub has accepted and users have not deleted: kind, namespace and name.
    accepted: BTreeSet<(String, String, String)>,
    /// What users have written on the hub, and when.
    written: Vec<(Instant, What)>,
    /// What users could not write because the hub's disk was full: they do it again when there is room.
    unwritten: Vec<What>,
}

impl<'p> Run<'p> {
    async fn start(plan: &'p SimulationPlan) -> anyhow::Result<Self> {
        let (sender, deaths) = mpsc::unbounded_channel();
        let sim = Sim::start(plan, sender).await?;
        if plan.settled {
            all_join(sim.hub(), plan.clusters.len()).await?;
        }
        let began = Instant::now();
        let tree = plan.objects.iter().find(|object| object["kind"] == "ElasticQuotaTree");
        let judge = Judge::new(nodes(plan), tree.map(|tree| Quota::read(&tree["spec"])))
            .within(if plan.fair { Bounds::WITHOUT_FAULTS } else { Bounds::WITH_FAULTS })
            .without(plan.liars.iter().cloned());
        let observer = Observer::start(sim.hub(), &sim.members(), judge, plan.has_cells(), began);
        let mut run = Self {
            plan,
            sim,
            observer,
            began,
            deaths,
            returns: BTreeMap::new(),
            restarts: BTreeMap::new(),
            namespaces: BTreeSet::new(),
            strangers: Vec::new(),
            accepted: BTreeSet::new(),
            written: Vec::new(),
            unwritten: Vec::new(),
        };
        for object in &plan.objects {
            // Pods are made in members: the class they name has to be there too.
            let members = plan.clusters.iter().map(|cluster| Server::Member(cluster.name.clone()));
            let members = members.filter(|_| object["kind"] == "PriorityClass");
            for server in std::iter::once(Server::Hub).chain(members) {
                run.apply(server, object)
                    .await
                    .with_context(|| format!("object {}", object["metadata"]["name"]))?;
            }
        }
        Ok(run)
    }

    async fn drive(mut self) -> anyhow::Result<Outcome> {
        let plan = self.plan;
        let mut events = plan.events.iter().peekable();
        let mut calm = plan.calm.map(|calm| self.began + calm);
        let end = self.began + plan.until;
        let mut last = (self.observer.count(), Instant::now());
        let circles = self.observer.circles();
        loop {
            let due = events.peek().map(|event| self.began + event.at);
            let back = self.restarts.first_key_value().map(|((at, _), ())| *at);
            // Only when nothing is left to happen is the end looked for.
            let look = (due.is_none() && calm.is_none()).then(|| Instant::now() + LOOK_EVERY);
            let next = [due, back, calm, look].into_iter().flatten().fold(end, Instant::min);
            tokio::select! {
                biased;
                Some((process, life)) = self.deaths.recv() => {
                    self.bury(&process, Some(life));
                    continue;
                }
                () = circles.notified() => break,
                () = sleep_until(next) => {}
            }
            let now = Instant::now();
            for process in self.sim.ended() {
                self.observer.tell("Ended", "", json!({"process": process.to_string()}));
                self.restarts.insert((now + Duration::from_secs(1), process), ());
            }
            while let Some(entry) = self.restarts.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, process), ()) = entry.remove_entry();
                if !self.sim.is_running(&process) {
                    self.observer.tell("Restarted", "", json!({"process": process.to_string()}));
                    self.sim.begin(&process)?;
                }
            }
            while let Some(event) = events.next_if(|event| self.began + event.at <= now) {
                self.happen(&event.what).await?;
            }
            if calm.is_some_and(|calm| calm <= now) {
                calm = None;
                self.calm().await?;
            }
            if now >= end {
                break;
            }
            if look.is_some_and(|look| look <= now) {
                let count = self.observer.count();
                if count != last.0 {
                    last = (count, now);
                }
                let over = match plan.calm {
                    Some(_) => self.wrong_at_the_end().await?.is_empty(),
                    None => {
                        let still = if self.observer.has_runs() { STILL_WITH_RUNS } else { STILL };
                        plan.until_is_default() && now - last.1 >= still
                    }
                };
                if over {
                    break;
                }
            }
        }
        self.finish().await
    }

    fn bury(&mut self, process: &Process, life: Option<u64>) {
        if !self.sim.end(process, life) {
            return;
        }
        self.observer.tell("Crashed", "", json!({"process": process.to_string()}));
        if let Some(pause) = self.returns.remove(process).flatten() {
            self.restarts.insert((Instant::now() + pause, process.clone()), ());
        }
    }

    async fn happen(&mut self, what: &What) -> anyhow::Result<()> {
        if !matches!(
            what,
            What::Apply(_) | What::Delete(_) | What::ApplyInMember { .. } | What::DeleteInMember { .. }
        ) {
            self.observer.tell(
                if what.is_fault() { "Fault" } else { "Done" },
                "",
                json!({"what": what.to_string()}),
            );
        }
        match what {
            What::Apply(_) | What::Patch { .. } => {
                self.written.push((Instant::now(), what.clone()));
                if self.is_unwritten(what) || !self.write(what).await {
                    self.unwritten.push(what.clone());
                }
            }
            What::ApplyInMember { cluster, object } => {
                self.apply(Server::Member(cluster.clone()), object).await?;
                self.strangers.push((cluster.clone(), object.clone()));
            }
            What::Delete(name) => {
                self.written.push((Instant::now(), what.clone()));
                self.unwritten.retain(|what| !is_of(what, name));
                self.accepted.remove(&(name.kind.clone(), name.namespace.clone(), name.name.clone()));
                self.delete(&Server::Hub, name).await;
                self.observer.tell("Deleted", &format!("{}/{}", name.namespace, name.name), json!({}));
            }
            What::DeleteInMember { cluster, name } => {
                self.delete(&Server::Member(cluster.clone()), name).await;
            }
            What::Lie { cluster, lie } => {
                self.sim.count_fault("lie");
                lies::tell(self.sim.hub(), cluster, *lie).await;
            }
            What::Node { cluster, name, ready } => {
                self.sim.count_fault("node");
                set_node(&self.sim.members()[cluster], name, *ready).await;
            }
            What::Partition { process, way } => {
                self.sim.count_fault("partition");
                self.sim.partition(process, *way);
            }
            What::Heal { process } => self.sim.heal(process),
            What::MemberDown { cluster, hung } => {
                self.sim.count_fault(if *hung { "member hung" } else { "member gone" });
                self.sim.member_down(cluster, Some(*hung));
            }
            What::MemberUp { cluster } => self.sim.member_down(cluster, None),
            What::Crash { process, after_writes, unheard, restart_after } => {
                self.returns.insert(process.clone(), *restart_after);
                if *after_writes == 0 {
                    self.sim.count_fault("crash");
                    self.bury(process, None);
                } else {
                    self.sim.die_in(process, *after_writes, *unheard);
                }
            }
            What::History { process, over } => {
                if !over {
                    self.sim.count_fault("history lost");
                }
                self.sim.lose_history(process, *over);
            }
            What::HistoryAtCreate { process, resource } => self.sim.lose_history_at_create(process, resource),
            What::Restore { back } => Box::pin(self.restore(*back)).await?,
            What::Power { server, on: false } => self.lose_power(server).await,
            What::Power { server, on: true } => self.sim.return_power(server),
            What::Disk { server, room } => {
                self.sim.limit_room(server, *room);
                match room {
                    Some(_) => self.sim.count_fault("disk full"),
                    None => self.write_again().await,
                }
            }
            What::NetworkFaults { process, side, rates } => self.sim.set_rates(process, *side, *rates),
        }
        Ok(())
    }

    async fn calm(&mut self) -> anyhow::Result<()> {
        self.restarts.clear();
        self.returns.clear();
        self.sim.calm()?;
        self.write_again().await;
        for (cluster, client) in self.sim.members() {
            for spec in self.plan.clusters.iter().filter(|spec| spec.name == cluster) {
                for pool in &spec.node_pools {
                    for index in 0..pool.count {
                        set_node(&client, &pool.node_name(index), true).await;
                    }
                }
            }
        }
        self.observer.tell("Calm", "", json!({}));
        Ok(())
    }

    async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let mut snapshot = Snapshot::take(self.sim.hub(), &self.sim.members()).await?;
        // A member's own jobs are none of the fleet's.
        let own = |cluster: &str, object: &Value| {
            self.strangers.iter().any(|(at, stranger)| {
                at == cluster
                    && stranger["kind"] == object["kind"]
                    && stranger["metadata"]["name"] == object["metadata"]["name"]
                    && object["metadata"]["labels"][fleet_api::names::MANAGED_LABEL].is_null()
            })
        };
        let theirs: BTreeSet<String> = snapshot
            .runs
            .iter()
            .filter(|(cluster, run)| own(cluster, run))
            .map(|(_, run)| run["metadata"]["uid"].as_str().unwrap_or_default().to_string())
            .collect();
        snapshot.pods.retain(|pod| !theirs.contains(&pod.run));
        // What a lying cluster shows proves nothing.
        let is_true = |cluster: &str| !self.plan.liars.iter().any(|liar| liar == cluster);
        snapshot.pods.retain(|pod| is_true(&pod.cluster));
        snapshot.runs.retain(|(cluster, _)| is_true(cluster));
        Ok(snapshot)
    }

    /// What keeps the run from its end state.
    async fn wrong_at_the_end(&self) -> anyhow::Result<Vec<Violation>> {
        let snapshot = self.snapshot().await?;
        let mut wrong = check::check_end(&snapshot);
        let lied =
            |what: &str| self.plan.liars.iter().any(|liar| what.contains(&format!("bound to {liar} ")));
        wrong.retain(|violation| violation.invariant != 4 || !lied(&violation.what));
        let mut missing = self.accepted.clone();
        for (api_version, kind) in JOBS {
            let jobs: Api<DynamicObject> =
                Api::all_with(self.sim.hub().clone(), &resource(api_version, kind));
            for job in jobs.list(&ListParams::default()).await?.items {
                missing.remove(&(
                    kind.to_string(),
                    job.namespace().unwrap_or_default(),
                    job.metadata.name.clone().unwrap_or_default(),
                ));
                let what = self.wrong_with(&snapshot, api_version, kind, &serde_json::to_value(job)?);
                wrong.extend(what.map(|what| Violation { invariant: 4, what }));
            }
        }
        wrong.extend(missing.into_iter().map(|(kind, namespace, name)| Violation {
            invariant: 4,
            what: format!("{kind} {namespace}/{name} was accepted by the hub and is not there"),
        }));
        // What stands in a cluster, of one that lies too: its own users' jobs are nobody else's.
        let standing = Snapshot::take(self.sim.hub(), &self.sim.members()).await?;
        let mut broken = |what: String| wrong.push(Violation { invariant: 4, what });
        for (cluster, stranger) in &self.strangers {
            let is = |(at, run): &&(String, Value)| {
                at == cluster
                    && run["kind"] == stranger["kind"]
                    && run["metadata"]["name"] == stranger["metadata"]["name"]
                    && run["metadata"]["namespace"] == stranger["metadata"]["namespace"]
            };
            let untouched = standing.runs.iter().find(is).is_some_and(|(_, run)| {
                run["metadata"]["labels"][fleet_api::names::MANAGED_LABEL].is_null()
                    && run["metadata"]["deletionTimestamp"].is_null()
            });
            if !untouched {
                broken(format!("{} of {cluster}'s own users was touched", stranger["metadata"]["name"]));
            }
        }
        Ok(wrong)
    }

    /// A job of the hub that has not come to its end.
    fn wrong_with(&self, snapshot: &Snapshot, api_version: &str, kind: &str, job: &Value) -> Option<String> {
        let (name, namespace) = (&job["metadata"]["name"], &job["metadata"]["namespace"]);
        let expect = job["metadata"]["labels"][EXPECT_LABEL].as_str().unwrap_or("Any");
        let is_of = |binding: &&Value| {
            let of = &binding["spec"]["resource"];
            (&of["kind"], &of["name"], &of["namespace"]) == (&kind.into(), name, namespace)
                && of["apiVersion"] == api_version
        };
        let Some(binding) = snapshot.bindings.iter().find(is_of) else {
            // A user has made it one that cannot run, or nobody's.
            return match expect {
                "Any" => check::untold(job, &snapshot.warnings).map(|violation| violation.what),
                _ => Some(format!("{kind} {namespace}/{name} is to be {expect} and has no binding")),
            };
        };
        let ended = binding["status"]["result"]["outcome"].as_str();
        let reason = binding["status"]["conditions"].as_array().into_iter().flatten();
        let reason = reason.filter(|c| c["type"] == "Scheduled").map(|c| c["message"].to_string());
        let mut places = binding["status"]["attempts"].as_array().cloned().unwrap_or_default();
        places.push(binding["status"]["result"].clone());
        let lied = places.iter().any(|at| self.plan.liars.iter().any(|liar| at["cluster"] == **liar));
        let right = match (expect, ended) {
            ("Waits", None) => true,
            ("Any", _) => true,
            (expect, Some(ended)) => expect == ended || lied,
            _ => false,
        };
        let reason = reason.collect::<String>();
        (!right).then(|| format!("{kind} {namespace}/{name} is to be {expect} and is {ended:?}: {reason}"))
    }

    async fn finish(self) -> anyhow::Result<Outcome> {
        self.observer.look();
        if self.plan.calm.is_some() && !self.observer.runs_in_circles() {
            for violation in self.wrong_at_the_end().await? {
                self.observer.add(violation);
            }
        }
        let mut found = self.observer.found();
        found.retain(|found| !is_own_doing(&found.violation));
        let picture = match found.is_empty() {
            true => String::new(),
            false => self.snapshot().await?.to_string(),
        };
        Ok(Outcome {
            lines: self.observer.lines(),
            faults: self.sim.faults(),
            requests: self.sim.requests(),
            took: self.began.elapsed(),
            found,
            picture,
        })
    }
}

/// A hostile tenant may spoil his own gangs and his own jobs, and nothing else.
fn is_own_doing(violation: &Violation) -> bool {
    // Names stand as they are, or as JSON has them.
    let names_his =
        [format!("{HOSTILE}/"), format!("\"{HOSTILE}\"/")].iter().any(|n| violation.what.contains(n));
    names_his && matches!(violation.invariant, 2 | 4)
}

/// Waits until so many clusters are ready.
async fn all_join(hub: &Client, clusters: usize) -> anyhow::Result<()> {
    let api: Api<DynamicObject> = Api::all_with(hub.clone(), &resource("fleet.dev/v1alpha1", "Cluster"));
    let until = Instant::now() + JOINED_WITHIN;
    while Instant::now() < until {
        let found = api.list(&ListParams::default()).await?;
        let is_ready = |cluster: &DynamicObject| {
            let conditions = cluster.data["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        if found.iter().filter(|cluster| is_ready(cluster)).count() == clusters {
            return Ok(());
        }
        sleep_until(Instant::now() + JOIN_LOOK).await;
    }
    anyhow::bail!("not every cluster is ready after {} s", JOINED_WITHIN.as_secs())
}

async fn set_node(client: &Client, name: &str, ready: bool) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource("v1", "Node"));
    let status = if ready { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": status, "reason": "Simulated"});
    let patch = json!({"status": {"conditions": [condition]}});
    // A node that was never made has nothing to lose.
    let _ = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
}

fn nodes(plan: &SimulationPlan) -> BTreeMap<(String, String), Resources> {
    let mut nodes = BTreeMap::new();
    for cluster in &plan.clusters {
        for pool in &cluster.node_pools {
            let mut amounts = Resources::new();
            for (name, amount) in &pool.allocatable {
                amounts.set(name.as_str(), quantity::parse(name, amount).unwrap_or(0));
            }
            for index in 0..pool.count {
                nodes.insert((cluster.name.clone(), pool.node_name(index)), amounts.clone());
            }
        }
    }
    nodes
}

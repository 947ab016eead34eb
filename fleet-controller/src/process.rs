//! The main loop: observations and answers in, writes out.

mod answers;
mod backlog;
mod deletes;
mod forbidden;
mod governed;
mod lane;
mod paces;
mod publish;
mod record;
mod restored;
mod timers;
mod watched;
mod work_queue;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fleet_api::patience;
use fleet_informer::Source;
use fleet_policies::WorkloadKind;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use fleet_hub_core::{
    binding::BindingEntry,
    claim,
    cluster::{self, LeaseClock},
    dispatch, drain,
    intents::Intents,
    kinds,
    observation::{self, Observation},
    policy,
    schedule::{Pass, Scheduler},
    trees::Trees,
    unclaimed::Unclaimed,
    virtual_clusters::Configurations,
    world::{Dirty, Key, World},
};

use crate::{election, gather::Gather, metrics::Metrics, options::Options};
use backlog::Backlog;
use deletes::Deletes;
use lane::{Flight, Lane};
use record::Recorded;
use timers::Timers;
use watched::Watched;
use work_queue::{Turn, WorkQueue};

/// Capacity of the observation channel; watches wait while it is full.
const OBSERVATIONS: usize = 4096;
/// Most observations applied before the next reconciles.
const BATCH: usize = 512;
/// Time until a Work or Reservation without a binding counts as left behind.
const ORPHAN_PAUSE: Duration = Duration::from_millis(300);
/// Most rounds of reconciles of clusters and policies, which mark further objects, before observations are
/// applied again.
const ROUNDS: usize = 8;
/// Most reconciles before observations are applied again.
const LOOKS: usize = 1024;
/// What they may cost, in values visited: as much as overrides may visit of one object.
const LOOKS_COST: usize = 1_000_000;

/// Runs the controller against a hub until `shutdown` is cancelled; with an election, whenever it leads.
/// # Errors
/// None at present; failures are retried.
pub fn run(
    hub: Client,
    options: Options,
    shutdown: CancellationToken,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_in_place(hub, options, shutdown))
}

async fn run_in_place(hub: Client, options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Some(election) = options.election.clone() else { return work(hub, options, None, shutdown).await };
    let body = |term, stop| work(hub.clone(), options.clone(), Some(term), stop);
    election::lead(hub.clone(), election, shutdown, body).await
}

/// Why a term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Stopped,
    /// The hub's store was restored.
    Restored,
}

/// Sets the leader metric for as long as it lives.
struct Leading(Metrics);

impl Leading {
    fn of(metrics: &Metrics) -> Self {
        metrics.set_leads(true);
        Self(metrics.clone())
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.set_leads(false);
    }
}

/// Works as the leader. A term starts with an empty cache, and so does a controller whose hub was restored. A
/// restored hub may name an older leader, so the term ends.
async fn work(
    hub: Client,
    options: Options,
    term: Option<i64>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let _leading = Leading::of(&options.metrics);
    loop {
        let stop = shutdown.child_token();
        let over = begin(hub.clone(), options.clone(), term, stop.clone()).await;
        stop.cancel();
        if over == Over::Stopped || term.is_some() {
            return Ok(());
        }
    }
}

async fn begin(hub: Client, options: Options, term: Option<i64>, shutdown: CancellationToken) -> Over {
    let (into, observations) = mpsc::channel(OBSERVATIONS);
    let watching = patience::patient(hub.clone());
    let source = Source::asked(watching.clone(), "hub");
    let gather = Gather { client: watching, source, into, shutdown: shutdown.clone() };
    gather.start();
    let mut process = Process {
        began: Instant::now(),
        clock: LeaseClock::new(Duration::ZERO),
        hub,
        gather,
        scheduler: Scheduler::new(&options.rules),
        options,
        shutdown: shutdown.clone(),
        world: World::default(),
        intents: Intents::default(),
        trees: Trees::default(),
        cells: Configurations::default(),
        unclaimed: Unclaimed::default(),
        watched: Watched::default(),
        flights: JoinSet::new(),
        busy: BTreeMap::new(),
        backlog: Backlog::default(),
        deletes: Deletes::default(),
        held: BTreeMap::new(),
        work_queue: WorkQueue::default(),
        again: BTreeSet::new(),
        failures: BTreeMap::new(),
        timers: Timers::default(),
        plan_due: None,
        summary_due: None,
        summary_began: Instant::now(),
        summary_rested: Instant::now(),
        listed: false,
        rested: Instant::now(),
        gathers: None,
        view_due: false,
        view_rested: Instant::now(),
        recorded: Recorded::default(),
        deferred: BTreeSet::new(),
        unsorted: BTreeSet::new(),
    };
    process.world.term = term;
    for kind in kinds::jobs() {
        process.watch(kind);
    }
    process.drive(observations).await
}

struct Process {
    hub: Client,
    gather: Gather,
    /// Origin of the lease clock.
    began: Instant,
    clock: LeaseClock,
    options: Options,
    shutdown: CancellationToken,
    world: World,
    intents: Intents,
    scheduler: Scheduler,
    trees: Trees,
    cells: Configurations,
    unclaimed: Unclaimed,
    watched: Watched,
    /// Writes run in tasks of their own, so they proceed while the planner plans.
    flights: JoinSet<Flight>,
    /// Number of writes in flight per lane.
    busy: BTreeMap<Lane, usize>,
    backlog: Backlog,
    deletes: Deletes,
    /// When delayed statuses are due.
    held: BTreeMap<Dirty, Instant>,
    work_queue: WorkQueue,
    /// Objects to reconcile again after their current writes.
    again: BTreeSet<Dirty>,
    failures: BTreeMap<Lane, u32>,
    timers: Timers,
    /// When a plan asked for the next one.
    plan_due: Option<Instant>,
    summary_due: Option<Instant>,
    summary_began: Instant,
    /// When summaries may be written again.
    summary_rested: Instant,
    /// Every base kind has been listed once, so plans may be made.
    listed: bool,
    /// When the planner may plan again: it takes at most half of the loop's time.
    rested: Instant,
    /// Until when a pass that is due waits for bindings that are being made.
    gathers: Option<Instant>,
    /// A pass was made since the last snapshot.
    view_due: bool,
    /// When a snapshot may be made again.
    view_rested: Instant,
    /// Changes that the run log does not have yet.
    recorded: Recorded,
    /// Objects to reconcile once every agent has removed runs that the restored hub does not know.
    deferred: BTreeSet<Dirty>,
    /// Clusters whose agents have not done so yet.
    unsorted: BTreeSet<String>,
}

impl Process {
    async fn drive(&mut self, mut observations: mpsc::Receiver<Observation>) -> Over {
        let mut batch = Vec::with_capacity(BATCH);
        let mut missing: BTreeSet<String> =
            observation::BASE_KINDS.iter().map(|kind| (*kind).to_string()).collect();
        missing.extend(kinds::jobs().iter().map(|kind| format!("{} {}", kind.api_version, kind.kind)));
        loop {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Over::Stopped,
                () = self.gather.source.restored() => return Over::Restored,
                Some(flight) = self.flights.join_next(), if !self.flights.is_empty() => {
                    self.landed(flight);
                    while let Some(flight) = self.flights.try_join_next() {
                        self.landed(flight);
                    }
                }
                Some(answer) = self.watched.questions.join_next(), if !self.watched.questions.is_empty() => {
                    self.answered(answer);
                }
                count = observations.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return Over::Stopped;
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
            // Whatever else has arrived meanwhile belongs to the same round.
            while batch.len() < BATCH {
                match observations.try_recv() {
                    Ok(observation) => batch.push(observation),
                    Err(_) => break,
                }
            }
            for observation in batch.drain(..) {
                if !missing.is_empty()
                    && let Some(listed) = observation.listed()
                {
                    missing.remove(&listed);
                }
                if self.options.run_log.is_some() {
                    self.recorded.note(&self.world, &observation);
                }
                self.intents.observe(&mut self.world, observation);
            }
            if self.world.restored {
                self.gather.source.went_back("a listing that shows an earlier state than was known");
                continue;
            }
            if missing.is_empty() {
                if !self.listed {
                    self.listed = true;
                    // The hub may have been unreachable so far while the agents were not.
                    self.clock = LeaseClock::new(self.began.elapsed());
                }
                self.look();
                if let Some(log) = &self.options.run_log {
                    self.recorded.tell(&self.world, log, Instant::now(), &self.options.clock);
                }
            }
        }
    }

    /// Runs a scheduling pass if its inputs changed, then reconciles as many objects as there are free slots.
    fn look(&mut self) {
        let at = Instant::now();
        let now = self.options.clock.now();
        for cluster in std::mem::take(&mut self.world.renewed) {
            self.clock.hear(&cluster, at - self.began);
        }
        if self.plan_due.is_some_and(|due| due <= at) {
            self.plan_due = None;
            self.world.schedule = true;
        }
        self.timers.take_due(at).into_iter().for_each(|dirty| self.world.mark(dirty));
        for key in self.scheduler.forms.begin() {
            self.world.mark(Dirty::Binding(key));
        }
        for key in std::mem::take(&mut self.world.orphans) {
            self.timers.ring_at(at + ORPHAN_PAUSE, Dirty::Orphan(key));
        }
        if !self.may_go_on() {
            return self.look_at_clusters(at, now);
        }
        self.take_in(at, now);
        if self.world.schedule && self.rested <= at && self.has_gathered(at) {
            self.pass(now, at);
            self.take_in(at, now);
        }
        self.publish(Instant::now());
        self.summarise(at);
        self.launch();
        // An object is reconciled when its writes can be sent. The bound keeps observations from waiting
        // behind a long chain of reconciles without writes.
        self.scheduler.forms.take_cost();
        let mut cost = 0;
        for _ in 0..LOOKS {
            if !self.backlog.is_empty() || cost > LOOKS_COST {
                break;
            }
            let Some(dirty) = self.work_queue.pop() else { break };
            self.look_at(dirty.clone(), at, now);
            let spent = self.scheduler.forms.take_cost();
            self.work_queue.charge(&dirty, spent);
            cost += spent;
            self.launch();
        }
    }

    /// Reconciles marked clusters and trees at once: they are few, and the scheduler depends on them. Its inputs are
    /// updated at once; the writes of other objects, and conditions of policies, wait for their turn.
    fn take_in(&mut self, at: Instant, now: Timestamp) {
        for _ in 0..ROUNDS {
            let marked = self.world.take_dirty();
            if marked.is_empty() {
                return;
            }
            let waits =
                |dirty: &Dirty| matches!(dirty, Dirty::Object(..) | Dirty::Binding(_) | Dirty::Policy(..));
            let (jobs, others): (Vec<Dirty>, Vec<Dirty>) = marked.into_iter().partition(waits);
            for dirty in others {
                self.look_at(dirty, at, now);
            }
            for dirty in jobs {
                let turn = self.follow(&dirty, now);
                self.work_queue.push(dirty, turn);
            }
        }
    }

    fn follow(&mut self, dirty: &Dirty, now: Timestamp) -> Turn {
        if let Dirty::Object(kind, key) = dirty {
            let binding = self.world.binding_key(kind, key);
            if self.world.bindings.contains_key(&binding) {
                self.scheduler.look(&mut self.world, &self.intents, &binding, now);
            }
            return if kind.workload() == WorkloadKind::Other { Turn::Plain } else { Turn::Claim };
        }
        let Dirty::Binding(key) = dirty else { return Turn::Plain };
        self.scheduler.look(&mut self.world, &self.intents, key, now);
        self.place(key.clone(), now);
        match self.world.bindings.get(key).is_some_and(BindingEntry::is_bound) {
            true => Turn::Bound,
            false => Turn::Waiting,
        }
    }

    fn look_at(&mut self, dirty: Dirty, at: Instant, now: Timestamp) {
        let lane = Lane::Reconcile(dirty.clone());
        if self.busy.contains_key(&lane) {
            self.again.insert(dirty);
            return;
        }
        let writes = match &dirty {
            Dirty::Object(kind, key) => {
                let mut writes = claim::plan(&self.world, &mut self.scheduler.forms, kind, key, now);
                writes.extend(self.unclaimed.plan(&self.world, kind, key, now));
                writes
            }
            Dirty::Binding(key) => {
                self.need_dependencies(key);
                let waiting = self.scheduler.waiting(key);
                let rules = &self.options.rules;
                let step = dispatch::plan(&self.world, &self.intents, key, waiting, rules, now);
                self.scheduler.forms.charge(&key.0, step.visited);
                if let Some(wake) = step.wake {
                    self.timers.wake_at(at + wake.duration_since(now).unsigned_abs(), &dirty);
                }
                if let Some(cluster) = step.declare_lost.clone()
                    && self.intents.to_declare.insert(cluster.clone())
                {
                    self.world.mark(Dirty::Cluster(cluster));
                }
                self.paced(&dirty, step, at)
            }
            Dirty::Cluster(name) => {
                self.judge_cluster(name, at, now);
                let (rules, intents) = (&self.options.rules, &self.intents);
                let mut writes =
                    cluster::plan(&self.world, intents, name, &self.clock, rules, at - self.began, now);
                if self.world.namespaces.contains_key(&fleet_api::names::cluster_namespace(name)) {
                    writes.extend(self.scheduler.keep_cell_nodes(&self.world, name));
                }
                writes
            }
            Dirty::Tree => self.look_at_tree(now),
            Dirty::Cells => self.look_at_cells(now),
            Dirty::Policy(scope, key) => {
                self.need_kinds(*scope, key);
                policy::plan(&self.world, &self.watched.unknown, *scope, key, now)
            }
            Dirty::Orphan(key) => dispatch::plan_orphan(&self.world, &self.intents, key),
        };
        self.send(lane, writes);
    }

    /// Whether a cluster is lost now, when to check again, and which gang leaves it next if it is draining.
    fn judge_cluster(&mut self, name: &str, at: Instant, now: Timestamp) {
        let lease = self.world.leases.get(name);
        let unready = self.began + self.clock.unready_at(name, lease, &self.options.rules);
        let lost = self.began + self.clock.lost_at(name, lease, &self.options.rules);
        let known = self.world.clusters.contains_key(name);
        // A deadline in the past is not waited for again.
        let mut due = [unready, lost].into_iter().filter(|due| known && *due > at).min();
        self.world.set_lost(name, known && lost <= at);
        if !self.world.lost.contains(name) {
            self.intents.to_declare.remove(name);
        }
        let turn = drain::turn(&self.world, &self.intents, name, &self.options.rules, now);
        if let Some((key, eviction)) = turn.next {
            self.intents.evictions.insert(key.clone(), eviction);
            self.world.mark(Dirty::Binding(key));
        }
        if let Some(wake) = turn.wake {
            let wake = at + wake.duration_since(now).unsigned_abs();
            due = Some(due.map_or(wake, |due| due.min(wake)));
        }
        self.timers.set_deadline(name, due);
    }

    /// Handles members' answers to a binding's reservations.
    fn place(&mut self, key: Key, now: Timestamp) {
        let lane = Lane::Place(key.clone());
        if self.busy.contains_key(&lane) {
            return;
        }
        let mut writes = self.scheduler.answers(&self.world, &key, now);
        if writes.is_empty() {
            writes.extend(self.scheduler.spread(&mut self.world, &key, now));
        }
        if writes.is_empty() {
            writes.extend(self.scheduler.regroup_again(&self.world, &key, now));
        }
        self.send(lane, writes);
    }

    fn pass(&mut self, now: Timestamp, at: Instant) {
        self.world.schedule = false;
        let began = Instant::now();
        let pass = self.scheduler.pass(&mut self.world, &mut self.intents, now);
        let ended = Instant::now();
        self.count(&pass, ended - began);
        self.view_due = true;
        self.rested = ended + (ended - began);
        for (key, write) in pass.writes {
            self.send(Lane::Place(key), vec![write]);
        }
        for key in pass.told {
            self.world.mark(Dirty::Binding(key));
        }
        if pass.more {
            self.world.schedule = true;
        }
        if let Some(wake) = pass.wake {
            let due = at + wake.duration_since(now).unsigned_abs();
            self.plan_due = Some(self.plan_due.map_or(due, |known| known.min(due)));
        }
        if self.scheduler.ledger().is_some() || self.cells.in_force().is_some() {
            self.summary_due.get_or_insert(at + self.options.summary_interval);
        }
    }

    fn count(&self, pass: &Pass, took: Duration) {
        let metrics = &self.options.metrics;
        metrics.planned(took, pass.started);
        pass.evicted.iter().for_each(|rule| metrics.evicted(*rule));
        for violation in &pass.violations {
            tracing::error!(invariant = violation.invariant, "a plan is not sent: {}", violation.what);
            metrics.violated(violation.invariant);
        }
    }

    fn next_wake(&self) -> Instant {
        let goes_on = self.unsorted.is_empty();
        let may_look = self.world.is_dirty()
            || self.scheduler.forms.is_behind()
            || (goes_on && !self.work_queue.is_empty() && self.backlog.is_empty());
        if may_look && self.listed {
            return Instant::now();
        }
        let idle = Instant::now() + Duration::from_secs(60);
        let gathers = self.gathers.filter(|_| self.is_claiming()).unwrap_or(self.rested);
        let pass = self.rested.max(gathers);
        let pass = Some(pass).filter(|_| self.world.schedule && self.listed && goes_on);
        let timer = self.timers.next();
        // A summary that is due waits for the one in flight, whose answer wakes the loop.
        let summary = self.summary_due.filter(|_| goes_on && !self.busy.contains_key(&Lane::Summaries));
        let summary = summary.map(|due| due.max(self.summary_rested));
        let plan_due = self.plan_due.filter(|_| goes_on);
        let view = Some(self.view_rested).filter(|_| goes_on && self.view_due);
        let record = self.recorded.due().filter(|_| self.listed);
        [pass, plan_due, timer, summary, view, record].into_iter().flatten().min().unwrap_or(idle)
    }
}

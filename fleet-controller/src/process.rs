//! The loop: observations and answers in, writes out.

mod backlog;
mod deletes;
mod forbidden;
mod governed;
mod looks;
mod paces;
mod restored;
mod timers;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fleet_api::{patience, policy::ResourceSelector};
use fleet_informer::Source;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use fleet_hub_core::{
    binding::BindingEntry,
    claim,
    cluster::{self, LeaseClock},
    dispatch, drain,
    kinds::{self, KindRef},
    manifests,
    observation::{self, Observation},
    policy,
    schedule::{Pass, Scheduler},
    trees::Trees,
    unclaimed::Unclaimed,
    virtual_clusters::Configurations,
    world::{Dirty, Key, World},
    writes::{Target, Verb, Write},
};

use crate::{
    discovery, election,
    gather::Gather,
    options::Options,
    writes::{self, Refused, Sent},
};
use backlog::Backlog;
use deletes::Deletes;
use looks::{Looks, Turn};

/// Observations waiting to be taken in; a full channel makes the watches wait.
const OBSERVATIONS: usize = 4096;
/// Observations taken in before the planners look.
const BATCH: usize = 512;
/// Pause before something is looked at again after its write found the world changed.
const STALE_PAUSE: Duration = Duration::from_millis(20);
/// Time a Work or Reservation without a binding has until it counts as left behind.
const ORPHAN_PAUSE: Duration = Duration::from_millis(300);
/// Stale writes in a row after which it is said.
const STALE_TOLD: u32 = 8;
/// Longest wait for the hub to say how a kind is served.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Rounds of marks, which looks at clusters and policies make again, before observations are taken in again.
const ROUNDS: usize = 8;
/// Looks before observations are taken in again.
const LOOKS: usize = 1024;
/// Summaries rest this many times as long as their writes took.
const SUMMARY_REST: u32 = 8;
/// Longest pause after writes that failed.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Runs the controller against a hub until `shutdown` is cancelled; with an election, whenever it leads.
///
/// # Errors
/// None at present; what fails is tried again.
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

/// Why a controller works no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Stopped,
    /// The hub's store went back in time.
    Restored,
}

/// Works as the only controller. Everything is learnt anew: a term starts with no memory of an earlier one, and so does
/// a controller whose hub went back in time. Such a hub's word on who leads is an older one, too: the term is over.
async fn work(
    hub: Client,
    options: Options,
    term: Option<i64>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
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
        trees: Trees::default(),
        cells: Configurations::default(),
        unclaimed: Unclaimed::default(),
        watched: BTreeMap::new(),
        unknown: BTreeMap::new(),
        flights: JoinSet::new(),
        busy: BTreeMap::new(),
        backlog: Backlog::default(),
        deletes: Deletes::default(),
        held: BTreeMap::new(),
        looks: Looks::default(),
        again: BTreeSet::new(),
        failures: BTreeMap::new(),
        timers: BTreeMap::new(),
        timer_count: 0,
        wakes: BTreeMap::new(),
        plan_due: None,
        summary_due: None,
        summary_began: Instant::now(),
        summary_rested: Instant::now(),
        deadlines: BTreeMap::new(),
        listed: false,
        rested: Instant::now(),
        deferred: BTreeSet::new(),
        unsorted: BTreeSet::new(),
    };
    process.world.term = term;
    for kind in kinds::jobs() {
        process.watch(kind);
    }
    process.drive(observations).await
}

/// What a batch of writes belongs to; there is one batch at a time for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Look(Dirty),
    /// Reserving and binding, beside the looks at the same binding.
    Place(Key),
    Summaries,
    /// Events, which nothing waits for.
    Tell,
}

/// A write that has come back.
struct Flight {
    lane: Lane,
    /// The Work that it was to make.
    work: Option<Key>,
    /// Uid of what it was to delete.
    deletes: Option<String>,
    /// What follows it.
    then: Vec<Write>,
    /// What the hub said.
    sent: Sent,
}

struct Process {
    hub: Client,
    gather: Gather,
    /// From which the lease clock counts.
    began: Instant,
    clock: LeaseClock,
    options: Options,
    shutdown: CancellationToken,
    world: World,
    scheduler: Scheduler,
    trees: Trees,
    cells: Configurations,
    unclaimed: Unclaimed,
    /// Kinds with a watch; value: whether it has listed.
    watched: BTreeMap<(String, String), KindRef>,
    /// Kinds asked for that the hub does not serve, and when to ask again.
    unknown: BTreeMap<(String, String), Instant>,
    /// Tasks of their own, so that writes move while the planner plans.
    flights: JoinSet<Flight>,
    /// Writes under way per lane.
    busy: BTreeMap<Lane, usize>,
    backlog: Backlog,
    deletes: Deletes,
    /// Until when statuses wait that are not final.
    held: BTreeMap<Dirty, Instant>,
    looks: Looks,
    /// Looks asked for while one was under way.
    again: BTreeSet<Dirty>,
    failures: BTreeMap<Lane, u32>,
    timers: BTreeMap<(Instant, u64), Dirty>,
    timer_count: u64,
    /// The next look that a plan asked for, by what it is at.
    wakes: BTreeMap<Dirty, Instant>,
    /// When a plan asked for the next one.
    plan_due: Option<Instant>,
    summary_due: Option<Instant>,
    summary_began: Instant,
    /// From then on summaries may be written again.
    summary_rested: Instant,
    /// When each cluster counts as lost.
    deadlines: BTreeMap<String, Instant>,
    /// Every base kind has been listed once: plans may be made.
    listed: bool,
    /// From then on the planner may plan again: it takes at most half of the loop's time.
    rested: Instant,
    /// What is looked at once every agent has sorted out its runs.
    deferred: BTreeSet<Dirty>,
    /// Clusters whose agents have not.
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
                count = observations.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return Over::Stopped;
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
            // Whatever else has arrived meanwhile belongs to the same look.
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
                self.world.observe(observation);
            }
            if self.world.restored {
                self.gather.source.went_back("a listing that shows an earlier state than was known");
                continue;
            }
            if missing.is_empty() {
                if !self.listed {
                    self.listed = true;
                    // The hub may have been out of reach until now, and the agents not.
                    self.clock = LeaseClock::new(self.began.elapsed());
                }
                self.look().await;
            }
        }
    }

    /// Lets the scheduler pass if something it depends on moved, then looks at what there are slots for.
    async fn look(&mut self) {
        let at = Instant::now();
        let now = self.options.clock.now();
        for cluster in std::mem::take(&mut self.world.renewed) {
            self.clock.hear(&cluster, at - self.began);
        }
        self.ring(at);
        for key in std::mem::take(&mut self.world.orphans) {
            self.ring_at(at + ORPHAN_PAUSE, Dirty::Orphan(key));
        }
        if !self.may_go_on() {
            return self.look_at_clusters(at, now).await;
        }
        self.take_in(at, now).await;
        if self.world.schedule && self.rested <= at {
            self.pass(now, at);
            self.take_in(at, now).await;
        }
        self.summarise(at);
        self.launch();
        // A look is planned when its writes can be sent; the bound keeps observations from waiting behind a long
        // chain of looks that ask for none.
        for _ in 0..LOOKS {
            if !self.backlog.is_empty() {
                break;
            }
            let Some(dirty) = self.looks.pop() else { break };
            self.look_at(dirty, at, now).await;
            self.launch();
        }
    }

    /// Clusters, trees and policies that are marked are looked at now: they are few, and the scheduler depends on
    /// them. Its own memory of jobs follows at once; what is to be written of them takes its turn.
    async fn take_in(&mut self, at: Instant, now: Timestamp) {
        for _ in 0..ROUNDS {
            let marked = self.world.take_dirty();
            if marked.is_empty() {
                return;
            }
            let (jobs, others): (Vec<Dirty>, Vec<Dirty>) =
                marked.into_iter().partition(|dirty| matches!(dirty, Dirty::Object(..) | Dirty::Binding(_)));
            for dirty in others {
                self.look_at(dirty, at, now).await;
            }
            for dirty in jobs {
                let turn = self.follow(&dirty, now);
                self.looks.push(dirty, turn);
            }
        }
    }

    fn follow(&mut self, dirty: &Dirty, now: Timestamp) -> Turn {
        if let Dirty::Object(kind, key) = dirty {
            let binding = self.world.binding_key(kind, key);
            if self.world.bindings.contains_key(&binding) {
                self.scheduler.look(&mut self.world, &binding, now);
            }
            return Turn::Claim;
        }
        let Dirty::Binding(key) = dirty else { return Turn::Waiting };
        self.scheduler.look(&mut self.world, key, now);
        self.place(key.clone(), now);
        match self.world.bindings.get(key).is_some_and(BindingEntry::is_bound) {
            true => Turn::Bound,
            false => Turn::Waiting,
        }
    }

    async fn look_at(&mut self, dirty: Dirty, at: Instant, now: Timestamp) {
        let lane = Lane::Look(dirty.clone());
        if self.busy.contains_key(&lane) {
            self.again.insert(dirty);
            return;
        }
        let writes = match &dirty {
            Dirty::Object(kind, key) => {
                let mut writes = claim::plan(&self.world, kind, key);
                writes.extend(self.unclaimed.plan(&self.world, kind, key, now));
                writes
            }
            Dirty::Binding(key) => {
                self.need_dependencies(key).await;
                let step =
                    dispatch::plan(&self.world, key, self.scheduler.waiting(key), &self.options.rules, now);
                if let Some(wake) = step.wake {
                    self.set_timer(dirty.clone(), at, now, wake);
                }
                if let Some(cluster) = step.declare_lost.clone()
                    && self.world.to_declare.insert(cluster.clone())
                {
                    self.world.mark(Dirty::Cluster(cluster));
                }
                self.paced(&dirty, step, at)
            }
            Dirty::Cluster(name) => {
                self.judge_cluster(name, at, now);
                let rules = &self.options.rules;
                let mut writes = cluster::plan(&self.world, name, &self.clock, rules, at - self.began, now);
                if self.world.namespaces.contains_key(&fleet_api::names::cluster_namespace(name)) {
                    writes.extend(self.scheduler.keep_cell_nodes(&self.world, name));
                }
                writes
            }
            Dirty::Tree => self.look_at_tree(now),
            Dirty::Cells => self.look_at_cells(now),
            Dirty::Policy(scope, key) => {
                self.need_kinds(*scope, key).await;
                policy::plan(&self.world, &self.unknown, *scope, key, now)
            }
            Dirty::Orphan(key) => dispatch::plan_orphan(&self.world, key),
        };
        self.send(lane, writes);
    }

    /// Whether a cluster is lost by now, when to look again, and whose turn it is to be moved off it.
    fn judge_cluster(&mut self, name: &str, at: Instant, now: Timestamp) {
        let lease = self.world.leases.get(name);
        let unready = self.began + self.clock.unready_at(name, lease, &self.options.rules);
        let lost = self.began + self.clock.lost_at(name, lease, &self.options.rules);
        let known = self.world.clusters.contains_key(name);
        // A deadline that has passed is not waited for again.
        let mut due = [unready, lost].into_iter().filter(|due| known && *due > at).min();
        self.world.set_lost(name, known && lost <= at);
        if !self.world.lost.contains(name) {
            self.world.to_declare.remove(name);
        }
        let turn = drain::turn(&self.world, name, &self.options.rules, now);
        if let Some((key, eviction)) = turn.next {
            self.world.evictions.insert(key.clone(), eviction);
            self.world.mark(Dirty::Binding(key));
        }
        if let Some(wake) = turn.wake {
            let wake = at + wake.duration_since(now).unsigned_abs();
            due = Some(due.map_or(wake, |due| due.min(wake)));
        }
        match due {
            Some(due) => self.deadlines.insert(name.to_string(), due),
            None => self.deadlines.remove(name),
        };
    }

    /// Members' answers to a binding's reservations.
    fn place(&mut self, key: Key, now: Timestamp) {
        let lane = Lane::Place(key.clone());
        if self.busy.contains_key(&lane) {
            return;
        }
        let mut writes = self.scheduler.answers(&self.world, &key, now);
        if writes.is_empty() {
            writes.extend(self.scheduler.spread(&mut self.world, &key, now));
        }
        self.send(lane, writes);
    }

    fn pass(&mut self, now: Timestamp, at: Instant) {
        self.world.schedule = false;
        let began = Instant::now();
        let pass = self.scheduler.pass(&mut self.world, &self.options.rules, now);
        let ended = Instant::now();
        self.count(&pass, ended - began);
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

    fn send(&mut self, lane: Lane, mut writes: Vec<Write>) {
        writes.retain(|write| self.deletes.note(write));
        if writes.is_empty() {
            return;
        }
        writes.iter().for_each(|write| self.world.sent.note(write));
        *self.busy.entry(lane.clone()).or_insert(0) += writes.len();
        for write in writes {
            self.backlog.push(&lane, write);
        }
    }

    fn launch(&mut self) {
        while self.flights.len() < self.options.writes_in_flight
            && let Some((lane, mut write)) = self.backlog.pop()
        {
            let hub = self.hub.clone();
            let then = std::mem::take(&mut write.then);
            let makes_work = write.target == Target::Work && matches!(write.verb, Verb::Create(_));
            let work = makes_work.then(|| (write.namespace.clone(), write.name.clone()));
            let deletes = deletes::uid_of(&write).map(str::to_string);
            self.flights.spawn(async move {
                let sent = match lane {
                    Lane::Place(_) => writes::send_until_known(&hub, write).await,
                    _ => writes::send(&hub, write).await.into(),
                };
                Flight { lane, work, deletes, then, sent }
            });
        }
    }

    fn landed(&mut self, flight: Result<Flight, JoinError>) {
        let Flight { lane, work, deletes, then, sent } = match flight {
            Ok(flight) => flight,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            // The runtime is being shut down, and this loop with it.
            Err(_) => return,
        };
        if let Some(observation) = sent.observation {
            self.world.observe(observation);
        }
        // The cluster's namespace is gone: nothing stands in it.
        if let (Some(work), Some(Refused::Absent)) = (&work, &sent.refused)
            && let Some(binding) = self.world.sent.heard(work)
            // That look comes again by itself, after a pause.
            && lane != Lane::Look(Dirty::Binding(binding.clone()))
        {
            self.world.mark(Dirty::Binding(binding));
        }
        if let (Some(uid), Some(refused)) = (&deletes, &sent.refused)
            && !matches!(refused, Refused::Absent)
        {
            self.deletes.failed(uid);
        }
        let pause = self.pause_after(&lane, sent.refused, then);
        if lane == Lane::Tell {
            self.failures.remove(&lane);
            return self.leave(&lane);
        }
        if let Some(pause) = pause {
            let dirty = match &lane {
                Lane::Look(dirty) => Some(dirty.clone()),
                Lane::Place(key) => {
                    let now = self.options.clock.now();
                    let until = now + jiff::SignedDuration::try_from(pause).unwrap_or_default();
                    self.scheduler.hold(key, until, now);
                    self.world.schedule = true;
                    Some(Dirty::Binding(key.clone()))
                }
                Lane::Summaries => {
                    self.summary_due = Some(Instant::now() + pause);
                    None
                }
                Lane::Tell => None,
            };
            if let Some(dirty) = dirty {
                self.ring_at(Instant::now() + pause, dirty);
            }
        }
        self.leave(&lane);
        if !self.busy.contains_key(&lane) {
            match lane {
                Lane::Look(dirty) => {
                    if self.again.remove(&dirty) {
                        self.world.mark(dirty);
                    }
                }
                Lane::Place(key) => {
                    self.scheduler.asked(&mut self.world, &key, self.options.clock.now());
                    self.world.mark(Dirty::Binding(key));
                }
                // Where there are many queues and a busy hub, telling of them is a small part of all writes.
                Lane::Summaries => {
                    let now = Instant::now();
                    self.summary_rested = now + (now - self.summary_began) * SUMMARY_REST;
                }
                Lane::Tell => {}
            }
        }
    }

    /// How long what a write belongs to rests before it is looked at again; what follows a write is sent.
    fn pause_after(&mut self, lane: &Lane, refused: Option<Refused>, then: Vec<Write>) -> Option<Duration> {
        match refused {
            None => {
                self.failures.remove(lane);
                self.send(Lane::Tell, then);
                None
            }
            Some(Refused::Stale | Refused::Absent) => {
                let failures = self.failures.entry(lane.clone()).or_insert(0);
                *failures += 1;
                if *failures == STALE_TOLD {
                    tracing::warn!(
                        ?lane,
                        failures,
                        "the hub keeps answering that the object is gone or has changed"
                    );
                }
                Some((STALE_PAUSE * (1 << (*failures - 1).min(9))).min(RETRY_MAX))
            }
            Some(Refused::Forbidden(message)) => Some(self.tell_forbidden(lane, &message)),
            Some(Refused::Rejected(message) | Refused::Passing(message) | Refused::Unknown(message)) => {
                let failures = self.failures.entry(lane.clone()).or_insert(0);
                *failures += 1;
                tracing::warn!(?lane, failures, %message, "a write was refused, trying again");
                Some((Duration::from_millis(100) * (1 << (*failures).min(10))).min(RETRY_MAX))
            }
        }
    }

    fn leave(&mut self, lane: &Lane) {
        if let Some(count) = self.busy.get_mut(lane) {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(lane);
            }
        }
    }

    fn watch(&mut self, kind: KindRef) {
        let id = (kind.api_version.clone(), kind.kind.clone());
        if self.watched.contains_key(&id) {
            return;
        }
        self.gather.start_kind(kind.clone());
        self.watched.insert(id, kind);
    }

    /// Starts watching what jobs depend on, when the first job depends on something, and kinds of objects
    /// that have a binding from before a restart.
    async fn need_dependencies(&mut self, key: &Key) {
        let Some(entry) = self.world.bindings.get(key) else { return };
        let wanted =
            self.world.bound_object(entry).is_some_and(|object| manifests::has_dependencies(entry, object));
        let kind = entry.kind.clone();
        self.need_kind(&kind.api_version, &kind.kind, Dirty::Binding(key.clone())).await;
        if wanted {
            for kind in kinds::dependencies() {
                self.watch(kind);
            }
        }
    }

    /// Starts watching the kinds a policy selects.
    async fn need_kinds(&mut self, scope: fleet_policies::choice::PolicyScope, key: &Key) {
        let Some(policy) = self.world.policies.get(&(scope, key.clone())) else { return };
        let selected: Vec<ResourceSelector> = policy.spec.resource_selectors.clone();
        for ResourceSelector { api_version, kind, .. } in selected {
            self.need_kind(&api_version, &kind, Dirty::Policy(scope, key.clone())).await;
        }
    }

    /// Starts watching one kind; one that the hub does not serve is asked for again with `asker`.
    async fn need_kind(&mut self, api_version: &str, kind: &str, asker: Dirty) {
        let id = (api_version.to_string(), kind.to_string());
        let asked_lately = self.unknown.get(&id).is_some_and(|next| Instant::now() < *next);
        if self.watched.contains_key(&id) || asked_lately {
            return;
        }
        let found = match kinds::known(api_version, kind) {
            Some(kind) => Some(kind),
            None => {
                let asked = discovery::discover(&self.hub, api_version, kind);
                tokio::time::timeout(DISCOVERY_TIMEOUT, asked).await.ok().flatten()
            }
        };
        match found {
            Some(kind) => self.watch(kind),
            None => {
                tracing::warn!(%api_version, %kind, "a kind to propagate is not served by the hub");
                let next = Instant::now() + RETRY_MAX;
                self.unknown.insert(id, next);
                self.ring_at(next, asker);
            }
        }
    }
}

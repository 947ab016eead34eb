//! The clock: the next due event, one step after the other, and the planner after each.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    io,
    sync::Arc,
};

use fleet_hub_core::binding::BindingEntry;
use fleet_planner::{Answer, Decision, Planner, Settings};
use fleet_policies::{reason::Reason, spec::PurgeMode};
use fleet_quota::JobId;

use super::{
    check::Checker,
    hub::{Form, JobSpec, Objects},
    member::Member,
};
use crate::{
    scenario::{
        ClusterSpec, Event, Scenario,
        log::{Log, Record, Summary, Tally, What},
    },
    traces::{Trace, TraceJob},
};

/// Plans made at one moment; a planner that wants more goes round in circles.
const PLANS_AT_ONCE: usize = 100_000;
/// Of these the last ones, whose jobs are named.
const LAST_PLANS: usize = 100;
/// Jobs named of a planner without rest.
const JOBS_NAMED: usize = 10;
/// Times the planner may ask to be woken with nothing else to happen and nothing decided.
const IDLE_WAKES: usize = 200;

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Scenario(#[from] crate::scenario::ScenarioError),
    #[error("the log cannot be written: {0}")]
    Log(#[from] io::Error),
    #[error("cluster {cluster}: {message}")]
    Cluster { cluster: String, message: String },
    #[error("the planner does not come to rest at {at_ms} ms: it goes on with {}", .jobs.join(", "))]
    Restless { at_ms: i64, jobs: Vec<String> },
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub plans: u64,
    pub steps: u64,
}

/// Something that becomes due. The order of the variants is the order at one moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tick {
    /// An event of the file, by number.
    Event(usize),
    /// A job of the trace, by number.
    Submit(usize),
    RunEnds {
        member: usize,
        job: usize,
        start: u64,
    },
    HubBack,
    AgentBack {
        member: usize,
        count: u64,
    },
    /// The agent's own deadline.
    Lapse {
        member: usize,
        cut: u64,
    },
    /// The hub's.
    NotReady {
        member: usize,
        cut: u64,
        hub: u64,
    },
    Lost {
        member: usize,
        cut: u64,
        hub: u64,
    },
    /// A job's run must be judged again.
    Judge {
        job: usize,
        epoch: i64,
    },
    /// What is held against a cluster has faded for the job.
    Reread {
        job: usize,
    },
    /// An older run was left alone until now.
    Purge {
        job: usize,
        member: usize,
    },
    Plan,
}

/// A run that ended before its job.
#[derive(Clone, Debug)]
pub(super) struct PastRun {
    pub cluster: String,
    pub epoch: i64,
    pub reason: Reason,
    pub message: String,
    pub ended_at_ms: i64,
    pub purge: PurgeMode,
}

impl PastRun {
    pub fn as_attempt(&self) -> fleet_runs::Attempt<'_> {
        fleet_runs::Attempt {
            cluster: &self.cluster,
            reason: Some(self.reason),
            message: &self.message,
            ended_at_ms: Some(self.ended_at_ms),
        }
    }
}

/// Where a job stands on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waits,
    /// The member was asked; it has not answered while it is out of reach.
    Asked {
        member: usize,
    },
    Bound {
        member: usize,
    },
    Over,
}

/// For whom a job's run is ended.
#[derive(Clone, Debug)]
pub(super) struct MakesRoom {
    pub by: Arc<str>,
    pub rule: String,
    pub lost_ms: i64,
}

pub(super) struct SimJob {
    pub id: JobId,
    pub name: Arc<str>,
    pub spec: Arc<JobSpec>,
    /// As the controller would make it; `None` for jobs of a trace, which nobody edits.
    pub binding: Option<Box<BindingEntry>>,
    /// What its owner has made of it meanwhile.
    pub next: Option<Form>,
    pub submitted_ms: i64,
    pub queue: Arc<str>,
    pub phase: Phase,
    pub epoch: i64,
    /// Runs that ended before the job.
    pub attempts: Vec<PastRun>,
    /// What is remembered of the present run.
    pub run: fleet_runs::Run,
    /// Makes room for another, until its member can be told.
    pub ending: Option<MakesRoom>,
    pub told: Option<Reason>,
}

impl SimJob {
    /// When it took its place among jobs of equal priority.
    pub fn place_ms(&self) -> i64 {
        self.binding.as_ref().map_or(i64::MIN, |binding| binding.place_ms()).max(self.submitted_ms)
    }
}

/// The whole simulation.
pub(super) struct Sim<'l> {
    pub now_ms: i64,
    pub jobs: Vec<SimJob>,
    pub alive: HashMap<JobId, usize>,
    pub members: Vec<Member>,
    pub member_of: HashMap<String, usize>,
    pub planner: Planner,
    pub objects: Objects,
    pub checker: Checker,
    pub hub_up: bool,
    /// Restarts of the hub; its clocks begin anew.
    pub hub_count: u64,
    pub starts: u64,
    /// Jobs may be preempted: the planner gets the start time of each.
    pub preempts: bool,
    pub file: &'l str,
    due: BinaryHeap<Reverse<(i64, Tick, u64)>>,
    pushed: u64,
    wake_ms: Option<i64>,
    log: &'l mut dyn Log,
    tally: Tally,
    failed: Option<RunError>,
    stats: Stats,
    pub times: super::faults::Times,
}

/// Runs a scenario of mode fast to its end.
///
/// # Errors
/// An object that its kind does not allow; a log that cannot be written.
pub fn run(scenario: &Scenario, log: &mut dyn Log) -> Result<Summary, RunError> {
    let mut sim = Sim::new(&scenario.file, &scenario.clusters, log)?;
    for manifest in &scenario.objects {
        sim.apply(manifest)?;
    }
    for (number, event) in scenario.events.iter().enumerate() {
        sim.push(ms(event.at), Tick::Event(number));
    }
    let until = scenario.until.map(ms);
    sim.go(&scenario.events, &[], until)?;
    Ok(sim.finish()?.0)
}

/// Replays a trace.
///
/// # Errors
/// A log that cannot be written.
pub fn run_trace(
    clusters: &[ClusterSpec],
    trace: &Trace,
    log: &mut dyn Log,
) -> Result<(Summary, Stats), RunError> {
    let mut sim = Sim::new(&trace.file, clusters, log)?;
    sim.preempts = false;
    sim.set_tree(Some(Arc::clone(&trace.tree)));
    for (path, policy) in &trace.policies {
        sim.planner.set_policy(path, *policy);
    }
    for (number, job) in trace.jobs.iter().enumerate() {
        sim.push(job.submit_ms, Tick::Submit(number));
    }
    sim.go(&[], &trace.jobs, None)?;
    sim.finish()
}

fn ms(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl<'l> Sim<'l> {
    fn new(file: &'l str, clusters: &[ClusterSpec], log: &'l mut dyn Log) -> Result<Self, RunError> {
        let member = |spec: &ClusterSpec| {
            Member::new(spec).map_err(|message| RunError::Cluster { cluster: spec.name.clone(), message })
        };
        let mut sim = Self {
            now_ms: 0,
            jobs: Vec::new(),
            alive: HashMap::new(),
            members: clusters.iter().map(member).collect::<Result<_, _>>()?,
            member_of: clusters.iter().enumerate().map(|(at, c)| (c.name.clone(), at)).collect(),
            planner: Planner::new(Settings::default()),
            objects: Objects::default(),
            checker: Checker::default(),
            hub_up: true,
            hub_count: 0,
            starts: 0,
            preempts: true,
            file,
            due: BinaryHeap::new(),
            pushed: 0,
            wake_ms: None,
            log,
            tally: Tally::default(),
            failed: None,
            stats: Stats::default(),
            times: super::faults::Times::production(),
        };
        for member in 0..sim.members.len() {
            sim.tell_planner_of(member);
        }
        Ok(sim)
    }

    pub fn push(&mut self, at_ms: i64, tick: Tick) {
        self.pushed += 1;
        self.due.push(Reverse((at_ms.max(self.now_ms), tick, self.pushed)));
    }

    pub fn record(&mut self, job: usize, what: What) {
        let record = Record { at_ms: self.now_ms, job: Arc::clone(&self.jobs[job].name), what };
        self.tally.count(&record);
        if let Err(error) = self.log.record(&record) {
            self.failed.get_or_insert(RunError::Log(error));
        }
    }

    fn go(&mut self, events: &[Event], trace: &[TraceJob], until: Option<i64>) -> Result<(), RunError> {
        let mut idle = 0;
        self.settle()?;
        while let Some(Reverse((at_ms, _, _))) = self.due.peek() {
            if until.is_some_and(|until| *at_ms > until) {
                break;
            }
            self.now_ms = *at_ms;
            let mut only_wakes = true;
            // Everything of this moment, then one plan.
            while let Some(Reverse((at_ms, _, _))) = self.due.peek()
                && *at_ms == self.now_ms
            {
                let Some(Reverse((_, tick, _))) = self.due.pop() else { break };
                only_wakes &= tick == Tick::Plan;
                self.stats.steps += 1;
                self.handle(tick, events, trace)?;
            }
            let decided = self.settle()?;
            idle = if only_wakes && !decided { idle + 1 } else { 0 };
            let waits_for_nothing = self.due.iter().all(|Reverse((_, tick, _))| *tick == Tick::Plan);
            if idle > IDLE_WAKES && waits_for_nothing {
                break;
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
        }
        if let Some(until) = until {
            self.now_ms = until;
        }
        Ok(())
    }

    fn handle(&mut self, tick: Tick, events: &[Event], trace: &[TraceJob]) -> Result<(), RunError> {
        match tick {
            Tick::Event(number) => return self.event(&events[number]),
            Tick::Submit(number) => self.submit_traced(&trace[number]),
            Tick::RunEnds { member, job, start } => self.run_ends(member, job, start),
            Tick::HubBack => self.hub_back(),
            Tick::AgentBack { member, count } => self.agent_back(member, count),
            Tick::Lapse { member, cut } => self.lapse(member, cut),
            Tick::NotReady { member, cut, hub } => self.not_ready(member, cut, hub),
            Tick::Lost { member, cut, hub } => self.lost(member, cut, hub),
            Tick::Judge { job, epoch } => {
                if self.jobs[job].epoch == epoch {
                    self.judge(job);
                }
            }
            Tick::Reread { job } => self.reread(job),
            Tick::Purge { job, member } => self.purge(job, member),
            Tick::Plan => {}
        }
        Ok(())
    }

    /// Plans until nothing more follows at this moment. Whether anything was decided.
    fn settle(&mut self) -> Result<bool, RunError> {
        let mut decided = false;
        if !self.hub_up {
            return Ok(false);
        }
        let due = self.wake_ms.is_some_and(|at| at <= self.now_ms);
        let mut again = due || self.planner.needs_plan();
        let mut plans = 0;
        let (mut restless, mut told) = (BTreeSet::new(), BTreeSet::new());
        while again {
            plans += 1;
            if plans > PLANS_AT_ONCE {
                return Err(self.restless(restless));
            }
            self.wake_ms = None;
            let plan = self.planner.plan(self.now_ms);
            self.stats.plans += 1;
            decided |= !plan.decisions.is_empty();
            if plans > PLANS_AT_ONCE - LAST_PLANS {
                restless.extend(plan.decisions.iter().flat_map(jobs_of).chain(&plan.told).cloned());
            }
            for decision in plan.decisions {
                self.decide(decision);
            }
            told.extend(plan.told);
            again = plan.more || self.planner.needs_plan();
            match plan.wake_ms {
                Some(at) if at <= self.now_ms => again = true,
                Some(at) => {
                    self.wake_ms = Some(at);
                    self.push(at, Tick::Plan);
                }
                None => {}
            }
        }
        // What a job waits for in the end, not what it waited for between two plans of one moment.
        for id in told {
            self.tell(&id);
        }
        Ok(decided)
    }

    /// The jobs that the last plans were about; where they decided nothing, those that wait.
    fn restless(&self, about: BTreeSet<JobId>) -> RunError {
        let waits = |job: &&SimJob| job.phase == Phase::Waits && self.alive.contains_key(&job.id);
        let mut jobs: Vec<String> = about.iter().map(ToString::to_string).collect();
        if jobs.is_empty() {
            jobs = self.jobs.iter().filter(waits).map(|job| job.name.to_string()).collect();
        }
        let more = jobs.len().saturating_sub(JOBS_NAMED);
        jobs.truncate(JOBS_NAMED);
        if more > 0 {
            jobs.push(format!("and {more} more"));
        }
        RunError::Restless { at_ms: self.now_ms, jobs }
    }

    fn decide(&mut self, decision: Decision) {
        match decision {
            Decision::Ask { job, cluster } => {
                let Some((job, member)) = self.both(&job, &cluster) else { return };
                self.admitted(job);
                self.jobs[job].phase = Phase::Asked { member };
                self.answer(job, member);
            }
            Decision::Bind { job, cluster } => {
                let Some((job, member)) = self.both(&job, &cluster) else { return };
                self.admitted(job);
                self.bind(job, member, None);
            }
            // Here is no configuration of cells.
            Decision::Regroup { .. } | Decision::Move { .. } => {}
            // Here pods end with their job.
            Decision::EndPods { .. } => {}
            Decision::Evict { job, taker, rule, lost_work_ms, .. } => {
                let Some(job) = self.alive.get(&job).copied() else { return };
                let by = self.alive.get(&taker).map(|taker| Arc::clone(&self.jobs[*taker].name));
                let by = by.unwrap_or_else(|| Arc::from(taker.as_str()));
                self.make_room(job, MakesRoom { by, rule: rule.as_str().to_string(), lost_ms: lost_work_ms });
            }
        }
    }

    fn both(&self, job: &JobId, cluster: &str) -> Option<(usize, usize)> {
        Some((*self.alive.get(job)?, *self.member_of.get(cluster)?))
    }

    /// The member answers the question for places, when it can be asked.
    pub fn answer(&mut self, job: usize, member: usize) {
        if !self.members[member].link.reachable() || self.jobs[job].phase != (Phase::Asked { member }) {
            return;
        }
        let shape = Arc::clone(&self.jobs[job].spec.shape);
        let cluster = Arc::clone(&self.members[member].name);
        let id = self.jobs[job].id.clone();
        match self.members[member].place(&shape.gang) {
            Ok(placed) => {
                let nodes = Arc::new(placed.0.clone());
                self.record(job, What::Reserved { cluster: Arc::clone(&cluster), nodes });
                let answered = self.planner.answer(&id, &cluster, Answer::Reserved, self.now_ms);
                if matches!(answered, Some(Decision::Bind { .. })) {
                    self.bind(job, member, Some(placed));
                }
            }
            Err(message) => {
                let reason = Reason::ReservationRefused.to_string();
                self.record(
                    job,
                    What::ReservationRefused {
                        cluster: Arc::clone(&cluster),
                        reason,
                        message: message.clone(),
                    },
                );
                self.jobs[job].phase = Phase::Waits;
                self.checker.give_back(job);
                self.planner.answer(&id, &cluster, Answer::Refused { message }, self.now_ms);
                self.requeued(job, Reason::ReservationRefused);
            }
        }
    }

    fn finish(mut self) -> Result<(Summary, Stats), RunError> {
        self.check_all();
        self.check_end();
        for violation in self.checker.take_found() {
            self.tally.violate(violation);
        }
        let summary = self.tally.finish(self.now_ms);
        self.log.end(&summary)?;
        Ok((summary, self.stats))
    }
}

fn jobs_of(decision: &Decision) -> Vec<&JobId> {
    match decision {
        Decision::Ask { job, .. }
        | Decision::Bind { job, .. }
        | Decision::Move { job, .. }
        | Decision::Regroup { job, .. } => vec![job],
        Decision::Evict { job, taker, .. } | Decision::EndPods { job, taker, .. } => vec![job, taker],
    }
}

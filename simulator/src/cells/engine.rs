//! The run: events in the order of time; after each, all waiting groups are tried again.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    io,
};

use fleet_cells::{
    Ask, Cells, Decision, GroupState, NodeName, PodDecision, PodGroup, Proposal, Refusal, Victim,
    config::ClusterConfig,
};
use serde_json::{Value, json};

use super::{
    Watch,
    log_event::{LogEvent, Record, Summary},
    model::{Action, CellScenario, Job, NeverFits, Pod},
};

/// Most violations that are reported.
const VIOLATIONS_KEPT: usize = 100;

pub(super) fn run(scenario: &CellScenario, watch: &mut dyn Watch) -> io::Result<Summary> {
    let cells = Cells::new(scenario.config.clone(), scenario.unreported)
        .map_err(|errors| io::Error::new(io::ErrorKind::InvalidInput, errors.to_string()))?;
    let mut engine = Engine {
        scenario,
        cells,
        now_ms: 0,
        jobs: BTreeMap::new(),
        order: 0,
        pods: BTreeMap::new(),
        ends: BinaryHeap::new(),
        summary: Summary::default(),
        watch,
    };
    engine.watch.stand(0, &engine.cells)?;
    engine.play()?;
    Ok(engine.summary)
}

struct Engine<'a> {
    scenario: &'a CellScenario,
    cells: Cells,
    now_ms: i64,
    /// Jobs that are not over, by name.
    jobs: BTreeMap<String, State>,
    /// Jobs submitted so far: the age of the next.
    order: u64,
    /// Group of each single pod.
    pods: BTreeMap<String, String>,
    /// Ends of running jobs: time, name, attempt.
    ends: BinaryHeap<Reverse<(i64, String, u32)>>,
    summary: Summary,
    watch: &'a mut dyn Watch,
}

struct State {
    job: Job,
    age: u64,
    attempts: u32,
    running: bool,
    /// The last reported reason while it waits.
    last_event: String,
}

impl Engine<'_> {
    fn play(&mut self) -> io::Result<()> {
        let until = self.scenario.until.map_or(i64::MAX, |until| millis(until.as_millis()));
        let mut events = self.scenario.events.iter().peekable();
        loop {
            let event_at = events.peek().map(|event| millis(event.at.as_millis()));
            let end_at = self.ends.peek().map(|Reverse((at, _, _))| *at);
            let Some(at) = event_at.into_iter().chain(end_at).min().filter(|at| *at <= until) else { break };
            self.now_ms = at;
            // What ends makes room for what comes at the same time.
            if end_at == Some(at) {
                if let Some(Reverse((_, name, attempt))) = self.ends.pop() {
                    self.finish(&name, attempt)?;
                }
            } else if let Some(event) = events.next() {
                self.act(&event.action)?;
            }
            let more_now = events.peek().is_some_and(|event| millis(event.at.as_millis()) == at)
                || self.ends.peek().is_some_and(|Reverse((end, _, _))| *end == at);
            if !more_now || !self.scenario.victims_leave {
                self.ask_all()?;
            }
            self.audit();
            self.watch.stand(self.now_ms, &self.cells)?;
        }
        self.summary.pending = self.jobs.values().filter(|state| !state.running).count();
        self.summary.running = self.jobs.values().filter(|state| state.running).count();
        Ok(())
    }

    fn say(&mut self, job: &str, event: LogEvent) -> io::Result<()> {
        self.watch.record(&Record { at_ms: self.now_ms, job: job.to_string(), event })
    }

    fn audit(&mut self) {
        for broken in self.cells.audit() {
            if self.summary.violations.len() < VIOLATIONS_KEPT {
                self.summary.violations.push(format!("at {} ms: {broken}", self.now_ms));
            }
        }
    }

    fn act(&mut self, action: &Action) -> io::Result<()> {
        match action {
            Action::Groups(jobs) => jobs.iter().try_for_each(|job| self.submit(job)),
            Action::Pod(pod) => self.ask_pod(pod),
            Action::Node { node, good } => {
                self.cells.set_node_health(node, *good);
                self.say(&node.to_string(), LogEvent::Node { good: *good })
            }
            Action::DeleteGroup(name) => {
                self.groups_of(name).iter().try_for_each(|group| self.delete_group(group))
            }
            Action::DeletePod(name) => self.delete_pod(name),
            Action::Reconfigure(config) => {
                let reserved = self.preempting();
                let unreported = self.scenario.unreported;
                let difference = self
                    .cells
                    .reconfigure((**config).clone(), unreported, self.now_ms)
                    .map_err(|errors| io::Error::new(io::ErrorKind::InvalidInput, errors.to_string()))?;
                self.forget_reservations(reserved);
                self.say("configuration", LogEvent::Reconfigured { difference: value(&difference) })
            }
            Action::Restart => {
                let reserved = self.preempting();
                let bound = self.cells.bound_groups();
                let groups = bound.len();
                let good: BTreeSet<NodeName> = self.cells.good_nodes();
                let config = self.cells.config().clone();
                let (cells, lost) = Cells::recover(config, &good, bound, self.now_ms)
                    .map_err(|errors| io::Error::new(io::ErrorKind::InvalidInput, errors.to_string()))?;
                self.cells = cells;
                self.forget_reservations(reserved);
                self.say("configuration", LogEvent::Restarted { groups, lost: value(&lost) })
            }
            Action::Show(vc) => {
                let status = self.cells.vc_status(vc).map(|status| value(&status)).unwrap_or_default();
                let cells = self.cells.virtual_cells(vc).map(|cells| value(&cells)).unwrap_or_default();
                self.say(vc, LogEvent::VirtualCluster { status, cells })
            }
        }
    }

    /// The group of this name, or the groups of the job of this name whose pods start one by one.
    fn groups_of(&self, name: &str) -> Vec<String> {
        let first = format!("{name}/");
        let of_job = self.jobs.keys().filter(|group| group.starts_with(&first)).cloned().collect::<Vec<_>>();
        let is_group = self.jobs.contains_key(name) || self.cells.group(name).is_some();
        if is_group || of_job.is_empty() { vec![name.to_string()] } else { of_job }
    }

    fn delete_group(&mut self, name: &str) -> io::Result<()> {
        self.cells.release(name);
        if self.jobs.remove(name).is_some() {
            self.summary.deleted += 1;
        }
        self.say(name, LogEvent::Deleted {})
    }

    /// A pod by its own name, or one of a group's by the group's name and its number.
    fn delete_pod(&mut self, name: &str) -> io::Result<()> {
        if let Some(group) = self.pods.remove(name) {
            self.cells.delete_pod(&group, name);
        } else if let Some((group, number)) = name.rsplit_once('/')
            // A group that waits has no pods that could go.
            && self.jobs.get(group).is_some_and(|state| state.running)
            && self.cells.delete_pod(group, number)
        {
            self.jobs.remove(group);
            self.summary.deleted += 1;
        }
        self.say(name, LogEvent::Deleted {})
    }

    /// Pods of a victim as the log names them.
    fn pods_of(&self, victim: Victim) -> Vec<String> {
        if !self.jobs.contains_key(&victim.group) {
            return victim.pods;
        }
        victim.pods.iter().map(|number| format!("{}/{number}", victim.group)).collect()
    }

    fn preempting(&self) -> Vec<String> {
        let groups = self.cells.groups().into_iter();
        groups.filter(|group| group.state == GroupState::Preempting).map(|group| group.name).collect()
    }

    /// Preempting groups are pending again after a restart.
    fn forget_reservations(&mut self, names: Vec<String>) {
        for name in names {
            if let Some(state) = self.jobs.get_mut(&name) {
                state.last_event.clear();
            }
        }
    }

    fn submit(&mut self, job: &Job) -> io::Result<()> {
        let name = job.request.name().to_string();
        self.summary.jobs += 1;
        if self.jobs.contains_key(&name) || self.cells.group(&name).is_some() {
            self.summary.rejected += 1;
            let message = format!("found a second group {name}; allowed: each name once at a time");
            return self.say(&name, LogEvent::Rejected { reason: "NameTaken".to_string(), message });
        }
        let mut sizes = BTreeMap::new();
        add_sizes(&mut sizes, &job.request.affinity_group.root, self.cells.config());
        let pods = sizes.values().copied().fold(0, i64::saturating_add);
        let (vc, priority) = (job.request.vc.clone(), job.request.priority);
        self.say(&name, LogEvent::Submitted { vc, priority, pods, sizes })?;
        let refusal = self.cells.admit(&job.request).err();
        let refusal = refusal.filter(|refusal| match refusal {
            Refusal::NeverFits(_) => self.scenario.never_fits == NeverFits::Reject,
            _ => true,
        });
        if let Some(refusal) = refusal {
            self.summary.rejected += 1;
            return self.say(
                &name,
                LogEvent::Rejected { reason: "Refused".to_string(), message: refusal.to_string() },
            );
        }
        self.order += 1;
        let state = State {
            job: job.clone(),
            age: self.order,
            attempts: 0,
            running: false,
            last_event: String::new(),
        };
        self.jobs.insert(name, state);
        Ok(())
    }

    fn finish(&mut self, name: &str, attempt: u32) -> io::Result<()> {
        let Some(state) = self.jobs.get(name).filter(|state| state.running && state.attempts == attempt)
        else {
            return Ok(());
        };
        let attempts = state.attempts;
        self.cells.release(name);
        self.jobs.remove(name);
        self.summary.finished += 1;
        self.say(name, LogEvent::Finished { attempts })
    }

    /// Asks about all that waits, highest priority and oldest first, until nothing more changes. Who was evicted is back
    /// in its place in line, so the next is asked about only after those before it.
    fn ask_all(&mut self) -> io::Result<()> {
        loop {
            let mut waiting: Vec<(Reverse<i32>, u64, String)> = self
                .jobs
                .iter()
                .filter(|(_, state)| !state.running)
                .map(|(name, state)| (Reverse(state.job.request.priority), state.age, name.clone()))
                .collect();
            waiting.sort();
            let mut changed = false;
            for (_, _, name) in waiting {
                changed = self.ask(&name)?;
                if changed {
                    break;
                }
            }
            if !changed {
                return Ok(());
            }
        }
    }

    /// Whether others have to be asked about again because of it: somebody was evicted or lost a reservation.
    fn ask(&mut self, name: &str) -> io::Result<bool> {
        let Some(state) = self.jobs.get(name).filter(|state| !state.running) else { return Ok(false) };
        let job = state.job.clone();
        let ask = Ask { now_ms: self.now_ms, suggested: job.suggested.as_ref(), ..Ask::default() };
        match self.cells.schedule(&job.request, &ask) {
            Decision::Place(proposal) => {
                self.commit(name, &proposal)?;
                self.start(name, &proposal)?;
                Ok(!proposal.cancelled.is_empty())
            }
            Decision::Preempt(proposal) => self.preempt(name, &proposal),
            Decision::Wait(reason) => {
                let (code, level) = (reason.code().to_string(), reason.level.clone());
                self.pending(name, LogEvent::Pending { reason: code, level, message: reason.to_string() })?;
                Ok(false)
            }
            Decision::Refuse(refusal) => {
                let message = refusal.to_string();
                self.pending(
                    name,
                    LogEvent::Pending { reason: "Refused".to_string(), level: String::new(), message },
                )?;
                Ok(false)
            }
        }
    }

    /// Tells why a job waits when that is news.
    fn pending(&mut self, name: &str, event: LogEvent) -> io::Result<()> {
        let key = format!("{event:?}");
        match self.jobs.get_mut(name) {
            Some(state) if state.last_event != key => state.last_event = key,
            _ => return Ok(()),
        }
        self.say(name, event)
    }

    fn commit(&mut self, name: &str, proposal: &Proposal) -> io::Result<()> {
        if let Err(stale) = self.cells.commit(proposal) {
            self.summary.violations.push(format!("at {} ms: {name}: {stale}", self.now_ms));
        }
        for lazy in &proposal.lazily_preempted {
            self.summary.lazy_preemptions += 1;
            self.say(lazy, LogEvent::LazilyPreempted { by: name.to_string() })?;
        }
        for cancelled in &proposal.cancelled {
            if let Some(state) = self.jobs.get_mut(cancelled) {
                state.last_event.clear();
            }
            self.say(cancelled, LogEvent::ReservationCancelled { by: name.to_string() })?;
        }
        Ok(())
    }

    fn start(&mut self, name: &str, proposal: &Proposal) -> io::Result<()> {
        let now_ms = self.now_ms;
        if let Some(state) = self.jobs.get_mut(name) {
            state.running = true;
            state.attempts += 1;
            state.last_event.clear();
            if let Some(runtime) = state.job.runtime {
                let end = now_ms.saturating_add(millis(runtime.as_millis()));
                self.ends.push(Reverse((end, name.to_string(), state.attempts)));
            }
        }
        let placement = proposal.placement.clone();
        let pods = placement.pods;
        self.say(
            name,
            LogEvent::Started {
                cluster: placement.cluster,
                chain: placement.cell_chain,
                nodes: pods.iter().map(|pod| pod.node.clone()).collect(),
                leaf_cells: pods.iter().map(|pod| pod.leaf_cells.clone()).collect(),
                cell_types: pods.into_iter().map(|pod| pod.preassigned_cell_type).collect(),
            },
        )
    }

    fn preempt(&mut self, name: &str, proposal: &Proposal) -> io::Result<bool> {
        self.commit(name, proposal)?;
        let victims: Vec<String> = proposal.victims.iter().map(|victim| victim.group.clone()).collect();
        self.pending(name, LogEvent::Preempting { victims })?;
        if !self.scenario.victims_leave {
            return Ok(!proposal.cancelled.is_empty());
        }
        for victim in &proposal.victims {
            self.cells.release(&victim.group);
            self.summary.preemptions += 1;
            let lost_s = victim.lost_work_ms / 1000;
            self.say(&victim.group, LogEvent::Preempted { by: name.to_string(), lost_s })?;
            self.pods.retain(|_, group| *group != victim.group);
            if let Some(state) = self.jobs.get_mut(&victim.group) {
                // It keeps its age, so it goes back to its place in line.
                state.running = false;
                state.last_event.clear();
                self.say(&victim.group, LogEvent::Requeued {})?;
            }
        }
        self.ask(name)?;
        Ok(true)
    }

    fn ask_pod(&mut self, pod: &Pod) -> io::Result<()> {
        if let Some(message) = pod.mistake.clone() {
            return self.say(&pod.name, LogEvent::Rejected { reason: "Refused".to_string(), message });
        }
        let request = &pod.spec.request;
        let (phase, suggested) = (pod.phase, pod.suggested.as_ref());
        let ask = Ask { now_ms: self.now_ms, phase, suggested, ..Ask::default() };
        let (group, places) = (request.name().to_string(), pod.spec.places.clone().collect::<Vec<usize>>());
        let decision = if places.is_empty() {
            self.cells.schedule_pod(request, &pod.name, pod.spec.cells, &ask)
        } else {
            self.cells.schedule_pod_at(request, &pod.name, pod.spec.cells, &places, &ask)
        };
        let event = match decision {
            PodDecision::Bind(place) => {
                self.pods.insert(pod.name.clone(), group.clone());
                LogEvent::Bound { group, node: place.node, leaf_cells: place.leaf_cells }
            }
            PodDecision::Preempt(victims) => {
                self.pods.insert(pod.name.clone(), group);
                let victims = victims.into_iter().flat_map(|victim| self.pods_of(victim)).collect();
                LogEvent::Preempting { victims }
            }
            PodDecision::Wait(reason) => LogEvent::Pending {
                reason: reason.code().to_string(),
                level: reason.level.clone(),
                message: reason.to_string(),
            },
            PodDecision::Refuse(refusal) => {
                LogEvent::Rejected { reason: "Refused".to_string(), message: refusal.to_string() }
            }
        };
        self.say(&pod.name, event)
    }
}

/// Adds the pods of a group, by their leaf cells.
fn add_sizes(sizes: &mut BTreeMap<i64, i64>, group: &PodGroup, config: &ClusterConfig) {
    for member in &group.members {
        let leaves = member.leaf_cell_number.saturating_mul(leaves_of(&member.cell_type, config));
        let pods = sizes.entry(leaves).or_default();
        *pods = pods.saturating_add(member.pod_number.max(0));
    }
    group.child_groups.iter().for_each(|child| add_sizes(sizes, child, config));
}

/// Leaf cells of one cell of a type; 1 for a leaf cell, and without a type.
fn leaves_of(cell_type: &str, config: &ClusterConfig) -> i64 {
    let types = &config.physical_cluster.cell_types;
    let (mut leaves, mut at) = (1_i64, cell_type);
    // No type is part of itself, so there are not more steps than types.
    for _ in 0..types.len() {
        let Some(below) = types.get(at) else { break };
        leaves = leaves.saturating_mul(below.child_cell_number);
        at = &below.child_cell_type;
    }
    leaves
}

fn millis(ms: u128) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_else(|error| json!(error.to_string()))
}

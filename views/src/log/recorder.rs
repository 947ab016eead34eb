//! Writes lines when facts change, so that a reader of the lines knows what the recorder knows.
//!
//! A change is written as events if events express all of it, and otherwise as all that is known of the job.

use super::{
    line::{Clock, Event, Line, Submission},
    replay::{Replay, without_use},
};
use crate::{
    amounts::GPU,
    facts::{
        AttemptFacts, BindingFacts, ClusterFacts, Id, RunFacts, TreeFacts, UnitFacts, VirtualClusterFacts,
    },
    job::{Job, State},
    preemption_message::PreemptionMessage,
    sight::Sight,
};
use fleet_policies::reason::Reason;
use fleet_resources::quantity;

/// An event is written when it is observed, a little after it happened.
const TOLERANCE_S: i64 = 5;

/// What was written so far.
#[derive(Debug, Default)]
pub struct Recorder {
    told: Replay,
}

impl Recorder {
    /// Forgets everything: all facts are written again.
    pub fn reset(&mut self) {
        self.told = Replay::default();
    }

    /// Lines for the current state of a job; with their job's name, which is not the binding's.
    pub fn job(
        &mut self,
        at_ms: i64,
        id: &Id,
        now: Option<(BindingFacts, Option<UnitFacts>)>,
    ) -> Vec<String> {
        let before = self.told.known().job(id).cloned();
        let Some((binding, unit)) = now else {
            return before
                .map(|job| self.tell(at_ms, id, job.name(), Event::Deleted {}))
                .into_iter()
                .collect();
        };
        let job = Job { id: id.clone(), binding, unit };
        if before.as_ref().is_some_and(|before| agrees(before, &job)) {
            return Vec::new();
        }
        let mut events = Vec::new();
        if before.is_none() {
            events.push(submitted(&job.binding));
        }
        changes(before.as_ref(), &job, &mut events);
        let name = job.name().to_owned();
        let mut probe = Replay::default();
        if let Some(before) = before {
            probe.known.set_binding(id.clone(), Some(before.binding));
            probe.known.set_unit(id.clone(), before.unit);
        }
        let line = |event| Line { at_ms, id: Some(id.clone()), event };
        let mut lines: Vec<Line> = events.into_iter().map(line).collect();
        lines.iter().for_each(|line| probe.take(line));
        let says_why = |told: &Job| told.said() == job.said();
        if job.state() == State::Waiting && !probe.known().job(id).is_some_and(says_why) {
            let (reason, message) = job.said();
            let (reason, message) = (reason.to_owned(), message.to_owned());
            lines.push(line(Event::Pending { queue: job.queue().to_owned(), reason, message }));
            lines.iter().rev().take(1).for_each(|line| probe.take(line));
        }
        if probe.known().job(id).is_some_and(|told| agrees(told, &job)) {
            return lines.into_iter().map(|line| self.tell(at_ms, id, &name, line.event)).collect();
        }
        vec![self.tell(at_ms, id, &name, known(&job))]
    }

    /// A line if the cluster has changed.
    pub fn cluster(&mut self, at_ms: i64, name: &str, now: Option<ClusterFacts>) -> Option<String> {
        if self.told.clusters.get(name) == now.as_ref() {
            return None;
        }
        let line = Event::Cluster { cluster: name.to_owned(), facts: now.map(Box::new) };
        Some(self.tell_of_none(at_ms, line))
    }

    /// The cluster as last written.
    pub fn told_cluster(&self, name: &str) -> Option<&ClusterFacts> {
        self.told.clusters.get(name)
    }

    /// A line if the virtual cluster has changed; `name` is its object's.
    pub fn virtual_cluster(
        &mut self,
        at_ms: i64,
        name: &str,
        now: Option<VirtualClusterFacts>,
    ) -> Option<String> {
        if self.told.known().virtual_clusters().get(name) == now.as_ref() {
            return None;
        }
        let event = Event::VirtualCluster { virtual_cluster: name.to_owned(), facts: now.map(Box::new) };
        Some(self.tell_of_none(at_ms, event))
    }

    /// A line if the tree has changed; its usage does not count.
    pub fn tree(&mut self, at_ms: i64, now: &TreeFacts) -> Option<String> {
        let root = now.root.as_ref().map(without_use);
        let now = TreeFacts { root, problems: now.problems.clone() };
        if self.told.tree.as_ref() == Some(&now) {
            return None;
        }
        let line = Event::Tree { root: now.root.map(Box::new), problems: now.problems };
        Some(self.tell_of_none(at_ms, line))
    }

    /// The beginning of a log: all that was written so far, in at most so many bytes. Jobs that have ended
    /// are left out first, the oldest of them first.
    pub fn baseline(&self, at_ms: i64, most_bytes: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut left = most_bytes;
        let mut add = |text: String| {
            let fits = text.len() < left;
            if fits {
                left -= text.len() + 1;
                lines.push(text);
            }
            fits
        };
        let of_none = |event| Line { at_ms, id: None, event }.text(None);
        for (name, facts) in &self.told.clusters {
            add(of_none(Event::Cluster { cluster: name.clone(), facts: Some(Box::new(facts.clone())) }));
        }
        for (name, facts) in self.told.known().virtual_clusters() {
            let facts = Some(Box::new(facts.clone()));
            add(of_none(Event::VirtualCluster { virtual_cluster: name.clone(), facts }));
        }
        if let Some(TreeFacts { root, problems }) = self.told.tree.clone() {
            add(of_none(Event::Tree { root: root.map(Box::new), problems }));
        }
        let all = Sight::all();
        let (live, over): (Vec<&Job>, Vec<&Job>) =
            self.told.known().newest(&all).partition(|job| job.binding.end.is_none());
        let mut left_out = 0;
        for job in live.into_iter().chain(over) {
            let line = Line { at_ms, id: Some(job.id.clone()), event: known(job) };
            // Nothing after the first that does not fit: a later small one would hide how many are missing.
            let fits = left_out == 0 && add(line.text(Some(job.name())));
            left_out += usize::from(!fits);
        }
        let begin = Event::Recording { clock: Clock::Unix, left_out };
        lines.insert(0, of_none(begin));
        lines
    }

    fn tell(&mut self, at_ms: i64, id: &Id, name: &str, event: Event) -> String {
        let line = Line { at_ms, id: Some(id.clone()), event };
        self.told.take(&line);
        line.text(Some(name))
    }

    fn tell_of_none(&mut self, at_ms: i64, event: Event) -> String {
        let line = Line { at_ms, id: None, event };
        self.told.take(&line);
        line.text(None)
    }
}

fn known(job: &Job) -> Event {
    Event::Known { facts: Box::new(job.binding.clone()), unit: job.unit.clone().map(Box::new) }
}

fn submitted(binding: &BindingFacts) -> Event {
    let requests =
        binding.requests.iter().map(|(name, amount)| (name.clone(), quantity::format(name, *amount)));
    Event::Submitted(Box::new(Submission {
        name: binding.name.clone(),
        kind: binding.kind.clone(),
        gpus: binding.requests.get(GPU).copied().unwrap_or(0),
        components: [("pods".to_owned(), binding.pods)].into(),
        priority: binding.priority,
        api_version: binding.api_version.clone(),
        resource: binding.resource.clone(),
        user: binding.user.clone(),
        virtual_cluster: binding.virtual_cluster.clone(),
        requests: requests.collect(),
        pod_gpus: [].into(),
    }))
}

/// The events between two states of a job, in the order in which they happen.
fn changes(before: Option<&Job>, now: &Job, events: &mut Vec<Event>) {
    let nothing = BindingFacts::default();
    let old = before.map_or(&nothing, |job| &job.binding);
    let new = &now.binding;
    for attempt in new.attempts.iter().skip(old.attempts.len()) {
        events.push(over(attempt));
    }
    let had = before.and_then(|job| job.unit.as_ref());
    if let Some(unit) = &now.unit {
        of_unit(had, unit, events);
    }
    let is_new_run = new.epoch != old.epoch || (old.clusters.is_empty() && !new.clusters.is_empty());
    if let Some(cluster) = new.clusters.first().filter(|_| is_new_run) {
        events.push(Event::Bound { cluster: cluster.clone(), epoch: new.epoch });
    }
    let started = |binding: &BindingFacts| binding.run.as_ref().and_then(|run| run.started_s);
    if let Some(cluster) = new.clusters.first()
        && started(new).is_some()
        && (is_new_run || started(old).is_none())
    {
        let (cluster, epoch) = (cluster.clone(), new.epoch);
        events.push(Event::Started { cluster, epoch, nodes: [].into() });
    }
    if let Some(end) = new.end.as_ref().filter(|_| old.end.is_none()) {
        events.push(Event::Finished {
            cluster: end.cluster.clone(),
            epoch: new.epoch,
            result: if end.is_success { "Succeeded" } else { "Failed" }.to_owned(),
            reason: end.reason.clone(),
            message: end.message.clone(),
        });
    }
}

fn of_unit(had: Option<&UnitFacts>, unit: &UnitFacts, events: &mut Vec<Event>) {
    let (reason, message) =
        unit.said.as_ref().map_or_else(Default::default, |said| (said.reason.clone(), said.message.clone()));
    let queue = unit.queue.clone();
    match had {
        None => {
            events.push(Event::Queued { queue: queue.clone(), reason, message });
            if !unit.waits {
                events.push(Event::Admitted { queue });
            }
        }
        Some(had) if had.waits && !unit.waits => events.push(Event::Admitted { queue }),
        Some(had) if !had.waits && unit.waits => events.push(Event::Requeued { queue, reason }),
        Some(_) => {}
    }
}

/// The message of a preempted run names the preemptor.
fn over(attempt: &AttemptFacts) -> Event {
    let AttemptFacts { cluster, epoch, reason, message, .. } = attempt.clone();
    if reason != Reason::Preempted.as_str() {
        return Event::Evicted { cluster, epoch, reason, message };
    }
    let PreemptionMessage { by, rule, .. } = PreemptionMessage::read(&message);
    let (by, reason) = (by.to_owned(), rule.to_owned());
    Event::Preempted { cluster, epoch, by, reason, message }
}

/// Whether both show the same, except for a few seconds.
fn agrees(a: &Job, b: &Job) -> bool {
    let near = |a: i64, b: i64| (a - b).abs() <= TOLERANCE_S;
    let (times_a, times_b) = (times(a), times(b));
    a.state() == b.state()
        && a.said() == b.said()
        && times_a.len() == times_b.len()
        && times_a.iter().zip(&times_b).all(|(a, b)| near(*a, *b))
        && timeless(a) == timeless(b)
}

fn times(job: &Job) -> Vec<i64> {
    let binding = &job.binding;
    let mut all = vec![binding.created_s];
    for attempt in &binding.attempts {
        all.extend([attempt.ended_s, attempt.started_s.unwrap_or(attempt.ended_s)]);
    }
    match &binding.end {
        Some(end) => all.push(end.at_s),
        None => {
            all.extend(binding.run.iter().filter_map(|run| run.started_s));
            all.extend(job.unit.iter().map(|unit| unit.created_s));
        }
    }
    all
}

/// The job without times, and without what pages do not show in its state.
fn timeless(job: &Job) -> Job {
    let mut job = job.clone();
    let binding = &mut job.binding;
    // No event tells of them; a line about the whole job does.
    (binding.created_s, binding.place_ms, binding.restarts) = (0, 0, 0);
    for attempt in &mut binding.attempts {
        attempt.ended_s = 0;
        attempt.started_s = attempt.started_s.map(|_| 0);
    }
    if let Some(end) = &mut binding.end {
        end.at_s = 0;
        binding.clusters.clear();
        (binding.run, binding.unscheduled, job.unit) = (None, None, None);
        return job;
    }
    if let Some(run) = &mut binding.run {
        run.since_s = 0;
        run.started_s = run.started_s.map(|_| 0);
        run.lost_since_s = run.lost_since_s.map(|_| 0);
    }
    // Pages do not show details of a run that has ended or not begun.
    if binding.clusters.is_empty() {
        binding.run = None;
    } else if binding.run.is_none() {
        binding.run = Some(RunFacts::default());
    }
    // Both messages say why the job waits; they are compared as they are shown.
    binding.unscheduled = None;
    if let Some(unit) = &mut job.unit {
        (unit.created_s, unit.runs, unit.said) = (0, false, None);
    }
    job
}

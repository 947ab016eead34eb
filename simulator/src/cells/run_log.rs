//! The run log of a scenario of cells, from which the portal shows the fleet at any instant (`docs/portal.md#time`).
//!
//! A group or a single pod is a job in the namespace of its virtual cluster, its leaf cells are GPUs, and nodes without
//! a cluster are in one that is called `cells`. Clusters and virtual clusters are written when they change. There is no
//! quota tree.

use std::{collections::BTreeMap, io};

use fleet_api::{
    VirtualCluster,
    cells::status::{self, JobCounts},
};
use fleet_cells::{Cells, PodSpec};
use fleet_hub_core::facts;
use fleet_policies::reason::Reason;
use fleet_views::{
    ClusterFacts, NodeGroup, TreeFacts, VirtualClusterFacts,
    amounts::GPU,
    log::{Event, Line, Recorder, Submission},
};
use serde_json::json;

use super::{
    Watch,
    log_event::{LogEvent, Record, Summary},
    model::{Action, CellScenario},
};

/// Cluster of nodes whose configuration names none.
const CLUSTER: &str = "cells";
/// Kind of jobs.
const KIND: &str = "Group";
/// Its number in `docs/ARCHITECTURE.md`: cells have one owner, and promises are kept.
const INVARIANT: i64 = 10;

#[derive(Debug)]
struct Job {
    virtual_cluster: String,
    priority: i32,
    /// Of a single pod.
    group: Option<String>,
    cluster: String,
    epoch: i64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Over,
}

impl Job {
    fn new(virtual_cluster: &str, priority: i32) -> Self {
        let (virtual_cluster, state) = (virtual_cluster.to_owned(), State::Waiting);
        Self { virtual_cluster, priority, group: None, cluster: String::new(), epoch: 0, state }
    }
}

/// JSON lines with everything that pages are made from.
pub struct RunLog<'s, W> {
    out: W,
    pods: BTreeMap<&'s str, &'s PodSpec>,
    jobs: BTreeMap<String, Job>,
    /// By virtual cluster and priority.
    counts: BTreeMap<String, BTreeMap<i32, JobCounts>>,
    recorder: Recorder,
    clusters: BTreeMap<String, ClusterFacts>,
    virtual_clusters: BTreeMap<String, VirtualClusterFacts>,
}

impl<'s, W: io::Write> RunLog<'s, W> {
    /// # Errors
    /// The output cannot be written.
    pub fn new(mut out: W, scenario: &'s CellScenario) -> io::Result<Self> {
        let pods = scenario.events.iter().filter_map(|event| match &event.action {
            Action::Pod(pod) => Some((pod.name.as_str(), &pod.spec)),
            _ => None,
        });
        let mut recorder = Recorder::default();
        recorder.tree(0, &TreeFacts::default()).map_or(Ok(()), |line| writeln!(out, "{line}"))?;
        Ok(Self {
            out,
            pods: pods.collect(),
            jobs: BTreeMap::new(),
            counts: BTreeMap::new(),
            recorder,
            clusters: BTreeMap::new(),
            virtual_clusters: BTreeMap::new(),
        })
    }

    /// The last line.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let violations = summary.violations.iter().map(|what| json!({"invariant": INVARIANT, "what": what}));
        let mut line = json!({"summary": summary});
        line["summary"]["violations"] = violations.collect();
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn write_of(&mut self, at_ms: i64, job: &str, event: Event) -> io::Result<()> {
        let Some(known) = self.jobs.get(job) else { return Ok(()) };
        let id = Some((known.virtual_cluster.clone(), job.to_owned()));
        writeln!(self.out, "{}", Line { at_ms, id, event }.text(None))
    }

    fn submit(&mut self, at_ms: i64, name: &str, job: Job, sizes: &BTreeMap<i64, i64>) -> io::Result<()> {
        let gpus = sizes.iter().map(|(size, pods)| size.saturating_mul(*pods)).fold(0, i64::saturating_add);
        let submission = Submission {
            name: name.to_owned(),
            kind: KIND.to_owned(),
            gpus,
            components: sizes.iter().map(|(size, pods)| (component(size), *pods)).collect(),
            priority: job.priority,
            requests: [(GPU.to_owned(), gpus.to_string())].into(),
            pod_gpus: sizes.keys().map(|size| (component(size), *size)).collect(),
            virtual_cluster: job.virtual_cluster.clone(),
            ..Submission::default()
        };
        self.count(&job.virtual_cluster, job.priority, job.state, 1);
        self.jobs.insert(name.to_owned(), job);
        self.write_of(at_ms, name, Event::Submitted(Box::new(submission)))
    }

    fn count(&mut self, virtual_cluster: &str, priority: i32, state: State, by: i64) {
        let counts = self.counts.entry(virtual_cluster.to_owned()).or_default().entry(priority).or_default();
        match state {
            State::Waiting => counts.waiting += by,
            State::Running => counts.running += by,
            State::Over => {}
        }
    }

    fn change(&mut self, name: &str, state: State) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let before = std::mem::replace(&mut job.state, state);
        let (virtual_cluster, priority) = (job.virtual_cluster.clone(), job.priority);
        self.count(&virtual_cluster, priority, before, -1);
        self.count(&virtual_cluster, priority, state, 1);
    }

    /// A single pod is a job as soon as something is said of it.
    fn submit_pod(&mut self, at_ms: i64, name: &str) -> io::Result<()> {
        let is_live = self.jobs.get(name).is_some_and(|job| job.state != State::Over);
        let Some(spec) = self.pods.get(name).filter(|_| !is_live) else { return Ok(()) };
        let mut job = Job::new(&spec.request.vc, spec.request.priority);
        job.group = Some(spec.request.name().to_owned());
        let sizes = BTreeMap::from([(spec.cells, 1)]);
        self.submit(at_ms, name, job, &sizes)
    }

    fn start(
        &mut self,
        at_ms: i64,
        name: &str,
        cluster: &str,
        places: &[(&String, usize)],
    ) -> io::Result<()> {
        let cluster = cluster_name(cluster);
        let Some(job) = self.jobs.get_mut(name) else { return Ok(()) };
        job.epoch += 1;
        job.cluster.clone_from(&cluster);
        let epoch = job.epoch;
        self.change(name, State::Running);
        self.write_of(at_ms, name, Event::Bound { cluster: cluster.clone(), epoch })?;
        let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (node, leaves) in places {
            let size = i64::try_from(*leaves).unwrap_or(i64::MAX);
            nodes.entry(component(&size)).or_default().push((*node).clone());
        }
        self.write_of(at_ms, name, Event::Started { cluster, epoch, nodes })
    }

    /// The run of a group ends for another one; single pods of it are gone.
    fn preempt(&mut self, at_ms: i64, victim: &str, by: &str, lost_s: i64) -> io::Result<()> {
        let of_group = |(_, job): &(&String, &Job)| job.group.as_deref() == Some(victim);
        let mut names: Vec<String> =
            self.jobs.iter().filter(of_group).map(|(name, _)| name.clone()).collect();
        if self.jobs.get(victim).is_some_and(|job| job.group.is_none()) {
            names.push(victim.to_owned());
        }
        let by = match self.jobs.get(by) {
            Some(job) => format!("{}/{by}", job.virtual_cluster),
            None => by.to_owned(),
        };
        for name in names {
            let Some(job) = self.jobs.get(&name).filter(|job| job.state == State::Running) else { continue };
            let (cluster, epoch, is_pod) = (job.cluster.clone(), job.epoch, job.group.is_some());
            let message =
                format!("preempted by {by} in {cluster} (VirtualCluster); {lost_s} s of work are lost");
            let (by, reason) = (by.clone(), "VirtualCluster".to_owned());
            self.change(&name, State::Waiting);
            self.write_of(at_ms, &name, Event::Preempted { cluster, epoch, by, reason, message })?;
            if is_pod {
                self.end_job(at_ms, &name, Event::Deleted {})?;
            }
        }
        Ok(())
    }

    fn end_job(&mut self, at_ms: i64, name: &str, event: Event) -> io::Result<()> {
        self.change(name, State::Over);
        self.write_of(at_ms, name, event)
    }
}

impl<W: io::Write> Watch for RunLog<'_, W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let (at_ms, name) = (record.at_ms, record.job.as_str());
        let waits = |reason: &str, message: String| Event::Pending {
            queue: String::new(),
            reason: reason.to_owned(),
            message,
        };
        match &record.event {
            LogEvent::Submitted { vc, priority, sizes, .. } => {
                self.submit(at_ms, name, Job::new(vc, *priority), sizes)
            }
            // The group that has the name lives on.
            LogEvent::Rejected { reason, .. } if reason == "NameTaken" => Ok(()),
            LogEvent::Rejected { reason, message } => {
                self.submit_pod(at_ms, name)?;
                let (reason, message) = (reason.clone(), message.clone());
                self.end_job(at_ms, name, Event::Rejected { reason, message })
            }
            LogEvent::Pending { reason, message, .. } => {
                self.submit_pod(at_ms, name)?;
                self.write_of(at_ms, name, waits(reason, message.clone()))
            }
            LogEvent::Preempting { victims } => {
                self.submit_pod(at_ms, name)?;
                let message = format!("waits for its victims: {}", victims.join(", "));
                self.write_of(at_ms, name, waits(Reason::WaitingForVictims.as_str(), message))
            }
            LogEvent::Started { cluster, nodes, leaf_cells, .. } => {
                let places: Vec<_> = nodes.iter().zip(leaf_cells.iter().map(Vec::len)).collect();
                self.start(at_ms, name, cluster, &places)
            }
            LogEvent::Bound { node, leaf_cells, .. } => {
                self.submit_pod(at_ms, name)?;
                // Where node names of several clusters are alike, a pod names the first.
                let cluster = self
                    .clusters
                    .iter()
                    .find(|(_, facts)| facts.groups.iter().any(|group| group.names.contains(node)));
                let cluster = cluster.map_or(String::new(), |(name, _)| name.clone());
                self.start(at_ms, name, &cluster, &[(node, leaf_cells.len())])
            }
            LogEvent::Preempted { by, lost_s } => self.preempt(at_ms, name, by, *lost_s),
            LogEvent::Requeued {} => {
                let event = Event::Requeued { queue: String::new(), reason: String::new() };
                self.write_of(at_ms, name, event)
            }
            LogEvent::Finished { .. } => {
                let Some(job) = self.jobs.get(name) else { return Ok(()) };
                let (cluster, epoch) = (job.cluster.clone(), job.epoch);
                let result = "Succeeded".to_owned();
                let event = Event::Finished { cluster, epoch, result, reason: None, message: None };
                self.end_job(at_ms, name, event)
            }
            LogEvent::Deleted {} => self.end_job(at_ms, name, Event::Deleted {}),
            // Seen in what clusters and virtual clusters have, and in why a job waits then.
            _ => Ok(()),
        }
    }

    fn stand(&mut self, at_ms: i64, cells: &Cells) -> io::Result<()> {
        let now = clusters(cells);
        for name in self.clusters.keys().chain(now.keys()) {
            let line = self.recorder.cluster(at_ms, name, now.get(name).cloned());
            line.map_or(Ok(()), |line| writeln!(self.out, "{line}"))?;
        }
        self.clusters = now;
        let now = virtual_clusters(cells, &self.counts);
        for name in self.virtual_clusters.keys().chain(now.keys()) {
            let line = self.recorder.virtual_cluster(at_ms, name, now.get(name).cloned());
            line.map_or(Ok(()), |line| writeln!(self.out, "{line}"))?;
        }
        self.virtual_clusters = now;
        Ok(())
    }
}

/// Pods of one size.
fn component(leaves: &i64) -> String {
    format!("pods-of-{leaves}")
}

fn cluster_name(name: &str) -> String {
    if name.is_empty() { CLUSTER } else { name }.to_owned()
}

/// Clusters with all their nodes, without what runs there: the jobs say that.
fn clusters(cells: &Cells) -> BTreeMap<String, ClusterFacts> {
    let mut groups: BTreeMap<String, BTreeMap<(bool, i64), Vec<String>>> = BTreeMap::new();
    for (node, leaves) in cells.leaves_by_node() {
        let leaves = i64::try_from(leaves).unwrap_or(i64::MAX);
        let alike = groups.entry(cluster_name(&node.cluster)).or_default();
        alike.entry((!cells.is_good(node), leaves)).or_default().push(node.node.clone());
    }
    let facts = |groups: BTreeMap<(bool, i64), Vec<String>>| {
        let mut facts = ClusterFacts { ready: Some(true), ..ClusterFacts::default() };
        for ((is_bad, gpus), names) in groups {
            let count = i64::try_from(names.len()).unwrap_or(i64::MAX);
            facts.nodes += count;
            facts.nodes_ready += if is_bad { 0 } else { count };
            *facts.allocatable.entry(GPU.to_owned()).or_default() += gpus.saturating_mul(count);
            let unusable = if is_bad { "bad" } else { "" }.to_owned();
            let node = NodeGroup { count, gpus, gpus_free: gpus, names, unusable, ..NodeGroup::default() };
            facts.groups.push(NodeGroup { of_cells: true, ..node });
        }
        facts
    };
    groups.into_iter().map(|(name, groups)| (name, facts(groups))).collect()
}

/// By the names that their objects would have on a hub.
fn virtual_clusters(
    cells: &Cells,
    counts: &BTreeMap<String, BTreeMap<i32, JobCounts>>,
) -> BTreeMap<String, VirtualClusterFacts> {
    let none = BTreeMap::new();
    let facts = |name: &str| {
        let counts = counts.get(name).unwrap_or(&none);
        let status = status::status(cells.config(), &cells.vc_status(name)?, counts);
        let mut object = VirtualCluster { status: Some(status), ..VirtualCluster::default() };
        object.spec.name = name.to_owned();
        Some((name.to_lowercase(), facts::virtual_cluster(&object)))
    };
    cells.virtual_clusters().filter_map(facts).collect()
}

#[cfg(test)]
mod tests;

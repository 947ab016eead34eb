//! The state of the fleet after the lines of a log.

use std::collections::BTreeMap;

use fleet_policies::reason::Reason;
use fleet_resources::quantity;

use super::line::{Clock, Event, Line, Submission};
use crate::{
    amounts::GPU,
    facts::{
        AttemptFacts, BindingFacts, ClusterFacts, End, Id, QuotaFacts, RunFacts, Said, TreeFacts, UnitFacts,
    },
    known::Known,
};

/// A fleet between two lines of its log.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    pub(super) known: Known,
    /// Node names of jobs, which facts do not contain.
    pub(super) places: BTreeMap<Id, Places>,
    /// As in the lines; usage by jobs is not included.
    pub(super) clusters: BTreeMap<String, ClusterFacts>,
    pub(super) tree: Option<TreeFacts>,
    pub(super) clock: Clock,
    /// Jobs that the log left out because of its size limit.
    pub(super) left_out: usize,
}

/// Where a job's pods are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// GPUs of one pod of each component.
    pub pod_gpus: BTreeMap<String, i64>,
    pub nodes: BTreeMap<String, Vec<String>>,
}

impl Replay {
    pub fn clock(&self) -> Clock {
        self.clock
    }

    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Whether the log contains the clusters and the quota tree.
    pub fn is_told(&self) -> bool {
        !self.clusters.is_empty() && self.tree.is_some()
    }

    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Applies the next line.
    pub fn take(&mut self, line: &Line) {
        let at_s = line.at_ms.div_euclid(1000);
        match (&line.event, &line.id) {
            (Event::Recording { clock, left_out }, _) => {
                *self = Self { clock: *clock, left_out: *left_out, ..Self::default() };
            }
            (Event::Cluster { cluster, facts }, _) => {
                match facts {
                    Some(facts) => self.clusters.insert(cluster.clone(), (**facts).clone()),
                    None => self.clusters.remove(cluster),
                };
            }
            (Event::VirtualCluster { virtual_cluster, facts }, _) => {
                self.known.set_virtual_cluster(virtual_cluster, facts.as_deref().cloned());
            }
            (Event::Tree { root, problems }, _) => {
                let root = root.as_deref().cloned();
                self.tree = Some(TreeFacts { root, problems: problems.clone() });
            }
            (Event::Known { facts, unit }, Some(id)) => {
                self.places.remove(id);
                self.known.set_binding(id.clone(), Some((**facts).clone()));
                self.known.set_unit(id.clone(), unit.as_deref().cloned());
            }
            (Event::Submitted(job), Some(id)) => self.submit(id, job, at_s),
            (Event::Deleted {}, Some(id)) => {
                self.places.remove(id);
                self.known.set_unit(id.clone(), None);
                self.known.set_binding(id.clone(), None);
            }
            (event, Some(id)) => self.change(id, event, at_s),
            (_, None) => {}
        }
    }

    fn submit(&mut self, id: &Id, job: &Submission, at_s: i64) {
        let (api_version, resource) = kind_of(job);
        let mut requests: BTreeMap<String, i64> = job
            .requests
            .iter()
            .filter_map(|(name, text)| Some((name.clone(), quantity::parse(name, text).ok()?)))
            .collect();
        if job.gpus > 0 {
            requests.insert(GPU.to_owned(), job.gpus);
        }
        let facts = BindingFacts {
            is_job: job.kind != "Deployment",
            api_version,
            resource,
            kind: job.kind.clone(),
            name: if job.name.is_empty() { id.1.clone() } else { job.name.clone() },
            priority: job.priority,
            user: job.user.clone(),
            virtual_cluster: job.virtual_cluster.clone(),
            created_s: at_s,
            requests,
            pods: job.components.values().sum(),
            ..BindingFacts::default()
        };
        self.known.set_unit(id.clone(), None);
        self.known.set_binding(id.clone(), Some(facts));
        let places = Places { pod_gpus: job.pod_gpus.clone(), nodes: BTreeMap::new() };
        self.places.insert(id.clone(), places);
    }

    /// An event of a known job; a log may begin in the middle of the job's life.
    fn change(&mut self, id: &Id, event: &Event, at_s: i64) {
        let Some(job) = self.known.job(id) else { return };
        let (mut binding, mut unit) = (job.binding.clone(), job.unit.clone());
        match event {
            Event::Queued { queue, reason, message } => {
                unit = Some(UnitFacts {
                    queue: queue.clone(),
                    priority: binding.priority,
                    created_s: at_s,
                    waits: true,
                    runs: false,
                    preemptible: true,
                    said: said(reason, message, at_s),
                    claim: None,
                });
            }
            Event::Pending { reason, message, .. } => match unit.as_mut().filter(|unit| unit.waits) {
                Some(unit) => unit.said = said(reason, message, at_s),
                None => binding.unscheduled = said(reason, message, at_s),
            },
            Event::Admitted { .. } => leave_queue(&mut unit),
            Event::Bound { cluster, epoch } => {
                leave_queue(&mut unit);
                binding.clusters = vec![cluster.clone()];
                binding.epoch = *epoch;
                binding.unscheduled = None;
                binding.run = Some(RunFacts { since_s: at_s, ..RunFacts::default() });
            }
            Event::Started { cluster, epoch, nodes } => {
                if binding.clusters.is_empty() {
                    binding.clusters = vec![cluster.clone()];
                    binding.epoch = *epoch;
                }
                let run = binding.run.get_or_insert(RunFacts { since_s: at_s, ..RunFacts::default() });
                run.started_s.get_or_insert(at_s);
                if let Some(unit) = &mut unit {
                    (unit.waits, unit.runs) = (false, true);
                }
                self.places.entry(id.clone()).or_default().nodes.clone_from(nodes);
            }
            Event::Fenced { .. } => {
                if let Some(run) = &mut binding.run {
                    run.lost_since_s.get_or_insert(at_s);
                }
                self.leave_nodes(id);
            }
            Event::Requeued { queue, reason } => {
                if let Some(unit) = &mut unit {
                    (unit.waits, unit.runs, unit.said) = (true, false, said(reason, "", at_s));
                    if !queue.is_empty() {
                        unit.queue.clone_from(queue);
                    }
                }
            }
            Event::Finished { cluster, result, reason, message, .. } => {
                let is_success = result == "Succeeded";
                let (reason, message) = (reason.clone(), message.clone());
                leave_queue(&mut unit);
                binding.end = Some(End { is_success, cluster: cluster.clone(), at_s, reason, message });
                self.leave_nodes(id);
            }
            Event::Rejected { reason, message } => {
                let (reason, message) = (Some(reason.clone()), Some(message.clone()));
                binding.end = Some(End { at_s, reason, message, ..End::default() });
            }
            other => match over(other, at_s) {
                Some(attempt) => self.end_run(id, &mut binding, &mut unit, attempt),
                None => return,
            },
        }
        self.known.set_unit(id.clone(), unit);
        self.known.set_binding(id.clone(), Some(binding));
    }

    fn end_run(
        &mut self,
        id: &Id,
        binding: &mut BindingFacts,
        unit: &mut Option<UnitFacts>,
        mut attempt: AttemptFacts,
    ) {
        // The end of an earlier run may be written late: the current run continues.
        if binding.epoch <= attempt.epoch {
            binding.clusters.clear();
            attempt.started_s = binding.run.take().and_then(|run| run.started_s);
            self.leave_nodes(id);
            if let Some(unit) = unit {
                unit.runs = false;
            }
        }
        binding.attempts.push(attempt);
    }

    fn leave_nodes(&mut self, id: &Id) {
        if let Some(places) = self.places.get_mut(id) {
            places.nodes.clear();
        }
    }
}

fn leave_queue(unit: &mut Option<UnitFacts>) {
    if let Some(unit) = unit {
        unit.waits = false;
        unit.said = None;
    }
}

fn said(reason: &str, message: &str, since_s: i64) -> Option<Said> {
    let (reason, message) = (reason.to_owned(), message.to_owned());
    (!reason.is_empty()).then_some(Said { reason, message, since_s })
}

/// The run that an event ends.
fn over(event: &Event, at_s: i64) -> Option<AttemptFacts> {
    let (cluster, epoch, reason, message) = match event {
        Event::Preempted { cluster, epoch, by, reason, message } => {
            let told =
                if message.is_empty() { format!("preempted by {by} ({reason})") } else { message.clone() };
            (cluster, epoch, Reason::Preempted.as_str(), told)
        }
        Event::Evicted { cluster, epoch, reason, message } => {
            (cluster, epoch, reason.as_str(), message.clone())
        }
        _ => return None,
    };
    let (cluster, reason) = (cluster.clone(), reason.to_owned());
    Some(AttemptFacts { cluster, epoch: *epoch, reason, message, started_s: None, ended_s: at_s })
}

/// API version and resource of kinds that a log names without them.
fn kind_of(job: &Submission) -> (String, String) {
    let (api_version, resource) = match job.kind.as_str() {
        "PyTorchJob" => ("kubeflow.org/v1", "pytorchjobs.kubeflow.org".to_owned()),
        "TFJob" => ("kubeflow.org/v1", "tfjobs.kubeflow.org".to_owned()),
        "MPIJob" => ("kubeflow.org/v2beta1", "mpijobs.kubeflow.org".to_owned()),
        "Job" => ("batch/v1", "jobs.batch".to_owned()),
        other => ("", format!("{}s", other.to_lowercase())),
    };
    let or = |told: &str, known: String| if told.is_empty() { known } else { told.to_owned() };
    (or(&job.api_version, api_version.to_owned()), or(&job.resource, resource))
}

/// A node of the quota tree without its usage, which follows from the jobs.
pub(super) fn without_use(node: &QuotaFacts) -> QuotaFacts {
    QuotaFacts {
        used: BTreeMap::new(),
        unqueued: BTreeMap::new(),
        children: node.children.iter().map(without_use).collect(),
        ..node.clone()
    }
}

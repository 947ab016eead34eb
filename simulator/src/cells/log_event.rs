//! Events, as lines of the log.

mod words;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Something that happened to a job, a pod, a node or a virtual cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub at_ms: i64,
    pub job: String,
    pub event: LogEvent,
}

/// Names of variants are the log's `event`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event")]
pub enum LogEvent {
    Submitted {
        vc: String,
        priority: i32,
        pods: i64,
        /// Pods by their leaf cells, for [`super::RunLog`]; not in this log.
        #[serde(skip)]
        sizes: BTreeMap<i64, i64>,
    },
    Rejected {
        reason: String,
        message: String,
    },
    Pending {
        reason: String,
        level: String,
        message: String,
    },
    /// All pods of the group have their cells.
    Started {
        cluster: String,
        chain: String,
        nodes: Vec<String>,
        leaf_cells: Vec<Vec<i32>>,
        cell_types: Vec<String>,
    },
    /// A single pod has its cells.
    Bound {
        group: String,
        node: String,
        leaf_cells: Vec<i32>,
    },
    /// Cells are reserved until the victims are gone; of a pod, `victims` are pods.
    Preempting {
        victims: Vec<String>,
    },
    Preempted {
        by: String,
        lost_s: i64,
    },
    /// It runs on as an opportunistic group.
    LazilyPreempted {
        by: String,
    },
    /// It lost its reservations and waits again.
    ReservationCancelled {
        by: String,
    },
    Requeued {},
    Finished {
        attempts: u32,
    },
    Deleted {},
    Node {
        good: bool,
    },
    Reconfigured {
        difference: Value,
    },
    Restarted {
        groups: usize,
        lost: Value,
    },
    VirtualCluster {
        status: Value,
        cells: Value,
    },
}

/// The last line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub jobs: usize,
    pub finished: usize,
    pub pending: usize,
    pub running: usize,
    pub rejected: usize,
    pub deleted: usize,
    pub preemptions: usize,
    pub lazy_preemptions: usize,
    /// What the audit of cells found, with the time.
    pub violations: Vec<String>,
}

impl Summary {
    /// Two or more lines for people.
    #[must_use]
    pub fn lines(&self) -> String {
        let counts = [
            (self.finished, "finished"),
            (self.running, "running"),
            (self.pending, "pending"),
            (self.rejected, "rejected"),
            (self.deleted, "deleted"),
        ];
        let counts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let counts = if counts.is_empty() { "none".to_string() } else { counts.join(", ") };
        let mut text = format!(
            "{} jobs: {counts}\npreemptions {}   lazy preemptions {}",
            self.jobs, self.preemptions, self.lazy_preemptions
        );
        for violation in &self.violations {
            text.push_str(&format!("\nviolation: {violation}"));
        }
        text
    }
}

impl Record {
    /// One JSON object without a line end.
    ///
    /// # Errors
    /// None in practice: texts and numbers only.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Line<'r> {
            t: Value,
            job: &'r str,
            #[serde(flatten)]
            event: &'r LogEvent,
        }
        serde_json::to_string(&Line { t: seconds(self.at_ms), job: &self.job, event: &self.event })
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let what = match &self.event {
            LogEvent::Submitted { vc, priority, pods, .. } => {
                let pods = if *pods == 1 { "1 pod".to_string() } else { format!("{pods} pods") };
                format!("submitted to {vc} at priority {priority}, {pods}")
            }
            LogEvent::Rejected { message, .. } => format!("rejected: {message}"),
            LogEvent::Pending { message, .. } => format!("waits: {message}"),
            LogEvent::Started { cluster, nodes, leaf_cells, .. } => {
                let places: Vec<_> =
                    nodes.iter().zip(leaf_cells).map(|(node, leaves)| format!("{node} {leaves:?}")).collect();
                let member = if cluster.is_empty() { String::new() } else { format!(" in {cluster}") };
                format!("runs{member} on {}", places.join(", "))
            }
            LogEvent::Bound { node, leaf_cells, .. } => format!("is bound to {node} {leaf_cells:?}"),
            LogEvent::Preempting { victims } => format!("waits for its victims: {}", victims.join(", ")),
            LogEvent::Preempted { by, lost_s } => format!("preempted by {by}; {lost_s} s of work lost"),
            LogEvent::LazilyPreempted { by } => format!("runs on as opportunistic; {by} has its cells"),
            LogEvent::ReservationCancelled { by } => format!("lost its reservation to {by}"),
            LogEvent::Requeued {} => "queued again".to_string(),
            LogEvent::Finished { attempts } => format!("finished, attempt {attempts}"),
            LogEvent::Deleted {} => "deleted".to_string(),
            LogEvent::Node { good } => if *good { "is good" } else { "is bad" }.to_string(),
            LogEvent::Reconfigured { difference } => format!("changes: {}", words::difference(difference)),
            LogEvent::Restarted { groups, lost } => {
                format!("recovered after a restart with {groups} groups; {}", words::lost(lost))
            }
            LogEvent::VirtualCluster { status, .. } => words::status(status),
        };
        format!("{:>9} {} {what}", seconds(self.at_ms).to_string(), self.job)
    }
}

/// Milliseconds as seconds: whole ones without a point.
fn seconds(ms: i64) -> Value {
    if ms % 1000 == 0 { Value::from(ms / 1000) } else { Value::from(ms as f64 / 1000.0) }
}

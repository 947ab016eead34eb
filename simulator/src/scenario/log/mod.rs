//! The log of a run: typed records, their JSON lines, their text form, and the summary.
//!
//! Both modes pass [`Record`]s in the order of virtual time to a [`Log`] and end with a [`Summary`]. The names of
//! events and fields are a contract, described in `docs/scenarios.md`. Deliberately absent: colours by default,
//! wall-clock times, and anything else that would make two runs of one file differ.

mod chart;
mod people;
mod summary;
#[cfg(test)]
mod tests;
mod whole;

use std::{collections::BTreeMap, io, sync::Arc};

use serde::{Serialize, Serializer};

pub use people::People;
pub use summary::{Summary, Tally, Violation};
pub use whole::WholeLog;

/// Nodes of each component: one entry a pod.
pub type NodesOf = BTreeMap<String, Vec<String>>;

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Virtual milliseconds since the start.
    pub at_ms: i64,
    /// `namespace/name`.
    pub job: Arc<str>,
    pub what: What,
}

/// What happened; the variants' names are the log's `event`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum What {
    Submitted {
        kind: Arc<str>,
        gpus: i64,
        components: Arc<BTreeMap<String, i64>>,
        priority: i64,
    },
    Rejected {
        reason: String,
        message: String,
    },
    Queued {
        queue: Arc<str>,
        reason: String,
        message: String,
    },
    Pending {
        queue: Arc<str>,
        reason: String,
        message: String,
    },
    Admitted {
        queue: Arc<str>,
    },
    Reserved {
        cluster: Arc<str>,
        nodes: Arc<NodesOf>,
    },
    ReservationRefused {
        cluster: Arc<str>,
        reason: String,
        message: String,
    },
    Bound {
        cluster: Arc<str>,
        epoch: i64,
        components: Arc<BTreeMap<String, i64>>,
    },
    Started {
        cluster: Arc<str>,
        epoch: i64,
        nodes: Arc<NodesOf>,
    },
    Preempted {
        cluster: Arc<str>,
        epoch: i64,
        by: Arc<str>,
        reason: String,
        /// Work since the last checkpoint, in virtual milliseconds; whole seconds in the file.
        #[serde(rename = "lost_s", serialize_with = "seconds")]
        lost_ms: i64,
    },
    Evicted {
        cluster: Arc<str>,
        epoch: i64,
        reason: String,
    },
    Fenced {
        cluster: Arc<str>,
        epoch: i64,
    },
    Requeued {
        queue: Arc<str>,
        reason: String,
    },
    Finished {
        cluster: Arc<str>,
        epoch: i64,
        result: Ending,
        attempts: i64,
    },
    /// The job was deleted on the hub.
    Deleted {},
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Ending {
    Succeeded,
    Failed,
}

impl What {
    pub fn event(&self) -> &'static str {
        match self {
            Self::Submitted { .. } => "Submitted",
            Self::Rejected { .. } => "Rejected",
            Self::Queued { .. } => "Queued",
            Self::Pending { .. } => "Pending",
            Self::Admitted { .. } => "Admitted",
            Self::Reserved { .. } => "Reserved",
            Self::ReservationRefused { .. } => "ReservationRefused",
            Self::Bound { .. } => "Bound",
            Self::Started { .. } => "Started",
            Self::Preempted { .. } => "Preempted",
            Self::Evicted { .. } => "Evicted",
            Self::Fenced { .. } => "Fenced",
            Self::Requeued { .. } => "Requeued",
            Self::Finished { .. } => "Finished",
            Self::Deleted {} => "Deleted",
        }
    }
}

/// A record as it stands in the file.
#[derive(Serialize)]
struct Line<'r> {
    #[serde(serialize_with = "seconds")]
    t: i64,
    event: &'static str,
    job: &'r str,
    #[serde(flatten)]
    what: &'r What,
}

/// Milliseconds as seconds: whole ones without a point.
fn seconds<S: Serializer>(ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    if ms % 1000 == 0 {
        serializer.serialize_i64(ms / 1000)
    } else {
        serializer.serialize_f64(*ms as f64 / 1000.0)
    }
}

impl Record {
    /// One JSON object without a line end.
    ///
    /// # Errors
    /// None in practice: texts and numbers only.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let line = Line { t: self.at_ms, event: self.what.event(), job: &self.job, what: &self.what };
        serde_json::to_string(&line)
    }
}

/// Takes what happens, in order.
pub trait Log {
    /// # Errors
    /// The output cannot be written.
    fn record(&mut self, record: &Record) -> io::Result<()>;

    /// The end: nothing follows.
    ///
    /// # Errors
    /// The output cannot be written.
    fn end(&mut self, summary: &Summary) -> io::Result<()>;
}

/// JSON lines.
#[derive(Debug)]
pub struct JsonLines<W> {
    pub out: W,
}

impl<W: io::Write> Log for JsonLines<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.out.write_all(record.json()?.as_bytes())?;
        self.out.write_all(b"\n")
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let line = serde_json::json!({"summary": summary});
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }
}

/// Keeps everything, for tests.
#[derive(Debug, Default)]
pub struct Kept {
    pub records: Vec<Record>,
    pub summary: Option<Summary>,
}

impl Log for Kept {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.records.push(record.clone());
        Ok(())
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.summary = Some(summary.clone());
        Ok(())
    }
}

/// Keeps nothing: a trace whose summary alone is wanted.
#[derive(Debug, Default)]
pub struct SummaryOnly<W> {
    pub out: W,
}

impl<W: io::Write> Log for SummaryOnly<W> {
    fn record(&mut self, _: &Record) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        people::summary(&mut self.out, summary)
    }
}

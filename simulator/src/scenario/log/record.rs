//! What happens to a job, as one record: its fields in the log, and the text of virtual times.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Serialize, Serializer};

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

/// `0s`, `1m30s`, `2h05m00s`, `3d04h`.
pub(super) fn clock(ms: i64) -> String {
    let (s, rest) = (ms / 1000, ms % 1000);
    let fraction = match rest {
        0 => String::new(),
        _ => format!(".{rest:03}").trim_end_matches('0').to_string(),
    };
    match s {
        0..60 => format!("{s}{fraction}s"),
        60..3600 => format!("{}m{:02}{fraction}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m{:02}s", s / 3600, s / 60 % 60, s % 60),
        _ => format!("{}d{:02}h{:02}m", s / 86_400, s / 3600 % 24, s / 60 % 60),
    }
}

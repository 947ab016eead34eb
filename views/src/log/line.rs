//! The format of a run log: one line of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::facts::{BindingFacts, ClusterFacts, Id, QuotaFacts, UnitFacts, VirtualClusterFacts};

const ALLOWED: &str = "one JSON object a line with t (seconds, never less than before), event and its fields";

/// What the times of a log mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// From the start of a simulated run.
    #[default]
    Virtual,
    /// From 1970 on.
    Unix,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub at_ms: i64,
    /// Namespace and name of a job's binding; in a simulated run, of the job. `None` for events of no job.
    pub id: Option<Id>,
    pub event: Event,
}

/// What happened. Amounts are quantities as Kubernetes writes them, except in facts, which have base units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum Event {
    /// Discards everything known before; the lines with the same time repeat all that is known.
    Recording {
        #[serde(default)]
        clock: Clock,
        /// Jobs left out because of the limit for the log's size.
        #[serde(default)]
        left_out: usize,
    },
    /// The current state of a cluster; without facts it is no longer a member.
    Cluster {
        cluster: String,
        facts: Option<Box<ClusterFacts>>,
    },
    /// The current state of a virtual cluster; without facts it is no longer in force.
    VirtualCluster {
        virtual_cluster: String,
        facts: Option<Box<VirtualClusterFacts>>,
    },
    /// The quota tree in force; its usage follows from the jobs.
    Tree {
        root: Option<Box<QuotaFacts>>,
        #[serde(default)]
        problems: Vec<String>,
    },
    /// All that is known of a job; replaces earlier lines about it.
    Known {
        facts: Box<BindingFacts>,
        #[serde(default)]
        unit: Option<Box<UnitFacts>>,
    },
    Submitted(Box<Submission>),
    Rejected {
        reason: String,
        #[serde(default)]
        message: String,
    },
    Queued {
        queue: String,
        #[serde(default)]
        reason: String,
        #[serde(default)]
        message: String,
    },
    Pending {
        #[serde(default)]
        queue: String,
        reason: String,
        #[serde(default)]
        message: String,
    },
    Admitted {
        #[serde(default)]
        queue: String,
    },
    Reserved {
        cluster: String,
    },
    ReservationRefused {
        cluster: String,
        #[serde(default)]
        message: String,
    },
    Bound {
        cluster: String,
        epoch: i64,
    },
    Started {
        cluster: String,
        epoch: i64,
        /// Of each component, the node of each pod.
        #[serde(default)]
        nodes: BTreeMap<String, Vec<String>>,
    },
    Preempted {
        cluster: String,
        epoch: i64,
        #[serde(default)]
        by: String,
        reason: String,
        #[serde(default)]
        message: String,
    },
    Evicted {
        cluster: String,
        epoch: i64,
        reason: String,
        #[serde(default)]
        message: String,
    },
    Fenced {
        cluster: String,
        epoch: i64,
    },
    Requeued {
        #[serde(default)]
        queue: String,
        #[serde(default)]
        reason: String,
    },
    Finished {
        cluster: String,
        #[serde(default)]
        epoch: i64,
        result: String,
        #[serde(default)]
        reason: Option<String>,
        #[serde(default)]
        message: Option<String>,
    },
    Deleted {},
    /// The run's own checker found a violation.
    Violation {
        invariant: i64,
        what: String,
    },
}

/// A job as it was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// Name of the job, not of its binding; in a line it is next to the event.
    #[serde(skip)]
    pub name: String,
    pub kind: String,
    pub gpus: i64,
    /// Pods of each component.
    #[serde(default)]
    pub components: BTreeMap<String, i64>,
    #[serde(default)]
    pub priority: i32,
    /// Set if the kind alone is ambiguous.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Who submitted it, as its label says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// That of its cells, or that it names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub virtual_cluster: String,
    /// Of all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// GPUs of one pod of each component.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_gpus: BTreeMap<String, i64>,
}

/// A line that is not a line of a run log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: found {found}; allowed: {allowed}")]
pub struct LineError {
    /// Counted from 1.
    pub line: usize,
    pub found: String,
    pub allowed: String,
}

impl LineError {
    pub(crate) fn new(line: usize, found: impl Into<String>) -> Self {
        Self { line, found: found.into(), allowed: ALLOWED.to_owned() }
    }
}

/// The meaning of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    Line(Line),
    /// The last line of a simulated run: the violated invariants.
    Summary {
        violations: Vec<String>,
    },
}

impl Line {
    /// Reads one line of a log; `number` is its own, for messages.
    ///
    /// # Errors
    /// What the line has instead, and what is allowed.
    pub fn parse(number: usize, text: &str) -> Result<Parsed, LineError> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| LineError::new(number, format!("no JSON ({error})")))?;
        if let Some(summary) = value.get("summary").filter(|summary| summary.is_object()) {
            return Ok(Parsed::Summary { violations: violations(summary) });
        }
        let at_s = value["t"].as_f64().filter(|t| t.is_finite() && *t >= 0.0);
        let (Some(at_s), Some(event)) = (at_s, value["event"].as_str()) else {
            return Err(LineError::new(number, "no t and event"));
        };
        let (at_ms, event) = ((at_s * 1000.0).round() as i64, event.to_owned());
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let (job, binding) = (text("job"), text("binding"));
        let mut event: Event =
            serde_json::from_value(value).map_err(|error| unlike(number, &event, &error))?;
        let job = job.as_deref().map(|job| job.split_once('/').unwrap_or(("", job)));
        if let (Event::Submitted(submission), Some((_, name))) = (&mut event, job) {
            submission.name = name.to_owned();
        }
        let id = match job {
            Some((namespace, name)) => {
                Some((namespace.to_owned(), binding.unwrap_or_else(|| name.to_owned())))
            }
            None if event.is_of_job() => return Err(LineError::new(number, "an event of a job without job")),
            None => None,
        };
        Ok(Parsed::Line(Self { at_ms, id, event }))
    }

    /// As [`Self::parse`] reads it, without a line end. `name` is the job's, which is not its binding's.
    pub fn text(&self, name: Option<&str>) -> String {
        let mut line = Map::new();
        line.insert("t".to_owned(), seconds(self.at_ms));
        if let Some((namespace, binding)) = &self.id {
            let name = name.unwrap_or(binding);
            line.insert("job".to_owned(), format!("{namespace}/{name}").into());
            if name != binding {
                line.insert("binding".to_owned(), binding.as_str().into());
            }
        }
        if let Ok(Value::Object(event)) = serde_json::to_value(&self.event) {
            line.extend(event);
        }
        lean(Value::Object(line)).to_string()
    }
}

impl Event {
    fn is_of_job(&self) -> bool {
        !matches!(
            self,
            Self::Recording { .. }
                | Self::Cluster { .. }
                | Self::VirtualCluster { .. }
                | Self::Tree { .. }
                | Self::Violation { .. }
        )
    }
}

/// serde's error lists all known events for an unknown one, and names a field that is missing or has the
/// wrong type.
fn unlike(number: usize, event: &str, error: &serde_json::Error) -> LineError {
    let text = error.to_string();
    match text.split_once(", expected one of ") {
        Some((_, known)) if text.starts_with("unknown variant") => LineError {
            line: number,
            found: format!("event {event}"),
            allowed: format!("one of {}", known.replace('`', "")),
        },
        _ => LineError {
            line: number,
            found: format!("event {event} with {text}"),
            allowed: ALLOWED.to_owned(),
        },
    }
}

fn violations(summary: &Value) -> Vec<String> {
    let all = summary["violations"].as_array().into_iter().flatten();
    all.map(|one| format!("invariant {}: {}", one["invariant"], one["what"].as_str().unwrap_or_default()))
        .collect()
}

/// Whole seconds without a decimal point.
fn seconds(ms: i64) -> Value {
    if ms % 1000 == 0 { (ms / 1000).into() } else { (ms as f64 / 1000.0).into() }
}

/// Without fields that have their default value. Zeros are kept: a time may be 0.
fn lean(value: Value) -> Value {
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    // Fields without a default are written even when they are empty.
    const NEEDED: [&str; 7] = ["queue", "cluster", "reason", "result", "key", "value", "effect"];
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, lean(value)));
            let kept = fields.filter(|(name, value)| {
                !is_nothing(value) || (value.is_string() && NEEDED.contains(&name.as_str()))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(lean).collect()),
        other => other,
    }
}

//! Input and output of a plan.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fleet_agent_ground::{Object, Pod};
use jiff::Timestamp;
use serde_json::Value;

use super::limits::{BURST, Burst};

/// The pods of one job by name.
pub(crate) type Pods = BTreeMap<String, Arc<Pod>>;

/// Annotation on a job: how many of its pods have been replaced after a failure, and the uids of failed pods
/// that still exist, so that none is counted twice: `3 uid,uid`.
pub(crate) const RESTARTS_ANNOTATION: &str = "fleet.dev/pod-restarts";

/// The actions for one job. Empty: nothing.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct JobPlan {
    /// Annotations of the job to write before anything else.
    pub annotations: BTreeMap<String, String>,
    /// Defaults of the job's spec.
    pub spec: Option<Value>,
    /// Services, ConfigMaps and other objects that the pods need; created before a pod.
    pub support: Vec<Value>,
    /// Whole pods (or ReplicaSets) to create in this pass.
    pub create: Burst,
    /// Why this controller runs no job of this size.
    pub refused: Option<String>,
    /// Names of pods to delete.
    pub delete: Vec<String>,
    /// Also delete the objects of `support`.
    pub delete_support: bool,
    /// The whole new status, if it changed.
    pub status: Option<Value>,
    /// The desired PodGroup, without its status.
    pub pod_group: Option<Value>,
    /// The PodGroup's whole new status, if it changed.
    pub pod_group_status: Option<Value>,
    pub delete_pod_group: bool,
    /// Names of pods to mark as deleted by the controller, before anything else.
    pub mark: Vec<String>,
    /// Write the status before anything else but `mark`.
    pub status_first: bool,
    /// Events whose timeouts run, for the next plan; `None`: unchanged.
    pub delayed: Option<Vec<Delayed>>,
    /// The Command has taken effect.
    pub command_done: bool,
    /// Delete the job itself: its time to live is over.
    pub delete_job: bool,
    /// Reconcile again after this time, if nothing happens before.
    pub look_again: Option<Duration>,
}

impl JobPlan {
    pub fn look_again_in(&mut self, wait: Duration) {
        self.look_again = Some(self.look_again.map_or(wait, |known| known.min(wait)));
    }

    /// Deletes each pod that is not being deleted.
    pub fn delete_all(&mut self, pods: &Pods) {
        self.delete = pods.values().filter(|p| !p.is_deleting()).map(|p| p.name().to_owned()).collect();
    }

    /// A job that is too large gets no further pods; those that exist stay.
    pub fn refuse(&mut self, why: Option<String>) {
        if why.is_some() {
            self.create.clear();
            self.refused = why;
        }
    }

    /// Leaves the deletions beyond those of one pass to the next.
    pub fn bound_deletions(&mut self) {
        self.delete.truncate(BURST);
    }

    /// Sets the status if it changed.
    pub fn set_status(&mut self, job: &Object, status: Value) {
        if status != job.status && !(job.status.is_null() && status.as_object().is_some_and(|s| s.is_empty()))
        {
            self.status = Some(status);
        }
    }
}

/// An event with a policy's timeout, kept between plans, because no object may show it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delayed {
    pub name: &'static str,
    pub pod: Option<String>,
    pub task: Option<String>,
    pub exit_code: Option<i64>,
    pub since: Timestamp,
    /// Version of the job's run in which it happened.
    pub version: i64,
}

/// Time as Kubernetes writes it, in whole seconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Time left until `seconds` after `start`; zero if it is past, `None` if `start` is invalid.
pub(crate) fn time_left(start: &Value, seconds: i64, now: Timestamp) -> Option<Duration> {
    let start: Timestamp = start.as_str()?.parse().ok()?;
    let end = start.as_millisecond().saturating_add(seconds.saturating_mul(1000));
    let left = end.saturating_sub(now.as_millisecond());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

/// A number of replicas; some templating tools write it as a string.
pub(crate) fn count(value: &Value, absent: i64) -> i64 {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.unwrap_or(absent).max(0)
}

//! What is to be done for one job, as pure functions of the job, its pods and the time.
//!
//! Inputs: the job as JSON, the pods whose controller it is, `now`. Output: a `Plan`, which the driver
//! carries out without choices of its own. Deliberately absent: clients, clocks, random names.

mod batch;
mod deployment;
mod kubeflow;
mod mpi;
mod pod;
mod pytorch;
mod status;
mod tensorflow;
#[cfg(test)]
mod tests;
pub(crate) mod volcano;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::objects::{Object, Pod};

pub(crate) use batch::plan as batch;
pub(crate) use deployment::{plan_deployment, plan_replica_set};
pub(crate) use kubeflow::{Framework, plan as kubeflow};

/// The pods of one job by name.
pub(crate) type Pods = BTreeMap<String, Arc<Pod>>;

/// Annotation on a job: how many of its pods have been replaced after a failure, and the uids of the
/// failed ones that still stand, so that none is counted twice: `3 uid,uid`.
pub(crate) const RESTARTS_ANNOTATION: &str = "fleet.dev/pod-restarts";

/// What is to be done for one job. Empty: nothing.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Annotations of the job that must stand before anything else is done.
    pub annotations: BTreeMap<String, String>,
    /// Fields of the job's spec that it did not say.
    pub spec: Option<Value>,
    /// Services, ConfigMaps and the like that the pods need; wanted whenever a pod is created.
    pub support: Vec<Value>,
    /// Whole pods (or ReplicaSets) to create.
    pub create: Vec<Value>,
    /// Names of pods to delete.
    pub delete: Vec<String>,
    /// Delete what `support` would create, too.
    pub delete_support: bool,
    /// The whole new status, when it differs.
    pub status: Option<Value>,
    /// The PodGroup as it should stand, without its status.
    pub pod_group: Option<Value>,
    /// The PodGroup's whole new status, when it differs.
    pub pod_group_status: Option<Value>,
    pub delete_pod_group: bool,
    /// Names of pods that are to be marked as taken away by the controller, before anything else.
    pub mark: Vec<String>,
    /// The status must stand before anything else but `mark` is done.
    pub status_first: bool,
    /// Events whose timeouts run, for the next look; `None`: as before.
    pub delayed: Option<Vec<volcano::Delayed>>,
    /// The Command has had its effect.
    pub command_done: bool,
    /// Delete the job itself: its time to live is over.
    pub delete_job: bool,
    /// Look again after this time, if nothing happens before.
    pub look_again: Option<Duration>,
}

impl Plan {
    fn look_again_in(&mut self, wait: Duration) {
        self.look_again = Some(self.look_again.map_or(wait, |known| known.min(wait)));
    }

    /// Deletes each pod that is not being deleted.
    fn delete_all(&mut self, pods: &Pods) {
        self.delete = pods.values().filter(|p| !p.is_deleting()).map(|p| p.name().to_owned()).collect();
    }

    /// Sets the status if it says something new.
    fn set_status(&mut self, job: &Object, status: Value) {
        if status != job.status && !(job.status.is_null() && status.as_object().is_some_and(|s| s.is_empty()))
        {
            self.status = Some(status);
        }
    }
}

/// Time as Kubernetes writes it, in whole seconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Time left until `seconds` after `start`; zero when it is past, `None` when `start` is unreadable.
fn time_left(start: &Value, seconds: i64, now: Timestamp) -> Option<Duration> {
    let start: Timestamp = start.as_str()?.parse().ok()?;
    let end = start.as_millisecond().saturating_add(seconds.saturating_mul(1000));
    let left = end.saturating_sub(now.as_millisecond());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

/// A number of replicas; some templating tools write it as text.
fn count(value: &Value, absent: i64) -> i64 {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.unwrap_or(absent).max(0)
}

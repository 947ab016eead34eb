//! What a plan is made from and what it says.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fleet_agent_ground::{Object, Pod};
use jiff::Timestamp;
use serde_json::Value;

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
    pub delayed: Option<Vec<Delayed>>,
    /// The Command has had its effect.
    pub command_done: bool,
    /// Delete the job itself: its time to live is over.
    pub delete_job: bool,
    /// Look again after this time, if nothing happens before.
    pub look_again: Option<Duration>,
}

impl Plan {
    pub fn look_again_in(&mut self, wait: Duration) {
        self.look_again = Some(self.look_again.map_or(wait, |known| known.min(wait)));
    }

    /// Deletes each pod that is not being deleted.
    pub fn delete_all(&mut self, pods: &Pods) {
        self.delete = pods.values().filter(|p| !p.is_deleting()).map(|p| p.name().to_owned()).collect();
    }

    /// Sets the status if it says something new.
    pub fn set_status(&mut self, job: &Object, status: Value) {
        if status != job.status && !(job.status.is_null() && status.as_object().is_some_and(|s| s.is_empty()))
        {
            self.status = Some(status);
        }
    }
}

/// An event that a policy's timeout lets stand, kept between looks: of what is gone nothing else tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delayed {
    pub name: &'static str,
    pub pod: Option<String>,
    pub task: Option<String>,
    pub exit_code: Option<i64>,
    pub since: Timestamp,
    /// Version of the job's run that it happened in.
    pub version: i64,
}

/// Time as Kubernetes writes it, in whole seconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Time left until `seconds` after `start`; zero when it is past, `None` when `start` is unreadable.
pub(crate) fn time_left(start: &Value, seconds: i64, now: Timestamp) -> Option<Duration> {
    let start: Timestamp = start.as_str()?.parse().ok()?;
    let end = start.as_millisecond().saturating_add(seconds.saturating_mul(1000));
    let left = end.saturating_sub(now.as_millisecond());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

/// A number of replicas; some templating tools write it as text.
pub(crate) fn count(value: &Value, absent: i64) -> i64 {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.unwrap_or(absent).max(0)
}

//! How long the status of a job is delayed to merge further changes.
//!
//! An end is written at once. Other changes are merged: a job whose pods were just created is about to run,
//! and the number of ready pods changes pod by pod. Kubernetes' own controllers merge such changes, too.
//! Pure.

use std::time::Duration;

use fleet_api::patch::merge_diff;
use fleet_policies::{WorkloadKind, workload::outcome};
use kube::discovery::ApiResource;
use serde_json::Value;

use fleet_agent_ground::{Object, Pod};

use crate::plan::{JobPlan, Pods};

/// Until every pod runs or has ended.
const STARTING: Duration = Duration::from_millis(250);
/// If only the number of ready pods has changed.
const READY: Duration = Duration::from_millis(500);
/// With fewer jobs to reconcile than this, a job whose pods all run reports it at once.
const QUIET: usize = 8;

/// `None`: written at once. `load` is the number of jobs that are reconciled or wait.
pub(crate) fn wait(
    resource: &ApiResource,
    job: &Object,
    pods: &Pods,
    plan: &JobPlan,
    load: usize,
) -> Option<Duration> {
    let status = plan.status.as_ref()?;
    let change = merge_diff(&job.status, status)?;
    let kind = WorkloadKind::of(&resource.api_version, &resource.kind);
    if outcome(kind, status).is_some() || is_suspended(&job.status) != is_suspended(status) {
        return None;
    }
    // Only a batch Job counts ready pods.
    let runs = |pod: &Pod| pod.is_ready() || (kind != WorkloadKind::BatchJob && pod.is_running());
    let has_settled = !pods.is_empty() && pods.values().all(|pod| runs(pod) || pod.is_ended());
    if has_settled && load <= QUIET {
        return None;
    }
    let only_ready = change.as_object().is_some_and(|fields| fields.keys().eq(["ready"]));
    Some(if only_ready && !has_settled { READY } else { STARTING })
}

fn is_suspended(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == "Suspended" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use fleet_agent_ground::resource;

    fn pod(phase: &str, ready: &str) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": phase}, "status": {"phase": phase,
            "conditions": [{"type": "Ready", "status": ready}]}});
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        // Of a pod that nobody controls only the identity is read.
        pod.status.phase = phase.to_owned();
        pod.status.conditions =
            vec![serde_json::from_value(json!({"type": "Ready", "status": ready})).unwrap()];
        Arc::new(pod)
    }

    fn check(known: Value, status: Value, pods: &[(&str, &str)], load: usize, expected: Option<Duration>) {
        let pods: Pods =
            pods.iter().enumerate().map(|(n, (phase, ready))| (format!("p{n}"), pod(phase, ready))).collect();
        let job = Object { status: known, ..Object::default() };
        let plan = JobPlan { status: Some(status.clone()), ..JobPlan::default() };
        let found = wait(&resource("batch", "v1", "Job", "jobs"), &job, &pods, &plan, load);
        assert_eq!(found, expected, "{status} with {load} jobs");
    }

    #[test]
    fn a_start_waits_for_its_pods_and_an_end_for_nothing() {
        let started = || json!({"active": 2, "ready": 2, "startTime": "t"});
        let starting = || json!({"active": 2, "ready": 0, "startTime": "t"});
        check(Value::Null, starting(), &[], 1, Some(STARTING));
        check(Value::Null, starting(), &[("Pending", "False"), ("Running", "True")], 1, Some(STARTING));
        check(Value::Null, started(), &[("Running", "True"), ("Running", "True")], 1, None);
        check(Value::Null, started(), &[("Running", "True"), ("Running", "True")], QUIET + 1, Some(STARTING));
        check(starting(), started(), &[("Pending", "False"), ("Running", "True")], 1, Some(READY));
        let ended = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        check(starting(), ended, &[("Succeeded", "False")], QUIET + 1, None);
        let suspended = json!({"conditions": [{"type": "Suspended", "status": "True"}]});
        check(started(), suspended, &[], QUIET + 1, None);
        check(started(), started(), &[], 1, None);
    }
}

//! Pods that outlive their job: its quota is held until they have ended, and they are deleted after a while.
//!
//! A job may report its end while its pods still run (`cleanPodPolicy: None`, or a policy that completes the
//! job with one task). Their capacity is still in use, so the hub counts the job until the agent reports no
//! live pod, and the agent deletes the remaining pods some time after the job's end. The time of the end
//! comes from the job's status, so a restart neither forgets nor extends the wait. Others wait for what such
//! pods use, so a job may not ask for longer than [`LONGEST`], and the hub may ask for their end before that.

use std::{sync::Arc, time::Duration};

use fleet_policies::workload::ended_at;
use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, api::DynamicObject};

use crate::{keys::ObjectId, marks::kind_of, state::State, works::Works};
use fleet_agent_ground::{CallError, Next, Pod};
use fleet_api::{Work, names::END_PODS_ANNOTATION};

/// Annotation on a job: how long its pods may run after its end, such as `10m`.
const AFTER_END_ANNOTATION: &str = "fleet.dev/after-end";
/// Default of that annotation.
const AFTER_END: SignedDuration = SignedDuration::from_secs(60);
/// Most that the annotation can ask for.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// Pods of an ended job that have not ended.
pub(crate) fn live_pods(state: &State, id: &ObjectId) -> Vec<Arc<Pod>> {
    let mut pods = state.pods_of(id, None);
    pods.retain(|pod| !pod.is_ended());
    pods
}

/// When the remaining pods are deleted. If the job's status has no end time, they are deleted at once.
fn deadline(job: &DynamicObject, kind: fleet_policies::WorkloadKind) -> Option<Timestamp> {
    let ended: Timestamp = ended_at(kind, &job.data["status"])?.parse().ok()?;
    let said =
        job.annotations().get(AFTER_END_ANNOTATION).and_then(|text| text.parse::<SignedDuration>().ok());
    ended.checked_add(said.filter(|said| !said.is_negative()).unwrap_or(AFTER_END).min(LONGEST)).ok()
}

impl Works {
    /// Deletes pods that have outlived their job for too long, or returns when to check again.
    pub(crate) async fn end_pods(
        &self,
        work: &Work,
        job: Option<&Arc<DynamicObject>>,
    ) -> Result<Option<Next>, CallError> {
        let Some(manifest) = work.spec.workload.manifests.first() else { return Ok(None) };
        let pods = live_pods(&self.state(), &ObjectId::of_manifest(manifest));
        if pods.is_empty() {
            return Ok(None);
        }
        let now = self.now();
        // Another job needs what they use.
        let is_asked = work.annotations().contains_key(END_PODS_ANNOTATION);
        let deadline =
            job.filter(|_| !is_asked).and_then(|job| deadline(job, kind_of(manifest))).unwrap_or(now);
        if now < deadline {
            let left = Duration::try_from(deadline.duration_since(now)).unwrap_or_default();
            return Ok(Some(Next::After(left)));
        }
        for pod in &pods {
            self.end_pod(pod).await?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use fleet_policies::WorkloadKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_run_on_for_a_bounded_time() {
        let after = |said: Option<&str>| {
            let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
                "status": {"completionTime": "2026-01-01T00:00:00Z",
                    "conditions": [{"type": "Complete", "status": "True"}]}});
            if let Some(said) = said {
                job["metadata"]["annotations"] = json!({AFTER_END_ANNOTATION: said});
            }
            let job = serde_json::from_value(job).expect("a job");
            deadline(&job, WorkloadKind::BatchJob).expect("an end").as_second() - 1_767_225_600
        };
        assert_eq!(
            [after(None), after(Some("3s")), after(Some("soon")), after(Some("-5s"))],
            [60, 3, 60, 60]
        );
        assert_eq!([after(Some("10m")), after(Some("100000h"))], [600, 600]);
    }
}

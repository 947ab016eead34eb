//! Pods that the watch has not shown yet.
//!
//! Watches of two kinds are not ordered among each other: a job may be seen to have ended before some of its pods are
//! seen at all. That no pod of a run is alive frees its quota and lets its next run start elsewhere, so it is not taken
//! from the cache alone: the member is asked, unless the cache shows as many succeeded pods as the job completes with.
//! What was found is remembered until the Work is gone; a restart asks again.

use std::{sync::Arc, time::Duration};

use fleet_api::{Work, names::BINDING_UID_LABEL};
use fleet_policies::workload::{completions, components};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;

use crate::{
    after_end::live_pods,
    keys::ObjectId,
    marks::{epoch_of, kind_of},
    state::{is_pod_of, owner_named},
    works::Works,
};
use fleet_agent_ground::{CallError, Pod, call, resource};

/// Pods that have not ended.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Pause before the member is asked again about pods that the watch has not shown.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether these pods are all with which the job completes. A pod that has succeeded is not replaced. A pod that only names
/// the job may be of an earlier one of that name.
fn have_all_succeeded(manifest: &Value, job_uid: &str, pods: &[Arc<Pod>]) -> bool {
    let kind = kind_of(manifest);
    let Ok(components) = components(kind, manifest) else { return false };
    let in_turn: i64 = completions(kind, manifest).into_values().sum();
    let all = components.iter().map(|component| component.replicas).sum::<i64>().max(in_turn);
    let is_own = |pod: &Pod| pod.controller().is_some_and(|owner| owner.uid == job_uid);
    let succeeded = pods.iter().filter(|pod| pod.is_succeeded() && is_own(pod)).count();
    i64::try_from(succeeded).is_ok_and(|succeeded| succeeded >= all)
}

impl Works {
    /// Number of live pods of the Work's run, which has ended. Without an answer of the member there may be one. `job`
    /// is its object, if it is still there: pods that only bear its name prove nothing.
    pub(crate) async fn live_pods_of_ended(
        self: &Arc<Self>,
        work: &Work,
        manifest: &Value,
        job: Option<&DynamicObject>,
    ) -> usize {
        let id = ObjectId::of_manifest(manifest);
        let (uid, epoch) = (&work.spec.binding.uid, work.spec.epoch);
        {
            let mut state = self.state();
            let live = live_pods(&state, &id).len();
            if live > 0 || state.is_empty_run(uid, epoch) {
                return live;
            }
            let of_job = job.and_then(|job| job.metadata.uid.as_deref());
            let all_of = |uid| have_all_succeeded(manifest, uid, &state.pods_of(&id, Some(uid)));
            if of_job.is_some_and(all_of) {
                state.note_empty_run(uid, epoch);
                return 0;
            }
        }
        match self.count_live(&id, None).await {
            Ok(0) => {
                self.state().note_empty_run(uid, epoch);
                0
            }
            Ok(live) => {
                self.look_later(&id);
                live
            }
            Err(error) => {
                tracing::debug!(%error, job = %id, "cannot ask for pods of an ended run");
                self.look_later(&id);
                1
            }
        }
    }

    /// Whether the member has a live pod of a run of which the cache has none. The run is looked at again then.
    pub(crate) async fn has_unseen_pods(
        self: &Arc<Self>,
        id: &ObjectId,
        job: &DynamicObject,
    ) -> Result<bool, CallError> {
        let binding = job.labels().get(BINDING_UID_LABEL);
        let is_empty =
            binding.zip(epoch_of(job)).is_some_and(|(uid, epoch)| self.state().is_empty_run(uid, epoch));
        let is_unseen = !is_empty && self.count_live(id, job.metadata.uid.as_deref()).await? > 0;
        if is_unseen {
            self.look_later(id);
        }
        Ok(is_unseen)
    }

    /// A list that passes over a pod which the watch has not shown reports no change of it, so the end of such a pod
    /// triggers nothing.
    fn look_later(self: &Arc<Self>, id: &ObjectId) {
        let (works, id) = (self.clone(), id.clone());
        tokio::spawn(async move {
            let again = async {
                tokio::time::sleep(AGAIN).await;
                let keys = works.state().interested(&id);
                works.add(keys);
            };
            works.shutdown.run_until_cancelled(again).await;
        });
    }

    /// Number of live pods that the member has of this job; with `uid`, only of that object.
    async fn count_live(&self, id: &ObjectId, uid: Option<&str>) -> Result<usize, CallError> {
        let pods: Api<Pod> = Api::namespaced_with(
            self.handles.member.client.clone(),
            &id.namespace,
            &resource("", "v1", "Pod", "pods"),
        );
        let found = call(pods.list_metadata(&ListParams::default().fields(LIVE))).await?;
        let found = found.items.iter().map(|pod| &pod.metadata);
        Ok(found.filter(|pod| owner_named(pod).as_ref() == Some(id) && is_pod_of(pod, uid)).count())
    }
}

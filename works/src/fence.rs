//! Stops fenced jobs when this cluster is cut off from the hub, and learns the current epochs when the lease
//! is renewed again.
//!
//! Fenced jobs are marked on the member's objects (`fleet.dev/fencing`), so a restarted agent without the hub
//! knows them, too. A job is stopped by a mark on its object, by suspending it if another controller runs it,
//! and by deleting its pods with a grace period that ends in time. `works::apply` resumes it by removing the
//! mark when a Work of the same binding and epoch exists.

use std::{sync::Arc, time::Duration};

use fleet_api::mutation::{self, Mutation};
use fleet_api::{Work, names::FENCED_ANNOTATION};
use fleet_informer::{list_page, without_managers};
use fleet_mirror::{Listing, Version};
use fleet_policies::workload::outcome;
use futures::{FutureExt, StreamExt, stream};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    keys::{Key, ObjectId},
    marks::{at_path, epoch_of, is_fenced_level, is_watched, suspend_path},
    state::Known,
    works::Works,
};
use fleet_agent_ground::{Backoff, CallError, JobController, Next, Pod, Standing, call, resource};

/// Most concurrent deletions of pods of one job.
const DELETIONS_IN_FLIGHT: usize = 16;
/// Works per page of the list after a return.
const PAGE: u32 = 500;

impl Works {
    /// Follows the standing until the agent stops.
    pub(crate) async fn follow_standing(self: Arc<Self>) {
        let mut standing = self.handles.lease.watch();
        loop {
            let now = *standing.borrow_and_update();
            match now {
                Standing::Starting => {}
                Standing::CutOff => {
                    let keys = self.state().fenced().into_iter().map(Key::Fence);
                    self.add(keys);
                }
                Standing::Returning(number) => {
                    // Any change of the standing ends the list: after another cut-off it is worthless.
                    let learning = async {
                        self.learn().await;
                        self.clear_stopped().await;
                    };
                    tokio::select! {
                        biased;
                        _ = standing.changed() => continue,
                        () = learning => self.handles.lease.learned(number),
                    }
                }
                Standing::Good => {
                    let keys = self.state().all_works();
                    self.add(keys);
                }
            }
            if standing.changed().await.is_err() {
                return;
            }
        }
    }

    /// Lists the Works again: what a watch showed before the cut-off may be outdated.
    async fn learn(self: &Arc<Self>) {
        let mut backoff = Backoff::new(&self.name("learn"));
        loop {
            match self.list().await {
                Ok(listing) => {
                    let keys = self.state().check_works(listing);
                    self.add(keys);
                    return;
                }
                Err(error) => tracing::warn!(%error, "cannot list the Works after a return; retrying"),
            }
            backoff.wait().await;
        }
    }

    /// Deletes pods that watchdogs stopped while this agent was away, of jobs that never moved; their
    /// controllers create them again.
    async fn clear_stopped(self: &Arc<Self>) {
        let mut backoff = Backoff::new(&self.name("clear"));
        loop {
            match self.try_clear_stopped().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot delete pods that watchdogs have stopped; retrying")
                }
            }
            backoff.wait().await;
        }
    }

    /// Returns whether all pods were known.
    async fn try_clear_stopped(self: &Arc<Self>) -> Result<bool, CallError> {
        let (ids, is_synced) = {
            let state = self.state();
            (state.fenced(), state.pods_synced)
        };
        if !is_synced {
            return Ok(false);
        }
        for id in ids {
            let Known::Object(live) = self.state().object(&id) else { continue };
            let kind = fleet_policies::WorkloadKind::of(&id.kind.api_version, &id.kind.kind);
            if !is_watched(&live) || outcome(kind, &live.data["status"]).is_some() {
                continue;
            }
            let pods = self.state().pods_of(&id, live.metadata.uid.as_deref());
            for pod in pods.iter().filter(|pod| pod.is_failed() && !pod.is_deleting()) {
                self.end_pod(pod).await?;
            }
        }
        Ok(true)
    }

    async fn list(&self) -> Result<Listing<Work>, CallError> {
        let mut objects = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let (page, metadata) = call(list_page(&self.hub, &params)).await?;
            objects.extend(page.into_iter().map(without_managers));
            match metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
                None => {
                    let version = Version::of(metadata.resource_version.as_ref());
                    // If the hub's incarnation has changed, this life of the agent ends.
                    let incarnation = self.handles.hub.source.incarnation();
                    return Ok(Listing { objects, version, incarnation });
                }
            }
        }
    }

    /// Stops a job that must not run while this cluster is cut off.
    pub(crate) async fn look_at_fence(self: &Arc<Self>, id: &ObjectId) -> Result<Next, CallError> {
        if self.handles.lease.standing() != Standing::CutOff || mutation::is_on(Mutation::FenceForgotten) {
            return Ok(Next::Wait);
        }
        let Known::Object(live) = self.state().object(id) else { return Ok(Next::Wait) };
        if !is_fenced_level(&live) {
            return Ok(Next::Wait);
        }
        let kind = fleet_policies::WorkloadKind::of(&id.kind.api_version, &id.kind.kind);
        if live.metadata.deletion_timestamp.is_some() || outcome(kind, &live.data["status"]).is_some() {
            // The hub may start the next run, so pods that terminate slowly or outlive their job must also end in time.
            self.stop_pods(id, &live, false).await?;
            return Ok(Next::Wait);
        }
        if mutation::is_on(Mutation::FenceAfterMark) {
            self.mark_fenced(id, &live).await?;
        }
        // The pods are deleted without waiting for the mark, because time is limited.
        let (marked, stopped) = tokio::join!(self.mark_fenced(id, &live), self.stop_pods(id, &live, true));
        marked.and(stopped)?;
        Ok(Next::Wait)
    }

    async fn mark_fenced(self: &Arc<Self>, id: &ObjectId, live: &DynamicObject) -> Result<(), CallError> {
        if live.annotations().contains_key(FENCED_ANNOTATION) {
            return Ok(());
        }
        let epoch = epoch_of(live).unwrap_or_default().to_string();
        let mut patch = match suspend_path(&id.kind.api_version, &id.kind.kind) {
            Some(path) if !self.is_run_here(id) => at_path(path, true.into()),
            _ => json!({}),
        };
        patch["metadata"] = json!({"annotations": {FENCED_ANNOTATION: epoch}, "uid": live.metadata.uid});
        tracing::warn!(job = %id, "the cluster is cut off: the job is stopped");
        self.patch(id, &patch).await.map(drop)
    }

    /// Whether a job controller of this agent runs the job; it knows the mark.
    pub(crate) fn is_run_here(&self, id: &ObjectId) -> bool {
        let controller = match (id.kind.api_version.as_str(), id.kind.kind.as_str()) {
            ("kubeflow.org/v1", "PyTorchJob") => JobController::PyTorchJob,
            ("kubeflow.org/v1", "TFJob") => JobController::TFJob,
            ("kubeflow.org/v2beta1", "MPIJob") => JobController::MPIJob,
            ("batch/v1", "Job") => JobController::BatchJob,
            _ => return false,
        };
        self.settings.controllers.contains(&controller)
    }

    /// `goes_on`: the job is resumed if the hub still wants it.
    async fn stop_pods(&self, id: &ObjectId, live: &DynamicObject, goes_on: bool) -> Result<(), CallError> {
        let pods: Vec<Arc<Pod>> = {
            let mut state = self.state();
            let mut pods = state.pods_of(id, live.metadata.uid.as_deref());
            // A pod that is being deleted may have a longer grace period than there is time: it is deleted
            // again with a shorter one. A pod that a watchdog stopped did not fail: it is deleted too, and
            // does not count against the job.
            let goes = |pod: &Pod| !pod.is_ended() || (goes_on && pod.is_failed() && is_watched(live));
            pods.retain(|pod| goes(pod) && state.ask_to_stop(pod.uid()));
            pods
        };
        let mut deletions = Vec::new();
        for pod in &pods {
            deletions.push(self.stop_pod(pod).boxed());
        }
        let mut deletions = stream::iter(deletions).buffer_unordered(DELETIONS_IN_FLIGHT);
        let mut failed = None;
        while let Some(answer) = deletions.next().await {
            failed = failed.or(answer.err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Deletes a pod so that its containers end in time.
    async fn stop_pod(&self, pod: &Pod) -> Result<(), CallError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced_with(
            self.handles.member.client.clone(),
            namespace,
            &resource("", "v1", "Pod", "pods"),
        );
        let end = self.handles.lease.end();
        let grace = pod_grace_s(self.settings.fence_grace, end, Instant::now());
        let preconditions = Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None };
        let params = DeleteParams::background().grace_period(grace).preconditions(preconditions);
        match call(api.delete(pod.name(), &params)).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                self.state().may_ask_again(pod.uid());
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Grace period of a pod: what is left of the first three quarters of the fence grace, which begins at the end of
/// the lease; the last quarter is for delays of the requests. An agent that took over from another one late has less
/// time. Never 0, which would remove the pod object while its containers may run.
fn pod_grace_s(fence_grace: Duration, end: Option<Instant>, now: Instant) -> u32 {
    let whole = fence_grace.as_secs().saturating_mul(3) / 4;
    let left = end.map_or(whole, |end| {
        let left = (end + fence_grace.mul_f64(0.75)).saturating_duration_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    });
    u32::try_from(left.min(whole)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_of_pods_leaves_time_for_the_way() {
        let now = Instant::now() + Duration::from_secs(100);
        for (grace, pods) in [(20, 15), (2, 1), (1, 1), (0, 1)] {
            assert_eq!(pod_grace_s(Duration::from_secs(grace), None, now), pods, "{grace}");
        }
        // Milliseconds, and seconds, after the end of the lease; a declared loss comes before it.
        for (late_ms, pods) in [(0, 15), (20, 15), (1_020, 14), (10_000, 5), (15_000, 1), (90_000, 1)] {
            let end = now - Duration::from_millis(late_ms);
            assert_eq!(pod_grace_s(Duration::from_secs(20), Some(end), now), pods, "{late_ms}");
        }
        assert_eq!(pod_grace_s(Duration::from_secs(20), Some(now + Duration::from_secs(30)), now), 15);
    }
}

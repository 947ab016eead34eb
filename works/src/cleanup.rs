//! Removes what a Work created: the job, its pods, then unused dependencies.
//!
//! The job is deleted first, but Fleet's finalizer keeps it until its pods are gone, so a restarted agent
//! finds them by the job's uid.

use std::{collections::BTreeMap, sync::Arc};

use fleet_api::mutation::{self, Mutation};
use fleet_api::{
    Work,
    names::{
        BINDING_GONE_ANNOTATION, BINDING_UID_LABEL, PRESERVED_ANNOTATION, RESULT_FINALIZER, WORK_FINALIZER,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};

use crate::{
    desired,
    keys::ObjectId,
    marks::{bindings_of, epoch_of, is_managed, is_of_run, kind_of},
    state::Known,
    works::Works,
};
use fleet_agent_ground::{CallError, Next, Pod, call, controller_of, resource};

/// Progress of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Done,
    /// Something must be deleted first; its end triggers this again.
    Waits,
}

impl Works {
    /// The Work is being deleted.
    pub(crate) async fn clean_up(self: &Arc<Self>, work: &Arc<Work>) -> Result<Next, CallError> {
        if !work.finalizers().iter().any(|finalizer| finalizer == WORK_FINALIZER) {
            return Ok(Next::Wait);
        }
        let uid = work.spec.binding.uid.as_str();
        if is_preserved(work) {
            self.preserve(work).await?;
        } else {
            let waits = self.remove_governed(work).await? == Removal::Waits;
            if waits && !mutation::is_on(Mutation::FinalizerTooEarly) {
                return Ok(Next::Wait);
            }
            let governed = work.spec.workload.manifests.first().map(ObjectId::of_manifest);
            if let Some(left) = governed.and_then(|id| self.state().late.left(&id)) {
                return Ok(Next::After(left));
            }
            for manifest in work.spec.workload.manifests.iter().skip(1) {
                let id = ObjectId::of_manifest(manifest);
                if let Some(live) = self.object(&id).await? {
                    self.release(&id, &live, &|gone| gone == uid).await?;
                }
            }
        }
        self.handles.places.release(uid, work.spec.epoch).await;
        // Recorded before the Work is deleted, which has the epoch until then.
        if work.annotations().contains_key(BINDING_GONE_ANNOTATION) {
            self.state().forget_epoch(uid);
            self.epochs.forget(uid).await?;
        } else {
            let newest = self.state().close_epoch(uid, work.spec.epoch);
            self.epochs.keep(uid, newest).await?;
        }
        let Some(patch) = desired::without_finalizer(&**work, WORK_FINALIZER) else { return Ok(Next::Wait) };
        match call(self.hub.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(&patch))).await {
            Err(error) if error.is_not_found() => Ok(Next::Wait),
            // Changed meanwhile: the watch reports the newer version.
            Err(error) if error.is_conflict() => Ok(Next::Retry),
            Err(error) => Err(error),
            Ok(_) => Ok(Next::Wait),
        }
    }

    async fn remove_governed(self: &Arc<Self>, work: &Work) -> Result<Removal, CallError> {
        let Some(manifest) = work.spec.workload.manifests.first() else { return Ok(Removal::Done) };
        let id = ObjectId::of_manifest(manifest);
        let uid = work.spec.binding.uid.as_str();
        let live = self.object(&id).await?;
        let is_ours = |live: &Arc<DynamicObject>| is_managed(live) && bindings_of(live).contains(uid);
        if live.as_ref().is_some_and(|live| is_of_run(live, uid, work.spec.epoch)) {
            self.state().late.seen(&id);
        }
        match live.filter(is_ours) {
            Some(live) if kind_of(manifest).is_job() => self.remove_run(&id, &live).await,
            Some(live) => self.release(&id, &live, &|gone| gone == uid).await,
            None if kind_of(manifest).is_job() => self.remove_stray_pods(&id).await,
            None => Ok(Removal::Done),
        }
    }

    /// Removes a job and its pods.
    pub(crate) async fn remove_run(
        self: &Arc<Self>,
        id: &ObjectId,
        live: &DynamicObject,
    ) -> Result<Removal, CallError> {
        if live.metadata.deletion_timestamp.is_none() {
            self.delete(id, live).await?;
        }
        let (pods, is_synced) = {
            let state = self.state();
            (state.pods_of(id, live.metadata.uid.as_deref()), state.pods_synced)
        };
        self.remove_makers(live, &pods).await?;
        for pod in &pods {
            self.end_pod(pod).await?;
        }
        if !pods.is_empty() || !is_synced || self.has_unseen_pods(id, live).await? {
            return Ok(Removal::Waits);
        }
        // Read from the member, because the cache may be older than our own deletion.
        let now = self.fetch(id).await?;
        let Some(now) = now.filter(|now| now.metadata.uid == live.metadata.uid) else {
            return Ok(Removal::Done);
        };
        if let Some(patch) = desired::without_finalizer(&*now, RESULT_FINALIZER) {
            self.patch(id, &patch).await?;
        }
        Ok(Removal::Waits)
    }

    /// Deletes the objects between a job and its pods (the launcher of an MPIJob is a batch Job), which would make their pods
    /// again. The garbage collector would not: the job itself stays until its pods are gone.
    async fn remove_makers(&self, job: &DynamicObject, pods: &[Arc<Pod>]) -> Result<(), CallError> {
        let is_maker = |owner: &&OwnerReference| {
            Some(&owner.uid) != job.metadata.uid.as_ref()
                && owner.api_version == "batch/v1"
                && owner.kind == "Job"
        };
        let makers: BTreeMap<&str, &Pod> = pods
            .iter()
            .filter_map(|pod| Some((pod.controller().filter(is_maker)?.name.as_str(), pod.as_ref())))
            .collect();
        for (name, pod) in makers {
            let jobs: Api<DynamicObject> = Api::namespaced_with(
                self.handles.member.client.clone(),
                pod.metadata.namespace.as_deref().unwrap_or_default(),
                &resource("batch", "v1", "Job", "jobs"),
            );
            let Some(maker) = call(jobs.get_metadata_opt(name)).await? else { continue };
            // The name of the job on a pod proves nothing about another object.
            let is_of_job = controller_of(&maker.metadata)
                .is_some_and(|owner| Some(&owner.uid) == job.metadata.uid.as_ref());
            if !is_of_job || maker.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let preconditions = Preconditions { uid: maker.metadata.uid.clone(), resource_version: None };
            match call(jobs.delete(name, &DeleteParams::background().preconditions(preconditions))).await {
                Err(error) if error.is_not_found() => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    /// Deletes again those pods of the Work's job that others have deleted with a longer grace period than this member
    /// allows. Returns whether all pods are known.
    pub(crate) async fn hasten_pods(&self, work: &Work) -> Result<bool, CallError> {
        let id = work.spec.workload.manifests.first().map(ObjectId::of_manifest);
        let pods = {
            let state = self.state();
            match id.map(|id| (state.object(&id), id)) {
                _ if !state.pods_synced => return Ok(false),
                Some((Known::Object(live), id)) => state.pods_of(&id, live.metadata.uid.as_deref()),
                _ => Vec::new(),
            }
        };
        for pod in pods.iter().filter(|pod| pod.is_deleting()) {
            self.end_pod(pod).await?;
        }
        Ok(true)
    }

    /// Deletes pods whose job is gone already.
    pub(crate) async fn remove_stray_pods(self: &Arc<Self>, id: &ObjectId) -> Result<Removal, CallError> {
        let (pods, is_synced) = {
            let state = self.state();
            (state.pods_of(id, None), state.pods_synced)
        };
        if pods.is_empty() {
            return Ok(if is_synced { Removal::Done } else { Removal::Waits });
        }
        // An object of that name that Fleet did not create keeps its pods.
        let other = self.fetch(id).await?.and_then(|object| object.metadata.uid.clone());
        let is_stray =
            |pod: &&Arc<Pod>| pod.controller().is_some_and(|owner| Some(&owner.uid) != other.as_ref());
        let mut removal = Removal::Done;
        for pod in pods.iter().filter(is_stray) {
            removal = Removal::Waits;
            self.end_pod(pod).await?;
        }
        Ok(removal)
    }

    /// Removes bindings from an object that is not a job, and deletes it with the last one.
    async fn release(
        self: &Arc<Self>,
        id: &ObjectId,
        live: &DynamicObject,
        gone: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Removal, CallError> {
        if !is_managed(live) || !bindings_of(live).iter().any(|uid| gone(uid)) {
            return Ok(Removal::Done);
        }
        match desired::without(live, &|uid| gone(uid)) {
            Some(patch) => self.patch(id, &patch).await.map(|_| Removal::Done),
            None if live.metadata.deletion_timestamp.is_some() => Ok(Removal::Waits),
            None => {
                self.delete(id, live).await?;
                Ok(match self.fetch(id).await? {
                    Some(_) => Removal::Waits,
                    None => Removal::Done,
                })
            }
        }
    }

    /// Keeps everything, but removes Fleet's marks.
    async fn preserve(self: &Arc<Self>, work: &Work) -> Result<(), CallError> {
        let uid = work.spec.binding.uid.as_str();
        for (ordinal, manifest) in work.spec.workload.manifests.iter().enumerate() {
            let id = ObjectId::of_manifest(manifest);
            let Some(live) = self.object(&id).await? else { continue };
            if !is_managed(&live) || !bindings_of(&live).contains(uid) {
                continue;
            }
            let patch = match desired::without(&live, &|gone| gone == uid) {
                Some(shared) if ordinal > 0 => shared,
                _ => desired::unmarked(&live),
            };
            self.patch(&id, &patch).await?;
        }
        Ok(())
    }

    /// An object created by Fleet whose binding may have no Work any more.
    pub(crate) async fn look_at_leftover(self: &Arc<Self>, id: &ObjectId) -> Result<Next, CallError> {
        if !self.state().works_synced {
            return Ok(Next::Wait);
        }
        // Read from the member, because the cache may be older than our own last write.
        let Some(live) = self.fetch(id).await? else { return Ok(Next::Wait) };
        if !is_managed(&live) {
            return Ok(Next::Wait);
        }
        let alive: std::collections::BTreeSet<String> = {
            let state = self.state();
            bindings_of(&live).into_iter().filter(|uid| state.has_binding(uid)).collect()
        };
        let gone = |uid: &str| !alive.contains(uid);
        let kind = fleet_policies::WorkloadKind::of(&id.kind.api_version, &id.kind.kind);
        if !kind.is_job() {
            self.release(id, &live, &gone).await?;
            return Ok(Next::Wait);
        }
        let Some(owner) = live.labels().get(BINDING_UID_LABEL).filter(|uid| gone(uid)) else {
            return Ok(Next::Wait);
        };
        if let Some(epoch) = epoch_of(&live) {
            let newest = self.state().close_epoch(owner, epoch);
            self.epochs.keep(owner, newest).await?;
        }
        // Its end, and that of its pods, triggers this again.
        self.remove_run(id, &live).await?;
        if let Some(epoch) = epoch_of(&live) {
            self.handles.places.release(owner, epoch).await;
        }
        Ok(Next::Wait)
    }
}

/// Whether the member keeps what the Work made: the policy asks for it, and the hub says that the object itself is deleted.
/// An eviction deletes the Work, too, and its run must end, because it runs again elsewhere.
fn is_preserved(work: &Work) -> bool {
    work.spec.preserve_resources_on_deletion == Some(true)
        && work.annotations().contains_key(PRESERVED_ANNOTATION)
}

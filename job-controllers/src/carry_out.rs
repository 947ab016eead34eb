//! Writes the plan of a job: pods and their supporting objects, ReplicaSets, defaults and the status.
//!
//! Answers to writes update the driver's state at once.

use std::{sync::Arc, time::Duration};

use fleet_agent_ground::{CallError, Next, Object, Pod, controller_of, requests as writes, resource};
use fleet_api::patch::merge_diff;
use fleet_informer::without_managers;
use fleet_mirror::Change;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    driver::Driver,
    events::{self, Warning},
    kinds::Role,
    pace,
    plan::{JobPlan, volcano},
    ssh_keys,
    state::{Snapshot, Support},
};

/// Most concurrent requests for one job.
const CALLS_PER_JOB: usize = 16;

impl Driver {
    /// Writes everything but the status. Returns whether a write changes the next plan.
    pub(crate) async fn carry_out(&self, snapshot: &Snapshot, plan: &JobPlan) -> Result<bool, CallError> {
        let job = &snapshot.job.object;
        if self.tell_limit(snapshot, plan).await? {
            return Ok(true);
        }
        if !plan.annotations.is_empty() {
            let patch = json!({"metadata": {"annotations": plan.annotations}});
            let resource = self.resource_of(snapshot);
            let answer = writes::patch(&self.client, resource, job, None, &patch).await?;
            self.state().put_job(snapshot.job.kind, Arc::new(answer), false);
        }
        if plan.delete_pod_group {
            self.delete_pod_group(job).await?;
        }
        let makes = !plan.create.is_empty() && snapshot.job.support != Support::Made;
        let support: &[Value] = if makes { &plan.support } else { &[] };
        let follows = !makes && snapshot.job.support == Support::Unknown && !plan.delete_support;
        if follows && snapshot.pods.values().any(|pod| !pod.is_deleting() && !pod.is_ended()) {
            self.follow_size(job, &plan.support).await?;
            self.state().set_support(job.uid(), Support::Made);
        }
        let mut creations = Vec::new();
        for manifest in support.iter().chain(&plan.create) {
            creations.push(self.create(snapshot, manifest).boxed());
        }
        let creates = !creations.is_empty();
        if let Err(error) = all(creations).await {
            self.tell_refusal(snapshot, &error).await?;
            return Err(error);
        }
        if creates {
            self.end_refusal(snapshot).await?;
        }
        if !support.is_empty() {
            self.state().set_support(job.uid(), Support::Made);
        }
        self.delete_children(snapshot, &plan.delete).await?;
        if plan.delete_support {
            self.delete_support(snapshot, plan).await?;
        }
        Ok(!plan.create.is_empty() || !plan.delete.is_empty() || !plan.annotations.is_empty())
    }

    /// Updates host lists to the number of replicas, whether or not pods are created or deleted.
    pub(crate) async fn follow_size(&self, job: &Object, support: &[Value]) -> Result<(), CallError> {
        for manifest in support.iter().filter(|one| one["kind"] == "ConfigMap" || one["kind"] == "Secret") {
            let resource = writes::resource_of(manifest);
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
            let found: Option<Object> = writes::get(&self.client, &resource, job.namespace(), name).await?;
            let ours =
                |found: &Object| controller_of(&found.metadata).is_some_and(|owner| owner.uid == job.uid());
            if let Some(found) = found.filter(ours)
                && let Some(change) = news(manifest, &found)
            {
                match writes::patch(&self.client, &resource, &found, None, &change).await {
                    // Deleted meanwhile: the job has ended, or it is created with the next pod.
                    Err(error) if error.is_not_found() => {}
                    answer => drop(answer?),
                }
            }
        }
        Ok(())
    }

    /// Creates an object of a job; success if the job has it already.
    pub(crate) async fn create(&self, snapshot: &Snapshot, manifest: &Value) -> Result<(), CallError> {
        let job = &snapshot.job.object;
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        if manifest["kind"] == "Pod" {
            let placed = writes::placed(self.places.as_ref(), manifest).await;
            let manifest = placed.as_ref().unwrap_or(manifest);
            if self.must_stand_still(job) {
                return Ok(());
            }
            let pod = match writes::create::<Pod>(&self.client, manifest).await {
                Err(error) if error.is_conflict() => {
                    let pods = writes::resource_of(manifest);
                    let found: Option<Pod> = writes::get(&self.client, &pods, job.namespace(), name).await?;
                    match found {
                        Some(pod) if pod.controller().is_some_and(|owner| owner.uid == job.uid()) => pod,
                        _ => {
                            // A pod of an older run, or of another owner, still has the name.
                            let key = (job.namespace().to_owned(), name.to_owned());
                            self.state().block(key, job.uid());
                            return Err(error);
                        }
                    }
                }
                answer => answer?,
            };
            self.state().take_pods(Change::Answer(without_managers(pod)));
            return Ok(());
        }
        let with_keys;
        // Keys are generated when a Secret is created; an existing Secret keeps its own.
        let planned = manifest;
        let manifest = if manifest["metadata"]["labels"][volcano::SSH_SECRET_LABEL].is_string() {
            let mut secret = manifest.clone();
            ssh_keys::fill(&mut secret).map_err(|error| CallError::Local(error.to_string()))?;
            with_keys = secret;
            &with_keys
        } else {
            manifest
        };
        let made = match writes::create::<Object>(&self.client, manifest).await {
            Err(error) if error.is_conflict() => {
                let resource = writes::resource_of(manifest);
                let found: Option<Object> =
                    writes::get(&self.client, &resource, job.namespace(), name).await?;
                let Some(found) = found else { return Err(error) };
                match controller_of(&found.metadata) {
                    Some(owner) if owner.uid == job.uid() => match news(planned, &found) {
                        Some(change) => writes::patch(&self.client, &resource, &found, None, &change).await?,
                        None => found,
                    },
                    // Left over from an older run of that name.
                    Some(owner)
                        if owner.name == job.name() && self.kind_of(owner) == Some(snapshot.job.kind) =>
                    {
                        writes::delete(&self.client, &resource, found.namespace(), name, found.uid()).await?;
                        writes::create::<Object>(&self.client, manifest).await?
                    }
                    _ => {
                        tracing::warn!(
                            kind = resource.kind,
                            namespace = found.namespace(),
                            name,
                            "another owner's object has the name; the job runs without it"
                        );
                        return Ok(());
                    }
                }
            }
            answer => answer?,
        };
        if manifest["kind"] == "ReplicaSet"
            && let Some(kind) = self.kinds.iter().position(|kind| kind.role == Role::ReplicaSet)
        {
            self.state().put_job(kind, Arc::new(made), true);
        }
        Ok(())
    }

    /// Deletes pods of a job, or ReplicaSets of a Deployment, by name.
    pub(crate) async fn delete_children(
        &self,
        snapshot: &Snapshot,
        names: &[String],
    ) -> Result<(), CallError> {
        let mut deletions = Vec::new();
        for name in names {
            deletions.push(self.delete_child(snapshot, name).boxed());
        }
        all(deletions).await
    }

    pub(crate) async fn delete_child(&self, snapshot: &Snapshot, name: &str) -> Result<(), CallError> {
        if let Some(pod) = snapshot.pods.get(name) {
            return self.delete_pod(pod).await;
        }
        let Some(set) = snapshot.replica_sets.iter().find(|set| set.name() == name) else { return Ok(()) };
        let resource = resource("apps", "v1", "ReplicaSet", "replicasets");
        writes::delete(&self.client, &resource, set.namespace(), set.name(), set.uid()).await?;
        self.state().end_job(set);
        self.queue.add(set.uid().to_owned());
        Ok(())
    }

    pub(crate) async fn delete_pod(&self, pod: &Pod) -> Result<(), CallError> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let pods = resource("", "v1", "Pod", "pods");
        writes::delete(&self.client, &pods, &namespace, pod.name(), pod.uid()).await?;
        self.state().mark_deleting(&(namespace, pod.name().to_owned()), pod.uid());
        Ok(())
    }

    /// Deletes the supporting objects of the pods, once.
    pub(crate) async fn delete_support(&self, snapshot: &Snapshot, plan: &JobPlan) -> Result<(), CallError> {
        let job = &snapshot.job.object;
        if snapshot.job.support == Support::Deleted {
            return Ok(());
        }
        for manifest in &plan.support {
            let resource = writes::resource_of(manifest);
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
            let found: Option<Object> = writes::get(&self.client, &resource, job.namespace(), name).await?;
            if let Some(found) = found
                && controller_of(&found.metadata).is_some_and(|owner| owner.uid == job.uid())
            {
                writes::delete(&self.client, &resource, job.namespace(), name, found.uid()).await?;
            }
        }
        self.state().set_support(job.uid(), Support::Deleted);
        Ok(())
    }

    pub(crate) async fn scale(&self, snapshot: &Snapshot, sizes: &[(String, i64)]) -> Result<(), CallError> {
        let resource = resource("apps", "v1", "ReplicaSet", "replicasets");
        for (name, size) in sizes {
            let Some(set) = snapshot.replica_sets.iter().find(|set| set.name() == name) else { continue };
            let patch = json!({"spec": {"replicas": size}});
            let answer = writes::patch(&self.client, &resource, set, None, &patch).await?;
            if let Some(kind) = self.kinds.iter().position(|kind| kind.role == Role::ReplicaSet) {
                self.state().put_job(kind, Arc::new(answer), false);
            }
        }
        Ok(())
    }

    /// How long a status is delayed to merge further changes.
    pub(crate) fn batched(&self, snapshot: &Snapshot, plan: &JobPlan) -> Option<Duration> {
        let job = &snapshot.job.object;
        let wait = match self.kinds[snapshot.job.kind].role {
            Role::Batch | Role::Kubeflow(_) if !plan.delete_job => {
                let kind = &self.kinds[snapshot.job.kind].resource;
                pace::wait(kind, job, &snapshot.pods, plan, self.queue.load())
            }
            _ => None,
        };
        let now = Instant::now();
        let mut state = self.state();
        if let Some(wait) = wait {
            let due = state.batched.entry(job.uid().to_owned()).or_insert(now + wait);
            *due = (*due).min(now + wait);
            if *due > now {
                return Some(*due - now);
            }
        }
        state.batched.remove(job.uid());
        None
    }

    /// Writes defaults of the job's spec, once.
    pub(crate) async fn write_defaults(&self, snapshot: &Snapshot, plan: &JobPlan) -> Result<(), CallError> {
        let (job, resource) = (&snapshot.job.object, self.resource_of(snapshot));
        let Some(spec) = &plan.spec else { return Ok(()) };
        match writes::patch(&self.client, resource, job, None, &json!({"spec": spec})).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(answer) => {
                self.state().put_job(snapshot.job.kind, Arc::new(answer), false);
                Ok(())
            }
        }
    }

    pub(crate) async fn write_status(&self, snapshot: &Snapshot, plan: &JobPlan) -> Result<(), CallError> {
        let job = &snapshot.job.object;
        let Some(status) = &plan.status else { return Ok(()) };
        let Some(change) = merge_diff(&job.status, status) else { return Ok(()) };
        let patch = json!({"status": change});
        let resource = self.resource_of(snapshot);
        let told = invalid_because(&job.status);
        if let Some(message) = invalid_because(status).filter(|why| told != Some(*why)) {
            let warning = Warning { reason: volcano::INVALID_SPEC, message, at: self.now() };
            events::warn(&self.client, job, resource, &warning).await?;
        }
        match writes::patch(&self.client, resource, job, Some("status"), &patch).await {
            // Deleted meanwhile; the watch reports it.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(answer) => {
                self.state().put_job(snapshot.job.kind, Arc::new(answer), false);
                // The end of a job has consequences: clean-up, time to live.
                self.queue.add(job.uid().to_owned());
                Ok(())
            }
        }
    }

    /// The job is deleted, and so are its objects.
    pub(crate) async fn clear(&self, snapshot: &Snapshot) -> Result<Next, CallError> {
        let job = &snapshot.job.object;
        self.state().batched.remove(job.uid());
        let alive: Vec<_> = snapshot.pods.values().filter(|pod| !pod.is_deleting()).collect();
        for pod in alive {
            self.delete_pod(pod).await?;
        }
        for set in &snapshot.replica_sets {
            let resource = resource("apps", "v1", "ReplicaSet", "replicasets");
            writes::delete(&self.client, &resource, set.namespace(), set.name(), set.uid()).await?;
        }
        self.delete_support(snapshot, &self.plan(snapshot).0).await?;
        let mut state = self.state();
        if state.pods_of(job.uid()).is_empty() {
            state.forget_job(job.uid());
        }
        Ok(Next::Wait)
    }
}

/// Why a Volcano Job can never run, as its status says.
fn invalid_because(status: &Value) -> Option<&str> {
    let state = &status["state"];
    state["message"].as_str().filter(|_| state["reason"] == volcano::INVALID_SPEC)
}

/// Data of a manifest that the existing object lacks; generated keys stay.
fn news(manifest: &Value, found: &Object) -> Option<Value> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let stands = |key: &String| found.rest.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let changed = |field: &str, encode: &dyn Fn(&str) -> String| -> Map<String, Value> {
        let wanted = manifest[field].as_object().into_iter().flatten();
        let differs =
            |(key, text): &(&String, &Value)| stands(key).map(str::to_owned) != text.as_str().map(encode);
        wanted.filter(differs).map(|(key, text)| (key.clone(), text.clone())).collect()
    };
    let data = match manifest["kind"].as_str() {
        Some("ConfigMap") => {
            let mut data = changed("data", &str::to_owned);
            // Tasks that no longer exist.
            let known = found.rest.get("data").and_then(Value::as_object).into_iter().flatten();
            let gone = known.filter(|(key, _)| manifest["data"].get(key.as_str()).is_none());
            data.extend(gone.map(|(key, _)| (key.clone(), Value::Null)));
            json!({"data": data})
        }
        Some("Secret") => json!({"stringData": changed("stringData", &|text| STANDARD.encode(text))}),
        _ => return None,
    };
    data.as_object()?
        .values()
        .any(|keys| keys.as_object().is_some_and(|keys| !keys.is_empty()))
        .then_some(data)
}

/// Runs all requests, a bounded number at a time; returns the first failure after all have ended.
async fn all(requests: Vec<BoxFuture<'_, Result<(), CallError>>>) -> Result<(), CallError> {
    let mut answers = stream::iter(requests).buffer_unordered(CALLS_PER_JOB);
    let mut failed = None;
    while let Some(answer) = answers.next().await {
        failed = failed.or(answer.err());
    }
    failed.map_or(Ok(()), Err)
}

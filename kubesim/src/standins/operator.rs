//! A training operator: creates the pods of PyTorchJobs from their templates, counts them, and writes the
//! job's status.
//!
//! As in Kubeflow, pods are named `<job>-<role>-<index>`, carry its labels and the template's, and are owned
//! by the job. A deleted pod is created again, and a failed one ends the job. It also deletes the pods of
//! deleted jobs, which a cluster's garbage collector would do.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    discovery::ApiResource,
    runtime::watcher::Event,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::events;

/// Wait before a failed write is retried.
const RETRY: Duration = Duration::from_millis(500);
const JOB_NAME: &str = "training.kubeflow.org/job-name";

/// The phase of a job's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Leaving,
}

struct Operator {
    client: Client,
    jobs: BTreeMap<String, DynamicObject>,
    /// By uid of the job, then by name.
    pods: BTreeMap<String, BTreeMap<String, (String, Phase)>>,
    due: BTreeSet<String>,
}

fn job_kind() -> ApiResource {
    ApiResource {
        group: "kubeflow.org".to_owned(),
        version: "v1".to_owned(),
        api_version: "kubeflow.org/v1".to_owned(),
        kind: "PyTorchJob".to_owned(),
        plural: "pytorchjobs".to_owned(),
    }
}

fn pod_kind() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        plural: "pods".to_owned(),
    }
}

/// Runs until `shutdown` is cancelled.
pub fn run(client: Client, shutdown: CancellationToken) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(async move {
        shutdown.run_until_cancelled(work(client)).await;
        Ok(())
    })
}

async fn work(client: Client) {
    let jobs = dynamic_events(client.clone(), &job_kind());
    let pods = dynamic_events(client.clone(), &pod_kind());
    let (mut jobs, mut pods) = (Box::pin(jobs), Box::pin(pods));
    let mut operator =
        Operator { client, jobs: BTreeMap::new(), pods: BTreeMap::new(), due: BTreeSet::new() };
    loop {
        tokio::select! {
            biased;
            Some(event) = jobs.next() => operator.see_job(event),
            Some(event) = pods.next() => operator.see_pod(event),
            () = std::future::ready(()), if !operator.due.is_empty() => {
                let Some(uid) = operator.due.pop_first() else { continue };
                if let Err(error) = operator.reconcile(&uid).await {
                    tracing::debug!(%error, "a job is looked at again");
                    tokio::time::sleep(RETRY).await;
                    operator.due.insert(uid);
                }
            }
        }
    }
}

fn dynamic_events(
    client: Client,
    kind: &ApiResource,
) -> impl futures::Stream<Item = Event<DynamicObject>> + use<> {
    events(Api::<DynamicObject>::all_with(client, kind))
}

impl Operator {
    fn see_job(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Apply(job) | Event::InitApply(job) => {
                if let Some(uid) = job.uid() {
                    self.jobs.insert(uid.clone(), job);
                    self.due.insert(uid);
                }
            }
            Event::Delete(job) => {
                if let Some(uid) = job.uid() {
                    self.jobs.remove(&uid);
                    self.due.insert(uid);
                }
            }
            Event::Init | Event::InitDone => {}
        }
    }

    fn see_pod(&mut self, event: Event<DynamicObject>) {
        let (pod, is_there) = match event {
            Event::Apply(pod) | Event::InitApply(pod) => (pod, true),
            Event::Delete(pod) => (pod, false),
            Event::Init | Event::InitDone => return,
        };
        let Some(owner) = pod.owner_references().iter().find(|owner| owner.kind == "PyTorchJob") else {
            return;
        };
        let owner = owner.uid.clone();
        let name = pod.name_any();
        let uid = pod.uid().unwrap_or_default();
        let pods = self.pods.entry(owner.clone()).or_default();
        if is_there {
            let phase = match pod.data["status"]["phase"].as_str() {
                _ if pod.metadata.deletion_timestamp.is_some() => Phase::Leaving,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Pending,
            };
            pods.insert(name, (uid, phase));
        } else if pods.get(&name).is_some_and(|(known, _)| *known == uid) {
            pods.remove(&name);
        }
        if pods.is_empty() {
            self.pods.remove(&owner);
        }
        self.due.insert(owner);
    }

    async fn reconcile(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(job) = self.jobs.get(uid).cloned() else { return self.collect(uid).await };
        if job.metadata.deletion_timestamp.is_some() || is_over(&job.data["status"]) {
            return Ok(());
        }
        let namespace = job.namespace().unwrap_or_default();
        let pods: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &pod_kind());
        if job.data["spec"]["runPolicy"]["suspend"] == true {
            return self.remove_pods(uid, &pods).await;
        }
        let mut lacks = Vec::new();
        for (role, spec) in job.data["spec"]["pytorchReplicaSpecs"].as_object().into_iter().flatten() {
            for index in 0..spec["replicas"].as_u64().unwrap_or(1) {
                let name = format!("{}-{}-{index}", job.name_any(), role.to_lowercase());
                if !self.pods.get(uid).is_some_and(|pods| pods.contains_key(&name)) {
                    lacks.push(pod(&job, role, spec, index, &name));
                }
            }
        }
        for pod in lacks {
            match pods.create(&PostParams::default(), &pod).await {
                Ok(made) => {
                    let known = self.pods.entry(uid.to_owned()).or_default();
                    known.insert(made.name_any(), (made.uid().unwrap_or_default(), Phase::Pending));
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
        self.tell(uid, &job, &namespace).await
    }

    /// The job was deleted: its pods are deleted too.
    async fn collect(&mut self, uid: &str) -> Result<(), kube::Error> {
        let listed = Api::<DynamicObject>::all_with(self.client.clone(), &pod_kind());
        if !self.pods.contains_key(uid) {
            return Ok(());
        }
        for pod in listed.list(&Default::default()).await?.items {
            if pod.owner_references().iter().any(|owner| owner.uid == uid) {
                let namespace = pod.namespace().unwrap_or_default();
                let pods: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &namespace, &pod_kind());
                unless_gone(pods.delete(&pod.name_any(), &DeleteParams::default()).await.map(drop))?;
            }
        }
        Ok(())
    }

    async fn remove_pods(&self, uid: &str, pods: &Api<DynamicObject>) -> Result<(), kube::Error> {
        for (name, (_, phase)) in self.pods.get(uid).into_iter().flatten() {
            if *phase != Phase::Leaving {
                unless_gone(pods.delete(name, &DeleteParams::default()).await.map(drop))?;
            }
        }
        Ok(())
    }

    async fn tell(&mut self, uid: &str, job: &DynamicObject, namespace: &str) -> Result<(), kube::Error> {
        let known: Vec<(&String, Phase)> =
            self.pods.get(uid).into_iter().flatten().map(|(name, (_, phase))| (name, *phase)).collect();
        let all = |phase: Phase| !known.is_empty() && known.iter().all(|(_, found)| *found == phase);
        let chief = format!("{}-master-0", job.name_any());
        let has_chief = known.iter().any(|(name, _)| **name == chief);
        let chief_ended = known.iter().any(|(name, phase)| **name == chief && *phase == Phase::Succeeded);
        let state = if known.iter().any(|(_, phase)| *phase == Phase::Failed) {
            "Failed"
        } else if chief_ended || (!has_chief && all(Phase::Succeeded)) {
            "Succeeded"
        } else if all(Phase::Running) {
            "Running"
        } else {
            "Created"
        };
        let stands = job.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if stands.last().is_some_and(|last| last["type"] == state) {
            return Ok(());
        }
        // A job that has run keeps this condition until it ends.
        if state == "Created" && !stands.is_empty() {
            return Ok(());
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut conditions = stands;
        conditions.retain(|one| one["type"] != state);
        for one in &mut conditions {
            if one["type"] == "Running" && matches!(state, "Succeeded" | "Failed") {
                one["status"] = "False".into();
            }
        }
        conditions.push(json!({"type": state, "status": "True", "reason": format!("PyTorchJob{state}"),
            "message": format!("PyTorchJob {} is {state}.", job.name_any()),
            "lastUpdateTime": now, "lastTransitionTime": now}));
        let mut status = json!({"conditions": conditions});
        if matches!(state, "Succeeded" | "Failed") {
            status["completionTime"] = now.as_str().into();
        } else {
            status["startTime"] = job.data["status"]["startTime"].as_str().unwrap_or(&now).into();
        }
        let jobs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &job_kind());
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "status": status}));
        unless_gone(jobs.patch_status(&job.name_any(), &PatchParams::default(), &patch).await.map(|told| {
            self.jobs.insert(uid.to_owned(), told);
        }))
    }
}

fn unless_gone(done: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}

fn is_over(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions
        .filter(|one| one["status"] == "True")
        .any(|one| one["type"] == "Succeeded" || one["type"] == "Failed")
}

fn pod(job: &DynamicObject, role: &str, spec: &Value, index: u64, name: &str) -> DynamicObject {
    let template = &spec["template"];
    let mut labels = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let role = role.to_lowercase();
    for (label, value) in [
        (JOB_NAME, job.name_any()),
        ("training.kubeflow.org/operator-name", "pytorchjob-controller".to_owned()),
        ("training.kubeflow.org/replica-type", role),
        ("training.kubeflow.org/replica-index", index.to_string()),
    ] {
        labels.insert(label.to_owned(), value.into());
    }
    let mut pod_spec = template["spec"].clone();
    let restart = spec["restartPolicy"].as_str().filter(|policy| *policy != "ExitCode").unwrap_or("Never");
    pod_spec["restartPolicy"] = restart.into();
    let mut pod = DynamicObject::new(name, &pod_kind()).data(json!({"spec": pod_spec}));
    let made = json!({
        "name": name,
        "namespace": job.namespace(),
        "labels": labels,
        "annotations": template["metadata"]["annotations"].as_object().cloned().unwrap_or_default(),
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job.name_any(),
            "uid": job.uid(), "controller": true, "blockOwnerDeletion": true}],
    });
    pod.metadata = serde_json::from_value(made).unwrap_or_default();
    pod
}

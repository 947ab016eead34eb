//! Carries out plans: watches jobs and pods, plans each job that changed, writes what the plan says.
//!
//! One task per job at a time. Answers to writes are taken into the state at once, so that the next plan
//! does not wait for the watch to echo them. A status is written last, after the pods, and is made from
//! what is known then: several changes that come together cost one write.

use fleet_api::{
    names::{FENCED_ANNOTATION, FENCING_ANNOTATION},
    patch::merge_diff,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet_informer::{Feed, News, Selection, Source, without_managers};
use fleet_mirror::Change;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::Api;
use serde_json::{Map, Value, json};

use super::{
    Kind, Role,
    objects::{Object, Pod, controller_of, resource},
    pace,
    plan::{self, Plan, volcano},
    ssh_keys,
    state::{Snapshot, State, Support},
    volcano_feed, writes,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    CallError, LeaseClock, Reservations,
    admissions::Admissions,
    clock::Clock,
    reconcile::{Next, Queue, Shown, follow, show},
};

/// Jobs that are worked on at a time.
const JOBS_IN_FLIGHT: usize = 64;
/// Requests of one job in flight.
const CALLS_PER_JOB: usize = 16;
/// How often a job that stands still is looked at, should nothing else say that it may go on.
const STANDSTILL: Duration = Duration::from_secs(1);
/// Plans of one job in a row before others have their turn.
const ROUNDS: usize = 4;

/// Runs the controllers until `shutdown` is cancelled.
pub(super) async fn run(driver: Driver, shutdown: CancellationToken) {
    let driver = Arc::new(driver);
    let mut watches = tokio::task::JoinSet::new();
    let pods: Api<Pod> = Api::all_with(driver.client.clone(), &resource("", "v1", "Pod", "pods"));
    let (feed, on_change) = (driver.feed(pods, "pods"), driver.clone());
    watches.spawn(follow(feed, shutdown.clone(), move |news| on_change.pod_changed(news)));
    for (at, kind) in driver.kinds.iter().enumerate() {
        let jobs: Api<Object> = Api::all_with(driver.client.clone(), &kind.resource);
        let (feed, on_change) = (driver.feed(jobs, &kind.resource.plural), driver.clone());
        watches.spawn(show(feed, shutdown.clone(), move |shown| on_change.job_changed(at, shown)));
    }
    if driver.kinds.iter().any(|kind| kind.role == Role::Volcano) {
        volcano_feed::start(&driver, &mut watches, &shutdown);
        if let Some(admissions) = driver.admissions.clone() {
            let (driver, shutdown) = (driver.clone(), shutdown.clone());
            watches.spawn(async move {
                while let Some(jobs) = shutdown.run_until_cancelled(admissions.changed()).await {
                    jobs.into_iter().for_each(|job| driver.queue.add(job));
                }
            });
        }
    }
    let worker = driver.clone();
    driver
        .queue
        .clone()
        .run(JOBS_IN_FLIGHT, shutdown, move |uid| {
            let driver = worker.clone();
            async move { driver.look_at(&uid).await }
        })
        .await;
    while watches.join_next().await.is_some() {}
}

pub(super) struct Driver {
    pub client: kube::Client,
    source: Source,
    cluster: String,
    kinds: Vec<Kind>,
    clock: Clock,
    lease: Option<LeaseClock>,
    /// The scheduler's word on which jobs are let in; without a scheduler all are.
    pub admissions: Option<Admissions>,
    /// Who knows which places are held; without one the scheduler binds every pod.
    places: Option<Reservations>,
    state: Mutex<State>,
    /// Uids of jobs, or of owners of pods that are no job known here.
    pub queue: Arc<Queue<String>>,
}

impl Driver {
    /// `lease` is that of the agent, when there is one: what may run without the hub's word ends with it.
    pub fn new(
        client: kube::Client,
        source: Source,
        cluster: &str,
        kinds: Vec<Kind>,
        clock: Clock,
        lease: Option<LeaseClock>,
        admissions: Option<Admissions>,
    ) -> Self {
        Self {
            client,
            source,
            cluster: cluster.to_owned(),
            kinds,
            clock,
            lease,
            admissions,
            places: None,
            state: Mutex::default(),
            queue: Arc::new(Queue::new()),
        }
    }

    /// Makes pods on the nodes that are held for them.
    pub fn with_places(self, places: Reservations) -> Self {
        Self { places: Some(places), ..self }
    }

    pub fn watch_name(&self, plural: &str) -> String {
        format!("{}/jobs/{plural}", self.cluster)
    }

    pub fn feed<K>(&self, api: Api<K>, plural: &str) -> Feed<K> {
        let (source, name) = (self.source.clone(), self.watch_name(plural));
        Feed { source, api, selection: Selection::default(), name }
    }

    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so the state is whole even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pod_changed(&self, news: News<Pod>) {
        let News::Change(change) = news else { return };
        let is_listing = change.is_listing();
        let uids = {
            let mut state = self.state();
            let mut uids = state.take_pods(change);
            if is_listing {
                state.pods_synced = true;
                uids.extend(state.uids());
                uids.extend(state.owners_of_pods());
            }
            uids
        };
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn job_changed(&self, kind: usize, shown: Shown<Object>) {
        let mut uids = Vec::new();
        {
            let mut state = self.state();
            match shown {
                Shown::Applied(object) => {
                    uids.push(object.uid().to_owned());
                    uids.extend(state.put_job(kind, object, true));
                }
                Shown::Deleted(object) => {
                    uids.push(object.uid().to_owned());
                    uids.extend(state.end_job(&object));
                }
                Shown::Synced => {
                    state.set_kind_synced(kind);
                    uids = state.owners_of_pods();
                }
            }
        }
        uids.into_iter().for_each(|uid| self.queue.add(uid));
    }

    fn kind_of(
        &self,
        owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference,
    ) -> Option<usize> {
        let is =
            |kind: &Kind| kind.resource.kind == owner.kind && kind.resource.api_version == owner.api_version;
        self.kinds.iter().position(is)
    }

    async fn look_at(&self, uid: &str) -> Next {
        match self.work_on(uid).await {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(cluster = self.cluster, job = uid, %error, "a job's plan could not be carried out; trying again");
                Next::Retry
            }
        }
    }

    async fn work_on(&self, uid: &str) -> Result<Next, CallError> {
        for _ in 0..ROUNDS {
            let snapshot = {
                let state = self.state();
                // Without all pods a plan would make pods that exist.
                if !state.pods_synced {
                    return Ok(Next::Wait);
                }
                state.snapshot(uid)
            };
            let Some(snapshot) = snapshot else { return self.clear_orphans(uid).await };
            if snapshot.job.is_gone {
                return self.clear(&snapshot).await;
            }
            let (plan, scale) = self.plan(&snapshot);
            self.scale(&snapshot, &scale).await?;
            self.mark(&snapshot, &plan).await?;
            self.write_defaults(&snapshot, &plan).await?;
            if plan.status_first {
                self.write_status(&snapshot, &plan).await?;
            }
            self.end_command(&snapshot, &plan).await?;
            self.state().note_losses(&snapshot);
            if let Some(delayed) = &plan.delayed {
                self.state().note_delayed(uid, delayed);
            }
            if plan.status_first || self.write_pod_group(&snapshot, &plan).await? {
                continue;
            }
            let wrote = self.carry_out(&snapshot, &plan).await?;
            if wrote {
                continue;
            }
            if let Some(wait) = self.batched(&snapshot, &plan) {
                let wait = plan.look_again.map_or(wait, |look| look.min(wait));
                return Ok(Next::After(wait));
            }
            self.write_status(&snapshot, &plan).await?;
            if plan.delete_job {
                let (resource, job) = (self.resource_of(&snapshot), &snapshot.job.object);
                writes::delete(&self.client, resource, job.namespace(), job.name(), uid).await?;
            }
            return Ok(plan.look_again.map_or(Next::Wait, Next::After));
        }
        self.queue.add(uid.to_owned());
        Ok(Next::Wait)
    }

    fn resource_of(&self, snapshot: &Snapshot) -> &kube::discovery::ApiResource {
        &self.kinds[snapshot.job.kind].resource
    }

    fn plan(&self, snapshot: &Snapshot) -> (Plan, Vec<(String, i64)>) {
        let kind = &self.kinds[snapshot.job.kind];
        let (job, pods, now) = (&*snapshot.job.object, &snapshot.pods, self.clock.now());
        if self.must_stand_still(job) {
            // What happens to its pods meanwhile is no failure of theirs and says nothing about the job.
            return (Plan { look_again: Some(STANDSTILL), ..Plan::default() }, Vec::new());
        }
        match kind.role {
            Role::Kubeflow(framework) => {
                (plan::kubeflow(framework, &kind.resource, job, pods, now), Vec::new())
            }
            Role::Volcano => (self.plan_volcano(&kind.resource, snapshot), Vec::new()),
            Role::Batch => (plan::batch(&kind.resource, job, pods, now), Vec::new()),
            Role::ReplicaSet => (plan::plan_replica_set(&kind.resource, job, pods), Vec::new()),
            Role::Deployment => plan::plan_deployment(&kind.resource, job, &snapshot.replica_sets, now),
        }
    }

    /// A job that may run elsewhere by now: it was stopped, or is about to be.
    fn must_stand_still(&self, job: &Object) -> bool {
        !job.is_deleting()
            && job.annotation(FENCING_ANNOTATION).is_some()
            && (job.annotation(FENCED_ANNOTATION).is_some()
                || self.lease.as_ref().is_some_and(|lease| !lease.may_run()))
    }

    /// Everything but the status. Returns whether it wrote something that changes the next plan.
    async fn carry_out(&self, snapshot: &Snapshot, plan: &Plan) -> Result<bool, CallError> {
        let job = &snapshot.job.object;
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
        all(creations).await?;
        if !support.is_empty() {
            self.state().set_support(job.uid(), Support::Made);
        }
        self.delete_children(snapshot, &plan.delete).await?;
        if plan.delete_support {
            self.delete_support(snapshot, plan).await?;
        }
        Ok(!plan.create.is_empty() || !plan.delete.is_empty() || !plan.annotations.is_empty())
    }

    /// Lists of hosts follow the number of replicas, whether pods are made for it or go.
    async fn follow_size(&self, job: &Object, support: &[Value]) -> Result<(), CallError> {
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
                    // Deleted meanwhile: by the job's end, or to be made with the next pod.
                    Err(error) if error.is_not_found() => {}
                    answer => drop(answer?),
                }
            }
        }
        Ok(())
    }

    /// Creates an object of a job; one that the job has already is fine.
    async fn create(&self, snapshot: &Snapshot, manifest: &Value) -> Result<(), CallError> {
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
                            // The name is still taken by a pod of an older run, or of somebody else.
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
        // Keys are drawn for a Secret that is made; one that stands keeps its own.
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
                    // Left by an older run of that name.
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
                            "the name is taken by an object that is not the job's; the job goes on without"
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
    async fn delete_children(&self, snapshot: &Snapshot, names: &[String]) -> Result<(), CallError> {
        let mut deletions = Vec::new();
        for name in names {
            deletions.push(self.delete_child(snapshot, name).boxed());
        }
        all(deletions).await
    }

    async fn delete_child(&self, snapshot: &Snapshot, name: &str) -> Result<(), CallError> {
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

    async fn delete_pod(&self, pod: &Pod) -> Result<(), CallError> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let pods = resource("", "v1", "Pod", "pods");
        writes::delete(&self.client, &pods, &namespace, pod.name(), pod.uid()).await?;
        self.state().mark_deleting(&(namespace, pod.name().to_owned()), pod.uid());
        Ok(())
    }

    /// Deletes what the pods needed beside them, once.
    async fn delete_support(&self, snapshot: &Snapshot, plan: &Plan) -> Result<(), CallError> {
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

    async fn scale(&self, snapshot: &Snapshot, sizes: &[(String, i64)]) -> Result<(), CallError> {
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

    /// How long a status waits for what comes next.
    fn batched(&self, snapshot: &Snapshot, plan: &Plan) -> Option<Duration> {
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

    /// Fields that the job leaves open are written into it, once.
    async fn write_defaults(&self, snapshot: &Snapshot, plan: &Plan) -> Result<(), CallError> {
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

    async fn write_status(&self, snapshot: &Snapshot, plan: &Plan) -> Result<(), CallError> {
        let job = &snapshot.job.object;
        let Some(status) = &plan.status else { return Ok(()) };
        let Some(change) = merge_diff(&job.status, status) else { return Ok(()) };
        let patch = json!({"status": change});
        let resource = self.resource_of(snapshot);
        match writes::patch(&self.client, resource, job, Some("status"), &patch).await {
            // Deleted meanwhile; the watch says so.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(answer) => {
                self.state().put_job(snapshot.job.kind, Arc::new(answer), false);
                // The end of a job has consequences of its own: clean-up, time to live.
                self.queue.add(job.uid().to_owned());
                Ok(())
            }
        }
    }

    /// The job is deleted: so is what it owned.
    async fn clear(&self, snapshot: &Snapshot) -> Result<Next, CallError> {
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

    /// Pods whose owner is unknown: of a job that was deleted while nobody looked, or of one whose watch
    /// lags behind. The API server decides.
    async fn clear_orphans(&self, uid: &str) -> Result<Next, CallError> {
        let pods = self.state().pods_of(uid);
        let Some(owner) = pods.values().next().and_then(|pod| pod.controller().cloned()) else {
            return Ok(Next::Wait);
        };
        let Some(kind) = self.kind_of(&owner).filter(|kind| self.state().is_kind_synced(*kind)) else {
            return Ok(Next::Wait);
        };
        let Some(namespace) = pods.values().next().and_then(|pod| pod.metadata.namespace.clone()) else {
            return Ok(Next::Wait);
        };
        let found: Option<Object> =
            writes::get(&self.client, &self.kinds[kind].resource, &namespace, &owner.name).await?;
        if self.state().knows(uid) || found.is_some_and(|found| found.uid() == uid) {
            return Ok(Next::Wait);
        }
        for pod in pods.values().filter(|pod| !pod.is_deleting()) {
            self.delete_pod(pod).await?;
        }
        Ok(Next::Wait)
    }
}

/// What a manifest says in its data that the object as it stands does not: keys that were drawn for it stay.
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
            // Tasks that are no more.
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

/// Runs all requests, a bounded number at a time; says the first failure after all have ended.
async fn all(requests: Vec<BoxFuture<'_, Result<(), CallError>>>) -> Result<(), CallError> {
    let mut answers = stream::iter(requests).buffer_unordered(CALLS_PER_JOB);
    let mut failed = None;
    while let Some(answer) = answers.next().await {
        failed = failed.or(answer.err());
    }
    failed.map_or(Ok(()), Err)
}

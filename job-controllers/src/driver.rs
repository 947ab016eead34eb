//! Watches jobs and pods, plans each job that changed, and writes the plan.
//!
//! One task per job at a time. Answers to writes update the state at once, so the next plan does not wait for
//! the watch. A status is written last, after the pods, and reflects the state at that time, so several
//! changes cost one write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_agent_ground::{
    Admissions, CallError, Clock, LeaseClock, Link, Next, Object, Pod, Queue, Reservations, Shown, follow,
    requests as writes, resource, show,
};
use fleet_api::names::{FENCED_ANNOTATION, FENCING_ANNOTATION};
use fleet_informer::{Feed, News, Selection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::{
    Handles,
    kinds::{Kind, Role},
    plan::{self, JobPlan},
    state::{Snapshot, State},
};

/// Most jobs reconciled concurrently.
const JOBS_IN_FLIGHT: usize = 64;
/// How often a suspended fenced job is checked, if nothing else triggers it.
const STANDSTILL: std::time::Duration = std::time::Duration::from_secs(1);
/// Most consecutive plans of one job before others are reconciled.
const ROUNDS: usize = 4;

/// Runs the controllers until `shutdown` is cancelled.
pub(crate) async fn run(driver: Driver, shutdown: CancellationToken) {
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
        driver.follow_volcano(&mut watches, &shutdown);
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
    let working = driver.queue.clone().run(JOBS_IN_FLIGHT, shutdown, move |uid| {
        let driver = worker.clone();
        async move { driver.look_at(&uid).await }
    });
    let watching = async {
        while let Some(ended) = watches.join_next().await {
            // Without one of its watches the controller would go on blind. The agent starts anew.
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
    };
    tokio::join!(working, watching);
}

pub(crate) struct Driver {
    pub client: kube::Client,
    pub kinds: Vec<Kind>,
    /// The scheduler's admission of jobs; without a scheduler all are admitted.
    pub admissions: Option<Admissions>,
    /// Access to held places; without it the scheduler binds every pod.
    pub places: Option<Reservations>,
    /// Uids of jobs, or of owners of pods that are not known as jobs.
    pub queue: Arc<Queue<String>>,
    member: Link,
    clock: Clock,
    lease: Option<LeaseClock>,
    state: Mutex<State>,
}

impl Driver {
    pub fn new(handles: Handles, kinds: Vec<Kind>) -> Self {
        let Handles { member, clock, lease, admissions, places } = handles;
        Self {
            client: member.client.clone(),
            kinds,
            admissions,
            places,
            queue: Arc::new(Queue::default()),
            member,
            clock,
            lease,
            state: Mutex::default(),
        }
    }

    pub fn feed<K>(&self, api: Api<K>, plural: &str) -> Feed<K> {
        self.member.feed(api, Selection::default(), &format!("jobs/{plural}"))
    }

    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so the state is consistent even then.
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

    pub fn kind_of(&self, owner: &OwnerReference) -> Option<usize> {
        let is =
            |kind: &Kind| kind.resource.kind == owner.kind && kind.resource.api_version == owner.api_version;
        self.kinds.iter().position(is)
    }

    async fn look_at(&self, uid: &str) -> Next {
        match self.work_on(uid).await {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(cluster = self.member.cluster(), job = uid, %error, "reconcile of a job failed; retrying");
                Next::Retry
            }
        }
    }

    async fn work_on(&self, uid: &str) -> Result<Next, CallError> {
        for round in 1..=ROUNDS {
            let snapshot = {
                let state = self.state();
                // With an incomplete list of pods a plan would create pods that exist.
                if !state.pods_synced {
                    return Ok(Next::Wait);
                }
                state.snapshot(uid)
            };
            let Some(snapshot) = snapshot else { return self.clear_orphans(uid).await };
            if snapshot.job.is_gone {
                return self.clear(&snapshot).await;
            }
            let (mut plan, scale) = self.plan(&snapshot);
            plan.bound_deletions();
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
                // A large job takes many passes, and its status is not put off until the last.
                if round == ROUNDS && plan.create.is_full() {
                    self.write_status(&snapshot, &plan).await?;
                }
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

    pub fn resource_of(&self, snapshot: &Snapshot) -> &kube::discovery::ApiResource {
        &self.kinds[snapshot.job.kind].resource
    }

    pub fn plan(&self, snapshot: &Snapshot) -> (JobPlan, Vec<(String, i64)>) {
        let kind = &self.kinds[snapshot.job.kind];
        let (job, pods, now) = (&*snapshot.job.object, &snapshot.pods, self.clock.now());
        if self.must_stand_still(job) {
            // Pods that end meanwhile did not fail, and do not count against the job.
            return (JobPlan { look_again: Some(STANDSTILL), ..JobPlan::default() }, Vec::new());
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
    pub fn must_stand_still(&self, job: &Object) -> bool {
        !job.is_deleting()
            && job.annotation(FENCING_ANNOTATION).is_some()
            && (job.annotation(FENCED_ANNOTATION).is_some()
                || self.lease.as_ref().is_some_and(|lease| !lease.may_run()))
    }

    /// Pods whose owner is unknown: their job was deleted while the agent was away, or its watch lags. The
    /// API server is asked.
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

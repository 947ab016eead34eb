//! The kubelet loop of all hollow nodes of one member: one watch, one timer map, a bounded number of writes in
//! flight, no task per pod.
//!
//! A pod goes Pending -> Running -> Succeeded | Failed; a pod with a deletion time is deleted with grace 0.
//! The loop's memory only saves work: all state is in the API server. After a restart, a Running pod ends
//! when its start time plus its run time has passed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fleet_watchdog::judge::LeaseVerdict;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    runtime::watcher,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    admission::Admission,
    options::{FIELD_MANAGER, Options},
    owners::Owners,
    pod::{Phase, Pod, PodKey},
    status,
    timers::Timers,
    watchdog::{Watchdog, is_watched},
};
use fleet_simulator::run_plan::{Ending, RunPlan, RunTime, run_plan};

/// First wait after a failed write or a broken watch; doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// How often a resize that waits for a place is tried.
const RESIZE_PERIOD: Duration = Duration::from_secs(5);

/// The next step for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Write Running and read the run plan.
    Start,
    /// Read the run plan of a pod that was Running before this process started.
    Resume,
    /// Write what its containers have after a resize.
    Resize,
    /// Write Succeeded or Failed.
    Finish,
    /// Write Failed: its watchdog has stopped the containers.
    Stop,
    /// Write Failed: the node lacks resources for it.
    Refuse,
    Delete,
}

struct TrackedPod {
    pod: Arc<Pod>,
    /// The step that is waiting, in flight or done last; a pod never does the same step twice.
    step: Option<Step>,
    plan: Option<RunPlan>,
    attempts: u32,
    /// Version of the pod in which its end was written.
    ended_at: Option<u64>,
    /// A timer tries its resize again.
    resize_waits: bool,
}

/// A step for the pod of this uid; ignored if that pod no longer exists.
struct Due {
    key: PodKey,
    uid: String,
    step: Step,
}

struct Done {
    due: Due,
    result: Result<Written, kube::Error>,
}

/// Result of a step.
enum Written {
    /// The pod runs, by this plan.
    Runs(RunPlan),
    /// The pod has ended, in this version.
    Ended(Option<u64>),
    Resized,
    /// The node lacks something for the resize.
    Deferred,
    Deleted,
}

struct Kubelets<'a> {
    client: &'a Client,
    options: &'a Options,
    owners: Owners,
    nodes: BTreeMap<String, usize>,
    pods: BTreeMap<PodKey, TrackedPod>,
    timers: Timers<Due>,
    waiting: VecDeque<Due>,
    in_flight: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Pods with a watchdog that have not ended, and the verdict of their watchdogs.
    watched: BTreeSet<PodKey>,
    verdict: LeaseVerdict,
    admission: Admission,
}

/// Runs until `shutdown` is cancelled.
pub async fn run(client: &Client, options: &Options, shutdown: &CancellationToken) {
    let mut kubelets = Kubelets {
        client,
        options,
        owners: Owners::default(),
        nodes: options.nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect(),
        pods: BTreeMap::new(),
        timers: Timers::default(),
        waiting: VecDeque::new(),
        in_flight: FuturesUnordered::new(),
        watched: BTreeSet::new(),
        verdict: LeaseVerdict::Waiting,
        admission: Admission::new(options),
    };
    let mut watchdog: Option<Watchdog> = None;
    let mut events = Box::pin(pod_events(client.clone()));
    let mut listed = Vec::new();
    loop {
        kubelets.fill();
        let next_due = kubelets.timers.next();
        let dog = if kubelets.watched.is_empty() {
            // The next pod's watchdog starts from the beginning.
            if let Some(watchdog) = watchdog.take() {
                watchdog.end();
            }
            kubelets.verdict = LeaseVerdict::Waiting;
            None
        } else {
            Some(watchdog.get_or_insert_with(|| Watchdog::new(client, &options.containers)))
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(done) = kubelets.in_flight.next() => kubelets.done(done),
            () = sleep_until(next_due) => kubelets.take_due(),
            verdict = judged(dog) => kubelets.judged(verdict),
            Some(event) = events.next() => match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(pod) => listed.push(pod),
                watcher::Event::InitDone => kubelets.replace(std::mem::take(&mut listed)),
                watcher::Event::Apply(pod) => kubelets.apply(pod),
                watcher::Event::Delete(pod) => kubelets.forget(&pod),
            },
        }
    }
}

pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => futures::future::pending().await,
    }
}

/// The next verdict of the watchdog, if there is one.
async fn judged(watchdog: Option<&mut Watchdog>) -> LeaseVerdict {
    match watchdog {
        Some(watchdog) => {
            watchdog.next().await;
            watchdog.verdict()
        }
        None => futures::future::pending().await,
    }
}

/// The watch, retried with exponential backoff without jitter.
fn pod_events(client: Client) -> impl Stream<Item = watcher::Event<Pod>> {
    let source = Box::pin(watcher(Api::<Pod>::all(client), watcher::Config::default()));
    futures::stream::unfold((source, FIRST_RETRY), |(mut source, mut wait)| async move {
        loop {
            match source.next().await? {
                Ok(event) => return Some((event, (source, FIRST_RETRY))),
                Err(error) => {
                    tracing::debug!(%error, "pod watch broke");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_RETRY);
                }
            }
        }
    })
}

impl Kubelets<'_> {
    fn replace(&mut self, listed: Vec<Pod>) {
        let standing: BTreeSet<PodKey> = listed.iter().map(Pod::key).collect();
        self.pods.retain(|key, _| standing.contains(key));
        self.watched.retain(|key| standing.contains(key));
        for pod in listed {
            self.apply(pod);
        }
    }

    fn forget(&mut self, pod: &Pod) {
        let key = pod.key();
        if self.pods.get(&key).is_some_and(|entry| entry.pod.uid() == pod.uid()) {
            self.pods.remove(&key);
            self.watched.remove(&key);
            self.admission.leave(&key);
        }
    }

    /// A new verdict of the watchdogs: pods start when the lease holds and are stopped when it lapses.
    fn judged(&mut self, verdict: LeaseVerdict) {
        if std::mem::replace(&mut self.verdict, verdict) == verdict {
            return;
        }
        let step = match verdict {
            LeaseVerdict::Waiting => return,
            LeaseVerdict::Content => (Phase::Pending, Step::Start),
            LeaseVerdict::Lapsed => (Phase::Running, Step::Stop),
        };
        let (phase, step) = step;
        let due = |key: &PodKey| {
            let entry = self.pods.get(key).filter(|entry| entry.pod.phase() == phase)?;
            match (entry.step, step) {
                // It terminates: with its last process, whatever is left of its grace period ends.
                (Some(Step::Delete), Step::Stop) => Some(Step::Delete),
                (Some(Step::Delete), _) | (Some(Step::Start), Step::Start) => None,
                _ => Some(step),
            }
        };
        let steps: Vec<(PodKey, Step)> =
            self.watched.iter().filter_map(|key| Some((key.clone(), due(key)?))).collect();
        for (key, step) in steps {
            self.begin(key, step);
        }
    }

    fn apply(&mut self, pod: Pod) {
        let ours = pod.spec.node_name.as_ref().is_some_and(|node| self.nodes.contains_key(node));
        if !ours {
            return;
        }
        let key = pod.key();
        let pod = Arc::new(pod);
        let entry = self.pods.entry(key.clone()).or_insert_with(|| TrackedPod {
            pod: pod.clone(),
            step: None,
            plan: None,
            attempts: 0,
            ended_at: None,
            resize_waits: false,
        });
        if entry.pod.uid() != pod.uid() {
            (entry.step, entry.plan, entry.attempts, entry.ended_at) = (None, None, 0, None);
            entry.resize_waits = false;
        }
        // Deleted again with a shorter grace period.
        let until = |pod: &Pod| pod.metadata.deletion_timestamp.as_ref().map(|until| until.0);
        let is_hastened = until(&entry.pod).is_some_and(|before| until(&pod).is_some_and(|now| now < before));
        // Its grace period is for containers that run.
        let is_ended = entry.pod.phase() != Phase::Finished && pod.phase() == Phase::Finished;
        entry.pod = pod;
        let deleting = entry.pod.metadata.deletion_timestamp.is_some();
        let watched = is_watched(&entry.pod);
        if watched && entry.pod.phase() != Phase::Finished {
            self.watched.insert(key.clone());
        } else {
            self.watched.remove(&key);
        }
        let step = match (deleting, entry.pod.phase(), entry.step) {
            (true, _, Some(Step::Delete)) if !is_hastened && !is_ended => None,
            (true, ..) => Some(Step::Delete),
            // Its containers start when its watchdog sees a valid lease.
            (false, Phase::Pending, None) if watched && self.verdict != LeaseVerdict::Content => None,
            // It began just before the lease lapsed.
            (false, Phase::Running, step)
                if watched && self.verdict == LeaseVerdict::Lapsed && step != Some(Step::Stop) =>
            {
                Some(Step::Stop)
            }
            (false, Phase::Pending, None) => Some(Step::Start),
            (false, Phase::Running, None) => Some(Step::Resume),
            (false, Phase::Running, Some(Step::Start | Step::Resume | Step::Resize))
                if entry.pod.is_unseen() =>
            {
                Some(Step::Resize)
            }
            // A late write of its start has overwritten its end. Like a kubelet, it writes the end again.
            (false, Phase::Running, Some(step @ (Step::Finish | Step::Stop)))
                if entry.ended_at.is_some_and(|ended| version(&entry.pod).is_some_and(|now| now > ended)) =>
            {
                entry.ended_at = None;
                Some(step)
            }
            _ => None,
        };
        if self.pods.get(&key).is_some_and(|entry| entry.pod.phase() == Phase::Finished) {
            self.admission.leave(&key);
        }
        let refused = matches!(step, Some(Step::Start | Step::Resume))
            && self.pods.get(&key).is_some_and(|entry| self.admission.enter(&entry.pod).is_some());
        let step = if refused && step == Some(Step::Start) { Some(Step::Refuse) } else { step };
        if let Some(step) = step {
            match self.grace_left(&key).filter(|_| step == Step::Delete) {
                Some(left) => self.begin_later(key, step, left),
                None => self.begin(key, step),
            }
        }
    }

    /// How long a terminating pod may still run.
    fn grace_left(&self, key: &PodKey) -> Option<Duration> {
        let pod = &self.pods.get(key).filter(|_| self.options.lingering)?.pod;
        if is_watched(pod) && self.verdict == LeaseVerdict::Lapsed {
            return None;
        }
        let until = pod.metadata.deletion_timestamp.as_ref().filter(|_| pod.phase() == Phase::Running)?;
        let left = Duration::try_from(until.0.duration_since(self.options.clock.now())).unwrap_or_default();
        Some(left).filter(|left| !left.is_zero())
    }

    fn begin_later(&mut self, key: PodKey, step: Step, wait: Duration) {
        let Some(entry) = self.pods.get_mut(&key) else { return };
        (entry.step, entry.attempts) = (Some(step), 0);
        let uid = entry.pod.uid().to_string();
        self.timers.insert(Instant::now() + wait, Due { key, uid, step });
    }

    fn begin(&mut self, key: PodKey, step: Step) {
        let Some(entry) = self.pods.get_mut(&key) else {
            return;
        };
        entry.step = Some(step);
        entry.attempts = 0;
        let uid = entry.pod.uid().to_string();
        self.waiting.push_back(Due { key, uid, step });
    }

    fn take_due(&mut self) {
        let now = Instant::now();
        while let Some(mut due) = self.timers.pop_due(now) {
            // The status was written and only the run plan is missing: a second start would change its start
            // time.
            if due.step == Step::Start
                && self.live(&due).is_some_and(|entry| entry.pod.phase() == Phase::Running)
            {
                due.step = Step::Resume;
            }
            let over = |entry: &TrackedPod| match entry.step {
                Some(Step::Delete) => due.step != Step::Delete,
                // A stopped pod does not finish.
                Some(Step::Stop) => due.step != Step::Stop,
                Some(Step::Finish) => due.step == Step::Resize,
                _ => false,
            };
            // A pod with the same name may exist by now; this result is not about it.
            if self.live(&due).is_some_and(|entry| !over(entry)) {
                if let Some(entry) = self.pods.get_mut(&due.key) {
                    entry.step = Some(due.step);
                    entry.resize_waits &= due.step != Step::Resize;
                }
                self.waiting.push_back(due);
            }
        }
    }

    fn live(&self, due: &Due) -> Option<&TrackedPod> {
        self.pods.get(&due.key).filter(|entry| entry.pod.uid() == due.uid)
    }

    /// Keeps as many writes in flight as allowed.
    fn fill(&mut self) {
        while self.in_flight.len() < self.options.concurrency.max(1) {
            let Some(due) = self.waiting.pop_front() else {
                return;
            };
            let Some(entry) = self.live(&due) else {
                continue;
            };
            let (pod, plan) = (entry.pod.clone(), entry.plan);
            let short = match due.step {
                Step::Resize => self.admission.resize(&pod),
                _ => self.admission.short(&due.key),
            };
            let work = Work {
                client: self.client.clone(),
                owners: self.owners.clone(),
                cluster: self.options.cluster.clone(),
                default: self.options.default_run_time,
                node_index: pod.spec.node_name.as_ref().and_then(|node| self.nodes.get(node)).copied(),
                pod,
                plan,
                now: self.options.clock.now(),
                short,
            };
            self.in_flight.push(
                async move {
                    let result = work.perform(due.step).await;
                    Done { due, result }
                }
                .boxed(),
            );
        }
    }

    fn done(&mut self, done: Done) {
        let Done { due, result } = done;
        let now = self.options.clock.now();
        let Some(entry) = self.pods.get_mut(&due.key).filter(|entry| entry.pod.uid() == due.uid) else {
            return;
        };
        match result {
            // Deleted already; the watch will report it.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                tracing::debug!(pod = %due.key.name, step = ?due.step, %error, "tried again later");
                let wait = FIRST_RETRY.saturating_mul(1 << entry.attempts.min(6)).min(LONGEST_RETRY);
                entry.attempts += 1;
                self.timers.insert(Instant::now() + wait, due);
            }
            Ok(Written::Runs(plan)) => {
                entry.plan = Some(plan);
                // It may have been resized while no kubelet ran.
                let resized = entry.pod.is_unseen() || entry.pod.waits_for_resize();
                let resized = (resized && entry.step == Some(Step::Resume)).then(|| due.key.clone());
                if let RunTime::For(run_time) = plan.run_time {
                    let left = match due.step {
                        Step::Resume => remaining(entry.pod.status.start_time.as_deref(), run_time, now),
                        _ => run_time,
                    };
                    self.timers.insert(Instant::now() + left, Due { step: Step::Finish, ..due });
                }
                if let Some(key) = resized {
                    self.begin(key, Step::Resize);
                }
            }
            Ok(Written::Ended(version)) => entry.ended_at = version,
            Ok(Written::Deferred) => {
                if !std::mem::replace(&mut entry.resize_waits, true) {
                    self.timers.insert(Instant::now() + RESIZE_PERIOD, due);
                }
            }
            Ok(Written::Resized | Written::Deleted) => {}
        }
    }
}

/// Versions of the embedded server are increasing numbers.
fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_deref()?.parse().ok()
}

/// What is left of a run time that began at `start`; all of it when the start cannot be read.
fn remaining(start: Option<&str>, run_time: Duration, now: Timestamp) -> Duration {
    let Some(start) = start.and_then(|text| text.parse::<Timestamp>().ok()) else {
        return run_time;
    };
    let passed = Duration::try_from(now.duration_since(start)).unwrap_or_default();
    run_time.saturating_sub(passed)
}

/// One step with all its inputs, so that it runs without the loop's state.
struct Work {
    client: Client,
    owners: Owners,
    cluster: String,
    default: RunTime,
    pod: Arc<Pod>,
    plan: Option<RunPlan>,
    node_index: Option<usize>,
    now: Timestamp,
    /// The resource that the node lacks.
    short: Option<String>,
}

impl Work {
    async fn perform(&self, step: Step) -> Result<Written, kube::Error> {
        let key = self.pod.key();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        match step {
            Step::Start => {
                let patch = status::running(&self.pod, self.node_index.unwrap_or_default(), self.now);
                let (written, plan) = tokio::join!(self.write(&api, &key, &patch), self.learn(&key));
                written?;
                plan.map(Written::Runs)
            }
            Step::Resume => self.learn(&key).await.map(Written::Runs),
            Step::Finish => {
                let plan = match self.plan {
                    Some(plan) => plan,
                    None => self.learn(&key).await?,
                };
                let patch = status::finished(&self.pod, plan.ending, self.now);
                self.write(&api, &key, &patch).await.map(Written::Ended)
            }
            Step::Resize => self.resize(&api, &key).await,
            Step::Stop => {
                let patch = status::finished(&self.pod, Ending::Fails, self.now);
                self.write(&api, &key, &patch).await.map(Written::Ended)
            }
            Step::Refuse => {
                let short = self.short.as_deref().unwrap_or_default();
                let patch = status::refused(&self.pod, short);
                self.write(&api, &key, &patch).await.map(Written::Ended)
            }
            Step::Delete => {
                let uid = Some(self.pod.uid().to_string());
                let mut params = DeleteParams::default().grace_period(0);
                params.preconditions = Some(Preconditions { uid, resource_version: None });
                api.delete(&key.name, &params).await.map(|_| Written::Deleted)
            }
        }
    }

    /// Writes the resize into the status that stands: it tells of restarts, which this process does not remember.
    async fn resize(&self, api: &Api<Pod>, key: &PodKey) -> Result<Written, kube::Error> {
        let kind = ApiResource::erase::<Pod>(&());
        let whole: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &kind);
        let found = whole.get(&key.name).await?;
        let (version, short) = (found.metadata.resource_version.as_deref(), self.short.as_deref());
        if let Some(patch) = status::resized(&self.pod, &found.data["status"], version, short, self.now) {
            self.write(api, key, &patch).await?;
        }
        Ok(if short.is_some() { Written::Deferred } else { Written::Resized })
    }

    /// Returns the version of the pod with this status.
    async fn write(
        &self,
        api: &Api<Pod>,
        key: &PodKey,
        patch: &serde_json::Value,
    ) -> Result<Option<u64>, kube::Error> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_string()), ..PatchParams::default() };
        Ok(version(&api.patch_status(&key.name, &params, &Patch::Merge(patch)).await?))
    }

    async fn learn(&self, key: &PodKey) -> Result<RunPlan, kube::Error> {
        let none = Default::default();
        let own = self.pod.metadata.annotations.as_ref().unwrap_or(&none);
        let owner = match self.pod.owner() {
            Some(owner) => self.owners.annotations(&self.client, &key.namespace, owner).await?,
            None => Arc::default(),
        };
        Ok(run_plan(own, &owner, self.pod.nature(), &self.cluster, self.default))
    }
}

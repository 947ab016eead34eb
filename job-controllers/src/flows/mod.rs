//! Volcano's JobFlows and CronJobs: jobs created after others have completed, and jobs created on a schedule.
//!
//! `plan` and `cron` decide, as pure functions; this file watches flows, templates and jobs, carries out
//! plans and writes statuses. Deliberately absent: running the jobs (the job controller does).

mod cron;
mod plan;
mod probe;

pub use plan::problem_of;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fleet_agent_ground::{
    CallError, Clock, Link, Next, Object, ObjectKey, Queue, Turn, controller_of, follow, is_same_but_status,
    key_of, requests as writes, resource, take,
};
use fleet_api::patch::merge_diff;
use fleet_informer::{News, Selection, without_managers};
use fleet_mirror::{Change, Mirror};
use kube::{Api, discovery::ApiResource};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    events::{self, Warning},
    plan::volcano::INVALID_SPEC,
};

/// Most flows and CronJobs reconciled concurrently.
const AT_ONCE: usize = 16;

/// Status code for an invalid object.
const UNPROCESSABLE: u16 = 422;

/// Key of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Flow(ObjectKey),
    Cron(ObjectKey),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flow,
    Template,
    Cron,
    Job,
}

impl Kind {
    const ALL: [Kind; 4] = [Self::Flow, Self::Template, Self::Cron, Self::Job];

    fn resource(self) -> ApiResource {
        match self {
            Self::Flow => resource("flow.volcano.sh", "v1alpha1", "JobFlow", "jobflows"),
            Self::Template => resource("flow.volcano.sh", "v1alpha1", "JobTemplate", "jobtemplates"),
            Self::Cron => resource("batch.volcano.sh", "v1alpha1", "CronJob", "cronjobs"),
            Self::Job => resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    flows: Mirror<Arc<Object>>,
    templates: Mirror<Arc<Object>>,
    crons: Mirror<Arc<Object>>,
    jobs: Mirror<Arc<Object>>,
    /// Kinds whose list is complete.
    synced: [bool; 4],
    /// Jobs by the uid of the flow or CronJob that created them.
    by_owner: BTreeMap<String, BTreeSet<ObjectKey>>,
}

impl State {
    fn of(&mut self, kind: Kind) -> &mut Mirror<Arc<Object>> {
        match kind {
            Kind::Flow => &mut self.flows,
            Kind::Template => &mut self.templates,
            Kind::Cron => &mut self.crons,
            Kind::Job => &mut self.jobs,
        }
    }

    /// What to reconcile after a change of an object, or after its end (`stands` is false).
    fn touched(&mut self, kind: Kind, object: &Object, stands: bool) -> Vec<Key> {
        let key = key_of(object);
        match kind {
            Kind::Flow => vec![Key::Flow(key)],
            Kind::Cron => vec![Key::Cron(key)],
            Kind::Template => {
                let near = self.flows.values().filter(|flow| flow.namespace() == key.0);
                near.map(|flow| Key::Flow(key_of(&**flow))).collect()
            }
            Kind::Job => {
                let Some(owner) = controller_of(&object.metadata) else { return Vec::new() };
                let owner_key = (key.0.clone(), owner.name.clone());
                let owner_key = match owner.kind.as_str() {
                    "JobFlow" => Key::Flow(owner_key),
                    "CronJob" if owner.api_version.starts_with("batch.volcano.sh/") => Key::Cron(owner_key),
                    _ => return Vec::new(),
                };
                let of_owner = self.by_owner.entry(owner.uid.clone()).or_default();
                if stands {
                    of_owner.insert(key);
                } else {
                    of_owner.remove(&key);
                    if of_owner.is_empty() {
                        self.by_owner.remove(&owner.uid);
                    }
                }
                vec![owner_key]
            }
        }
    }

    fn jobs_of(&self, uid: &str) -> Vec<Arc<Object>> {
        let keys = self.by_owner.get(uid).into_iter().flatten();
        let owned = |job: &&Arc<Object>| controller_of(&job.metadata).is_some_and(|owner| owner.uid == uid);
        keys.filter_map(|key| self.jobs.get(key)).filter(owned).cloned().collect()
    }
}

struct Driver {
    client: kube::Client,
    cluster: String,
    clock: Clock,
    state: Mutex<State>,
    queue: Arc<Queue<Key>>,
}

/// Runs both controllers against one API server until `shutdown` is cancelled.
pub(crate) async fn run(member: Link, clock: Clock, shutdown: CancellationToken) {
    let driver = Arc::new(Driver {
        client: member.client.clone(),
        cluster: member.cluster().to_owned(),
        clock,
        state: Mutex::default(),
        queue: Arc::new(Queue::default()),
    });
    let mut watches = tokio::task::JoinSet::new();
    for kind in Kind::ALL {
        let resource = kind.resource();
        let api: Api<Object> = Api::all_with(driver.client.clone(), &resource);
        let feed = member.feed(api, Selection::default(), &format!("flows/{}", resource.plural));
        let on_change = driver.clone();
        watches.spawn(follow(feed, shutdown.clone(), move |news| {
            if let News::Change(change) = news {
                on_change.changed(kind, change);
            }
        }));
    }
    let worker = driver.clone();
    driver
        .queue
        .clone()
        .run(AT_ONCE, shutdown, move |key| {
            let driver = worker.clone();
            async move { driver.look_at(&key).await }
        })
        .await;
    while watches.join_next().await.is_some() {}
}

/// Why the flow can never complete, if its new status says so and the one it has does not.
fn newly_invalid(flow: &Object, status: &Value) -> Option<String> {
    let why = problem_of(flow)?;
    let says = |status: &Value| status["state"]["message"].as_str() == Some(why.as_str());
    (says(status) && !says(&flow.status)).then_some(why)
}

/// The API server's message.
fn words_of(error: &CallError) -> String {
    match error {
        CallError::Api(kube::Error::Api(status)) => status.message.clone(),
        other => other.to_string(),
    }
}

impl Driver {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so the state is whole even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, kind: Kind, change: Change<Object>) {
        let is_listing = change.is_listing();
        let mut keys = Vec::new();
        {
            let mut state = self.state();
            for turn in take(state.of(kind), change) {
                let (object, stands) = match &turn {
                    Turn::Applied { now, .. } => (now, true),
                    Turn::Deleted(object) => (object, false),
                };
                keys.extend(state.touched(kind, object, stands));
            }
            if is_listing {
                state.synced[kind as usize] = true;
                keys.extend(state.flows.values().map(|flow| Key::Flow(key_of(&**flow))));
                keys.extend(state.crons.values().map(|cron| Key::Cron(key_of(&**cron))));
            }
        }
        keys.into_iter().for_each(|key| self.queue.add(key));
    }

    async fn look_at(&self, key: &Key) -> Next {
        let done = match key {
            Key::Flow(key) => self.flow(key).await,
            Key::Cron(key) => self.cron(key).await,
        };
        done.unwrap_or_else(|error| {
            tracing::warn!(cluster = self.cluster, ?key, %error, "reconcile of a flow failed; retrying");
            Next::Retry
        })
    }

    /// Asks the pods of a flow's jobs what its probes want to know. Returns whether there was something to ask.
    async fn probe(&self, key: &ObjectKey) -> Result<(probe::Answers, bool), CallError> {
        let jobs: Vec<(Arc<Object>, Vec<probe::Check>)> = {
            let state = self.state();
            let Some(flow) = state.flows.get(key).filter(|_| state.synced[Kind::Job as usize]) else {
                return Ok(Default::default());
            };
            let jobs = state.jobs_of(flow.uid());
            let named = jobs.iter().map(|job| (job.name().to_owned(), &**job)).collect();
            let asked = plan::questions(flow, &named);
            let whole = |name: &str| jobs.iter().find(|job| job.name() == name).cloned();
            asked.into_iter().filter_map(|(job, checks)| Some((whole(job.name())?, checks))).collect()
        };
        let asked: Vec<(&Object, Vec<&probe::Check>)> =
            jobs.iter().map(|(job, checks)| (&**job, checks.iter().collect())).collect();
        Ok((probe::ask(&self.client, &asked).await?, !asked.is_empty()))
    }

    async fn flow(&self, key: &ObjectKey) -> Result<Next, CallError> {
        let (answers, asks) = self.probe(key).await?;
        let (flow, plan) = {
            let state = self.state();
            // With an incomplete list of jobs a plan would create jobs that exist.
            if !state.synced.iter().all(|synced| *synced) {
                return Ok(Next::Wait);
            }
            let Some(flow) = state.flows.get(key).cloned() else { return Ok(Next::Wait) };
            let jobs = state.jobs_of(flow.uid());
            let jobs = jobs.iter().map(|job| (job.name().to_owned(), &**job)).collect();
            let templates = state.templates.values().filter(|template| template.namespace() == key.0);
            let templates = templates.map(|template| (template.name().to_owned(), &**template)).collect();
            let plan = plan::plan(&flow, &templates, &jobs, &answers);
            (flow, plan)
        };
        self.delete(&key.0, flow.uid(), &plan.delete).await?;
        let mut status = plan.status;
        for job in &plan.create {
            if let Some(why) = self.create(job, flow.uid()).await? {
                let status = status.get_or_insert_with(|| flow.status.clone());
                status["state"]["message"] = why.into();
            }
        }
        if let Some(message) = status.as_ref().and_then(|status| newly_invalid(&flow, status)) {
            let warning = Warning { reason: INVALID_SPEC, message: &message, at: self.clock.now() };
            events::warn(&self.client, &flow, &Kind::Flow.resource(), &warning).await?;
        }
        self.write_status(Kind::Flow, &flow, status).await?;
        // A pod that begins to answer is no change of an object.
        Ok(if asks { Next::After(probe::PERIOD) } else { Next::Wait })
    }

    async fn cron(&self, key: &ObjectKey) -> Result<Next, CallError> {
        let (cron, plan) = {
            let state = self.state();
            if !state.synced[Kind::Cron as usize] || !state.synced[Kind::Job as usize] {
                return Ok(Next::Wait);
            }
            let Some(cron) = state.crons.get(key).cloned() else { return Ok(Next::Wait) };
            let jobs = state.jobs_of(cron.uid());
            let jobs: Vec<&Object> = jobs.iter().map(|job| &**job).collect();
            let plan = cron::plan(&cron, &jobs, self.clock.now());
            (cron, plan)
        };
        if let Some(problem) = &plan.problem {
            tracing::warn!(cluster = self.cluster, cronjob = key.1, problem, "a CronJob cannot be scheduled");
        }
        self.delete(&key.0, cron.uid(), &plan.delete).await?;
        if let Some(job) = &plan.create
            && let Some(why) = self.create(job, cron.uid()).await?
        {
            tracing::warn!(cluster = self.cluster, cronjob = key.1, why, "the job of a CronJob was refused");
        }
        self.write_status(Kind::Cron, &cron, plan.status).await?;
        Ok(plan.look_again.map_or(Next::Wait, Next::After))
    }

    /// Creates a job; success if the owner has it already. Returns why it is invalid, if so.
    async fn create(&self, job: &Value, owner: &str) -> Result<Option<String>, CallError> {
        let made = match writes::create::<Object>(&self.client, job).await {
            Err(error) if error.is_conflict() => {
                let name = job["metadata"]["name"].as_str().unwrap_or_default();
                let namespace = job["metadata"]["namespace"].as_str().unwrap_or_default();
                let found: Option<Object> =
                    writes::get(&self.client, &Kind::Job.resource(), namespace, name).await?;
                let own = |found: &Object| {
                    controller_of(&found.metadata).is_some_and(|controller| controller.uid == owner)
                };
                match found {
                    Some(found) if own(&found) => found,
                    Some(_) => {
                        return Ok(Some(format!("a job of another owner has the name {name}")));
                    }
                    None => return Err(error),
                }
            }
            // An invalid job stays invalid.
            Err(error) if error.code() == Some(UNPROCESSABLE) => return Ok(Some(words_of(&error))),
            made => made?,
        };
        self.changed(Kind::Job, Change::Answer(without_managers(made)));
        Ok(None)
    }

    async fn delete(&self, namespace: &str, owner: &str, names: &[String]) -> Result<(), CallError> {
        let doomed: Vec<Arc<Object>> = {
            let state = self.state();
            let jobs = state.jobs_of(owner);
            jobs.into_iter().filter(|job| names.iter().any(|name| name == job.name())).collect()
        };
        for job in doomed {
            writes::delete(&self.client, &Kind::Job.resource(), namespace, job.name(), job.uid()).await?;
        }
        Ok(())
    }

    async fn write_status(
        &self,
        kind: Kind,
        object: &Object,
        status: Option<Value>,
    ) -> Result<(), CallError> {
        let Some(patch) = status.and_then(|status| merge_diff(&object.status, &status)) else {
            return Ok(());
        };
        let patch = json!({"status": patch});
        match writes::patch(&self.client, &kind.resource(), object, Some("status"), &patch).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => {
                let answer = without_managers(answer?);
                if is_same_but_status(object, &answer) {
                    take(self.state().of(kind), Change::Answer(answer));
                } else {
                    self.changed(kind, Change::Answer(answer));
                }
                Ok(())
            }
        }
    }
}

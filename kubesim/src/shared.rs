//! Many gangs on clusters that others use as well: a fleet whose member has its own operator, scheduler and
//! tenants, gangs one after the other, and an observer of their pods that knows none of Fleet's rules.
//!
//! Inputs: how many gangs on how many nodes. Measured: gangs that are partly started for longer than the
//! agent's grace period.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context;
use fleet_api::names::SIM_RUNTIME_ANNOTATION;
use futures::{StreamExt, future::LocalBoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
    runtime::watcher::{self, Event},
};
use serde_json::{Value, json};

use crate::{FleetSpec, Listen, LocalFleet, MemberSpec, RunTime, standins::tenants::Tenants};

/// How long the agent lets a gang be partly bound.
pub const GRACE: Duration = Duration::from_secs(5);
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often gangs are counted.
const LOOK: Duration = Duration::from_millis(50);
/// Most time for a gang, including earlier pods of tenants.
const PATIENCE: Duration = Duration::from_secs(120);
/// Gangs that are submitted and have not ended, at one time.
const AT_ONCE: usize = 8;
const GPUS_PER_NODE: u32 = 8;
const JOB_NAME: &str = "training.kubeflow.org/job-name";

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Story {
    pub gangs: usize,
    pub nodes: usize,
    pub seed: u64,
    /// `podScheduling` of the policy.
    pub pod_scheduling: &'static str,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub succeeded: usize,
    pub failed: Vec<String>,
    /// Gangs that were partly started for longer than the grace period, and for how long.
    pub partial: BTreeMap<String, Duration>,
    /// Longest time for which a gang was partly started.
    pub longest_partial: Duration,
    /// Number of tenants' pods that have run.
    pub tenants: usize,
    /// Pods that a kubelet refused: of gangs, and of tenants.
    pub refused: (usize, usize),
    pub took: Duration,
}

/// Runs in real time.
///
/// # Errors
/// The fleet does not start, or a server does not answer.
pub fn play(story: Story) -> LocalBoxFuture<'static, anyhow::Result<Outcome>> {
    Box::pin(play_in_place(story))
}

async fn play_in_place(story: Story) -> anyhow::Result<Outcome> {
    let tenants = Tenants {
        namespace: "default".to_owned(),
        pods: story.nodes / 2,
        gpus: u64::from(GPUS_PER_NODE) / 2,
        run_time: Duration::from_millis(800),
        pause: Duration::from_millis(40),
        seed: story.seed,
    };
    let spec = FleetSpec {
        members: MemberSpec::many(1, story.nodes, GPUS_PER_NODE, "64", "512Gi"),
        listen: Listen::InProcess,
        default_run_time: RunTime::For(Duration::from_millis(200)),
        shared: Some(tenants),
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await?;
    fleet.ready(READY_WITHIN).await?;
    let member = fleet.member("east").context("no member")?;
    let outcome = observe(&story, &fleet.hub(), &member).await;
    fleet.shutdown().await;
    outcome
}

/// Pods of one gang.
#[derive(Default)]
struct Gang {
    size: usize,
    /// Whether each has started, by name.
    pods: BTreeMap<String, bool>,
    partial_since: Option<Instant>,
}

struct Observer<'a> {
    story: &'a Story,
    hub: Api<DynamicObject>,
    gangs: BTreeMap<String, Gang>,
    submitted: usize,
    since: BTreeMap<String, Instant>,
    outcome: Outcome,
}

async fn observe(story: &Story, hub: &Client, member: &Client) -> anyhow::Result<Outcome> {
    let kind = |group: &str, version: &str, kind: &str, plural: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    };
    let policies =
        kind("policy.one.alibabacloud.com", "v1alpha1", "PropagationPolicy", "propagationpolicies");
    let policies: Api<DynamicObject> = Api::namespaced_with(hub.clone(), "default", &policies);
    policies.create(&PostParams::default(), &serde_json::from_value(policy(story))?).await?;
    let jobs = kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
    let mut observer = Observer {
        story,
        hub: Api::namespaced_with(hub.clone(), "default", &jobs),
        gangs: BTreeMap::new(),
        submitted: 0,
        since: BTreeMap::new(),
        outcome: Outcome::default(),
    };
    let began = Instant::now();
    let mut pods = Box::pin(watcher::watcher(Api::<Pod>::all(member.clone()), watcher::Config::default()));
    let mut states = Box::pin(watcher::watcher(observer.hub.clone(), watcher::Config::default()));
    let mut tick = tokio::time::interval(LOOK);
    while observer.outcome.succeeded + observer.outcome.failed.len() < story.gangs {
        tokio::select! {
            Some(event) = pods.next() => observer.see_pod(event?),
            Some(event) = states.next() => observer.see_job(event?).await?,
            _ = tick.tick() => {
                observer.submit().await?;
                observer.look();
            }
        }
    }
    observer.outcome.took = began.elapsed();
    Ok(observer.outcome)
}

impl Observer<'_> {
    async fn submit(&mut self) -> anyhow::Result<()> {
        while self.submitted < self.story.gangs && self.since.len() < AT_ONCE {
            let number = self.submitted;
            let name = format!("gang-{number}");
            // Two to nine pods of one to four GPUs, depending on the number.
            let mix = (number as u64).wrapping_mul(2654435761).wrapping_add(self.story.seed) >> 7;
            let (workers, gpus) = (1 + mix % 8, 1 + (mix / 8) % 4);
            self.gangs.insert(name.clone(), Gang { size: workers as usize + 1, ..Gang::default() });
            self.hub
                .create(&PostParams::default(), &serde_json::from_value(job(&name, workers, gpus))?)
                .await?;
            self.since.insert(name, Instant::now());
            self.submitted += 1;
        }
        Ok(())
    }

    fn see_pod(&mut self, event: Event<Pod>) {
        let (pod, is_there) = match event {
            Event::Apply(pod) | Event::InitApply(pod) => (pod, true),
            Event::Delete(pod) => (pod, false),
            Event::Init | Event::InitDone => return,
        };
        let status = pod.status.clone().unwrap_or_default();
        let is_refused = status.reason.is_some_and(|reason| reason.starts_with("OutOf"));
        let Some(job) = pod.labels().get(JOB_NAME) else {
            if is_there && is_refused {
                self.outcome.refused.1 += 1;
            } else if !is_there {
                self.outcome.tenants += 1;
            }
            return;
        };
        self.outcome.refused.0 += usize::from(is_there && is_refused);
        let Some(gang) = self.gangs.get_mut(job) else { return };
        if is_there {
            gang.pods.insert(pod.name_any(), status.start_time.is_some());
        } else {
            gang.pods.remove(&pod.name_any());
        }
    }

    async fn see_job(&mut self, event: Event<DynamicObject>) -> anyhow::Result<()> {
        let (Event::Apply(job) | Event::InitApply(job)) = event else { return Ok(()) };
        let name = job.name_any();
        let conditions = job.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ended = conditions
            .iter()
            .find(|one| one["status"] == "True" && (one["type"] == "Succeeded" || one["type"] == "Failed"));
        let Some(ended) = ended.filter(|_| self.since.remove(&name).is_some()) else { return Ok(()) };
        self.gangs.remove(&name);
        if ended["type"] == "Succeeded" {
            self.outcome.succeeded += 1;
        } else {
            self.outcome.failed.push(format!("{name}: {}", ended["message"]));
        }
        self.hub.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Counts the gangs that are partly started, and gives up those that take too long.
    fn look(&mut self) {
        let now = Instant::now();
        for (name, gang) in &mut self.gangs {
            let started = gang.pods.values().filter(|started| **started).count();
            if started == 0 || started >= gang.size {
                gang.partial_since = None;
                continue;
            }
            let lasts = now - *gang.partial_since.get_or_insert(now);
            self.outcome.longest_partial = self.outcome.longest_partial.max(lasts);
            if lasts > GRACE {
                self.outcome.partial.insert(name.clone(), lasts);
            }
        }
        let late: Vec<String> = self
            .since
            .iter()
            .filter(|(_, since)| since.elapsed() > PATIENCE)
            .map(|(name, _)| name.clone())
            .collect();
        for name in late {
            self.since.remove(&name);
            self.gangs.remove(&name);
            self.outcome.failed.push(format!("{name}: not ended within {} s", PATIENCE.as_secs()));
        }
    }
}

fn policy(story: &Story) -> Value {
    json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "gangs", "namespace": "default"},
        "spec": {
            "podScheduling": story.pod_scheduling,
            // A run whose pods a kubelet refused, because another scheduler was faster, is retried.
            "propagateDeps": true,
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 0}, "purgeMode": "Directly"}},
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
            "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
        },
    })
}

fn job(name: &str, workers: u64, gpus: u64) -> Value {
    let role = |replicas: u64| {
        let amounts = json!({"nvidia.com/gpu": gpus.to_string()});
        json!({"replicas": replicas, "restartPolicy": "Never", "template": {"spec": {"containers": [
            {"name": "pytorch", "image": "registry.example.com/train:v1",
                "resources": {"requests": amounts, "limits": amounts}}]}}})
    };
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default", "annotations": {SIM_RUNTIME_ANNOTATION: "300ms"}},
        "spec": {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(workers)}},
    })
}

//! Benchmarks of jobs: latency of one on an idle fleet, throughput of many at once.
//!
//! The jobs pass all stages of the walkthrough: queue, quota, gang reservation, binding, Work, pods.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fleet_cli_ground::{
    apply,
    server::{HUB_PATIENCE, Server},
};
use fleet_kubesim::LocalFleet;
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::measured::{Finding, percentile};

const NAMESPACE: &str = "default";
const LATENCY_WITHIN: Duration = Duration::from_secs(20);
const THROUGHPUT_WITHIN: Duration = Duration::from_secs(600);
/// Submissions in flight, as many users at once.
const SUBMITTERS: usize = 32;
/// Capacity of the sightings channel; the watch waits while it is full.
const SIGHTINGS: usize = 4096;

/// What the watch on the hub saw of a job.
enum Sighting {
    Running(String, Instant),
    Gone(String),
}

/// Time from the submission of a job of three pods to its Running on the hub, one job at a time.
///
/// # Errors
/// A job did not run in time.
pub async fn latency(fleet: &LocalFleet, runs: u32) -> anyhow::Result<Vec<Finding>> {
    prepare(fleet).await?;
    let api = jobs(fleet.hub());
    let mut sightings = watch(fleet.hub());
    let mut taken_ms = Vec::new();
    for run in 0..runs {
        let name = format!("latency-{run}");
        let job = job(&name)?;
        let began = Instant::now();
        api.create(&PostParams::default(), &job).await.context("a job is refused")?;
        let seen = expect(&mut sightings, LATENCY_WITHIN, &name, |sighting| match sighting {
            Sighting::Running(seen, at) if *seen == name => Some(*at),
            _ => None,
        })
        .await?;
        taken_ms.push(seen.saturating_duration_since(began).as_secs_f64() * 1000.0);
        // The next job finds an idle fleet again.
        api.delete(&name, &DeleteParams::default()).await.context("a job cannot be deleted")?;
        expect(&mut sightings, LATENCY_WITHIN, &name, |sighting| match sighting {
            Sighting::Gone(gone) if *gone == name => Some(()),
            _ => None,
        })
        .await?;
        idle(fleet).await?;
    }
    taken_ms.sort_by(f64::total_cmp);
    Ok(vec![
        Finding::new("submission to Running, p50", percentile(&taken_ms, 50), "ms", None),
        Finding::new("submission to Running, p99", percentile(&taken_ms, 99), "ms", Some(100.0)),
    ])
}

/// Time from the first submission to the last job's Running on the hub.
///
/// # Errors
/// Not all jobs ran in time.
pub async fn throughput(fleet: &LocalFleet, count: u32) -> anyhow::Result<Vec<Finding>> {
    prepare(fleet).await?;
    let api = jobs(fleet.hub());
    let mut sightings = watch(fleet.hub());
    let began = Instant::now();
    let submit = stream::iter(0..count)
        .map(|index| {
            let api = api.clone();
            async move {
                let job = job(&format!("throughput-{index}"))?;
                api.create(&PostParams::default(), &job).await.context("a job is refused").map(|_| ())
            }
        })
        .buffer_unordered(SUBMITTERS)
        .try_collect::<()>();
    let wanted = count as usize;
    let mut running = BTreeSet::new();
    let count_all = async {
        let mut last = began;
        while running.len() < wanted {
            match sightings.recv().await {
                Some(Sighting::Running(name, at)) => {
                    running.insert(name);
                    last = last.max(at);
                }
                Some(Sighting::Gone(_)) => {}
                None => bail!("the watch on the hub ended"),
            }
        }
        Ok(last)
    };
    let submitted = async {
        submit.await?;
        Ok::<_, anyhow::Error>(began.elapsed())
    };
    let both = async { tokio::try_join!(submitted, count_all) };
    let Ok(outcome) = tokio::time::timeout(THROUGHPUT_WITHIN, both).await else {
        bail!("after {} s {} of {wanted} jobs run", THROUGHPUT_WITHIN.as_secs(), running.len());
    };
    let (submitted, last) = outcome?;
    let taken = last.saturating_duration_since(began).as_secs_f64();
    Ok(vec![
        Finding::new(format!("{count} jobs submitted"), submitted.as_secs_f64(), "s", None),
        Finding::new(
            format!("{count} jobs of 3 pods, all Running"),
            taken,
            "s",
            (count == 1000).then_some(10.0),
        ),
        Finding::new("jobs started", f64::from(count) / taken, "/s", None),
    ])
}

async fn prepare(fleet: &LocalFleet) -> anyhow::Result<()> {
    let server = Server {
        client: fleet.hub(),
        name: "hub".to_string(),
        url: "the hub".to_string(),
        patience: HUB_PATIENCE,
    };
    let tree = json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "bench", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "children": [{"name": "bench", "namespaces": [NAMESPACE]}]}}});
    let policy: Value =
        fleet_api::yaml::read(include_str!("../../examples/walkthrough/propagationpolicy-gang-queued.yaml"))?;
    apply::apply_all(&server, NAMESPACE, &[tree, policy]).await?;
    Ok(())
}

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob"))
}

fn jobs(hub: Client) -> Api<DynamicObject> {
    Api::namespaced_with(hub, NAMESPACE, &kind())
}

/// One master and two workers with small requests, so that a thousand of them fit.
fn job(name: &str) -> anyhow::Result<DynamicObject> {
    let role = |replicas: u32| {
        json!({"replicas": replicas, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [{
            "name": "pytorch", "image": "registry.example.com/pytorch-mnist:v1",
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]}}})
    };
    let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(2)}}});
    serde_json::from_value(job).context("the bench's job")
}

/// Watches the jobs of the hub and reports when each first runs and when it is gone.
fn watch(hub: Client) -> mpsc::Receiver<Sighting> {
    let (tell, sightings) = mpsc::channel(SIGHTINGS);
    tokio::spawn(async move {
        let mut events = Box::pin(watcher(jobs(hub), watcher::Config::default()));
        let mut seen = BTreeSet::new();
        while let Some(event) = events.next().await {
            let sighting = match event {
                Ok(watcher::Event::Apply(job) | watcher::Event::InitApply(job)) => {
                    let name = job.metadata.name.clone().unwrap_or_default();
                    let runs = job.data["status"]["conditions"].as_array().is_some_and(|all| {
                        all.iter().any(|is| is["type"] == "Running" && is["status"] == "True")
                    });
                    if !runs || !seen.insert(name.clone()) {
                        continue;
                    }
                    Sighting::Running(name, Instant::now())
                }
                Ok(watcher::Event::Delete(job)) => {
                    let name = job.metadata.name.unwrap_or_default();
                    seen.remove(&name);
                    Sighting::Gone(name)
                }
                _ => continue,
            };
            if tell.send(sighting).await.is_err() {
                return;
            }
        }
    });
    sightings
}

async fn expect<T>(
    sightings: &mut mpsc::Receiver<Sighting>,
    within: Duration,
    name: &str,
    wanted: impl Fn(&Sighting) -> Option<T>,
) -> anyhow::Result<T> {
    let look = async {
        while let Some(sighting) = sightings.recv().await {
            if let Some(found) = wanted(&sighting) {
                return Ok(found);
            }
        }
        bail!("the watch on the hub ended")
    };
    match tokio::time::timeout(within, look).await {
        Ok(found) => found,
        Err(_) => bail!("job {name:?} did not reach the state within {} s", within.as_secs()),
    }
}

/// Waits until no member has a pod and the hub no binding left.
async fn idle(fleet: &LocalFleet) -> anyhow::Result<()> {
    let deadline = Instant::now() + LATENCY_WITHIN;
    loop {
        let bindings: Api<fleet_api::ResourceBinding> = Api::namespaced(fleet.hub(), NAMESPACE);
        let mut left = bindings.list(&Default::default()).await?.items.len();
        for name in fleet.members() {
            if let Some(client) = fleet.member(name) {
                let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, NAMESPACE);
                left += pods.list(&Default::default()).await?.items.len();
            }
        }
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{left} objects of a deleted job are left after {} s", LATENCY_WITHIN.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

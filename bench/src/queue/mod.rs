//! Deep queues under a quota tree, in real time: jobs of three classes arrive in every leaf at a fixed rate,
//! wait, run on one simulated member and end. With `--admission-only` nothing runs: a stand-in for the member
//! ends them.
//!
//! The shapes are those of Kueue's performance tests, so that the figures can be compared. Times come from a
//! watch of the bindings: a job is admitted when its binding has a target, and has ended when the binding has
//! a result.

mod clock;
mod ideal;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fleet_api::{ResourceBinding, names};
use fleet_cli_ground::{
    answer::Answer,
    apply, output,
    server::{HUB_PATIENCE, Server},
};
use fleet_kubesim::{FleetSpec, Listen, LocalFleet, MemberSpec, RunTime};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::measured::{READY_WITHIN, cpu_s, peak_mib, percentile, say};
use crate::args::{BenchArgs, Shape};
use clock::{Sighting, watch};
use fleet_console::table::Table;
use ideal::ideal;
use writes::{Counted, ObjectWrites};

/// Concurrent submissions.
const SUBMITTERS: usize = 64;
/// After this time without any job's end the run is aborted.
const STALLED: Duration = Duration::from_secs(60);
const PAGE: u32 = 5_000;
/// How often progress is printed.
const PROGRESS: Duration = Duration::from_secs(15);

/// Jobs of one kind in every leaf.
struct Class {
    name: &'static str,
    count: u32,
    cores: i64,
    priority: i32,
    run_ms: u64,
    every_ms: u64,
}

/// The fleet and the jobs of one benchmark.
struct BenchCase {
    name: &'static str,
    parents: usize,
    leaves: usize,
    classes: [Class; 3],
    aims: Aims,
    admission_aims: Aims,
    nodes: usize,
    node_cores: i64,
}

/// The project's targets.
#[derive(Clone, Copy)]
struct Aims {
    wall_s: f64,
    cpu_ms_a_job: f64,
    /// Hub and member.
    writes_a_job: f64,
}

const MIN: i64 = 20;
const MAX: i64 = 120;

fn plan(shape: Shape) -> BenchCase {
    let class = |name, count, cores, priority, run_ms, every_ms| Class {
        name,
        count,
        cores,
        priority,
        run_ms,
        every_ms,
    };
    let end_to_end = |wall_s| Aims { wall_s, cpu_ms_a_job: AIM_CPU_MS, writes_a_job: AIM_WRITES };
    match shape {
        Shape::Baseline => BenchCase {
            name: "baseline",
            parents: 5,
            leaves: 6,
            classes: [
                class("small", 350, 1, 50, 200, 100),
                class("medium", 100, 5, 100, 500, 500),
                class("large", 50, 20, 200, 1000, 1200),
            ],
            aims: end_to_end(75.0),
            admission_aims: Aims { wall_s: 70.0, cpu_ms_a_job: 2.0, writes_a_job: AIM_WRITES },
            nodes: 20,
            node_cores: 120,
        },
        Shape::LargeScale => BenchCase {
            name: "large-scale",
            parents: 10,
            leaves: 100,
            classes: [
                class("small", 35, 1, 50, 150, 60),
                class("medium", 11, 5, 100, 350, 300),
                class("large", 4, 20, 200, 700, 700),
            ],
            aims: end_to_end(90.0),
            admission_aims: Aims { wall_s: 15.0, cpu_ms_a_job: 2.0, writes_a_job: AIM_WRITES },
            nodes: 240,
            node_cores: 120,
        },
    }
}

impl BenchCase {
    fn namespaces(&self) -> Vec<String> {
        let leaf = |parent| (0..self.leaves).map(move |leaf| format!("p{parent}-l{leaf}"));
        (0..self.parents).flat_map(leaf).collect()
    }

    /// Cores of the whole tree: the sum of the leaves' min.
    fn cores(&self) -> i64 {
        (self.parents * self.leaves) as i64 * MIN
    }

    fn jobs(&self) -> usize {
        self.parents * self.leaves * self.classes.iter().map(|class| class.count as usize).sum::<usize>()
    }

    /// Core seconds of all jobs.
    fn work_s(&self) -> f64 {
        let of = |class: &Class| f64::from(class.count) * class.cores as f64 * class.run_ms as f64 / 1000.0;
        (self.parents * self.leaves) as f64 * self.classes.iter().map(of).sum::<f64>()
    }

    fn tree(&self) -> Value {
        let amount = |cores: i64| json!({"cpu": cores});
        let parents = (0..self.parents).map(|parent| {
            let leaf = |leaf| {
                json!({"name": format!("p{parent}-l{leaf}"), "namespaces": [format!("p{parent}-l{leaf}")],
                    "min": amount(MIN), "max": amount(MAX)})
            };
            let own = amount(self.leaves as i64 * MIN);
            json!({"name": format!("p{parent}"), "min": own, "max": own,
                "children": (0..self.leaves).map(leaf).collect::<Vec<_>>()})
        });
        json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
            "metadata": {"name": "bench", "namespace": "kube-system"},
            "spec": {"root": {"name": "root", "min": amount(self.cores()), "max": amount(self.cores()),
                "children": parents.collect::<Vec<_>>()}}})
    }
}

/// What `-o json` prints.
#[derive(Debug, Serialize)]
struct Report {
    shape: &'static str,
    way: Way,
    jobs: usize,
    wall_s: f64,
    ideal_s: f64,
    classes: Vec<ClassReport>,
    /// Core seconds of all jobs divided by core seconds of the quota until the last end.
    useful_share: f64,
    evictions: usize,
    cpu_s: f64,
    /// Highest resident memory of the process: hub, member, agents and the submitting client.
    peak_mib: f64,
    submitted_s: f64,
    /// Processor time per job: of everything, including the submitting client.
    cpu_ms_a_job: f64,
    /// All writes to either server, including leases and summaries.
    hub_writes_a_job: f64,
    member_writes_a_job: f64,
    writes: Vec<ObjectWrites>,
}

/// Target for the writes of a job, hub and member.
const AIM_WRITES: f64 = 22.0;
/// Target for the processor time of a job.
const AIM_CPU_MS: f64 = 4.0;
/// How much longer than ideal jobs of a class may wait on average.
const AIM_LATE_S: f64 = 3.0;

#[derive(Debug, Serialize)]
struct ClassReport {
    class: &'static str,
    jobs: usize,
    admission_mean_s: f64,
    admission_p99_s: f64,
    /// By the ideal event simulation.
    ideal_mean_s: f64,
}

/// Parameters of a run.
pub struct Wanted {
    shape: Shape,
    way: Way,
    json: bool,
}

/// How far a job goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// Hub, member, gang, pods.
    EndToEnd,
    /// Hub only, with a stand-in that ends jobs, as in Kueue's harness.
    AdmissionOnly,
}

impl Wanted {
    pub fn of(args: &BenchArgs) -> Self {
        let way = if args.admission_only { Way::AdmissionOnly } else { Way::EndToEnd };
        Self { shape: args.shape, way, json: args.output.is_some() }
    }
}

pub async fn run(wanted: Wanted) -> anyhow::Result<ExitCode> {
    let mut plan = plan(wanted.shape);
    say(&format!("queue: {} jobs, shape {}, {:?}", plan.jobs(), plan.name, wanted.way));
    if wanted.way == Way::AdmissionOnly {
        plan.aims = plan.admission_aims;
    }
    let cores = plan.node_cores.to_string();
    let fleet = LocalFleet::start(FleetSpec {
        members: MemberSpec::many(1, plan.nodes, 0, &cores, "512Gi"),
        data_dir: None,
        listen: Listen::InProcess,
        default_run_time: RunTime::Forever,
        ends_only: wanted.way == Way::AdmissionOnly,
        ..FleetSpec::default()
    })
    .await?;
    fleet.ready(READY_WITHIN).await?;
    let report = measure(&fleet, &plan, wanted.way).await;
    fleet.shutdown().await;
    let report = report?;
    let text = match wanted.json {
        true => output::json(&serde_json::to_value(&report)?)?,
        false => print(&plan, &report),
    };
    Answer::text(text).print()
}

async fn measure(fleet: &LocalFleet, plan: &BenchCase, way: Way) -> anyhow::Result<Report> {
    let hub = fleet.hub();
    prepare(&hub, plan).await?;
    for name in fleet.members().iter().filter(|_| way == Way::EndToEnd) {
        let member = fleet.member(name).context("no member")?;
        // The priority class must exist where the pods are created.
        apply::apply_all(&server(member, name), "default", &classes(plan)).await?;
    }
    let mut sightings = watch(hub.clone());
    let before = Counted::read(fleet).await?;
    let cpu_before = cpu_s()?;
    let began = Instant::now();
    let (sent, mut sent_times) = mpsc::unbounded_channel();
    let submit = stream::iter(due(plan))
        .map(|(at, id, class)| {
            let (hub, sent) = (hub.clone(), sent.clone());
            async move {
                tokio::time::sleep_until((began + at).into()).await;
                let (namespace, name) = id.split_once('/').unwrap_or_default();
                let api = batch_jobs(hub, namespace);
                let _ = sent.send((id.clone(), Instant::now()));
                api.create(&PostParams::default(), &job(name, class)?).await.context("a job is refused")?;
                Ok::<_, anyhow::Error>(())
            }
        })
        .buffer_unordered(SUBMITTERS);
    let submit = async {
        submit.try_collect::<()>().await?;
        Ok::<_, anyhow::Error>(began.elapsed())
    };
    let wanted = plan.jobs();
    let follow = follow(&mut sightings, wanted, began);
    let (submitted, (admitted, last)) = tokio::try_join!(submit, follow)?;
    let cpu = cpu_s()? - cpu_before;
    let writes = Counted::read(fleet).await?.since(&before, wanted);
    let mut sent = Vec::with_capacity(wanted);
    while let Ok(one) = sent_times.try_recv() {
        sent.push(one);
    }
    let classes = class_reports(plan, sent, &admitted);
    let wall_s = last.saturating_duration_since(began).as_secs_f64();
    Ok(Report {
        shape: plan.name,
        way,
        jobs: wanted,
        wall_s,
        ideal_s: ideal(plan).wall_s,
        classes,
        useful_share: plan.work_s() / (plan.cores() as f64 * wall_s),
        evictions: evictions(&hub).await?,
        cpu_s: cpu,
        peak_mib: peak_mib()?,
        submitted_s: submitted.as_secs_f64(),
        cpu_ms_a_job: cpu * 1000.0 / wanted as f64,
        hub_writes_a_job: writes::total(&writes, "hub"),
        member_writes_a_job: writes::total(&writes, "member"),
        writes,
    })
}

/// When each job is submitted, as `namespace/name`, in this order.
fn due(plan: &BenchCase) -> Vec<(Duration, String, &Class)> {
    let mut due: Vec<(Duration, String, &Class)> = Vec::with_capacity(plan.jobs());
    for namespace in plan.namespaces() {
        for class in &plan.classes {
            due.extend((0..class.count).map(|n| {
                let at = Duration::from_millis(u64::from(n) * class.every_ms);
                (at, format!("{namespace}/{}-{n}", class.name), class)
            }));
        }
    }
    due.sort_by(|(a, one, _), (b, other, _)| (a, one).cmp(&(b, other)));
    due
}

/// Waits until all jobs have ended; when each was admitted, and when the last one ended.
async fn follow(
    sightings: &mut mpsc::Receiver<Sighting>,
    wanted: usize,
    began: Instant,
) -> anyhow::Result<(BTreeMap<String, Instant>, Instant)> {
    let mut admitted: BTreeMap<String, Instant> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    let mut last = began;
    let mut told = began;
    while ended.len() < wanted {
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            say(&format!(
                "queue: after {:.0} s {} of {wanted} jobs admitted, {} ended",
                began.elapsed().as_secs_f64(),
                admitted.len(),
                ended.len()
            ));
        }
        match tokio::time::timeout(STALLED, sightings.recv()).await {
            Ok(Some(Sighting::Admitted(id, at))) => {
                admitted.entry(id).or_insert(at);
            }
            Ok(Some(Sighting::Ended(id, at))) => {
                admitted.entry(id.clone()).or_insert(at);
                ended.insert(id);
                last = last.max(at);
            }
            Ok(None) => bail!("the watch on the hub ended"),
            Err(_) => bail!("{} of {wanted} jobs have ended and nothing moves", ended.len()),
        }
    }
    Ok((admitted, last))
}

/// How long the jobs of each class waited, beside the ideal.
fn class_reports(
    plan: &BenchCase,
    sent: Vec<(String, Instant)>,
    admitted: &BTreeMap<String, Instant>,
) -> Vec<ClassReport> {
    let mut of_class: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (id, at) in sent {
        let class =
            id.split_once('/').and_then(|(_, name)| name.rsplit_once('-')).map_or("", |(class, _)| class);
        let class = plan.classes.iter().find(|known| known.name == class).map_or("", |known| known.name);
        let Some(seen) = admitted.get(&id) else { continue };
        of_class.entry(class).or_default().push(seen.saturating_duration_since(at).as_secs_f64());
    }
    let ideal = ideal(plan).admission_s;
    let of = |(class, ideal_mean_s): (&Class, f64)| {
        let mut taken = of_class.remove(class.name).unwrap_or_default();
        taken.sort_by(f64::total_cmp);
        ClassReport {
            class: class.name,
            jobs: taken.len(),
            admission_mean_s: taken.iter().sum::<f64>() / taken.len().max(1) as f64,
            admission_p99_s: percentile(&taken, 99),
            ideal_mean_s,
        }
    };
    plan.classes.iter().zip(ideal).map(of).collect()
}

fn server(client: Client, name: &str) -> Server {
    Server { client, name: name.to_string(), url: format!("the server {name}"), patience: HUB_PATIENCE }
}

fn classes(plan: &BenchCase) -> Vec<Value> {
    let class = |class: &Class| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class.name},
            "value": class.priority})
    };
    plan.classes.iter().map(class).collect()
}

async fn prepare(hub: &Client, plan: &BenchCase) -> anyhow::Result<()> {
    let server = server(hub.clone(), "hub");
    let named =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let mut objects: Vec<Value> = plan.namespaces().iter().map(|name| named("Namespace", name)).collect();
    objects.extend(classes(plan));
    objects.push(plan.tree());
    objects.push(
        json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": {"name": "bench"},
        "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "suspension": {"scheduling": true},
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}}}}),
    );
    apply::apply_all(&server, "default", &objects).await?;
    Ok(())
}

fn batch_jobs(hub: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    Api::namespaced_with(hub, namespace, &kind)
}

fn job(name: &str, class: &Class) -> anyhow::Result<DynamicObject> {
    let run_time = format!("{}ms", class.run_ms);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "annotations": {names::SIM_RUNTIME_ANNOTATION: run_time}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "priorityClassName": class.name,
            "containers": [{"name": "main", "image": "registry.example.com/train:v1",
                "resources": {"requests": {"cpu": class.cores.to_string()}}}]}}}});
    serde_json::from_value(job).context("the bench's job")
}

/// Runs that ended before their jobs.
async fn evictions(hub: &Client) -> anyhow::Result<usize> {
    let api: Api<ResourceBinding> = Api::all(hub.clone());
    let mut count = 0;
    let mut from = None;
    loop {
        let params = ListParams { limit: Some(PAGE), continue_token: from.take(), ..ListParams::default() };
        let page = api.list(&params).await.context("the bindings")?;
        count += page
            .items
            .iter()
            .filter_map(|b| b.status.as_ref())
            .map(|status| status.attempts.len())
            .sum::<usize>();
        from = page.metadata.continue_.filter(|token| !token.is_empty());
        if from.is_none() {
            return Ok(count);
        }
    }
}

fn print(plan: &BenchCase, report: &Report) -> String {
    let mut table = Table::new(&["MEASURE", "FOUND", "AIM"]);
    let mut row = |what: String, found: String, aim: String| table.row([what, found, aim]);
    let aim = format!("<= {} s (ideal {:.1} s)", plan.aims.wall_s, report.ideal_s);
    row(
        format!("{} jobs, from the first submission to the last end", report.jobs),
        format!("{:.1} s", report.wall_s),
        aim,
    );
    for class in &report.classes {
        row(
            format!("time to admission, {}, mean / p99", class.class),
            format!("{:.2} s / {:.2} s", class.admission_mean_s, class.admission_p99_s),
            format!("mean <= {:.2} s (ideal {:.2} s)", class.ideal_mean_s + AIM_LATE_S, class.ideal_mean_s),
        );
    }
    row(
        "useful work of quota x time".to_string(),
        format!("{:.0} %", report.useful_share * 100.0),
        "-".to_string(),
    );
    row("evictions".to_string(), report.evictions.to_string(), "-".to_string());
    row(
        "CPU time, the whole fleet and the client".to_string(),
        format!("{:.1} s, {:.2} ms a job", report.cpu_s, report.cpu_ms_a_job),
        format!("<= {} ms a job", plan.aims.cpu_ms_a_job),
    );
    row(
        "writes a job, hub + member".to_string(),
        format!("{:.2} + {:.2}", report.hub_writes_a_job, report.member_writes_a_job),
        format!("<= {}", plan.aims.writes_a_job),
    );
    for object in report.writes.iter().filter(|object| object.counts()) {
        row(object.what(), object.found(), "-".to_string());
    }
    row("peak memory".to_string(), format!("{:.0} MiB", report.peak_mib), "<= 1024 MiB".to_string());
    table.print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_are_those_that_are_compared() {
        let baseline = plan(Shape::Baseline);
        assert_eq!((baseline.jobs(), baseline.namespaces().len(), baseline.cores()), (15_000, 30, 600));
        assert_eq!(baseline.work_s(), 30.0 * 1320.0);
        let large = plan(Shape::LargeScale);
        assert_eq!((large.jobs(), large.namespaces().len(), large.cores()), (50_000, 1_000, 20_000));
        let root = serde_json::from_value(baseline.tree()["spec"]["root"].clone()).expect("a tree");
        let (tree, warnings) = fleet_quota_tree::QuotaTree::build(&root).expect("usable");
        assert_eq!((tree.leaves().count(), warnings), (30, vec![]));
    }
}

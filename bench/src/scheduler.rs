//! The member's scheduler: the planner alone, then end to end with an embedded API server, hollow nodes and an agent.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use fleet_api::{
    crds::{Side, definitions},
    names,
};
use fleet_apiserver::{ApiServer, Config};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{PostParams, Request},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    measured::{cpu_s, peak_mib, say},
    planner_rows::{self, Row},
};
use fleet_console::table::Table;

/// Pods created at once.
const CREATES_AT_ONCE: usize = 64;
/// Most pods without a node: beyond this, the agent's watches would fall behind the log.
const UNBOUND: usize = 50_000;
/// Interval of the check whether all pods are bound.
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Size of the end-to-end benchmark.
pub struct Size {
    pub nodes: usize,
    pub pods: usize,
    /// Pods in gangs of 8 to 512, not single.
    pub gangs: bool,
}

/// Sizes of gangs, one after the other.
const GANG_SIZES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];

/// The gang of each pod, and how many pods it has.
fn gangs(pods: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::with_capacity(pods);
    for gang in 0.. {
        let size = GANG_SIZES[gang % GANG_SIZES.len()].min(pods - found.len());
        if size == 0 {
            break;
        }
        found.extend(std::iter::repeat_n((gang, size), size));
    }
    found
}

pub async fn run(size: Size) -> anyhow::Result<String> {
    let kind = if size.gangs { "pods in gangs of 8-512" } else { "single pods" };
    say(&format!("{} {kind} on {} nodes, created to bound", size.pods, size.nodes));
    // First, so that its memory is not mixed with that of others.
    let mut rows = end_to_end(&size, kind).await?;
    say("a new agent among 5,000 nodes, 87,000 groups, 140,000 pods");
    rows.push(restart().await?);
    say("the planner alone");
    rows.extend(tokio::task::spawn_blocking(planner_rows::rows).await??);
    Ok(print(&rows))
}

fn print(rows: &[Row]) -> String {
    let mut table = Table::new(&["WORK", "FOUND", "AIM"]);
    for row in rows {
        let sign = if row.unit == "pods/s" { ">=" } else { "<=" };
        table.row([
            row.what.clone(),
            format!("{:.1} {}", row.found, row.unit),
            format!("{sign} {} {}", row.aim, row.unit),
        ]);
    }
    table.print()
}

async fn open(side: Side) -> anyhow::Result<ApiServer> {
    let config = Config { crds: definitions(side), ..Config::default() };
    ApiServer::open(config).await.context("cannot open an API server")
}

/// An agent with its hub.
struct Agent {
    hub: ApiServer,
    shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Agent {
    async fn start(member: &ApiServer) -> anyhow::Result<Self> {
        let mut options = member_agent::Options::new("bench");
        options.scheduler_names = ["fleet".to_owned(), "volcano".to_owned()].into();
        options.report_interval = Duration::from_secs(1);
        let hub = open(Side::Hub).await?;
        let (hub_client, client) =
            (Client::new(hub.router(), "default"), Client::new(member.router(), "default"));
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(member_agent::run(hub_client, client, options, shutdown.clone()));
        Ok(Self { hub, shutdown, task })
    }

    async fn stop(self) {
        self.shutdown.cancel();
        let _ = self.task.await;
        self.hub.shutdown().await;
    }
}

/// A member and its hub: API servers in this process, nodes without kubelets, and the agent.
async fn end_to_end(size: &Size, kind: &str) -> anyhow::Result<Vec<Row>> {
    let server = open(Side::Member).await?;
    let client = Client::new(server.router(), "default");
    make_nodes(&client, size.nodes).await?;
    let agent = Agent::start(&server).await?;
    let (start, cpu) = (Instant::now(), cpu_s()?);
    let gangs = if size.gangs { gangs(size.pods) } else { Vec::new() };
    let bound_before = AtomicUsize::new(0);
    let made = stream::iter(0..size.pods)
        .map(|i| {
            let gang = gangs.get(i).copied();
            let (client, bound_before) = (client.clone(), &bound_before);
            async move {
                while i >= bound_before.load(Ordering::Relaxed) + UNBOUND {
                    tokio::time::sleep(LOOK).await;
                }
                // As text: parsing by the client is not measured.
                let request = Request::new("/api/v1/namespaces/default/pods")
                    .create(&PostParams::default(), pod(i, gang).to_string().into_bytes())?;
                client.request_text(request).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CREATES_AT_ONCE);
    let made = async {
        made.try_collect::<()>().await?;
        anyhow::Ok(start.elapsed().as_secs_f64())
    };
    let (created, bound) = tokio::try_join!(made, all_bound(&server, 0..size.pods, start, &bound_before))?;
    let cpu = cpu_s()? - cpu;
    agent.stop().await;
    server.shutdown().await;
    let memory = peak_mib()? / 1024.0;
    let speed = Row {
        what: format!(
            "end to end: {} {kind}, {} nodes, created ({created:.1} s) to bound ({bound:.1} s, {cpu:.1} s of processor)",
            size.pods, size.nodes
        ),
        found: size.pods as f64 / bound,
        unit: "pods/s",
        aim: if size.gangs { 10_000.0 } else { 5_000.0 },
    };
    let what = "end to end: most memory of the server, the agent and the client together".to_owned();
    Ok(vec![speed, Row { what, found: memory, unit: "GiB", aim: 4.0 }])
}

/// Seconds from the start of an agent until a gang that was waiting has its nodes, in a member full of objects.
async fn restart() -> anyhow::Result<Row> {
    const NODES: usize = 5_000;
    const GROUPS: usize = 87_000;
    const PODS: usize = 140_000;
    let server = open(Side::Member).await?;
    make_nodes(&Client::new(server.router(), "default"), NODES).await?;
    let groups = (0..GROUPS).map(|group| {
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": format!("group-{group}"), "namespace": "default"},
            "spec": {"minMember": 1, "queue": "default"}, "status": {"phase": "Running", "running": 1}})
    });
    server.objects("scheduling.volcano.sh/v1beta1", "podgroups")?.create(groups.collect()).await?;
    let pods = (0..PODS).map(|i| {
        let mut pod = pod(i, None);
        pod["metadata"]["annotations"] =
            json!({"scheduling.k8s.io/group-name": format!("group-{}", i % GROUPS)});
        pod["spec"]["nodeName"] = json!(format!("node-{:05}", i % NODES));
        pod["status"] = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"});
        pod
    });
    let objects = server.objects("v1", "pods")?;
    objects.create(pods.collect()).await?;
    let waiting = (PODS..PODS + 8).map(|i| pod(i, Some((0, 8))));
    objects.create(waiting.collect()).await?;
    let start = Instant::now();
    let agent = Agent::start(&server).await?;
    let bound = all_bound(&server, PODS..PODS + 8, start, &AtomicUsize::new(0)).await?;
    agent.stop().await;
    server.shutdown().await;
    Ok(Row {
        what: format!(
            "end to end: a new agent among {NODES} nodes, {GROUPS} groups, {PODS} pods, to the first bind"
        ),
        found: bound,
        unit: "s",
        aim: 5.0,
    })
}

async fn make_nodes(client: &Client, count: usize) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for i in 0..count {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{i:05}"), "labels": {"kubernetes.io/hostname": format!("node-{i:05}")}},
        });
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let status = json!({"status": {
            "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let patch = kube::api::Patch::Merge(status);
        nodes.patch_status(&format!("node-{i:05}"), &kube::api::PatchParams::default(), &patch).await?;
    }
    Ok(())
}

fn pod(i: usize, gang: Option<(usize, usize)>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name(i), "namespace": "default"},
        "spec": {"schedulerName": "fleet", "containers": [{"name": "main", "image": "registry.example.com/train:v1",
            "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}]},
    });
    if let Some((gang, size)) = gang {
        pod["metadata"]["annotations"] = json!({
            names::GANG_ANNOTATION: format!("gang-{gang}"),
            names::GANG_SIZE_ANNOTATION: size.to_string(),
        });
    }
    pod
}

/// Name of the pod of that number.
fn pod_name(i: usize) -> String {
    format!("pod-{i:07}")
}

/// Seconds from `start` until all pods of these numbers have a node. All before `bound_before` have one meanwhile.
async fn all_bound(
    server: &ApiServer,
    wanted: Range<usize>,
    start: Instant,
    bound_before: &AtomicUsize,
) -> anyhow::Result<f64> {
    let pods = server.objects("v1", "pods")?;
    let is_bound = |i: usize| {
        pods.get(&format!("default/{}", pod_name(i))).is_some_and(|pod| pod.has(&["spec", "nodeName"]))
    };
    // Each pod is checked until it is bound, and then never again.
    let mut first_open = wanted.start;
    loop {
        while first_open < wanted.end && is_bound(first_open) {
            first_open += 1;
        }
        bound_before.store(first_open, Ordering::Relaxed);
        if first_open == wanted.end {
            return Ok(start.elapsed().as_secs_f64());
        }
        if start.elapsed() > PATIENCE {
            bail!("{} is not bound after {PATIENCE:?}", pod_name(first_open));
        }
        tokio::time::sleep(LOOK).await;
    }
}

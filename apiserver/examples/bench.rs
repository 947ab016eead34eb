//! The figures of the API server in `docs/benchmarks.md`: `bench [PODS] [IN_FLIGHT] [FLEET_PODS]`.
//!
//! Each group of lines runs in a process of its own, so that its memory is its own; `bench line NAME PODS IN_FLIGHT` runs
//! one group.

use anyhow::Context;
use axum::body::Body;
use bytes::Bytes;
use fleet_apiserver::{ApiServer, Config, ObjectChange, ServeOptions, Stored};
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::ServiceExt;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// Connections of the client over TLS.
const CONNECTIONS: usize = 2;
/// Watchers of all pods at once.
const WATCHERS: usize = 50;
/// Nodes of the simulated fleet.
const NODES: usize = 10_000;
/// Objects written at once by the simulator.
const BATCH: usize = 1000;
/// Pods that may be under way at once, so that nobody falls out of the log.
const UNDER_WAY: usize = 2500;

/// Resident memory of this process in bytes.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = text.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

/// Most memory this process had, in bytes.
fn peak() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kilobytes: f64 = line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0.0);
    kilobytes * 1024.0
}

/// Processor time of this process so far, in seconds, to a hundredth.
fn processor() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name stands in brackets and may have blanks; user and system time are fields 14 and 15.
    let rest = text.rsplit(')').next().unwrap_or_default();
    let field = |n: usize| rest.split_whitespace().nth(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / TICKS_PER_SECOND
}

fn pod(i: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{i:07}"), "namespace": "default",
            "labels": {"job": format!("job-{}", i / 64), "rank": (i % 64).to_string()}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry/train:1",
            "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}},
            "env": [{"name": "RANK", "value": (i % 64).to_string()}, {"name": "WORLD", "value": "64"}],
            "ports": [{"containerPort": 23456}]}]}})
}

fn node(i: usize) -> Value {
    let amounts = json!({"cpu": "128", "memory": "2Ti", "nvidia.com/gpu": "8", "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{i:05}"),
        "labels": {"kubernetes.io/hostname": format!("node-{i:05}"), "rack": format!("rack-{}", i / 16)}},
        "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}})
}

fn running(i: usize, now: &str) -> Value {
    let ip = format!("10.{}.{}.{}", i / 62_500, i / 250 % 250, i % 250);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": now, "hostIP": "192.168.0.1",
        "conditions": [condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"),
            condition("Ready")],
        "containerStatuses": [{"name": "main", "image": "registry/train:1", "imageID": "registry/train:1",
            "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": now}}}]})
}

fn binding(i: usize) -> String {
    json!({"metadata": {"name": format!("pod-{i:07}")}, "target": {"kind": "Node", "name": format!("node-{:05}", i % NODES)}}).to_string()
}

/// Where requests go.
#[derive(Clone)]
enum Door {
    Process(axum::Router),
    Tls(Arc<Vec<SendRequest<Full<Bytes>>>>, String),
}

impl Door {
    async fn send(
        self,
        n: usize,
        method: &str,
        path: String,
        kind: &str,
        body: String,
    ) -> anyhow::Result<Bytes> {
        let request =
            Request::builder().method(method).header("content-type", kind).header("user-agent", "bench/1");
        let (status, bytes) = match self {
            Door::Process(router) => {
                let response = router.oneshot(request.uri(path).body(Body::from(body))?).await?;
                (response.status(), response.into_body().collect().await?.to_bytes())
            }
            Door::Tls(connections, token) => {
                let request = request
                    .uri(format!("https://localhost{path}"))
                    .header("authorization", format!("Bearer {token}"))
                    .body(Full::from(body))?;
                let mut connection = connections[n % connections.len()].clone();
                let response = connection.send_request(request).await?;
                (response.status(), response.into_body().collect().await?.to_bytes())
            }
        };
        anyhow::ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&bytes));
        Ok(bytes)
    }
}

async fn connect(address: std::net::SocketAddr, ca_pem: &str) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = tokio::net::TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let stream =
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect("localhost".try_into()?, tcp).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Runs `n` requests with some in flight, and prints how many went in a second and what each took of the processor,
/// client and server together.
async fn rate<F, R>(what: &str, aim: &str, n: usize, in_flight: usize, f: F) -> anyhow::Result<()>
where
    F: Fn(usize) -> R,
    R: Future<Output = anyhow::Result<Bytes>> + Send + 'static,
{
    let (start, before) = (Instant::now(), processor());
    all(n, in_flight, f).await?;
    let rate = n as f64 / start.elapsed().as_secs_f64();
    println!("{what}|{aim}|{rate:.2}|/s|{:.0} us", (processor() - before) / n as f64 * 1e6);
    Ok(())
}

/// Runs `n` requests with some in flight.
async fn all<F, R>(n: usize, in_flight: usize, f: F) -> anyhow::Result<()>
where
    F: Fn(usize) -> R,
    R: Future<Output = anyhow::Result<Bytes>> + Send + 'static,
{
    let tasks = futures::stream::iter(0..n).map(|i| tokio::spawn(f(i))).buffer_unordered(in_flight);
    futures::pin_mut!(tasks);
    while let Some(done) = tasks.next().await {
        done??;
    }
    Ok(())
}

/// One figure: what, the aim in words, the value, its unit.
fn figure(what: &str, aim: &str, value: f64, unit: &str) {
    println!("{what}|{aim}|{value:.2}|{unit}");
}

/// Creates, binds and patches through one door.
async fn writes(door: Door, label: &str, aims: [&str; 3], n: usize, in_flight: usize) -> anyhow::Result<()> {
    let call = |i: usize, method: &'static str, path: String, kind: &'static str, body: String| {
        door.clone().send(i, method, path, kind, body)
    };
    let create = |i: usize| call(i, "POST", PODS.into(), JSON, pod(i).to_string());
    rate(&format!("pod creates, {label}"), aims[0], n, in_flight, create).await?;
    let bind = |i: usize| call(i, "POST", format!("{PODS}/pod-{i:07}/binding"), JSON, binding(i));
    rate(&format!("binds, {label}"), aims[1], n, in_flight, bind).await?;
    let patch = |i: usize| {
        let body = json!({"status": running(i, "2026-01-01T00:00:00Z")}).to_string();
        call(i, "PATCH", format!("{PODS}/pod-{i:07}/status"), MERGE, body)
    };
    rate(&format!("status patches, {label}"), aims[2], n, in_flight, patch).await
}

/// How long the disk takes to keep one page, in milliseconds: no acknowledged write is faster.
fn disk(dir: &std::path::Path) -> anyhow::Result<f64> {
    const PAGES: u64 = 100;
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(dir.join("probe"))?;
    file.write_all_at(&[0; 4096 * PAGES as usize], 0)?;
    file.sync_all()?;
    let start = Instant::now();
    for page in 0..PAGES {
        file.write_all_at(&page.to_le_bytes().repeat(512), page * 4096)?;
        file.sync_data()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3 / PAGES as f64)
}

async fn over_tls(n: usize, in_flight: usize) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    figure("one fdatasync of this disk", "-", disk(dir.path())?, "ms");
    let config = Config { data_dir: Some(dir.path().into()), ..Config::default() };
    let api = ApiServer::open(config).await?;
    let server = api.serve(ServeOptions::default()).await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connect(server.local_addr(), &server.ca_pem()).await?);
    }
    let door = Door::Tls(Arc::new(connections), api.admin_token());
    writes(
        door,
        &format!("TLS, fsync, {in_flight} in flight"),
        [">= 5000/s", ">= 8000/s", ">= 6000/s"],
        n,
        in_flight,
    )
    .await?;
    server.shutdown().await;
    api.shutdown().await;
    Ok(())
}

async fn in_process(n: usize, in_flight: usize) -> anyhow::Result<()> {
    let api = ApiServer::open(Config::default()).await?;
    let before = resident();
    let door = Door::Process(api.router());
    writes(door.clone(), "in process", [">= 30000/s", "-", "-"], n, in_flight).await?;
    figure("memory per pod, fully tracked", "<= 3 kB", (resident() - before) / n as f64 / 1e3, "kB");
    let pods = api.objects("v1", "pods")?.all();
    let packed: usize = pods.iter().map(Stored::size).sum();
    figure("  of that, its own bytes", "-", packed as f64 / pods.len() as f64, "B");
    drop(pods);
    let get = |i: usize| door.clone().send(i, "GET", format!("{PODS}/pod-{i:07}"), JSON, String::new());
    rate("gets, in process", "-", n, in_flight, get).await?;
    let apply = |i: usize| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{}", i % 500)},
            "data": {"x": i.to_string()}});
        let path =
            format!("/api/v1/namespaces/default/configmaps/c{}?fieldManager=bench&force=true", i % 500);
        door.clone().send(i, "PATCH", path, "application/apply-patch+yaml", body.to_string())
    };
    rate("server-side apply, in process", "-", n, in_flight, apply).await?;
    let start = Instant::now();
    let bytes = door.clone().send(0, "GET", PODS.into(), JSON, String::new()).await?.len();
    figure("list all, in process", "-", bytes as f64 / start.elapsed().as_secs_f64() / 1e6, "MB/s");
    let delete = |i: usize| {
        let path = format!("{PODS}/pod-{i:07}?gracePeriodSeconds=0");
        door.clone().send(i, "DELETE", path, JSON, String::new())
    };
    rate("deletes, in process", "-", n, in_flight, delete).await
}

async fn watches(n: usize, in_flight: usize) -> anyhow::Result<()> {
    let api = ApiServer::open(Config::default()).await?;
    let door = Door::Process(api.router());
    all(n, in_flight, |i| door.clone().send(i, "POST", PODS.into(), JSON, pod(i).to_string())).await?;
    let at = api.objects("v1", "pods")?.all().iter().map(Stored::revision).max().unwrap_or(0);
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let path = format!("/api/v1/pods?watch=true&resourceVersion={at}");
        let response = api.router().oneshot(Request::builder().uri(path).body(Body::empty())?).await?;
        let mut body = response.into_body();
        watchers.push(tokio::spawn(async move {
            let mut seen = 0;
            while seen < n {
                let Some(Ok(frame)) = body.frame().await else { break };
                seen += frame.data_ref().map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
            }
            seen
        }));
    }
    let start = Instant::now();
    all(n, in_flight, |i| {
        let body = json!({"status": {"phase": "Running"}}).to_string();
        door.clone().send(i, "PATCH", format!("{PODS}/pod-{i:07}/status"), MERGE, body)
    })
    .await?;
    let mut seen = 0;
    for watcher in watchers {
        seen += watcher.await?;
    }
    anyhow::ensure!(seen == n * WATCHERS, "{seen} deliveries instead of {}", n * WATCHERS);
    let rate = seen as f64 / start.elapsed().as_secs_f64();
    figure(&format!("watch deliveries, {WATCHERS} watchers of all pods"), ">= 150000/s", rate, "/s");
    Ok(())
}

/// Stays up until it is told to go, so that its start and its memory can be measured from outside.
async fn idle() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let config = Config { data_dir: Some(dir.path().into()), ..Config::default() };
    let api = ApiServer::open(config).await?;
    let server = api.serve(ServeOptions::default()).await?;
    println!("{} {}", server.local_addr(), serde_json::to_string(&server.ca_pem())?);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    server.shutdown().await;
    api.shutdown().await;
    Ok(())
}

async fn start_and_idle() -> anyhow::Result<()> {
    let start = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .args(["line", "idle", "0", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().context("no output")?).read_line(&mut line)?;
    let (address, ca) = line.trim().split_once(' ').context("no address")?;
    let mut connection = connect(address.parse()?, &serde_json::from_str::<String>(ca)?).await?;
    let request = Request::builder().uri("https://localhost/readyz").body(Full::default())?;
    let ready = connection.send_request(request).await?;
    anyhow::ensure!(ready.status().is_success(), "not ready: {}", ready.status());
    figure("start of the process to ready over TLS", "<= 100 ms", start.elapsed().as_secs_f64() * 1e3, "ms");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", child.id()))?;
    let pages: f64 = statm.split_whitespace().nth(1).context("no statm")?.parse()?;
    figure("idle memory", "<= 40 MB", pages * 4096.0 / 1e6, "MB");
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}

/// Runs `n` pods to their end: create and bind, then run and complete as the commit log shows each step.
async fn simulate(api: &ApiServer, n: usize) -> anyhow::Result<()> {
    let pods = api.objects("v1", "pods")?;
    let mut follower = pods.follow();
    let driver = pods.clone();
    let (done, mut ended) = tokio::sync::watch::channel(0);
    let kubelets = tokio::spawn(async move {
        let mut finished = 0;
        while finished < n {
            let Some(batch) = follower.next().await else { break };
            if batch.whole {
                finished = 0;
            }
            let now = driver.now();
            let mut next = Vec::new();
            for change in batch.changes {
                let ObjectChange::Put(stored) = change else { continue };
                match stored.text(&["status", "phase"]).as_str() {
                    "Succeeded" => finished += 1,
                    "Running" => {
                        let mut value = stored.value();
                        value["status"]["phase"] = "Succeeded".into();
                        value["status"]["containerStatuses"][0]["state"] =
                            json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}});
                        next.push((stored, value));
                    }
                    _ if stored.has(&["spec", "nodeName"]) => {
                        let mut value = stored.value();
                        value["status"] = running(finished + next.len(), &now);
                        next.push((stored, value));
                    }
                    _ => {}
                }
            }
            driver.update(next).await?;
            done.send_replace(finished);
        }
        anyhow::Ok(finished)
    });
    for first in (0..n).step_by(BATCH) {
        ended.wait_for(|ended| first.saturating_sub(*ended) < UNDER_WAY).await?;
        let made = pods.create((first..n.min(first + BATCH)).map(pod).collect()).await?;
        let bound = made.into_iter().enumerate().map(|(i, stored)| {
            let mut value = stored.value();
            value["spec"]["nodeName"] = format!("node-{:05}", (first + i) % NODES).into();
            (stored, value)
        });
        pods.update(bound.collect()).await?;
    }
    anyhow::ensure!(kubelets.await?? == n, "the server closed");
    Ok(())
}

async fn fleet(n: usize) -> anyhow::Result<()> {
    let api = ApiServer::open(Config::default()).await?;
    let (before, used) = (resident(), processor());
    let start = Instant::now();
    api.objects("v1", "nodes")?.create((0..NODES).map(node).collect()).await?;
    simulate(&api, n).await?;
    let what = format!("{NODES} nodes, {n} pods created, bound, run, completed");
    let each = (processor() - used) / n as f64 * 1e6;
    println!("{what}|<= 120 s|{:.2}|s|{each:.0} us", start.elapsed().as_secs_f64());
    figure("  memory of that, peak", "<= 3 GB", peak() / 1e9, "GB");
    figure("memory per pod, simulated", "<= 0.8 kB", (resident() - before) / n as f64 / 1e3, "kB");
    let pods = api.objects("v1", "pods")?.all();
    let packed: usize = pods.iter().map(Stored::size).sum();
    figure("  of that, its own bytes", "-", packed as f64 / pods.len() as f64, "B");
    Ok(())
}

async fn restart(n: usize) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let config = || Config { data_dir: Some(dir.path().into()), ..Config::default() };
    {
        let api = ApiServer::open(config()).await?;
        simulate(&api, n).await?;
        api.shutdown().await;
    }
    let size = std::fs::metadata(dir.path().join("store.redb"))?.len();
    let start = Instant::now();
    let api = ApiServer::open(config()).await?;
    let request = Request::builder().uri("/readyz").body(Body::empty())?;
    let ready = api.router().oneshot(request).await?;
    anyhow::ensure!(ready.status().is_success() && api.objects("v1", "pods")?.len() == n);
    figure(&format!("restart with {n} objects"), "<= 10 s", start.elapsed().as_secs_f64(), "s");
    figure("  file of that store", "-", size as f64 / 1e6, "MB");
    Ok(())
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{cores} cores, {}; load {}", model.trim_start_matches([' ', '\t', ':']), load.trim())
}

fn print_group(name: &str, n: usize, in_flight: usize) -> anyhow::Result<()> {
    let output = Command::new(std::env::current_exe()?)
        .args(["line", name, &n.to_string(), &in_flight.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "line {name} failed");
    for line in String::from_utf8(output.stdout)?.lines() {
        let mut parts = line.split('|');
        let mut part = || parts.next().unwrap_or_default();
        let (what, aim, value, unit, processor) = (part(), part(), part(), part(), part());
        println!("{what:60} {aim:>12} {value:>12} {unit:4} {processor:>8}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let line = if arguments.peek().is_some_and(|a| a == "line") { arguments.nth(1) } else { None };
    let n: usize = arguments.next().map_or(Ok(20_000), |a| a.parse())?;
    let in_flight: usize = arguments.next().map_or(Ok(32), |a| a.parse())?;
    match line.as_deref() {
        None => {}
        Some("tls") => return over_tls(n, in_flight).await,
        Some("process") => return in_process(n, in_flight).await,
        Some("watch") => return watches(n, in_flight).await,
        Some("start") => return start_and_idle().await,
        Some("idle") => return idle().await,
        Some("fleet") => return fleet(n).await,
        Some("restart") => return restart(n).await,
        Some(other) => anyhow::bail!("line {other:?}: allowed: tls, process, watch, start, fleet, restart"),
    }
    let fleet: usize = arguments.next().map_or(Ok(1_000_000), |a| a.parse())?;
    println!("{}", machine());
    println!("{:60} {:>12} {:>12} {:4} {:>8}", "work", "aim", "here", "", "each");
    print_group("tls", n, in_flight)?;
    // A disk that takes its time to keep a page needs more writers to be busy.
    print_group("tls", n, 4 * in_flight)?;
    for (name, n) in [("process", n), ("watch", n), ("start", 0), ("fleet", fleet), ("restart", fleet)] {
        print_group(name, n, in_flight)?;
    }
    Ok(())
}

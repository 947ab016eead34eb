//! Throughput in process, with fixed inputs: `bench [OPERATIONS] [IN_FLIGHT] [DATA_DIR]`.

use axum::body::Body;
use fleet_apiserver::{ApiServer, Config};
use futures::StreamExt;
use http::Request;
use http_body_util::BodyExt;
use std::time::Instant;
use tower::ServiceExt;

async fn send(
    router: axum::Router,
    method: &str,
    path: String,
    kind: &str,
    body: String,
) -> anyhow::Result<bytes::Bytes> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .header("user-agent", "bench/1")
        .body(Body::from(body))?;
    let response = router.oneshot(request).await?;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&bytes));
    Ok(bytes)
}

async fn phase<F, R>(name: &str, n: usize, in_flight: usize, f: F) -> anyhow::Result<()>
where
    F: Fn(usize) -> R,
    R: Future<Output = anyhow::Result<bytes::Bytes>> + Send + 'static,
{
    let start = Instant::now();
    let tasks = futures::stream::iter(0..n).map(|i| tokio::spawn(f(i))).buffer_unordered(in_flight);
    futures::pin_mut!(tasks);
    let mut bytes = 0;
    while let Some(done) = tasks.next().await {
        bytes += done??.len();
    }
    let s = start.elapsed().as_secs_f64();
    println!(
        "{name:28} {:>9.0} /s {:>7.1} us each {:>7.1} MB/s",
        n as f64 / s,
        s * 1e6 / n as f64,
        bytes as f64 / s / 1e6
    );
    Ok(())
}

fn pod(i: usize) -> String {
    serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{i:06}"), "labels": {"job": "j1", "rank": i.to_string()}},
        "spec": {"containers": [{"name": "main", "image": "registry/train:1",
            "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}},
            "env": [{"name": "RANK", "value": i.to_string()}, {"name": "WORLD", "value": "64"}],
            "ports": [{"containerPort": 23456}]}]}})
    .to_string()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let n: usize = arguments.next().map_or(Ok(20_000), |a| a.parse())?;
    let in_flight: usize = arguments.next().map_or(Ok(32), |a| a.parse())?;
    let rss = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: usize = text.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
        pages as f64 * 4096.0 / 1e6
    };
    let before = rss();
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(ApiServer::open(Config::default()).await?);
    }
    println!("four idle servers: {:.1} MB above {before:.1} MB", rss() - before);
    let start = Instant::now();
    let api =
        ApiServer::open(Config { data_dir: arguments.next().map(Into::into), ..Config::default() }).await?;
    println!("open: {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    let base = "/api/v1/namespaces/default/pods";
    let merge = "application/merge-patch+json";
    let call = |method: &'static str, path: String, kind: &'static str, body: String| {
        send(api.router(), method, path, kind, body)
    };
    phase("create pod", n, in_flight, |i| call("POST", base.into(), "application/json", pod(i))).await?;
    println!("{n} pods: {:.1} MB", rss() - before);
    phase("bind pod", n, in_flight, |i| {
        let body =
            serde_json::json!({"target": {"kind": "Node", "name": format!("node-{}", i % 100)}}).to_string();
        call("POST", format!("{base}/pod-{i:06}/binding"), "application/json", body)
    })
    .await?;
    phase("status merge patch", n, in_flight, |i| {
        let body = serde_json::json!({"status": {"phase": "Running", "podIP": format!("10.0.{}.{}", i / 250, i % 250),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
        .to_string();
        call("PATCH", format!("{base}/pod-{i:06}/status"), merge, body)
    })
    .await?;
    phase("status merge patch, no-op", n, in_flight, |i| {
        let body = serde_json::json!({"status": {"phase": "Running"}}).to_string();
        call("PATCH", format!("{base}/pod-{i:06}/status"), merge, body)
    })
    .await?;
    phase("server-side apply cm", n, in_flight, |i| {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{}", i % 500)},
            "data": {"x": i.to_string()}})
        .to_string();
        let path = format!("/api/v1/namespaces/default/configmaps/c{}?fieldManager=bench&force=true", i % 500);
        call("PATCH", path, "application/apply-patch+yaml", body)
    })
    .await?;
    phase("get pod", n, in_flight, |i| {
        call("GET", format!("{base}/pod-{i:06}"), "application/json", String::new())
    })
    .await?;
    phase("list page of 500", 40, 4, |_| {
        call("GET", format!("{base}?limit=500"), "application/json", String::new())
    })
    .await?;
    phase("list all", 4, 1, |_| call("GET", base.into(), "application/json", String::new())).await?;
    phase("delete pod", n, in_flight, |i| {
        call("DELETE", format!("{base}/pod-{i:06}?gracePeriodSeconds=0"), "application/json", String::new())
    })
    .await?;
    api.shutdown().await;
    Ok(())
}

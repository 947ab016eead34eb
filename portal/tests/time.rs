//! Pages of a recording: alone, and beside a hub that asks who may do what.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, header},
};
use fleet_portal::{
    time::Time,
    web::{Audience, Web, recording, router},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::hub::{self, Hub, ODD, location};

/// A reclaim: wide of team b runs, own of team a takes its place back.
fn run() -> String {
    let lines = [
        json!({"t": 0, "event": "Cluster", "cluster": "east", "facts": {"ready": true, "nodes": 2, "nodes_ready": 2,
            "allocatable": {"nvidia.com/gpu": 16}, "groups": [{"count": 2, "gpus": 8, "gpus_free": 8, "names": ["n-0", "n-1"]}]}}),
        json!({"t": 0, "event": "Tree", "root": {"name": "root", "children": [
            {"name": "a", "min": {"nvidia.com/gpu": 16}}, {"name": "b", "min": {"nvidia.com/gpu": 0}}]}}),
        json!({"t": 0, "event": "VirtualCluster", "virtual_cluster": "vc1", "facts": {"name": "VC1", "guaranteed": 8, "used": 0, "lent": 6, "gpu": "0/8", "waiting": 0}}),
        json!({"t": 0, "event": "Submitted", "job": "b/wide", "kind": "PyTorchJob", "gpus": 16, "components": {"worker": 2}, "priority": 0}),
        json!({"t": 0, "event": "Queued", "job": "b/wide", "queue": "root/b"}),
        json!({"t": 1, "event": "Bound", "job": "b/wide", "cluster": "east", "epoch": 1}),
        json!({"t": 2, "event": "Started", "job": "b/wide", "cluster": "east", "epoch": 1, "nodes": {"worker": ["n-0", "n-1"]}}),
        json!({"t": 20, "event": "Submitted", "job": "a/own", "kind": "PyTorchJob", "gpus": 8, "components": {"worker": 1}, "priority": 5}),
        json!({"t": 20, "event": "Queued", "job": "a/own", "queue": "root/a", "reason": "Queuing", "message": ODD}),
        json!({"t": 21.5, "event": "Preempted", "job": "b/wide", "cluster": "east", "epoch": 1, "by": "a/own", "reason": "Reclaim"}),
        json!({"t": 21.5, "event": "Requeued", "job": "b/wide", "queue": "root/b", "reason": "Preempted"}),
        json!({"t": 22, "event": "Bound", "job": "a/own", "cluster": "east", "epoch": 1}),
        json!({"t": 22, "event": "VirtualCluster", "virtual_cluster": "vc1", "facts": {"name": "VC1", "guaranteed": 8, "used": 7, "lent": 0, "gpu": "7/8", "running": 1}}),
        json!({"t": 22, "event": "Started", "job": "a/own", "cluster": "east", "epoch": 1, "nodes": {"worker": ["n-0"]}}),
        json!({"t": 40, "event": "VirtualCluster", "virtual_cluster": "vc1"}),
        json!({"t": 60, "event": "Finished", "job": "a/own", "cluster": "east", "epoch": 1, "result": "Succeeded"}),
    ];
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn file(name: &str, text: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("fleet-portal-time-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    });
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file that can be written");
    path
}

fn alone(path: &Path) -> Router {
    recording(Arc::new(Time::open(path).expect("a log")), Audience::Machine)
}

async fn get(pages: &Router, path: &str, accept: &str) -> (u16, HeaderMap, String) {
    let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).expect("a request");
    let answer = pages.clone().oneshot(request).await.expect("an answer");
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    (parts.status.as_u16(), parts.headers, String::from_utf8_lossy(&bytes).into_owned())
}

async fn page(pages: &Router, path: &str) -> String {
    let (status, _, body) = get(pages, path, "text/html").await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

async fn data(pages: &Router, path: &str) -> Value {
    serde_json::from_str(&get(pages, path, "application/json").await.2).expect("JSON")
}

#[tokio::test]
async fn every_page_shows_the_fleet_as_it_was() {
    let pages = alone(&file("run.jsonl", &run()));
    let states = async |at: &str| {
        let jobs = data(&pages, &format!("/jobs?sort=name&order=asc{at}")).await;
        let rows = jobs["rows"].as_array().expect("rows").clone();
        rows.iter()
            .map(|row| format!("{} {}", row["name"], row["state"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(states("&at=0").await, ["wide Waiting"]);
    assert_eq!(states("&at=2000").await, ["wide Running"]);
    assert_eq!(states("&at=21499").await, ["own Waiting", "wide Running"]);
    assert_eq!(states("&at=21500").await, ["own Waiting", "wide Waiting"]);
    assert_eq!(states("&at=22000.4").await, ["own Running", "wide Waiting"]);
    // Without an instant, and beyond the end: the end.
    assert_eq!(states("").await, ["own Succeeded", "wide Waiting"]);
    assert_eq!(states("&at=99999999").await, ["own Succeeded", "wide Waiting"]);

    let queues = data(&pages, "/queues?at=10000").await;
    assert_eq!(queues["rows"][1]["bars"][0]["text"], "0 gpu used, 16 guaranteed, 16 lent");
    let clusters = data(&pages, "/clusters?at=30000").await;
    assert_eq!(clusters["rows"][0]["heat"]["cells"][0]["text"], "n-0: 8 of 8 GPUs used: a/own");
    let job = page(&pages, "/jobs/b/pytorchjobs.kubeflow.org/wide?at=30000").await;
    assert!(job.contains("preempted by a/own (Reclaim)") && job.contains("Its life"), "{job}");
    let queue = page(&pages, "/queues/root/a?at=20000").await;
    assert!(queue.contains("&lt;script&gt;alert(1)") && !queue.contains(ODD), "{queue}");
    let row = async |at: &str| {
        let view = data(&pages, &format!("/virtual-clusters?at={at}")).await;
        view["rows"][0]["bar"]["text"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(row("0").await, "0 of 8 cells used, 8 guaranteed, 6 lent");
    assert_eq!(row("22000").await, "7 of 8 cells used, 8 guaranteed");
    assert_eq!(row("40000").await, "");
    let seen = page(&pages, "/virtual-clusters?at=30000").await;
    assert!(
        seen.contains("VC1") && seen.contains("7/8") && seen.contains("href=\"/virtual-clusters?at=30000\""),
        "{seen}"
    );
    let seen = page(&pages, "/virtual-clusters?at=50000").await;
    assert!(
        !seen.contains("VC1") && seen.contains("The log names no virtual clusters at this time"),
        "{seen}"
    );
    assert!(page(&pages, "/?at=30000").await.contains("VC1"));
    let home = page(&pages, "/?at=21500").await;
    assert!(home.contains("b/wide preempted in east for a/own (Reclaim)"), "{home}");
    assert!(home.contains("Event 11 of 16, at 0:00:21.500:"), "{home}");
}

#[tokio::test]
async fn a_recording_is_read_only_and_its_links_keep_the_instant() {
    let pages = alone(&file("links.jsonl", &run()));
    let seen = [
        "/?at=21500",
        "/?at=0",
        "/queues?at=21500",
        "/queues/root/a?at=21500",
        "/jobs?at=21500&state=Waiting",
        "/jobs/a/pytorchjobs.kubeflow.org/own?at=21500",
        "/clusters?at=21500",
        "/virtual-clusters?at=21500",
        "/virtual-clusters?at=50000",
        "/nothing?at=21500",
    ];
    for path in seen {
        let (_, headers, body) = get(&pages, path, "text/html").await;
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        for wrong in [
            "method=\"post\"",
            "/submit",
            "/configuration",
            "/sign-out",
            "type=\"checkbox\"",
            "form_key",
            "live.js",
            "1970-",
        ] {
            assert!(!body.contains(wrong), "{path} has {wrong}: {body}");
        }
        assert!(body.contains("<b>Recording</b> of links.jsonl, from 0:00:00 to 0:01:00"), "{path}: {body}");
        for link in
            body.split("<a ").skip(1).filter_map(|tag| tag.split('>').next()?.split("href=\"/").nth(1))
        {
            let link = link.split('"').next().unwrap_or_default();
            assert!(link.contains("at="), "{path}: /{link}");
        }
    }
    // The form of the slider keeps what else the page was asked for, and works without a script.
    let body = page(&pages, "/jobs?state=Waiting&at=21500").await;
    assert!(body.contains(r#"<input type="hidden" name="state" value="Waiting">"#), "{body}");
    assert!(body.contains(r#"type="range" name="at" min="0" max="60000" step="any" value="21500" aria-valuetext="0:00:21.500""#), "{body}");
    assert!(body.contains(r#"id="later" href="/jobs?state=Waiting&amp;at=22000""#), "{body}");
    assert!(body.contains(r#"id="earlier" href="/jobs?state=Waiting&amp;at=20000""#), "{body}");
    for path in [
        "/submit?at=1",
        "/virtual-clusters/configuration?at=1",
        "/jobs/a/pytorchjobs.kubeflow.org/own?at=1",
        "/queues/none",
    ] {
        assert_eq!(get(&pages, path, "text/html").await.0, 404, "{path}");
    }
    let request = Request::post("/jobs/stop").body(Body::empty()).expect("a request");
    assert_eq!(pages.clone().oneshot(request).await.expect("an answer").status().as_u16(), 405);
    let odd = page(&pages, "/?at=%22%3E%3Cscript%3E").await;
    assert!(
        odd.contains("at: found")
            && odd.contains("allowed: milliseconds from 0 to 60000")
            && !odd.contains("<script>"),
        "{odd}"
    );
}

#[tokio::test]
async fn a_log_without_clusters_and_one_that_breaks_off_say_so() {
    let text = run();
    let events: String = text.lines().skip(3).map(|line| format!("{line}\n")).collect();
    let broken = format!("{events}{{\"t\":70,\"ev");
    let pages = alone(&file("short.jsonl", &broken));
    let body = page(&pages, "/").await;
    assert!(body.contains("short.jsonl: its last line, 14, breaks off and is left out."), "{body}");
    assert!(body.contains("does not say which clusters and which quota there were"), "{body}");
    let queues = data(&pages, "/queues?at=10000").await;
    assert_eq!(queues["rows"][1]["path"], "root/b");
}

/// The portal of a hub, with a log beside.
async fn beside(log: Option<&Path>) -> Hub {
    let hub = Hub::start().await;
    let web = Web::new(hub.board.clone(), hub.admin.clone(), "the hub".into(), "a".into());
    let web = match log {
        Some(log) => web.recorded_by(Arc::new(Time::following(log))),
        None => web,
    };
    let web = Arc::new(web);
    let (server, admin, board, stop) =
        (hub.server.clone(), hub.admin.clone(), hub.board.clone(), hub.stop.clone());
    let away = hub.away.clone();
    // The one whose end stops the watches goes on living.
    std::mem::forget(hub);
    Hub { server, admin, board, pages: router(web.clone()), web, stop, away }
}

#[tokio::test]
async fn beside_a_hub_each_user_sees_what_he_may() {
    let path = file("beside.jsonl", &run());
    let hub = beside(Some(&path)).await;
    let answer = hub.get(&mut hub::Browser::default(), "/jobs?at=21500").await;
    assert_eq!((answer.status, location(&answer)), (303, "/sign-in?back=%2Fjobs%3Fat%3D21500"));
    let (mut alice, mut root) = (hub.sign_in("token-a").await, hub.sign_in("token-r").await);
    let entered = hub.get(&mut root, "/time").await;
    assert_eq!((entered.status, location(&entered)), (303, "/?at=60000"));
    let all = hub.get(&mut root, "/jobs?at=21500").await.body;
    assert!(all.contains("wide") && all.contains("own") && all.contains("Back to now"), "{all}");
    // She has no job now, and had one then; of the other's she learns nothing.
    for path in
        ["/jobs?at=21500", "/?at=21500", "/queues?at=21500", "/clusters?at=21500", "/queues/root/b?at=21500"]
    {
        let seen = hub.get(&mut alice, path).await.body;
        assert!(!seen.contains("wide"), "{path}: {seen}");
    }
    for path in ["/virtual-clusters?at=21500", "/?at=21500"] {
        assert!(hub.get(&mut root, path).await.body.contains("VC1"), "{path}");
        assert!(!hub.get(&mut alice, path).await.body.contains("VC1"), "{path}");
    }
    let seen = hub.get(&mut alice, "/jobs?at=21500").await.body;
    assert!(seen.contains("own") && seen.contains("11 events of all users up to here"), "{seen}");
    let foreign = hub.get(&mut alice, "/jobs/b/pytorchjobs.kubeflow.org/wide?at=21500").await;
    assert_eq!(foreign.status, 404);
    // What is written meanwhile is seen.
    let more = json!({"t": 61, "event": "Deleted", "job": "a/own"});
    std::fs::write(&path, format!("{}{more}\n", run())).expect("written");
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(location(&hub.get(&mut root, "/time").await), "/?at=61000");
}

#[tokio::test]
async fn without_a_log_the_portal_says_how_to_keep_one() {
    let hub = beside(None).await;
    let mut root = hub.sign_in("token-r").await;
    for path in ["/time", "/jobs?at=5"] {
        let answer = hub.get(&mut root, path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(
            answer.body.contains("No run log is kept") && answer.body.contains("--run-log FILE"),
            "{}",
            answer.body
        );
    }
    let gone = beside(Some(&file("gone.jsonl", "").with_file_name("none.jsonl"))).await;
    let mut root = gone.sign_in("token-r").await;
    let answer = gone.get(&mut root, "/time").await;
    assert!(answer.body.contains("none.jsonl cannot be read"), "{}", answer.body);
}

/// Nobody signs in: a page of another site whose name has come to stand for this machine's address reads nothing.
#[tokio::test]
async fn a_recording_is_not_read_under_the_name_of_another_site() {
    let path = file("named.jsonl", &run());
    let ask = async |pages: &Router, host: &str, at: &str| {
        let request = Request::get(at).header(header::HOST, host).body(Body::empty()).expect("a request");
        let answer = pages.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    let pages = alone(&path);
    for at in ["/", "/jobs?at=2000", "/assets/style.css"] {
        for own in ["127.0.0.1:9286", "localhost:9286", "[::1]:9286"] {
            assert_eq!(ask(&pages, own, at).await.0, 200, "{own}");
        }
        for other in ["evil.example.com", "evil.example.com:9286", "127.0.0.1.example.com", "a b"] {
            let (status, body) = ask(&pages, other, at).await;
            assert!(status == 421 && !body.contains("wide"), "{other}: {status} {body}");
        }
    }
    let open = recording(Arc::new(Time::open(&path).expect("a log")), Audience::Anybody);
    assert_eq!(ask(&open, "fleet.example.com", "/").await.0, 200);
}

/// A log of 100,000 events; prints how long pages take. Not asserted: machines differ.
#[tokio::test]
#[ignore = "a measurement"]
async fn pages_of_a_long_log() {
    let mut text = String::new();
    for index in 0..20_000 {
        let job = format!("team-{}/job-{index}", index % 50);
        let mut line = |event: Value| {
            let mut line = event;
            (line["t"], line["job"]) = (index.into(), job.as_str().into());
            text.push_str(&format!("{line}\n"));
        };
        line(
            json!({"event": "Submitted", "kind": "PyTorchJob", "gpus": 8, "components": {"worker": 1}, "priority": 0}),
        );
        line(json!({"event": "Queued", "queue": format!("root/q{}", index % 7), "reason": "Queuing"}));
        line(json!({"event": "Bound", "cluster": "east", "epoch": 1}));
        line(json!({"event": "Started", "cluster": "east", "epoch": 1}));
        line(json!({"event": "Finished", "cluster": "east", "epoch": 1, "result": "Succeeded"}));
    }
    let began = Instant::now();
    let pages = alone(&file("long.jsonl", &text));
    println!("{} kB read in {:?}", text.len() / 1024, began.elapsed());
    for at in [19_999_000, 10_000_000, 10_001_000, 3_000_000, 3_000_000, 15_000_000] {
        let began = Instant::now();
        let length = page(&pages, &format!("/jobs?at={at}")).await.len();
        println!("at {at}: {length} bytes in {:?}", began.elapsed());
    }
}

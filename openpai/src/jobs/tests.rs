use std::sync::{Arc, Mutex};

use axum::{body::Body, response::Response};
use serde_json::json;

use super::*;
use crate::server::MEMBER_PATIENCE;

/// A hub that has these lists, and tells what it was asked for.
struct Hub {
    server: Server,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    /// Runs of jobs, each with its binding.
    fn of(runs: &[(String, i64)]) -> Self {
        let objects: Vec<Value> = runs.iter().map(|(job, run)| object(job, *run)).collect();
        let bindings: Vec<Value> = objects.iter().rev().map(bound).collect();
        let (jobs, all) = (json!({"items": objects}).to_string(), json!({"items": bindings}).to_string());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = asked.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            let name = path.rsplit('/').next().unwrap_or_default();
            let body = match name {
                "jobs" => jobs.clone(),
                "resourcebindings" => all.clone(),
                name => {
                    let one = bindings.iter().find(|binding| binding["metadata"]["name"] == name);
                    one.map_or_else(|| "{}".to_owned(), Value::to_string)
                }
            };
            told.lock().expect("no panic").push(path);
            async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(body))) }
        });
        let client = kube::Client::new(service, "default");
        let server =
            Server { client, name: "hub".to_owned(), url: "it".to_owned(), patience: MEMBER_PATIENCE * 12 };
        Self { server, asked }
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("no panic").len()
    }
}

fn object(job: &str, run: i64) -> Value {
    let name = names::object_of_run(&format!("alice-{job}"), run);
    json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"),
        "labels": {names::JOB_LABEL: format!("alice-{job}"), names::RUN_LABEL: run.to_string()},
        "annotations": {names::ID_ANNOTATION: format!("alice~{job}")}}})
}

fn bound(object: &Value) -> Value {
    let (name, uid) = (text(&object["metadata"]["name"], ""), &object["metadata"]["uid"]);
    json!({"metadata": {"namespace": "ns", "name": binding_name(object)},
        "spec": {"resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name, "uid": uid},
            "clusters": [{"name": format!("of-{name}")}]}})
}

#[tokio::test]
async fn a_list_of_jobs_costs_what_it_is_long() {
    const JOBS: usize = 12_000;
    // Some have two runs, of which the newer one comes first or last.
    let runs: Vec<(String, i64)> = (0..JOBS)
        .flat_map(|i| {
            let job = format!("j{i:05}");
            match i % 1_000 {
                0 => vec![(job.clone(), 1), (job, 2)],
                1 => vec![(job.clone(), 2), (job, 1)],
                _ => vec![(job, 1)],
            }
        })
        .collect();
    let hub = Hub::of(&runs);
    let began = std::time::Instant::now();
    let items = list(&hub.server, Some("ns")).await.expect("a list");
    let shown: Vec<(String, Option<String>)> =
        items.into_iter().map(|item| (item.debug_id, item.cluster)).collect();
    let expected: Vec<(String, Option<String>)> = (0..JOBS)
        .map(|i| {
            let name = names::object_of_run(&format!("alice-j{i:05}"), if i % 1_000 < 2 { 2 } else { 1 });
            (name.clone(), Some(format!("of-{name}")))
        })
        .collect();
    assert_eq!(shown, expected);
    // Each object compared with each binding takes minutes.
    assert!(began.elapsed().as_secs() < 30);
}

#[tokio::test]
async fn many_runs_of_a_job_are_not_many_requests() {
    for (number, requests) in [(1, 2), (16, 17), (17, 2), (500, 2)] {
        let all: Vec<(String, i64)> = (1..=number).map(|run| ("j".to_owned(), run)).collect();
        let hub = Hub::of(&all);
        let found = runs(&hub.server, Some("ns"), "alice~j").await.expect("runs");
        assert_eq!(found.len() as i64, number);
        assert!(found.iter().all(|run| run.cluster() == Some(format!("of-{}", run.name()).as_str())));
        assert_eq!(found.first().map(|run| run.number), Some(number));
        assert_eq!(hub.asked(), requests, "{number} runs");
    }
}

#[test]
fn numbers_that_a_user_writes_do_not_overflow() {
    let of = |run: &str, phase: &str, number: i64| {
        let mut object = object("j", 1);
        object["metadata"]["labels"][names::RUN_LABEL] = json!(run);
        object["spec"] = json!({"maxRetry": i64::MIN});
        object["status"] = json!({"state": {"phase": phase}, "retryCount": number, "version": number,
            "controlledResources": {"retries.resource": number.to_string(),
                "retries-alice-j-train-0": format!("{number} p {number}")}});
        Run::of(object, None).expect("a job")
    };
    for number in [i64::MAX, i64::MIN, -1] {
        for phase in ["Failed", "Completed", "Running"] {
            let run = of("1", phase, number);
            assert!((0..=4 * 2_147_483_647).contains(&item(&run).retries), "{phase} {number}");
            let (accountable, resource) = run.task_retries("train-0");
            assert!((0..=2 * 2_147_483_647).contains(&(accountable + resource)), "{number}");
        }
    }
    for (label, number) in
        [("7", 7), ("1000000", 1_000_000), ("1000001", 1), ("0", 1), ("-9223372036854775808", 1)]
    {
        let run = of(label, "Completed", 0);
        assert_eq!(run.number, number);
        assert_eq!(detail(&run, serde_json::Map::new())["jobStatus"]["attemptId"], number - 1);
    }
}

#[tokio::test]
async fn the_last_run_that_there_can_be_is_not_started_again() {
    let hub = Hub::of(&[]);
    let mut object = object("j", 1_000_000);
    object["status"] = json!({"state": {"phase": "Completed"}});
    let last = Run::of(object, None).expect("a job");
    let error = start(&hub.server, &last).await.expect_err("the last run").to_string();
    assert!(error.contains("found run 1000000; allowed: runs up to 1000000"), "{error}");
    assert_eq!(hub.asked(), 0);
}

#[test]
fn tags_are_as_many_and_as_long_as_can_be_set() {
    let mut object = object("j", 1);
    let tags: Vec<String> = (0..1_000).map(|i| "t".repeat(i)).collect();
    object["metadata"]["annotations"][names::TAGS_ANNOTATION] = json!(json!(tags).to_string());
    let found = item(&Run::of(object, None).expect("a job")).tags;
    assert_eq!(found, tags[..TAGS_MAX]);
    let long = json!(["x".repeat(TAG_MAX), "x".repeat(TAG_MAX + 1), "y"]).to_string();
    let mut other = super::tests::object("j", 1);
    other["metadata"]["annotations"][names::TAGS_ANNOTATION] = json!(long);
    assert_eq!(item(&Run::of(other, None).expect("a job")).tags, ["x".repeat(TAG_MAX), "y".to_owned()]);
}

//! What is known of a write after each way a server may answer it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    http::{StatusCode, method::Method},
};
use fleet_api::binding::TargetCluster;
use serde_json::json;

use super::*;

/// Answers one request after the other: to GET with what stands there, else with a code.
fn server(codes: &[u16], stands: Value) -> (Client, Arc<Mutex<Vec<Method>>>) {
    server_that_reads(200, codes, stands)
}

fn server_that_reads(reads: u16, codes: &[u16], stands: Value) -> (Client, Arc<Mutex<Vec<Method>>>) {
    let codes = Arc::new(Mutex::new(VecDeque::from(codes.to_vec())));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let answer = move |method: Method| {
        seen.lock().expect("no test panics here").push(method.clone());
        let code = match method {
            Method::GET => reads,
            _ => codes.lock().expect("no test panics here").pop_front().expect("more requests than answers"),
        };
        let body = match code {
            200 => stands.clone(),
            _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": "Because", "message": "the server says so"}),
        };
        let status = StatusCode::from_u16(code).expect("a code of HTTP");
        std::future::ready((status, Json(body)))
    };
    (Client::new(Router::new().fallback(answer), "default"), asked)
}

fn binding(target: &str) -> Value {
    let mut binding = serde_json::to_value(ResourceBinding::default()).expect("a binding is JSON");
    binding["metadata"] = json!({"name": "train", "namespace": "team-a", "resourceVersion": "7"});
    binding["spec"]["clusters"] = clusters(target);
    binding
}

fn clusters(target: &str) -> Value {
    let target = TargetCluster { name: target.to_string(), ..TargetCluster::default() };
    serde_json::to_value([target]).expect("a target is JSON")
}

fn bind() -> Write {
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": "6"},
        {"op": "add", "path": "/spec/clusters", "value": clusters("east")},
    ]);
    Write::new(Target::Binding, "team-a", "train", Verb::Patch(patch))
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_that_never_heard_of_the_write_did_nothing() {
    let (client, asked) = server(&[429], binding("west"));
    let sent = send_until_known(&client, bind()).await;
    assert!(matches!(sent.refused, Some(Refused::Passing(_))));
    assert_eq!(asked.lock().expect("unpoisoned").len(), 1);
}

/// A job's namespace is deleted while the job runs: nobody has to grant anything.
#[tokio::test]
async fn a_terminating_namespace_is_no_missing_right() {
    let forbidden = |reason: &str| {
        let details = json!({"causes": [{"reason": reason, "message": "m", "field": "metadata.namespace"}]});
        let status = json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "m", "details": details});
        classify(kube::Error::Api(Box::new(serde_json::from_value(status).expect("a status"))), false)
    };
    assert!(matches!(forbidden("NamespaceTerminating"), Refused::Absent));
    assert!(matches!(forbidden("Other"), Refused::Forbidden(_)));
}

/// The second copy was turned away; the first one had taken effect.
#[tokio::test(start_paused = true)]
async fn a_busy_server_says_nothing_of_the_copy_before() {
    let (client, asked) = server(&[503, 429, 422], binding("east"));
    let sent = send_until_known(&client, bind()).await;
    assert!(sent.refused.is_none(), "{:?}", sent.refused);
    assert!(sent.observation.is_some());
    let asked = asked.lock().expect("unpoisoned");
    assert_eq!(*asked, [Method::PATCH, Method::PATCH, Method::PATCH, Method::GET]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_somebody_else_overtook_is_stale() {
    let (client, _) = server(&[503, 429, 422], binding("west"));
    let sent = send_until_known(&client, bind()).await;
    assert!(matches!(sent.refused, Some(Refused::Stale)));
    assert!(sent.observation.is_some(), "what stands instead comes back");
}

/// A right that is missing is not asked for again at once, and keeps no slot.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_forbidden_is_given_up() {
    let (client, asked) = server(&[403], binding("west"));
    let sent = send_until_known(&client, bind()).await;
    assert!(matches!(sent.refused, Some(Refused::Forbidden(_))), "{:?}", sent.refused);
    assert_eq!(asked.lock().expect("unpoisoned").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stale_write_whose_object_may_not_be_read_is_given_up() {
    let (client, asked) = server_that_reads(403, &[422], binding("west"));
    let sent = send_until_known(&client, bind()).await;
    assert!(matches!(sent.refused, Some(Refused::Forbidden(_))), "{:?}", sent.refused);
    assert_eq!(asked.lock().expect("unpoisoned").len(), 2);
}

/// The first copy may stand: its room is kept until the watch must have told.
#[tokio::test(start_paused = true)]
async fn a_write_that_may_stand_is_kept_for_a_while_and_then_given_up() {
    let mut codes = vec![503];
    codes.extend([422; FORBIDDEN_READS as usize + 1]);
    let (client, _) = server_that_reads(403, &codes, binding("west"));
    let began = tokio::time::Instant::now();
    let sent = send_until_known(&client, bind()).await;
    assert!(matches!(sent.refused, Some(Refused::Forbidden(_))), "{:?}", sent.refused);
    assert!(began.elapsed() > Duration::from_secs(30), "{:?}", began.elapsed());
}

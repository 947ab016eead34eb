//! What a user reads of a job that waits or runs, and how often.

use super::*;

#[test]
fn a_waiting_job_says_why_and_that_it_queues() {
    let mut hub = Hub::new(batch(), &[]);
    let waiting = Waiting::new(Reason::InsufficientQuota, "root/a has no more");
    hub.settle(Some(&waiting));
    assert_eq!(hub.condition("Scheduled"), Some(("False".to_string(), waiting.reason.to_string())));
    assert_eq!(hub.condition("Queuing").map(|told| told.0), Some("True".to_string()));
    hub.settle(Some(&waiting));
    assert_eq!(hub.phase(), "Enqueued");
    assert!(hub.settle(Some(&waiting)).is_empty(), "once");
}

#[test]
fn a_deployment_that_waits_again_reports_no_replicas_that_run() {
    let mut hub = Hub::new(with_status(deployment(), json!({"replicas": 2, "readyReplicas": 2})), &[]);
    hub.settle(Some(&Waiting::new(Reason::NoClusterFits, "none")));
    assert_eq!(*hub.job_status(), json!({"replicas": 0, "unavailableReplicas": 2}));
    // The status of a job is that of its runs, and no run has ended.
    let running = json!({"conditions": [{"type": "Created", "status": "True"}], "active": 1});
    let mut hub = Hub::new(with_status(batch(), running.clone()), &[]);
    hub.settle(Some(&Waiting::new(Reason::NoClusterFits, "none")));
    assert_eq!(*hub.job_status(), running);
}

#[test]
fn a_job_that_no_cluster_admits_says_so_in_one_event_a_reason() {
    let mut hub = Hub::new(batch(), &[]);
    for (reason, expected) in [
        (Reason::InsufficientQuota, 0),
        (Reason::NoClusterFits, 1),
        (Reason::NoClusterFits, 0),
        (Reason::ExceedsEveryCluster, 1),
        (Reason::InsufficientQuota, 0),
        (Reason::ExceedsEveryCluster, 1),
    ] {
        let writes = hub.settle(Some(&Waiting::new(reason, "m")));
        assert_eq!(events(&writes), vec!["ScheduleBindingFailed"; expected], "{reason}");
    }
}

#[test]
fn pods_that_wait_for_cells_are_reported_until_none_waits() {
    let mut hub = Hub::new(torch(), &["east"]);
    let waiting = Waiting::new(Reason::WaitingForVictims, "m");
    hub.settle(Some(&waiting));
    assert_eq!(hub.condition("CellsAllocated"), None, "a job without cells waits for none");
    hub.change_binding(&json!({"spec": {"cells": {"groups": []}}}));
    hub.settle(None);
    assert_eq!(hub.condition("CellsAllocated"), None, "nothing is said of pods that never waited");
    for (waiting, status) in
        [(Some(&waiting), "False"), (None, "True"), (None, "True"), (Some(&waiting), "False")]
    {
        hub.settle(waiting);
        assert_eq!(hub.condition("CellsAllocated").map(|told| told.0), Some(status.to_string()));
    }
}

#[test]
fn an_edit_that_waits_for_the_next_run_is_told_once_and_until_it_is_undone() {
    let mut hub = Hub::new(torch(), &["east"]);
    let edit = |hub: &mut Hub, change: &Value| {
        let mut job = torch();
        merge(&mut job["spec"], change);
        job["status"] = hub.job_status().clone();
        hub.submit(job);
        let told = events(&hub.settle(None));
        (hub.condition("EditPending").map(|told| told.0), told.len())
    };
    let image = json!({"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [
        {"name": "pytorch", "image": "j"}]}}}}});
    let mut two = image.clone();
    two["elasticPolicy"] = json!({"maxRestarts": 3});
    let says = |status: &str| Some(status.to_string());
    assert_eq!(edit(&mut hub, &json!({})), (None, 0));
    assert_eq!(edit(&mut hub, &image), (says("True"), 1));
    assert_eq!(edit(&mut hub, &image), (says("True"), 0));
    assert_eq!(edit(&mut hub, &two), (says("True"), 1), "another field waits");
    assert_eq!(edit(&mut hub, &json!({})), (says("False"), 0));
    assert_eq!(edit(&mut hub, &two), (says("True"), 1), "the same words are news again");
}

#[test]
fn what_a_member_does_not_get_is_told_once_and_until_it_gets_it() {
    let token = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "team",
        "name": name, "uid": name}, "type": "kubernetes.io/service-account-token"})
    };
    let mut job = batch_that_reads("secret", json!({"secretName": "data"}));
    let other = json!({"name": "w", "secret": {"secretName": "more"}});
    job["spec"]["template"]["spec"]["volumes"].as_array_mut().expect("volumes").push(other);
    let mut hub = Hub::new(job, &["east"]);
    for kind in kinds::dependencies() {
        hub.observe(Observation::Object(kind, Change::reset(Vec::new())));
    }
    let secret = Target::Object(kinds::known("v1", "Secret").expect("a kind"));
    let says = |status: &str| Some(status.to_string());
    let look = |hub: &mut Hub| {
        let told = events(&hub.settle(None));
        (hub.condition("Sendable").map(|told| told.0), told.len())
    };
    assert_eq!(look(&mut hub), (None, 0));
    hub.stand(secret.clone(), token("data"));
    assert_eq!(look(&mut hub), (says("False"), 1));
    assert_eq!(look(&mut hub), (says("False"), 0));
    hub.stand(secret.clone(), token("more"));
    assert_eq!(look(&mut hub), (says("False"), 1), "more is withheld");
    for name in ["data", "more"] {
        let mut plain = token(name);
        plain["type"] = "Opaque".into();
        hub.stand(secret.clone(), plain);
    }
    assert_eq!(look(&mut hub), (says("True"), 0));
    hub.stand(secret.clone(), token("data"));
    hub.stand(secret, token("more"));
    assert_eq!(look(&mut hub), (says("False"), 1), "the same words are news again");
}

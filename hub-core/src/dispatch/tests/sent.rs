//! What the clusters of a run are sent, and what is taken from the others.

use super::*;

fn reserve(hub: &mut Hub, namespace: &str, name: &str, uid: &str, epoch: i64) {
    hub.stand(
        Target::Reservation,
        json!({"apiVersion": API_VERSION, "kind": "Reservation",
            "metadata": {"namespace": namespace, "name": name, "uid": name},
            "spec": {"binding": {"namespace": "team", "name": "train-b", "uid": uid}, "epoch": epoch,
                "components": [], "ttlSeconds": 60},
            "status": {"phase": "Reserved"}}),
    );
}

#[test]
fn a_run_takes_the_places_that_were_reserved_for_it_and_frees_all_others() {
    let mut hub = Hub::new(batch(), &["west"]);
    for (namespace, name, uid, epoch) in [
        ("fleet-east", "elsewhere", "b", 1),
        ("fleet-west", "a-earlier-job", "earlier", 1),
        ("fleet-west", "b-earlier-run", "b", 0),
        ("fleet-west", "c-this-run", "b", 1),
    ] {
        reserve(&mut hub, namespace, name, uid, epoch);
    }
    let writes = hub.step(None);
    let freed = deleted(&writes, &Target::Reservation);
    assert_eq!(freed, ["elsewhere", "a-earlier-job", "b-earlier-run"]);
    let sent = writes.iter().find(|write| write.target == Target::Work).expect("a Work");
    let Verb::Create(body) = &sent.verb else { panic!("{sent:?}") };
    assert_eq!(body["spec"]["reservation"], "c-this-run");
}

#[test]
fn a_cluster_that_the_binding_does_not_name_any_more_loses_its_work() {
    let mut hub = Hub::new(deployment(), &["west"]);
    hub.settle(None);
    hub.work("east", "train-b-b", "b", 1);
    assert_eq!(deleted(&hub.step(None), &Target::Work), ["train-b-b"]);
    let removed = hub.settle(None).into_iter().find(|write| write.target == Target::Work).expect("a delete");
    assert_eq!(removed.namespace, "fleet-east");
}

#[test]
fn a_work_that_is_being_cleaned_up_is_sent_no_edit() {
    let mut hub = Hub::new(deployment(), &["east"]);
    hub.settle(None);
    let mut edited = deployment();
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "j".into();
    hub.submit(edited);
    let sends = |hub: &Hub| hub.step(None).iter().any(|write| write.target == Target::Work);
    assert!(sends(&hub));
    let work = hub.world.works.keys().next().expect("a Work").clone();
    hub.change(&Target::Work, &work, &json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}));
    assert!(!sends(&hub));
}

#[test]
fn a_gang_that_asks_for_more_than_was_reserved_is_not_sent_and_is_placed_again() {
    let mut hub = Hub::new(batch(), &["east"]);
    let mut edited = batch();
    edited["spec"]["parallelism"] = 2.into();
    edited["spec"]["completions"] = 2.into();
    hub.submit(edited);
    let writes = hub.settle(None);
    assert!(writes.iter().all(|write| write.target != Target::Work), "{writes:?}");
    let status = hub.world.bindings[&key()].object.status.clone().expect("a status");
    assert_eq!(status.attempts[0].reason, Reason::Edited.as_str());
}

/// A Work of an older term is refused, so that a leader that was replaced starts nothing.
#[test]
fn a_work_keeps_the_term_of_the_leader_that_made_it_unless_its_member_refuses_that() {
    let mut hub = Hub::new(deployment(), &["east"]);
    hub.world.term = Some(5);
    hub.settle(None);
    let work = hub.world.works.keys().next().expect("a Work").clone();
    hub.world.term = Some(7);
    for (status, reason, term) in [("True", "r", 5), ("False", "NameTaken", 5), ("False", "StaleTerm", 7)] {
        let applied = json!({"type": "Applied", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "1970-01-01T00:00:00Z"});
        hub.change(&Target::Work, &work, &json!({"status": {"conditions": [applied]}}));
        hub.settle(None);
        assert_eq!(hub.world.works[&work].spec.term, Some(term), "{reason}");
    }
}

/// A field of an override has any name.
#[test]
fn what_an_attempt_says_is_cut() {
    let mut hub = Hub::new(batch(), &["east"]);
    hub.settle(None);
    let work = hub.world.works.keys().next().expect("a Work").clone();
    let applied = json!({"type": "Applied", "status": "False", "reason": "NotPermitted", "message": "x".repeat(3_000_000),
        "lastTransitionTime": "1970-01-01T00:00:00Z"});
    hub.change(&Target::Work, &work, &json!({"status": {"conditions": [applied]}}));
    hub.settle(None);
    let status = hub.world.bindings[&key()].object.status.clone().expect("a status");
    assert_eq!(status.attempts[0].reason, Reason::NotPermitted.as_str());
    assert!(json!(status).to_string().len() < 10_000);
    for (_, unit) in hub.world.units.iter() {
        assert!(json!(unit.status).to_string().len() < 10_000);
    }
}

#[test]
fn a_report_that_is_too_large_is_not_taken() {
    let mut hub = Hub::new(batch(), &["east"]);
    hub.settle(None);
    let work = hub.world.works.keys().next().expect("a Work").clone();
    let reported = json!({"identifier": {"ordinal": 0, "version": "v1", "group": "batch", "kind": "Job", "name": "train"},
        "status": {"active": 1, "x": "x".repeat(600_000)}});
    hub.change(&Target::Work, &work, &json!({"status": {"manifestStatuses": [reported]}}));
    hub.settle(None);
    let status = hub.world.bindings[&key()].object.status.clone().expect("a status");
    let told = json!(status).to_string();
    assert!(told.len() < 10_000 && told.contains("bytes of JSON; allowed: 524288"), "{told}");
}

/// Without a check of its form the result would be no object where fields are written.
#[test]
fn an_override_that_is_no_object_fells_nobody() {
    for (path, value) in
        [("/spec", json!("x")), ("/metadata/labels", json!("x")), ("/metadata/annotations", json!([]))]
    {
        let mut job = batch();
        job["metadata"]["labels"] = json!({"quota.scheduling.alibabacloud.com/name": "a"});
        job["spec"]["suspend"] = json!(false);
        let mut hub = Hub::new(job.clone(), &["east"]);
        hub.settle(None);
        job["metadata"]["labels"] = json!({});
        hub.submit(job);
        let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "o", "namespace": "team", "uid": "o"},
            "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
                "overrideRules": [{"overriders": {"plaintext": [{"path": path, "operator": "add", "value": value}]}}]}});
        hub.observe(Observation::Override(Change::Apply(read(&policy))));
        assert!(hub.step(None).is_empty(), "it may make the job read what is not known yet");
        for kind in kinds::dependencies() {
            hub.observe(Observation::Object(kind, Change::reset(Vec::new())));
        }
        hub.settle(None);
        let status = hub.world.bindings[&key()].object.status.clone().expect("a status");
        assert!(json!(status).to_string().contains(path), "{path}: {status:?}");
    }
}

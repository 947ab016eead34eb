//! How a run ends, and what of it is sent, reported and recorded.

use super::*;

const COMPLETE: &str = "Complete";

fn ended(how: &str) -> Value {
    json!({"conditions": [{"type": how, "status": "True"}], "startTime": "1970-01-01T00:00:00Z"})
}

fn object(kind: &str, extra: &Value) -> (Target, Value) {
    let kind = kinds::known("v1", kind).expect("a kind");
    let mut value = json!({"apiVersion": "v1", "kind": kind.kind,
        "metadata": {"namespace": "team", "name": "data", "uid": "d"}});
    merge(&mut value, extra);
    (Target::Object(kind), value)
}

/// After a restart the kinds are listed in any order.
#[test]
fn a_job_is_not_sent_before_what_it_reads_is_known() {
    let mut hub = Hub::new(batch_that_reads("configMap", json!({"name": "data"})), &["east"]);
    assert!(hub.step(None).is_empty(), "{:?}", hub.step(None));
    for kind in kinds::dependencies().into_iter().filter(|kind| kind.kind != "ConfigMap") {
        hub.observe(Observation::Object(kind, Change::reset(Vec::new())));
    }
    assert!(hub.step(None).is_empty(), "it reads a ConfigMap");
    let (target, data) = object("ConfigMap", &json!({"data": {"k": "v"}}));
    hub.stand(target, data);
    hub.settle(None);
    let work = hub.world.works.values().next().expect("a Work");
    assert_eq!(work.spec.workload.manifests.len(), 2);
}

#[test]
fn the_end_of_a_job_is_recorded_before_its_member_may_forget_it() {
    for (how, outcome, phase) in [(COMPLETE, "Succeeded", "Succeed"), ("Failed", "Failed", "Failed")] {
        let mut hub = Hub::new(batch(), &["east"]);
        hub.settle(None);
        let work = hub.world.works.keys().next().expect("a Work").clone();
        hub.report(&work, &ended(how));
        let writes = hub.settle(None);
        assert!(writes.iter().all(|write| write.target != Target::Work), "{writes:?}");
        let entry = &hub.world.bindings[&key()];
        let result = json!(entry.object.status.as_ref().and_then(|status| status.result.as_ref()));
        let found = ["outcome", "cluster", "epoch"].map(|field| result[field].clone());
        assert_eq!(found, [json!(outcome), json!("east"), json!(1)], "{result}");
        let says = |status: &Value| status["conditions"].to_string().contains(&format!("\"{how}\""));
        assert!(says(hub.job_status()), "{}", hub.job_status());
        let writes = hub.settle(None);
        let told = |write: &&Write| write.target == Target::Work;
        assert_eq!(writes.iter().filter(told).count(), 1, "the member may forget it: {writes:?}");
        assert_eq!(hub.phase(), phase);
        assert!(hub.settle(None).is_empty(), "once");
    }
}

#[test]
fn a_member_is_told_nothing_of_a_result_whose_run_it_already_removes() {
    let mut hub = Hub::new(batch(), &["east"]);
    hub.settle(None);
    let work = hub.world.works.keys().next().expect("a Work").clone();
    hub.report(&work, &ended(COMPLETE));
    hub.settle(None);
    let gone = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
    hub.change(&Target::Work, &work, &gone);
    let writes = hub.step(None);
    assert!(writes.iter().all(|write| write.target != Target::Work), "{writes:?}");
}

/// The status of a batch Job cannot take back an end.
#[test]
fn a_failure_that_the_policy_bears_is_not_reported_as_the_end_of_the_job() {
    let mut hub = Hub::new(batch(), &["east"]);
    hub.change_binding(
        &json!({"spec": {"failover": {"application": {"decisionConditions": {"tolerationSeconds": 60}}}}}),
    );
    hub.settle(None);
    let work = hub.world.works.keys().next().expect("a Work").clone();
    hub.report(&work, &ended("Failed"));
    hub.settle(None);
    let status = hub.world.bindings[&key()].object.status.clone().expect("a status");
    assert!(status.unhealthy_since.is_some() && status.result.is_none(), "{status:?}");
    assert!(!hub.job_status().to_string().contains("Failed"), "{}", hub.job_status());
}

#[test]
fn a_unit_says_that_a_run_runs_also_while_all_its_pods_start_again() {
    let mut hub = Hub::new(torch(), &["east"]);
    hub.settle(None);
    let work = hub.world.works.keys().next().expect("a Work").clone();
    let status = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    hub.settle(None);
    assert_eq!(hub.phase(), "Dequeued");
    for kind in ["Running", "Restarting"] {
        hub.report(&work, &status(kind));
        hub.settle(None);
        assert_eq!(hub.phase(), "Running", "{kind}");
    }
}

#[test]
fn an_edited_deployment_is_observed_once_its_members_have_the_edit() {
    let mut hub = Hub::new(deployment(), &["east"]);
    hub.settle(None);
    let work = hub.world.works.keys().next().expect("a Work").clone();
    hub.report(&work, &json!({"observedGeneration": 1, "replicas": 2}));
    hub.settle(None);
    assert_eq!(hub.job_status()["observedGeneration"], 5);
    let mut edited = with_status(deployment(), hub.job_status().clone());
    edited["metadata"]["generation"] = 6.into();
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "j".into();
    hub.submit(edited);
    let writes = hub.settle(None);
    assert!(writes.iter().any(|write| write.target == Target::Work), "{writes:?}");
    assert_eq!(hub.job_status()["observedGeneration"], 5, "the edit is on its way");
    hub.settle(None);
    assert_eq!(hub.job_status()["observedGeneration"], 6);
}

/// Once the job has its result, only pods that the member reports after the run's own end are counted.
#[test]
fn a_job_that_fails_for_good_ends_after_a_run_that_has_not_reported_its_end_is_removed() {
    for (purge, last, reported, is_removed) in [
        ("Never", 1, false, true),
        ("Gracefully", 1, false, true),
        ("Directly", 1, false, true),
        ("Never", 1, true, false),
        // The next run may start in another cluster; this one counts as what is left of a run.
        ("Never", 2, false, false),
    ] {
        let mut hub = Hub::new(torch(), &["east"]);
        let application = json!({"backoffLimit": last, "purgeMode": purge});
        hub.change_binding(&json!({"spec": {"failover": {"application": application}}}));
        hub.settle(None);
        let work = hub.world.works.keys().next().expect("a Work").clone();
        if reported {
            hub.report(&work, &ended("Failed"));
        }
        let attempt = json!({"cluster": "east", "epoch": 1, "reason": "GangNotStarted", "message": "",
            "endedAt": "1970-01-01T00:00:00Z", "purge": purge});
        hub.change_binding(&json!({"status": {"attempts": [attempt]}}));
        let writes = hub.settle(None);
        let context = format!("{purge} {last} {reported}: {writes:?}");
        assert_eq!(!deleted(&writes, &Target::Work).is_empty(), is_removed, "{context}");
        let result = |hub: &Hub| {
            let status = hub.world.bindings[&key()].object.status.clone();
            status.and_then(|status| status.result).map(|result| result.outcome)
        };
        if is_removed {
            hub.settle(None);
            assert_eq!(result(&hub), None, "its pods may run: {context}");
            let gone = hub.world.works[&work].clone();
            hub.observe(Observation::Work(Change::Delete(gone)));
            hub.settle(None);
        }
        assert_eq!(result(&hub), (last == 1).then(|| "Failed".to_string()), "{context}");
    }
}

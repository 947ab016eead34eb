//! How pods are ended: when their job has ended and others need what they use, and with which grace period.

use fleet_api::names::{END_PODS_ANNOTATION, JOB_ANNOTATION};

use super::*;

pub(super) const A_LOT_S: i64 = 1_000_000;

/// A pod of the job `a`, on a node without a kubelet, with this grace period.
pub(super) async fn pod_of_job(fixture: &Fixture, name: &str, grace_s: i64) {
    let uid = fixture.of_member("pytorchjobs").get("a").await.unwrap().metadata.uid.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a", "uid": uid, "controller": true}]},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "c", "image": "i"}]}});
    fixture.create(&fixture.member, "", "v1", "pods", pod).await;
}

pub(super) async fn wait_grace(fixture: &Fixture, name: &str, grace_s: i64) {
    let what = format!("being deleted with {grace_s} s");
    let granted = |pod: Option<&DynamicObject>| pod?.metadata.deletion_grace_period_seconds;
    let pods = fixture.of_member("pods");
    fixture.wait(&pods, name, &what, |pod| granted(pod) == Some(grace_s)).await;
}

/// The job succeeds.
pub(super) async fn end_now(fixture: &Fixture) {
    let now = jiff::Timestamp::now().to_string();
    let status = json!({"status": {"completionTime": now, "conditions": [
        {"type": "Succeeded", "status": "True", "lastUpdateTime": now, "lastTransitionTime": now}]}});
    let jobs = fixture.of_member("pytorchjobs");
    jobs.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn runs() -> Bed {
    let fixture = start().await;
    submit(&fixture, work("w", 1, vec![job()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    fixture
}

#[tokio::test]
async fn pods_of_an_ended_job_end_at_once_when_the_hub_asks_for_it() {
    let fixture = runs().await;
    pod_of_job(&fixture, "a-worker-0", 30).await;
    // Its pods have a minute left.
    end_now(&fixture).await;
    let live = |work: Option<&Work>| work?.status.as_ref()?.live_pods;
    wait_work(&fixture, "w", "with a live pod", |work| live(work) == Some(1)).await;
    let pod = fixture.of_member("pods").get("a-worker-0").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None, "nobody has asked for it");
    let asked = json!({"metadata": {"annotations": {RESULT_RECORDED_ANNOTATION: "true", END_PODS_ANNOTATION: "b/c"}}});
    works(&fixture).patch("w", &PatchParams::default(), &Patch::Merge(asked)).await.unwrap();
    wait_grace(&fixture, "a-worker-0", 30).await;
}

#[tokio::test]
async fn pods_of_an_ended_job_run_on_for_their_time_and_are_ended_after_it() {
    let fixture = start().await;
    let mut patient = job();
    patient["metadata"]["annotations"] = json!({"fleet.dev/after-end": "3s"});
    submit(&fixture, work("w", 1, vec![patient])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    pod_of_job(&fixture, "a-worker-0", 30).await;
    end_now(&fixture).await;
    let live = |work: Option<&Work>| work?.status.as_ref()?.live_pods;
    wait_work(&fixture, "w", "with a live pod", |work| live(work) == Some(1)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pod = fixture.of_member("pods").get("a-worker-0").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None, "it has two seconds left");
    wait_grace(&fixture, "a-worker-0", 30).await;
}

#[tokio::test]
async fn a_pod_gets_no_longer_grace_than_the_member_allows() {
    let fixture = runs().await;
    for (name, own) in [("long", A_LOT_S), ("short", 7), ("none", 0)] {
        pod_of_job(&fixture, name, own).await;
    }
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    for (name, granted) in [("long", 120), ("short", 7), ("none", 1)] {
        wait_grace(&fixture, name, granted).await;
    }
}

#[tokio::test]
async fn whoever_deletes_a_pod_it_ends_within_the_bound() {
    let fixture = runs().await;
    pod_of_job(&fixture, "long", A_LOT_S).await;
    let pods = fixture.of_member("pods");
    // An operator, a drain of the node, or the garbage collector.
    pods.delete("long", &DeleteParams::default()).await.unwrap();
    wait_grace(&fixture, "long", 120).await;
    // Also when nobody looked at the pod in between, and its run ends.
    pod_of_job(&fixture, "other", 5).await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    wait_grace(&fixture, "other", 5).await;
    wait_grace(&fixture, "long", 120).await;
}

/// A batch Job that the PyTorchJob `owner` controls, and its pod, whose template names the job `a`.
async fn launcher(fixture: &Fixture, name: &str, owner: &str) {
    let owner_uid = fixture.of_member("pytorchjobs").get(owner).await.unwrap().metadata.uid.unwrap();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let maker = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default",
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": owner, "uid": owner_uid, "controller": true}]},
        "spec": {"template": template}});
    fixture.create(&fixture.member, "batch", "v1", "jobs", maker).await;
    let uid = maker_uid(fixture, name).await.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
        "annotations": {JOB_ANNOTATION: "kubeflow.org/v1/PyTorchJob/a"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true}]},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": A_LOT_S,
            "containers": [{"name": "c", "image": "i"}]}});
    fixture.create(&fixture.member, "", "v1", "pods", pod).await;
}

/// Of a batch Job that is not being deleted.
async fn maker_uid(fixture: &Fixture, name: &str) -> Option<String> {
    let jobs = fixture.api(&fixture.member, "batch", "v1", "jobs", "Job");
    let found = jobs.get_opt(name).await.unwrap()?;
    found.metadata.uid.filter(|_| found.metadata.deletion_timestamp.is_none())
}

#[tokio::test]
async fn a_launcher_that_belongs_to_an_intermediate_job_ends_with_its_run() {
    let fixture = runs().await;
    let mut other = job();
    other["metadata"]["name"] = "b".into();
    fixture.create(&fixture.member, "kubeflow.org", "v1", "pytorchjobs", other).await;
    launcher(&fixture, "a-launcher", "a").await;
    launcher(&fixture, "foreign", "b").await;
    // Whoever deletes it, it ends within the bound.
    let pods = fixture.of_member("pods");
    pods.delete("a-launcher", &DeleteParams::default()).await.unwrap();
    wait_grace(&fixture, "a-launcher", 120).await;
    assert!(maker_uid(&fixture, "a-launcher").await.is_some());
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    wait_grace(&fixture, "foreign", 120).await;
    assert_eq!(maker_uid(&fixture, "a-launcher").await, None, "it would make its pod again");
    assert!(maker_uid(&fixture, "foreign").await.is_some(), "it is not of this job");
    assert!(works(&fixture).get_opt("w").await.unwrap().is_some(), "its pods have not ended");
    for name in ["a-launcher", "foreign"] {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    wait_work(&fixture, "w", "gone", |work| work.is_none()).await;
}

#[tokio::test]
async fn pods_of_others_keep_their_grace() {
    let fixture = runs().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign", "namespace": "default",
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "z", "uid": "z", "controller": true}]},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": A_LOT_S,
            "containers": [{"name": "c", "image": "i"}]}});
    fixture.create(&fixture.member, "", "v1", "pods", pod).await;
    pod_of_job(&fixture, "long", A_LOT_S).await;
    let pods = fixture.of_member("pods");
    for name in ["foreign", "long"] {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    wait_grace(&fixture, "long", 120).await;
    wait_grace(&fixture, "foreign", A_LOT_S).await;
}

#[tokio::test]
async fn a_deployment_is_made_with_no_longer_grace_than_the_member_allows() {
    let fixture = start().await;
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "d"}}, "template": {"metadata": {"labels": {"a": "d"}},
            "spec": {"terminationGracePeriodSeconds": A_LOT_S, "containers": [{"name": "c", "image": "i"}]}}}});
    submit(&fixture, work("d", 1, vec![deployment.clone()])).await;
    wait_applied(&fixture, "d", "True", "AppliedSuccessful").await;
    let own = |object: &DynamicObject| {
        object.data["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].clone()
    };
    let deployments = fixture.of_member("deployments");
    assert_eq!(own(&deployments.get("d").await.unwrap()), 120);
    deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 10.into();
    let patch = Patch::Merge(json!({"spec": {"workload": {"manifests": [deployment]}}}));
    works(&fixture).patch("d", &PatchParams::default(), &patch).await.unwrap();
    fixture.wait(&deployments, "d", "changed", |d| d.is_some_and(|d| own(d) == 10)).await;
}

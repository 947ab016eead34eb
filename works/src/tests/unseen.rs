//! Pods that the watch shows late, or not at all.

use fleet_informer::Source;
use kube::{Client, client::Body};

use super::*;

/// A client whose watches do not show the pod `a-worker-0`.
fn without_events_of_the_worker(client: Client) -> Client {
    let through = tower::service_fn(move |mut request: http::Request<Body>| {
        let client = client.clone();
        let uri = request.uri().to_string();
        if request.uri().path().ends_with("/pods") && uri.contains("watch=true") {
            let uri = format!("{uri}&fieldSelector=metadata.name%21%3Da-worker-0");
            *request.uri_mut() = uri.parse().expect("an address");
        }
        async move { client.send(request).await }
    });
    Client::new(through, "default")
}

/// A pod that says to be of the job `a`.
fn pod_of_a(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a", "uid": uid, "controller": true}]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})
}

/// A running job `a` of one pod, which the agent is not shown.
async fn with_an_unseen_pod() -> Bed {
    let fixture = Fixture::new(&[]).await;
    let client = without_events_of_the_worker(fixture.member.clone());
    let holds = run_over(&fixture, Link::new(client, Source::unasked("east"), "east"), Permits::default());
    let fixture = Bed { fixture, holds };
    submit(&fixture, work("w", 1, vec![job()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    let uid = fixture.of_member("pytorchjobs").get("a").await.unwrap().metadata.uid.unwrap();
    fixture.create(&fixture.member, "", "v1", "pods", pod_of_a("a-worker-0", &uid)).await;
    fixture
}

async fn end_pod(fixture: &Fixture) {
    let ended = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    fixture.of_member("pods").patch_status("a-worker-0", &PatchParams::default(), &ended).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_no_watch_has_shown_is_counted_when_its_job_has_ended() {
    let fixture = with_an_unseen_pod().await;
    it_is_counted(&fixture).await;
}

#[tokio::test]
async fn a_succeeded_pod_that_only_bears_the_name_of_the_job_hides_no_live_one() {
    let fixture = with_an_unseen_pod().await;
    fixture.create(&fixture.member, "", "v1", "pods", pod_of_a("forged", "of-no-job")).await;
    let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    fixture.of_member("pods").patch_status("forged", &PatchParams::default(), &succeeded).await.unwrap();
    // Longer than the watch needs to show it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    it_is_counted(&fixture).await;
}

async fn it_is_counted(fixture: &Fixture) {
    let now = jiff::Timestamp::now().to_string();
    let status = json!({"status": {"completionTime": now, "conditions": [
        {"type": "Succeeded", "status": "True", "lastUpdateTime": now, "lastTransitionTime": now}]}});
    let jobs = fixture.of_member("pytorchjobs");
    jobs.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    // The first report of the end has the pod: what it uses is never free in between.
    let said =
        |work: Option<&Work>| work?.status.clone().filter(|status| !status.manifest_statuses.is_empty());
    wait_work(fixture, "w", "reported", |work| said(work).is_some()).await;
    let first = works(fixture).get("w").await.unwrap().status.unwrap();
    assert_eq!(first.live_pods, Some(1), "{first:?}");
    end_pod(fixture).await;
    wait_work(fixture, "w", "without live pods", |work| said(work).is_some_and(|s| s.live_pods.is_none()))
        .await;
}

#[tokio::test]
async fn a_run_is_not_over_while_a_pod_of_it_lives_that_no_watch_has_shown() {
    let fixture = with_an_unseen_pod().await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    let jobs = fixture.of_member("pytorchjobs");
    fixture
        .wait(&jobs, "a", "being deleted", |job| job.is_some_and(|j| j.metadata.deletion_timestamp.is_some()))
        .await;
    // Longer than the agent waits before it asks again.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(works(&fixture).get_opt("w").await.unwrap().is_some(), "its pod lives");
    end_pod(&fixture).await;
    wait_work(&fixture, "w", "gone", |work| work.is_none()).await;
}

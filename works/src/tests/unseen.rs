//! Pods that the watch shows late, or not at all.

use fleet_informer::Source;
use kube::{Client, client::Body};

use super::*;

/// A client whose watches of pods stay silent.
fn without_pod_events(client: Client) -> Client {
    let through = tower::service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        let is_silent = request.uri().path().ends_with("/pods")
            && request.uri().query().is_some_and(|query| query.contains("watch=true"));
        async move {
            match is_silent {
                true => std::future::pending().await,
                false => client.send(request).await,
            }
        }
    });
    Client::new(through, "default")
}

/// A running job `a` of one pod, which the agent is not shown.
async fn with_an_unseen_pod() -> Bed {
    let fixture = Fixture::new(&[]).await;
    let member = Link::new(without_pod_events(fixture.member.clone()), Source::unasked("east"), "east");
    let holds = run_over(&fixture, member, Permits::default());
    let fixture = Bed { fixture, holds };
    submit(&fixture, work("w", 1, vec![job()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    let uid = fixture.of_member("pytorchjobs").get("a").await.unwrap().metadata.uid.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-worker-0", "namespace": "default",
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a", "uid": uid, "controller": true}]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    fixture.create(&fixture.member, "", "v1", "pods", pod).await;
    fixture
}

async fn end_pod(fixture: &Fixture) {
    let ended = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    fixture.of_member("pods").patch_status("a-worker-0", &PatchParams::default(), &ended).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_no_watch_has_shown_is_counted_when_its_job_has_ended() {
    let fixture = with_an_unseen_pod().await;
    let now = jiff::Timestamp::now().to_string();
    let status = json!({"status": {"completionTime": now, "conditions": [
        {"type": "Succeeded", "status": "True", "lastUpdateTime": now, "lastTransitionTime": now}]}});
    let jobs = fixture.of_member("pytorchjobs");
    jobs.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    // The first report of the end has the pod: what it uses is never free in between.
    let said =
        |work: Option<&Work>| work?.status.clone().filter(|status| !status.manifest_statuses.is_empty());
    wait_work(&fixture, "w", "reported", |work| said(work).is_some()).await;
    let first = works(&fixture).get("w").await.unwrap().status.unwrap();
    assert_eq!(first.live_pods, Some(1), "{first:?}");
    end_pod(&fixture).await;
    wait_work(&fixture, "w", "without live pods", |work| said(work).is_some_and(|s| s.live_pods.is_none()))
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

//! Jobs that are suspended and resumed while their pods still end.

use super::{ends::pod_of_job, *};

fn suspended(suspend: bool) -> Value {
    let mut job = job();
    job["spec"]["runPolicy"] = json!({"suspend": suspend});
    job
}

async fn send(fixture: &Fixture, job: Value) {
    let patch = json!({"spec": {"workload": {"manifests": [job]}}});
    works(fixture).patch("w", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Another controller than the agent's makes its pods.
#[tokio::test]
async fn a_job_is_not_resumed_before_its_pods_are_gone() {
    let fixture = start().await;
    submit(&fixture, work("w", 1, vec![suspended(false)])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    pod_of_job(&fixture, "a-worker-0", 30).await;
    let jobs = fixture.of_member("pytorchjobs");
    let is_suspended = |job: Option<&DynamicObject>| job?.data["spec"]["runPolicy"]["suspend"].as_bool();
    send(&fixture, suspended(true)).await;
    fixture.wait(&jobs, "a", "suspended", |job| is_suspended(job) == Some(true)).await;
    fixture.of_member("pods").delete("a-worker-0", &DeleteParams::default()).await.unwrap();
    send(&fixture, suspended(false)).await;
    wait_applied(&fixture, "w", "False", "WaitingForCleanup").await;
    assert_eq!(is_suspended(jobs.get_opt("a").await.unwrap().as_ref()), Some(true));
    let now = DeleteParams::default().grace_period(0);
    fixture.of_member("pods").delete("a-worker-0", &now).await.unwrap();
    fixture.wait(&jobs, "a", "resumed", |job| is_suspended(job) == Some(false)).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
}

//! What becomes of pods when the cluster is cut off from the hub.

use fleet_agent_ground::Standing;

use super::{
    ends::{A_LOT_S, end_now, pod_of_job, wait_grace},
    *,
};

/// A fenced job with a pod that takes its time to end.
async fn runs(lease: &LeaseClock) -> Bed {
    let fixture = Fixture::new(&[]).await;
    let metrics = AgentMetrics::default();
    let (handles, holds) = handles(&fixture, fixture.member_link(), lease.clone(), &metrics);
    tokio::spawn(crate::run(handles, settings(Permits::default()), fixture.shutdown.clone()));
    let mut fenced = work("w", 1, vec![job()]);
    fenced.spec.fenced = true;
    submit(&fixture, fenced).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    pod_of_job(&fixture, "a-worker-0", A_LOT_S).await;
    Bed { fixture, holds }
}

/// The hub may start the job's next run elsewhere as soon as the fence grace is over.
#[tokio::test]
async fn a_pod_that_ends_slowly_after_its_run_was_removed_ends_in_time() {
    let lease = LeaseClock::held();
    let fixture = runs(&lease).await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    wait_grace(&fixture, "a-worker-0", 120).await;
    lease.set_standing(Standing::CutOff);
    wait_grace(&fixture, "a-worker-0", 15).await;
}

#[tokio::test]
async fn a_pod_that_outlives_its_job_ends_in_time() {
    let lease = LeaseClock::held();
    let fixture = runs(&lease).await;
    end_now(&fixture).await;
    wait_work(&fixture, "w", "with a live pod", |work| {
        work.and_then(|work| work.status.as_ref()?.live_pods) == Some(1)
    })
    .await;
    lease.set_standing(Standing::CutOff);
    wait_grace(&fixture, "a-worker-0", 15).await;
}

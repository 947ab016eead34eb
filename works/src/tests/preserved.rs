//! What stays in the member when its Work is deleted.

use fleet_api::names::PRESERVED_ANNOTATION;

use super::*;

/// The policy preserves resources; `is_object_gone`: the hub says so before it deletes the Work.
async fn deleted(fixture: &Fixture, is_object_gone: bool) {
    let mut staying = work("w", 1, vec![job(), config()]);
    staying.spec.preserve_resources_on_deletion = Some(true);
    submit(fixture, staying).await;
    wait_applied(fixture, "w", "True", "AppliedSuccessful").await;
    if is_object_gone {
        let told = Patch::Merge(json!({"metadata": {"annotations": {PRESERVED_ANNOTATION: "true"}}}));
        works(fixture).patch("w", &PatchParams::default(), &told).await.unwrap();
    }
    works(fixture).delete("w", &DeleteParams::default()).await.unwrap();
    wait_work(fixture, "w", "gone", |work| work.is_none()).await;
}

#[tokio::test]
async fn what_is_to_stay_loses_its_marks() {
    let fixture = start().await;
    deleted(&fixture, true).await;
    let job = fixture.of_member("pytorchjobs").get("a").await.unwrap();
    assert!(job.finalizers().is_empty() && job.labels().is_empty(), "{:?}", job.metadata);
    assert!(fixture.of_member("configmaps").get("c").await.unwrap().labels().is_empty());
}

/// Its job is placed again, so what stayed would be a second run that no quota counts.
#[tokio::test]
async fn a_run_that_is_evicted_is_removed_also_if_its_policy_preserves_resources() {
    let fixture = start().await;
    deleted(&fixture, false).await;
    assert!(fixture.of_member("pytorchjobs").get_opt("a").await.unwrap().is_none());
    assert!(fixture.of_member("configmaps").get_opt("c").await.unwrap().is_none());
}

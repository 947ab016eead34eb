//! A queued PyTorchJob waits, is admitted, reserved, bound, dispatched, and its end is recorded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::http::Method;
use fleet_api::{Queue, QueueUnit, Reservation, ResourceBinding, Work};
use fleet_apiserver::faults::{Fate, FrameFate, Script};
use fleet_hub_core::Options as Rules;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

use crate::hub::{condition, hub, hub_with, hub_with_faults, until};

#[tokio::test]
async fn a_queued_job_goes_from_its_queue_to_one_cluster_and_back() {
    let hub = hub().await;
    hub.apply("elasticquotatree.yaml").await;
    let queues: Api<Queue> = Api::namespaced(hub.client.clone(), "kube-queue");
    let names = until("two queues", || async {
        let list = queues.list(&ListParams::default()).await.ok()?;
        (list.items.len() == 2).then(|| list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
    })
    .await;
    assert!(names.iter().any(|name| name.starts_with("root-child-2-")), "{names:?}");
    hub.apply("propagationpolicy-gang-queued.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    hub.until_state("pytorch-test", "Queuing").await;
    let units: Api<QueueUnit> = Api::namespaced(hub.client.clone(), "default");
    let unit = until("a unit", || async { units.list(&ListParams::default()).await.ok()?.items.pop() }).await;
    assert_eq!(unit.spec.queue.as_deref(), Some("root/child-2"));

    hub.member("east").await;
    let reservation = hub.reservation("east").await;
    assert_eq!(reservation.spec.epoch, 1);
    hub.answer(
        &reservation,
        json!({"phase": "Reserved", "reportSequence": 2,
        "nodes": {"master": ["node-0"], "worker": ["node-0", "node-0"]}}),
    )
    .await;
    let work = hub.work("east").await;
    assert_eq!(work.spec.epoch, 1);
    assert_eq!(work.spec.reservation.as_deref(), Some(reservation.name_any().as_str()));
    assert_eq!(work.spec.workload.manifests[0]["metadata"]["name"], "pytorch-test");
    assert!(work.spec.workload.manifests[0].get("status").is_none());
    let binding = hub.binding().await;
    assert_eq!((binding.spec.epoch, binding.spec.clusters[0].name.as_str()), (1, "east"));
    let events: Api<Event> = Api::namespaced(hub.client.clone(), "default");
    let told = until("the events", || async {
        let list = events.list(&ListParams::default()).await.ok()?;
        let told: Vec<Event> = list
            .items
            .into_iter()
            .filter(|e| e.reason.as_deref() == Some("ScheduleBindingSucceed"))
            .collect();
        (!told.is_empty()).then_some(told)
    })
    .await;
    assert_eq!(told.len(), 1, "told once");
    for event in told {
        let expected = "Binding has been scheduled successfully. Result: {east:0,[{master 1} {worker 2}]}";
        assert_eq!(event.message.as_deref(), Some(expected));
        assert_eq!(event.source.and_then(|s| s.component).as_deref(), Some("default-scheduler"));
    }
    hub.until_state("pytorch-test", "Created").await;

    // One job of the leaf at a time: the second waits.
    let mut second = hub.jobs().get("pytorch-test").await.expect("there");
    second.metadata = kube::core::ObjectMeta { name: Some("second".into()), ..Default::default() };
    second.data.as_object_mut().map(|data| data.remove("status"));
    hub.jobs().create(&PostParams::default(), &second).await.expect("created");
    hub.until_state("second", "Queuing").await;

    hub.report(&work, json!([condition("Created", "True"), condition("Running", "True")])).await;
    hub.until_state("pytorch-test", "Running").await;
    hub.report(
        &work,
        json!([condition("Created", "True"), condition("Running", "False"), condition("Succeeded", "True")]),
    )
    .await;
    hub.until_state("pytorch-test", "Succeeded").await;
    let result = until("the result", || async { hub.binding().await.status?.result }).await;
    assert_eq!((result.outcome.as_str(), result.cluster.as_str()), ("Succeeded", "east"));
    let next = hub.reservation("east").await;
    assert_eq!(next.spec.binding.name, "second-pytorchjob");
}

#[tokio::test]
async fn a_refused_job_tries_the_next_cluster_and_keeps_its_place() {
    let hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let first = hub.reservation("east").await;
    hub.answer(&first, json!({"phase": "Refused", "message": "worker: 1 of 2 fit"})).await;
    let second = hub.reservation("west").await;
    assert_eq!((second.spec.epoch, second.spec.binding.uid.clone()), (1, first.spec.binding.uid.clone()));
    hub.answer(&second, json!({"phase": "Reserved", "reportSequence": 2})).await;
    let work = hub.work("west").await;
    assert_eq!(work.spec.binding.name, "pytorch-test-pytorchjob");
    // Failed within its toleration of 30 s: not final, and not run again yet.
    hub.report(&work, json!([condition("Created", "True"), condition("Failed", "True")])).await;
    until("the first time it was seen failed", || async { hub.binding().await.status?.unhealthy_since })
        .await;
    assert!(hub.binding().await.status.is_none_or(|status| status.result.is_none()));
}

#[tokio::test]
async fn what_no_cluster_could_ever_hold_says_so_and_holds_no_quota() {
    let hub = hub().await;
    hub.member("east").await;
    hub.apply("elasticquotatree.yaml").await;
    hub.apply("propagationpolicy-gang-queued.yaml").await;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": 9}}});
    hub.create(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "wide"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}}}))
        .await;
    let units: Api<QueueUnit> = Api::namespaced(hub.client.clone(), "default");
    until("the reason", || async {
        let unit = units.list(&ListParams::default()).await.ok()?.items.pop()?;
        (unit.status?.reason.as_deref() == Some("ExceedsEveryCluster")).then_some(())
    })
    .await;
    let events: Api<Event> = Api::namespaced(hub.client.clone(), "default");
    until("one event that tells it", || async {
        let list = events.list(&ListParams::default()).await.ok()?;
        let told: Vec<&Event> =
            list.items.iter().filter(|e| e.reason.as_deref() == Some("ScheduleBindingFailed")).collect();
        (told.len() == 1 && told[0].message.as_ref()?.contains("ExceedsEveryCluster")).then_some(())
    })
    .await;
    let queues: Api<Queue> = Api::namespaced(hub.client.clone(), "kube-queue");
    until("no job admitted, one waiting", || async {
        let list = queues.list(&ListParams::default()).await.ok()?;
        let status = list.items.iter().find(|q| q.name_any().starts_with("root-child-2"))?.status.clone()?;
        (status.admitted == Some(0) && status.waiting == Some(1)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_job_takes_everything_with_it() {
    let hub = hub().await;
    hub.member("east").await;
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let reservation = hub.reservation("east").await;
    hub.answer(&reservation, json!({"phase": "Reserved", "reportSequence": 2})).await;
    let work = hub.work("east").await;
    hub.jobs().delete("pytorch-test", &Default::default()).await.expect("deleted");
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    until("the work to be deleted", || async {
        let work = works.get(&work.name_any()).await.ok()?;
        work.metadata.deletion_timestamp.map(|_| ())
    })
    .await;
    let bindings: Api<ResourceBinding> = Api::namespaced(hub.client.clone(), "default");
    // A job of the same name waits until the member has let go of the old one.
    hub.apply("pytorchjob.yaml").await;
    until("the new job to wait for the old one", || async {
        let binding = bindings.get("pytorch-test-pytorchjob").await.ok()?;
        let status = binding.status?;
        status.conditions.iter().any(|c| c.message.contains("older run of this name")).then_some(())
    })
    .await;
    let patch = json!({"metadata": {"finalizers": null}});
    works.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("let go");
    let next = hub.reservation("east").await;
    assert_ne!(next.spec.binding.uid, work.spec.binding.uid);
}

/// The first deletion of a Work is refused, some time after it was sent.
#[derive(Default)]
struct FirstDeletionFailsLate(AtomicBool);

impl Script for FirstDeletionFailsLate {
    fn request(&self, method: &Method, path: &str) -> Fate {
        let fails =
            *method == Method::DELETE && path.contains("/works/") && !self.0.swap(true, Ordering::Relaxed);
        match fails {
            // Longer than the pause before what a deleted binding has left is looked at.
            true => Fate { delay: Duration::from_millis(700), refused: Some(409), ..Fate::default() },
            false => Fate::default(),
        }
    }

    fn frame(&self) -> FrameFate {
        FrameFate::Arrives
    }
}

#[tokio::test]
async fn a_work_goes_with_its_job_although_its_deletion_failed_when_the_binding_was_gone() {
    let script = Arc::new(FirstDeletionFailsLate::default());
    let hub = hub_with_faults(script.clone()).await;
    hub.member("east").await;
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    hub.jobs().delete("pytorch-test", &Default::default()).await.expect("deleted");
    let bindings: Api<ResourceBinding> = Api::namespaced(hub.client.clone(), "default");
    until("the binding to go", || async {
        bindings.get_opt("pytorch-test-pytorchjob").await.ok()?.is_none().then_some(())
    })
    .await;
    hub.let_go(&work).await;
    assert!(script.0.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_failed_job_is_run_again_elsewhere_once_the_member_has_let_go() {
    let hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    hub.create(json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "default"}, "spec": {
            "propagateDeps": true,
            "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 0}, "purgeMode": "Immediately"}}}}))
        .await;
    hub.apply("pytorchjob.yaml").await;
    let reservation = hub.reservation("east").await;
    hub.answer(&reservation, json!({"phase": "Reserved", "reportSequence": 2})).await;
    let work = hub.work("east").await;
    hub.report(&work, json!([condition("Created", "True"), condition("Failed", "True")])).await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    until("the work to be deleted", || async {
        works.get(&work.name_any()).await.ok()?.metadata.deletion_timestamp.map(|_| ())
    })
    .await;
    assert_eq!(hub.binding().await.spec.clusters[0].name, "east", "still there while the member cleans up");
    let patch = json!({"metadata": {"finalizers": null}});
    works.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("let go");
    let again = hub.reservation("west").await;
    assert_eq!(again.spec.epoch, 2);
    hub.answer(&again, json!({"phase": "Reserved", "reportSequence": 2})).await;
    let work = hub.work("west").await;
    assert_eq!(work.spec.epoch, 2);
    hub.report(&work, json!([condition("Created", "True"), condition("Succeeded", "True")])).await;
    hub.until_state("pytorch-test", "Succeeded").await;
    let status =
        until("the result", || async { hub.binding().await.status.filter(|s| s.result.is_some()) }).await;
    assert_eq!(status.attempts.len(), 1);
    assert_eq!((status.attempts[0].cluster.as_str(), status.attempts[0].epoch), ("east", 1));
}

#[tokio::test]
async fn a_job_taken_back_goes_through_its_queue_again() {
    let hub = hub().await;
    hub.member("east").await;
    hub.apply("elasticquotatree.yaml").await;
    hub.create(json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "default"}, "spec": {
            "propagateDeps": true,
            "suspension": {"scheduling": true},
            "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 0}}}}}))
        .await;
    hub.apply("pytorchjob.yaml").await;
    let reservation = hub.reservation("east").await;
    hub.answer(&reservation, json!({"phase": "Reserved", "reportSequence": 2})).await;
    let work = hub.work("east").await;
    let mut second = hub.jobs().get("pytorch-test").await.expect("there");
    second.metadata = kube::core::ObjectMeta { name: Some("second".into()), ..Default::default() };
    second.data.as_object_mut().map(|data| data.remove("status"));
    hub.jobs().create(&PostParams::default(), &second).await.expect("created");
    hub.until_state("second", "Queuing").await;
    hub.report(&work, json!([condition("Created", "True"), condition("Failed", "True")])).await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    until("the work to be deleted", || async {
        works.get(&work.name_any()).await.ok()?.metadata.deletion_timestamp.map(|_| ())
    })
    .await;
    let patch = json!({"metadata": {"finalizers": null}});
    works.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("let go");
    // One job of this queue at a time: it is the older one's turn again, and the other still waits.
    let again = hub.reservation("east").await;
    assert_eq!((again.spec.binding.name.as_str(), again.spec.epoch), ("pytorch-test-pytorchjob", 2));
    let reservations: Api<Reservation> = Api::namespaced(hub.client.clone(), "fleet-east");
    assert_eq!(reservations.list(&ListParams::default()).await.expect("listed").items.len(), 1);
    assert_eq!(hub.state("second").await, "Queuing");
}

#[tokio::test]
async fn a_cluster_that_dies_before_it_answers_lets_the_job_go() {
    let hub = hub_with(fleet_controller::Options {
        rules: Rules {
            lease_duration: Duration::from_millis(200),
            lease_margin: Duration::from_millis(50),
            ..Rules::default()
        },
        ..Default::default()
    })
    .await;
    hub.member("east").await;
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    hub.reservation("east").await;
    // Nobody renews the lease.
    until("the reason", || async {
        let status = hub.binding().await.status?;
        status
            .conditions
            .iter()
            .any(|c| c.reason == "ClusterNotAdmitted" && c.message.contains("not ready"))
            .then_some(())
    })
    .await;
    let reservations: Api<Reservation> = Api::namespaced(hub.client.clone(), "fleet-east");
    until("the reservation to be gone", || async {
        reservations.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn places_that_expire_before_the_job_is_bound_are_asked_for_again() {
    let hub = hub().await;
    hub.member("east").await;
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let first = hub.reservation("east").await;
    let message = "the job did not arrive within 60 s";
    hub.answer(&first, json!({"phase": "Expired", "message": message})).await;
    until("the reason", || async {
        let status = hub.binding().await.status?;
        status.conditions.iter().any(|c| c.type_ == "Scheduled" && c.message.contains(message)).then_some(())
    })
    .await;
    let second = hub.reservation("east").await;
    assert_ne!(second.metadata.uid, first.metadata.uid);
    assert_eq!(second.spec.epoch, 1);
    assert_eq!(hub.accept("east").await.spec.epoch, 1);
}

#[tokio::test]
async fn places_that_expire_before_the_work_is_made_are_asked_for_anew() {
    let mut hub = hub().await;
    hub.member("east").await;
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let first = hub.reservation("east").await;
    // The controller dies between its binding and its Work, and stays away for longer than the places are held.
    hub.shutdown.cancel();
    let bindings: Api<fleet_api::ResourceBinding> = Api::namespaced(hub.client.clone(), "default");
    let bound = json!({"spec": {"epoch": 1, "suspension": null, "clusters": [{"name": "east",
        "components": [{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 2}]}]}});
    bindings
        .patch("pytorch-test-pytorchjob", &PatchParams::default(), &Patch::Merge(bound))
        .await
        .expect("bound");
    hub.answer(&first, json!({"phase": "Expired", "message": "the job did not arrive within 60 s"})).await;
    hub.restart().await;
    let second = hub.reservation("east").await;
    assert_eq!(second.spec.epoch, 2);
    let reservations: Api<Reservation> = Api::namespaced(hub.client.clone(), "fleet-east");
    assert_eq!(reservations.list(&ListParams::default()).await.expect("listed").items.len(), 1);
    let work = hub.accept("east").await;
    assert_eq!(work.spec.epoch, 2);
    // It was no run: nothing counts against the job.
    assert!(hub.attempts().await.is_empty());
}

#[tokio::test]
async fn a_reservation_that_comes_when_others_have_the_quota_is_given_back() {
    let hub = hub().await;
    hub.member("east").await;
    hub.apply("elasticquotatree.yaml").await;
    hub.apply("propagationpolicy-gang-queued.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    hub.report(&work, json!([condition("Created", "True"), condition("Running", "True")])).await;
    let mut second = hub.jobs().get("pytorch-test").await.expect("there");
    second.metadata = kube::core::ObjectMeta { name: Some("second".into()), ..Default::default() };
    second.data.as_object_mut().map(|data| data.remove("status"));
    hub.jobs().create(&PostParams::default(), &second).await.expect("created");
    hub.until_state("second", "Queuing").await;

    // A controller that has died since had asked for places for the second job; only now its request is written.
    let bindings: Api<ResourceBinding> = Api::namespaced(hub.client.clone(), "default");
    let binding = bindings.get("second-pytorchjob").await.expect("there");
    let uid = binding.metadata.uid.clone().unwrap_or_default();
    hub.create(json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Reservation",
        "metadata": {"name": format!("second-pytorchjob-{}-1", &uid[..8]), "namespace": "fleet-east"},
        "spec": {"binding": {"namespace": "default", "name": "second-pytorchjob", "uid": uid}, "epoch": 1,
            "components": binding.spec.components, "ttlSeconds": 60}}))
        .await;
    let late = hub.reservation("east").await;
    hub.answer(&late, json!({"phase": "Reserved", "reportSequence": 3})).await;
    let reservations: Api<Reservation> = Api::namespaced(hub.client.clone(), "fleet-east");
    until("it to be given back", || async {
        reservations.get_opt(&late.name_any()).await.ok()?.is_none().then_some(())
    })
    .await;
    let binding = bindings.get("second-pytorchjob").await.expect("there");
    assert_eq!((binding.spec.epoch, binding.spec.clusters.len()), (0, 0));

    // Its turn comes all the same.
    hub.report(&work, json!([condition("Created", "True"), condition("Succeeded", "True")])).await;
    assert_eq!(hub.accept("east").await.spec.epoch, 1);
}

#[tokio::test]
async fn in_a_member_without_reservations_the_word_stands_before_the_binding() {
    let hub = hub().await;
    hub.member("east").await;
    let clusters: Api<fleet_api::Cluster> = Api::all(hub.client.clone());
    let without = json!({"status": {"reservation": false, "reportSequence": 2}});
    clusters.patch_status("east", &PatchParams::default(), &Patch::Merge(without)).await.expect("reported");
    let reservations: Api<Reservation> = Api::namespaced(hub.client.clone(), "fleet-east");
    let mut told = reservations.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    hub.apply("propagationpolicy-gang.yaml").await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.work("east").await;
    assert_eq!((work.spec.epoch, work.spec.reservation.as_deref()), (1, None));
    assert_eq!(hub.binding().await.spec.clusters[0].name, "east");
    // It stood for the time of the binding, and nobody answered it.
    let mut kinds = Vec::new();
    while kinds.last() != Some(&"deleted") {
        let event = tokio::time::timeout(Duration::from_secs(5), told.next()).await.expect("in time");
        let (kind, reservation) = match event.expect("the watch goes on").expect("an event") {
            WatchEvent::Added(reservation) => ("added", reservation),
            WatchEvent::Modified(reservation) => ("modified", reservation),
            WatchEvent::Deleted(reservation) => ("deleted", reservation),
            _ => continue,
        };
        assert!(
            reservation.spec.epoch == 1 && reservation.status.is_none_or(|status| status.phase.is_none())
        );
        kinds.push(kind);
    }
    assert_eq!(kinds, ["added", "deleted"]);
}

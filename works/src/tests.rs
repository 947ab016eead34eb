//! Works against embedded API servers of a hub and a member.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use fleet_agent_fixture::Fixture;
use fleet_agent_ground::{
    AgentMetrics, Clock, HoldRequest, LeaseClock, Link, Owned, Permits, Reservations, Sorted, Terms,
};
use fleet_api::{
    Work,
    names::{RESULT_FINALIZER, RESULT_RECORDED_ANNOTATION, WORK_FINALIZER},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{Handles, Settings};

mod any_form;
mod earlier;
mod ends;
mod fence;
mod late;
mod looks;
mod preserved;
mod resumed;
mod unseen;

/// The room over two servers.
struct Bed {
    fixture: Fixture,
    holds: mpsc::Receiver<HoldRequest>,
}

impl Deref for Bed {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl DerefMut for Bed {
    fn deref_mut(&mut self) -> &mut Fixture {
        &mut self.fixture
    }
}

async fn start() -> Bed {
    let permits = Permits { overwrite: true, ..Permits::default() };
    start_with(Permits {
        kinds: permits.kinds.into_iter().chain(["Odd.odd.dev".to_owned()]).collect(),
        ..permits
    })
    .await
}

async fn start_with(permits: Permits) -> Bed {
    let fixture = Fixture::new(&[]).await;
    let holds = run(&fixture, permits);
    Bed { fixture, holds }
}

/// Runs the room until the fixture is told to stop; returns what it asks of the holds.
fn run(fixture: &Fixture, permits: Permits) -> mpsc::Receiver<HoldRequest> {
    run_over(fixture, fixture.member_link(), permits)
}

fn run_over(fixture: &Fixture, member: Link, permits: Permits) -> mpsc::Receiver<HoldRequest> {
    let (handles, holds) = handles(fixture, member, LeaseClock::held(), &AgentMetrics::default());
    tokio::spawn(super::run(handles, settings(permits), fixture.shutdown.clone()));
    holds
}

fn handles(
    fixture: &Fixture,
    member: Link,
    lease: LeaseClock,
    metrics: &AgentMetrics,
) -> (Handles, mpsc::Receiver<HoldRequest>) {
    let hub = fixture.hub_link();
    let (places, holds, _) = Reservations::new();
    let handles = Handles {
        terms: Arc::new(Terms::new(member.client.clone(), hub.source.clone(), "east")),
        hub,
        member,
        clock: Clock::start(),
        counts: metrics.of("east"),
        lease,
        owned: Owned::default(),
        places,
        sorted: Sorted::default(),
    };
    (handles, holds)
}

fn settings(permits: Permits) -> Settings {
    Settings {
        permits,
        scheduler_names: ["fleet".to_owned(), "volcano".to_owned()].into(),
        controllers: [].into(),
        fence_grace: Duration::from_secs(20),
        max_pod_grace: Duration::from_secs(120),
        member_request_timeout: Duration::from_secs(60),
        watchdog_image: Some("watchdog:1".to_owned()),
        watchdog_stops_within: Duration::from_secs(10),
    }
}

fn works(fixture: &Fixture) -> Api<Work> {
    Api::namespaced(fixture.hub.clone(), "fleet-east")
}

fn job() -> Value {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}})
}

fn config() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}, "data": {"k": "v"}})
}

fn work(name: &str, epoch: i64, manifests: Vec<Value>) -> Work {
    let text = |path: &str| manifests[0].pointer(path).and_then(Value::as_str).unwrap_or_default();
    let binding = fleet_api::names::binding_name(text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let namespace = text("/metadata/namespace");
    let value = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "namespace": "fleet-east", "finalizers": [WORK_FINALIZER]},
        "spec": {"binding": {"namespace": namespace, "name": binding, "uid": format!("uid-{name}")},
            "epoch": epoch, "reservation": "r", "workload": {"manifests": manifests}}});
    serde_json::from_value(value).unwrap()
}

async fn submit(fixture: &Fixture, work: Work) {
    works(fixture).create(&PostParams::default(), &work).await.unwrap();
}

async fn wait_work(
    fixture: &Fixture,
    name: &str,
    what: &str,
    condition: impl Fn(Option<&Work>) -> bool,
) -> Option<Work> {
    let api = works(fixture);
    let waiting = await_condition(api.clone(), name, |work: Option<&Work>| condition(work));
    match tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await {
        Ok(found) => found.unwrap(),
        Err(_) => panic!("{name}: never {what}: {:#?}", api.get_opt(name).await),
    }
}

/// Waits for the condition Applied with this status and reason.
async fn wait_applied(fixture: &Fixture, name: &str, status: &str, reason: &str) -> Work {
    let found = wait_work(fixture, name, reason, |work| {
        let conditions = work.and_then(|work| work.status.as_ref()).map(|status| &status.conditions);
        conditions.is_some_and(|list| list.iter().any(|c| c.status == status && c.reason == reason))
    });
    found.await.unwrap()
}

async fn set_status(fixture: &Fixture, condition: &str) {
    let now = "2026-01-01T00:00:00Z";
    let status = json!({"status": {"conditions": [
        {"type": condition, "status": "True", "lastUpdateTime": now, "lastTransitionTime": now}]}});
    let jobs = fixture.of_member("pytorchjobs");
    jobs.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn wait_reported(fixture: &Fixture, name: &str, condition: &str) -> Work {
    let found = wait_work(fixture, name, condition, |work| {
        let status = work.and_then(|work| work.status.as_ref());
        status
            .and_then(|s| s.manifest_statuses.first())
            .is_some_and(|one| one.status["conditions"][0]["type"] == condition)
    });
    found.await.unwrap()
}

#[tokio::test]
async fn from_made_to_gone() {
    let mut fixture = start().await;
    let mut manifests = vec![job(), config()];
    for manifest in &mut manifests {
        manifest["metadata"]["namespace"] = "team".into();
    }
    submit(&fixture, work("w", 1, manifests)).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    assert_eq!(
        fixture.holds.recv().await,
        Some(HoldRequest::Consume { binding_uid: "uid-w".to_owned(), epoch: 1 })
    );
    let resource = fleet_agent_ground::resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
    let jobs: Api<DynamicObject> = Api::namespaced_with(fixture.member.clone(), "team", &resource);
    let made = jobs.get("a").await.unwrap();
    assert_eq!(made.finalizers(), [RESULT_FINALIZER]);
    assert_eq!(made.labels()["fleet.dev/binding-uid"], "uid-w");
    assert_eq!(made.annotations()["fleet.dev/epoch"], "1");
    assert_eq!(made.annotations()["fleet.dev/reservation"], "r");
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    wait_work(&fixture, "w", "gone", |work| work.is_none()).await;
    assert!(jobs.get_opt("a").await.unwrap().is_none());
    let resource = fleet_agent_ground::resource("", "v1", "ConfigMap", "configmaps");
    let configs: Api<DynamicObject> = Api::namespaced_with(fixture.member.clone(), "team", &resource);
    assert!(configs.get_opt("c").await.unwrap().is_none());
    // Each look at a Work that stands says again that it has arrived.
    let mut last = fixture.holds.recv().await;
    while matches!(last, Some(HoldRequest::Consume { .. })) {
        last = fixture.holds.recv().await;
    }
    assert_eq!(last, Some(HoldRequest::Release { binding_uid: "uid-w".to_owned(), epoch: 1 }));
}

#[tokio::test]
async fn status_flows_and_the_result_is_kept_until_recorded() {
    let fixture = start().await;
    submit(&fixture, work("w", 3, vec![job()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    set_status(&fixture, "Running").await;
    let reported = wait_reported(&fixture, "w", "Running").await.status.unwrap();
    assert_eq!(reported.observed_epoch, Some(3));
    assert_eq!(reported.manifest_statuses[0].health.as_deref(), Some("Healthy"));
    set_status(&fixture, "Succeeded").await;
    // Its time to live is over before the hub has seen the end: the object is held.
    fixture.of_member("pytorchjobs").delete("a", &DeleteParams::background()).await.unwrap();
    wait_reported(&fixture, "w", "Succeeded").await;
    assert!(fixture.of_member("pytorchjobs").get_opt("a").await.unwrap().is_some());
    let recorded = json!({"metadata": {"annotations": {RESULT_RECORDED_ANNOTATION: "true"}}});
    works(&fixture).patch("w", &PatchParams::default(), &Patch::Merge(recorded)).await.unwrap();
    fixture.wait_gone("pytorchjobs", "a").await;
    // A run that has ended is never begun anew: the next look at the Work changes nothing.
    let touched = json!({"metadata": {"annotations": {"touched": "true"}}});
    works(&fixture).patch("w", &PatchParams::default(), &Patch::Merge(touched)).await.unwrap();
    submit(&fixture, work("other", 1, vec![config()])).await;
    wait_applied(&fixture, "other", "True", "AppliedSuccessful").await;
    assert!(fixture.of_member("pytorchjobs").get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_name_that_is_taken_is_left_alone() {
    let fixture = start().await;
    let mut foreign = job();
    foreign["metadata"]["labels"] = json!({"mine": "yes"});
    let before = fixture.create(&fixture.member, "kubeflow.org", "v1", "pytorchjobs", foreign).await;
    submit(&fixture, work("w", 1, vec![job()])).await;
    wait_applied(&fixture, "w", "False", "NameTaken").await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    wait_work(&fixture, "w", "gone", |work| work.is_none()).await;
    let after = fixture.of_member("pytorchjobs").get("a").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "untouched");
    let mut taking = work("taking", 1, vec![job()]);
    taking.spec.conflict_resolution = Some(fleet_api::policy::ConflictResolution::Overwrite);
    submit(&fixture, taking).await;
    wait_applied(&fixture, "taking", "True", "AppliedSuccessful").await;
    let after = fixture.of_member("pytorchjobs").get("a").await.unwrap();
    assert_eq!(after.labels()["fleet.dev/binding-uid"], "uid-taking");
    assert_eq!(after.labels()["mine"], "yes");
}

#[tokio::test]
async fn an_older_epoch_is_refused_and_a_newer_one_is_a_new_run() {
    let fixture = start().await;
    submit(&fixture, work("w", 5, vec![job()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    let first = fixture.of_member("pytorchjobs").get("a").await.unwrap().metadata.uid;
    let set_epoch = async |epoch: i64| {
        let patch = Patch::Merge(json!({"spec": {"epoch": epoch}}));
        works(&fixture).patch("w", &PatchParams::default(), &patch).await.unwrap();
    };
    set_epoch(4).await;
    wait_applied(&fixture, "w", "False", "StaleEpoch").await;
    assert_eq!(fixture.of_member("pytorchjobs").get("a").await.unwrap().metadata.uid, first);
    set_epoch(6).await;
    let done = wait_work(&fixture, "w", "of the new epoch", |work| {
        work.and_then(|work| work.status.as_ref()).and_then(|status| status.observed_epoch) == Some(6)
    });
    done.await;
    let second = fixture.of_member("pytorchjobs").get("a").await.unwrap();
    assert_ne!(second.metadata.uid, first);
    assert_eq!(second.annotations()["fleet.dev/epoch"], "6");
}

#[tokio::test]
async fn another_bindings_run_goes_first() {
    let fixture = start().await;
    submit(&fixture, work("old", 1, vec![job(), config()])).await;
    wait_applied(&fixture, "old", "True", "AppliedSuccessful").await;
    submit(&fixture, work("new", 1, vec![job(), config()])).await;
    wait_applied(&fixture, "new", "False", "WaitingForCleanup").await;
    let shared = fixture.of_member("configmaps").get("c").await.unwrap();
    assert_eq!(shared.annotations()["fleet.dev/bindings"], "uid-new,uid-old");
    works(&fixture).delete("old", &DeleteParams::default()).await.unwrap();
    wait_applied(&fixture, "new", "True", "AppliedSuccessful").await;
    let configs = fixture.of_member("configmaps");
    fixture
        .wait(&configs, "c", "the new one's alone", |config| {
            config.is_some_and(|config| config.annotations()["fleet.dev/bindings"] == "uid-new")
        })
        .await;
    let job = fixture.of_member("pytorchjobs").get("a").await.unwrap();
    assert_eq!(job.labels()["fleet.dev/binding-uid"], "uid-new");
}

#[tokio::test]
async fn pods_go_before_the_work_does() {
    let fixture = start().await;
    submit(&fixture, work("w", 1, vec![job()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    let uid = fixture.of_member("pytorchjobs").get("a").await.unwrap().metadata.uid.unwrap();
    // A finalizer stands for the time a kubelet takes.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-worker-0", "namespace": "default",
        "finalizers": ["test/kubelet"],
        "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "a", "uid": uid, "controller": true}]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    fixture.create(&fixture.member, "", "v1", "pods", pod).await;
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    let pods = fixture.of_member("pods");
    fixture
        .wait(&pods, "a-worker-0", "being deleted", |pod| {
            pod.is_some_and(|p| p.metadata.deletion_timestamp.is_some())
        })
        .await;
    assert!(works(&fixture).get_opt("w").await.unwrap().is_some());
    assert!(
        fixture.of_member("pytorchjobs").get_opt("a").await.unwrap().is_some(),
        "held until its pods are gone"
    );
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("a-worker-0", &PatchParams::default(), &patch).await.unwrap();
    wait_work(&fixture, "w", "gone", |work| work.is_none()).await;
    assert!(fixture.of_member("pytorchjobs").get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_work_that_vanished_while_the_agent_was_away() {
    let mut fixture = start().await;
    submit(&fixture, work("w", 1, vec![job(), config()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    fixture.restart();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    works(&fixture).patch("w", &PatchParams::default(), &patch).await.unwrap();
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    run(&fixture, Permits::default());
    fixture.wait_gone("pytorchjobs", "a").await;
    fixture.wait_gone("configmaps", "c").await;
}

#[tokio::test]
async fn a_job_deleted_in_the_member_begins_anew() {
    let fixture = start().await;
    submit(&fixture, work("w", 1, vec![job()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    let jobs = fixture.of_member("pytorchjobs");
    let first = jobs.get("a").await.unwrap().metadata.uid;
    jobs.delete("a", &DeleteParams::background()).await.unwrap();
    fixture.wait(&jobs, "a", "made anew", |job| job.is_some_and(|job| job.metadata.uid != first)).await;
}

#[tokio::test]
async fn drift_is_put_right_and_what_others_add_stays() {
    let fixture = start().await;
    submit(&fixture, work("w", 1, vec![config()])).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    let configs = fixture.of_member("configmaps");
    let drift = Patch::Merge(json!({"metadata": {"labels": {"mine": "yes"}}, "data": {"k": "other"}}));
    configs.patch("c", &PatchParams::default(), &drift).await.unwrap();
    let config =
        fixture.wait(&configs, "c", "put right", |c| c.is_some_and(|c| c.data["data"]["k"] == "v")).await;
    assert_eq!(config.unwrap().labels()["mine"], "yes");
    configs.delete("c", &DeleteParams::default()).await.unwrap();
    fixture.wait_for("configmaps", "c").await;
}

#[tokio::test]
async fn a_kind_the_member_does_not_know_and_dispatch_held_back() {
    let fixture = start().await;
    let odd =
        json!({"apiVersion": "odd.dev/v1", "kind": "Odd", "metadata": {"name": "o", "namespace": "default"}});
    submit(&fixture, work("odd", 1, vec![odd])).await;
    wait_applied(&fixture, "odd", "False", "AppliedFailed").await;
    let mut held = work("held", 1, vec![job()]);
    held.spec.suspend_dispatching = Some(true);
    submit(&fixture, held).await;
    submit(&fixture, work("other", 1, vec![config()])).await;
    wait_applied(&fixture, "other", "True", "AppliedSuccessful").await;
    assert!(fixture.of_member("pytorchjobs").get_opt("a").await.unwrap().is_none());
    let patch = Patch::Merge(json!({"spec": {"suspendDispatching": false}}));
    works(&fixture).patch("held", &PatchParams::default(), &patch).await.unwrap();
    fixture.wait_for("pytorchjobs", "a").await;
}

/// Submits a Work and waits until it is refused with this reason; returns the message.
async fn refused(fixture: &Fixture, work: Work, reason: &str) -> String {
    let name = work.name_any();
    submit(fixture, work).await;
    let found = wait_applied(fixture, &name, "False", reason).await;
    found.status.unwrap().conditions[0].message.clone()
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!({"a": value}))
}

#[tokio::test]
async fn what_is_nested_too_deeply_is_not_applied() {
    let fixture = start().await;
    let mut deep = work("deep", 1, vec![job()]);
    deep.spec.workload.manifests[0]["spec"]["deep"] = nested(63);
    let message = refused(&fixture, deep, "NotPermitted").await;
    assert_eq!(
        message,
        "spec.workload.manifests[0]: found 65 levels of nested objects and lists; allowed: 64"
    );
}

/// What the hub's overrides once made of a tenant's objects: each was applied with the agent's own rights.
#[tokio::test]
async fn a_work_reaches_no_further_than_its_binding() {
    let fixture = start_with(Permits::default()).await;
    let object = |api_version: &str, kind: &str, namespace: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
    let mut elsewhere = work("elsewhere", 1, vec![job(), config()]);
    elsewhere.spec.workload.manifests[1]["metadata"]["namespace"] = "kube-system".into();
    let message = refused(&fixture, elsewhere, "NotPermitted").await;
    assert_eq!(
        message,
        "spec.workload.manifests[1].metadata.namespace: found \"kube-system\"; allowed: the binding's, default"
    );

    let mut renamed = work("renamed", 1, vec![job()]);
    renamed.spec.workload.manifests[0]["metadata"]["name"] = "second".into();
    let message = refused(&fixture, renamed, "NotPermitted").await;
    assert!(message.ends_with("allowed: the object of binding a-pytorchjob"), "{message}");

    let cluster_admin = object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "default");
    let message = refused(&fixture, work("admin", 1, vec![cluster_admin]), "NotPermitted").await;
    assert!(
        message.contains("found ClusterRoleBinding.rbac.authorization.k8s.io; allowed in this member"),
        "{message}"
    );

    let privileged = object("v1", "ConfigMap", "kube-system");
    let message = refused(&fixture, work("system", 1, vec![privileged]), "NotPermitted").await;
    assert!(message.contains("a namespace of the cluster itself"), "{message}");
    assert!(fixture.of_member("pytorchjobs").get_opt("second").await.unwrap().is_none());
}

#[tokio::test]
async fn overwriting_needs_the_members_consent() {
    let fixture = start_with(Permits::default()).await;
    let before = fixture.create(&fixture.member, "kubeflow.org", "v1", "pytorchjobs", job()).await;
    let mut taking = work("taking", 1, vec![job()]);
    taking.spec.conflict_resolution = Some(fleet_api::policy::ConflictResolution::Overwrite);
    let message = refused(&fixture, taking, "NameTaken").await;
    assert!(message.contains("--allow-overwrite"), "{message}");
    let after = fixture.of_member("pytorchjobs").get("a").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "untouched");
}

/// Grants the account `fleet` of namespace `default` these verbs on ConfigMaps.
async fn grant(fixture: &Fixture, verb: &str) {
    let api = "rbac.authorization.k8s.io";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]);
    let meta = json!({"name": verb, "namespace": "default"});
    let role = json!({"apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": meta, "rules": rules});
    fixture.create(&fixture.member, api, "v1", "roles", role).await;
    let binding = json!({"apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": meta,
        "roleRef": {"apiGroup": api, "kind": "Role", "name": verb},
        "subjects": [{"kind": "ServiceAccount", "name": "fleet", "namespace": "default"}]});
    fixture.create(&fixture.member, api, "v1", "rolebindings", binding).await;
}

#[tokio::test]
async fn what_is_applied_under_an_account_is_bounded_by_the_members_roles() {
    let fixture = Fixture::with_roles().await;
    let impersonate = Some("system:serviceaccount:{namespace}:fleet".to_owned());
    let holds = run(&fixture, Permits { impersonate, ..Permits::default() });
    let fixture = Bed { fixture, holds };
    let may_not = |verb: &str| {
        format!(
            "system:serviceaccount:default:fleet (--impersonate) may not {verb} configmaps in namespace default of the \
             member; allowed with a role for ServiceAccount default/fleet that has {verb} on configmaps"
        )
    };
    let message = refused(&fixture, work("w", 1, vec![config()]), "NotPermitted").await;
    assert!(message.ends_with(&may_not("create")), "{message}");
    grant(&fixture, "create").await;
    let touch = |patch: Value| {
        let works = works(&fixture);
        async move { works.patch("w", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap() }
    };
    touch(json!({"metadata": {"annotations": {"looked": "again"}}})).await;
    wait_applied(&fixture, "w", "True", "AppliedSuccessful").await;
    let mut other = config();
    other["data"]["k"] = "other".into();
    touch(json!({"spec": {"workload": {"manifests": [other]}}})).await;
    let work = wait_applied(&fixture, "w", "False", "NotPermitted").await;
    let message = &work.status.unwrap().conditions[0].message;
    assert!(message.ends_with(&may_not("patch")), "{message}");
    // What Fleet has made it takes away by its own right.
    works(&fixture).delete("w", &DeleteParams::default()).await.unwrap();
    fixture.wait_gone("configmaps", "c").await;
}

//! What becomes of jobs while their cluster is cut off from the hub, and after: over embedded API servers, with the
//! agent's own job controller.

use std::{collections::BTreeSet, time::Duration};

use fleet_api::{Work, names};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use member_agent::{JobController, Options};
use serde_json::{Value, json};

use crate::bed::{self, Agent, Bed, create, options, until, work};

fn fencing() -> Options {
    Options {
        lease_duration: Duration::from_secs(2),
        lease_renew: Duration::from_millis(100),
        fence_grace: Duration::from_secs(2),
        controllers: [JobController::PyTorchJob].into(),
        scheduler_names: ["fleet".to_owned()].into(),
        ..options()
    }
}

impl Bed {
    /// Waits until both pods of the job are bound and plays the kubelet for them; returns their uids.
    pub async fn run_pods(&self, name: &str) -> BTreeSet<String> {
        let mut uids = BTreeSet::new();
        for pod in ["master-0", "worker-0"] {
            let pod = format!("{name}-{pod}");
            self.node_of(&pod).await;
            let running = json!({"status": {"phase": "Running"}});
            let pods = self.pods();
            let pod = pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
            uids.insert(pod.uid().unwrap());
        }
        uids
    }

    /// Waits until the pods are asked to end, and plays the kubelet; returns the grace they were given.
    pub async fn end_pods(&self, name: &str) -> BTreeSet<i64> {
        let mut graces = BTreeSet::new();
        for pod in ["master-0", "worker-0"] {
            let pod = format!("{name}-{pod}");
            let pods = self.pods();
            let asked = until(&pods, &pod, "asked to end", |pod: Option<&Pod>| {
                pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
            });
            graces.insert(asked.await.unwrap().metadata.deletion_grace_period_seconds.unwrap());
            self.pods().delete(&pod, &DeleteParams::default().grace_period(0)).await.unwrap();
        }
        graces
    }

    pub async fn wait_marked(&self, name: &str, marked: bool) {
        let what = if marked { "stopped" } else { "resumed" };
        until_object(self, name, what, |job| {
            job.is_some_and(|job| job.annotations().contains_key(names::FENCED_ANNOTATION) == marked)
        })
        .await;
    }

    async fn wait_applied(&self, name: &str, reason: &str) -> String {
        let works = self.works();
        let found = until(&works, name, reason, |work: Option<&Work>| {
            let status = work.and_then(|work| work.status.as_ref());
            status.is_some_and(|status| status.conditions.iter().any(|c| c.reason == reason))
        });
        let status = found.await.unwrap().status.unwrap();
        status.conditions[0].message.clone()
    }

    pub async fn live_pods(&self) -> Vec<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .map(ResourceExt::name_any)
            .collect()
    }
}

async fn until_object(bed: &Bed, name: &str, what: &str, holds: impl Fn(Option<&DynamicObject>) -> bool) {
    let jobs = bed.jobs();
    let waiting =
        kube::runtime::wait::await_condition(jobs.clone(), name, |job: Option<&DynamicObject>| holds(job));
    if tokio::time::timeout(bed::PATIENCE, waiting).await.is_err() {
        panic!("{name} is not {what}: {:#?}", jobs.get_opt(name).await);
    }
}

async fn running(bed: &Bed, works: &[Value]) -> Agent {
    let agent = bed.start(fencing());
    for work in works {
        create(&bed.works(), work.clone()).await;
    }
    for work in works {
        bed.run_pods(work["metadata"]["name"].as_str().unwrap()).await;
    }
    agent
}

#[tokio::test]
async fn a_cut_off_agent_stops_fenced_jobs_and_resumes_them() {
    let bed = Bed::new(&["n1 8"]).await;
    let (moves, stays) = (work("moves", 3, json!({"fenced": true})), work("stays", 1, json!({})));
    let agent = running(&bed, &[moves, stays]).await;
    bed.link.cut();
    // Three quarters of the grace, in whole seconds.
    assert_eq!(bed.end_pods("moves").await, BTreeSet::from([1]));
    bed.wait_marked("moves", true).await;
    let stopped = bed.jobs().get("moves").await.unwrap();
    assert_eq!(stopped.annotations()[names::FENCED_ANNOTATION], "3");
    assert!(
        stopped.data["spec"]["runPolicy"]["suspend"].is_null(),
        "the agent's own controller knows the mark"
    );
    assert_eq!(bed.live_pods().await, ["stays-master-0", "stays-worker-0"]);

    bed.link.join();
    bed.wait_marked("moves", false).await;
    bed.run_pods("moves").await;
    let state = bed.jobs().get("moves").await.unwrap().data["status"].to_string();
    assert!(!state.contains("Restarting") && !state.contains("Failed"), "{state}");
    agent.stop().await;
}

#[tokio::test]
async fn a_job_that_moved_meanwhile_is_cleaned_up() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = running(&bed, &[work("a", 1, json!({"fenced": true}))]).await;
    bed.link.cut();
    bed.end_pods("a").await;
    // The hub has moved it: the Work waits for this agent only.
    bed.works().delete("a", &DeleteParams::default()).await.unwrap();
    bed.link.join();
    until(&bed.works(), "a", "cleaned up", |work: Option<&Work>| work.is_none()).await;
    assert!(bed.jobs().get_opt("a").await.unwrap().is_none());
    assert!(bed.live_pods().await.is_empty());

    // A former leader's copy of that Work arrives late, and once more after a restart of the agent.
    for agent in [Some(agent), None] {
        create(&bed.works(), work("a", 1, json!({"fenced": true}))).await;
        let started = agent.is_none().then(|| bed.start(fencing()));
        let message = bed.wait_applied("a", "StaleEpoch").await;
        assert_eq!(message, "the run of epoch 1 is over in this member");
        assert!(bed.jobs().get_opt("a").await.unwrap().is_none());
        bed.works().delete("a", &DeleteParams::default()).await.unwrap();
        until(&bed.works(), "a", "gone", |work: Option<&Work>| work.is_none()).await;
        if let Some(agent) = agent.or(started) {
            agent.stop().await;
        }
    }

    // A new epoch is welcome; when the binding itself goes, nothing is remembered of it.
    let agent = bed.start(fencing());
    create(&bed.works(), work("a", 2, json!({"fenced": true}))).await;
    bed.run_pods("a").await;
    let maps: Api<ConfigMap> = Api::namespaced(bed.member.clone(), names::MEMBER_NAMESPACE);
    let kept = || async {
        let all = maps.list(&ListParams::default().labels("fleet.dev/epochs")).await.unwrap();
        all.items.into_iter().filter_map(|map| map.data).flatten().collect::<Vec<_>>()
    };
    assert_eq!(kept().await, [("uid-a".to_owned(), "1 closed".to_owned())]);
    let gone = json!({"metadata": {"annotations": {names::BINDING_GONE_ANNOTATION: "true"}}});
    bed.works().patch("a", &PatchParams::default(), &Patch::Merge(gone)).await.unwrap();
    bed.works().delete("a", &DeleteParams::default()).await.unwrap();
    bed.end_pods("a").await;
    until(&bed.works(), "a", "gone", |work: Option<&Work>| work.is_none()).await;
    assert!(kept().await.is_empty());
    agent.stop().await;
}

#[tokio::test]
async fn an_agent_restarted_without_a_hub_stops_what_its_record_says() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = running(&bed, &[work("a", 1, json!({"fenced": true}))]).await;
    let leases: Api<Lease> = Api::namespaced(bed.member.clone(), names::MEMBER_NAMESPACE);
    until(&leases, names::LEASE_NAME, "written", |lease: Option<&Lease>| lease.is_some()).await;
    bed.link.cut();
    agent.kill().await;
    // The restarted agent takes the former one's deadline over, then acts.
    let agent = bed.start(fencing());
    bed.end_pods("a").await;
    bed.wait_marked("a", true).await;
    agent.kill().await;
    // The mark outlives the agent: the next one starts nothing either, although the record has lapsed long ago.
    let agent = bed.start(fencing());
    bed.link.join();
    bed.wait_marked("a", false).await;
    bed.run_pods("a").await;
    agent.stop().await;
}

#[tokio::test]
async fn a_cluster_declared_lost_stays_stopped_until_that_is_taken_back() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = running(&bed, &[work("a", 1, json!({"fenced": true}))]).await;
    let leases: Api<Lease> = Api::namespaced(bed.hub.clone(), "fleet-east");
    let lease = leases.get(names::LEASE_NAME).await.unwrap();
    assert_eq!(lease.annotations()[names::FENCE_GRACE_ANNOTATION], "2");
    let mark = |value: Value| {
        Patch::Merge(json!({"metadata": {"annotations": {names::DECLARED_LOST_ANNOTATION: value}}}))
    };
    leases.patch(names::LEASE_NAME, &PatchParams::default(), &mark("true".into())).await.unwrap();
    bed.end_pods("a").await;
    // It renews all the same, so that the hub hears it.
    let version = leases.get(names::LEASE_NAME).await.unwrap().resource_version();
    until(&leases, names::LEASE_NAME, "renewed", |lease: Option<&Lease>| {
        lease.is_some_and(|lease| lease.resource_version() != version)
    })
    .await;
    create(&bed.works(), work("new", 1, json!({"fenced": true}))).await;
    create(&bed.works(), work("free", 1, json!({}))).await;
    bed.run_pods("free").await;
    assert_eq!(bed.live_pods().await, ["free-master-0", "free-worker-0"]);
    leases.patch(names::LEASE_NAME, &PatchParams::default(), &mark(Value::Null)).await.unwrap();
    bed.run_pods("a").await;
    bed.run_pods("new").await;
    agent.stop().await;
}

#[tokio::test]
async fn where_another_controller_runs_the_job_it_is_suspended() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = bed.start(Options { controllers: Default::default(), ..fencing() });
    create(&bed.works(), work("a", 1, json!({"fenced": true}))).await;
    until_object(&bed, "a", "made", |job| job.is_some()).await;
    bed.link.cut();
    let suspended =
        |job: Option<&DynamicObject>| job.is_some_and(|job| job.data["spec"]["runPolicy"]["suspend"] == true);
    until_object(&bed, "a", "suspended", suspended).await;
    bed.link.join();
    bed.wait_marked("a", false).await;
    assert!(bed.jobs().get("a").await.unwrap().data["spec"]["runPolicy"]["suspend"].is_null());
    agent.stop().await;
}

#[tokio::test]
async fn a_work_that_arrives_after_its_name_was_taken_starts_nothing() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = bed.start(fencing());
    create(&bed.works(), work("a", 1, json!({"workload": {"manifests": []}}))).await;
    bed.works().delete("a", &DeleteParams::default()).await.unwrap();
    until(&bed.works(), "a", "gone", |work: Option<&Work>| work.is_none()).await;
    create(&bed.works(), work("a", 1, json!({}))).await;
    assert_eq!(bed.wait_applied("a", "StaleEpoch").await, "the run of epoch 1 is over in this member");
    assert!(bed.live_pods().await.is_empty());
    agent.stop().await;
}

#[tokio::test]
async fn a_former_leader_starts_nothing() {
    let bed = Bed::new(&["n1 8"]).await;
    let agent = running(&bed, &[work("old", 1, json!({"term": 3}))]).await;
    create(&bed.works(), work("a", 1, json!({"term": 4}))).await;
    bed.run_pods("a").await;
    let refused = |term: i64| format!("term {term} is older than 4, the newest seen of a leader of the hub");
    create(&bed.works(), work("late", 1, json!({"term": 3}))).await;
    assert_eq!(bed.wait_applied("late", "StaleTerm").await, refused(3));
    agent.stop().await;
    // Remembered by the member; what runs is not touched.
    let agent = bed.start(fencing());
    create(&bed.works(), work("later", 1, json!({"term": 2}))).await;
    assert_eq!(bed.wait_applied("later", "StaleTerm").await, refused(2));
    let mut asked: fleet_api::Reservation = serde_json::from_value(json!({
        "metadata": {"name": "r"}, "spec": {"binding": {"namespace": "default", "name": "b", "uid": "u"},
            "epoch": 1, "components": [], "ttlSeconds": 60, "term": 3}}))
    .unwrap();
    asked.metadata.namespace = Some("fleet-east".to_owned());
    bed.asked().create(&PostParams::default(), &asked).await.unwrap();
    let status = bed.phase("r", fleet_api::reservation::ReservationPhase::Refused).await.status.unwrap();
    assert_eq!(status.message, Some(refused(3)));
    assert_eq!(bed.live_pods().await, ["a-master-0", "a-worker-0", "old-master-0", "old-worker-0"]);
    // The leader of today takes it up.
    let taken_up = Patch::Merge(json!({"spec": {"term": 4}}));
    bed.works().patch("late", &PatchParams::default(), &taken_up).await.unwrap();
    bed.run_pods("late").await;
    agent.stop().await;
}

//! What members and tenants can do on the hub with their real credentials: what the charts' roles list, and nothing
//! else; and what controller and agents need, which is no more than that.

use fleet_api::names;
use fleet_tests::{
    FleetSpec, Polled,
    jobs::{Job, Queueing, gang_policy},
    objects::{
        self, BINDING, CLUSTER, Kind, LEASE, PYTORCH_JOB, QUEUE, QUEUE_UNIT, RESERVATION, SECRET, WORK,
    },
    rights::{self, Hub, Question, Rights},
    servers::Door,
};
use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::time::Duration;

const QUOTA_LABELS: [&str; 2] =
    ["quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name"];
/// Requests under way at once.
const AT_ONCE: usize = 16;

fn work(namespace: &str) -> Value {
    json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": namespace, "labels": {"of": "hub"},
            "finalizers": [names::WORK_FINALIZER, "example.com/other"]},
        "spec": {"binding": {"namespace": "default", "name": "b", "uid": "u"}, "epoch": 1,
            "workload": {"manifests": []}}})
}

fn reservation(namespace: &str) -> Value {
    json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": "r", "namespace": namespace},
        "spec": {"binding": {"namespace": "default", "name": "b", "uid": "u"}, "epoch": 1, "components": [],
            "ttlSeconds": 60}})
}

fn body(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

fn refused<T: std::fmt::Debug>(what: &str, answer: Result<T, kube::Error>) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        other => panic!("{what}: found {other:?}; allowed: 403"),
    }
}

/// By the admission policy of that name.
fn denied<T: std::fmt::Debug>(what: &str, policy: &str, answer: Result<T, kube::Error>) {
    match answer {
        Err(kube::Error::Api(status)) if status.message.contains(policy) => {}
        other => panic!("{what}: found {other:?}; allowed: a refusal by {policy}"),
    }
}

/// Tries every verb on everything that the hub serves: what the roles list is let through to the object, all else
/// is refused.
async fn try_all(
    hub: &Client,
    who: &Client,
    rights: &Rights,
    places: &[(&str, &[&str])],
) -> anyhow::Result<()> {
    let questions = rights::questions(hub, places).await?;
    let allowed = questions.iter().filter(|question| rights.allow(question)).count();
    assert!(allowed > 10 && questions.len() > 20 * allowed.min(100), "{allowed} of {}", questions.len());
    let asked = futures::stream::iter(questions.into_iter().map(async |question: Question| {
        let code = rights::ask(who, &question).await;
        (question, code)
    }));
    let answers: Vec<_> =
        futures::StreamExt::collect(futures::StreamExt::buffer_unordered(asked, AT_ONCE)).await;
    let mut wrong = Vec::new();
    for (question, code) in answers {
        let code = code?;
        if (code == 403) == rights.allow(&question) || code == 401 {
            wrong.push(format!("{code} {question:?}"));
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{} answers are not what the roles say:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_may_do_what_its_roles_list_and_nothing_else() -> anyhow::Result<()> {
    let hub = Hub::start(Door::InProcess).await?;
    hub.agent("west").await?;
    let (east, rights) = hub.agent("east").await?;
    assert_eq!(
        rights.list(),
        [
            "- core namespaces [fleet-east kube-system]: get list watch",
            "- fleet.dev clusters [east]: get",
            "- fleet.dev clusters/status [east]: patch",
            "fleet-east coordination.k8s.io leases [member-agent]: get update",
            "fleet-east coordination.k8s.io leases: create",
            "fleet-east core serviceaccounts/token [member-agent]: create",
            "fleet-east fleet.dev reservations/status: patch",
            "fleet-east fleet.dev reservations: get list watch",
            "fleet-east fleet.dev works/status: patch",
            "fleet-east fleet.dev works: get list watch patch",
        ]
    );
    let own = [
        "x",
        "member-agent",
        "member-access",
        "member-agent-token",
        "east",
        "west",
        "fleet-east",
        "kube-system",
    ];
    let other = ["x", "member-agent", "member-access", "fleet-west"];
    let places: [(&str, &[&str]); 4] =
        [("fleet-east", &own), ("fleet-west", &other), ("kube-system", &["x"]), ("default", &["x"])];
    try_all(&hub.client, &east, &rights, &places).await?;
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_may_do_what_its_roles_list_and_nothing_else() -> anyhow::Result<()> {
    let hub = Hub::start(Door::InProcess).await?;
    hub.tenant("team-b").await?;
    hub.agent("east").await?;
    let (tenant, rights) = hub.tenant("team-a").await?;
    let all = "get list watch create update patch delete deletecollection";
    let mut expected = vec!["kube-queue scheduling.x-k8s.io queues: get list watch".to_owned()];
    for (resources, verbs) in [
        ("core configmaps,core secrets,core serviceaccounts,core persistentvolumeclaims,core services", all),
        ("kubeflow.org pytorchjobs,kubeflow.org tfjobs,kubeflow.org mpijobs", all),
        ("batch jobs,batch.volcano.sh jobs,apps deployments,apps statefulsets", all),
        ("policy.one.alibabacloud.com propagationpolicies,policy.one.alibabacloud.com overridepolicies", all),
        ("apps deployments/scale,apps statefulsets/scale", "get update patch"),
        ("fleet.dev resourcebindings,core events", "get list watch"),
        ("core pods,core pods/log", "get"),
        ("scheduling.x-k8s.io queueunits,scheduling.x-k8s.io queues", "get list watch"),
    ] {
        expected.extend(resources.split(',').map(|resource| format!("team-a {resource}: {verbs}")));
    }
    expected.sort();
    assert_eq!(rights.list(), expected);
    let places: [(&str, &[&str]); 5] = [
        ("team-a", &["x", "tenant"]),
        ("team-b", &["x", "tenant"]),
        ("kube-queue", &["x"]),
        ("kube-system", &["x"]),
        ("fleet-east", &["x", "member-access"]),
    ];
    try_all(&hub.client, &tenant, &rights, &places).await?;
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_portal_keeps_users_and_does_nothing_else() -> anyhow::Result<()> {
    let hub = Hub::start(Door::InProcess).await?;
    hub.tenant("team-a").await?;
    let (portal, rights) = hub.keeper_of_users().await?;
    assert_eq!(
        rights.list(),
        [
            "fleet-pai-users core secrets: get list create patch delete",
            "fleet-pai-users core serviceaccounts/token: create",
            "fleet-pai-users core serviceaccounts: get patch",
            "fleet-pai-users rbac.authorization.k8s.io rolebindings: get",
        ]
    );
    let names: &[&str] = &["x", "alice", "default"];
    let places: [(&str, &[&str]); 4] = [
        ("fleet-pai-users", names),
        ("team-a", &["x", "tenant"]),
        ("fleet-hub", &["x", "fleet-portal"]),
        ("kube-system", &["x"]),
    ];
    try_all(&hub.client, &portal, &rights, &places).await?;
    hub.stop().await;
    Ok(())
}

/// Changes of a Work that are not its agent's, as merge patches and as JSON patches.
fn foreign_changes() -> Vec<(&'static str, Value)> {
    let meta = |value: Value| json!({"metadata": value});
    vec![
        ("the binding", json!({"spec": {"binding": {"namespace": "team-b", "name": "other", "uid": "v"}}})),
        ("the epoch", json!({"spec": {"epoch": 2}})),
        (
            "the manifests",
            json!({"spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "Pod"}]}}}),
        ),
        ("a new field of the spec", json!({"spec": {"preserveResourcesOnDeletion": true}})),
        ("a label", meta(json!({"labels": {"of": "me"}}))),
        ("no labels", meta(json!({"labels": null}))),
        ("an annotation", meta(json!({"annotations": {names::BINDING_GONE_ANNOTATION: "true"}}))),
        ("another's finalizer", meta(json!({"finalizers": [names::WORK_FINALIZER]}))),
        ("no finalizers", meta(json!({"finalizers": null}))),
        (
            "one finalizer more",
            meta(json!({"finalizers": [names::WORK_FINALIZER, "example.com/other", "example.com/mine"]})),
        ),
        (
            "an owner",
            meta(
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "y"}]}),
            ),
        ),
        (
            "its finalizer and the binding",
            json!({"metadata": {"finalizers": ["example.com/other"]}, "spec": {"binding": {"uid": "v"}}}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_member_changes_nothing_that_is_not_its_own() -> anyhow::Result<()> {
    let hub = Hub::start(Door::Listening).await?;
    let (east, _) = hub.agent("east").await?;
    hub.agent("west").await?;
    for namespace in ["fleet-east", "fleet-west"] {
        objects::create(&hub.client, &work(namespace)).await?;
        objects::create(&hub.client, &reservation(namespace)).await?;
    }
    let (params, post) = (PatchParams::default(), PostParams::default());
    let api = |kind: Kind, namespace: &str| kind.api(&east, namespace);
    let works = api(WORK, "fleet-east");
    let stands = works.get("w").await?;

    for (what, change) in foreign_changes() {
        denied(what, "fleet-agent-works", works.patch("w", &params, &Patch::Merge(&change)).await);
    }
    let operations = json!([{"op": "replace", "path": "/spec/binding/uid", "value": "v"}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(operations)?);
    denied("a JSON patch", "fleet-agent-works", works.patch("w", &params, &patch).await);
    let mut applied = work("fleet-east");
    applied["spec"]["binding"]["uid"] = "v".into();
    let force = PatchParams::apply("mine").force();
    denied("an apply", "fleet-agent-works", works.patch("w", &force, &Patch::Apply(&applied)).await);

    // Behind a status nothing else comes along.
    let smuggled = json!({"metadata": {"labels": {"of": "me"}, "finalizers": [], "annotations": {"a": "b"}},
        "spec": {"epoch": 7, "binding": {"uid": "v"}}, "status": {"observedEpoch": 1}});
    // A server may refuse it as well.
    let _ = works.patch_status("w", &params, &Patch::Merge(&smuggled)).await;
    let after = works.get("w").await?;
    assert_eq!(after.data["spec"], stands.data["spec"]);
    assert_eq!((after.metadata.labels, after.metadata.annotations), (stands.metadata.labels, None));
    assert_eq!(after.metadata.finalizers, stands.metadata.finalizers);

    let clusters = api(CLUSTER, "");
    for (field, value) in [
        ("secretRef", json!({"namespace": "fleet-west", "name": "member-access"})),
        ("apiEndpoint", json!("https://evil.example.com")),
        ("insecureSkipTLSVerification", json!(true)),
        ("taints", json!([])),
        ("region", json!("elsewhere")),
    ] {
        let patch = Patch::Merge(json!({"spec": {field: value}, "status": {"reportSequence": 1}}));
        refused(field, clusters.patch("east", &params, &patch).await);
        let _ = clusters.patch_status("east", &params, &patch).await;
        let spec = clusters.get("east").await?.data["spec"].clone();
        assert_eq!(spec, json!({"syncMode": "Pull"}), "{field}");
    }
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Mine",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let answer = clusters.patch_status("east", &params, &Patch::Merge(&ready)).await;
    denied("the hub's word on it", "fleet-agent-cluster", answer);
    let labels = Patch::Merge(json!({"metadata": {"labels": {"gpu": "best"}}}));
    refused("labels that policies select by", clusters.patch("east", &params, &labels).await);

    let named = |kind: &str, version: &str, name: &str| {
        body(json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}}))
    };
    let lease = named("Lease", "coordination.k8s.io/v1", "fleet-controller");
    denied(
        "a lease of another name",
        "fleet-agent-lease",
        api(LEASE, "fleet-east").create(&post, &lease).await,
    );
    refused("another cluster's lease", api(LEASE, "fleet-west").create(&post, &lease).await);
    let secret = named("Secret", "v1", "member-access");
    refused("the way to it", api(SECRET, "fleet-east").create(&post, &secret).await);
    refused(
        "another's status",
        api(WORK, "fleet-west").patch_status("w", &params, &Patch::Merge(&smuggled)).await,
    );
    refused("another's Work", api(WORK, "fleet-west").get("w").await);

    // What is its own.
    let seen = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/other"]}}));
    works.patch("w", &params, &seen).await?;
    let status = Patch::Merge(json!({"status": {"observedEpoch": 1}}));
    works.patch_status("w", &params, &status).await?;
    let phase = Patch::Merge(json!({"status": {"phase": "Refused"}}));
    api(RESERVATION, "fleet-east").patch_status("r", &params, &phase).await?;
    let said =
        Patch::Merge(json!({"status": {"reportSequence": 1, "proposed": {"apiEndpoint": "https://east"}}}));
    clusters.patch_status("east", &params, &said).await?;
    let lease = named("Lease", "coordination.k8s.io/v1", names::LEASE_NAME);
    api(LEASE, "fleet-east").create(&post, &lease).await?;
    hub.stop().await;
    Ok(())
}

/// What it may write carries no finalizer and no owner of its own, so its namespace goes when its cluster leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_member_holds_up_no_removal() -> anyhow::Result<()> {
    const POLICY: &str = "fleet-agent-lease";
    let hub = Hub::start(Door::InProcess).await?;
    let (east, _) = hub.agent("east").await?;
    objects::create(&hub.client, &work("fleet-east")).await?;
    objects::create(&hub.client, &reservation("fleet-east")).await?;
    let (params, post) = (PatchParams::default(), PostParams::default());
    let holds = [
        ("finalizers", json!(["example.com/mine"])),
        ("ownerReferences", json!([{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "y"}])),
    ];
    let leases = LEASE.api(&east, "fleet-east");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": names::LEASE_NAME}});
    for (field, value) in &holds {
        let mut wanted = lease.clone();
        wanted["metadata"][*field] = value.clone();
        denied(field, POLICY, leases.create(&post, &body(wanted)).await);
    }
    leases.create(&post, &body(lease)).await?;
    let renew = async |change: Value| {
        let mut wanted = serde_json::to_value(leases.get(names::LEASE_NAME).await.expect("its own"))?;
        wanted["metadata"]
            .as_object_mut()
            .expect("fields")
            .extend(change.as_object().cloned().unwrap_or_default());
        wanted["spec"] = json!({"holderIdentity": "east-1", "leaseDurationSeconds": 40});
        anyhow::Ok(leases.replace(names::LEASE_NAME, &post, &body(wanted)).await)
    };
    for (field, value) in &holds {
        denied(field, POLICY, renew(json!({*field: value})).await?);
    }
    renew(json!({})).await??;

    // What others put there neither goes by its hand nor keeps it from its lease.
    let others = LEASE.api(&hub.client, "fleet-east");
    let put = async |finalizers: Value| {
        let change = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        others.patch(names::LEASE_NAME, &params, &change).await
    };
    put(json!(["example.com/other"])).await?;
    renew(json!({})).await??;
    denied("another's finalizer", POLICY, renew(json!({"finalizers": []})).await?);
    put(Value::Null).await?;

    // Behind a status nothing of it comes along.
    for (kind, namespace, name, status) in [
        (CLUSTER, "", "east", json!({"reportSequence": 1})),
        (WORK, "fleet-east", "w", json!({"observedEpoch": 1})),
        (RESERVATION, "fleet-east", "r", json!({"phase": "Refused"})),
    ] {
        let api = kind.api(&east, namespace);
        let before = api.get(name).await?.metadata;
        for (field, value) in &holds {
            let change = json!({"metadata": {*field: value}, "status": status});
            // A server may refuse it as well.
            let _ = api.patch_status(name, &params, &Patch::Merge(&change)).await;
        }
        let after = api.get(name).await?.metadata;
        assert_eq!(after.finalizers, before.finalizers, "{}", kind.kind);
        assert_eq!(after.owner_references, before.owner_references, "{}", kind.kind);
    }
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_tenant_decides_nothing_that_fleet_decides() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    let (tenant, _) = fleet.hub_with_roles().tenant("team-a").await?;
    let (params, post) = (PatchParams::default(), PostParams::default());
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["metadata"]["namespace"] = "team-a".into();
    objects::create(&tenant, &policy).await?;
    objects::create(&tenant, &Job::pytorch("mine").namespace("team-a").runs("60s").manifest()).await?;
    let binding = fleet
        .wait_for("the job to be bound", async || {
            let found = fleet.get(BINDING, "team-a", "mine-pytorchjob").await?;
            let bound = found.as_ref().is_some_and(|b| b["spec"]["clusters"][0]["name"] == "east");
            Ok(if bound {
                Polled::Yes(found.unwrap_or_default())
            } else {
                Polled::NotYet(format!("{found:?}"))
            })
        })
        .await?;
    let api = |kind: Kind, namespace: &str| kind.api(&tenant, namespace);
    let own = api(BINDING, "team-a").get("mine-pytorchjob").await?;
    assert_eq!(own.metadata.uid.as_deref(), binding["metadata"]["uid"].as_str(), "it may read its own");
    for (kind, namespace, name) in [
        (BINDING, "team-a", "mine-pytorchjob"),
        (QUEUE_UNIT, "team-a", "mine-pytorchjob"),
        (WORK, "fleet-east", "w"),
        (RESERVATION, "fleet-east", "r"),
        (CLUSTER, "", "east"),
        (QUEUE, "kube-queue", "root"),
    ] {
        let api = api(kind, namespace);
        let patch = Patch::Merge(json!({"spec": {"epoch": 9}, "status": {"phase": "Reserved"}}));
        let made = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "made"}, "spec": {}});
        refused(kind.kind, api.create(&post, &body(made)).await);
        refused(kind.kind, api.patch(name, &params, &patch).await);
        refused(kind.kind, api.patch_status(name, &params, &patch).await);
        refused(kind.kind, api.delete(name, &Default::default()).await);
    }
    let status = Patch::Merge(json!({"status": {"conditions": []}}));
    refused("its job's state", api(PYTORCH_JOB, "team-a").patch_status("mine", &params, &status).await);
    objects::delete(&tenant, PYTORCH_JOB, "team-a", "mine").await?;
    fleet.wait_gone(BINDING, "team-a", "mine-pytorchjob").await?;
    fleet.finish().await
}

/// Two leaves: `shared` takes jobs of namespace `team-a` too, `staff` those of `team-a` whom group `staff` submits.
fn tree_with_submitters() -> Value {
    let leaf = |name: &str, attributes: Value| {
        json!({"name": name, "namespaces": [format!("team-{name}")], "attributes": attributes,
            "min": {"kube-queue/max-jobs": 1}, "max": {"kube-queue/max-jobs": 5}})
    };
    json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
    "metadata": {"name": "tree", "namespace": "kube-system"},
    "spec": {"root": {"name": "root", "children": [
        leaf("closed", json!({"fleet.dev/submitter-namespaces": ""})),
        leaf("shared", json!({"fleet.dev/submitter-namespaces": "team-a"})),
        leaf("staff", json!({"fleet.dev/submitters": "group:staff,serviceaccount:team-b/tenant"})),
        leaf("a", json!({})),
    ]}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_takes_jobs_of_those_it_names() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    let (a, _) = fleet.hub_with_roles().tenant("team-a").await?;
    let (b, _) = fleet.hub_with_roles().tenant("team-b").await?;
    fleet.apply(&tree_with_submitters()).await?;
    for tenant in ["team-a", "team-b"] {
        let mut policy = gang_policy(Queueing::Queued);
        policy["metadata"]["namespace"] = tenant.into();
        objects::create(&fleet.hub(), &policy).await?;
    }
    fleet
        .wait_for("the queues to say who may submit", async || {
            let queues = objects::list(&fleet.hub(), QUEUE).await?;
            let marked = queues.iter().filter(|q| q["metadata"]["labels"][names::RESTRICTED_LABEL] == "true");
            let paths: Vec<&Value> =
                marked.map(|q| &q["metadata"]["annotations"][names::QUOTA_FULLNAME_ANNOTATION]).collect();
            Ok(Polled::when(paths == ["root/staff"], || format!("{paths:?} of {}", queues.len())))
        })
        .await?;
    let job = |name: &str, namespace: &str, queue: &str| {
        Job::pytorch(name).namespace(namespace).label(QUOTA_LABELS[0], queue).manifest()
    };
    let waits = async |name: &str, namespace: &str, reason: &str| {
        let binding = names::binding_name("kubeflow.org/v1", "PyTorchJob", name);
        fleet
            .wait_for(&format!("{name} to wait for {reason}"), async || {
                let found = fleet.get(BINDING, namespace, &binding).await?.unwrap_or_default();
                let scheduled = objects::condition(&found, "Scheduled").cloned().unwrap_or_default();
                let done = scheduled["reason"] == reason;
                Ok(if done { Polled::Yes(scheduled) } else { Polled::NotYet(scheduled.to_string()) })
            })
            .await
    };
    let succeeds = async |name: &str, namespace: &str| {
        fleet
            .wait_for(&format!("{name} to succeed"), async || {
                let job = fleet.get(PYTORCH_JOB, namespace, name).await?.unwrap_or_default();
                let state = objects::job_state(&job);
                Ok(Polled::when(state == "Succeeded", || state.clone()))
            })
            .await
    };
    // A namespace that is not named waits, says why, and counts nowhere.
    objects::create(&a, &job("into-closed", "team-a", "closed")).await?;
    let told = waits("into-closed", "team-a", "NotAdmittedToQueue").await?;
    let message = told["message"].as_str().unwrap_or_default();
    assert!(message.contains("root/closed, which admits no jobs of namespace \"team-a\""), "{message}");
    assert!(message.contains("allowed: team-closed"), "{message}");
    objects::create(&b, &job("into-shared", "team-b", "shared")).await?;
    waits("into-shared", "team-b", "NotAdmittedToQueue").await?;
    objects::create(&a, &job("shared", "team-a", "shared")).await?;
    succeeds("shared", "team-a").await?;
    let queues = objects::list(&fleet.hub(), QUEUE).await?;
    for queue in queues
        .iter()
        .filter(|q| q["metadata"]["annotations"][names::QUOTA_FULLNAME_ANNOTATION] == "root/closed")
    {
        let status = &queue["status"];
        assert!(
            status["waiting"].as_i64().unwrap_or(0) == 0 && status["admitted"].as_i64().unwrap_or(0) == 0,
            "{status}"
        );
    }

    // Who is not named is refused at submission, also with a label that comes later.
    let policy = "fleet-queue-submitters";
    denied("a stranger", policy, objects::create(&a, &job("stranger", "team-a", "staff")).await);
    objects::create(&a, &job("later", "team-a", "closed")).await?;
    let relabel = Patch::Merge(json!({"metadata": {"labels": {QUOTA_LABELS[0]: "staff"}}}));
    let jobs = PYTORCH_JOB.api(&a, "team-a");
    denied("a label", policy, jobs.patch("later", &PatchParams::default(), &relabel).await);
    let other = Patch::Merge(json!({"metadata": {"labels": {QUOTA_LABELS[0]: "",
        QUOTA_LABELS[1]: "staff"}}}));
    denied("the other label", policy, jobs.patch("later", &PatchParams::default(), &other).await);
    objects::create(&b, &job("named", "team-b", "staff")).await?;
    // Who shares its namespace does not make another job of it; who may write the tree may, and its own submitter.
    let colleague = fleet.hub_with_roles().colleague("team-b").await?;
    let changed = async |client: &kube::Client, limit: i64| {
        let other = Patch::Merge(json!({"spec": {"runPolicy": {"backoffLimit": limit}}}));
        PYTORCH_JOB.api(client, "team-b").patch("named", &PatchParams::default(), &other).await
    };
    denied("another's spec", policy, changed(&colleague, 7).await);
    changed(&fleet.hub(), 8).await?;
    changed(&b, 9).await?;
    succeeds("named", "team-b").await?;
    let note = Patch::Merge(json!({"metadata": {"annotations": {"who": "me"}}}));
    PYTORCH_JOB.api(&colleague, "team-b").patch("named", &PatchParams::default(), &note).await?;
    // Whoever changes anything else of a job that is there may do so.
    let harmless = Patch::Merge(json!({"metadata": {"annotations": {"note": "x"}}}));
    let named = PYTORCH_JOB.api(&fleet.hub(), "team-b");
    named.patch("named", &PatchParams::default(), &harmless).await?;

    // The queue opens, and those who waited go.
    let mut open = tree_with_submitters();
    open["spec"]["root"]["children"][0]["attributes"] = json!({});
    fleet.apply(&open).await?;
    succeeds("into-closed", "team-a").await?;
    objects::delete(&b, PYTORCH_JOB, "team-b", "into-shared").await?;
    fleet.finish().await
}

/// The rights of the charts are what controller and agent need: a queued job goes its whole way, and nothing that
/// either wants is forbidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_charts_roles_are_all_that_controller_and_agents_need() -> anyhow::Result<()> {
    let mut spec = FleetSpec::of("east 1x8, west 1x8");
    let metrics = spec.controller.metrics.clone();
    spec.controller.election = Some(fleet_controller::Election {
        namespace: rights::CONTROLLER.0.to_string(),
        identity: "one".to_string(),
        duration: Duration::from_secs(15),
    });
    let fleet = spec.start().await?;
    fleet.apply(&fleet_tests::jobs::quota_tree(json!({"kube-queue/max-jobs": 1}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    for name in ["a", "b"] {
        fleet.apply(&Job::pytorch(name).manifest()).await?;
    }
    for name in ["a", "b"] {
        fleet.wait_state(PYTORCH_JOB, name, "Succeeded").await?;
    }
    // What the controller asks for when a write of it was overtaken.
    let controller = fleet.hub_with_roles().controller().await?;
    objects::get(&controller, BINDING, "default", "a-pytorchjob").await?;
    objects::get(&controller, RESERVATION, "fleet-east", "a-pytorchjob-1").await?;
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.wait_gone(BINDING, "default", "a-pytorchjob").await?;
    let mut text = String::new();
    fleet_metrics::Exposed::write(&metrics, &mut text);
    assert!(text.contains("fleet_writes_forbidden_total 0"), "{text}");
    fleet.finish().await
}

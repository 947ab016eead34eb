//! Who may use which virtual cluster: nobody gets cells of one that is not his, however he names it.

use fleet_api::{names, yaml};
use fleet_kubesim::RunTime;
use fleet_openpai::{
    jobs::{self, Offers, Who},
    server::{HUB_PATIENCE, Server},
};
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy},
    objects::{
        self, BATCH_JOB, BINDING, CELL_CONFIGURATION as CONFIGURATION, Kind, PYTORCH_JOB, QUEUE, RESERVATION,
        VIRTUAL_CLUSTER, VOLCANO_JOB,
    },
};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const TWO: &str = include_str!("../../../examples/hived/two-virtual-clusters.yaml");
const POLICY: &str = "fleet-virtual-cluster-submitters";
const HIVED: &str = names::POD_SCHEDULING_SPEC_ANNOTATION;
const REASON: &str = "NotAdmittedToVirtualCluster";

/// `vc1` (GPU of hostname-dan) is of the tenant of team-a; `default` (GPU of hostname-carol) of team-a and team-b, where
/// team-b may only be opportunistic.
fn rules() -> Value {
    json!({
        "vc1": {"submitters": ["serviceaccount:team-a/tenant"]},
        "default": {"submitterNamespaces": ["team-a", "team-b"], "guaranteedNamespaces": ["team-a"]},
    })
}

struct Lab {
    fleet: TestFleet,
    a: Client,
    b: Client,
}

impl Lab {
    async fn start() -> anyhow::Result<Self> {
        let spec = FleetSpec::of("lab 2x1").nodes(&["hostname-carol", "hostname-dan"]);
        let fleet = spec.run_time(RunTime::Forever).start().await?;
        let (a, _) = fleet.hub_with_roles().tenant("team-a").await?;
        let (b, _) = fleet.hub_with_roles().tenant("team-b").await?;
        fleet.hub_with_roles().tenant("team-c").await?;
        for tenant in ["team-a", "team-b", "team-c"] {
            let mut policy = gang_policy(Queueing::AtOnce);
            policy["metadata"]["namespace"] = tenant.into();
            let selectors = policy["spec"]["resourceSelectors"].as_array_mut().expect("a list");
            selectors.push(json!({"apiVersion": VOLCANO_JOB.api_version, "kind": "Job"}));
            objects::create(&fleet.hub(), &policy).await?;
        }
        let lab = Self { fleet, a, b };
        lab.configure(rules()).await?;
        Ok(lab)
    }

    /// The lab's configuration with these rules, in force, with all nodes good and the VirtualClusters in line.
    async fn configure(&self, access: Value) -> anyhow::Result<()> {
        let wrapped: Value = yaml::read(TWO)?;
        let mut spec: Value = yaml::read(wrapped["hivedscheduler"]["config"].as_str().unwrap_or_default())?;
        spec["access"] = access.clone();
        let object = json!({"apiVersion": CONFIGURATION.api_version, "kind": CONFIGURATION.kind,
            "metadata": {"name": "cells"}, "spec": spec});
        self.fleet.apply(&object).await?;
        self.fleet
            .wait_for("the configuration to be in force", async || {
                let found = self.fleet.get(CONFIGURATION, "", "cells").await?.unwrap_or_default();
                let status = &found["status"];
                let good = status["nodes"] == 2
                    && status["badNodes"].as_array().is_none_or(Vec::is_empty)
                    && objects::condition(&found, "Valid").is_some_and(|valid| valid["status"] == "True");
                let kept = objects::list(&self.fleet.hub(), RESERVATION).await?;
                let is_kept =
                    |r: &Value| r["spec"]["cellNodes"].is_array() && r["status"]["phase"] == "Reserved";
                let vc = self.fleet.get(VIRTUAL_CLUSTER, "", "vc1").await?.unwrap_or_default();
                let told = vc["spec"]["access"] == access["vc1"];
                Ok(Polled::when(good && told && kept.iter().any(is_kept), || format!("{status} {vc}")))
            })
            .await
    }

    async fn condition(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let binding = names::binding_name(kind.api_version, kind.kind, name);
        let found = self.fleet.get(BINDING, namespace, &binding).await?.unwrap_or_default();
        Ok(objects::condition(&found, "Scheduled").cloned().unwrap_or_default())
    }

    /// Waits until the job waits for this reason; returns the message.
    async fn waits(&self, kind: Kind, namespace: &str, name: &str, reason: &str) -> anyhow::Result<String> {
        self.fleet
            .wait_for(&format!("{name} to wait for {reason}"), async || {
                let told = self.condition(kind, namespace, name).await?;
                let is = told["status"] == "False" && told["reason"] == reason;
                let message = told["message"].as_str().unwrap_or_default().to_string();
                Ok(if is { Polled::Yes(message) } else { Polled::NotYet(told.to_string()) })
            })
            .await
    }

    /// Waits until the job's pods that run are on these nodes.
    async fn runs_on(&self, name: &str, nodes: &[&str]) -> anyhow::Result<()> {
        self.fleet
            .wait_for(&format!("{name} to run on {nodes:?}"), async || {
                let found = self.nodes(name).await?;
                Ok(Polled::when(found == nodes, || format!("{found:?}")))
            })
            .await
    }

    /// Stops a job and waits until its pods are gone.
    async fn stop(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let body = json!({"metadata": {"annotations": {names::STOP_ANNOTATION: "true"}}});
        patch(&self.fleet.hub(), BATCH_JOB, namespace, name, body).await?;
        self.runs_on(name, &[]).await?;
        objects::delete(&self.fleet.hub(), BATCH_JOB, namespace, name).await
    }

    async fn nodes(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let pods = self.fleet.pods_of(name).await?.into_iter().map(|(_, pod)| pod);
        let running = pods.filter(|pod| pod["status"]["phase"] == "Running");
        let mut nodes: Vec<String> =
            running.filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_string)).collect();
        nodes.sort();
        Ok(nodes)
    }
}

/// A batch Job of `pods` pods of one GPU.
fn job(name: &str, namespace: &str, vc: &str, class: &str, pods: i64) -> Value {
    let job = Job::batch(name).namespace(namespace).workers(pods);
    job.label(names::VIRTUAL_CLUSTER_LABEL, vc).label(names::CLASS_LABEL, class).manifest()
}

fn annotated(mut manifest: Value, template: &str, text: &str) -> Value {
    manifest.pointer_mut(template).expect("a template")["metadata"] = json!({"annotations": {HIVED: text}});
    manifest
}

fn denied<T, E>(what: &str, policy: &str, answer: Result<T, E>)
where
    T: std::fmt::Debug,
    E: std::fmt::Debug + std::fmt::Display,
{
    match answer {
        Err(error) if format!("{error:#}").contains(policy) => {}
        other => panic!("{what}: found {other:?}; allowed: a refusal by {policy}"),
    }
}

async fn patch(client: &Client, kind: Kind, namespace: &str, name: &str, body: Value) -> anyhow::Result<()> {
    kind.api(client, namespace).patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_virtual_cluster_takes_jobs_of_those_it_names() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    let (fleet, a, b) = (&lab.fleet, &lab.a, &lab.b);
    // By namespace and class: the job waits, and is told what is allowed.
    objects::create(&fleet.hub(), &job("foreign", "team-c", "default", "oppo", 1)).await?;
    let told = lab.waits(BATCH_JOB, "team-c", "foreign", REASON).await?;
    assert_eq!(
        told,
        "virtual cluster default admits no jobs of namespace \"team-c\"; allowed: team-a, team-b"
    );
    objects::create(b, &job("proud", "team-b", "default", "prod", 1)).await?;
    let told = lab.waits(BATCH_JOB, "team-b", "proud", REASON).await?;
    assert!(
        told.contains("admits only opportunistic jobs of namespace \"team-b\", found class prod"),
        "{told}"
    );
    objects::create(b, &job("modest", "team-b", "default", "oppo", 1)).await?;
    fleet
        .wait_for("the opportunistic job to run", async || {
            let nodes = lab.nodes("modest").await?;
            Ok(Polled::when(nodes.len() == 1, || format!("{nodes:?}")))
        })
        .await?;

    // By subject: refused at submission, and when a job there is changed.
    denied("a stranger", POLICY, objects::create(b, &job("stranger", "team-b", "vc1", "oppo", 1)).await);
    let metadata = |field: &str, entries: Value| json!({"metadata": {field: entries}});
    for (what, body) in [
        ("a label", metadata("labels", json!({names::VIRTUAL_CLUSTER_LABEL: "vc1"}))),
        (
            "an annotation",
            json!({"metadata": {"labels": {names::VIRTUAL_CLUSTER_LABEL: ""},
                "annotations": {names::VIRTUAL_CLUSTER_LABEL: "vc1"}}}),
        ),
        (
            "an annotation beside the label",
            metadata("annotations", json!({names::VIRTUAL_CLUSTER_LABEL: "vc1"})),
        ),
    ] {
        denied(what, POLICY, patch(b, BATCH_JOB, "team-b", "proud", body).await);
    }
    let server =
        Server { client: b.clone(), name: "hub".into(), url: "the hub".into(), patience: HUB_PATIENCE };
    let file = include_str!("../../../examples/hived/jobs/job-config-0.yaml");
    let who = Who { user: "bob", namespace: "team-b" };
    let offers = Offers::read(&server).await?;
    let refused = jobs::submit(&server, file, who, &offers, 0).await.expect_err("a stranger's");
    assert_eq!((refused.status(), refused.code()), (403, "ForbiddenUserError"), "{refused}");
    assert!(refused.to_string().contains("virtual cluster vc1 admits no jobs of user"), "{refused}");
    objects::create(a, &job("own", "team-a", "vc1", "prod", 1)).await?;
    lab.runs_on("own", &["hostname-dan"]).await?;
    // Who is not named changes nothing of it that matters, and anything else.
    for (field, name) in [("labels", names::CLASS_LABEL), ("annotations", names::CELLS_PER_POD_ANNOTATION)] {
        let body = metadata(field, json!({name: "1000"}));
        denied(name, POLICY, patch(&fleet.hub(), BATCH_JOB, "team-a", "own", body).await);
    }
    let note = metadata("annotations", json!({"note": "x"}));
    patch(&fleet.hub(), BATCH_JOB, "team-a", "own", note.clone()).await?;
    // Nor does who shares its namespace make another job of it.
    let colleague = fleet.hub_with_roles().colleague("team-a").await?;
    let spec = |limit: i64| json!({"spec": {"backoffLimit": limit}});
    denied("another's spec", POLICY, patch(&colleague, BATCH_JOB, "team-a", "own", spec(7)).await);
    patch(&colleague, BATCH_JOB, "team-a", "own", note).await?;
    patch(&fleet.hub(), BATCH_JOB, "team-a", "own", spec(8)).await?;
    patch(a, BATCH_JOB, "team-a", "own", spec(9)).await?;

    // A run goes on when its virtual cluster is closed to it; the next one waits.
    let mut closed = rules();
    closed["vc1"]["submitterNamespaces"] = json!([]);
    lab.configure(closed).await?;
    objects::create(a, &job("later", "team-a", "vc1", "prod", 1)).await?;
    let told = lab.waits(BATCH_JOB, "team-a", "later", REASON).await?;
    assert_eq!(told, "virtual cluster vc1 admits no jobs of namespace \"team-a\"; allowed: none");
    lab.runs_on("own", &["hostname-dan"]).await?;
    lab.configure(rules()).await?;
    lab.waits(BATCH_JOB, "team-a", "later", "InsufficientCells").await?;
    lab.stop("team-a", "own").await?;
    lab.runs_on("later", &["hostname-dan"]).await?;
    for (namespace, name) in
        [("team-a", "later"), ("team-b", "modest"), ("team-b", "proud"), ("team-c", "foreign")]
    {
        objects::delete(&fleet.hub(), BATCH_JOB, namespace, name).await?;
    }
    lab.fleet.finish().await
}

/// HiveD's annotation is YAML, which the admission policy cannot read: what it does not see, the controller does not admit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_virtual_cluster_is_named_by_pod_templates_of_those_it_names_alone() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    let (a, b) = (&lab.a, &lab.b);
    let plain = "virtualCluster: vc1\npriority: 100\nleafCellNumber: 1\n";
    let seen = [
        plain,
        "{\"virtualCluster\":\"vc1\",\"priority\":100,\"leafCellNumber\":1}",
        "{priority: 100, gpuNumber: 1, 'virtualCluster' :  'vc1'}",
        "priority: 100\nleafCellNumber: 1\nvirtualCluster: vc1 # mine",
        "priority: 100\r\nleafCellNumber: 1\r\nvirtualCluster:\tvc1\r\n",
        "{version: v2, priority: 100, cellType: GPU-D, cellNumber: 1, virtualCluster: vc1}",
    ];
    for (number, text) in seen.iter().enumerate() {
        let manifest = annotated(
            Job::batch(&format!("seen-{number}")).namespace("team-b").manifest(),
            "/spec/template",
            text,
        );
        denied(text, POLICY, objects::create(b, &manifest).await);
    }
    let unseen = [
        "\"virtualCluster\": \"\\x76c1\"\npriority: 100\nleafCellNumber: 1\n",
        "\"virtual\\u0043luster\": vc1\npriority: 100\nleafCellNumber: 1\n",
        "? virtualCluster\n: vc1\n? priority\n: 100\n? leafCellNumber\n: 1\n",
        "virtualCluster:\n  vc1\npriority: 100\nleafCellNumber: 1\n",
        "virtualCluster: !!str vc1\npriority: 100\nleafCellNumber: 1\n",
        "virtualCluster: &x vc1\npriority: 100\nleafCellNumber: 1\n",
        "virtualCluster: >-\n  vc1\npriority: 100\nleafCellNumber: 1\n",
    ];
    for (number, text) in unseen.iter().enumerate() {
        let name = format!("unseen-{number}");
        let manifest = annotated(Job::batch(&name).namespace("team-b").manifest(), "/spec/template", text);
        match objects::create(b, &manifest).await {
            Err(error) => assert!(format!("{error:#}").contains(POLICY), "{text}: {error:#}"),
            Ok(_) => {
                lab.fleet
                    .wait_for(&format!("{text:?} not to be admitted"), async || {
                        let told = lab.condition(BATCH_JOB, "team-b", &name).await?;
                        let message = told["message"].as_str().unwrap_or_default();
                        let events = lab.fleet.events_of(BATCH_JOB, &name).await?;
                        // What this reader of YAML does not take is no specification at all.
                        let unread = events
                            .iter()
                            .any(|event| event["message"].as_str().is_some_and(|text| text.contains(HIVED)));
                        let is = unread
                            || (told["reason"] == REASON && message.contains("admission policy cannot read"));
                        Ok(Polled::when(is, || format!("{told} {events:?}")))
                    })
                    .await?;
                assert!(lab.fleet.pods_of(&name).await?.is_empty(), "{text}");
                objects::delete(b, BATCH_JOB, "team-b", &name).await?;
            }
        }
    }

    // Every kind of job, and each of its templates.
    let containers = json!([{"name": "c", "image": "registry.example.com/train:v1"}]);
    let task = |name: &str, replicas: i64| json!({"name": name, "replicas": replicas, "template": {"spec": {"containers": containers}}});
    let volcano = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "v", "namespace": "team-b"},
        "spec": {"tasks": [task("a", 1), task("b", 2)]}});
    let of = |job: Job| job.namespace("team-b").manifest();
    for (manifest, template) in [
        (of(Job::pytorch("p")), "/spec/pytorchReplicaSpecs/Master/template"),
        (of(Job::pytorch("p")), "/spec/pytorchReplicaSpecs/Worker/template"),
        (of(Job::tensorflow("t")), "/spec/tfReplicaSpecs/Worker/template"),
        (of(Job::mpi("m")), "/spec/mpiReplicaSpecs/Launcher/template"),
        (volcano.clone(), "/spec/tasks/0/template"),
        (volcano, "/spec/tasks/1/template"),
    ] {
        let what = format!("{} {template}", manifest["kind"]);
        denied(&what, POLICY, objects::create(b, &annotated(manifest, template, plain)).await);
    }
    for label in [Job::pytorch("p"), Job::tensorflow("t"), Job::mpi("m")] {
        let manifest = of(label.label(names::VIRTUAL_CLUSTER_LABEL, "vc1"));
        denied("a label", POLICY, objects::create(b, &manifest).await);
    }
    // A name that only begins alike is another's.
    let other = plain.replace("vc1", "vc10");
    let manifest = annotated(Job::batch("other").namespace("team-b").manifest(), "/spec/template", &other);
    objects::create(b, &manifest).await?;
    lab.waits(BATCH_JOB, "team-b", "other", "InvalidCells").await?;
    objects::delete(b, BATCH_JOB, "team-b", "other").await?;

    // A template that comes later, and the one who is named.
    let mut later = of(Job::pytorch("later"));
    later["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(8);
    objects::create(b, &later).await?;
    let body = json!({"spec": {"pytorchReplicaSpecs": {"Master": {"template": {"metadata": {"annotations": {HIVED: plain}}}}}}});
    denied("a later template", POLICY, patch(b, PYTORCH_JOB, "team-b", "later", body).await);
    objects::delete(b, PYTORCH_JOB, "team-b", "later").await?;
    let own = annotated(Job::batch("own").namespace("team-a").manifest(), "/spec/template", plain);
    objects::create(a, &own).await?;
    lab.runs_on("own", &["hostname-dan"]).await?;
    objects::delete(a, BATCH_JOB, "team-a", "own").await?;
    lab.fleet.finish().await
}

/// A leaf may name a virtual cluster for its jobs: then its Queue has the virtual cluster's submitters as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaf_is_no_way_into_a_virtual_cluster() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    let leaf = |name: &str, namespaces: Value, vc: &str| json!({"name": name, "namespaces": namespaces, "attributes": {names::VIRTUAL_CLUSTER_LABEL: vc}});
    let tree = json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "children": [leaf("gpu", json!(["team-b"]), "vc1"),
            leaf("rest", json!(["team-c"]), "default"), {"name": "a", "namespaces": ["team-a"]}]}}});
    lab.fleet.apply(&tree).await?;
    let marked = async |expected: &[&str]| {
        lab.fleet
            .wait_for("the queues to say who may submit", async || {
                let queues = objects::list(&lab.fleet.hub(), QUEUE).await?;
                let marked =
                    queues.iter().filter(|q| q["metadata"]["labels"][names::RESTRICTED_LABEL] == "true");
                let paths: Vec<&str> = marked
                    .filter_map(|q| q["metadata"]["annotations"][names::QUOTA_FULLNAME_ANNOTATION].as_str())
                    .collect();
                Ok(Polled::when(paths == expected, || format!("{paths:?} of {}", queues.len())))
            })
            .await
    };
    marked(&["root/gpu"]).await?;
    let by_namespace = Job::batch("by-namespace").namespace("team-b").manifest();
    denied("by namespace", "fleet-queue-submitters", objects::create(&lab.b, &by_namespace).await);
    let label = "quota.scheduling.alibabacloud.com/name";
    let by_label = Job::batch("by-label").namespace("team-b").label(label, "gpu").manifest();
    denied("by label", "fleet-queue-submitters", objects::create(&lab.b, &by_label).await);
    let of_class = Job::batch("c").namespace("team-c").manifest();
    objects::create(&lab.fleet.hub(), &of_class).await?;
    let told = lab.waits(BATCH_JOB, "team-c", "c", REASON).await?;
    assert!(told.contains("admits no jobs of namespace \"team-c\""), "{told}");
    let own = Job::batch("own").namespace("team-a").label(label, "gpu").manifest();
    objects::create(&lab.a, &own).await?;
    lab.runs_on("own", &["hostname-dan"]).await?;
    // Open again.
    lab.configure(json!({"default": rules()["default"]})).await?;
    marked(&[]).await?;
    objects::delete(&lab.a, BATCH_JOB, "team-a", "own").await?;
    objects::delete(&lab.fleet.hub(), BATCH_JOB, "team-c", "c").await?;
    lab.fleet.finish().await
}

/// Cells of a run are those that it was admitted with: an edit of its class gives its other pods none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_does_not_grow_into_what_it_was_not_admitted_to() -> anyhow::Result<()> {
    let lab = Lab::start().await?;
    let fleet = &lab.fleet;
    objects::create(&lab.a, &job("own", "team-a", "vc1", "prod", 1)).await?;
    lab.runs_on("own", &["hostname-dan"]).await?;
    // Each of its pods starts as it gets its cells.
    let container = json!({"name": "c", "image": "registry.example.com/train:v1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}}});
    let pair = json!({"apiVersion": VOLCANO_JOB.api_version, "kind": "Job",
        "metadata": {"name": "pair", "namespace": "team-b",
            "labels": {names::VIRTUAL_CLUSTER_LABEL: "default", names::CLASS_LABEL: "oppo"}},
        "spec": {"minAvailable": 1, "schedulerName": "volcano", "tasks": [{"name": "w", "replicas": 2,
            "template": {"spec": {"containers": [container]}}}]}});
    objects::create(&lab.b, &pair).await?;
    lab.runs_on("pair", &["hostname-carol"]).await?;
    let body = json!({"metadata": {"labels": {names::CLASS_LABEL: "1000"}}});
    patch(&lab.b, VOLCANO_JOB, "team-b", "pair", body).await?;
    let probe = job("probe", "team-b", "default", "oppo", 1);
    objects::create(&lab.b, &probe).await?;
    lab.waits(BATCH_JOB, "team-b", "probe", "InsufficientCells").await?;
    lab.stop("team-a", "own").await?;
    lab.runs_on("probe", &["hostname-dan"]).await?;
    lab.runs_on("pair", &["hostname-carol"]).await?;
    let binding = names::binding_name(VOLCANO_JOB.api_version, "Job", "pair");
    let binding = fleet.get(BINDING, "team-b", &binding).await?.unwrap_or_default();
    let groups = binding["spec"]["cells"]["groups"].as_array().cloned().unwrap_or_default();
    let classes: Vec<&Value> = groups.iter().map(|group| &group["request"]["priority"]).collect();
    assert_eq!(classes, [&json!(-1)], "{groups:?}");
    objects::delete(&lab.b, VOLCANO_JOB, "team-b", "pair").await?;
    objects::delete(&lab.b, BATCH_JOB, "team-b", "probe").await?;
    lab.runs_on("pair", &[]).await?;
    lab.fleet.finish().await
}

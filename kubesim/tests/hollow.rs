//! Hollow nodes and kubelets against an embedded server.

use std::{future::Future, time::Duration};

use fleet_apiserver::{ApiServer, Config};
use fleet_kubesim::{
    RunTime,
    hollow::{self, NodeSpec},
};
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Binding, Namespace, Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(40);

async fn server() -> (ApiServer, Client) {
    let server = ApiServer::open(Config::default()).await.expect("opens");
    let client = Client::new(server.router(), "default");
    (server, client)
}

fn options(default: RunTime) -> hollow::Options {
    let nodes =
        NodeSpec { count: 3, cpu: "64".into(), memory: "512Gi".into(), gpus: 8, ..NodeSpec::default() };
    hollow::Options::new("east", nodes, default)
}

struct Running {
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

fn start(client: &Client, options: hollow::Options) -> Running {
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(hollow::run(client.clone(), options, shutdown.clone()));
    Running { shutdown, task }
}

impl Running {
    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.expect("joins").expect("ends well");
    }
}

async fn wait<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, looking).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

/// A pod bound to the first node, with these annotations.
async fn bound_pod(client: &Client, name: &str, annotations: serde_json::Value, owner: Option<&Job>) {
    let owners = owner.map(|job| {
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.name_any(),
            "uid": job.uid().unwrap_or_default(), "controller": true}])
    });
    let metadata = json!({"name": name, "annotations": annotations, "ownerReferences": owners});
    bind(client, name, metadata, json!({})).await;
}

/// A pod bound to the first node, with these fields of its spec.
async fn bound_pod_with(client: &Client, name: &str, spec: serde_json::Value) {
    bind(client, name, json!({"name": name}), spec).await;
}

async fn bind(client: &Client, name: &str, metadata: serde_json::Value, fields: serde_json::Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.expect("created");
    let binding: Binding = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "east-node-0"}}))
    .expect("a binding");
    let _: serde_json::Value =
        pods.create_subresource("binding", name, &PostParams::default(), &binding).await.expect("bound");
}

async fn phase(client: &Client, name: &str, phase: &str) -> Pod {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    wait(&format!("{name} {phase}"), || async {
        let pod = pods.get_opt(name).await.expect("readable")?;
        let found = pod.status.as_ref().and_then(|status| status.phase.clone());
        (found.as_deref() == Some(phase)).then_some(pod)
    })
    .await
}

#[tokio::test]
async fn nodes_are_ready_and_pods_run_and_end() {
    let (_server, client) = server().await;
    let running = start(&client, options(RunTime::For(Duration::from_millis(50))));
    let nodes: Api<Node> = Api::all(client.clone());
    wait("three nodes", || async {
        let listed = nodes.list(&Default::default()).await.expect("listed").items;
        (listed.len() == 3).then_some(())
    })
    .await;
    let node = nodes.get("east-node-1").await.expect("there");
    let status = serde_json::to_value(node.status).expect("a status");
    assert_eq!(status["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(status["allocatable"]["pods"], "110");

    let job: Job = serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "owner", "annotations": {
            "sim.fleet.dev/runtime": "20ms", "sim.fleet.dev/fail-on": "west,east"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox"}]}}}}))
    .expect("a job");
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let job = jobs.create(&PostParams::default(), &job).await.expect("created");

    bound_pod(&client, "plain", json!({}), None).await;
    bound_pod(&client, "told-to-fail", json!({"sim.fleet.dev/result": "fail"}), None).await;
    bound_pod(&client, "owned", json!({}), Some(&job)).await;
    bound_pod(&client, "endless", json!({"sim.fleet.dev/runtime": "forever"}), None).await;

    let ended = phase(&client, "plain", "Succeeded").await.status.expect("a status");
    let container = &ended.container_statuses.expect("containers")[0];
    let terminated =
        container.state.as_ref().and_then(|state| state.terminated.as_ref()).expect("terminated");
    assert_eq!((terminated.exit_code, terminated.reason.as_deref()), (0, Some("Completed")));
    phase(&client, "told-to-fail", "Failed").await;
    phase(&client, "owned", "Failed").await;
    let runs = phase(&client, "endless", "Running").await.status.expect("a status");
    assert!(runs.pod_ip.is_some() && runs.start_time.is_some());
    assert!(runs.conditions.expect("conditions").iter().any(|is| is.type_ == "Ready" && is.status == "True"));

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("endless", &DeleteParams::default()).await.expect("deleted");
    wait("the pod to go", || async {
        pods.get_opt("endless").await.expect("readable").is_none().then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_restart_goes_on_from_the_start_time_in_the_store() {
    let (_server, client) = server().await;
    let first = start(&client, options(RunTime::For(Duration::from_secs(3600))));
    let nodes: Api<Node> = Api::all(client.clone());
    wait("nodes", || async { nodes.get_opt("east-node-0").await.expect("readable").map(|_| ()) }).await;
    bound_pod(&client, "long", json!({}), None).await;
    bound_pod(&client, "fresh", json!({}), None).await;
    phase(&client, "long", "Running").await;
    phase(&client, "fresh", "Running").await;
    first.stop().await;
    // While nobody looked, the hour of one of them has passed.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let earlier = json!({"status": {"startTime": "2026-01-01T00:00:00Z"}});
    pods.patch_status("long", &PatchParams::default(), &Patch::Merge(&earlier)).await.expect("patched");
    let second = start(&client, options(RunTime::For(Duration::from_secs(3600))));
    phase(&client, "long", "Succeeded").await;
    phase(&client, "fresh", "Running").await;
    second.stop().await;
}

/// The side container of watched jobs: the pod begins once the lease was seen to be renewed, and ends with it.
#[tokio::test(start_paused = true)]
async fn a_watched_pod_begins_and_ends_with_the_lease() {
    let (_server, client) = server().await;
    let lasting = RunTime::For(Duration::from_secs(3600));
    let running = start(&client, hollow::Options { lingering: true, ..options(lasting) });
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "fleet-system"}})).expect("a namespace");
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("made");
    let leases: Api<Lease> = Api::namespaced(client.clone(), "fleet-system");
    let renew = async |second: u32| {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "member-agent"},
            "spec": {"leaseDurationSeconds": 20, "renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")}});
        leases
            .patch("member-agent", &PatchParams::apply("test").force(), &Patch::Apply(&lease))
            .await
            .expect("renewed");
    };
    renew(0).await;
    let side = json!([{"name": "fleet-watchdog", "image": "w", "restartPolicy": "Always"}, {"name": "init", "image": "i"}]);
    bound_pod_with(&client, "watched", json!({"initContainers": side})).await;
    let patient = json!({"initContainers": side, "terminationGracePeriodSeconds": 1_000_000});
    bound_pod_with(&client, "terminating", patient).await;
    bound_pod(&client, "free", json!({}), None).await;
    phase(&client, "free", "Running").await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let waits = pods.get("watched").await.expect("there").status.and_then(|status| status.phase);
    assert_ne!(waits.as_deref(), Some("Running"), "how old the first renewal is cannot be known");
    renew(1).await;
    let runs = phase(&client, "watched", "Running").await.status.expect("a status");
    let states = runs.init_container_statuses.expect("statuses");
    assert!(states[0].state.as_ref().is_some_and(|state| state.running.is_some()), "a sidecar runs on");
    assert!(states[1].state.as_ref().is_some_and(|state| state.terminated.is_some()));
    for second in 2..6 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        renew(second).await;
    }
    let last = tokio::time::Instant::now();
    phase(&client, "watched", "Running").await;
    phase(&client, "terminating", "Running").await;
    pods.delete("terminating", &DeleteParams::default()).await.expect("deletes");
    phase(&client, "watched", "Failed").await;
    assert!(last.elapsed() <= Duration::from_secs(21), "{:?}", last.elapsed());
    // A process that ignores SIGTERM is stopped as well, whatever is left of its grace period.
    wait("gone", || async { pods.get_opt("terminating").await.expect("readable").is_none().then_some(()) })
        .await;
    assert!(last.elapsed() <= Duration::from_secs(22), "{:?}", last.elapsed());
    phase(&client, "free", "Running").await;
    running.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_again_with_a_shorter_grace_ends_earlier() {
    let (_server, client) = server().await;
    let lasting = RunTime::For(Duration::from_secs(3600));
    let running = start(&client, hollow::Options { lingering: true, ..options(lasting) });
    bound_pod_with(&client, "a", json!({"terminationGracePeriodSeconds": 1_000_000})).await;
    phase(&client, "a", "Running").await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for params in [DeleteParams::default(), DeleteParams::default().grace_period(1)] {
        pods.delete("a", &params).await.expect("deletes");
    }
    wait("gone", || async { pods.get_opt("a").await.expect("readable").is_none().then_some(()) }).await;
    running.stop().await;
}

#[tokio::test]
async fn a_pod_whose_containers_have_ended_does_not_wait_for_its_grace() {
    let (_server, client) = server().await;
    let briefly = RunTime::For(Duration::from_secs(2));
    let running = start(&client, hollow::Options { lingering: true, ..options(briefly) });
    bound_pod_with(&client, "a", json!({"terminationGracePeriodSeconds": 1_000_000})).await;
    phase(&client, "a", "Running").await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete("a", &DeleteParams::default()).await.expect("deletes");
    // A write of its end that was on its way.
    let ended = json!({"status": {"phase": "Failed"}});
    pods.patch_status("a", &PatchParams::default(), &Patch::Merge(&ended)).await.expect("writes");
    wait("gone", || async { pods.get_opt("a").await.expect("readable").is_none().then_some(()) }).await;
    running.stop().await;
}

/// The amount of cpu that the container of a pod has, by its status.
fn allocated(pod: &Pod) -> Option<String> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(container.allocated_resources.as_ref()?.get("cpu")?.0.clone())
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_is_resized_once_its_node_has_a_place() {
    let (_server, client) = server().await;
    let lasting = RunTime::For(Duration::from_secs(3600));
    let running = start(&client, hollow::Options { admission: true, ..options(lasting) });
    let sized = |cpu: &str| json!({"containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}]});
    bound_pod_with(&client, "a", sized("1")).await;
    bound_pod_with(&client, "b", sized("40")).await;
    assert_eq!(allocated(&phase(&client, "a", "Running").await).as_deref(), Some("1"));
    phase(&client, "b", "Running").await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let has = |cpu: &'static str| {
        let pods = pods.clone();
        async move { (allocated(&pods.get("a").await.expect("there")).as_deref() == Some(cpu)).then_some(()) }
    };
    for cpu in ["2", "30"] {
        let patch = json!({"spec": sized(cpu)});
        let params = PatchParams::default();
        pods.patch_subresource("resize", "a", &params, &Patch::Strategic(patch)).await.expect("resized");
        if cpu == "2" {
            wait("two cpus", || has("2")).await;
        }
    }
    wait("the node to be full", || async {
        let conditions = pods.get("a").await.expect("there").status?.conditions?;
        let pending = conditions.into_iter().find(|is| is.type_ == "PodResizePending")?;
        assert_eq!(pending.reason.as_deref(), Some("Deferred"));
        Some(())
    })
    .await;
    assert_eq!(allocated(&pods.get("a").await.expect("there")).as_deref(), Some("2"));
    pods.delete("b", &DeleteParams::default()).await.expect("deleted");
    wait("thirty cpus", || has("30")).await;
    let conditions = pods.get("a").await.expect("there").status.and_then(|status| status.conditions);
    assert!(conditions.expect("conditions").iter().all(|is| is.type_ != "PodResizePending"));
    running.stop().await;
}

//! A whole fleet in this process: the walkthrough's job from the queue to its end, and a restart.

use std::{future::Future, path::Path, time::Duration};

use fleet_kubesim::{FleetSpec, LocalFleet, MemberSpec, RunTime};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};

const WITHIN: Duration = Duration::from_secs(30);
const TREE: &str = include_str!("../../examples/walkthrough/elasticquotatree.yaml");
const POLICY: &str = include_str!("../../examples/walkthrough/propagationpolicy-gang-queued.yaml");
const JOB: &str = include_str!("../../examples/walkthrough/pytorchjob.yaml");

async fn start(data_dir: Option<&Path>, run_time: Duration) -> LocalFleet {
    let spec = FleetSpec {
        members: MemberSpec::many(2, 2, 8, "64", "512Gi"),
        data_dir: data_dir.map(Path::to_path_buf),
        default_run_time: RunTime::For(run_time),
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await.expect("starts");
    fleet.ready(WITHIN).await.expect("ready");
    fleet
}

async fn create(client: &Client, manifest: &str) {
    let object: DynamicObject = fleet_api::yaml::read(manifest).expect("a manifest");
    let types = object.types.clone().expect("types");
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).expect("a kind"));
    let namespace = object.metadata.namespace.clone().unwrap_or_else(|| "default".to_string());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    api.create(&PostParams::default(), &object).await.expect("created");
}

async fn state(client: &Client, name: &str) -> String {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let job = api.get(name).await.expect("there");
    let last = job.data["status"]["conditions"].as_array().and_then(|all| all.last().cloned());
    last.and_then(|condition| condition["type"].as_str().map(str::to_string)).unwrap_or_default()
}

async fn wait<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let looking = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, looking).await.unwrap_or_else(|_| panic!("waited for {what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_waits_runs_and_succeeds() {
    // Long enough to be seen on a busy machine.
    let fleet = start(None, Duration::from_secs(6)).await;
    let hub = fleet.hub();
    for manifest in [TREE, POLICY, JOB, &JOB.replacen("pytorch-test", "pytorch-test-2", 1)] {
        create(&hub, manifest).await;
    }
    wait("one running, one queuing", || async {
        state(&hub, "pytorch-test").await == "Running" && state(&hub, "pytorch-test-2").await == "Queuing"
    })
    .await;
    wait("the second to succeed", || async { state(&hub, "pytorch-test-2").await == "Succeeded" }).await;
    assert_eq!(state(&hub, "pytorch-test").await, "Succeeded");
    fleet.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_with_the_job() {
    let directory = tempfile::tempdir().expect("a directory");
    let fleet = start(Some(directory.path()), Duration::from_secs(3)).await;
    for manifest in [TREE, POLICY, JOB] {
        create(&fleet.hub(), manifest).await;
    }
    let hub = fleet.hub();
    wait("the job to run", || async { state(&hub, "pytorch-test").await == "Running" }).await;
    fleet.shutdown().await;
    let fleet = start(Some(directory.path()), Duration::from_secs(3)).await;
    let hub = fleet.hub();
    wait("the job to succeed", || async { state(&hub, "pytorch-test").await == "Succeeded" }).await;
    fleet.shutdown().await;
}

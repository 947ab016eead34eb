//! A whole fleet in this process: the walkthrough's job from the queue to its end, and a restart.

use std::{future::Future, path::Path, time::Duration};

use fleet_kubesim::{FleetSpec, Listen, LocalFleet, MemberSpec, RunTime};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_and_members_ask_for_credentials_and_their_kubeconfigs_carry_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let spec = FleetSpec {
        members: MemberSpec::many(1, 1, 0, "8", "16Gi"),
        data_dir: Some(directory.path().to_path_buf()),
        listen: Listen::Ephemeral,
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await.expect("starts");
    fleet.ready(WITHIN).await.expect("ready");
    for file in ["kubeconfig", "members/east.kubeconfig"] {
        let path = directory.path().join(file);
        let named = kube::config::Kubeconfig::read_from(&path).expect("a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(named, &Default::default()).await.expect("a server");
        let pods = |config: kube::Config| async move {
            let client = Client::try_from(config).expect("a client");
            let nodes: Api<DynamicObject> =
                Api::all_with(client, &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret")));
            nodes.list(&Default::default()).await
        };
        pods(config.clone()).await.expect("the token is good");
        let mut nobody = config;
        nobody.auth_info = Default::default();
        match pods(nobody).await.expect_err("refused") {
            kube::Error::Api(status) => assert!(matches!(status.code, 401 | 403), "{file}: {status:?}"),
            other => panic!("{file}: {other}"),
        }
    }
    fleet.shutdown().await;
    let open = open_to_others(directory.path());
    assert!(open.is_empty(), "others may read {open:?}");
}

/// What others than the owner may read or do, below a directory.
fn open_to_others(directory: &Path) -> Vec<std::path::PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let meta = std::fs::symlink_metadata(&path).expect("there");
        if !meta.is_symlink() && meta.mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if meta.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

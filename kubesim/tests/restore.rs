//! A hub that is put back to an older store under a controller and agents that stay connected: what it still wants runs
//! on untouched, what it has forgotten is removed, what it wants again runs once, and it goes on.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body};
use fleet_api::{crds, names};
use fleet_apiserver::{ApiServer, Config};
use fleet_kubesim::{RunTime, hollow};
use http::{Request, Response, StatusCode};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use member_agent::JobController;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

const CLUSTERS: [&str; 2] = ["east", "west"];
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way to the hub, whichever server that is at the moment.
#[derive(Clone, Default)]
struct Switch(Arc<Mutex<Option<Router>>>);

impl Switch {
    fn set(&self, router: Option<Router>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = router;
    }

    fn client(&self) -> Client {
        let switch = self.clone();
        let router = Router::new().fallback(move |request: Request<Body>| {
            let now = switch.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move {
                match now {
                    Some(router) => router.oneshot(request).await.unwrap_or_else(|never| match never {}),
                    None => {
                        let mut answer = Response::new(Body::empty());
                        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                        answer
                    }
                }
            }
        });
        Client::new(router, "default")
    }
}

struct Fleet {
    hub: Option<ApiServer>,
    switch: Switch,
    client: Client,
    members: Vec<(ApiServer, Client)>,
    _stop: DropGuard,
}

async fn open_hub(dir: &Path) -> ApiServer {
    let crds = crds::definitions(crds::Side::Hub);
    ApiServer::open(Config { crds, data_dir: Some(dir.into()), ..Config::default() }).await.expect("a hub")
}

impl Fleet {
    async fn start(dir: &Path) -> Self {
        let (switch, stop) = (Switch::default(), CancellationToken::new());
        let hub = open_hub(dir).await;
        switch.set(Some(hub.router()));
        let client = switch.client();
        tokio::spawn(fleet_controller::run(
            switch.client(),
            fleet_controller::Options::default(),
            stop.child_token(),
        ));
        let mut members = Vec::new();
        for name in CLUSTERS {
            let crds = crds::definitions(crds::Side::Member);
            let server = ApiServer::open(Config { crds, ..Config::default() }).await.expect("a member");
            let member = Client::new(server.router(), "default");
            let mut options = member_agent::Options::new(name);
            options.lease_renew = Duration::from_millis(500);
            options.installation = Some(format!("installation-of-{name}"));
            options.scheduler_names = ["fleet", "default-scheduler"].map(str::to_owned).into();
            options.controllers = JobController::ALL.into_iter().collect();
            tokio::spawn(member_agent::run(switch.client(), member.clone(), options, stop.child_token()));
            let amounts = [("cpu", "64"), ("memory", "512Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")];
            let node = hollow::HollowNode {
                name: format!("{name}-0"),
                allocatable: amounts.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                labels: Default::default(),
                taints: Vec::new(),
            };
            let nodes = hollow::Options::with_nodes(name, vec![node], RunTime::Forever);
            tokio::spawn(hollow::run(member.clone(), nodes, stop.child_token()));
            members.push((server, member));
        }
        Self { hub: Some(hub), switch, client, members, _stop: stop.drop_guard() }
    }

    /// The hub is down; what `meanwhile` does to its directory is done before it is back.
    async fn with_hub_down(&mut self, dir: &Path, meanwhile: impl FnOnce()) {
        self.switch.set(None);
        self.hub.take().expect("it runs").shutdown().await;
        meanwhile();
        let hub = open_hub(dir).await;
        self.switch.set(Some(hub.router()));
        self.hub = Some(hub);
    }

    fn jobs(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob");
        let kind = ApiResource::from_gvk_with_plural(&kind, "pytorchjobs");
        Api::namespaced_with(self.client.clone(), "default", &kind)
    }

    async fn submit(&self, name: &str, gpus: u32) {
        let amounts = json!({"cpu": "1", "nvidia.com/gpu": gpus.to_string()});
        let container = json!({"name": "pytorch", "image": "trainer", "resources": {"requests": amounts, "limits": amounts}});
        let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "restartPolicy": "Never",
                "template": {"spec": {"schedulerName": "fleet", "containers": [container]}}}}}});
        let job = serde_json::from_value(job).expect("a job");
        self.jobs().create(&PostParams::default(), &job).await.expect("submitted");
    }

    /// Running pods of a job, as `cluster/uid`.
    async fn pods(&self, job: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (at, (_, member)) in self.members.iter().enumerate() {
            let pods: Api<Pod> = Api::namespaced(member.clone(), "default");
            let params = ListParams::default().labels(&format!("training.kubeflow.org/job-name={job}"));
            for pod in pods.list(&params).await.expect("pods").items {
                let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
                if phase == "Running" {
                    found.insert(format!("{}/{}", CLUSTERS[at], pod.metadata.uid.unwrap_or_default()));
                }
            }
        }
        found
    }

    async fn wait_pods(&self, job: &str, count: usize) -> BTreeSet<String> {
        wait(&format!("{count} running pods of {job}"), async || {
            let pods = self.pods(job).await;
            (pods.len() == count).then_some(pods)
        })
        .await
    }

    /// The incarnations for which agents have removed what the hub knows nothing of.
    async fn sorted(&self) -> Vec<String> {
        let mut all = Vec::new();
        for name in CLUSTERS {
            let leases: Api<Lease> = Api::namespaced(self.client.clone(), &names::cluster_namespace(name));
            let lease = leases.get_opt(names::LEASE_NAME).await.ok().flatten();
            let marks = lease.and_then(|lease| lease.metadata.annotations).unwrap_or_default();
            all.extend(marks.get(names::SORTED_ANNOTATION).cloned());
        }
        all
    }

    async fn wait_sorted(&self) -> String {
        let now = self.hub.as_ref().expect("it runs").incarnation();
        wait("every agent to be sorted out", async || {
            let all = self.sorted().await;
            (all.len() == CLUSTERS.len() && all.iter().all(|one| *one == now)).then_some(())
        })
        .await;
        now
    }
}

async fn wait<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn policy() -> Value {
    json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "gangs"}, "spec": {
            "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
            "placement": {"replicaScheduling":
                {"replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_hub_goes_on_under_connected_agents() {
    let place = tempfile::tempdir().expect("a directory");
    let (dir, backup) = (place.path().join("hub"), place.path().join("backup"));
    let mut fleet = Fleet::start(&dir).await;
    let policies: Api<fleet_api::PropagationPolicy> = Api::namespaced(fleet.client.clone(), "default");
    let policy = serde_json::from_value(policy()).expect("a policy");
    policies.create(&PostParams::default(), &policy).await.expect("a policy");
    for name in ["kept", "deleted"] {
        fleet.submit(name, 2).await;
    }
    let kept = fleet.wait_pods("kept", 1).await;
    let deleted = fleet.wait_pods("deleted", 1).await;
    let first = fleet.wait_sorted().await;

    fleet.with_hub_down(&dir, || copy(&dir, &backup)).await;
    assert_eq!(fleet.wait_sorted().await, first, "a start as usual");
    fleet.submit("forgotten", 2).await;
    fleet.wait_pods("forgotten", 1).await;
    fleet.jobs().delete("deleted", &DeleteParams::background()).await.expect("deleted");
    fleet.wait_pods("deleted", 0).await;
    let namespaces: Api<Namespace> = Api::all(fleet.client.clone());
    let later = serde_json::from_value(json!({"metadata": {"name": "later"}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &later).await.expect("a namespace");

    let restored = || {
        fs::remove_dir_all(&dir).expect("removed");
        copy(&backup, &dir);
    };
    fleet.with_hub_down(&dir, restored).await;
    assert!(namespaces.get_opt("later").await.expect("an answer").is_none(), "the hub went back");
    let second = fleet.wait_sorted().await;
    assert_ne!(second, first);
    fleet.wait_pods("forgotten", 0).await;
    // The hub wants it again. Its run of then is over, so it is a new one.
    let again = fleet.wait_pods("deleted", 1).await;
    assert!(again.is_disjoint(&deleted), "{again:?} {deleted:?}");
    fleet.submit("after", 4).await;
    fleet.wait_pods("after", 1).await;
    assert_eq!(fleet.pods("kept").await, kept, "what the hub still wants was left alone");
}

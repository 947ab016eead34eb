//! A hub and a member on embedded API servers, and an agent between them.
#![allow(dead_code, reason = "each suite uses a part of it")]

mod link;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use fleet_api::{
    Reservation, ReservationSpec, Work,
    binding::Component,
    crds::{Side, definitions},
    names,
    reservation::ReservationPhase,
};
use fleet_apiserver::{ApiServer, Config};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
    runtime::{WatchStreamExt, watcher},
};
use member_agent::Options;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use link::{Fuse, Link, Moment};

/// Longest wait for a condition before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Bed {
    pub hub: Client,
    pub member: Client,
    /// Cuts the agent off the hub, and what its watches show with it.
    pub link: Link,
    own: Link,
    fuse: watch::Sender<Option<Arc<Fuse>>>,
    servers: [ApiServer; 2],
}

pub struct Agent {
    shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    _guard: DropGuard,
}

impl Agent {
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it between any two of its instructions, as SIGKILL does.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
        self.shutdown.cancel();
    }
}

pub fn options() -> Options {
    Options {
        lease_duration: Duration::from_secs(2),
        lease_renew: Duration::from_millis(200),
        report_interval: Duration::from_millis(10),
        gang_grace: Duration::from_millis(100),
        // What a killed agent has sent to these servers arrives at once or never.
        member_request_timeout: Duration::from_millis(100),
        ..Options::new("east")
    }
}

/// Definitions that these tests need: all of them make a server slow to open in a debug build.
const NEEDED: [&str; 4] =
    ["clusters.fleet.dev", "reservations.fleet.dev", "works.fleet.dev", "pytorchjobs.kubeflow.org"];

pub async fn server(side: Side) -> (ApiServer, Client) {
    let crds =
        definitions(side).into_iter().filter(|crd| NEEDED.contains(&fleet_api::crds::name(crd))).collect();
    let server = ApiServer::open(Config { crds, ..Config::default() }).await.unwrap();
    let client = Client::new(server.router(), "default");
    (server, client)
}

impl Bed {
    /// A hub with the cluster's namespace and a member with nodes `name gpus`.
    pub async fn new(nodes: &[&str]) -> Self {
        let (hub_server, hub) = server(Side::Hub).await;
        let (member_server, member) = server(Side::Member).await;
        let (fuse, armed) = watch::channel(None);
        let link = Link::new(hub_server.router(), armed.clone());
        let own = Link::new(member_server.router(), armed);
        let bed = Self { hub, member, link, own, fuse, servers: [hub_server, member_server] };
        create::<Namespace>(&Api::all(bed.hub.clone()), json!({"metadata": {"name": "fleet-east"}})).await;
        for node in nodes {
            bed.add_node(node).await;
        }
        bed
    }

    pub async fn add_node(&self, text: &str) {
        let (name, gpus) = text.split_once(' ').unwrap();
        let nodes: Api<Node> = Api::all(self.member.clone());
        create(&nodes, json!({"metadata": {"name": name}})).await;
        let status = json!({"status": {
            "allocatable": {"cpu": "64", "nvidia.com/gpu": gpus, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}],
        }});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// The agent's writes, on the hub and in the member, stop at this one.
    pub fn fuse(&self, at: usize, moment: Moment) -> Arc<Fuse> {
        let fuse = Arc::new(Fuse::new(at, moment));
        self.fuse.send_replace(Some(fuse.clone()));
        fuse
    }

    pub fn disarm(&self) {
        self.fuse.send_replace(None);
    }

    /// The member says no to requests of the agent whose paths end so.
    pub fn forbid(&self, path_end: Option<&str>) {
        self.own.forbid(path_end);
    }

    pub fn start(&self, options: Options) -> Agent {
        self.start_between(&self.link, &self.own, options)
    }

    /// Ways of another agent to the hub and to the member.
    pub fn further_links(&self) -> [Link; 2] {
        [&self.servers[0], &self.servers[1]].map(|server| Link::new(server.router(), self.fuse.subscribe()))
    }

    pub fn start_between(&self, hub: &Link, member: &Link, options: Options) -> Agent {
        let shutdown = CancellationToken::new();
        let run = member_agent::run(hub.client(), member.client(), options, shutdown.clone());
        Agent { task: tokio::spawn(run), _guard: shutdown.clone().drop_guard(), shutdown }
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.member.clone(), "default")
    }

    pub fn asked(&self) -> Api<Reservation> {
        Api::namespaced(self.hub.clone(), "fleet-east")
    }

    pub fn copies(&self) -> Api<Reservation> {
        Api::namespaced(self.member.clone(), names::MEMBER_NAMESPACE)
    }

    pub fn works(&self) -> Api<Work> {
        Api::namespaced(self.hub.clone(), "fleet-east")
    }

    pub fn jobs(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob");
        let resource = ApiResource::from_gvk_with_plural(&kind, "pytorchjobs");
        Api::namespaced_with(self.member.clone(), "default", &resource)
    }

    pub async fn ask(&self, name: &str, components: &[(&str, i64, i64)], ttl_seconds: i64) {
        let component = |(name, replicas, gpus): &(&str, i64, i64)| Component {
            name: (*name).to_owned(),
            replicas: *replicas,
            request: [("nvidia.com/gpu".to_owned(), gpus.to_string())].into(),
            ..Component::default()
        };
        let mut spec = ReservationSpec {
            epoch: 1,
            components: components.iter().map(component).collect(),
            ttl_seconds,
            ..ReservationSpec::default()
        };
        spec.binding.name = name.to_owned();
        spec.binding.namespace = "default".to_owned();
        spec.binding.uid = format!("uid-{name}");
        self.asked().create(&PostParams::default(), &Reservation::new(name, spec)).await.unwrap();
    }

    /// A pod of gang `gang` (`size` members), named `<gang>-<component>-<index>`.
    pub async fn pod(
        &self,
        gang: &str,
        size: usize,
        component: &str,
        index: usize,
        gpus: u32,
        reservation: Option<&str>,
    ) {
        let mut annotations: BTreeMap<&str, String> = BTreeMap::new();
        if size > 1 {
            annotations.insert(names::GANG_ANNOTATION, gang.to_owned());
            annotations.insert(names::GANG_SIZE_ANNOTATION, size.to_string());
        }
        if let Some(reservation) = reservation {
            annotations.insert(names::RESERVATION_ANNOTATION, reservation.to_owned());
        }
        let pod = json!({
            "metadata": {"name": format!("{gang}-{component}-{index}"), "annotations": annotations,
                         "labels": {names::COMPONENT_LABEL: component}},
            "spec": {"schedulerName": "fleet", "containers": [{"name": "c", "image": "i", "resources": {
                "requests": {"nvidia.com/gpu": gpus.to_string()}, "limits": {"nvidia.com/gpu": gpus.to_string()}}}]},
        });
        create(&self.pods(), pod).await;
    }

    pub async fn node_of(&self, pod: &str) -> String {
        let pods = self.pods();
        let bound = until(&pods, pod, "bound", |pod| {
            pod.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
        });
        bound.await.unwrap().spec.unwrap().node_name.unwrap()
    }

    pub async fn phase(&self, name: &str, phase: ReservationPhase) -> Reservation {
        let what = format!("{phase:?}");
        let asked = self.asked();
        let reached = until(&asked, name, &what, |found| {
            found.and_then(|found| found.status.as_ref()).and_then(|status| status.phase) == Some(phase)
        });
        reached.await.unwrap()
    }
}

/// A PyTorchJob of two pods.
fn job(name: &str, gpus: u32) -> Value {
    let container = json!({"name": "pytorch", "image": "i", "resources": {
        "requests": {"nvidia.com/gpu": gpus.to_string()}, "limits": {"nvidia.com/gpu": gpus.to_string()}}});
    let role = |replicas: u32| {
        json!({"replicas": replicas, "restartPolicy": "OnFailure",
            "template": {"spec": {"schedulerName": "fleet", "containers": [container]}}})
    };
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {"Master": role(1), "Worker": role(1)}}})
}

/// A Work of such a job, with further fields of its spec.
pub fn work(name: &str, epoch: i64, fields: Value) -> Value {
    let mut work = json!({
        "metadata": {"name": name, "namespace": "fleet-east", "finalizers": [names::WORK_FINALIZER]},
        "spec": {"binding": {"namespace": "default", "name": format!("{name}-pytorchjob"), "uid": format!("uid-{name}")},
            "epoch": epoch, "workload": {"manifests": [job(name, 1)]}}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        work["spec"][field] = value.clone();
    }
    work
}

pub async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: kube::Resource + serde::Serialize + Clone + Debug + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Waits until the condition holds for the object (`None`: there is none).
pub async fn until<K>(api: &Api<K>, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> Option<K>
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut last = None;
    let waiting = async {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut states = std::pin::pin!(watcher::watcher(api.clone(), config).default_backoff());
        let mut listed = false;
        while let Some(event) = states.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => last = Some(object),
                Ok(watcher::Event::Delete(_)) => last = None,
                Ok(watcher::Event::InitDone) => listed = true,
                Ok(watcher::Event::Init) | Err(_) => continue,
            }
            if (listed || last.is_some()) && holds(last.as_ref()) {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(ended.is_ok(), "{name} is not {what}: {last:#?}");
    last
}

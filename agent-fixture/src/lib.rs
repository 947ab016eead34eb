//! A member and a hub on embedded API servers, for the tests of the agent's rooms.

use std::{sync::OnceLock, time::Duration};

use fleet_agent_ground::{JobController, Link, resource};
use fleet_api::crds::{Side, definitions};
use fleet_apiserver::{Access, ApiServer, Config};
use fleet_informer::Source;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Longest wait for a condition before a test fails.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Fixture {
    pub hub: Client,
    pub member: Client,
    /// Cancelled when the fixture is dropped.
    pub shutdown: CancellationToken,
    _servers: [ApiServer; 2],
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// A server with the named definitions of its side only. Making them takes a second without
/// optimisation, so the tests of one process share them.
async fn server(side: Side, names: &[&str], access: Access) -> (ApiServer, Client) {
    static HUB: OnceLock<Vec<Value>> = OnceLock::new();
    static MEMBER: OnceLock<Vec<Value>> = OnceLock::new();
    let all = match side {
        Side::Hub => HUB.get_or_init(|| definitions(side)),
        Side::Member => MEMBER.get_or_init(|| definitions(side)),
    };
    let crds = all.iter().filter(|one| names.contains(&fleet_api::crds::name(one))).cloned().collect();
    let config = Config { crds, access, ..Config::default() };
    let server = ApiServer::open(config).await.expect("a server in memory");
    let client = Client::new(server.router(), "default");
    (server, client)
}

impl Fixture {
    /// Servers; the hub has the cluster's namespace.
    pub async fn new(controllers: &[JobController]) -> Self {
        Self::start(controllers, Access::AlwaysAllow).await
    }

    /// The member asks its roles who may do what; the fixture's own client is an administrator.
    pub async fn with_roles() -> Self {
        Self::start(&[], Access::Rbac).await
    }

    async fn start(controllers: &[JobController], access: Access) -> Self {
        let mut kinds = vec!["pytorchjobs.kubeflow.org", "numatopologies.nodeinfo.volcano.sh"];
        for controller in controllers {
            match controller {
                JobController::TFJob => kinds.push("tfjobs.kubeflow.org"),
                JobController::MPIJob => kinds.push("mpijobs.kubeflow.org"),
                JobController::VolcanoJob => kinds.extend([
                    "jobs.batch.volcano.sh",
                    "podgroups.scheduling.volcano.sh",
                    "queues.scheduling.volcano.sh",
                ]),
                _ => {}
            }
        }
        let (hub_server, hub) = server(Side::Hub, &["works.fleet.dev"], Access::AlwaysAllow).await;
        let (member_server, member) = server(Side::Member, &kinds, access).await;
        let shutdown = CancellationToken::new();
        let fixture = Self { hub, member, shutdown, _servers: [hub_server, member_server] };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet-east"}});
        fixture.create(&fixture.hub, "", "v1", "namespaces", namespace).await;
        fixture
    }

    /// A node of the member that is ready, with 16 cpus and 16 GiB.
    pub async fn create_node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {
            "allocatable": {"cpu": "16", "memory": "16Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
        self.create(&self.member, "", "v1", "nodes", node).await;
    }

    /// A pod of the member that this agent schedules; requests are limits.
    pub async fn create_pod(&self, name: &str, cpu: &str, annotations: Value) {
        let amounts = json!({"cpu": cpu, "memory": "1Gi"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"schedulerName": "fleet", "containers": [
                {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]}});
        self.create(&self.member, "", "v1", "pods", pod).await;
    }

    /// Waits until the pod is told why it waits, in a sentence that has `part` in it.
    pub async fn wait_told(&self, pod: &str, part: &str) {
        let told = |pod: Option<&DynamicObject>| {
            pod.is_some_and(|pod| pod.data["status"]["conditions"].to_string().contains(part))
        };
        self.wait(&self.of_member("pods"), pod, part, told).await;
    }

    /// Waits until the pod is bound to the node.
    pub async fn wait_bound(&self, pod: &str, node: &str) {
        let bound = |pod: Option<&DynamicObject>| pod.is_some_and(|pod| pod.data["spec"]["nodeName"] == node);
        self.wait(&self.of_member("pods"), pod, node, bound).await;
    }

    /// The member `east`, as its agent follows it.
    pub fn member_link(&self) -> Link {
        Link::new(self.member.clone(), Source::unasked("east"), "east")
    }

    /// Its hub.
    pub fn hub_link(&self) -> Link {
        Link::new(self.hub.clone(), Source::asked(self.hub.clone(), "hub of east"), "east")
    }

    /// What stops a part of an agent, which may be started again after it, as after a restart.
    pub fn restart(&mut self) {
        self.shutdown.cancel();
        self.shutdown = CancellationToken::new();
    }

    pub fn api(
        &self,
        client: &Client,
        group: &str,
        version: &str,
        plural: &str,
        kind: &str,
    ) -> Api<DynamicObject> {
        let resource = resource(group, version, kind, plural);
        Api::namespaced_with(client.clone(), "default", &resource)
    }

    /// An API of the member in the namespace `default`, by plural.
    pub fn of_member(&self, plural: &str) -> Api<DynamicObject> {
        let (group, version, kind) = match plural {
            "pods" => ("", "v1", "Pod"),
            "services" => ("", "v1", "Service"),
            "configmaps" => ("", "v1", "ConfigMap"),
            "secrets" => ("", "v1", "Secret"),
            "pytorchjobs" => ("kubeflow.org", "v1", "PyTorchJob"),
            "tfjobs" => ("kubeflow.org", "v1", "TFJob"),
            "mpijobs" => ("kubeflow.org", "v2beta1", "MPIJob"),
            "jobs" => ("batch", "v1", "Job"),
            "vcjobs" => return self.api(&self.member, "batch.volcano.sh", "v1alpha1", "jobs", "Job"),
            "deployments" => ("apps", "v1", "Deployment"),
            "replicasets" => ("apps", "v1", "ReplicaSet"),
            other => panic!("unknown plural {other}"),
        };
        self.api(&self.member, group, version, plural, kind)
    }

    pub async fn create(
        &self,
        client: &Client,
        group: &str,
        version: &str,
        plural: &str,
        object: Value,
    ) -> DynamicObject {
        let kind = object["kind"].as_str().expect("kind").to_owned();
        let resource = resource(group, version, &kind, plural);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        api.create(&PostParams::default(), &object).await.expect("created")
    }

    /// Waits until the condition holds for the object (`None`: there is none).
    pub async fn wait(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        what: &str,
        condition: impl Fn(Option<&DynamicObject>) -> bool,
    ) -> Option<DynamicObject> {
        let waiting = await_condition(api.clone(), name, |object: Option<&DynamicObject>| condition(object));
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(found) => found.expect("a watch"),
            Err(_) => {
                let found = api.get_opt(name).await;
                panic!("{name}: never {what}; it is {found:#?}")
            }
        }
    }

    pub async fn wait_for(&self, plural: &str, name: &str) -> DynamicObject {
        let api = self.of_member(plural);
        self.wait(&api, name, "made", |object| object.is_some()).await.expect("waited for it")
    }

    pub async fn wait_gone(&self, plural: &str, name: &str) {
        let api = self.of_member(plural);
        self.wait(&api, name, "gone", |object| object.is_none()).await;
    }

    /// Plays the kubelet: all containers of the pod are in this phase.
    pub async fn set_phase(&self, pod: &str, phase: &str, exit_code: i64) {
        let mut status = json!({"phase": phase, "conditions": [
            {"type": "Ready", "status": if phase == "Running" { "True" } else { "False" }}]});
        if matches!(phase, "Succeeded" | "Failed") {
            status["containerStatuses"] = json!([{"name": "c", "ready": false, "restartCount": 0, "image": "i",
                "imageID": "i", "state": {"terminated": {"exitCode": exit_code}}}]);
        }
        let patch = Patch::Merge(json!({"status": status}));
        let pods = self.of_member("pods");
        match pods.patch_status(pod, &PatchParams::default(), &patch).await {
            // Deleted meanwhile: nothing is left to play.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.expect("a pod's status")),
        }
    }

    /// Waits until the last condition of a Kubeflow job is of that type.
    pub async fn wait_state(&self, plural: &str, name: &str, state: &str) -> DynamicObject {
        let api = self.of_member(plural);
        let found = self.wait(&api, name, state, |object| {
            object.is_some_and(|job| {
                job.data["status"]["conditions"]
                    .as_array()
                    .and_then(|list| list.last())
                    .is_some_and(|c| c["type"] == state)
            })
        });
        found.await.expect("waited for it")
    }
}

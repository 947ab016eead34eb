//! The controller against the embedded API server, with a scripted member in the agent's place.

#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{future::Future, sync::Arc, time::Duration};

use fleet_api::{Cluster, Reservation, ResourceBinding, Work, crds};
use fleet_apiserver::{
    Access, ApiServer, Config,
    faults::{FaultLayer, Link, Script},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::Layer;

/// A hub and its controller.
pub struct Hub {
    pub client: Client,
    /// The server itself, for clients of another kind.
    pub router: axum::Router,
    pub shutdown: CancellationToken,
    /// The same hub as the controller reaches it.
    way: Client,
    options: fleet_controller::Options,
    /// Ends what stands for the members.
    members: CancellationToken,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.members.cancel();
    }
}

pub async fn hub() -> Hub {
    hub_with(fleet_controller::Options::default()).await
}

pub async fn hub_with(options: fleet_controller::Options) -> Hub {
    hub_reached_by(options, |router| Client::new(router, "default")).await
}

/// A hub whose controller reaches it over a link with these faults.
pub async fn hub_with_faults(script: Arc<dyn Script>) -> Hub {
    let options = fleet_controller::Options::default();
    hub_reached_by(options, |router| {
        Client::new(FaultLayer::new(Link::default(), script).layer(router), "default")
    })
    .await
}

async fn hub_reached_by(options: fleet_controller::Options, way: impl FnOnce(axum::Router) -> Client) -> Hub {
    let config =
        Config { access: Access::AlwaysAllow, crds: crds::definitions(crds::Side::Hub), ..Config::default() };
    let server = ApiServer::open(config).await.expect("in memory");
    let client = Client::new(server.router(), "default");
    let way = way(server.router());
    let shutdown = CancellationToken::new();
    let options = fleet_controller::Options { summary_interval: Duration::from_millis(20), ..options };
    tokio::spawn(fleet_controller::run(way.clone(), options.clone(), shutdown.clone()));
    Hub { client, router: server.router(), shutdown, way, options, members: CancellationToken::new() }
}

/// Polls until a value is there; names what was waited for when it never comes.
pub async fn until<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    for _ in 0..500 {
        if let Some(value) = look().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain for {what}");
}

impl Hub {
    pub fn jobs(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob");
        Api::namespaced_with(
            self.client.clone(),
            "default",
            &ApiResource::from_gvk_with_plural(&gvk, "pytorchjobs"),
        )
    }

    pub async fn apply(&self, file: &str) {
        let text =
            std::fs::read_to_string(format!("{}/../examples/walkthrough/{file}", env!("CARGO_MANIFEST_DIR")))
                .expect("the walkthrough's manifests are in the repository");
        let value: Value = fleet_api::yaml::read(&text).expect("YAML");
        self.create(value).await;
    }

    pub async fn create(&self, value: Value) {
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string();
        let (group, version) = text("/apiVersion").split_once('/').map_or_else(
            || (String::new(), text("/apiVersion")),
            |(group, version)| (group.to_string(), version.to_string()),
        );
        let kind = text("/kind");
        let plural = match kind.as_str() {
            "PropagationPolicy" => "propagationpolicies".to_string(),
            other => format!("{}s", other.to_lowercase()),
        };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, &version, &kind), &plural);
        let namespace =
            Some(text("/metadata/namespace")).filter(|ns| !ns.is_empty()).unwrap_or("default".into());
        let api: Api<DynamicObject> = match kind.as_str() {
            "Cluster" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), &namespace, &resource),
        };
        let object: DynamicObject = serde_json::from_value(value).expect("an object");
        api.create(&PostParams::default(), &object).await.expect("created");
    }

    /// A member with two nodes of 8 GPUs that reports and renews.
    pub async fn member(&self, name: &str) {
        self.create(json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}}))
            .await;
        let namespace = format!("fleet-{name}");
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        until("the cluster's namespace", || async { namespaces.get_opt(&namespace).await.ok().flatten() })
            .await;
        let node = json!({"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"});
        let status = json!({"status": {"reportSequence": 1, "reservation": true,
            "nodeShapes": [{"count": 2, "allocatable": node, "free": node}]}});
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("reported");
        self.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "member-agent", "namespace": namespace}, "spec": {"holderIdentity": "test"}}))
            .await;
    }

    pub async fn state(&self, job: &str) -> String {
        let Ok(job) = self.jobs().get(job).await else { return String::new() };
        let conditions = job.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.last().and_then(|c| c["type"].as_str().map(str::to_string)).unwrap_or_default()
    }

    pub async fn until_state(&self, job: &str, state: &str) {
        until(&format!("{job} to be {state}"), || async { (self.state(job).await == state).then_some(()) })
            .await;
    }

    pub async fn reservation(&self, cluster: &str) -> Reservation {
        let api: Api<Reservation> = Api::namespaced(self.client.clone(), &format!("fleet-{cluster}"));
        until("a reservation", || async {
            let list = api.list(&ListParams::default()).await.ok()?;
            list.items.into_iter().find(|r| r.status.as_ref().is_none_or(|status| status.phase.is_none()))
        })
        .await
    }

    pub async fn answer(&self, reservation: &Reservation, status: Value) {
        let api: Api<Reservation> =
            Api::namespaced(self.client.clone(), &reservation.namespace().unwrap_or_default());
        api.patch_status(
            &reservation.name_any(),
            &PatchParams::default(),
            &Patch::Merge(json!({"status": status})),
        )
        .await
        .expect("answered");
    }

    pub async fn work(&self, cluster: &str) -> Work {
        let api: Api<Work> = Api::namespaced(self.client.clone(), &format!("fleet-{cluster}"));
        until("a work", || async { api.list(&ListParams::default()).await.ok()?.items.into_iter().next() })
            .await
    }

    /// The member reports a state of the job, as the training operator writes it.
    pub async fn report(&self, work: &Work, conditions: Value) {
        let api: Api<Work> = Api::namespaced(self.client.clone(), &work.namespace().unwrap_or_default());
        let applied = json!({"type": "Applied", "status": "True", "reason": "Applied", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"observedEpoch": work.spec.epoch, "conditions": [applied], "manifestStatuses": [{
            "identifier": {"ordinal": 0, "version": "v1", "kind": "PyTorchJob", "name": "pytorch-test"},
            "status": {"conditions": conditions}}]}});
        api.patch_status(&work.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await
            .expect("reported");
    }

    /// Ends the controller and starts another one.
    pub async fn restart(&mut self) {
        self.shutdown.cancel();
        self.shutdown = CancellationToken::new();
        tokio::spawn(fleet_controller::run(self.way.clone(), self.options.clone(), self.shutdown.clone()));
    }

    /// Renews a member's lease until the token is cancelled.
    pub fn renews(&self, name: &str) -> CancellationToken {
        let stop = self.members.child_token();
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.client.clone(), &format!("fleet-{name}"));
        let token = stop.clone();
        tokio::spawn(async move {
            let mut n: i64 = 0;
            while !token.is_cancelled() {
                n += 1;
                let time = format!("2026-01-01T00:{:02}:{:02}.000000Z", n / 60 % 60, n % 60);
                let patch = json!({"spec": {"renewTime": time}});
                let _ = leases.patch("member-agent", &PatchParams::default(), &Patch::Merge(patch)).await;
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
        stop
    }

    /// Answers the next reservation of a cluster with yes; returns the Work that follows.
    pub async fn accept(&self, cluster: &str) -> Work {
        let reservation = self.reservation(cluster).await;
        self.answer(&reservation, json!({"phase": "Reserved", "reportSequence": 2})).await;
        let name = reservation.spec.binding.name.clone();
        let api: Api<Work> = Api::namespaced(self.client.clone(), &format!("fleet-{cluster}"));
        until("a work", || async {
            let works = api.list(&ListParams::default()).await.ok()?.items;
            works.into_iter().find(|work| work.spec.binding.name == name)
        })
        .await
    }

    /// Stands for the agent when it has cleaned up.
    pub async fn let_go(&self, work: &Work) {
        let works: Api<Work> = Api::namespaced(self.client.clone(), &work.namespace().unwrap_or_default());
        until("the work to be deleted", || async {
            works.get(&work.name_any()).await.ok()?.metadata.deletion_timestamp.map(|_| ())
        })
        .await;
        let patch = json!({"metadata": {"finalizers": null}});
        works.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.expect("let go");
    }

    /// A policy for PyTorchJobs with this failover.
    pub async fn policy(&self, failover: Value) {
        self.policy_that_tolerates(failover, json!([])).await;
    }

    pub async fn policy_that_tolerates(&self, failover: Value, tolerations: Value) {
        self.create(
            json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "p", "namespace": "default"}, "spec": {
                "propagateDeps": true,
                "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
                "placement": {"clusterTolerations": tolerations, "clusterAffinities": [
                    {"affinityName": "first", "clusterNames": ["east"]}, {"affinityName": "others"}]},
                "failover": failover}}),
        )
        .await;
    }

    pub async fn taint(&self, cluster: &str, taints: Value) {
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        let patch = json!({"spec": {"taints": taints}});
        clusters.patch(cluster, &PatchParams::default(), &Patch::Merge(patch)).await.expect("tainted");
    }

    /// The reasons for which runs were ended so far, with their clusters.
    pub async fn attempts(&self) -> Vec<(String, String)> {
        let status = self.binding().await.status.unwrap_or_default();
        status.attempts.into_iter().map(|attempt| (attempt.cluster, attempt.reason)).collect()
    }

    pub async fn binding(&self) -> ResourceBinding {
        let api: Api<ResourceBinding> = Api::namespaced(self.client.clone(), "default");
        api.get("pytorch-test-pytorchjob").await.expect("the job has a binding")
    }
}

pub fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": format!("PyTorchJob{kind}"), "message": ""})
}

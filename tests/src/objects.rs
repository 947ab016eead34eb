//! Kubernetes objects as JSON, on any API server.
//!
//! Suites read and write objects as a user's manifests have them, so that no type of the product stands
//! between the test and the wire.

use anyhow::Context;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
        ValidationDirective,
    },
};
use serde_json::Value;

/// Field manager of everything a test writes.
const MANAGER: &str = "fleet-tests";

/// A kind as the API serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

const fn namespaced(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: true }
}

const fn cluster_wide(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: false }
}

pub const NAMESPACE: Kind = cluster_wide("v1", "Namespace", "namespaces");
pub const NODE: Kind = cluster_wide("v1", "Node", "nodes");
pub const POD: Kind = namespaced("v1", "Pod", "pods");
pub const EVENT: Kind = namespaced("v1", "Event", "events");
pub const CONFIG_MAP: Kind = namespaced("v1", "ConfigMap", "configmaps");
pub const SECRET: Kind = namespaced("v1", "Secret", "secrets");
pub const SERVICE_ACCOUNT: Kind = namespaced("v1", "ServiceAccount", "serviceaccounts");
pub const SERVICE: Kind = namespaced("v1", "Service", "services");
pub const CLAIM: Kind = namespaced("v1", "PersistentVolumeClaim", "persistentvolumeclaims");
pub const PRIORITY_CLASS: Kind = cluster_wide("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses");
pub const BATCH_JOB: Kind = namespaced("batch/v1", "Job", "jobs");
pub const DEPLOYMENT: Kind = namespaced("apps/v1", "Deployment", "deployments");
pub const REPLICA_SET: Kind = namespaced("apps/v1", "ReplicaSet", "replicasets");
pub const PYTORCH_JOB: Kind = namespaced("kubeflow.org/v1", "PyTorchJob", "pytorchjobs");
pub const TF_JOB: Kind = namespaced("kubeflow.org/v1", "TFJob", "tfjobs");
pub const MPI_JOB: Kind = namespaced("kubeflow.org/v2beta1", "MPIJob", "mpijobs");
pub const VOLCANO_JOB: Kind = namespaced("batch.volcano.sh/v1alpha1", "Job", "jobs");
pub const POD_GROUP: Kind = namespaced("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups");
pub const VOLCANO_QUEUE: Kind = cluster_wide("scheduling.volcano.sh/v1beta1", "Queue", "queues");
pub const COMMAND: Kind = namespaced("bus.volcano.sh/v1alpha1", "Command", "commands");
pub const CRON_JOB: Kind = namespaced("batch.volcano.sh/v1alpha1", "CronJob", "cronjobs");
pub const JOB_FLOW: Kind = namespaced("flow.volcano.sh/v1alpha1", "JobFlow", "jobflows");
pub const JOB_TEMPLATE: Kind = namespaced("flow.volcano.sh/v1alpha1", "JobTemplate", "jobtemplates");
pub const HYPER_NODE: Kind = cluster_wide("topology.volcano.sh/v1alpha1", "HyperNode", "hypernodes");
pub const WEBHOOK_CONFIGURATION: Kind = cluster_wide(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
pub const POLICY: Kind =
    namespaced("policy.one.alibabacloud.com/v1alpha1", "PropagationPolicy", "propagationpolicies");
pub const CLUSTER_POLICY: Kind = cluster_wide(
    "policy.one.alibabacloud.com/v1alpha1",
    "ClusterPropagationPolicy",
    "clusterpropagationpolicies",
);
pub const OVERRIDE: Kind =
    namespaced("policy.one.alibabacloud.com/v1alpha1", "OverridePolicy", "overridepolicies");
pub const QUOTA_TREE: Kind =
    namespaced("scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree", "elasticquotatrees");
pub const QUEUE: Kind = namespaced("scheduling.x-k8s.io/v1alpha1", "Queue", "queues");
pub const QUEUE_UNIT: Kind = namespaced("scheduling.x-k8s.io/v1alpha1", "QueueUnit", "queueunits");
pub const BINDING: Kind = namespaced("fleet.dev/v1alpha1", "ResourceBinding", "resourcebindings");
pub const WORK: Kind = namespaced("fleet.dev/v1alpha1", "Work", "works");
pub const RESERVATION: Kind = namespaced("fleet.dev/v1alpha1", "Reservation", "reservations");
pub const CLUSTER: Kind = cluster_wide("fleet.dev/v1alpha1", "Cluster", "clusters");
pub const LEASE: Kind = namespaced("coordination.k8s.io/v1", "Lease", "leases");
pub const ROLE: Kind = namespaced("rbac.authorization.k8s.io/v1", "Role", "roles");
pub const ROLE_BINDING: Kind = namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings");
pub const CLUSTER_ROLE: Kind = cluster_wide("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles");
pub const CLUSTER_ROLE_BINDING: Kind =
    cluster_wide("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings");

pub const CELL_CONFIGURATION: Kind =
    cluster_wide("fleet.dev/v1alpha1", "CellConfiguration", "cellconfigurations");
pub const VIRTUAL_CLUSTER: Kind = cluster_wide("fleet.dev/v1alpha1", "VirtualCluster", "virtualclusters");

const KNOWN: [Kind; 41] = [
    NAMESPACE,
    NODE,
    POD,
    EVENT,
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
    SERVICE,
    CLAIM,
    PRIORITY_CLASS,
    BATCH_JOB,
    DEPLOYMENT,
    REPLICA_SET,
    PYTORCH_JOB,
    TF_JOB,
    MPI_JOB,
    VOLCANO_JOB,
    POD_GROUP,
    VOLCANO_QUEUE,
    COMMAND,
    CRON_JOB,
    JOB_FLOW,
    JOB_TEMPLATE,
    HYPER_NODE,
    POLICY,
    CLUSTER_POLICY,
    OVERRIDE,
    QUOTA_TREE,
    QUEUE,
    QUEUE_UNIT,
    BINDING,
    WORK,
    RESERVATION,
    CLUSTER,
    LEASE,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CELL_CONFIGURATION,
    VIRTUAL_CLUSTER,
];

impl Kind {
    /// The kind of a manifest.
    ///
    /// # Errors
    /// One the harness does not know; add it above.
    pub fn of(manifest: &Value) -> anyhow::Result<Self> {
        let known =
            KNOWN.iter().find(|k| manifest["apiVersion"] == k.api_version && manifest["kind"] == k.kind);
        known
            .copied()
            .with_context(|| format!("unknown kind {} {}", manifest["apiVersion"], manifest["kind"]))
    }

    fn resource(self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        ApiResource {
            group: group.to_string(),
            version: version.to_string(),
            api_version: self.api_version.to_string(),
            kind: self.kind.to_string(),
            plural: self.plural.to_string(),
        }
    }

    /// Objects of this kind in one namespace; of a cluster-wide kind in all.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match self.namespaced {
            true => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            false => Api::all_with(client.clone(), &self.resource()),
        }
    }

    /// Objects of this kind everywhere.
    pub fn everywhere(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }
}

/// Namespace of a manifest, `default` when it names none.
pub fn namespace_of(manifest: &Value) -> &str {
    manifest["metadata"]["namespace"].as_str().unwrap_or("default")
}

pub fn name_of(manifest: &Value) -> &str {
    manifest["metadata"]["name"].as_str().unwrap_or_default()
}

/// The object, if it is there.
pub async fn get(client: &Client, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Option<Value>> {
    let found = kind.api(client, namespace).get_opt(name).await;
    let found = found.with_context(|| format!("{} {namespace}/{name}", kind.kind))?;
    found.map(with_kind(kind)).transpose()
}

/// Every object of a kind, in all namespaces.
pub async fn list(client: &Client, kind: Kind) -> anyhow::Result<Vec<Value>> {
    let listed = kind.everywhere(client).list(&ListParams::default()).await;
    let listed = listed.with_context(|| format!("list of {}", kind.plural))?;
    listed.items.into_iter().map(with_kind(kind)).collect()
}

/// Server-side apply, with unknown fields refused.
///
/// # Errors
/// What the server says.
pub async fn apply(client: &Client, manifest: &Value) -> anyhow::Result<Value> {
    let kind = Kind::of(manifest)?;
    let mut params = PatchParams::apply(MANAGER).force();
    params.field_validation = Some(ValidationDirective::Strict);
    let api = kind.api(client, namespace_of(manifest));
    let applied = api.patch(name_of(manifest), &params, &Patch::Apply(manifest)).await;
    applied.with_context(|| format!("{} {}", kind.kind, name_of(manifest))).and_then(with_kind(kind))
}

/// Creates an object; the error is the server's own, for tests that expect a refusal.
///
/// # Errors
/// What the server says.
pub async fn create(client: &Client, manifest: &Value) -> Result<(), kube::Error> {
    let kind = Kind::of(manifest).map_err(|error| kube::Error::Service(error.into()))?;
    let object: DynamicObject = serde_json::from_value(manifest.clone()).map_err(kube::Error::SerdeError)?;
    let api = kind.api(client, namespace_of(manifest));
    api.create(&PostParams::default(), &object).await.map(|_| ())
}

/// A JSON merge patch.
///
/// # Errors
/// What the server says.
pub async fn merge(
    client: &Client,
    kind: Kind,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> anyhow::Result<()> {
    let params = PatchParams { field_manager: Some(MANAGER.to_string()), ..PatchParams::default() };
    kind.api(client, namespace).patch(name, &params, &Patch::Merge(patch)).await?;
    Ok(())
}

/// A JSON merge patch of a status.
///
/// # Errors
/// What the server says.
pub async fn merge_status(
    client: &Client,
    kind: Kind,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> anyhow::Result<()> {
    let params = PatchParams { field_manager: Some(MANAGER.to_string()), ..PatchParams::default() };
    kind.api(client, namespace).patch_status(name, &params, &Patch::Merge(patch)).await?;
    Ok(())
}

/// Deletes an object as kubectl does: with a uid of nobody in particular, dependents in the background.
///
/// # Errors
/// What the server says.
pub async fn delete(client: &Client, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<()> {
    let deleted = kind.api(client, namespace).delete(name, &DeleteParams::background()).await;
    deleted.with_context(|| format!("{} {namespace}/{name}", kind.kind)).map(|_| ())
}

/// Listed objects carry no kind; tests read it.
fn with_kind(kind: Kind) -> impl Fn(DynamicObject) -> anyhow::Result<Value> {
    move |object| {
        let mut value = serde_json::to_value(object)?;
        value["apiVersion"] = kind.api_version.into();
        value["kind"] = kind.kind.into();
        Ok(value)
    }
}

/// The condition of a type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// State of a job as its users read it: a Kubeflow job's last condition, a batch Job's true one.
pub fn job_state(job: &Value) -> String {
    let conditions = job["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |condition: &Value| condition["type"].as_str().unwrap_or_default().to_string();
    if job["apiVersion"] == BATCH_JOB.api_version {
        let is = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        return match (is("Complete"), is("Failed"), is("Queuing"), job["status"]["active"].as_i64()) {
            (true, ..) => "Succeeded".to_string(),
            (_, true, ..) => "Failed".to_string(),
            (_, _, true, _) => "Queuing".to_string(),
            (.., Some(active)) if active > 0 => "Running".to_string(),
            _ => String::new(),
        };
    }
    if job["apiVersion"] == VOLCANO_JOB.api_version {
        return job["status"]["state"]["phase"].as_str().unwrap_or_default().to_string();
    }
    conditions.last().map(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_are_what_users_read() {
        let state = |api_version: &str, status: Value| {
            job_state(&json!({"apiVersion": api_version, "status": status}))
        };
        let conditions = json!({"conditions": [
            {"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]});
        assert_eq!(state("kubeflow.org/v1", conditions), "Running");
        assert_eq!(state("kubeflow.org/v1", Value::Null), "");
        assert_eq!(state("batch/v1", json!({"active": 2})), "Running");
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        assert_eq!(state("batch/v1", complete), "Succeeded");
    }
}

//! Pods and jobs as the controllers read them: only the fields that matter for decisions, so that watching
//! many pods is cheap.

use std::{collections::BTreeMap, time::Duration};

use fleet_api::names::JOB_ANNOTATION;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::discovery::ApiResource;
use serde::Deserialize;
use serde_json::Value;

/// Grace period of pods that name none, as Kubernetes has it.
const DEFAULT_GRACE_S: i64 = 30;

/// A job or another owner of pods. Spec and status stay JSON, because a custom resource keeps a quantity as
/// it was written.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Object {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: Value,
    /// Fields beside spec and status; a Command has some.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

/// A pod without its spec and its managed fields. For a pod without a controller only its identity is kept:
/// no controller needs more, and a watch caches all pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawPod")]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub status: PodStatus,
    /// Seconds that its containers have to end; `None` if the pod does not say.
    pub own_grace_s: Option<i64>,
}

#[derive(Deserialize)]
struct RawPod {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

impl From<RawPod> for Pod {
    fn from(pod: RawPod) -> Self {
        let RawPod { metadata: meta, spec, status } = pod;
        let own_grace_s = spec.termination_grace_period_seconds;
        let identity = ObjectMeta {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            ..ObjectMeta::default()
        };
        if !meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true)) {
            return Self { metadata: identity, status: PodStatus::default(), own_grace_s };
        }
        let metadata = ObjectMeta {
            creation_timestamp: meta.creation_timestamp,
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: meta.owner_references,
            finalizers: meta.finalizers,
            ..identity
        };
        Self { metadata, status, own_grace_s }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    /// The reason of the status, such as `Evicted`.
    pub reason: String,
    pub conditions: Vec<PodCondition>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub restart_count: i64,
    pub state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub exit_code: i64,
    /// Such as `OOMKilled`.
    pub reason: String,
    pub finished_at: Option<String>,
}

impl Object {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Pod {
    /// Owner and phase, without the details that only the job's own controller needs. Of the annotations the one that
    /// names its job is kept: the owner of a pod may be an object between the two.
    pub fn outline(self) -> Self {
        let Self { metadata: meta, status, own_grace_s } = self;
        let mut annotations = meta.annotations.unwrap_or_default();
        annotations.retain(|name, _| name == JOB_ANNOTATION);
        let metadata = ObjectMeta {
            annotations: (!annotations.is_empty()).then_some(annotations),
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            owner_references: meta.owner_references,
            ..ObjectMeta::default()
        };
        Self { metadata, status: PodStatus { phase: status.phase, ..PodStatus::default() }, own_grace_s }
    }

    /// The grace period with which the pod is to be deleted, now or again, so that it ends within `longest`; `None` if it
    /// is ending so already. Never longer than its own, and never 0, which would remove the object while containers run.
    pub fn grace_s(&self, longest: Duration) -> Option<u32> {
        let longest = u32::try_from(longest.as_secs()).unwrap_or(u32::MAX).max(1);
        if self.is_deleting() {
            return self.outlasts(longest.into()).then_some(longest);
        }
        let own = self.own_grace_s.unwrap_or(DEFAULT_GRACE_S).max(1);
        Some(u32::try_from(own).unwrap_or(u32::MAX).min(longest))
    }

    /// Whether the pod was deleted, by anybody, with a longer grace period.
    pub fn outlasts(&self, longest_s: i64) -> bool {
        let granted = self.metadata.deletion_grace_period_seconds;
        self.is_deleting() && !self.is_ended() && granted.is_some_and(|granted| granted > longest_s)
    }

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn is_running(&self) -> bool {
        self.status.phase == "Running"
    }

    pub fn is_succeeded(&self) -> bool {
        self.status.phase == "Succeeded"
    }

    pub fn is_failed(&self) -> bool {
        self.status.phase == "Failed"
    }

    pub fn is_ended(&self) -> bool {
        self.is_succeeded() || self.is_failed()
    }

    pub fn is_ready(&self) -> bool {
        self.is_running() && self.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True")
    }

    /// Exit code of the container that ended worst, if any has ended.
    pub fn exit_code(&self) -> Option<i64> {
        self.terminated().map(|end| end.exit_code).max()
    }

    /// When its last container ended, as the kubelet wrote it.
    pub fn finished_at(&self) -> Option<jiff::Timestamp> {
        self.terminated().filter_map(|end| end.finished_at.as_deref()?.parse().ok()).max()
    }

    /// Exit code of the first container, if it has ended.
    pub fn first_exit_code(&self) -> Option<i64> {
        Some(self.status.container_statuses.first()?.state.terminated.as_ref()?.exit_code)
    }

    /// Reason and exit code of the first container that failed.
    pub fn failed_container(&self) -> Option<(&str, i64)> {
        let all = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let mut ended = all.filter_map(|container| container.state.terminated.as_ref());
        ended.find(|end| end.exit_code != 0).map(|end| (end.reason.as_str(), end.exit_code))
    }

    pub fn container_restarts(&self) -> i64 {
        let all = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        fleet_resources::sum(all.map(|container| container.restart_count))
    }

    /// The owner that controls it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        controller_of(&self.metadata)
    }

    fn terminated(&self) -> impl Iterator<Item = &Terminated> {
        self.status.container_statuses.iter().filter_map(|container| container.state.terminated.as_ref())
    }
}

pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Lets kube's watches and requests use a type with `metadata` for any resource.
macro_rules! dynamic_resource {
    ($type:ty) => {
        impl kube::Resource for $type {
            type DynamicType = kube::discovery::ApiResource;
            type Scope = kube::core::DynamicResourceScope;

            fn kind(dt: &kube::discovery::ApiResource) -> std::borrow::Cow<'_, str> {
                dt.kind.as_str().into()
            }
            fn group(dt: &kube::discovery::ApiResource) -> std::borrow::Cow<'_, str> {
                dt.group.as_str().into()
            }
            fn version(dt: &kube::discovery::ApiResource) -> std::borrow::Cow<'_, str> {
                dt.version.as_str().into()
            }
            fn api_version(dt: &kube::discovery::ApiResource) -> std::borrow::Cow<'_, str> {
                dt.api_version.as_str().into()
            }
            fn plural(dt: &kube::discovery::ApiResource) -> std::borrow::Cow<'_, str> {
                dt.plural.as_str().into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

dynamic_resource!(Object);
dynamic_resource!(Pod);

/// The resource of a kind with a known plural.
pub fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

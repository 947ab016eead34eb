//! A pod as a hollow kubelet reads it: the fields it acts on and no others, so that a watch over
//! thousands of pods decodes little.

use std::borrow::Cow;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use fleet_simulator::run_plan::Nature;

/// Condition of a pod whose resize waits for a place.
pub const RESIZE_PENDING: &str = "PodResizePending";

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Pod {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(default)]
    pub node_name: Option<String>,
    #[serde(default)]
    pub restart_policy: Option<String>,
    #[serde(default)]
    pub init_containers: Vec<Container>,
    #[serde(default)]
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    #[serde(default)]
    pub image: String,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
    /// `Always` makes an init container a sidecar.
    #[serde(default)]
    pub restart_policy: Option<String>,
    #[serde(default)]
    pub resources: Value,
    /// What a resize of each resource needs: nothing, or a restart.
    #[serde(default)]
    pub resize_policy: Vec<Value>,
}

impl Container {
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    #[serde(default)]
    pub phase: Option<String>,
    #[serde(default)]
    pub start_time: Option<String>,
    /// Existing conditions of a pod (from its scheduler) are kept.
    #[serde(default)]
    pub conditions: Vec<Value>,
    #[serde(default, rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Generation of the pod that its kubelet has seen; none for a pod that another kubelet started.
    #[serde(default)]
    pub observed_generation: Option<i64>,
}

impl kube::Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Container {
    /// Its command line is that of a server that never ends by itself: sshd in the foreground, or a parameter
    /// server.
    fn is_daemon(&self) -> bool {
        const DAEMONS: [&str; 2] = ["sshd -D", "--job_name=ps "];
        self.command.iter().chain(&self.args).any(|line| DAEMONS.iter().any(|mark| line.contains(mark)))
    }
}

/// Which pod: namespace and name. The uid tells two pods of one name apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
}

/// Phase of a stored pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Finished,
}

impl Pod {
    pub fn key(&self) -> PodKey {
        PodKey {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
        }
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn phase(&self) -> Phase {
        match self.status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded" | "Failed") => Phase::Finished,
            _ => Phase::Pending,
        }
    }

    /// True for a running pod whose spec has changed since its kubelet looked.
    pub fn is_unseen(&self) -> bool {
        let seen = self.status.observed_generation;
        self.phase() == Phase::Running && seen.is_some() && self.metadata.generation > seen
    }

    /// True for a running pod whose resize waits for a place.
    pub fn waits_for_resize(&self) -> bool {
        let is_pending = |condition: &Value| condition["type"] == RESIZE_PENDING;
        self.phase() == Phase::Running && self.status.conditions.iter().any(is_pending)
    }

    /// Pods of workloads that never end by themselves, and bare pods that restart forever, are services.
    pub fn nature(&self) -> Nature {
        const SERVICES: [&str; 4] = ["ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"];
        if self.spec.containers.iter().any(Container::is_daemon) {
            return Nature::Daemon;
        }
        let always = !matches!(self.spec.restart_policy.as_deref(), Some("Never" | "OnFailure"));
        match self.owner() {
            Some(owner) if SERVICES.contains(&owner.kind.as_str()) || owner.kind == "Deployment" => {
                Nature::Service
            }
            None if always => Nature::Service,
            _ => Nature::Batch,
        }
    }

    /// The object that made this pod.
    pub fn owner(&self) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference> {
        let owners = self.metadata.owner_references.as_deref()?;
        owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first())
    }
}

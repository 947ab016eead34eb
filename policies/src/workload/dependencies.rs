//! Dependencies: objects that a workload's pods need.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{WorkloadKind, replica_specs_field};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DependencyKind {
    ConfigMap,
    PersistentVolumeClaim,
    Secret,
    ServiceAccount,
}

impl fmt::Display for DependencyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An object of the workload's own namespace; all kinds are of group `v1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DependencyRef {
    pub kind: DependencyKind,
    pub name: String,
    /// Pods start without it.
    #[serde(default)]
    pub optional: bool,
}

/// Every object that the pod templates name, once. An object is optional only if all templates say so.
pub fn dependencies(kind: WorkloadKind, object: &Value) -> BTreeSet<DependencyRef> {
    let mut found = BTreeSet::new();
    for template in templates(kind, object) {
        of_pod(&template["spec"], &mut found);
    }
    if kind == WorkloadKind::VolcanoJob {
        for volume in list(&object["spec"], "volumes") {
            add(&mut found, DependencyKind::PersistentVolumeClaim, &volume["volumeClaimName"], &Value::Null);
        }
    }
    let needed: BTreeSet<DependencyRef> = found.iter().filter(|d| !d.optional).cloned().collect();
    found.retain(|dependency| {
        let firm = DependencyRef { optional: false, ..dependency.clone() };
        !dependency.optional || !needed.contains(&firm)
    });
    found
}

/// The pod templates of a workload, in the order of its roles' names.
pub(super) fn templates(kind: WorkloadKind, object: &Value) -> Vec<&Value> {
    let spec = &object["spec"];
    match kind {
        WorkloadKind::PyTorchJob | WorkloadKind::TFJob | WorkloadKind::MPIJob => spec
            [replica_specs_field(kind)]
        .as_object()
        .map(|roles| roles.values().map(|role| &role["template"]).collect())
        .unwrap_or_default(),
        WorkloadKind::VolcanoJob => list(spec, "tasks").iter().map(|task| &task["template"]).collect(),
        WorkloadKind::BatchJob | WorkloadKind::Deployment => vec![&spec["template"]],
        // A bare Pod is its own template; other objects have no such fields.
        WorkloadKind::Other if object["kind"] == "Pod" => vec![object],
        WorkloadKind::Other => Vec::new(),
    }
}

fn of_pod(spec: &Value, found: &mut BTreeSet<DependencyRef>) {
    use DependencyKind::{ConfigMap, PersistentVolumeClaim, Secret, ServiceAccount};
    if spec["serviceAccountName"] != "default" {
        add(found, ServiceAccount, &spec["serviceAccountName"], &Value::Null);
    }
    for secret in list(spec, "imagePullSecrets") {
        // The kubelet pulls without a missing secret.
        add(found, Secret, &secret["name"], &Value::Bool(true));
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list(spec, field) {
            of_container(container, found);
        }
    }
    for volume in list(spec, "volumes") {
        let (config, secret) = (&volume["configMap"], &volume["secret"]);
        add(found, ConfigMap, &config["name"], &config["optional"]);
        add(found, Secret, &secret["secretName"], &secret["optional"]);
        add(found, PersistentVolumeClaim, &volume["persistentVolumeClaim"]["claimName"], &Value::Null);
        for source in list(&volume["projected"], "sources") {
            let (config, secret) = (&source["configMap"], &source["secret"]);
            add(found, ConfigMap, &config["name"], &config["optional"]);
            add(found, Secret, &secret["name"], &secret["optional"]);
        }
        for driver in ["cephfs", "rbd", "flexVolume", "scaleIO", "iscsi", "storageos"] {
            add(found, Secret, &volume[driver]["secretRef"]["name"], &Value::Null);
        }
        add(found, Secret, &volume["csi"]["nodePublishSecretRef"]["name"], &Value::Null);
        add(found, Secret, &volume["azureFile"]["secretName"], &Value::Null);
    }
}

fn of_container(container: &Value, found: &mut BTreeSet<DependencyRef>) {
    for entry in list(container, "env") {
        let from = &entry["valueFrom"];
        let (config, secret) = (&from["configMapKeyRef"], &from["secretKeyRef"]);
        add(found, DependencyKind::ConfigMap, &config["name"], &config["optional"]);
        add(found, DependencyKind::Secret, &secret["name"], &secret["optional"]);
    }
    for entry in list(container, "envFrom") {
        let (config, secret) = (&entry["configMapRef"], &entry["secretRef"]);
        add(found, DependencyKind::ConfigMap, &config["name"], &config["optional"]);
        add(found, DependencyKind::Secret, &secret["name"], &secret["optional"]);
    }
}

fn add(found: &mut BTreeSet<DependencyRef>, kind: DependencyKind, name: &Value, optional: &Value) {
    if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
        found.insert(DependencyRef { kind, name: name.to_owned(), optional: optional == true });
    }
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_object_once_over_all_roles() {
        let master = json!({"template": {"spec": {
            "serviceAccountName": "trainer",
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [{"env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a", "optional": true}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "token", "key": "b"}}}]}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}}});
        let worker = json!({"template": {"spec": {
            "serviceAccountName": "default",
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "token"}}]}],
            "containers": [{}],
            "volumes": [
                {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "p", "projected": {"sources": [{"configMap": {"name": "extra", "optional": true}}]}}]}}});
        let object = json!({"spec": {"pytorchReplicaSpecs": {"Master": master, "Worker": worker}}});
        let found: Vec<String> = dependencies(WorkloadKind::PyTorchJob, &object)
            .iter()
            .map(|d| format!("{} {}{}", d.kind, d.name, if d.optional { "?" } else { "" }))
            .collect();
        assert_eq!(
            found,
            [
                "ConfigMap extra?",
                "ConfigMap settings",
                "PersistentVolumeClaim data",
                "Secret registry?",
                "Secret token",
                "ServiceAccount trainer"
            ]
        );
    }

    #[test]
    fn broken_objects_have_none() {
        for kind in [WorkloadKind::PyTorchJob, WorkloadKind::VolcanoJob, WorkloadKind::BatchJob] {
            assert!(dependencies(kind, &json!({"spec": "x"})).is_empty());
            assert!(dependencies(kind, &Value::Null).is_empty());
        }
    }
}

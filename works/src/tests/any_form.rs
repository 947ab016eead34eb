//! Manifests of any form: what a hub sends, and what stands in the member, fells no agent.

use std::{collections::BTreeSet, time::Duration};

use fleet_agent_ground::JobController;
use fleet_api::work::WorkSpec;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::{desired, inject, templates};

/// Every place in a value, as JSON pointers.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                places(value, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| places(value, &format!("{path}/{at}"), found));
        }
        _ => {}
    }
}

fn values() -> [Value; 8] {
    [
        json!("x"),
        json!(7),
        json!(-1),
        json!([]),
        json!({}),
        json!(["x", 1, null, {}]),
        json!(true),
        Value::Null,
    ]
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "schedulerName": "s", "schedulingGates": [{"name": "g"}],
            "terminationGracePeriodSeconds": 3, "shareProcessNamespace": false, "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always"}],
            "containers": [{"name": "pytorch", "image": "i", "env": [{"name": "A", "value": "b"}],
                "startupProbe": {"httpGet": {"port": 1}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}})
}

fn jobs() -> Vec<Value> {
    let role = json!({"replicas": 1, "restartPolicy": "Never", "template": template()});
    let job = |api_version: &str, kind: &str, spec: Value| {
        json!({"apiVersion": api_version, "kind": kind, "spec": spec, "metadata": {"name": "a", "namespace": "n",
            "labels": {"fleet.dev/binding-uid": "u1", "fleet.dev/managed": "true"},
            "annotations": {"fleet.dev/fencing": "Lease"}, "finalizers": ["x"]}})
    };
    let run = json!({"suspend": true, "cleanPodPolicy": "None"});
    vec![
        job(
            "kubeflow.org/v1",
            "PyTorchJob",
            json!({"runPolicy": run, "pytorchReplicaSpecs": {"Master": role, "Worker": role}}),
        ),
        job(
            "kubeflow.org/v2beta1",
            "MPIJob",
            json!({"runPolicy": run, "mpiReplicaSpecs": {"Launcher": role}}),
        ),
        job(
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"minAvailable": 1, "tasks": [{"name": "t", "replicas": 1, "template": template()}]}),
        ),
        job("batch/v1", "Job", json!({"parallelism": 1, "suspend": true, "template": template()})),
        job("apps/v1", "Deployment", json!({"replicas": 1, "template": template()})),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"a": "b"}}),
    ]
}

fn spec(manifest: Value, fenced: bool) -> WorkSpec {
    let mut spec = WorkSpec { epoch: 2, reservation: Some("r".to_owned()), fenced, ..WorkSpec::default() };
    spec.binding.uid = "u1".to_owned();
    spec.workload.manifests = vec![manifest];
    spec
}

/// What the agent makes of a manifest, and of what stands under its name.
fn looked_at(manifest: &Value, stands: &Value) {
    let means = inject::Means { image: Some("w"), ..inject::Means::default() };
    let names: BTreeSet<String> = ["s".to_owned(), "fleet".to_owned()].into();
    for fenced in [false, true] {
        let spec = spec(manifest.clone(), fenced);
        let Ok(wanted) = desired::desired(&spec, 0, means) else { continue };
        for controllers in [BTreeSet::new(), JobController::ALL.iter().copied().collect()] {
            let served = templates::Served { scheduler_names: &names, controllers: &controllers };
            let made = templates::made(&spec, wanted.clone(), served);
            let made = templates::within(made, Duration::from_secs(9));
            let Ok(live) = serde_json::from_value::<DynamicObject>(stands.clone()) else { continue };
            let wanted = templates::as_made(made, &live);
            if let desired::ObjectComparison::Patch(patch) = desired::judge(&spec, 0, &wanted, &live, true) {
                let _ = desired::resumes(&wanted, &live, &patch);
            }
            let _ = (desired::without(&live, &|_| true), desired::unmarked(&live));
        }
    }
}

#[test]
fn a_manifest_of_any_form_fells_no_agent() {
    for job in jobs() {
        let mut stands = job.clone();
        stands["metadata"]["annotations"]["fleet.dev/fenced"] = "2".into();
        stands["metadata"]["annotations"]["fleet.dev/epoch"] = "2".into();
        stands["metadata"]["resourceVersion"] = "7".into();
        stands["metadata"]["uid"] = "u".into();
        let mut all = Vec::new();
        places(&job, "", &mut all);
        for place in all.iter().filter(|place| !place.is_empty()) {
            for value in values() {
                let mut changed = job.clone();
                *changed.pointer_mut(place).expect("it is there") = value.clone();
                looked_at(&changed, &stands);
                let mut other = stands.clone();
                if let Some(at) = other.pointer_mut(place) {
                    *at = value;
                }
                looked_at(&job, &other);
            }
        }
    }
}

//! Objects and overrides of any form: what is no object where one is expected, fells nobody.

use super::*;
use crate::{asked, claim, forms::Forms, manifests};

/// Every place in a value, as JSON pointers, and places beside what is there.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_string());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                places(value, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                places(value, &format!("{path}/{at}"), found);
            }
        }
        _ => {}
    }
}

/// Of any form.
fn values() -> [Value; 7] {
    [json!("x"), json!(7), json!(-1), json!([]), json!({}), json!(["x", 1, null, {}]), json!(true)]
}

/// A template with a field of each form that is read or written.
fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
            "schedulerName": "s", "schedulingGates": [{"name": "g"}], "priorityClassName": "p",
            "imagePullSecrets": [{"name": "s"}], "serviceAccountName": "a", "terminationGracePeriodSeconds": 3,
            "volumes": [{"name": "v", "configMap": {"name": "m"}}, {"name": "w", "projected": {"sources": [{"secret": {"name": "s"}}]}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}},
            "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always"}],
            "containers": [{"name": "pytorch", "image": "i", "env": [{"name": "A", "value": "b"}],
                "envFrom": [{"configMapRef": {"name": "m"}}], "ports": [{"containerPort": 1}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}})
}

fn jobs() -> Vec<Value> {
    let metadata = json!({"name": "train", "namespace": "team", "uid": "o", "generation": 5,
        "labels": {"quota.scheduling.alibabacloud.com/name": "a"},
        "annotations": {"fleet.dev/virtual-cluster": "v", "example.com/note": "n"}});
    let role = json!({"replicas": 1, "restartPolicy": "Never", "template": template()});
    let run = json!({"suspend": false, "cleanPodPolicy": "None", "activeDeadlineSeconds": 9, "backoffLimit": 1,
        "schedulingPolicy": {"minAvailable": 1}});
    let job = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    vec![
        job(
            "kubeflow.org/v1",
            "PyTorchJob",
            json!({"runPolicy": run, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 1},
                "pytorchReplicaSpecs": {"Master": role, "Worker": role}}),
        ),
        job("kubeflow.org/v1", "TFJob", json!({"runPolicy": run, "tfReplicaSpecs": {"Worker": role}})),
        job(
            "kubeflow.org/v2beta1",
            "MPIJob",
            json!({"runPolicy": run, "slotsPerWorker": 1, "mpiReplicaSpecs": {"Launcher": role, "Worker": role}}),
        ),
        job(
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"minAvailable": 1, "queue": "q", "plugins": {"env": []}, "policies": [{"event": "PodEvicted",
                "action": "RestartJob"}], "tasks": [{"name": "t", "replicas": 1, "template": template()}]}),
        ),
        job(
            "batch/v1",
            "Job",
            json!({"parallelism": 1, "completions": 1, "suspend": false, "activeDeadlineSeconds": 9,
                "template": template()}),
        ),
    ]
}

/// What the hub does with the object as it stands, whatever comes out.
fn looked_at(hub: &Hub) {
    let (world, entry) = (&hub.world, &hub.world.bindings[&key()]);
    drop(hub.step(None));
    drop(manifests::unsendable(world, entry));
    drop(manifests::missing_dependencies(world, entry));
    let kind = hub.kind();
    let named = ("team".to_string(), "train".to_string());
    drop(claim::plan(world, &mut Forms::default(), &kind, &named, hub.now));
    let _ = manifests::complete_ms(world, entry);
    if let Some(object) = world.bound_object(entry) {
        drop(asked::in_cluster(world, &kind, "team", object, "east"));
        drop(manifests::as_running(world, &key(), entry, object));
        let _ = crate::run_time::of_job(entry, Some(object), manifests::running(world, &key(), entry));
    }
}

/// The job as it was sent; what its pods read is not on the hub.
fn running(job: &Value) -> Hub {
    let mut running = Hub::new(job.clone(), &["east"]);
    let class = json!({"metadata": {"name": "p"}, "value": 1});
    let class = serde_json::from_value(class).expect("a class");
    running.world.observe(Observation::PriorityClass(Change::Apply(class)));
    running.change_binding(&json!({"spec": {"propagateDeps": false}}));
    running.settle(None);
    assert!(!running.world.works.is_empty(), "{}: {:?}", job["kind"], running.condition("FullyApplied"));
    running
}

#[test]
fn a_job_of_any_form_fells_nobody() {
    for job in jobs() {
        let mut all = Vec::new();
        places(&job["spec"], "/spec", &mut all);
        let mut waiting = Hub::new(job.clone(), &[]);
        let mut running = running(&job);
        for place in all {
            for value in values() {
                let mut changed = job.clone();
                *changed.pointer_mut(&place).expect("it is there") = value;
                waiting.submit(changed.clone());
                looked_at(&waiting);
                running.submit(changed);
                looked_at(&running);
            }
        }
    }
}

#[test]
fn an_override_of_any_form_fells_nobody() {
    for job in jobs() {
        let mut all = Vec::new();
        places(&job, "", &mut all);
        all.extend(["/status", "/metadata/finalizers", "/metadata/ownerReferences"].map(str::to_string));
        let mut running = running(&job);
        // What it was sent with is missing now.
        let mut bare = job.clone();
        bare["metadata"].as_object_mut().expect("metadata").remove("labels");
        bare["metadata"].as_object_mut().expect("metadata").remove("annotations");
        let mut waiting = Hub::new(bare.clone(), &[]);
        running.submit(bare);
        for place in all.into_iter().filter(|place| !place.is_empty()) {
            for value in values() {
                let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
                    "metadata": {"name": "o", "namespace": "team", "uid": "o", "generation": 1},
                    "spec": {"resourceSelectors": [{"apiVersion": job["apiVersion"], "kind": job["kind"]}],
                        "overrideRules": [{"overriders": {"plaintext": [
                            {"path": place, "operator": "add", "value": value}]}}]}});
                for hub in [&mut waiting, &mut running] {
                    hub.observe(Observation::Override(Change::Apply(read(&policy))));
                    looked_at(hub);
                    hub.observe(Observation::Override(Change::Delete(read(&policy))));
                }
            }
        }
    }
}

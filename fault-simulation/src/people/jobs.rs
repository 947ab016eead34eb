//! Jobs of every kind, with every legal name.

use std::time::Duration;

use serde_json::{Value, json};

use super::{HONEST, OVER_MS, is, name_of};
use crate::{
    plan::{EXPECT_LABEL, Plan, What},
    random::Random,
};

/// Kinds that run to an end.
const KINDS: [(&str, &str); 5] = [
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v1", "TFJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("batch/v1", "Job"),
];
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const IMAGE: &str = "registry.example.com/train:v1";

impl Plan {
    /// Every kind, some with pods that run on when their job has ended.
    pub(super) fn add_kinds(&mut self, random: &mut Random) {
        self.select(&[&KINDS[..], &[DEPLOYMENT]].concat());
        for index in 0..random.between(1, 4) {
            let at = random.time(0, 150_000);
            let namespace = *random.one_of(&HONEST);
            let (name, runtime_ms) = (format!("k{index}"), random.between(200, 60_000));
            if random.per_mille(200) {
                let service = deployment(&name, namespace, random.between(1, 3));
                self.people_do(at, What::Apply(service.clone()));
                if random.per_mille(500) {
                    let scaled = json!({"spec": {"replicas": random.between(0, 4)}});
                    let when = at + random.time(0, 60_000);
                    self.people_do(when, What::Patch { object: name_of(&service), patch: scaled });
                }
                // It would run for ever, and hold its room as long.
                let ends = Duration::from_millis(random.between(160_000, OVER_MS));
                self.people_do(ends, What::Delete(name_of(&service)));
                continue;
            }
            let kind = *random.one_of(&KINDS);
            let mut job = job(kind, &name, namespace, random.between(1, 2), random.below(2), runtime_ms);
            if is(&job, "kubeflow.org/v1", "PyTorchJob") && random.per_mille(700) {
                outlived(&mut job, random.between(60_000, 600_000));
            }
            self.people_do(at, What::Apply(job));
        }
    }

    /// Names up to the longest, names with dots, and two kinds of one name.
    pub(super) fn add_names(&mut self, random: &mut Random) {
        self.select(&KINDS);
        for index in 0..random.between(1, 3) {
            let at = random.time(0, 120_000);
            let namespace = *random.one_of(&HONEST);
            let length = *random.one_of(&[52_usize, 63, 64, 200, 240, 253]);
            let long = format!("n{index}-{}", "x".repeat(length.saturating_sub(3)));
            let (name, kinds) = match random.below(4) {
                0 => (format!("n{index}"), vec![KINDS[3], KINDS[4]]),
                1 => (format!("n{index}"), vec![KINDS[0], KINDS[4]]),
                2 => (format!("n{index}.part.two"), vec![*random.one_of(&KINDS)]),
                _ => (long, vec![*random.one_of(&KINDS)]),
            };
            for kind in kinds {
                let mut job = job(kind, &name, namespace, 1, 0, random.between(200, 20_000));
                job["metadata"]["labels"][EXPECT_LABEL] = "Any".into();
                self.people_do(at + random.time(0, 50), What::Apply(job));
            }
        }
    }

    /// The policy governs these kinds too.
    pub(super) fn select(&mut self, kinds: &[(&str, &str)]) {
        let policy = self.objects.iter_mut().find(|object| object["kind"] == "ClusterPropagationPolicy");
        let Some(list) = policy.and_then(|policy| policy["spec"]["resourceSelectors"].as_array_mut()) else {
            return;
        };
        for (api_version, kind) in kinds {
            let selector = json!({"apiVersion": api_version, "kind": kind});
            if !list.contains(&selector) {
                list.push(selector);
            }
        }
    }
}

/// The main pod ends at once and the job with it; the workers run on for so long.
fn outlived(job: &mut Value, workers_ms: u64) {
    let roles = &mut job["spec"]["pytorchReplicaSpecs"];
    let runtime = |ms: u64| json!({"annotations": {"sim.fleet.dev/runtime": format!("{ms}ms")}});
    roles["Master"]["template"]["metadata"] = runtime(1_000);
    roles["Worker"]["template"]["metadata"] = runtime(workers_ms);
}

/// A job with that many workers, and a main pod where its kind has one.
pub(super) fn job(
    (api_version, kind): (&str, &str),
    name: &str,
    namespace: &str,
    workers: u64,
    gpus: u64,
    runtime_ms: u64,
) -> Value {
    let container = |name: &str| {
        let mut amounts = json!({"cpu": "1", "memory": "1Gi"});
        if gpus > 0 {
            amounts["nvidia.com/gpu"] = gpus.to_string().into();
        }
        json!({"name": name, "image": IMAGE, "resources": {"requests": amounts, "limits": amounts}})
    };
    let role = |replicas: u64, name: &str| json!({"replicas": replicas, "restartPolicy": "Never", "template": {"spec": {"containers": [container(name)]}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container("main")]}});
    let spec = match kind {
        "PyTorchJob" => json!({"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs":
            {"Master": role(1, "pytorch"), "Worker": role(workers, "pytorch")}}),
        "TFJob" => json!({"runPolicy": {"cleanPodPolicy": "None"}, "tfReplicaSpecs":
            {"Chief": role(1, "tensorflow"), "Worker": role(workers, "tensorflow")}}),
        "MPIJob" => json!({"runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs":
            {"Launcher": role(1, "mpi"), "Worker": role(workers, "mpi")}}),
        _ if api_version == "batch/v1" => {
            json!({"parallelism": workers, "completions": workers, "backoffLimit": 0,
            "template": template})
        }
        _ => json!({"minAvailable": workers, "schedulerName": "volcano",
            "tasks": [{"name": "main", "replicas": workers, "template": template}]}),
    };
    json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {EXPECT_LABEL: "Succeeded"},
            "annotations": {"sim.fleet.dev/runtime": format!("{runtime_ms}ms")}},
        "spec": spec})
}

fn deployment(name: &str, namespace: &str, replicas: u64) -> Value {
    let amounts = json!({"cpu": "100m", "memory": "64Mi"});
    let container = json!({"name": "main", "image": IMAGE, "resources": {"requests": amounts}});
    json!({"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1, "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}}})
}

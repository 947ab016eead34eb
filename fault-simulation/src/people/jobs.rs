//! Jobs of every kind, with every legal name.

use std::time::Duration;

use fleet_simulator::scenario::{ClusterSpec, NodePool};
use serde_json::{Value, json};

use super::{HONEST, OVER_MS, is, name_of, roles_field};
use crate::{
    draw::{cell_pool, fits},
    plan::{EXPECT_LABEL, SimulationPlan, What},
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

impl SimulationPlan {
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
            let (workers, gpus) = (random.between(1, 2), random.below(2));
            let mut job = job(kind, &name, namespace, workers, gpus, runtime_ms);
            job["metadata"]["labels"][EXPECT_LABEL] = self.expected(pods(&job), gpus).into();
            if is(&job, "kubeflow.org/v1", "PyTorchJob") && random.per_mille(700) {
                outlived(&mut job, random.between(60_000, 600_000));
            }
            self.people_do(at, What::Apply(job));
        }
    }

    /// What becomes of a job of so many pods that tolerates no taint, if nobody touches it.
    fn expected(&self, pods: u64, gpus: u64) -> &'static str {
        let some = |is_room: fn(&ClusterSpec, &NodePool) -> bool| {
            let mut clusters = self.clusters.iter();
            clusters.any(|of| fits(of.node_pools.iter().filter(|pool| is_room(of, pool)), pods, gpus))
        };
        if some(|cluster, pool| pool.name != cell_pool(&cluster.name)) {
            "Succeeded"
        } else if some(|_, pool| pool.taints.is_empty()) {
            // Nodes of cells are room only while no configuration keeps them.
            "Any"
        } else {
            "Waits"
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

/// How many pods a job has.
fn pods(job: &Value) -> u64 {
    let spec = &job["spec"];
    let roles = roles_field(job).and_then(|field| spec[field].as_object()).into_iter().flatten();
    let roles = roles.map(|(_, role)| role);
    let tasks = spec["tasks"].as_array().into_iter().flatten();
    let replicas = roles.chain(tasks).filter_map(|part| part["replicas"].as_u64());
    replicas.sum::<u64>() + spec["parallelism"].as_u64().unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::people::People;

    #[test]
    fn a_job_that_exceeds_every_cluster_is_expected_to_wait() {
        let people = People::named("kinds").expect("known");
        let mut told: BTreeMap<String, u32> = BTreeMap::new();
        // In two of these each cluster has two GPUs, and a job asks for three.
        for seed in (0..200).chain([2102, 2484]) {
            let plan = SimulationPlan::of_seed_with(seed, &people);
            for (_, job) in plan.jobs() {
                let name = job["metadata"]["name"].as_str().expect("a name");
                if !name.starts_with('k') {
                    continue;
                }
                let text = job.to_string();
                // One for each pod; without any, a cluster holds more pods than a job here has.
                let asked = if text.contains("nvidia.com/gpu") { pods(&job) } else { 0 };
                let has = |pool: &NodePool| {
                    pool.count as u64 * pool.allocatable["nvidia.com/gpu"].parse::<u64>().expect("a number")
                };
                let holds = plan.clusters.iter().any(|cluster| has(&cluster.node_pools[0]) >= asked);
                let expect = job["metadata"]["labels"][EXPECT_LABEL].as_str().expect("a label");
                assert_eq!(expect == "Succeeded", holds, "seed {seed}: {text}");
                *told.entry(expect.to_string()).or_default() += 1;
            }
        }
        assert!(told["Waits"] >= 2 && told["Succeeded"] > 100, "{told:?}");
    }
}

//! Manifests of jobs, policies and quota trees for suites, each a few words long at the call.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A job under construction. One pod asks for 1 cpu, 1Gi and the GPUs given.
#[derive(Clone, Debug)]
pub struct Job {
    flavour: Flavour,
    name: String,
    namespace: String,
    workers: i64,
    gpus: i64,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    pod: Value,
    restart: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    PyTorch,
    TensorFlow,
    Mpi,
    Batch,
}

impl Job {
    /// One master and `workers` workers.
    pub fn pytorch(name: &str) -> Self {
        Self::new(Flavour::PyTorch, name)
    }

    /// One parameter server and `workers` workers.
    pub fn tensorflow(name: &str) -> Self {
        Self::new(Flavour::TensorFlow, name)
    }

    /// One launcher and `workers` workers.
    pub fn mpi(name: &str) -> Self {
        Self::new(Flavour::Mpi, name)
    }

    /// `workers` pods, each to succeed once.
    pub fn batch(name: &str) -> Self {
        Self::new(Flavour::Batch, name)
    }

    fn new(flavour: Flavour, name: &str) -> Self {
        Self {
            flavour,
            name: name.to_string(),
            namespace: "default".to_string(),
            workers: 1,
            gpus: 1,
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
            pod: json!({}),
            restart: "OnFailure",
        }
    }

    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.to_string();
        self
    }

    pub fn workers(mut self, workers: i64) -> Self {
        self.workers = workers;
        self
    }

    /// GPUs of each pod.
    pub fn gpus(mut self, gpus: i64) -> Self {
        self.gpus = gpus;
        self
    }

    /// How long the simulated pods run: `500ms`, `forever`.
    pub fn runs(mut self, time: &str) -> Self {
        self.annotations.insert(fleet_api::names::SIM_RUNTIME_ANNOTATION.to_string(), time.to_string());
        self
    }

    /// Clusters on which the pods fail, by commas. A failed pod is not started again.
    pub fn fails_on(mut self, clusters: &str) -> Self {
        self.annotations.insert(fleet_api::names::SIM_FAIL_ON_ANNOTATION.to_string(), clusters.to_string());
        self.restart = "Never";
        self
    }

    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_string(), value.to_string());
        self
    }

    /// Fields of every pod's spec, over the usual ones.
    pub fn pod(mut self, fields: Value) -> Self {
        self.pod = fields;
        self
    }

    /// Fields of the one container of every pod.
    pub fn container(mut self, fields: Value) -> Self {
        self.pod["containers"] = json!([fields]);
        self
    }

    /// The manifest.
    pub fn manifest(&self) -> Value {
        let role = |replicas: i64| {
            let template = self.template();
            json!({"replicas": replicas, "restartPolicy": self.restart, "template": template})
        };
        let run_policy = json!({"cleanPodPolicy": "None"});
        let (api_version, kind, spec) = match self.flavour {
            Flavour::PyTorch => {
                let roles = json!({"Master": role(1), "Worker": role(self.workers)});
                (
                    "kubeflow.org/v1",
                    "PyTorchJob",
                    json!({"runPolicy": run_policy, "pytorchReplicaSpecs": roles}),
                )
            }
            Flavour::TensorFlow => {
                let roles = json!({"PS": role(1), "Worker": role(self.workers)});
                ("kubeflow.org/v1", "TFJob", json!({"runPolicy": run_policy, "tfReplicaSpecs": roles}))
            }
            Flavour::Mpi => {
                let roles = json!({"Launcher": role(1), "Worker": role(self.workers)});
                let spec = json!({"slotsPerWorker": 1, "runPolicy": run_policy, "mpiReplicaSpecs": roles});
                ("kubeflow.org/v2beta1", "MPIJob", spec)
            }
            Flavour::Batch => {
                let mut template = self.template();
                template["spec"]["restartPolicy"] = self.restart.into();
                let count = self.workers;
                let backoff = if self.restart == "Never" { 0 } else { 6 };
                let spec = json!({"parallelism": count, "completions": count, "backoffLimit": backoff,
                    "template": template});
                ("batch/v1", "Job", spec)
            }
        };
        json!({"apiVersion": api_version, "kind": kind, "spec": spec, "metadata": {
            "name": self.name, "namespace": self.namespace,
            "annotations": self.annotations, "labels": self.labels}})
    }

    fn template(&self) -> Value {
        let mut amounts = json!({"cpu": "1", "memory": "1Gi"});
        if self.gpus > 0 {
            amounts["nvidia.com/gpu"] = self.gpus.to_string().into();
        }
        // Kubeflow's container has the name of its framework.
        let name = match self.flavour {
            Flavour::PyTorch => "pytorch",
            Flavour::TensorFlow => "tensorflow",
            Flavour::Mpi => "mpi",
            Flavour::Batch => "main",
        };
        let mut container = json!({"name": name, "image": "registry.example.com/train:v1",
            "resources": {"requests": amounts, "limits": amounts}});
        let mut spec = self.pod.as_object().cloned().unwrap_or_default();
        let given: Map<String, Value> =
            spec.get("containers").and_then(|list| list[0].as_object()).cloned().unwrap_or_default();
        for (field, value) in given {
            container[field] = value;
        }
        spec.insert("containers".to_string(), json!([container]));
        json!({"spec": spec})
    }
}

/// Name of the policy that [`gang_policy`] makes.
pub const POLICY_NAME: &str = "gangs";

/// A policy in `default` that sends every job whole to one cluster; `queued` holds it in its queue first.
pub fn gang_policy(queueing: Queueing) -> Value {
    let selectors: Vec<Value> = [
        ("kubeflow.org/v1", "PyTorchJob"),
        ("kubeflow.org/v1", "TFJob"),
        ("kubeflow.org/v2beta1", "MPIJob"),
        ("batch/v1", "Job"),
    ]
    .iter()
    .map(|(api_version, kind)| json!({"apiVersion": api_version, "kind": kind}))
    .collect();
    let mut policy = json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": POLICY_NAME, "namespace": "default"},
        "spec": {
            "propagateDeps": true,
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
            "resourceSelectors": selectors,
        },
    });
    if queueing == Queueing::Queued {
        policy["spec"]["suspension"] = json!({"scheduling": true});
    }
    policy
}

/// Whether jobs wait in their queue before they are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    Queued,
    AtOnce,
}

/// The one tree, whose leaf `team` has the namespace `default` and this max.
pub fn quota_tree(max: Value) -> Value {
    json!({
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"},
        "spec": {"root": {"name": "root", "children": [{"name": "team", "namespaces": ["default"], "max": max}]}},
    })
}

/// A Deployment of `replicas` pods, 1 cpu each.
pub fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "registry.example.com/serve:v1",
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
            },
        },
    })
}

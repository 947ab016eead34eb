//! The gang of a row: equal rows share one shape.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fleet_placement::{Gang, GangComponent, PodShape};
use fleet_planner::JobShape;
use fleet_policies::spec::{ClusterAffinity, CustomSchedulingType, Placement, ReplicaScheduling};
use fleet_resources::Resources;

use super::columns::Row;
use crate::{
    fast::{JobSpec, RunPlans},
    scenario::ClusterSpec,
};

const DEFAULT_GPU: &str = "nvidia.com/gpu";
const KIND: &str = "PyTorchJob";
const API_VERSION: &str = "kubeflow.org/v1";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ShapeKey {
    pods: i64,
    gpus: i64,
    cpu_milli: i64,
    memory_bytes: i64,
    cluster: Option<String>,
}

struct Known {
    shape: Arc<JobShape>,
    components: Arc<BTreeMap<String, i64>>,
}

pub(super) struct Shapes {
    known: HashMap<ShapeKey, Known>,
    kind: Arc<str>,
    gpu: String,
    /// GPUs of the fleet's largest node.
    largest: i64,
}

/// What all nodes have together.
pub(super) fn capacity(clusters: &[ClusterSpec]) -> Resources {
    let mut sum = Resources::new();
    for pool in clusters.iter().flat_map(|cluster| &cluster.node_pools) {
        let amounts = pool.allocatable.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        // Read once before, when the file was.
        sum.add(&Resources::parse(amounts).unwrap_or_default().scaled(pool.count as i64));
    }
    sum
}

impl Shapes {
    pub fn new(clusters: &[ClusterSpec]) -> Self {
        let all = capacity(clusters);
        let gpus = all.iter().filter(|(name, _)| name.as_str().ends_with("/gpu"));
        let gpu = gpus.max_by_key(|(_, amount)| *amount).map(|(name, _)| name.as_str().to_string());
        let gpu = gpu.unwrap_or_else(|| DEFAULT_GPU.to_string());
        let pools = clusters.iter().flat_map(|cluster| &cluster.node_pools);
        let of_pool =
            pools.filter_map(|pool| fleet_resources::quantity::parse(&gpu, pool.allocatable.get(&gpu)?).ok());
        let largest = of_pool.max().unwrap_or(1).max(1);
        Self { known: HashMap::new(), kind: Arc::from(KIND), gpu, largest }
    }

    pub fn spec(&mut self, row: &Row, priority: i64) -> JobSpec {
        let fewest = ((row.gpus + self.largest - 1) / self.largest).max(1);
        let asked = ShapeKey {
            pods: row.instances.unwrap_or(fewest),
            gpus: row.gpus,
            cpu_milli: row.cpu_milli,
            memory_bytes: row.memory_bytes,
            cluster: row.cluster.clone(),
        };
        let next = self.known.len() as u64;
        let gpu = &self.gpu;
        let known = self.known.entry(asked).or_insert_with_key(|asked| Known::new(next, asked, gpu));
        JobSpec {
            kind: Arc::clone(&self.kind),
            shape: Arc::clone(&known.shape),
            queued: true,
            priority,
            preemptible: true,
            gpus: row.gpus,
            components: Arc::clone(&known.components),
            plan: RunPlans::For(row.duration_ms),
            ..JobSpec::default()
        }
    }
}

impl Known {
    fn new(id: u64, asked: &ShapeKey, gpu: &str) -> Self {
        let (each, wide) = (asked.gpus / asked.pods, asked.gpus % asked.pods);
        let pod = |gpus: i64| {
            let of_one = |amount: i64| (amount + asked.pods - 1) / asked.pods;
            let requests = Resources::from_pairs([
                (gpu, gpus),
                ("cpu", of_one(asked.cpu_milli)),
                ("memory", of_one(asked.memory_bytes)),
            ]);
            PodShape { requests, ..PodShape::default() }
        };
        // GPUs that do not divide evenly: some pods have one more.
        let parts = [("worker", asked.pods - wide, each), ("wide-worker", wide, each + 1)];
        let components: Vec<GangComponent> = parts
            .iter()
            .filter(|(_, pods, _)| *pods > 0)
            .map(|(name, pods, gpus)| GangComponent::whole(name, *pods, pod(*gpus)))
            .collect();
        let counts = components.iter().map(|c| (c.name.clone(), c.replicas)).collect();
        let gang = Gang { components };
        let affinity = asked.cluster.as_ref().map(|cluster| ClusterAffinity {
            cluster_names: vec![cluster.clone()],
            ..ClusterAffinity::default()
        });
        let placement = Placement {
            cluster_affinity: affinity,
            replica_scheduling: Some(ReplicaScheduling {
                custom_scheduling_type: Some(CustomSchedulingType::Gang),
                ..ReplicaScheduling::default()
            }),
            ..Placement::default()
        };
        let shape = JobShape {
            id,
            total: gang.total(),
            gang,
            placement,
            api_version: API_VERSION.to_string(),
            kind: KIND.to_string(),
        };
        Self { shape: Arc::new(shape), components: Arc::new(counts) }
    }
}

//! The nodes of a hollow member, and how it runs.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use fleet_simulator::run_plan::RunTime;
use jiff::Timestamp;

use super::watchdog::Containers;

/// Field manager of everything hollow kubelets write.
pub const FIELD_MANAGER: &str = "hollow-kubelet";
/// Pods a node holds, as kubelets have it by default.
const PODS_PER_NODE: i64 = 110;
/// Writes in flight at once per member; more would only queue in the server.
const DEFAULT_CONCURRENCY: usize = 64;
/// Slow, so that an idle fleet stays idle; nothing in this process depends on it.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(300);

/// Where wall time comes from; replaced in tests that run on a paused clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The nodes of one member, all alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSpec {
    pub count: usize,
    /// Kubernetes quantity.
    pub cpu: String,
    /// Kubernetes quantity.
    pub memory: String,
    /// `nvidia.com/gpu` per node; 0 leaves the resource out.
    pub gpus: u32,
    /// Added to every node.
    pub labels: BTreeMap<String, String>,
    /// As a Node's `spec.taints` has them.
    pub taints: Vec<serde_json::Value>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HollowNode {
    pub name: String,
    /// Kubernetes quantities by resource, `pods` among them.
    pub allocatable: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// As a Node's `spec.taints` has them.
    pub taints: Vec<serde_json::Value>,
}

impl NodeSpec {
    fn nodes(&self, cluster: &str) -> Vec<HollowNode> {
        let mut allocatable = BTreeMap::from([
            ("cpu".to_string(), self.cpu.clone()),
            ("memory".to_string(), self.memory.clone()),
            ("pods".to_string(), PODS_PER_NODE.to_string()),
        ]);
        if self.gpus > 0 {
            allocatable.insert("nvidia.com/gpu".to_string(), self.gpus.to_string());
        }
        let node = |index| HollowNode {
            name: format!("{cluster}-node-{index}"),
            allocatable: allocatable.clone(),
            labels: self.labels.clone(),
            taints: self.taints.clone(),
        };
        (0..self.count).map(node).collect()
    }
}

/// How the hollow part of one member runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the cluster: what `sim.fleet.dev/fail-on` names.
    pub cluster: String,
    pub nodes: Vec<HollowNode>,
    /// Run time of a job's pod without an annotation.
    pub default_run_time: RunTime,
    /// Period of node leases; `None` writes no heartbeats.
    pub heartbeat: Option<Duration>,
    /// Writes in flight at once.
    pub concurrency: usize,
    /// Pods that are deleted use their whole grace period; otherwise they end at once.
    pub lingering: bool,
    /// Pods that request more than their node has left are refused, as by a real kubelet.
    pub admission: bool,
    pub clock: Clock,
    /// Survives a restart of the kubelets.
    pub containers: Containers,
}

impl Options {
    /// Equal nodes named `<cluster>-node-<index>`.
    pub fn new(cluster: impl Into<String>, nodes: NodeSpec, default_run_time: RunTime) -> Self {
        let cluster = cluster.into();
        let nodes = nodes.nodes(&cluster);
        Self::with_nodes(cluster, nodes, default_run_time)
    }

    pub fn with_nodes(cluster: impl Into<String>, nodes: Vec<HollowNode>, default_run_time: RunTime) -> Self {
        Self {
            cluster: cluster.into(),
            nodes,
            default_run_time,
            heartbeat: Some(DEFAULT_HEARTBEAT),
            concurrency: DEFAULT_CONCURRENCY,
            lingering: false,
            admission: false,
            clock: Clock::default(),
            containers: Containers::default(),
        }
    }
}

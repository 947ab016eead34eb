//! Hollow nodes and their kubelets for one member.
//!
//! Inputs: a client of the member, the nodes to stand up, a default run time. Pods bound to these nodes
//! become Running, then Succeeded or Failed by the rules of [`crate::run_plan`]. All state is in the API
//! objects, so a restart goes on where it was. Deliberately absent: binding pods to nodes, images,
//! volumes, logs, probes.

mod kubelet;
mod nodes;
mod owners;
pub(crate) mod pod;
pub(crate) mod status;
pub(crate) mod timers;

pub(crate) use kubelet::sleep_until;
pub(crate) use nodes::node;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::run_plan::RunTime;

/// Field manager of everything hollow kubelets write.
pub const FIELD_MANAGER: &str = "hollow-kubelet";
/// Pods a node holds, as kubelets have it by default.
const PODS_PER_NODE: i64 = 110;
/// Writes in flight at once per member; above this the server only queues them.
const DEFAULT_CONCURRENCY: usize = 64;
/// A heartbeat nobody acts on inside one process; slow, so that an idle fleet stays idle.
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// How the hollow part of one member runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the cluster: the prefix of its nodes and what `sim.fleet.dev/fail-on` names.
    pub cluster: String,
    pub nodes: NodeSpec,
    /// Run time of a job's pod that no annotation speaks for.
    pub default_run_time: RunTime,
    /// Period of node leases; `None` writes no heartbeats.
    pub heartbeat: Option<Duration>,
    /// Writes in flight at once.
    pub concurrency: usize,
    pub clock: Clock,
}

impl Options {
    pub fn new(cluster: impl Into<String>, nodes: NodeSpec, default_run_time: RunTime) -> Self {
        Self {
            cluster: cluster.into(),
            nodes,
            default_run_time,
            heartbeat: Some(DEFAULT_HEARTBEAT),
            concurrency: DEFAULT_CONCURRENCY,
            clock: Clock::default(),
        }
    }

    /// Name of node `index`, from 0.
    pub fn node_name(&self, index: usize) -> String {
        format!("{}-node-{index}", self.cluster)
    }
}

/// Stands up the nodes and runs their kubelets until `shutdown` is cancelled.
///
/// # Errors
/// Only when a node cannot be written at all; a server that is away later is waited for.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    let ready = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        ready = nodes::ensure(&client, &options) => ready,
    };
    ready?;
    tokio::join!(nodes::heartbeats(&client, &options, &shutdown), kubelet::run(&client, &options, &shutdown),);
    Ok(())
}

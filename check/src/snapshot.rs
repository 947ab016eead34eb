//! A fleet at one moment: what the invariants need, and lines to show when something else fails.

use std::{collections::BTreeMap, fmt};

use fleet_resources::Resources;
use serde_json::Value;

use super::{facts::Pod, quota::Quota};

/// Hub and members, listed one after the other: true for a fleet at rest.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub bindings: Vec<Value>,
    pub works: Vec<Value>,
    pub units: Vec<Value>,
    pub clusters: Vec<Value>,
    /// Reservations with the cluster they are for: those of the hub, and the members' copies.
    pub holds: Vec<(String, Value)>,
    /// The tree that counts.
    pub quota: Option<Quota>,
    /// The same as the hub has it, with what it says is used.
    pub tree: Option<Value>,
    /// Jobs and Deployments on the hub.
    pub jobs: Vec<Value>,
    pub pods: Vec<Pod>,
    /// Allocatable amounts by cluster and node.
    pub nodes: BTreeMap<(String, String), Resources>,
    /// Jobs and Deployments in the members, with their cluster.
    pub runs: Vec<(String, Value)>,
    /// What stands between a Deployment and its pods.
    pub replica_sets: Vec<(String, Value)>,
    /// Virtual clusters of the hub.
    pub virtual_clusters: Vec<Value>,
    /// Warnings of the hub, for the eye.
    pub warnings: Vec<Value>,
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn namespace_of(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or("default")
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = |object: &Value| format!("{}/{}", namespace_of(object), name_of(object));
        let conditions = |object: &Value| {
            let list = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            let say = |c: &Value| format!("{}={} {} ({})", c["type"], c["status"], c["reason"], c["message"]);
            list.iter().map(say).collect::<Vec<_>>().join("; ").replace('"', "")
        };
        for cluster in &self.clusters {
            writeln!(f, "cluster {}: {}", name_of(cluster), conditions(cluster))?;
        }
        for binding in &self.bindings {
            let spec = &binding["spec"];
            writeln!(
                f,
                "binding {} epoch {} to {}: {} result {} attempts {}",
                meta(binding),
                spec["epoch"],
                spec["clusters"],
                conditions(binding),
                binding["status"]["result"],
                binding["status"]["attempts"],
            )?;
        }
        for unit in &self.units {
            writeln!(f, "unit {}: {}", meta(unit), unit["status"])?;
        }
        for work in &self.works {
            let (epoch, deleting) = (&work["spec"]["epoch"], &work["metadata"]["deletionTimestamp"]);
            writeln!(f, "work {} epoch {epoch} deleting {deleting}: {}", meta(work), conditions(work))?;
        }
        for (cluster, hold) in &self.holds {
            writeln!(f, "hold {} for {cluster}: {}", meta(hold), hold["status"])?;
        }
        for vc in &self.virtual_clusters {
            writeln!(f, "virtual cluster {}: {}", name_of(vc), vc["status"])?;
        }
        for pod in &self.pods {
            let node = pod.node.as_deref().unwrap_or("-");
            let leaves = if pod.leaves { ", terminating" } else { "" };
            writeln!(f, "pod {}/{} of {}: {}{leaves} on {node}", pod.cluster, pod.name, pod.job, pod.phase)?;
        }
        for event in &self.warnings {
            writeln!(
                f,
                "warning {} {}: {}",
                event["involvedObject"]["name"], event["reason"], event["message"]
            )?;
        }
        Ok(())
    }
}

//! A fleet at one moment: what the invariants need, and lines to show when something else fails.

use std::{collections::BTreeMap, fmt};

use fleet_api::names;
use fleet_resources::Resources;
use kube::Client;
use serde_json::Value;

use super::facts::{Pod, Quota, amounts};
use crate::objects::{self, list};

/// Hub and members, listed one after the other: true for a fleet at rest.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub bindings: Vec<Value>,
    pub works: Vec<Value>,
    pub units: Vec<Value>,
    pub clusters: Vec<Value>,
    /// Reservations with the cluster they are for: those of the hub, and the members' copies.
    pub holds: Vec<(String, Value)>,
    pub quota: Option<Quota>,
    pub pods: Vec<Pod>,
    /// Allocatable amounts by cluster and node.
    pub nodes: BTreeMap<(String, String), Resources>,
    /// Warnings of the hub, for the eye.
    pub warnings: Vec<Value>,
}

impl Snapshot {
    /// Lists everything.
    ///
    /// # Errors
    /// A server does not answer.
    pub async fn take(hub: &Client, members: &BTreeMap<String, Client>) -> anyhow::Result<Self> {
        let mut snapshot = Self {
            bindings: list(hub, objects::BINDING).await?,
            works: list(hub, objects::WORK).await?,
            units: list(hub, objects::QUEUE_UNIT).await?,
            clusters: list(hub, objects::CLUSTER).await?,
            ..Self::default()
        };
        for hold in list(hub, objects::RESERVATION).await? {
            let namespace = objects::namespace_of(&hold).to_string();
            let cluster = namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(&namespace);
            snapshot.holds.push((cluster.to_string(), hold));
        }
        // The oldest tree counts.
        let mut trees = list(hub, objects::QUOTA_TREE).await?;
        trees.sort_by_key(|tree| {
            (tree["metadata"]["creationTimestamp"].to_string(), objects::name_of(tree).to_string())
        });
        snapshot.quota = trees.first().map(|tree| Quota::read(&tree["spec"]));
        snapshot.warnings = list(hub, objects::EVENT).await?;
        snapshot.warnings.retain(|event| event["type"] == "Warning");
        for (cluster, client) in members {
            for node in list(client, objects::NODE).await? {
                let name = objects::name_of(&node).to_string();
                snapshot.nodes.insert((cluster.clone(), name), amounts(&node["status"]["allocatable"]));
            }
            let pods = list(client, objects::POD).await?;
            snapshot.pods.extend(pods.iter().map(|pod| Pod::read(cluster, pod)));
            let copies = list(client, objects::RESERVATION).await?;
            snapshot.holds.extend(copies.into_iter().map(|hold| (cluster.clone(), hold)));
        }
        Ok(snapshot)
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = |object: &Value| format!("{}/{}", objects::namespace_of(object), objects::name_of(object));
        let conditions = |object: &Value| {
            let list = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            let say = |c: &Value| format!("{}={} {} ({})", c["type"], c["status"], c["reason"], c["message"]);
            list.iter().map(say).collect::<Vec<_>>().join("; ").replace('"', "")
        };
        for cluster in &self.clusters {
            writeln!(f, "cluster {}: {}", objects::name_of(cluster), conditions(cluster))?;
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
        for pod in &self.pods {
            let node = pod.node.as_deref().unwrap_or("-");
            writeln!(f, "pod {}/{} of {}: {} on {node}", pod.cluster, pod.name, pod.job, pod.phase)?;
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

//! Lists what a snapshot is made of, through any API servers.

use std::collections::BTreeMap;

use fleet_api::names;
use kube::{
    Api, Client,
    api::{ApiResource, ListParams},
};
use serde_json::Value;

use super::{Plain, Snapshot, facts::Pod, quota::Quota, requests::amounts};

type Kind = (&'static str, &'static str, &'static str);

const FLEET: &str = "fleet.dev/v1alpha1";
const BINDING: Kind = (FLEET, "ResourceBinding", "resourcebindings");
const WORK: Kind = (FLEET, "Work", "works");
const RESERVATION: Kind = (FLEET, "Reservation", "reservations");
const CLUSTER: Kind = (FLEET, "Cluster", "clusters");
const VIRTUAL_CLUSTER: Kind = (FLEET, "VirtualCluster", "virtualclusters");
const QUEUE_UNIT: Kind = ("scheduling.x-k8s.io/v1alpha1", "QueueUnit", "queueunits");
const QUOTA_TREE: Kind = ("scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree", "elasticquotatrees");
const EVENT: Kind = ("v1", "Event", "events");
const NODE: Kind = ("v1", "Node", "nodes");
const POD: Kind = ("v1", "Pod", "pods");
const REPLICA_SET: Kind = ("apps/v1", "ReplicaSet", "replicasets");
/// Kinds that have pods, on the hub and in members.
const RUNS: [Kind; 6] = [
    ("kubeflow.org/v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org/v1", "TFJob", "tfjobs"),
    ("kubeflow.org/v2beta1", "MPIJob", "mpijobs"),
    ("batch.volcano.sh/v1alpha1", "Job", "jobs"),
    ("batch/v1", "Job", "jobs"),
    ("apps/v1", "Deployment", "deployments"),
];

impl Snapshot {
    /// Lists everything of the hub and of those members.
    ///
    /// # Errors
    /// A server does not answer.
    pub async fn take(hub: &Client, members: &BTreeMap<String, Client>) -> kube::Result<Self> {
        let mut snapshot = Self {
            bindings: list(hub, BINDING).await?,
            works: list(hub, WORK).await?,
            units: list(hub, QUEUE_UNIT).await?,
            clusters: list(hub, CLUSTER).await?,
            virtual_clusters: list(hub, VIRTUAL_CLUSTER).await?,
            ..Self::default()
        };
        for hold in list(hub, RESERVATION).await? {
            let namespace = hold["metadata"]["namespace"].as_str().unwrap_or_default();
            let cluster = namespace.strip_prefix(names::CLUSTER_NAMESPACE_PREFIX).unwrap_or(namespace);
            snapshot.holds.push((cluster.to_string(), hold));
        }
        if let Some((tree, spec)) = in_force(list(hub, QUOTA_TREE).await?) {
            snapshot.quota = Some(Quota::read(&spec));
            snapshot.tree = Some(tree);
        }
        for kind in RUNS {
            snapshot.jobs.extend(list(hub, kind).await?);
        }
        snapshot.warnings = list(hub, EVENT).await?;
        snapshot.warnings.retain(|event| event["type"] == "Warning");
        for (cluster, client) in members {
            for node in list(client, NODE).await? {
                let name = node["metadata"]["name"].as_str().unwrap_or_default().to_string();
                snapshot.nodes.insert((cluster.clone(), name), amounts(&node["status"]["allocatable"]));
            }
            let pods = list(client, POD).await?;
            snapshot.pods.extend(pods.iter().map(|pod| Pod::read(cluster, pod)));
            let copies = list(client, RESERVATION).await?;
            snapshot.holds.extend(copies.into_iter().map(|hold| (cluster.clone(), hold)));
            for kind in RUNS {
                let runs = list(client, kind).await?;
                snapshot.runs.extend(runs.into_iter().map(|run| (cluster.clone(), run)));
            }
            let sets = list(client, REPLICA_SET).await?;
            snapshot.replica_sets.extend(sets.into_iter().map(|set| (cluster.clone(), set)));
        }
        Ok(snapshot)
    }
}

/// The tree that counts and the spec by which jobs are admitted: of trees, the oldest first, the first whose status keeps
/// one in force, else the first that is not called invalid.
fn in_force(mut trees: Vec<Value>) -> Option<(Value, Value)> {
    trees.sort_by_key(|tree| {
        (tree["metadata"]["creationTimestamp"].to_string(), tree["metadata"]["name"].to_string())
    });
    if let Some(kept) = trees.iter().find(|tree| tree["status"]["inForce"].is_object()) {
        return Some((kept.clone(), kept["status"]["inForce"].clone()));
    }
    let is_refused = |tree: &Value| {
        let conditions = tree["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|c| c["type"] == "Valid" && c["status"] == "False")
    };
    let usable = trees.into_iter().find(|tree| !is_refused(tree))?;
    let spec = usable["spec"].clone();
    Some((usable, spec))
}

/// All objects of a kind, with their kind; a server that does not know it has none.
async fn list(client: &Client, (api_version, kind, plural): Kind) -> kube::Result<Vec<Value>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource {
        group: group.to_string(),
        version: version.to_string(),
        api_version: api_version.to_string(),
        kind: kind.to_string(),
        plural: plural.to_string(),
    };
    let api = Api::<Plain>::all_with(client.clone(), &resource);
    let listed = match api.list(&ListParams::default()).await {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(listed.items.into_iter().map(|object| object.of_kind(api_version, kind)).collect())
}

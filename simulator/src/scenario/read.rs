//! From the document to the scenario.

use std::collections::BTreeSet;

use fleet_api::{names, yaml};
use fleet_resources::constraints::{Taint, TaintEffect};
use serde_json::json;

use super::{
    defaults,
    error::ScenarioError,
    fields::{Field, Fields, Read},
    job,
    model::{
        Action, ClusterSpec, DEFAULT_PODS, Event, MAX_NODES, Manifest, Mode, NodePool, ObjectName, Process,
        Scenario,
    },
    tree,
};

const DOCUMENT: &str = "a map with clusters, objects, events, and perhaps seed, until, mode";
/// Pools of one cluster, clusters of one file.
const MAX_LISTED: usize = 10_000;
/// Kinds without a namespace that a scenario may apply.
const CLUSTER_SCOPED: [&str; 8] = [
    "ClusterPropagationPolicy",
    "ClusterOverridePolicy",
    "PriorityClass",
    "Namespace",
    "Cluster",
    "Node",
    "CellConfiguration",
    "VirtualCluster",
];

pub(super) fn scenario(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let document = document(file, text)?;
    let mut fields = Field::top(file, &document).map(DOCUMENT)?;
    let seed = fields.take("seed").map(|f| f.whole(0, i64::MAX)).transpose()?.unwrap_or(1);
    let until = fields.take("until").map(|f| f.duration()).transpose()?;
    let mode = match fields.take("mode") {
        None => Mode::Fast,
        Some(field) => match field.scalar("fast or whole")?.as_str() {
            "fast" => Mode::Fast,
            "whole" => Mode::Whole,
            _ => return field.refuse("fast or whole"),
        },
    };
    let clusters = clusters(&mut fields)?;
    let mut objects = Vec::new();
    if let Some(field) = fields.take("objects") {
        for item in field.list("a list of Kubernetes objects")? {
            objects.push(manifest(&item)?);
        }
    }
    let mut events = Vec::new();
    if let Some(field) = fields.take("events") {
        for item in field.list("a list of events")? {
            events.push(event(&item, &clusters)?);
        }
    }
    fields.end()?;
    events.sort_by_key(|event| event.at);
    let mut scenario = Scenario {
        file: file.to_string(),
        seed: seed.unsigned_abs(),
        until,
        mode,
        clusters,
        objects,
        events,
    };
    defaults::fill(&mut scenario);
    Ok(scenario)
}

pub(super) fn clusters_only(file: &str, text: &str) -> Result<Vec<ClusterSpec>, ScenarioError> {
    let document = document(file, text)?;
    let mut fields = Field::top(file, &document).map("a map with clusters")?;
    let clusters = clusters(&mut fields)?;
    fields.end()?;
    Ok(clusters)
}

fn document(file: &str, text: &str) -> Result<yaml::Located, ScenarioError> {
    yaml::read_located(text).map_err(|(line, found)| ScenarioError {
        file: file.to_string(),
        line,
        field: "the document".to_string(),
        found,
        allowed: "one YAML document".to_string(),
    })
}

fn clusters(fields: &mut Fields<'_>) -> Read<Vec<ClusterSpec>> {
    let field = fields.need("clusters", "a list of one cluster or more")?;
    let items = field.list("a list of one cluster or more")?;
    if items.is_empty() || items.len() > MAX_LISTED {
        return field.refuse(format!("a list of 1 to {MAX_LISTED} clusters"));
    }
    let mut clusters: Vec<ClusterSpec> = Vec::new();
    let mut names = BTreeSet::new();
    let mut nodes = 0usize;
    for item in items {
        let cluster = cluster(&item)?;
        if !names.insert(cluster.name.clone()) {
            return Err(item.wrong(format!("a second cluster {:?}", cluster.name), "each name once"));
        }
        nodes = cluster.node_pools.iter().fold(nodes, |sum, pool| sum.saturating_add(pool.count));
        if nodes > MAX_NODES {
            return Err(item.wrong(format!("{nodes} nodes so far"), format!("at most {MAX_NODES} in all")));
        }
        clusters.push(cluster);
    }
    Ok(clusters)
}

fn cluster(field: &Field<'_>) -> Read<ClusterSpec> {
    let mut fields = field.map("a map with name and nodePools")?;
    let name = fields.need("name", "the cluster's name")?.name()?;
    let labels = fields.take("labels").map(|f| f.texts("a map of labels")).transpose()?.unwrap_or_default();
    let mut own = |name: &'static str| -> Read<Option<String>> {
        let written = fields.take(name).map(|f| f.text("a text")).transpose()?;
        Ok(written.or_else(|| labels.get(name).cloned()))
    };
    let (provider, region) = (own("provider")?, own("region")?);
    let zones = match fields.take("zones") {
        Some(field) => field
            .list("a list of zone names")?
            .iter()
            .map(|zone| zone.text("a zone name"))
            .collect::<Read<Vec<_>>>()?,
        None => labels
            .get("zones")
            .map(|zones| zones.split(',').map(|zone| zone.trim().to_string()).collect())
            .unwrap_or_default(),
    };
    let reservation = fields.take("reservation").map(|f| f.truth()).transpose()?.unwrap_or(true);
    let pools = fields.need("nodePools", "a list of node pools")?;
    let mut node_pools: Vec<NodePool> = Vec::new();
    for item in pools.list("a list of node pools")? {
        let pool = node_pool(&item)?;
        if node_pools.iter().any(|known| known.name == pool.name) {
            return Err(item.wrong(format!("a second pool {:?}", pool.name), "each name once in a cluster"));
        }
        node_pools.push(pool);
    }
    fields.end()?;
    Ok(ClusterSpec { name, labels, provider, region, zones, reservation, node_pools })
}

fn node_pool(field: &Field<'_>) -> Read<NodePool> {
    let mut fields = field.map("a map with name, count and allocatable")?;
    let name = fields.need("name", "the pool's name; its nodes are <name>-0, <name>-1, ...")?.name()?;
    let count = fields.take("count").map(|f| f.whole(0, MAX_NODES as i64)).transpose()?.unwrap_or(1);
    let field = fields.need("allocatable", "what one node has, such as {cpu: 64, nvidia.com/gpu: 8}")?;
    let mut allocatable = field.quantities()?;
    // A node for no pods is written as no node.
    let pods = allocatable.get("pods").and_then(|text| fleet_resources::quantity::parse("pods", text).ok());
    if let Some(("pods", field)) = field.entries("")?.into_iter().find(|(name, _)| *name == "pods")
        && pods == Some(0)
    {
        return field.refuse(format!("1 or more; without it, {DEFAULT_PODS}; or count: 0"));
    }
    allocatable.entry("pods".to_string()).or_insert_with(|| DEFAULT_PODS.to_string());
    let labels = fields.take("labels").map(|f| f.texts("a map of labels")).transpose()?.unwrap_or_default();
    let taints = match fields.take("taints") {
        Some(field) => field.list("a list of taints")?.iter().map(taint).collect::<Read<Vec<_>>>()?,
        None => Vec::new(),
    };
    fields.end()?;
    // Bounded by MAX_NODES above.
    Ok(NodePool { name, count: count.unsigned_abs() as usize, allocatable, labels, taints })
}

fn taint(field: &Field<'_>) -> Read<Taint> {
    let mut fields = field.map("a taint: {key, value, effect}")?;
    let key = fields.need("key", "the taint's key")?.text("the taint's key")?;
    let value = fields.take("value").map(|f| f.scalar("a text")).transpose()?.unwrap_or_default();
    const EFFECTS: &str = "NoSchedule, NoExecute or PreferNoSchedule";
    let effect = fields.need("effect", EFFECTS)?;
    let effect = match effect.scalar(EFFECTS)?.as_str() {
        "NoSchedule" => TaintEffect::NoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        _ => return effect.refuse(EFFECTS),
    };
    fields.end()?;
    Ok(Taint { key, value, effect })
}

/// Reads an object as far as every object is alike.
pub(super) fn manifest(field: &Field<'_>) -> Read<Manifest> {
    let mut fields = field.map("a Kubernetes object with apiVersion, kind and metadata.name")?;
    let api_version =
        fields.need("apiVersion", "the object's API version")?.text("the object's API version")?;
    let kind = fields.need("kind", "the object's kind")?.text("the object's kind")?;
    let mut metadata = fields.need("metadata", "a map with name")?.map("a map with name")?;
    let name = metadata.need("name", "the object's name")?.text("the object's name")?;
    let namespace = match metadata.take("namespace") {
        Some(field) => field.name()?,
        None => default_namespace(&kind).to_string(),
    };
    let mut value = field.json();
    if !namespace.is_empty() {
        value["metadata"]["namespace"] = json!(namespace);
    }
    if let Some(field) = fields.take("spec") {
        let mut spec = field.map("a map")?;
        if let Some(root) = spec.take("root").filter(|_| kind == "ElasticQuotaTree") {
            tree::check(&root)?;
        }
    }
    Ok(Manifest { line: field.at.line, api_version, kind, namespace, name, value, is_new: false })
}

fn default_namespace(kind: &str) -> &'static str {
    match kind {
        "ElasticQuotaTree" => names::QUOTA_NAMESPACE,
        "Queue" => names::QUEUE_NAMESPACE,
        _ if CLUSTER_SCOPED.contains(&kind) => "",
        _ => "default",
    }
}

const EVENT: &str = "at and one of job, edit, apply, delete, node, partition, heal, credentials, crash";

fn event(field: &Field<'_>, clusters: &[ClusterSpec]) -> Read<Event> {
    let mut fields = field.map(EVENT)?;
    let at = fields.need("at", "the time of the event, such as 90s")?.duration()?;
    let mut found: Vec<(&'static str, Field<'_>)> = Vec::new();
    for name in ["job", "edit", "apply", "delete", "node", "partition", "heal", "credentials", "crash"] {
        found.extend(fields.take(name).map(|field| (name, field)));
    }
    let [(name, of)] = found.as_slice() else {
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        let found = if names.is_empty() { "none of them".to_string() } else { names.join(" and ") };
        fields.end()?;
        return Err(field.wrong(found, EVENT));
    };
    let inside = fields.take("cluster").map(|field| known_cluster(&field, clusters)).transpose()?;
    let action = match (*name, inside) {
        ("apply", Some(cluster)) => Action::ApplyInMember { cluster, manifest: manifest(of)? },
        ("delete", Some(cluster)) => Action::DeleteInMember { cluster, name: delete(of)? },
        (name, Some(_)) => {
            return Err(field.wrong(format!("cluster beside {name}"), "cluster beside apply or delete"));
        }
        (name, None) => on_the_hub(name, of, clusters)?,
    };
    fields.end()?;
    Ok(Event { at, line: field.at.line, action })
}

fn on_the_hub(name: &str, of: &Field<'_>, clusters: &[ClusterSpec]) -> Read<Action> {
    Ok(match name {
        "job" => Action::Apply(job::manifest(of, clusters)?),
        "edit" => Action::Apply(Manifest { is_new: false, ..job::manifest(of, clusters)? }),
        "apply" => Action::Apply(manifest(of)?),
        "delete" => Action::Delete(delete(of)?),
        "credentials" => {
            let mut fields = of.map("a map with cluster and valid")?;
            let cluster = known_cluster(&fields.need("cluster", "a cluster of this file")?, clusters)?;
            let valid = fields.need("valid", "true or false")?.truth()?;
            fields.end()?;
            Action::Credentials { cluster, valid }
        }
        "node" => node(of, clusters)?,
        "crash" => crash(of, clusters)?,
        name => {
            let mut fields = of.map("a map with cluster")?;
            let cluster = known_cluster(&fields.need("cluster", "a cluster of this file")?, clusters)?;
            fields.end()?;
            if name == "heal" { Action::Heal { cluster } } else { Action::Partition { cluster } }
        }
    })
}

fn delete(field: &Field<'_>) -> Read<ObjectName> {
    let mut fields = field.map("a map with kind and name")?;
    let kind = fields.need("kind", "the object's kind")?.text("the object's kind")?;
    let api_version = fields.take("apiVersion").map(|f| f.text("an API version")).transpose()?;
    let name = fields.need("name", "the object's name")?.text("the object's name")?;
    let namespace = match fields.take("namespace") {
        Some(field) => field.name()?,
        None => default_namespace(&kind).to_string(),
    };
    fields.end()?;
    Ok(ObjectName { api_version, kind, namespace, name })
}

fn node(field: &Field<'_>, clusters: &[ClusterSpec]) -> Read<Action> {
    let mut fields = field.map("a map with cluster, name and ready")?;
    let cluster = known_cluster(&fields.need("cluster", "a cluster of this file")?, clusters)?;
    let name = fields.need("name", "a node of the cluster")?;
    let pools = clusters.iter().find(|known| known.name == cluster).map_or(&[][..], |c| &c.node_pools);
    let written = name.text("a node of the cluster")?;
    let known = pools.iter().any(|pool| {
        written
            .strip_prefix(pool.name.as_str())
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|index| index.parse::<usize>().ok().filter(|i| i.to_string() == index))
            .is_some_and(|index| index < pool.count)
    });
    if !known {
        let allowed: Vec<String> = pools
            .iter()
            .filter(|pool| pool.count > 0)
            .map(|pool| format!("{} to {}", pool.node_name(0), pool.node_name(pool.count - 1)))
            .collect();
        let none = format!("nothing: {cluster} has no nodes");
        return name.refuse(if allowed.is_empty() { none } else { allowed.join(", ") });
    }
    let ready = fields.need("ready", "true or false")?.truth()?;
    fields.end()?;
    Ok(Action::Node { cluster, name: written, ready })
}

fn crash(field: &Field<'_>, clusters: &[ClusterSpec]) -> Read<Action> {
    let mut fields = field.map("a map with process, perhaps cluster and restartAfter")?;
    let process = fields.need("process", "hub or agent")?;
    let restart_after = fields.take("restartAfter").map(|f| f.duration()).transpose()?;
    let cluster = fields.take("cluster");
    let process = match (process.scalar("hub or agent")?.as_str(), cluster) {
        ("hub", None) => Process::Hub,
        ("hub", Some(field)) => return field.refuse("nothing: there is one hub"),
        ("agent", Some(field)) => Process::Agent { cluster: known_cluster(&field, clusters)? },
        ("agent", None) => return Err(fields.missing("cluster", "the cluster whose agent crashes")),
        _ => return process.refuse("hub or agent"),
    };
    fields.end()?;
    Ok(Action::Crash { process, restart_after })
}

/// The name of a cluster of the file.
pub(super) fn known_cluster(field: &Field<'_>, clusters: &[ClusterSpec]) -> Read<String> {
    let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    let name = field.text(&names.join(", "))?;
    if names.contains(&name.as_str()) { Ok(name) } else { field.refuse(names.join(", ")) }
}

//! Creation, update and deletion of the VirtualCluster objects, and their statuses.

use std::collections::BTreeMap;

use fleet_api::{
    VirtualCluster,
    cells::{
        VcAccess,
        read::object_name,
        status::{JobCounts, status},
    },
    names,
    patch::merge_diff,
};
use fleet_cells::config;
use kube_core::ResourceExt;
use serde_json::{Value, json};

use super::{API, InForce, uses::Uses};
use crate::{
    world::World,
    writes::{Target, Verb, Write},
};

/// Most bad nodes that a status names; the limit of its list.
const MAX_BAD_NODES: usize = 10_000;

/// Creates a VirtualCluster for each virtual cluster of the configuration in force, and deletes others.
pub fn plan_objects(world: &World, in_force: Option<&InForce>) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut wanted: BTreeMap<String, (Value, Option<&VcAccess>)> = BTreeMap::new();
    for (in_force, (name, vc)) in in_force
        .iter()
        .flat_map(|known| known.valid.config.virtual_clusters.iter().map(move |vc| (known, vc)))
    {
        let access = in_force.valid.access.get(name);
        wanted.insert(object_name(name), (spec(name, vc, &in_force.name, access), access));
    }
    for ((_, name), object) in world.virtual_clusters.iter() {
        let is_going = object.metadata.deletion_timestamp.is_some();
        let Some((spec, access)) = wanted.remove(name) else {
            if !is_going {
                let uid = object.uid().unwrap_or_default();
                writes.push(Write::new(Target::VirtualCluster, "", name, Verb::Delete { uid }));
            }
            continue;
        };
        let mut body = gate_patch(object, access);
        if let Some(patch) = merge_diff(&json!(object.spec), &spec) {
            body["spec"] = patch;
        }
        if !is_going && body != json!({}) {
            writes.push(Write::new(Target::VirtualCluster, "", name, Verb::Merge(body)));
        }
    }
    writes.extend(wanted.into_iter().map(|(name, (spec, access))| {
        let mut body =
            json!({"apiVersion": API, "kind": "VirtualCluster", "metadata": {"name": name}, "spec": spec});
        if let Some(subjects) = access.and_then(VcAccess::subjects) {
            body["metadata"]["labels"] = json!({names::RESTRICTED_LABEL: "true"});
            body["metadata"]["annotations"] = json!({names::SUBMITTERS_ANNOTATION: subjects});
        }
        Write::new(Target::VirtualCluster, "", &name, Verb::Create(body))
    }));
    writes
}

fn spec(name: &str, vc: &config::VirtualCluster, configuration: &str, access: Option<&VcAccess>) -> Value {
    let mut spec = json!(vc);
    spec["name"] = json!(name);
    spec["configuration"] = json!(configuration);
    if let Some(access) = access {
        spec["access"] = json!(access);
    }
    spec
}

/// Patch of the submitters for the hub's admission policy, if the object differs.
fn gate_patch(object: &VirtualCluster, access: Option<&VcAccess>) -> Value {
    let subjects = access.and_then(VcAccess::subjects);
    let is_marked = object.labels().get(names::RESTRICTED_LABEL).is_some_and(|mark| mark == "true");
    if is_marked == subjects.is_some()
        && object.annotations().get(names::SUBMITTERS_ANNOTATION) == subjects.as_ref()
    {
        return json!({});
    }
    let mark = subjects.as_ref().map(|_| "true");
    json!({"metadata": {
        "labels": {names::RESTRICTED_LABEL: mark},
        "annotations": {names::SUBMITTERS_ANNOTATION: subjects},
    }})
}

/// Status updates of VirtualClusters whose use changed.
pub fn plan_statuses(world: &World, in_force: Option<&InForce>, uses: Option<&Uses>) -> Vec<Write> {
    let Some(in_force) = in_force else { return Vec::new() };
    let nobody: BTreeMap<i32, JobCounts> = BTreeMap::new();
    let mut writes: Vec<Write> =
        uses.and_then(|uses| plan_bad_nodes(world, in_force, uses)).into_iter().collect();
    for (vc, idle) in in_force.idle() {
        let name = object_name(vc);
        let Some(object) = world.virtual_clusters.get(&(String::new(), name.clone())) else { continue };
        let usage = uses.and_then(|uses| uses.virtual_clusters.get(vc));
        let (cells, jobs) = usage.map_or((idle, &nobody), |usage| (&usage.cells, &usage.jobs));
        let desired = json!(status(&in_force.valid.config, cells, jobs));
        let known = object.status.as_ref().map_or(Value::Null, |status| json!(status));
        if let Some(patch) = merge_diff(&known, &desired) {
            let body = json!({"status": patch});
            writes.push(Write::new(Target::VirtualCluster, "", &name, Verb::MergeStatus(body)));
        }
    }
    writes
}

/// The bad nodes in the status of the configuration in force.
fn plan_bad_nodes(world: &World, in_force: &InForce, uses: &Uses) -> Option<Write> {
    let object = world.cell_configurations.get(&(String::new(), in_force.name.clone()))?;
    let bad: Vec<String> = uses.bad_nodes.iter().take(MAX_BAD_NODES).map(ToString::to_string).collect();
    if object.status.as_ref().map_or(&[][..], |status| &status.bad_nodes) == bad {
        return None;
    }
    let body = json!({"status": {"badNodes": bad}});
    Some(Write::new(Target::CellConfiguration, "", &in_force.name, Verb::MergeStatus(body)))
}

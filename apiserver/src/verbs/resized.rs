//! What the node of a pod says to its resize: the plugins for declared features and for the room of a node.
//!
//! Inputs: a pod before and after, valid for itself. Absent on purpose: pods without a node, which fit anywhere.

use fleet_apiserver_admission::call::Call;
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds::pods::amounts;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use serde_json::Value;

/// Refuses a resize that the node of the pod cannot do, or has no room for.
///
/// # Errors
/// 403 with what the node lacks.
pub fn check(call: &Call, old: &Value, new: &Value) -> ApiResult<()> {
    let name = tree::text(new, &["spec", "nodeName"]);
    if name.is_empty() || old.get("spec") == new.get("spec") {
        return Ok(());
    }
    let refused = |why: String| ApiError::forbidden(call.resource(), &call.name, &why);
    let Some(node) = call.core.store.table("/nodes").get(name) else {
        return Err(refused(format!("node {name:?} not found")));
    };
    let missing = missing_features(&node, old, new);
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(refused(format!(
            "pod update requires features {missing} which are not available on node {name:?}"
        )));
    }
    let system = node.text(&["metadata", "labels", "kubernetes.io/os"]);
    if !matches!(system.as_str(), "" | "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return Err(refused(why).with_cause(Cause::new("UnsupportedPlatform", "", "")));
    }
    let lacks: Vec<String> = ["cpu", "memory"].into_iter().filter_map(|r| lacks(&node, new, r)).collect();
    if lacks.is_empty() {
        return Ok(());
    }
    let why = format!("node didn't have enough allocatable resources: {}", lacks.join("; "));
    Err(refused(why).with_cause(Cause::new("NodeCapacity", "", "")))
}

/// Features that a resize needs and the node does not declare.
fn missing_features(node: &Obj, old: &Value, new: &Value) -> Vec<&'static str> {
    let whole = tree::at(old, &["spec", "resources"]) != tree::at(new, &["spec", "resources"]);
    let pairs =
        tree::list(old, &["spec", "initContainers"]).iter().zip(tree::list(new, &["spec", "initContainers"]));
    let mut init = pairs.filter(|(before, _)| tree::text(before, &["restartPolicy"]) != "Always");
    let init = init.any(|(before, now)| before.get("resources") != now.get("resources"));
    let needed = [
        (whole, "InPlacePodLevelResourcesVerticalScaling"),
        (init, "InPlacePodVerticalScalingInitContainers"),
    ];
    let declared = node.list(&["status", "declaredFeatures"]);
    let missing = |feature: &str| !declared.iter().any(|found| found.as_str() == Some(feature));
    needed
        .into_iter()
        .filter(|(needed, feature)| *needed && missing(feature))
        .map(|(_, feature)| feature)
        .collect()
}

/// What a pod requests of a resource, if the node as a whole has less of it.
fn lacks(node: &Obj, pod: &Value, resource: &str) -> Option<String> {
    let spec = pod.get("spec")?;
    let allocatable = node.text(&["status", "allocatable", resource]);
    let (requested, allocatable) = amounts::beyond(spec, resource, &allocatable)?;
    Some(format!("{resource}, requested: {requested}, allocatable: {allocatable}"))
}

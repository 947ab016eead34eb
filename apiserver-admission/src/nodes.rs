//! The plugin that restricts nodes: a node writes about itself and its pods only.
//!
//! Inputs: a write by a user of the group `system:nodes`. Absent on purpose: what it may ask for at all (see
//! `access::node`).

use crate::access::node::name_of;
use crate::call::Call;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Labels of the community that a node may give itself.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

fn is_restricted(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let within = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let community = within("kubernetes.io") || within("k8s.io");
    community
        && !OWN_LABELS.contains(&label)
        && !within("kubelet.kubernetes.io")
        && !within("node.kubernetes.io")
}

/// The restricted labels that differ between two objects.
fn changed_labels(old: Option<&Value>, new: &Value) -> Vec<String> {
    let of = |value: Option<&Value>, key: &str| {
        value.and_then(|v| tree::at(v, &["metadata", "labels", key])).cloned()
    };
    let keys = |value: Option<&Value>| {
        let map = value.and_then(|v| tree::at(v, &["metadata", "labels"])).and_then(Value::as_object);
        map.into_iter().flatten().map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    let mut all = keys(old);
    all.extend(keys(Some(new)));
    all.sort();
    all.dedup();
    all.retain(|key| is_restricted(key) && of(old, key) != of(Some(new), key));
    all
}

/// Refuses what a node writes about others. `new` is None for a delete, `old` for a new object.
///
/// # Errors
/// 403 with what the node may not write.
pub fn restrict(call: &Call, name: &str, old: Option<&Value>, new: Option<&Value>) -> ApiResult<()> {
    let r = call.resource();
    let Some(node) = name_of(&call.user).filter(|_| !r.custom && !call.core.auth.trusts(&call.user)) else {
        return Ok(());
    };
    let why = match (r.group.as_str(), r.plural.as_str()) {
        ("", "nodes") => of_node(node, name, old, new),
        ("", "pods") => of_pod(node, &call.subresource, old, new),
        _ => None,
    };
    why.map_or(Ok(()), |why| Err(ApiError::forbidden(r, name, &why)))
}

fn of_node(node: &str, name: &str, old: Option<&Value>, new: Option<&Value>) -> Option<String> {
    if name != node {
        return Some(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let new = new?;
    let labels = changed_labels(old, new);
    if !labels.is_empty() {
        let what = if old.is_some() { "modify labels" } else { "set the following labels" };
        return Some(format!("node {node:?} is not allowed to {what}: {}", labels.join(", ")));
    }
    let old = old?;
    for (path, what) in [(["spec", "taints"], "taints"), (["metadata", "ownerReferences"], "ownerReferences")]
    {
        if tree::list(old, &path) != tree::list(new, &path) {
            return Some(format!("node {node:?} is not allowed to modify {what}"));
        }
    }
    None
}

fn of_pod(node: &str, subresource: &str, old: Option<&Value>, new: Option<&Value>) -> Option<String> {
    let elsewhere = |pod: &Value| tree::text(pod, &["spec", "nodeName"]) != node;
    let itself = "with spec.nodeName set to itself";
    match (old, new) {
        (None, Some(pod)) => {
            if tree::at(pod, &["metadata", "annotations", MIRROR]).is_none() {
                return Some(format!(
                    "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
                ));
            }
            elsewhere(pod).then(|| format!("node {node:?} can only create pods {itself}"))
        }
        (Some(pod), None) => elsewhere(pod).then(|| format!("node {node:?} can only delete pods {itself}")),
        (Some(pod), Some(_)) if subresource == "status" => {
            elsewhere(pod).then(|| format!("node {node:?} can only update pod status for pods {itself}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_community_are_restricted_but_for_those_a_kubelet_sets() {
        for (label, restricted) in [
            ("foo", false),
            ("example.com/x", false),
            ("kubernetes.io/hostname", false),
            ("kubernetes.io/role", true),
            ("a.node-restriction.kubernetes.io/x", true),
            ("node-restriction.kubernetes.io/x", true),
            ("node.kubernetes.io/x", false),
            ("x.k8s.io/y", true),
        ] {
            assert_eq!(is_restricted(label), restricted, "{label}");
        }
    }
}

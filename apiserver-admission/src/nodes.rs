//! The plugin that restricts nodes: a node writes about itself and its pods only.
//!
//! Inputs: a write by a user of the group `system:nodes`. Absent on purpose: what it may ask for at all (see
//! `access::node`). Source: the plugin NodeRestriction of Kubernetes 1.36.

use crate::access::node::name_of;
use crate::access::rbac::Question;
use crate::call::{Call, Core};
use crate::certificates;
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::builtins;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

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

/// The node that a caller is, if it is restricted.
fn restricted(call: &Call) -> Option<&str> {
    name_of(&call.user).filter(|_| !call.resource().custom && !call.core.auth.trusts(&call.user))
}

/// Refuses what a node writes about others. `new` is None for a delete, `old` for a new object.
///
/// # Errors
/// 403 with what the node may not write.
pub fn restrict(call: &Call, name: &str, old: Option<&Value>, new: Option<&Value>) -> ApiResult<()> {
    let r = call.resource();
    let Some(node) = restricted(call) else { return Ok(()) };
    let like = |what: &str| {
        (name != node).then(|| format!("can only access {what} with the same name as the requesting node"))
    };
    let why = match (r.group.as_str(), r.plural.as_str()) {
        ("", "nodes") => of_node(node, name, old, new),
        ("", "pods") => of_pod(&call.core, node, &call.subresource, old, new),
        ("", "persistentvolumeclaims") => of_claim(node, &call.subresource, old, new),
        ("coordination.k8s.io", "leases") if call.namespace != LEASES => {
            Some(format!("can only access leases in the {LEASES:?} system namespace"))
        }
        ("coordination.k8s.io", "leases") => like("node lease"),
        ("storage.k8s.io", "csinodes") => like("CSINode"),
        ("resource.k8s.io", "resourceslices") => of_slice(node, old, new),
        ("certificates.k8s.io", "certificatesigningrequests") if old.is_none() => {
            new.and_then(|request| of_request(node, request))
        }
        _ => None,
    };
    why.map_or(Ok(()), |why| Err(ApiError::forbidden(r, name, &why)))
}

fn of_node(node: &str, name: &str, old: Option<&Value>, new: Option<&Value>) -> Option<String> {
    if name != node {
        return Some(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let new = new?;
    let source = |value: &Value| {
        tree::at(value, &["spec", "configSource"]).filter(|source| !source.is_null()).cloned()
    };
    let Some(old) = old else {
        if source(new).is_some() {
            return Some(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
        }
        let labels = changed_labels(None, new);
        let told =
            || format!("node {node:?} is not allowed to set the following labels: {}", labels.join(", "));
        return (!labels.is_empty()).then(told);
    };
    if source(new).is_some() && source(new) != source(old) {
        return Some(format!(
            "node {node:?} is not allowed to update configSource to a new non-nil configSource"
        ));
    }
    for (path, what) in [(["spec", "taints"], "taints"), (["metadata", "ownerReferences"], "ownerReferences")]
    {
        if tree::list(old, &path) != tree::list(new, &path) {
            return Some(format!("node {node:?} is not allowed to modify {what}"));
        }
    }
    let labels = changed_labels(Some(old), new);
    (!labels.is_empty()).then(|| format!("is not allowed to modify labels: {}", labels.join(", ")))
}

fn of_pod(
    core: &Core,
    node: &str,
    subresource: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Option<String> {
    let elsewhere = |pod: &Value| tree::text(pod, &["spec", "nodeName"]) != node;
    match (subresource, old, new) {
        ("", None, Some(pod)) => of_mirror(core, node, pod),
        ("", Some(pod), None) => elsewhere(pod)
            .then(|| format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
        ("", ..) => Some(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
        ("status", Some(pod), Some(new)) => of_status(node, pod, new),
        _ => Some(format!(
            "unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed"
        )),
    }
}

/// A node copies what it runs by itself: its own, and nothing that refers to other objects.
fn of_mirror(core: &Core, node: &str, pod: &Value) -> Option<String> {
    if tree::at(pod, &["metadata", "annotations", MIRROR]).is_none() {
        return Some(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    let only = |what: &str| Some(format!("node {node:?} can only create pods with {what} set to itself"));
    if tree::text(pod, &["spec", "nodeName"]) != node {
        return only("spec.nodeName");
    }
    let owner = match tree::list(pod, &["metadata", "ownerReferences"]) {
        [] => return only("an owner reference"),
        [owner] => owner,
        _ => return only("a single owner reference"),
    };
    let text = |key: &str| tree::text(owner, &[key]);
    if (text("apiVersion"), text("kind"), text("name")) != ("v1", "Node", node) {
        return only("an owner reference");
    }
    if owner.get("controller") != Some(&Value::Bool(true)) {
        return only("a controller owner reference");
    }
    if owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
        return Some(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let found = core.store.table("/nodes").get(node).map(|node| node.meta_text("uid")).unwrap_or_default();
    if found != text("uid") {
        return Some(format!("node {node} UID mismatch: expected {} got {found}", text("uid")));
    }
    let what = references(pod)?;
    Some(format!("node {node:?} can not create pods that reference {what}"))
}

/// The kind of an object that a pod refers to, if it does.
fn references(pod: &Value) -> Option<&'static str> {
    let is_set = |value: &Value, key: &str| value.get(key).is_some_and(|v| !v.is_null());
    let volumes = || tree::list(pod, &["spec", "volumes"]).iter();
    let sources = || volumes().flat_map(|v| tree::list(v, &["projected", "sources"]));
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = || lists.iter().flat_map(|key| tree::list(pod, &["spec", key]));
    let in_env = |all: &str, one: &str| {
        containers().any(|c| {
            let from = tree::list(c, &["envFrom"]).iter().any(|e| is_set(e, all));
            let is_one = |e: &Value| e.get("valueFrom").is_some_and(|from| is_set(from, one));
            from || tree::list(c, &["env"]).iter().any(is_one)
        })
    };
    let has = |key: &str| volumes().any(|v| is_set(v, key));
    let projects = |key: &str| sources().any(|s| is_set(s, key));
    let secret = |v: &Value| {
        let below = v.as_object().into_iter().flatten().filter_map(|(_, source)| source.as_object());
        below.flatten().any(|(key, value)| {
            let refers = matches!(key.as_str(), "secretRef" | "nodePublishSecretRef" | "secretName");
            refers && !value.is_null()
        })
    };
    let found = [
        (!tree::text(pod, &["spec", "serviceAccountName"]).is_empty(), "serviceaccounts"),
        (
            !tree::list(pod, &["spec", "imagePullSecrets"]).is_empty()
                || in_env("secretRef", "secretKeyRef")
                || volumes().any(secret)
                || projects("secret"),
            "secrets",
        ),
        (
            in_env("configMapRef", "configMapKeyRef") || has("configMap") || projects("configMap"),
            "configmaps",
        ),
        (!tree::list(pod, &["spec", "resourceClaims"]).is_empty(), "resourceclaims"),
        (has("csi"), "csidrivers (via CSI volumes)"),
        (has("glusterfs"), "endpoints (via glusterFS volumes)"),
        (has("persistentVolumeClaim"), "persistentvolumeclaims"),
        (has("ephemeral"), "persistentvolumeclaims (via ephemeral volumes)"),
        (projects("serviceAccountToken"), "serviceaccounts (via projected volumes)"),
        (projects("clusterTrustBundle"), "clustertrustbundles"),
        (projects("podCertificate"), "podcertificates"),
    ];
    found.into_iter().find(|(refers, _)| *refers).map(|(_, what)| what)
}

fn of_status(node: &str, old: &Value, new: &Value) -> Option<String> {
    if tree::text(old, &["spec", "nodeName"]) != node {
        return Some(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    for (path, told) in [
        (["metadata", "labels"], "cannot update labels through pod status"),
        (["status", "resourceClaimStatuses"], "cannot update resource claim statues"),
        (["status", "extendedResourceClaimStatus"], "cannot update extended resource claim status"),
    ] {
        if tree::at(old, &path) != tree::at(new, &path) {
            return Some(format!("node {node:?} {told}"));
        }
    }
    None
}

/// Of a claim, a node tells how large its volume has become.
fn of_claim(node: &str, subresource: &str, old: Option<&Value>, new: Option<&Value>) -> Option<String> {
    let ("status", Some(old), Some(new)) = (subresource, old, new) else {
        return Some("may only update PVC status".into());
    };
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for key in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
            tree::child(&mut claim, "status").remove(key);
        }
        for key in ["resourceVersion", "managedFields"] {
            tree::meta(&mut claim).remove(key);
        }
        claim
    };
    (rest(old) != rest(new)).then(|| {
        format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        )
    })
}

fn of_slice(node: &str, old: Option<&Value>, new: Option<&Value>) -> Option<String> {
    let (slice, verb) = match (old, new) {
        (None, Some(new)) => (new, "create"),
        (Some(old), None) => (old, "delete"),
        _ => return None,
    };
    let elsewhere = tree::text(slice, &["spec", "nodeName"]) != node;
    elsewhere.then(|| format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
}

/// A certificate of a kubelet names its node.
fn of_request(node: &str, request: &Value) -> Option<String> {
    let signer = tree::text(request, &["spec", "signerName"]);
    if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
        return None;
    }
    let name = certificates::subject(request).map(|subject| subject.name).unwrap_or_default();
    (name.strip_prefix("system:node:") != Some(node))
        .then(|| format!("can only create a node CSR with CN=system:node:{node}"))
}

/// Refuses the eviction of a pod that another node has.
///
/// # Errors
/// 403.
pub fn restrict_eviction(call: &Call, pod: &Obj) -> ApiResult<()> {
    let Some(node) = restricted(call).filter(|node| pod.text(&["spec", "nodeName"]) != **node) else {
        return Ok(());
    };
    let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
    Err(ApiError::forbidden(call.resource(), &call.name, &why))
}

/// Refuses a token for an account that is not bound to a pod of the node, or is for somebody whom the pod does not
/// name.
///
/// # Errors
/// 403; 404 if the pod is not there.
pub fn restrict_token(call: &Call, request: &Value) -> ApiResult<()> {
    let Some(node) = restricted(call) else { return Ok(()) };
    let refused = |why: &str| Err(ApiError::forbidden(call.resource(), &call.name, why));
    let text = |key: &str| tree::text(request, &["spec", "boundObjectRef", key]);
    if (text("apiVersion"), text("kind")) != ("v1", "Pod") || text("name").is_empty() {
        return refused("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return refused("node requested token with a pod binding without a uid");
    }
    let pods = builtins::find("", "pods");
    let found = call.core.store.table(&pods.table).get(&format!("{}/{}", call.namespace, text("name")));
    let pod = found.ok_or_else(|| ApiError::not_found(pods, text("name")))?;
    if pod.meta_text("uid") != text("uid") {
        return refused(&format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
            text("uid")
        ));
    }
    if pod.text(&["spec", "nodeName"]) != node {
        return refused("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match tree::list(request, &["spec", "audiences"]) {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return refused("node may only request 0 or 1 audiences"),
    };
    if names_audience(call, &pod, audience) || may_name_audience(call, audience) {
        return Ok(());
    }
    refused(&format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        call.user.name
    ))
}

/// True if a volume of the pod has tokens for somebody, or a driver of one asks for them.
fn names_audience(call: &Call, pod: &Obj, audience: &str) -> bool {
    let driver_of_claim = |claim: &str| {
        let claims = call.core.store.table("/persistentvolumeclaims");
        let claim = claims.get(&format!("{}/{claim}", call.namespace))?;
        let volume = call.core.store.table("/persistentvolumes").get(&claim.text(&["spec", "volumeName"]))?;
        Some(volume.text(&["spec", "csi", "driver"]))
    };
    let asks = |driver: &str| {
        let driver = call.core.store.table("storage.k8s.io/csidrivers").get(driver);
        let wanted = driver.map(|d| d.list(&["spec", "tokenRequests"])).unwrap_or_default();
        wanted.iter().any(|t| tree::text(t, &["audience"]) == audience)
    };
    pod.list(&["spec", "volumes"]).iter().any(|volume| {
        let mut tokens =
            tree::list(volume, &["projected", "sources"]).iter().filter_map(|s| s.get("serviceAccountToken"));
        if tokens.any(|t| t.is_object() && tree::text(t, &["audience"]) == audience) {
            return true;
        }
        let claim = tree::text(volume, &["persistentVolumeClaim", "claimName"]);
        let driver = if volume.get("ephemeral").is_some_and(Value::is_object) {
            driver_of_claim(&format!("{}-{}", pod.meta_text("name"), tree::text(volume, &["name"])))
        } else if claim.is_empty() {
            Some(tree::text(volume, &["csi", "driver"]).to_string())
        } else {
            driver_of_claim(claim)
        };
        driver.is_some_and(|driver| !driver.is_empty() && asks(&driver))
    })
}

fn may_name_audience(call: &Call, audience: &str) -> bool {
    let question = Question {
        verb: "request-serviceaccounts-token-audience".into(),
        resource: audience.into(),
        namespace: call.namespace.clone(),
        name: call.name.clone(),
        ..Question::default()
    };
    call.core.auth.allows(&call.core, &call.user, &question)
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
    #[test]
    fn a_mirror_pod_refers_to_nothing_else() {
        let with = |spec: Value| references(&serde_json::json!({"spec": spec}));
        for (spec, what) in [
            (serde_json::json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]}), None),
            (serde_json::json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), None),
            (serde_json::json!({"serviceAccountName": "a"}), Some("serviceaccounts")),
            (serde_json::json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), Some("secrets")),
            (
                serde_json::json!({"containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "m"}}]}]}),
                Some("configmaps"),
            ),
            (
                serde_json::json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
                Some("serviceaccounts (via projected volumes)"),
            ),
        ] {
            assert_eq!(with(spec.clone()), what, "{spec}");
        }
    }
}

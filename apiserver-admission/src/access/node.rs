//! The node authorizer: a node reads what concerns itself.
//!
//! Inputs: a user of the group `system:nodes`, what it asks for, and the pods that are bound to it. Absent on purpose:
//! other rights of a node, which roles may give it, and what it may write of an object (see `nodes`).

use crate::access::question::Question;
use crate::access::user::User;
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use serde_json::Value;
use std::sync::Arc;

/// What a node may do at most: verbs, group (`core` for the first one), resources. Much of it is narrowed down to what
/// concerns the node itself.
pub const RULES: &[(&str, &str, &str)] = &[
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews,localsubjectaccessreviews"),
    ("get,list,watch", "core", "services"),
    ("create,get,list,watch", "core", "nodes"),
    ("update,patch", "core", "nodes/status"),
    ("update,patch", "core", "nodes"),
    ("create,update,patch", "core", "events"),
    ("get,list,watch", "core", "pods"),
    ("create,delete", "core", "pods"),
    ("update,patch", "core", "pods/status"),
    ("create", "core", "pods/eviction"),
    ("get,list,watch", "core", "secrets,configmaps"),
    ("get", "core", "persistentvolumeclaims,persistentvolumes"),
    ("get", "core", "endpoints"),
    ("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests"),
    ("get,create,update,patch,delete", "coordination.k8s.io", "leases"),
    ("get", "storage.k8s.io", "volumeattachments"),
    ("create", "core", "serviceaccounts/token"),
    ("get,update,patch", "core", "persistentvolumeclaims/status"),
    ("get,list,watch", "storage.k8s.io", "csidrivers"),
    ("get,create,update,patch,delete", "storage.k8s.io", "csinodes"),
    ("get,list,watch", "node.k8s.io", "runtimeclasses"),
    ("get", "resource.k8s.io", "resourceclaims"),
    ("deletecollection", "resource.k8s.io", "resourceslices"),
    ("get,list,watch,create,update,patch,delete", "resource.k8s.io", "resourceslices"),
];

/// The name of the node that a user is.
pub fn name_of(user: &User) -> Option<&str> {
    let is_one = user.groups.iter().any(|group| group == "system:nodes");
    user.name.strip_prefix("system:node:").filter(|name| is_one && !name.is_empty())
}

/// What a node may do because it is that node: nothing to say, or why not.
///
/// # Errors
/// Why it may not.
pub fn judge(base: &Base, node: &str, q: &Question) -> Result<(), String> {
    let kind = (q.group.as_str(), q.resource.as_str(), q.subresource.as_str());
    let reads = matches!(q.verb.as_str(), "get" | "list" | "watch");
    let own = q.name == node;
    let verb = |allowed: &[&str]| allowed.contains(&q.verb.as_str());
    let held = |found: bool| match found {
        true => Ok(()),
        false => Err(format!("no relationship found between node '{node}' and this object")),
    };
    let by_node = |field: &str| {
        let wanted = [format!("{field}={node}"), format!("{field}=={node}")];
        q.selector.split(',').any(|part| wanted.iter().any(|w| w == part))
    };
    let only = |allowed: bool, why: &str| if allowed { Ok(()) } else { Err(why.to_string()) };
    match kind {
        ("", "secrets" | "configmaps", "") if reads => {
            only(!q.name.is_empty(), "No Object name found")?;
            held(used(base, node, &q.namespace, |pod| names(pod, &q.resource, &q.name)))
        }
        ("", "persistentvolumeclaims", "" | "status") if verb(&["get", "update", "patch"]) => {
            only(q.verb == "get" || q.subresource == "status", "can only update the status of a claim")?;
            held(used(base, node, &q.namespace, |pod| names(pod, "persistentvolumeclaims", &q.name)))
        }
        ("", "persistentvolumes", "") if q.verb == "get" => held(has_volume(base, node, &q.name)),
        ("resource.k8s.io", "resourceclaims", "") if q.verb == "get" => {
            held(used(base, node, &q.namespace, |pod| names(pod, "resourceclaims", &q.name)))
        }
        ("storage.k8s.io", "volumeattachments", "") if q.verb == "get" => {
            let found = base.store.table("storage.k8s.io/volumeattachments").get(&q.name);
            held(found.is_some_and(|a| a.text(&["spec", "nodeName"]) == node))
        }
        ("", "serviceaccounts", "token") if q.verb == "create" => {
            held(used(base, node, &q.namespace, |pod| pod.text(&["spec", "serviceAccountName"]) == q.name))
        }
        ("coordination.k8s.io", "leases", "") => {
            only(
                q.namespace == "kube-node-lease",
                "can only access leases in the \"kube-node-lease\" system namespace",
            )?;
            named_like(node, q, "node lease")
        }
        ("storage.k8s.io", "csinodes", "") => named_like(node, q, "CSINode"),
        ("resource.k8s.io", "resourceslices", "") => match q.verb.as_str() {
            "create" => Ok(()),
            "list" | "watch" | "deletecollection" => only(
                by_node("spec.nodeName"),
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => {
                let found = base.store.table("resource.k8s.io/resourceslices").get(&q.name);
                held(found.is_some_and(|s| s.text(&["spec", "nodeName"]) == node))
            }
        },
        ("", "nodes", "") if reads => {
            only(own, &format!("node '{node}' cannot read '{}', only its own Node object", q.name))
        }
        ("", "pods", "") if q.verb == "get" => {
            let found = base.store.table("/pods").get(&format!("{}/{}", q.namespace, q.name));
            held(found.is_some_and(|pod| runs_on(&pod, node)))
        }
        ("", "pods", "") if reads => {
            only(by_node("spec.nodeName"), "can only list/watch pods with spec.nodeName field selector")
        }
        _ => only(RULES.iter().any(|rule| covers(rule, q)), ""),
    }
}

/// An object that has the name of its node.
fn named_like(node: &str, q: &Question, what: &str) -> Result<(), String> {
    if !matches!(q.verb.as_str(), "get" | "create" | "update" | "patch" | "delete") {
        return Err(format!("can only get, create, update, patch, or delete a {what}"));
    }
    if q.name == node || (q.verb == "create" && q.name.is_empty()) {
        return Ok(());
    }
    Err(format!("can only access {what} with the same name as the requesting node"))
}

fn runs_on(pod: &Obj, node: &str) -> bool {
    pod.text(&["spec", "nodeName"]) == node
}

/// True when a pod of the node, in a namespace, has something.
fn used(base: &Base, node: &str, namespace: &str, holds: impl Fn(&Obj) -> bool) -> bool {
    let prefix = format!("{namespace}/");
    let pods = base.store.table("/pods").objects();
    pods.iter().any(|pod| pod.key.starts_with(&prefix) && runs_on(pod, node) && holds(pod))
}

fn has_volume(base: &Base, node: &str, volume: &str) -> bool {
    let claims = base.store.table("/persistentvolumeclaims").objects();
    claims.iter().filter(|claim| claim.text(&["spec", "volumeName"]) == volume).any(|claim| {
        let (namespace, name) = claim.key.split_once('/').unwrap_or_default();
        used(base, node, namespace, |pod| names(pod, "persistentvolumeclaims", name))
    })
}

/// True when a pod refers to an object of its namespace.
fn names(pod: &Obj, plural: &str, name: &str) -> bool {
    let spec = pod.at(&["spec"]).unwrap_or_default();
    let volumes = tree::list(&spec, &["volumes"]);
    let is = |value: &Value, path: &[&str]| tree::text(value, path) == name;
    let containers = || {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(|key| tree::list(&spec, &[key]))
    };
    let env = |of: &str, key: &str| {
        containers().any(|c| {
            tree::list(c, &["env"]).iter().any(|e| is(e, &["valueFrom", key, "name"]))
                || tree::list(c, &["envFrom"]).iter().any(|e| is(e, &[of, "name"]))
        })
    };
    let projected = |key: &str| {
        volumes.iter().any(|v| tree::list(v, &["projected", "sources"]).iter().any(|s| is(s, &[key, "name"])))
    };
    match plural {
        "secrets" => {
            volumes.iter().any(|v| is(v, &["secret", "secretName"]))
                || tree::list(&spec, &["imagePullSecrets"]).iter().any(|s| is(s, &["name"]))
                || projected("secret")
                || env("secretRef", "secretKeyRef")
                || ["csi", "cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"].iter().any(
                    |kind| {
                        let refers = |v: &Value| {
                            is(v, &[kind, "secretRef", "name"])
                                || is(v, &[kind, "nodePublishSecretRef", "name"])
                        };
                        volumes.iter().any(refers)
                    },
                )
        }
        "configmaps" => {
            volumes.iter().any(|v| is(v, &["configMap", "name"]))
                || projected("configMap")
                || env("configMapRef", "configMapKeyRef")
        }
        "persistentvolumeclaims" => {
            let own = format!("{}-", pod.meta_text("name"));
            volumes.iter().any(|v| {
                is(v, &["persistentVolumeClaim", "claimName"])
                    || (v.get("ephemeral").is_some()
                        && name.strip_prefix(&own) == Some(tree::text(v, &["name"])))
            })
        }
        _ => {
            tree::list(&spec, &["resourceClaims"]).iter().any(|c| is(c, &["resourceClaimName"]))
                || pod
                    .list(&["status", "resourceClaimStatuses"])
                    .iter()
                    .any(|c| is(c, &["resourceClaimName"]))
        }
    }
}

fn covers((verbs, group, resources): &(&str, &str, &str), q: &Question) -> bool {
    let group = if *group == "core" { "" } else { *group };
    let asked = match q.subresource.as_str() {
        "" => q.resource.clone(),
        below => format!("{}/{below}", q.resource),
    };
    group == q.group && verbs.split(',').any(|v| v == q.verb) && resources.split(',').any(|r| r == asked)
}

/// What a node is told besides that it may not.
pub fn why_not(base: &Base, user: &User, q: &Question) -> Option<Arc<str>> {
    let why = judge(base, name_of(user)?, q).err()?;
    (!why.is_empty()).then(|| why.into())
}

//! What services need by their type.
//!
//! Inputs: the spec of a service.

use fleet_apiserver_ground::tree;
use serde_json::Value;

/// Says of the spec of a service whether it needs something.
pub(super) type Needs = fn(&Value) -> bool;

/// True for a service of one of these types.
pub(super) fn of_type(spec: &Value, kinds: &[&str]) -> bool {
    kinds.contains(&tree::text(spec, &["type"]))
}

/// It has an address of the cluster.
pub(super) fn addressed(spec: &Value) -> bool {
    !of_type(spec, &["ExternalName"])
}

/// A balancer stands before it.
pub(super) fn balanced(spec: &Value) -> bool {
    of_type(spec, &["LoadBalancer"])
}

/// It has ports of nodes.
pub(super) fn open(spec: &Value) -> bool {
    of_type(spec, &["LoadBalancer", "NodePort"])
}

/// Clients outside the cluster reach it.
pub(super) fn reached(spec: &Value) -> bool {
    open(spec) || (of_type(spec, &["ClusterIP"]) && !tree::list(spec, &["externalIPs"]).is_empty())
}

/// A balancer asks each node whether it has pods of it.
pub(crate) fn checked(spec: &Value) -> bool {
    balanced(spec) && tree::text(spec, &["externalTrafficPolicy"]) == "Local"
}

//! Who may look at devices that others have, give devices to a claim, and report on them.
//!
//! Inputs: a claim or a template that is written, and who writes it. Source: Kubernetes 1.36. Absent on purpose: what a claim
//! may say (see `fleet-apiserver-devices`).

use crate::access::rbac::Question;
use crate::access::user::User;
use crate::call::Call;
use fleet_apiserver_ground::tree;
use fleet_apiserver_kinds::devices::{GROUP, device_key};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::same;
use fleet_apiserver_schema::http_io;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The label of a namespace whose claims may look at devices that others have.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";
/// Where it is known of a caller on which node its pod runs.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// What the caller may not do with a claim or a template: it is told together with what is wrong with the object.
pub fn unauthorized(call: &Call, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let r = call.resource();
    match (r.plural.as_str(), old) {
        _ if r.group != GROUP => Vec::new(),
        ("resourceclaims", None) => looks(call, tree::list(new, &["spec", "devices", "requests"])),
        // A template is told of the place that it has in its claims.
        ("resourceclaimtemplates", None) => {
            looks(call, tree::list(new, &["spec", "spec", "devices", "requests"]))
        }
        ("resourceclaims", Some(old)) if call.subresource == "status" => status(call, old, new),
        _ => Vec::new(),
    }
}

/// The first of some requests that looks at devices of others.
fn looks(call: &Call, requests: &[Value]) -> Vec<Cause> {
    let looks = requests.iter().position(|request| is_true(request, &["exactly", "adminAccess"]));
    admin_access(call, looks, "spec.devices.requests").into_iter().collect()
}

fn status(call: &Call, old: &Value, new: &Value) -> Vec<Cause> {
    let looks = |claim: &Value| {
        let results = tree::list(claim, &["status", "allocation", "devices", "results"]);
        results.iter().position(|result| is_true(result, &["adminAccess"]))
    };
    let fresh = looks(new).filter(|_| looks(old).is_none());
    let mut causes = Vec::from_iter(admin_access(call, fresh, "status.allocation.devices.results"));
    let part = |claim: &Value, key: &str| tree::at(claim, &["status", key]).cloned().unwrap_or_default();
    if ["allocation", "reservedFor"].iter().any(|key| !same(&part(old, key), &part(new, key))) {
        causes.extend(may_not_bind(call));
    }
    if !part(new, "allocation").is_null() {
        let verbs = verbs(call, new);
        let drivers = changed_drivers(old, new);
        causes.extend(drivers.iter().filter_map(|driver| may_not_report(call, &verbs, driver)));
    }
    causes
}

fn is_true(value: &Value, path: &[&str]) -> bool {
    tree::at(value, path) == Some(&Value::Bool(true))
}

/// Devices that others have are looked at from namespaces that are marked for it. The place is that of an item of a list.
fn admin_access(call: &Call, item: Option<usize>, list: &str) -> Option<Cause> {
    let i = item?;
    let namespace = call.core.namespaces.get(&call.namespace);
    if namespace.is_some_and(|ns| ns.text(&["metadata", "labels", ADMIN_ACCESS]) == "true") {
        return None;
    }
    let why = format!(
        "admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
    );
    Some(Cause::forbidden(format!("{list}[{i}].adminAccess"), &why))
}

/// The verb of the request.
fn verb(call: &Call) -> &'static str {
    if http_io::content_type(&call.headers).contains("patch") { "patch" } else { "update" }
}

fn question(verb: &str, subresource: &str) -> Question {
    Question {
        verb: verb.into(),
        group: GROUP.into(),
        resource: "resourceclaims".into(),
        subresource: subresource.into(),
        ..Question::default()
    }
}

/// Giving devices to claims, and claims to pods, takes a right on all claims.
fn may_not_bind(call: &Call) -> Option<Cause> {
    let verb = verb(call);
    let refused = call.core.auth.allow(&call.core, &call.user, &question(verb, "binding")).err()?;
    let why = format!(
        "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {}",
        refused.message()
    );
    Some(Cause::forbidden("status.allocation", &why))
}

/// The verbs of which one lets the caller report on devices of a claim.
fn verbs(call: &Call, claim: &Value) -> Vec<String> {
    let verb = verb(call);
    let near = node_of(claim).is_some_and(|node| runs_on(&call.user, node));
    let prefixes: &[&str] = if near { &["associated-node", "arbitrary-node"] } else { &["arbitrary-node"] };
    prefixes.iter().map(|prefix| format!("{prefix}:{verb}")).collect()
}

fn may_not_report(call: &Call, verbs: &[String], driver: &str) -> Option<Cause> {
    let mut first = None;
    for verb in verbs {
        let q =
            Question { namespace: call.namespace.clone(), name: driver.into(), ..question(verb, "driver") };
        let refused = call.core.auth.allow(&call.core, &call.user, &q).err()?;
        first = first.or(Some(refused));
    }
    let why = format!(
        "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
        verbs.join(" "),
        first?.message()
    );
    Some(Cause::forbidden("status.devices", &why))
}

/// The drivers of devices of which something else is said than before.
fn changed_drivers(old: &Value, new: &Value) -> BTreeSet<String> {
    let devices = |claim| tree::list(claim, &["status", "devices"]);
    let mut before: BTreeMap<String, &Value> = devices(old).iter().map(|d| (device_key(d), d)).collect();
    let mut changed = BTreeSet::new();
    for device in devices(new) {
        if before.remove(&device_key(device)) != Some(device) {
            changed.insert(tree::text(device, &["driver"]).to_string());
        }
    }
    changed.extend(before.into_values().map(|device| tree::text(device, &["driver"]).to_string()));
    changed
}

/// The only node that can use what a claim was given.
fn node_of(claim: &Value) -> Option<&str> {
    let terms = tree::list(claim, &["status", "allocation", "nodeSelector", "nodeSelectorTerms"]);
    let [term] = terms else { return None };
    let [field] = tree::list(term, &["matchFields"]) else { return None };
    let [node] = tree::list(field, &["values"]) else { return None };
    let by_name = tree::text(field, &["key"]) == "metadata.name" && tree::text(field, &["operator"]) == "In";
    node.as_str().filter(|_| by_name && tree::list(term, &["matchExpressions"]).is_empty())
}

/// True for a service account whose pod runs on a node.
fn runs_on(user: &User, node: &str) -> bool {
    let is_account = user.name.strip_prefix("system:serviceaccount:").is_some_and(|rest| rest.contains(':'));
    let nodes = user.extra.get(NODE_NAME).map_or(&[][..], Vec::as_slice);
    is_account && matches!(nodes, [one] if one == node)
}

#[cfg(test)]
mod tests;

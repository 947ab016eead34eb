//! The families of a service's addresses, and how its older field of one address goes with the newer list.
//!
//! Inputs: the spec before, if there is one, and the new one. The server has addresses of IPv4 alone. Absent on purpose: which
//! address a service gets.

use super::needs::addressed;
use crate::network;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes};
use serde_json::{Map, Value, json};

fn one(spec: &Value) -> &str {
    tree::text(spec, &["clusterIP"])
}

fn all(spec: &Value) -> &[Value] {
    tree::list(spec, &["clusterIPs"])
}

/// Brings field and list in line as far as a client says only one of them, or neither.
pub(super) fn pair(before: Option<&Value>, spec: &mut Value) {
    let Some(before) = before else {
        if !one(spec).is_empty() && all(spec).is_empty() {
            spec["clusterIPs"] = json!([one(spec)]);
        }
        return;
    };
    let both = addressed(before) && addressed(spec);
    if both && one(spec).is_empty() && !one(before).is_empty() {
        spec["clusterIP"] = json!(one(before));
    }
    if (both || one(before) == one(spec)) && all(spec).is_empty() && !all(before).is_empty() {
        spec["clusterIPs"] = json!(all(before));
    }
    if one(before) == one(spec) || all(before) != all(spec) {
        return;
    }
    // Only the field says something new.
    match one(spec).to_string().as_str() {
        "" => drop(tree::object(spec).remove("clusterIPs")),
        only => spec["clusterIPs"] = json!([only]),
    }
}

/// Fills in policy and families. What the client says of them cannot go together when there are causes.
pub(super) fn settle(before: Option<&Value>, service: &mut Value) -> Vec<Cause> {
    let spec = tree::child(service, "spec");
    let free = is_free(spec);
    let usual = if free { "RequireDualStack" } else { "SingleStack" };
    let policy = before.and_then(|s| s.get("ipFamilyPolicy")).cloned().unwrap_or_else(|| usual.into());
    // Whoever makes a service does not own them: they come with its address.
    tree::default_to(spec, "ipFamilyPolicy", policy);
    let found = Causes::default();
    {
        let known = before.map(all).unwrap_or_default();
        let known: Vec<&str> = known.iter().filter_map(Value::as_str).collect();
        network::cluster_ips(&At::root(service, &found).at("spec"), &known);
    }
    let mut causes = found.into_inner();
    if causes.is_empty() {
        causes = chosen(before, tree::child(service, "spec"));
    }
    if causes.is_empty() {
        causes = completed(free, tree::child(service, "spec"));
    }
    causes
}

/// Endpoints of a service without address and selector come from others and may be of both families.
fn is_free(spec: &Map<String, Value>) -> bool {
    spec.get("clusterIP").is_some_and(|ip| ip == "None")
        && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty)
}

fn families(spec: &Map<String, Value>) -> Vec<Value> {
    spec.get("ipFamilies").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn policy_of(spec: &Map<String, Value>) -> Value {
    spec.get("ipFamilyPolicy").cloned().unwrap_or_default()
}

/// Compares the policy with what is listed, and tells families from addresses.
fn chosen(before: Option<&Value>, spec: &mut Map<String, Value>) -> Vec<Cause> {
    const POLICY: &str = "spec.ipFamilyPolicy";
    let (policy, mut list) = (policy_of(spec), families(spec));
    let ips = spec.get("clusterIPs").and_then(Value::as_array).cloned().unwrap_or_default();
    let single = policy == "SingleStack";
    let mut causes = Vec::new();
    if let Some(before) = before {
        let had = tree::list(before, &["ipFamilies"]);
        // To ask for one family says clearly enough what becomes of the second.
        if single && had == list.as_slice() {
            list.truncate(1);
        } else if !single && !list.is_empty() && list.len() < had.len() {
            let why = "must be 'SingleStack' to release the secondary IP family";
            causes.push(Cause::invalid(POLICY, &policy, why));
        }
    }
    for (count, what) in [(ips.len(), "cluster IPs"), (list.len(), "IP families")] {
        if single && count == 2 {
            let why =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            causes.push(Cause::invalid(POLICY, &policy, &why));
        }
    }
    for (i, ip) in ips.iter().enumerate().skip(list.len()).filter(|(_, ip)| **ip != "None") {
        if ip.as_str().is_some_and(|ip| ip.contains(':')) {
            let why = "IPv6 is not configured on this cluster";
            causes.push(Cause::invalid(format!("spec.clusterIPs[{i}]"), &json!(ips), why));
        } else {
            list.push("IPv4".into());
        }
    }
    spec.insert("ipFamilies".into(), list.into());
    causes
}

/// Completes the families, if the cluster has those that are asked for.
fn completed(free: bool, spec: &mut Map<String, Value>) -> Vec<Cause> {
    let (policy, mut list) = (policy_of(spec), families(spec));
    let mut causes = Vec::new();
    if !free {
        if policy == "RequireDualStack" {
            let why = "this cluster is not configured for dual-stack services";
            causes.push(Cause::invalid("spec.ipFamilyPolicy", &policy, why));
        }
        for (i, family) in list.iter().enumerate().filter(|(_, family)| **family != "IPv4") {
            let why = "not configured on this cluster";
            causes.push(Cause::invalid(format!("spec.ipFamilies[{i}]"), family, why));
        }
    }
    if list.is_empty() {
        list.push("IPv4".into());
    }
    if let [only] = list.as_slice()
        && free
        && policy != "SingleStack"
    {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        list.push(other.into());
    }
    spec.insert("ipFamilies".into(), list.into());
    causes
}

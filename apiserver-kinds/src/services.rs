//! Addresses of services: cluster IPs and node ports, allocated from fixed ranges.
//!
//! Inputs: a new or changed Service, and the existing ones. An address is free if no stored service has it and no
//! write in flight was given it a moment ago. Absent on purpose: a network behind the addresses, and IPv6.

mod families;
pub(crate) mod needs;
mod pool;
mod ports;

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use needs::{Needs, addressed, balanced, checked, open, reached};
use pool::Taken;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

fn invalid(service: &Value, causes: Vec<Cause>) -> ApiError {
    ApiError::invalid("", "Service", tree::meta_text(service, "name"), causes)
}

/// Allocates the addresses that a service's type needs; existing ones are kept.
///
/// # Errors
/// 422 for families and addresses that do not go together, and for an address or a port that cannot be had; nothing else
/// is looked at then. 500 for a port for checks of health that cannot be had, as in the real server.
pub fn settle(base: &Base, old: Option<&Value>, new: &mut Value) -> ApiResult<()> {
    let before = old.and_then(|o| o.get("spec"));
    if let Some(before) = before {
        drop_of_other_type(before, new);
    }
    if let Some(spec) = new.get_mut("spec").filter(|spec| spec.is_object()) {
        families::pair(before, spec);
    }
    if !new.get("spec").is_some_and(addressed) {
        tree::child(new, "spec").remove("internalTrafficPolicy");
        return Ok(());
    }
    let causes = families::settle(before, new);
    if !causes.is_empty() {
        return Err(invalid(new, causes));
    }
    let had = before.filter(|s| addressed(s));
    let mut taken = Taken::of(base, tree::meta_text(old.unwrap_or(&Value::Null), "uid"));
    if had.is_none() {
        address(base, new, &mut taken)?;
    }
    if let Some(cause) = ports::settle(base, before, new, &mut taken)? {
        return Err(invalid(new, vec![cause]));
    }
    health_port(base, had, new, &mut taken)
}

/// Fields that go together with the need for them.
const OF_NEEDS: [(Needs, &[&[&str]]); 4] = [
    (addressed, &[&["clusterIP", "clusterIPs"], &["ipFamilies"], &["ipFamilyPolicy"]]),
    (balanced, &[&["allocateLoadBalancerNodePorts"], &["loadBalancerClass"]]),
    (checked, &[&["healthCheckNodePort"]]),
    (reached, &[&["externalTrafficPolicy"]]),
];

/// What only the type before had a use for goes, unless this write says something of it.
fn drop_of_other_type(before: &Value, new: &mut Value) {
    let now = new.get("spec").cloned().unwrap_or_default();
    let left = |needs: Needs| needs(before) && !needs(&now);
    let spec = tree::child(new, "spec");
    for (needs, groups) in OF_NEEDS {
        let same = |group: &&&[&str]| group.iter().all(|field| now.get(*field) == before.get(*field));
        for field in groups.iter().filter(same).copied().flatten().filter(|_| left(needs)) {
            spec.remove(*field);
        }
    }
    let outside = |spec: &Value| -> BTreeSet<i64> {
        let ports = tree::list(spec, &["ports"]).iter();
        ports.map(|p| tree::number(p, &["nodePort"])).filter(|n| *n != 0).collect()
    };
    if left(open) && outside(before).is_superset(&outside(&now)) {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            tree::object(port).remove("nodePort");
        }
    }
    if !balanced(&now) && tree::at(new, &["status", "loadBalancer"]).is_some() {
        tree::child(new, "status").insert("loadBalancer".into(), json!({}));
    }
}

/// The address of a service that had none: that which is asked for, or the next one.
fn address(base: &Base, new: &mut Value, taken: &mut Taken) -> ApiResult<()> {
    let given = tree::text(new, &["spec", "clusterIP"]);
    let chosen = if given.is_empty() {
        let key = format!("{}/{}", tree::meta_text(new, "namespace"), tree::meta_text(new, "name"));
        taken.address(base, &key)?.to_string()
    } else {
        let ip = given.parse::<Ipv4Addr>().ok();
        if let Some(why) = ip.and_then(|ip| taken.refuses_address(ip)) {
            let why = format!("failed to allocate IP {given}: {why}");
            let list = tree::at(new, &["spec", "clusterIPs"]).unwrap_or(&Value::Null);
            return Err(invalid(new, vec![Cause::invalid("spec.clusterIPs", list, &why)]));
        }
        given.to_string()
    };
    let spec = tree::child(new, "spec");
    spec.insert("clusterIPs".into(), json!([chosen]));
    spec.insert("clusterIP".into(), chosen.into());
    Ok(())
}

/// The port at which balancers ask a node whether it has pods of the service.
fn health_port(base: &Base, had: Option<&Value>, new: &mut Value, taken: &mut Taken) -> ApiResult<()> {
    const FIELD: &str = "healthCheckNodePort";
    if !new.get("spec").is_some_and(checked) {
        return Ok(());
    }
    let given = tree::number(new, &["spec", FIELD]);
    let before = had.filter(|s| checked(s)).map(|s| tree::number(s, &[FIELD]));
    let port = match (given, before) {
        (0, Some(before)) if before != 0 => before,
        (0, _) => taken.port(base, tree::meta_text(new, "name"))?.into(),
        // A change of it is refused later.
        (given, Some(before)) if before != 0 => given,
        (given, _) => {
            if let Some(why) = taken.refuses(given) {
                let why = format!("failed to allocate requested HealthCheck NodePort {given}: {why}");
                let why = format!("Internal error occurred: {why}");
                return Err(ApiError::internal("InternalError", why));
            }
            given
        }
    };
    tree::child(new, "spec").insert(FIELD.into(), port.into());
    Ok(())
}

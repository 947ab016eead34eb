//! Addresses of services: cluster IPs and node ports, allocated from fixed ranges.
//!
//! Inputs: a new or changed Service, and the existing ones. An address is free if no stored service has it and no
//! write in flight was given it a moment ago. Absent on purpose: a network behind the addresses, and IPv6.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// First address of the range, and how many it has: 10.96.0.0/16.
const FIRST: u32 = 0x0a60_0000;
const ADDRESSES: u32 = 1 << 16;
/// Addresses at the start that clusters give to services of their own (the API server, DNS).
const KEPT: u32 = 256;
/// Node ports.
const PORTS: std::ops::RangeInclusive<u32> = 30_000..=32_767;
/// How long a write under way keeps what it was given.
const HELD: Duration = Duration::from_secs(30);

/// What stored services have: addresses, and node ports as small numbers, which no address is.
struct Taken(BTreeSet<u32>);

impl Taken {
    fn of(base: &Base, besides: &str) -> Taken {
        let mut taken = BTreeSet::new();
        for service in base.store.table("/services").objects() {
            if service.meta_text("uid") == besides {
                continue;
            }
            taken.extend(service.text(&["spec", "clusterIP"]).parse::<Ipv4Addr>().ok().map(u32::from));
            if matches!(service.text(&["spec", "type"]).as_str(), "NodePort" | "LoadBalancer") {
                let ports = service.list(&["spec", "ports"]);
                taken.extend(ports.iter().filter_map(|p| u32::try_from(tree::number(p, &["nodePort"])).ok()));
            }
        }
        Taken(taken)
    }

    /// Allocates the first free number from `start` on, round the range.
    fn take(&mut self, base: &Base, range: std::ops::RangeInclusive<u32>, start: u32) -> Option<u32> {
        let mut held = base.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        held.retain(|_, since| now.duration_since(*since) < HELD);
        let (first, count) = (*range.start(), range.end() - range.start() + 1);
        let mut all = (0..count).map(|i| first + (start % count + i) % count);
        let free = all.find(|n| !self.0.contains(n) && !held.contains_key(n))?;
        held.insert(free, now);
        self.0.insert(free);
        Some(free)
    }
}

fn invalid(service: &Value, cause: Cause) -> ApiError {
    ApiError::invalid("", "Service", tree::meta_text(service, "name"), vec![cause])
}

/// Allocates the addresses that a service's type needs; existing ones are kept.
pub fn settle(base: &Base, old: Option<&Value>, new: &mut Value) -> ApiResult<()> {
    let old_spec = old.and_then(|o| o.get("spec"));
    let had = old_spec.filter(|s| tree::text(s, &["type"]) != "ExternalName");
    let kind = tree::text(new, &["spec", "type"]).to_string();
    let spec = tree::child(new, "spec");
    if let Some(before) = old_spec {
        drop_of_other_type(&kind, before, spec);
    }
    if kind == "ExternalName" {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
        return Ok(());
    }
    // Whoever makes a service does not own them: they come with its address.
    tree::default_to(spec, "ipFamilies", serde_json::json!(["IPv4"]));
    tree::default_to(spec, "ipFamilyPolicy", "SingleStack");
    let mut taken = Taken::of(base, tree::meta_text(old.unwrap_or(&Value::Null), "uid"));
    address(base, had, new, &mut taken)?;
    ports(base, &kind, had, new, &mut taken)
}

/// What only the type before had a use for goes, unless this write says something of it.
fn drop_of_other_type(kind: &str, before: &Value, spec: &mut Map<String, Value>) {
    if tree::text(before, &["type"]) == kind {
        return;
    }
    let fields: &[&str] = match kind {
        "LoadBalancer" => &[],
        "NodePort" => &["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"],
        _ => &[
            "allocateLoadBalancerNodePorts",
            "loadBalancerClass",
            "healthCheckNodePort",
            "externalTrafficPolicy",
        ],
    };
    for field in fields {
        if spec.get(*field).is_some() && spec.get(*field) == before.get(*field) {
            spec.remove(*field);
        }
    }
}

fn address(base: &Base, had: Option<&Value>, new: &mut Value, taken: &mut Taken) -> ApiResult<()> {
    let before = had.map(|s| tree::text(s, &["clusterIP"])).unwrap_or_default();
    let given = match tree::text(new, &["spec", "clusterIP"]) {
        "" => tree::list(new, &["spec", "clusterIPs"]).first().and_then(Value::as_str).unwrap_or_default(),
        given => given,
    };
    let chosen = match (given, before) {
        ("", "") => {
            // The same name gets the same address, where it is free.
            let key = format!("{}/{}", tree::meta_text(new, "namespace"), tree::meta_text(new, "name"));
            let start = fleet_apiserver_ground::dict::hash(key.as_bytes()) as u32;
            let range = FIRST + KEPT..=FIRST + ADDRESSES - 2;
            let Some(free) = taken.take(base, range, start) else {
                let why = "failed to allocate a serviceIP: range is full";
                return Err(ApiError::internal("InternalError", why));
            };
            Ipv4Addr::from(free).to_string()
        }
        ("", before) => before.to_string(),
        (given, before) if !before.is_empty() && given != before => {
            let cause = Cause::invalid("spec.clusterIPs[0]", &json!(given), "field is immutable");
            return Err(invalid(new, cause));
        }
        ("None", _) => "None".into(),
        (given, "") => {
            let given = given.to_string();
            let fail = |why: &str| {
                let why = format!("failed to allocate IP {given}: {why}");
                Err(invalid(new, Cause::invalid("spec.clusterIPs", &json!([given]), &why)))
            };
            match given.parse::<Ipv4Addr>().map(u32::from) {
                Err(_) => return fail("must be a valid IPv4 address, or None"),
                Ok(n) if !(FIRST..FIRST + ADDRESSES).contains(&n) => {
                    return fail("the provided IP is not in the valid range 10.96.0.0/16");
                }
                Ok(n) if taken.0.contains(&n) => return fail("provided IP is already allocated"),
                Ok(_) => given,
            }
        }
        (given, _) => given.to_string(),
    };
    let spec = tree::child(new, "spec");
    spec.insert("clusterIPs".into(), json!([chosen]));
    spec.insert("clusterIP".into(), chosen.into());
    Ok(())
}

fn ports(base: &Base, kind: &str, had: Option<&Value>, new: &mut Value, taken: &mut Taken) -> ApiResult<()> {
    let before = had.map(|s| tree::list(s, &["ports"])).unwrap_or_default();
    let same = |port: &Map<String, Value>| {
        let key = |p: &Value| (p.get("port").cloned(), p.get("protocol").cloned());
        let found =
            before.iter().find(|p| key(p) == (port.get("port").cloned(), port.get("protocol").cloned()));
        found.and_then(|p| p.get("nodePort")).cloned()
    };
    let open = match kind {
        "NodePort" => true,
        "LoadBalancer" => {
            tree::at(new, &["spec", "allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false))
        }
        _ => false,
    };
    let start = fleet_apiserver_ground::dict::hash(tree::meta_text(new, "name").as_bytes()) as u32;
    let mut wrong = None;
    let list = tree::child(new, "spec").get_mut("ports").and_then(Value::as_array_mut);
    for (i, port) in list.into_iter().flatten().enumerate() {
        let port = tree::object(port);
        let field = format!("spec.ports[{i}].nodePort");
        let given = port.get("nodePort").and_then(Value::as_u64).unwrap_or(0);
        let known = same(port);
        match given {
            0 if !open => {
                port.remove("nodePort");
            }
            0 => match known {
                Some(known) => {
                    port.insert("nodePort".into(), known);
                }
                None => {
                    let Some(free) = taken.take(base, PORTS, start) else {
                        let why = "failed to allocate a nodePort: range is full";
                        return Err(ApiError::internal("InternalError", why));
                    };
                    port.insert("nodePort".into(), free.into());
                }
            },
            // What another type left behind goes; what a client asks for is refused.
            _ if kind == "ClusterIP" && known == Some(given.into()) => {
                port.remove("nodePort");
            }
            _ if kind == "ClusterIP" => {
                let why = "may not be used when `type` is 'ClusterIP'";
                wrong = Some(Cause::forbidden(&field, why));
            }
            _ if known == Some(given.into()) => {}
            _ => {
                let why = match u32::try_from(given) {
                    Ok(n) if PORTS.contains(&n) && taken.0.contains(&n) => {
                        "provided port is already allocated"
                    }
                    Ok(n) if PORTS.contains(&n) => continue,
                    _ => "provided port is not in the valid range. The range of valid ports is 30000-32767",
                };
                wrong = Some(Cause::invalid(field, &json!(given), why));
            }
        }
    }
    match wrong {
        Some(cause) => Err(invalid(new, cause)),
        None => Ok(()),
    }
}

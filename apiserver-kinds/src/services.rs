//! Addresses of services: cluster IPs and node ports, allocated from fixed ranges.
//!
//! Inputs: a new or changed Service, and the existing ones. An address is free if no stored service has it and no
//! write in flight was given it a moment ago. Absent on purpose: a network behind the addresses, and IPv6.

use super::network;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::base::Base;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
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
                let numbers = ports.iter().map(|p| tree::number(p, &["nodePort"]));
                let numbers = numbers.chain([service.number(&["spec", "healthCheckNodePort"])]);
                taken.extend(numbers.filter_map(|n| u32::try_from(n).ok()));
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

    /// Allocates a port of nodes.
    fn port(&mut self, base: &Base, service: &str) -> ApiResult<u32> {
        let start = fleet_apiserver_ground::dict::hash(service.as_bytes()) as u32;
        let full = || ApiError::internal("InternalError", "failed to allocate a nodePort: range is full");
        self.take(base, PORTS, start).ok_or_else(full)
    }

    /// Why a client cannot have this port of nodes.
    fn refuses(&self, port: i64) -> Option<&'static str> {
        match u32::try_from(port) {
            Ok(n) if PORTS.contains(&n) => {
                self.0.contains(&n).then_some("provided port is already allocated")
            }
            _ => Some("provided port is not in the valid range. The range of valid ports is 30000-32767"),
        }
    }
}

/// Says of the spec of a service whether it needs something.
type Needs = fn(&Value) -> bool;

fn of_type(spec: &Value, kinds: &[&str]) -> bool {
    kinds.contains(&tree::text(spec, &["type"]))
}

fn addressed(spec: &Value) -> bool {
    !of_type(spec, &["ExternalName"])
}

fn balanced(spec: &Value) -> bool {
    of_type(spec, &["LoadBalancer"])
}

fn open(spec: &Value) -> bool {
    of_type(spec, &["LoadBalancer", "NodePort"])
}

/// Clients outside the cluster reach it.
fn reached(spec: &Value) -> bool {
    open(spec) || (of_type(spec, &["ClusterIP"]) && !tree::list(spec, &["externalIPs"]).is_empty())
}

/// A balancer asks each node whether it has pods of it.
pub(crate) fn checked(spec: &Value) -> bool {
    balanced(spec) && tree::text(spec, &["externalTrafficPolicy"]) == "Local"
}

fn invalid(service: &Value, cause: Cause) -> ApiError {
    ApiError::invalid("", "Service", tree::meta_text(service, "name"), vec![cause])
}

/// Allocates the addresses that a service's type needs; existing ones are kept.
pub fn settle(base: &Base, old: Option<&Value>, new: &mut Value) -> ApiResult<()> {
    let before = old.and_then(|o| o.get("spec"));
    if let Some(before) = before {
        drop_of_other_type(before, new);
    }
    if !new.get("spec").is_some_and(addressed) {
        elsewhere(tree::child(new, "spec"));
        return Ok(());
    }
    let had = before.filter(|s| addressed(s));
    let mut taken = Taken::of(base, tree::meta_text(old.unwrap_or(&Value::Null), "uid"));
    address(base, had, new, &mut taken)?;
    families(had, tree::child(new, "spec"));
    ports(base, had, new, &mut taken)?;
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

/// A service that stands for a name elsewhere; what else it asks for is refused later.
fn elsewhere(spec: &mut Map<String, Value>) {
    spec.remove("internalTrafficPolicy");
    if let Some(ip) = spec.get("clusterIP").cloned() {
        tree::default_to(spec, "clusterIPs", json!([ip]));
    }
}

/// Families of addresses. Endpoints of a service without address and selector come from others and may be of both.
fn families(had: Option<&Value>, spec: &mut Map<String, Value>) {
    let free = spec.get("clusterIP").is_some_and(|ip| ip == "None")
        && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty);
    let before = had.and_then(|s| s.get("ipFamilyPolicy")).cloned();
    let usual = if free { "RequireDualStack" } else { "SingleStack" };
    let policy = before.unwrap_or_else(|| usual.into());
    // Whoever makes a service does not own them: they come with its address.
    tree::default_to(spec, "ipFamilyPolicy", policy);
    tree::default_to(spec, "ipFamilies", json!(["IPv4"]));
    let dual = spec.get("ipFamilyPolicy").is_some_and(|policy| policy != "SingleStack");
    if let Some(Value::Array(list)) = spec.get_mut("ipFamilies").filter(|_| free && dual)
        && let [only] = list.as_slice()
    {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        list.push(other.into());
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
        (given, before) => {
            if given != before
                && let Some(cause) = refused_address(new, given, before, taken)
            {
                return Err(invalid(new, cause));
            }
            given.to_string()
        }
    };
    let spec = tree::child(new, "spec");
    spec.insert("clusterIPs".into(), json!([chosen]));
    spec.insert("clusterIP".into(), chosen.into());
    Ok(())
}

/// Why a client cannot have this address.
fn refused_address(service: &Value, given: &str, before: &str, taken: &Taken) -> Option<Cause> {
    const FIRST_ONE: &str = "spec.clusterIPs[0]";
    let list = json!([given]);
    let family = tree::list(service, &["spec", "ipFamilies"]).first().and_then(Value::as_str);
    let ip = match network::ip(given) {
        _ if given == "None" => None,
        Err(why) => return Some(Cause::invalid(FIRST_ONE, &json!(given), why)),
        Ok(ip) => Some(ip),
    };
    let other = match (ip, family) {
        (Some(IpAddr::V6(_)), None) => {
            return Some(Cause::invalid(FIRST_ONE, &list, "IPv6 is not configured on this cluster"));
        }
        (Some(IpAddr::V6(_)), Some("IPv4")) => Some("IPv4"),
        (Some(IpAddr::V4(_)), Some("IPv6")) => Some("IPv6"),
        _ => None,
    };
    if let Some(family) = other {
        let why = format!("expected an {family} value as indicated by `ipFamilies[0]`");
        return Some(Cause::invalid(FIRST_ONE, &json!(given), &why));
    }
    if !before.is_empty() {
        return Some(Cause::invalid(FIRST_ONE, &list, "may not change once set"));
    }
    // One of another family is refused for its family.
    let Some(IpAddr::V4(ip)) = ip else { return None };
    let number = u32::from(ip);
    let why = if !(FIRST..FIRST + ADDRESSES).contains(&number) {
        "the provided IP is not in the valid range 10.96.0.0/16"
    } else if taken.0.contains(&number) {
        "provided IP is already allocated"
    } else {
        return None;
    };
    Some(Cause::invalid("spec.clusterIPs", &list, &format!("failed to allocate IP {given}: {why}")))
}

/// Ports of nodes: those that are asked for, those of before, and then new ones for the rest.
fn ports(base: &Base, had: Option<&Value>, new: &mut Value, taken: &mut Taken) -> ApiResult<()> {
    let before = had.map(|s| tree::list(s, &["ports"])).unwrap_or_default();
    let same = |port: &Map<String, Value>| {
        let key = |p: &Value| (p.get("port").cloned(), p.get("protocol").cloned());
        let found =
            before.iter().find(|p| key(p) == (port.get("port").cloned(), port.get("protocol").cloned()));
        found.and_then(|p| p.get("nodePort")).cloned()
    };
    let name = tree::meta_text(new, "name").to_string();
    let kind = tree::text(new, &["spec", "type"]).to_string();
    let gives = match kind.as_str() {
        "NodePort" => true,
        "LoadBalancer" => {
            tree::at(new, &["spec", "allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false))
        }
        _ => false,
    };
    let (mut none, mut own, mut wrong) = (Vec::new(), BTreeSet::new(), None);
    let list = tree::child(new, "spec").get_mut("ports").and_then(Value::as_array_mut).unwrap_or(&mut none);
    for (i, port) in list.iter_mut().enumerate() {
        let port = tree::object(port);
        let field = format!("spec.ports[{i}].nodePort");
        let given = port.get("nodePort").and_then(Value::as_i64).unwrap_or(0);
        let known = same(port);
        if given == 0 {
            tree::put(port, "nodePort", known.filter(|_| gives));
        } else if kind == "ClusterIP" {
            wrong = Some(Cause::forbidden(field, "may not be used when `type` is 'ClusterIP'"));
        } else if known != Some(given.into())
            && let Some(why) = taken.refuses(given)
        {
            wrong = Some(Cause::invalid(field, &json!(given), why));
        }
        own.extend(port.get("nodePort").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()));
    }
    if let Some(cause) = wrong {
        return Err(invalid(new, cause));
    }
    taken.0.extend(own);
    for port in list.iter_mut().map(tree::object).filter(|port| gives && !port.contains_key("nodePort")) {
        port.insert("nodePort".into(), taken.port(base, &name)?.into());
    }
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

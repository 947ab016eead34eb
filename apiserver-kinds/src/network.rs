//! What kinds of the network share, and NetworkPolicies, addresses and their ranges.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36. Absent on purpose: giving out addresses
//! (see `services`).

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};

mod endpoints;
mod ingress;
mod service;

pub use endpoints::{endpoint_slice, endpoints};
pub use ingress::{ingress, ingress_class};
pub(crate) use service::cluster_ips;
pub use service::service;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// An address that others may read in another way, such as by octal numbers.
fn sloppy(text: &str) -> Option<IpAddr> {
    fn plain(part: &str) -> &str {
        match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            rest => rest,
        }
    }
    let v4 = || text.split('.').map(plain).collect::<Vec<_>>().join(".").parse::<Ipv4Addr>();
    text.parse().ok().or_else(|| v4().ok().map(IpAddr::V4))
}

/// An address, or what is wrong with it.
pub(crate) fn ip(text: &str) -> Result<IpAddr, &'static str> {
    match text.parse::<IpAddr>() {
        Ok(ip) if ip.to_canonical() != ip => Err("must not be an IPv4-mapped IPv6 address"),
        Ok(ip) => Ok(ip),
        Err(_) if sloppy(text).is_some() => Err("must not have leading 0s"),
        Err(_) => Err("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    }
}

/// A network and the length of its prefix, however it is written.
fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, length) = text.split_once('/')?;
    let (ip, digits) = (sloppy(ip)?, length.bytes().all(|b| b.is_ascii_digit()));
    let bits = length.parse::<u8>().ok().filter(|_| digits)?;
    (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
}

/// A network and the length of its prefix, or what is wrong with it.
pub(crate) fn cidr(text: &str) -> Result<(IpAddr, u8), &'static str> {
    let none = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let (ip, bits) = parse_cidr(text).ok_or(none)?;
    let host = (if ip.is_ipv4() { 32 } else { 128 }) - u32::from(bits);
    let zeros = |(ip, length): (&str, &str)| {
        ip.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0'))
    };
    if text.split_once('/').is_some_and(zeros) {
        Err("must not have leading 0s in IP or prefix length")
    } else if ip.to_canonical() != ip {
        Err("must not have an IPv4-mapped IPv6 address")
    } else if number_of(ip) & 1u128.checked_shl(host).map_or(u128::MAX, |n| n - 1) != 0 {
        Err("must not have bits set beyond the prefix length")
    } else {
        Ok((ip, bits))
    }
}

/// The texts of a list before. What is there already need not follow the rules that came later.
fn texts<'v>(list: &At<'v, '_>) -> Vec<&'v str> {
    list.items().map(|item| item.text()).collect()
}

/// Checks an address. True when it is one.
fn check_ip(at: &At, before: &[&str]) -> bool {
    let wrong = ip(at.text()).err().filter(|_| !before.contains(&at.text()));
    if let Some(why) = wrong {
        at.invalid(why);
    }
    wrong.is_none()
}

fn check_cidr(at: &At, before: &[&str]) {
    if let Some(why) = cidr(at.text()).err().filter(|_| !before.contains(&at.text())) {
        at.invalid(why);
    }
}

/// Where a balancer takes traffic in: an address, a name, or both.
fn check_point(point: &At, before: &[&str]) {
    let ip = point.at("ip");
    if !ip.text().is_empty() {
        check_ip(&ip, before);
    }
    check_host(&point.at("hostname"));
}

/// The name of a balancer, if it has one.
fn check_host(host: &At) {
    host.name(NameRule::Subdomain);
    if sloppy(host.text()).is_some() {
        host.invalid("must be a DNS name, not an IP address");
    }
}

/// An address that may stand for pods: none of the machine itself or of a link.
fn endpoint_ip(at: &At) {
    let Some(ip) = sloppy(at.text()).map(|ip| ip.to_canonical()) else {
        at.invalid("must be a valid IP address");
        return;
    };
    let (link, group) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        at.invalid(&format!("may not be unspecified ({})", at.text()));
    } else if ip.is_loopback() {
        at.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    } else if link {
        at.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    } else if group {
        at.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// A name that can be a part of a URL.
fn path_segment(at: &At) {
    let name = at.text();
    if matches!(name, "." | "..") {
        at.invalid(&format!("may not be '{name}'"));
        return;
    }
    for part in ["/", "%"].into_iter().filter(|part| name.contains(*part)) {
        at.invalid(&format!("may not contain '{part}'"));
    }
}

/// The kind or the name of what an object refers to.
fn need_segment(at: &At) {
    if at.text().is_empty() { at.required("") } else { path_segment(at) }
}

fn number_of(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// True when the second network lies within the first, and is smaller.
fn within(outer: (IpAddr, u8), inner: (IpAddr, u8)) -> bool {
    let bits: u32 = if outer.0.is_ipv4() { 32 } else { 128 };
    let host = bits - u32::from(outer.1);
    let cut = |ip: IpAddr| number_of(ip).checked_shr(host).unwrap_or(0);
    outer.0.is_ipv4() == inner.0.is_ipv4() && inner.1 > outer.1 && cut(outer.0) == cut(inner.0)
}

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// Checks a NetworkPolicy.
pub fn network_policy(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    let mut before = Vec::new();
    for (direction, peers) in DIRECTIONS {
        let Some(old) = old else { break };
        for rule in old.at("spec").at(direction).items() {
            for peer in rule.at(peers).items() {
                let block = peer.at("ipBlock");
                before.push(block.at("cidr").text());
                before.extend(texts(&block.at("except")));
            }
        }
    }
    spec.at("podSelector").label_selector();
    for (direction, peers) in DIRECTIONS {
        for rule in spec.at(direction).items() {
            rule.at("ports").items().for_each(|port| policy_port(&port));
            rule.at(peers).items().for_each(|peer| policy_peer(&peer, &before));
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        types.invalid("may not specify more than two policyTypes");
        return;
    }
    for kind in types.items().filter(|t| !matches!(t.text(), "Ingress" | "Egress")) {
        kind.unsupported(&["Ingress", "Egress"]);
    }
}

fn policy_port(at: &At) {
    at.at("protocol").one_of(&["TCP", "UDP", "SCTP"]);
    let (port, end) = (at.at("port"), at.at("endPort"));
    if port.number().is_some() {
        port.port();
    }
    match port.number() {
        None if !end.is_set() => {}
        None if port.is_set() => end.invalid("may not be specified when `port` is non-numeric"),
        None => end.invalid("may not be specified when `port` is not specified"),
        Some(first) => {
            if end.number().is_some_and(|end| end < first) {
                port.invalid_as(end.path(), "must be greater than or equal to `port`");
            }
            end.port();
        }
    }
    if port.number().is_none() && port.is_set() {
        port.port_or_name();
    }
}

fn policy_peer(at: &At, before: &[&str]) {
    let (block, pods, namespaces) = (at.at("ipBlock"), at.at("podSelector"), at.at("namespaceSelector"));
    pods.label_selector();
    namespaces.label_selector();
    let others = pods.is_set() || namespaces.is_set();
    if block.is_set() {
        policy_block(&block, before);
    }
    if !block.is_set() && !others {
        at.required("must specify a peer");
    } else if block.is_set() && others {
        at.forbidden("may not specify both ipBlock and another peer");
    }
}

fn policy_block(block: &At, before: &[&str]) {
    let whole = block.at("cidr");
    if whole.text().is_empty() {
        whole.required("");
        return;
    }
    check_cidr(&whole, before);
    let Some(outer) = parse_cidr(whole.text()) else { return };
    for part in block.at("except").items() {
        check_cidr(&part, before);
        if parse_cidr(part.text()).is_some_and(|inner| !within(outer, inner)) {
            part.invalid("must be a strict subset of `cidr`");
        }
    }
}

/// What is written in another form than the usual one.
fn canonical(at: &At, usual: &str) {
    if at.text() != usual {
        at.invalid(&format!("must be in canonical form ({usual:?})"));
    }
}

/// Checks an IPAddress.
pub fn ip_address(new: &At, old: Option<&At>) {
    let parent = new.at("spec.parentRef");
    if let Some(old) = old {
        parent.same_as(&old.at("spec.parentRef"));
        return;
    }
    let name = new.at("metadata.name");
    match ip(name.text()) {
        Ok(ip) => canonical(&name, &ip.to_string()),
        Err(why) => name.invalid(why),
    }
    if !parent.is_set() {
        parent.required("");
        return;
    }
    parent.at("group").name(NameRule::Subdomain);
    need_segment(&parent.at("resource"));
    need_segment(&parent.at("name"));
    path_segment(&parent.at("namespace"));
}

/// Checks a ServiceCIDR.
pub fn service_cidr(new: &At, old: Option<&At>) {
    let cidrs = new.at("spec.cidrs");
    let Some(old) = old else {
        service_ranges(&cidrs);
        return;
    };
    let before = old.at("spec.cidrs");
    // A second family may come later.
    let more = (before.len(), cidrs.len()) == (1, 2);
    if !more && before.len() != cidrs.len() {
        cidrs.invalid("field is immutable");
        return;
    }
    cidrs.items().zip(before.items()).for_each(|(range, was)| range.same_as(&was));
    if more {
        service_ranges(&cidrs);
    }
}

fn service_ranges(cidrs: &At) {
    if cidrs.is_empty() {
        cidrs.required("at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        let shown = json!({"CIDRs": cidrs.value()});
        cidrs.note(Cause::invalid(cidrs.path(), &shown, "may only hold up to 2 values"));
        return;
    }
    for range in cidrs.items() {
        match cidr(range.text()) {
            Ok((ip, bits)) => canonical(&range, &format!("{ip}/{bits}")),
            Err(why) => range.invalid(why),
        }
    }
    let families: Vec<_> =
        cidrs.items().filter_map(|range| Some(parse_cidr(range.text())?.0.is_ipv4())).collect();
    if let [first, second] = families[..]
        && first == second
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        cidrs.invalid(why);
    }
}

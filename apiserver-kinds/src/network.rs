//! Services, Endpoints, EndpointSlices, Ingresses, NetworkPolicies, addresses and their ranges.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36. Absent on purpose: giving out addresses
//! (see `services`).

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Longest time for which a client stays with its pod: a day.
const LONGEST_AFFINITY_S: i64 = 86_400;

/// Checks a Service.
pub fn service(new: &At) {
    let spec = new.at("spec");
    let (kind, address) = (spec.at("type"), spec.at("clusterIP"));
    kind.need_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    let headless = address.text() == "None";
    match kind.text() {
        "ExternalName" => {
            let name = spec.at("externalName");
            let host = name.text().trim_end_matches('.');
            if host.is_empty() {
                name.required("");
            } else if let Some(why) = validate::name(NameRule::Subdomain, host) {
                name.invalid(&why);
            }
        }
        "LoadBalancer" | "NodePort" if headless => {
            let ips = spec.at("clusterIPs");
            ips.key("0").invalid(&format!("may not be set to 'None' for {} services", kind.text()));
        }
        _ => {}
    }
    let ports = spec.at("ports");
    if ports.is_empty() && !headless && kind.text() != "ExternalName" {
        ports.required("");
    }
    service_ports(&ports);
    spec.at("selector").labels();
    affinity(&spec);
    families(&spec);
    let nearness = spec.at("trafficDistribution");
    if nearness.is_set() {
        nearness.need_one_of(&["PreferClose", "PreferSameNode", "PreferSameZone"]);
    }
    ingress_points(new, kind.text());
    let external = spec.at("externalIPs");
    external.items().for_each(|ip| outside_address(&ip));
    traffic(&spec, kind.text());
}

/// The server has addresses of IPv4 alone.
fn families(spec: &At) {
    let policy = spec.at("ipFamilyPolicy");
    policy.one_of(&["PreferDualStack", "RequireDualStack", "SingleStack"]);
    let addressed = spec.at("type").text() != "ExternalName";
    let headless = spec.at("clusterIP").text() == "None" && spec.at("selector").is_empty();
    if policy.text() == "RequireDualStack" && addressed && !headless {
        policy.invalid("this cluster is not configured for dual-stack services");
    }
    for family in spec.at("ipFamilies").items() {
        family.one_of(&["IPv4", "IPv6"]);
        if family.text() == "IPv6" && addressed && !headless {
            family.invalid("not configured on this cluster");
        }
    }
}

/// Where a load balancer takes traffic in.
fn ingress_points(new: &At, kind: &str) {
    let points = new.at("status.loadBalancer.ingress");
    if kind != "LoadBalancer" && !points.is_empty() {
        points.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    for point in points.items() {
        let (ip, mode) = (point.at("ip"), point.at("ipMode"));
        if !ip.text().is_empty() && ip.text().parse::<IpAddr>().is_err() {
            ip.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
        if ip.text().is_empty() && mode.is_set() {
            mode.forbidden("may not be specified when `ip` is not set");
        }
        mode.one_of(&["Proxy", "VIP"]);
        let host = point.at("hostname");
        host.name(NameRule::Subdomain);
        if host.text().parse::<IpAddr>().is_ok() {
            host.invalid("must be a DNS name, not an IP address");
        }
    }
}

/// An address that may stand for pods outside: none of the machine itself, of a link or of many.
fn outside_address(at: &At) {
    let Ok(ip) = at.text().parse::<IpAddr>() else {
        at.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        return;
    };
    let link = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0) == 0xfe80,
    };
    if ip.is_unspecified() {
        at.invalid("may not be unspecified (0.0.0.0 or ::)");
    } else if ip.is_loopback() {
        at.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    } else if link {
        at.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    } else if ip.is_multicast() {
        at.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn service_ports(ports: &At) {
    let (mut names, mut numbers, mut outside) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for port in ports.items() {
        let (name, number, protocol) = (port.at("name"), port.at("port"), port.at("protocol"));
        if name.text().is_empty() {
            if ports.len() > 1 {
                name.required("");
            }
        } else {
            name.name(NameRule::Label);
            if !names.insert(name.text()) {
                name.duplicate();
            }
        }
        if number.is_set() {
            number.port()
        } else {
            number.invalid("must be between 1 and 65535, inclusive")
        }
        protocol.need_one_of(&PROTOCOLS);
        let target = port.at("targetPort");
        if target.is_set() {
            target.port_or_name();
        }
        let application = port.at("appProtocol");
        if application.is_set() {
            application.qualified();
        }
        if !numbers.insert((number.number(), protocol.text())) {
            port.duplicate();
        }
        let node = port.at("nodePort");
        if node.number().is_some_and(|n| n > 0) && !outside.insert((node.number(), protocol.text())) {
            node.duplicate();
        }
    }
}

fn affinity(spec: &At) {
    let (kind, config) = (spec.at("sessionAffinity"), spec.at("sessionAffinityConfig"));
    kind.need_one_of(&["ClientIP", "None"]);
    match kind.text() {
        "None" if config.is_set() => config.forbidden("must not be set when session affinity is None"),
        "ClientIP" if config.is_set() => {
            let seconds = config.at("clientIP.timeoutSeconds");
            if !seconds.number().is_some_and(|n| n > 0 && n <= LONGEST_AFFINITY_S) {
                seconds.invalid("must be greater than 0 and less than 86400");
            }
        }
        _ => {}
    }
}

fn traffic(spec: &At, kind: &str) {
    let (external, inside) = (spec.at("externalTrafficPolicy"), spec.at("internalTrafficPolicy"));
    let open = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !spec.at("externalIPs").is_empty());
    if external.is_set() && !external.text().is_empty() {
        if !open {
            external.invalid("may only be set for externally-accessible services");
        }
        external.one_of(&["Cluster", "Local"]);
    }
    inside.one_of(&["Cluster", "Local"]);
    let health = spec.at("healthCheckNodePort");
    if health.number().is_some_and(|n| n != 0) && !(kind == "LoadBalancer" && external.text() == "Local") {
        health
            .invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'");
    }
    let ranges = spec.at("loadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        let path = format!("{}.LoadBalancerSourceRanges", spec.path());
        ranges.note(Cause::forbidden(path, "may only be used when `type` is 'LoadBalancer'"));
    }
    ranges.items().for_each(|range| cidr(&range));
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        let field = spec.at(field);
        if field.is_set() && kind != "LoadBalancer" {
            field.forbidden("may only be used when `type` is 'LoadBalancer'");
        }
    }
}

/// A network and the length of its prefix.
fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, bits) = text.split_once('/')?;
    let (ip, bits) = (ip.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
    (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
}

fn cidr(at: &At) {
    if parse_cidr(at.text()).is_none() {
        at.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    }
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

/// Checks Endpoints.
pub fn endpoints(new: &At) {
    for subset in new.at("subsets").items() {
        let lists = [subset.at("addresses"), subset.at("notReadyAddresses")];
        if lists.iter().all(|l| l.is_empty()) {
            subset.required("must specify `addresses` or `notReadyAddresses`");
        }
        for list in &lists {
            for address in list.items() {
                outside_address(&address.at("ip"));
                address.at("hostname").name(NameRule::Label);
            }
        }
        let ports = subset.at("ports");
        for port in ports.items() {
            let name = port.at("name");
            if ports.len() > 1 && name.text().is_empty() {
                name.required("");
            }
            name.name(NameRule::Label);
            let number = port.at("port");
            if number.is_set() {
                number.port()
            } else {
                number.invalid("must be between 1 and 65535, inclusive")
            }
            port.at("protocol").need_one_of(&PROTOCOLS);
        }
    }
}

/// Most endpoints of a slice, addresses of one, and ports.
const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;

/// Checks an EndpointSlice.
pub fn endpoint_slice(new: &At, old: Option<&At>) {
    let family = new.at("addressType");
    family.need_one_of(&["FQDN", "IPv4", "IPv6"]);
    if let Some(old) = old {
        family.same_as(&old.at("addressType"));
    }
    let endpoints = new.at("endpoints");
    if endpoints.len() > MOST_ENDPOINTS {
        endpoints.too_many(MOST_ENDPOINTS);
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            addresses.required("must contain at least 1 address");
        } else if addresses.len() > MOST_ADDRESSES {
            addresses.too_many(MOST_ADDRESSES);
        }
        for address in addresses.items() {
            match (family.text(), address.text().parse::<IpAddr>()) {
                ("IPv4", Ok(IpAddr::V4(_))) | ("IPv6", Ok(IpAddr::V6(_))) => outside_address(&address),
                ("IPv4", _) => address.invalid("must be an IPv4 address"),
                ("IPv6", _) => address.invalid("must be an IPv6 address"),
                _ => address.name(NameRule::Subdomain),
            }
        }
        endpoint.at("hostname").name(NameRule::Label);
        endpoint.at("nodeName").name(NameRule::Subdomain);
    }
    let ports = new.at("ports");
    if ports.len() > MOST_PORTS {
        ports.too_many(MOST_PORTS);
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.at("name");
        name.name(NameRule::Label);
        if !names.insert(name.text()) {
            name.duplicate();
        }
        port.at("port").port();
        port.at("protocol").need_one_of(&PROTOCOLS);
    }
}

/// Checks an Ingress.
pub fn ingress(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    if old.is_none() {
        let (notes, named) = (new.at("metadata.annotations"), spec.at("ingressClassName"));
        let note = notes.key("kubernetes.io/ingress.class");
        if note.is_set() && named.is_set() && note.text() != named.text() {
            let why = "must match `ingressClassName` when both are specified";
            note.invalid_as("annotations.kubernetes.io/ingress.class".into(), why);
        }
    }
    let (rules, fallback) = (spec.at("rules"), spec.at("defaultBackend"));
    if rules.is_empty() && !fallback.is_set() {
        spec.invalid("either `defaultBackend` or `rules` must be specified");
    }
    if fallback.is_set() {
        backend(&fallback);
    }
    spec.at("ingressClassName").name(NameRule::Subdomain);
    for rule in rules.items() {
        host(&rule.at("host"));
        let http = rule.at("http");
        if !http.is_set() {
            continue;
        }
        let paths = http.at("paths");
        if paths.is_empty() {
            paths.required("");
        }
        paths.items().for_each(|path| ingress_path(&path));
    }
    for tls in spec.at("tls").items() {
        tls.at("hosts").items().for_each(|name| host(&name));
    }
}

fn host(at: &At) {
    let name = at.text();
    if name.is_empty() {
        return;
    }
    if name.parse::<IpAddr>().is_ok() {
        at.invalid("must be a DNS name, not an IP address");
    } else if name.contains('*') {
        let rest = name.strip_prefix("*.").unwrap_or("");
        if rest.is_empty() || validate::name(NameRule::Subdomain, rest).is_some() {
            at.invalid(
                "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            );
        }
    } else {
        at.name(NameRule::Subdomain);
    }
}

fn ingress_path(at: &At) {
    let (kind, path) = (at.at("pathType"), at.at("path"));
    match kind.text() {
        "" => kind.required("pathType must be specified"),
        "Exact" | "Prefix" => {
            if !path.text().starts_with('/') {
                path.invalid("must be an absolute path");
            }
            for wrong in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(wrong) {
                    path.invalid(&format!("must not contain '{wrong}'"));
                }
            }
            for end in ["/..", "/."] {
                if path.text().ends_with(end) {
                    path.invalid(&format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.text().is_empty() && !path.text().starts_with('/') {
                path.invalid("must be an absolute path");
            }
        }
        _ => kind.unsupported(&["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&at.at("backend"));
}

fn backend(at: &At) {
    let (service, resource) = (at.at("service"), at.at("resource"));
    match (service.is_set(), resource.is_set()) {
        (true, true) => at.invalid("cannot set both resource and service backends"),
        (false, true) => {
            resource.at("name").need();
            resource.at("kind").need();
        }
        (false, false) => at.required("must specify either a resource or service backend"),
        (true, false) => {
            service.at("name").need_name(NameRule::Label);
            let (name, number) = (service.at("port.name"), service.at("port.number"));
            match (!name.text().is_empty(), number.number().is_some_and(|n| n != 0)) {
                (true, true) => at.invalid("cannot set both port name & port number"),
                (true, false) => name.port_name(),
                (false, true) => number.port(),
                (false, false) => at.required("port name or number is required"),
            }
        }
    }
}

/// Checks an IngressClass.
pub fn ingress_class(new: &At, old: Option<&At>) {
    let controller = new.at("spec.controller");
    let fine = controller.text().split_once('/').is_some_and(|(domain, path)| {
        validate::name(NameRule::Subdomain, domain).is_none() && !path.is_empty()
    });
    if controller.text().is_empty() {
        controller.required("");
    } else if !fine {
        controller.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")");
    }
    if let Some(old) = old {
        controller.same_as(&old.at("spec.controller"));
    }
    let parameters = new.at("spec.parameters");
    if parameters.is_set() {
        parameters.at("kind").need();
        parameters.at("name").need();
        parameters.at("scope").need_one_of(&["Cluster", "Namespace"]);
    }
}

/// Checks a NetworkPolicy.
pub fn network_policy(new: &At) {
    let spec = new.at("spec");
    spec.at("podSelector").label_selector();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(direction).items() {
            for port in rule.at("ports").items() {
                policy_port(&port);
            }
            for peer in rule.at(peers).items() {
                policy_peer(&peer);
            }
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        types.invalid("may not specify more than two policyTypes");
    }
    for kind in types.items().filter(|t| !matches!(t.text(), "Ingress" | "Egress")) {
        kind.unsupported(&["Egress", "Ingress"]);
    }
}

fn policy_port(at: &At) {
    at.at("protocol").one_of(&PROTOCOLS);
    let (port, end) = (at.at("port"), at.at("endPort"));
    if port.is_set() {
        port.port_or_name();
    }
    if !end.is_set() {
        return;
    }
    match port.number() {
        None if port.is_set() => end.invalid("may not be specified when `port` is non-numeric"),
        None => end.invalid("may not be specified when `port` is not specified"),
        Some(first) if end.number().unwrap_or(0) < first => {
            end.invalid("must be greater than or equal to `port`");
        }
        Some(_) => end.port(),
    }
}

fn policy_peer(at: &At) {
    let (block, pods, namespaces) = (at.at("ipBlock"), at.at("podSelector"), at.at("namespaceSelector"));
    pods.label_selector();
    namespaces.label_selector();
    let others = pods.is_set() || namespaces.is_set();
    if !block.is_set() && !others {
        at.required("must specify a peer");
    } else if block.is_set() && others {
        at.forbidden("may not specify both ipBlock and another peer");
    }
    if !block.is_set() {
        return;
    }
    let whole = block.at("cidr");
    if whole.text().is_empty() {
        whole.required("");
        return;
    }
    cidr(&whole);
    let Some(outer) = parse_cidr(whole.text()) else { return };
    for part in block.at("except").items() {
        cidr(&part);
        if parse_cidr(part.text()).is_some_and(|inner| !within(outer, inner)) {
            part.invalid("must be a strict subset of `cidr`");
        }
    }
}

/// Checks an IPAddress.
pub fn ip_address(new: &At, old: Option<&At>) {
    let name = new.at("metadata.name");
    if !name.text().parse::<IpAddr>().is_ok_and(|ip| ip.to_string() == name.text()) {
        name.invalid("must be a valid IP address in canonical form");
    }
    let parent = new.at("spec.parentRef");
    if !parent.is_set() {
        parent.required("");
    } else {
        parent.at("resource").need();
        parent.at("name").need();
    }
    if let Some(old) = old
        && !same(parent.value(), old.at("spec.parentRef").value())
    {
        parent.invalid("field is immutable");
    }
}

/// Checks a ServiceCIDR.
pub fn service_cidr(new: &At, old: Option<&At>) {
    let cidrs = new.at("spec.cidrs");
    if cidrs.is_empty() {
        cidrs.required("at least one CIDR required");
    } else if cidrs.len() > 2 {
        cidrs.invalid("may only hold up to 2 values");
    }
    for range in cidrs.items() {
        cidr(&range);
        if let Some((ip, bits)) = parse_cidr(range.text()) {
            let host = (if ip.is_ipv4() { 32 } else { 128 }) - u32::from(bits);
            let rest = number_of(ip) & 1u128.checked_shl(host).map_or(u128::MAX, |n| n - 1);
            if rest != 0 {
                range.invalid("must be in canonical form");
            }
        }
    }
    if let Some(old) = old {
        let before = old.at("spec.cidrs");
        let kept = before.items().zip(cidrs.items()).all(|(a, b)| a.text() == b.text());
        if !kept || cidrs.len() < before.len() {
            cidrs.note(Cause::invalid(cidrs.path(), &json!(cidrs.value()), "field is immutable"));
        }
    }
}

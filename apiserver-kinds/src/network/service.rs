//! Services.
//!
//! Inputs: decoded objects, defaults applied, addresses given out.

use super::{PROTOCOLS, check_host, check_ip, cidr, endpoint_ip, texts};
use crate::services::needs::checked;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::names;
use fleet_apiserver_schema::validate::NameRule;
use serde_json::json;
use std::collections::BTreeSet;

/// Longest time for which a client stays with its pod: a day.
const LONGEST_AFFINITY_S: i64 = 86_400;
const NEARNESS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Checks a Service.
pub fn service(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    let (kind, ports) = (spec.at("type"), spec.at("ports"));
    if subresource == "status" {
        ingress_points(new, old, kind.text());
        return;
    }
    let before = old.map(|old| old.at("spec"));
    if let Some(before) = &before {
        lasting(&spec, before);
    }
    hints(&new.at("metadata.annotations"));
    if ports.is_empty() && !headless(&spec) && kind.text() != "ExternalName" {
        ports.required("");
    }
    match kind.text() {
        "ExternalName" => elsewhere(&spec),
        "LoadBalancer" | "NodePort" if headless(&spec) => {
            let why = format!("may not be set to 'None' for {} services", kind.text());
            spec.at("clusterIP").invalid_as(format!("{}.clusterIPs[0]", spec.path()), &why);
        }
        _ => {}
    }
    service_ports(&ports);
    spec.at("selector").labels();
    affinity(&spec);
    let known = |field: &str| before.as_ref().map_or_else(Vec::new, |before| texts(&before.at(field)));
    cluster_ips(&spec, &known("clusterIPs"));
    let outside = known("externalIPs");
    for ip in spec.at("externalIPs").items() {
        if check_ip(&ip, &outside) {
            endpoint_ip(&ip);
        }
    }
    kind.need_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    if kind.text() == "ClusterIP" {
        for port in ports.items().filter(|port| port.at("nodePort").number().is_some_and(|n| n != 0)) {
            port.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'");
        }
    }
    no_port_twice(&ports);
    source_ranges(new, &known("loadBalancerSourceRanges"), old);
    let given = spec.at("allocateLoadBalancerNodePorts");
    if given.is_set() && kind.text() != "LoadBalancer" {
        given.forbidden(FOR_BALANCERS);
    }
    balancer_class(&spec);
    traffic(&spec, kind.text());
    let nearness = spec.at("trafficDistribution");
    if nearness.is_set() && !NEARNESS.contains(&nearness.text()) {
        nearness.unsupported(&NEARNESS);
    }
}

const FOR_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

fn headless(spec: &At) -> bool {
    let ips = spec.at("clusterIPs");
    ips.len() == 1 && ips.items().all(|ip| ip.text() == "None")
}

/// What a service keeps. This is told before anything else.
fn lasting(spec: &At, before: &At) {
    let both = [spec, before];
    let addressed = both.iter().all(|spec| spec.at("type").text() != "ExternalName");
    if addressed && !both.iter().all(|spec| headless(spec)) {
        let (ips, had) = (spec.at("clusterIPs"), before.at("clusterIPs"));
        for (i, _) in
            ips.items().zip(had.items()).enumerate().filter(|(_, (ip, was))| ip.text() != was.text())
        {
            ips.invalid_as(format!("{}[{i}]", ips.path()), "may not change once set");
        }
    }
    let class = spec.at("loadBalancerClass");
    let balanced = both.iter().all(|spec| spec.at("type").text() == "LoadBalancer");
    if balanced && !same(class.value(), before.at("loadBalancerClass").value()) {
        class.invalid("may not change once set");
    }
    balancer_class(spec);
    let health = spec.at("healthCheckNodePort");
    let asked = both.iter().all(|spec| checked(spec.value()));
    if asked && health.number() != before.at("healthCheckNodePort").number() {
        health.forbidden("field is immutable");
    }
}

/// The older and the newer annotation for routes that keep to a zone.
fn hints(notes: &At) {
    const OLDER: &str = "service.kubernetes.io/topology-aware-hints";
    let (mode, older) = (notes.key("service.kubernetes.io/topology-mode"), notes.key(OLDER));
    if mode.is_set() && older.is_set() && mode.text() != older.text() {
        mode.invalid(&format!("must match annotations[{OLDER}] when both are specified"));
    }
}

/// A service that stands for a name elsewhere has no address here.
fn elsewhere(spec: &At) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let field = spec.at(field);
        if !field.is_empty() {
            field.forbidden("may not be set for ExternalName services");
        }
    }
    let name = spec.at("externalName");
    match name.text().strip_suffix('.').unwrap_or(name.text()) {
        "" => name.required(""),
        host => name.tell(host, &names::subdomain(host)),
    }
}

const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Checks how the addresses of a service and their families go together; `known` are the addresses it had.
pub(crate) fn cluster_ips(spec: &At, known: &[&str]) {
    if spec.at("type").text() == "ExternalName" {
        return;
    }
    let (one, all) = (spec.at("clusterIP"), spec.at("clusterIPs"));
    match all.items().next().map(|ip| ip.text()) {
        None if !one.text().is_empty() => all.required(""),
        Some(_) if one.text().is_empty() => all.invalid("must be empty when `clusterIP` is not specified"),
        Some(first) if first != one.text() => all.invalid("first value must match `clusterIP`"),
        _ => {}
    }
    let (families, policy) = (spec.at("ipFamilies"), spec.at("ipFamilyPolicy"));
    let mut seen = BTreeSet::new();
    for family in families.items() {
        if !matches!(family.text(), "IPv4" | "IPv6") {
            family.unsupported(&["IPv4", "IPv6"]);
        }
        if !seen.insert(family.text()) {
            family.duplicate();
        }
    }
    if policy.is_set() && !POLICIES.contains(&policy.text()) {
        policy.unsupported(&POLICIES);
    }
    let mut wrong = false;
    for (i, ip) in all.items().enumerate() {
        if i > 0 || ip.text() != "None" {
            wrong |= !check_ip(&ip, known);
        } else if all.len() > 1 {
            all.invalid("'None' must be the first and only value");
            wrong = true;
        }
    }
    if all.len() > 2 {
        all.invalid("may only hold up to 2 values");
    }
    if wrong {
        return;
    }
    let six: Vec<bool> = all.items().map(|ip| ip.text().contains(':')).collect();
    if six.len() > 1 && !(six.contains(&true) && six.contains(&false)) {
        all.invalid("may specify no more than one IP for each IP family");
    }
    for ((i, ip), family) in all.items().enumerate().zip(families.items()).filter(|_| !headless(spec)) {
        let wanted = family.text();
        let other = if ip.text().contains(':') { "IPv4" } else { "IPv6" };
        if wanted == other {
            ip.invalid(&format!("expected an {wanted} value as indicated by `ipFamilies[{i}]`"));
        }
    }
}

/// Where a load balancer takes traffic in.
fn ingress_points(new: &At, old: Option<&At>, kind: &str) {
    const POINTS: &str = "status.loadBalancer.ingress";
    let points = new.at(POINTS);
    if kind != "LoadBalancer" && !points.is_empty() {
        points.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    let mut before = Vec::new();
    if let Some(old) = old {
        before.extend(old.at(POINTS).items().map(|point| point.at("ip").text()));
    }
    for point in points.items() {
        let (ip, mode) = (point.at("ip"), point.at("ipMode"));
        if !ip.text().is_empty() {
            check_ip(&ip, &before);
            mode.need_one_of(&["Proxy", "VIP"]);
        } else if mode.is_set() {
            mode.forbidden("may not be specified when `ip` is not set");
        }
        check_host(&point.at("hostname"));
    }
}

fn service_ports(ports: &At) {
    let mut names = BTreeSet::new();
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
            number.note(Cause::invalid(number.path(), &json!(0), "must be between 1 and 65535, inclusive"))
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
    }
}

/// No two ports are the same to nodes, or to pods.
fn no_port_twice(ports: &At) {
    let (mut numbers, mut outside) = (BTreeSet::new(), BTreeSet::new());
    for port in ports.items() {
        let (node, protocol) = (port.at("nodePort"), port.at("protocol"));
        if node.number().is_some_and(|n| n != 0) && !outside.insert((node.number(), protocol.text())) {
            node.duplicate();
        }
    }
    for port in ports.items() {
        let key = (port.at("port").number().unwrap_or(0), port.at("protocol").text());
        if !numbers.insert(key) {
            // The two that make it one port, in the form of the server's own type.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{:?},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                key.1, key.0
            );
            port.note(Cause::new("FieldValueDuplicate", port.path(), format!("Duplicate value: {shown}")));
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
    if open {
        external.need_one_of(&["Cluster", "Local"]);
    } else if !external.text().is_empty() {
        external.invalid("may only be set for externally-accessible services");
    }
    let health = spec.at("healthCheckNodePort");
    match health.number().unwrap_or(0) {
        0 if checked(spec.value()) => health.required(""),
        _ if checked(spec.value()) => health.port(),
        0 => {}
        _ => {
            health.invalid(
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            );
        }
    }
    if inside.is_set() && !matches!(inside.text(), "Cluster" | "Local") {
        inside.unsupported(&["Cluster", "Local"]);
    }
}

fn balancer_class(spec: &At) {
    let class = spec.at("loadBalancerClass");
    match spec.at("type").text() {
        _ if !class.is_set() => {}
        "LoadBalancer" => class.qualified(),
        _ => class.forbidden(FOR_BALANCERS),
    }
}

/// From where a balancer takes traffic, by a field or, as long as there is none, by an annotation.
fn source_ranges(new: &At, known: &[&str], old: Option<&At>) {
    const NOTE: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let (spec, notes) = (new.at("spec"), new.at("metadata.annotations"));
    let (ranges, note) = (spec.at("loadBalancerSourceRanges"), notes.key(NOTE));
    let path =
        if ranges.is_empty() { note.path() } else { format!("{}.LoadBalancerSourceRanges", spec.path()) };
    if ranges.is_empty() && !note.is_set() {
        return;
    }
    if spec.at("type").text() != "LoadBalancer" {
        new.note(Cause::forbidden(path.as_str(), FOR_BALANCERS));
    }
    let tell = |field: String, text: &str| {
        if let Err(why) = cidr(text) {
            new.note(Cause::invalid(field, &json!(text), why));
        }
    };
    for (i, range) in ranges.items().enumerate() {
        // Blanks around it have always been let through.
        let text = range.text().trim();
        if !known.iter().any(|known| known.trim() == text) {
            tell(format!("{path}[{i}]"), text);
        }
    }
    let before = old.map(|old| old.at("metadata.annotations").key(NOTE).text());
    if ranges.is_empty() && before != Some(note.text()) && !note.text().trim().is_empty() {
        note.text().split(',').for_each(|text| tell(path.clone(), text.trim()));
    }
}

//! Services.
//!
//! Inputs: decoded objects, defaults applied, addresses given out.

use super::{PROTOCOLS, check_ip, check_point, cidr, endpoint_ip, texts};
use crate::services::checked;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::json;
use std::collections::BTreeSet;

/// Longest time for which a client stays with its pod: a day.
const LONGEST_AFFINITY_S: i64 = 86_400;
const NEARNESS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Checks a Service.
pub fn service(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    let (kind, address) = (spec.at("type"), spec.at("clusterIP"));
    if subresource == "status" {
        ingress_points(new, old, kind.text());
        return;
    }
    kind.need_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    let headless = address.text() == "None";
    match kind.text() {
        "ExternalName" => elsewhere(&spec),
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
    if nearness.is_set() && !NEARNESS.contains(&nearness.text()) {
        nearness.unsupported(&NEARNESS);
    }
    let before = old.map(|old| old.at("spec"));
    let known = before.as_ref().map_or_else(Vec::new, |before| texts(&before.at("externalIPs")));
    for ip in spec.at("externalIPs").items() {
        if check_ip(&ip, &known) {
            endpoint_ip(&ip);
        }
    }
    traffic(&spec, kind.text());
    balancer(&spec, before.as_ref(), kind.text());
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
    let host = name.text().strip_suffix('.').unwrap_or(name.text());
    if host.is_empty() {
        name.required("");
    } else if let Some(why) = validate::name(NameRule::Subdomain, host) {
        name.invalid(&why);
    }
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
        let mode = point.at("ipMode");
        if point.at("ip").text().is_empty() && mode.is_set() {
            mode.forbidden("may not be specified when `ip` is not set");
        }
        mode.one_of(&["Proxy", "VIP"]);
        check_point(&point, &before);
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
        let key = (number.number().unwrap_or(0), protocol.text());
        if !numbers.insert(key) {
            // The two that make it one port, in the form of the server's own type.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{:?},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                key.1, key.0
            );
            port.note(Cause::new("FieldValueDuplicate", port.path(), format!("Duplicate value: {shown}")));
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
}

/// What only balancers read.
fn balancer(spec: &At, before: Option<&At>, kind: &str) {
    let health = spec.at("healthCheckNodePort");
    let was = before.filter(|before| checked(before.value())).map(|before| before.at("healthCheckNodePort"));
    match was {
        _ if !checked(spec.value()) => {
            if health.number().is_some_and(|n| n != 0) {
                let why =
                    "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
                health.invalid(why);
            }
        }
        Some(was) if was.number() != health.number() => health.forbidden("field is immutable"),
        _ => health.port(),
    }
    let ranges = spec.at("loadBalancerSourceRanges");
    let path = format!("{}.LoadBalancerSourceRanges", spec.path());
    if !ranges.is_empty() && kind != "LoadBalancer" {
        ranges.note(Cause::forbidden(path.as_str(), "may only be used when `type` is 'LoadBalancer'"));
    }
    let known = before.map_or_else(Vec::new, |before| texts(&before.at("loadBalancerSourceRanges")));
    for (i, range) in ranges.items().enumerate() {
        // Blanks around it have always been let through.
        let text = range.text().trim();
        if !known.iter().any(|known| known.trim() == text)
            && let Err(why) = cidr(text)
        {
            range.note(Cause::invalid(format!("{path}[{i}]"), &json!(text), why));
        }
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        let field = spec.at(field);
        if field.is_set() && kind != "LoadBalancer" {
            field.forbidden("may only be used when `type` is 'LoadBalancer'");
        }
    }
    let class = spec.at("loadBalancerClass");
    if kind == "LoadBalancer" {
        let was = before.filter(|before| before.at("type").text() == kind);
        if was.is_some_and(|was| !same(class.value(), was.at("loadBalancerClass").value())) {
            class.invalid("may not change once set");
        }
        if class.is_set() {
            class.qualified();
        }
    }
}

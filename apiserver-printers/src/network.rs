//! Cells of services, and of what leads to them.

use super::storage;
use super::text::{age, few, join, labels, or, selected, texts};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Most ports, addresses or hosts in a cell.
const FEW: usize = 3;

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    match r.plural.as_str() {
        "services" => out.extend([
            json!(text(v, &["spec", "type"])),
            or(text(v, &["spec", "clusterIP"]), "<none>"),
            outside(v),
            or(&ports(v), "<none>"),
            old(),
            labels(at(v, &["spec", "selector"])),
        ]),
        "endpoints" => out.extend([json!(endpoints(v)), old()]),
        "endpointslices" => {
            let ports = list(v, &["ports"]).iter().map(|p| match (at(p, &["port"]), at(p, &["name"])) {
                (Some(port), _) => port.to_string(),
                (None, Some(name)) => name.as_str().unwrap_or_default().to_string(),
                (None, None) => "*".to_string(),
            });
            let ends = list(v, &["endpoints"]).iter().flat_map(|e| texts(e, &["addresses"]));
            let (ports, ends): (Vec<_>, Vec<_>) = (ports.collect(), ends.map(str::to_string).collect());
            out.extend([
                json!(text(v, &["addressType"])),
                or(&few(&ports, FEW, ","), "<unset>"),
                or(&few(&ends, FEW, ","), "<unset>"),
                old(),
            ]);
        }
        "ingresses" => out.extend([
            or(text(v, &["spec", "ingressClassName"]), "<none>"),
            json!(hosts(v)),
            json!(balancer(v)),
            json!(if list(v, &["spec", "tls"]).is_empty() { "80" } else { "80, 443" }),
            old(),
        ]),
        "ingressclasses" => {
            let parameters = at(v, &["spec", "parameters"]).map(|p| match at(p, &["apiGroup"]) {
                Some(group) => {
                    let group = group.as_str().unwrap_or_default();
                    format!("{}.{group}/{}", text(p, &["kind"]), text(p, &["name"]))
                }
                None => format!("{}/{}", text(p, &["kind"]), text(p, &["name"])),
            });
            let parameters = or(&parameters.unwrap_or_default(), "<none>");
            out.extend([json!(text(v, &["spec", "controller"])), parameters, old()]);
        }
        "networkpolicies" => out.extend([selected(at(v, &["spec", "podSelector"])), old()]),
        "servicecidrs" => out.extend([json!(texts(v, &["spec", "cidrs"]).join(",")), old()]),
        "ipaddresses" => out.extend([or(&parent(v), "<none>"), old()]),
        _ => storage::fill(r, v, now, out),
    }
}

/// Where a service answers from outside.
fn outside(v: &Value) -> Value {
    let given = texts(v, &["spec", "externalIPs"]).join(",");
    match text(v, &["spec", "type"]) {
        "ClusterIP" | "NodePort" => or(&given, "<none>"),
        "LoadBalancer" => join([balancer(v).as_str(), given.as_str()].into_iter(), "<pending>"),
        "ExternalName" => json!(text(v, &["spec", "externalName"])),
        _ => json!("<unknown>"),
    }
}

/// Where a load balancer answers, in order.
fn balancer(v: &Value) -> String {
    let points = list(v, &["status", "loadBalancer", "ingress"]).iter();
    let all = points.map(|point| match text(point, &["ip"]) {
        "" => text(point, &["hostname"]),
        ip => ip,
    });
    let all: BTreeSet<&str> = all.filter(|point| !point.is_empty()).collect();
    all.into_iter().collect::<Vec<_>>().join(",")
}

fn ports(v: &Value) -> String {
    let one = |p: &Value| {
        let node = match number(p, &["nodePort"]) {
            node if node > 0 => format!(":{node}"),
            _ => String::new(),
        };
        format!("{}{node}/{}", number(p, &["port"]), text(p, &["protocol"]))
    };
    list(v, &["spec", "ports"]).iter().map(one).collect::<Vec<_>>().join(",")
}

fn endpoints(v: &Value) -> String {
    let subsets = list(v, &["subsets"]);
    let mut all = Vec::new();
    for subset in subsets {
        let ips = || list(subset, &["addresses"]).iter().map(|a| text(a, &["ip"]));
        let ports = list(subset, &["ports"]);
        if ports.is_empty() {
            all.extend(ips().map(str::to_string));
        }
        for port in ports {
            let port = number(port, &["port"]);
            all.extend(
                ips().map(
                    |ip| {
                        if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                    },
                ),
            );
        }
    }
    if subsets.is_empty() { "<none>".into() } else { few(&all, FEW, ",") }
}

/// Hosts of the rules. Rules without one count among those that are not shown.
fn hosts(v: &Value) -> String {
    let rules = list(v, &["spec", "rules"]);
    let (mut hosts, mut more) = (Vec::new(), false);
    for rule in rules {
        more |= hosts.len() == FEW;
        let host = text(rule, &["host"]);
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match hosts.join(",") {
        shown if more => format!("{shown} + {} more...", rules.len().saturating_sub(FEW)),
        shown if shown.is_empty() => "*".into(),
        shown => shown,
    }
}

/// What an address belongs to: `resource.group/namespace/name`.
fn parent(v: &Value) -> String {
    let Some(parent) = at(v, &["spec", "parentRef"]) else { return String::new() };
    let part = |key: &str| text(parent, &[key]);
    let mut shown = part("resource").to_lowercase();
    if !part("group").is_empty() {
        shown = format!("{shown}.{}", part("group").to_lowercase());
    }
    if !part("namespace").is_empty() {
        shown = format!("{shown}/{}", part("namespace"));
    }
    format!("{shown}/{}", part("name"))
}

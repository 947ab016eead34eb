//! Endpoints and EndpointSlices.
//!
//! Inputs: decoded objects, defaults applied.

use super::{PROTOCOLS, canonical, check_ip, endpoint_ip, ip};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::names;
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::json;
use std::collections::BTreeSet;

/// True when a part is what it was: older servers may have let it through.
fn unchanged(new: &At, old: Option<&At>, part: &str) -> bool {
    old.is_some_and(|old| same(old.at(part).value(), new.at(part).value()))
}

/// Checks Endpoints.
pub fn endpoints(new: &At, old: Option<&At>) {
    if unchanged(new, old, "subsets") {
        return;
    }
    for subset in new.at("subsets").items() {
        let lists = [subset.at("addresses"), subset.at("notReadyAddresses")];
        if lists.iter().all(|l| l.is_empty()) {
            subset.required("must specify `addresses` or `notReadyAddresses`");
        }
        for list in &lists {
            for address in list.items() {
                let ip = address.at("ip");
                check_ip(&ip, &[]);
                address.at("hostname").name(NameRule::Label);
                address.at("nodeName").name(NameRule::Subdomain);
                endpoint_ip(&ip);
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
            application(&port);
        }
    }
}

/// What is spoken at a port, if that is said.
fn application(port: &At) {
    let application = port.at("appProtocol");
    if application.is_set() {
        application.qualified();
    }
}

/// Most endpoints of a slice, addresses of one, and ports.
const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;

/// Most zones, and most nodes, that an endpoint is meant for.
const MOST_HINTS: usize = 8;

/// Checks an EndpointSlice. The number of a port may be any.
pub fn endpoint_slice(new: &At, old: Option<&At>) {
    let family = new.at("addressType");
    family.need_one_of(&["FQDN", "IPv4", "IPv6"]);
    slice_ports(&new.at("ports"));
    if !unchanged(new, old, "endpoints") {
        slice_endpoints(&new.at("endpoints"), family.text());
    }
    if let Some(old) = old {
        family.same_as(&old.at("addressType"));
    }
}

fn slice_ports(ports: &At) {
    if ports.len() > MOST_PORTS {
        ports.too_many(MOST_PORTS);
        return;
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.at("name");
        name.name(NameRule::Label);
        if !names.insert(name.text()) {
            name.duplicate();
        }
        port.at("protocol").need_one_of(&PROTOCOLS);
        application(&port);
    }
}

fn slice_endpoints(endpoints: &At, family: &str) {
    if endpoints.len() > MOST_ENDPOINTS {
        endpoints.too_many(MOST_ENDPOINTS);
        return;
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            addresses.required("must contain at least 1 address");
        } else if addresses.len() > MOST_ADDRESSES {
            addresses.too_many(MOST_ADDRESSES);
        }
        for address in addresses.items() {
            match family {
                "IPv4" | "IPv6" => slice_ip(&address, &addresses.path(), family),
                "FQDN" => domain(&address),
                _ => {}
            }
        }
        endpoint.at("nodeName").name(NameRule::Subdomain);
        endpoint.at("hostname").name(NameRule::Label);
        hints(&endpoint.at("hints"));
    }
}

/// For whom an endpoint is meant. Too many of one sort are told alone.
fn hints(hints: &At) {
    for field in ["forZones", "forNodes"] {
        let list = hints.at(field);
        if list.len() > MOST_HINTS {
            list.too_many(MOST_HINTS);
            return;
        }
        let mut seen = BTreeSet::new();
        for hint in list.items() {
            let name = hint.at("name");
            if !seen.insert(name.text()) {
                name.duplicate();
            }
            if field == "forNodes" {
                name.any_name(NameRule::Subdomain);
            } else {
                name.tell(name.text(), &names::label_value(name.text()));
            }
        }
    }
}

/// An address of one family. Of the wrong family, the list is blamed.
fn slice_ip(address: &At, list: &str, family: &str) {
    if !check_ip(address, &[]) {
        return;
    }
    let Ok(ip) = ip(address.text()) else { return };
    if family == "IPv6" && ip.to_string() != address.text() {
        canonical(address, &ip.to_string());
        return;
    }
    if ip.is_ipv4() != (family == "IPv4") {
        address.invalid_as(list.to_string(), &format!("must be an {family} address"));
    }
    endpoint_ip(address);
}

/// The whole name of a machine.
fn domain(at: &At) {
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    let note = |part: &str, why: &str| at.note(Cause::invalid(at.path(), &json!(part), why));
    if at.text().is_empty() {
        at.required("");
    } else if let Some(why) = validate::name(NameRule::Subdomain, name) {
        note(name, &why);
    } else if !name.contains('.') {
        note(name, "should be a domain with at least two segments separated by dots");
    } else if let Some((part, why)) =
        name.split('.').find_map(|part| Some((part, validate::name(NameRule::Label, part)?)))
    {
        note(part, &why);
    }
}

//! Endpoints and EndpointSlices.
//!
//! Inputs: decoded objects, defaults applied.

use super::{PROTOCOLS, canonical, check_ip, endpoint_ip, ip};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
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
    if !unchanged(new, old, "endpoints") {
        slice_endpoints(&new.at("endpoints"), family.text());
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

fn slice_endpoints(endpoints: &At, family: &str) {
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
            match family {
                "IPv4" | "IPv6" => slice_ip(&address, &addresses.path(), family),
                "FQDN" => domain(&address),
                _ => {}
            }
        }
        endpoint.at("hostname").name(NameRule::Label);
        endpoint.at("nodeName").name(NameRule::Subdomain);
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

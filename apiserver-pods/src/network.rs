//! Checks of how a pod is named, and of what of its node it shares.
//!
//! Inputs: a pod's spec in the stored form. Source: the validation of Kubernetes 1.36.

use super::names;
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::net::IpAddr;

/// Most servers of names that the resolver of Linux asks.
const MOST_SERVERS: usize = 3;
/// Most domains to search names in.
const MOST_SEARCHES: usize = 32;
/// Longest list of such domains, with a space between each two.
const LONGEST_SEARCHES: usize = 2048;
/// Longest name that Linux gives to a machine.
const LONGEST_HOST: usize = 64;

/// An address in its usual form.
pub(crate) fn ip(at: &At) {
    match at.text().parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            at.invalid("must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
        Err(_) if has_zeros(at.text()) => at.invalid("must not have leading 0s"),
        Err(_) => {
            names::tell_one(at, at.text(), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
        }
    }
}

/// Four numbers, if one reads over the zeros before them.
fn has_zeros(text: &str) -> bool {
    let number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let rest = part.trim_start_matches('0');
        digits && (rest.is_empty() || rest.parse::<u8>().is_ok())
    };
    text.split('.').count() == 4 && text.split('.').all(number)
}

/// Checks `dnsConfig`.
pub(crate) fn dns(spec: &At) {
    let config = spec.at("dnsConfig");
    let servers = config.at("nameservers");
    if spec.at("dnsPolicy").text() == "None" {
        if !config.is_set() {
            config.required("must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None");
            return;
        }
    }
    if servers.len() > MOST_SERVERS {
        servers.invalid(&format!("must not have more than {MOST_SERVERS} nameservers"));
    }
    servers.items().for_each(|server| ip(&server));
    let searches = config.at("searches");
    if searches.len() > MOST_SEARCHES {
        searches.invalid(&format!("must not have more than {MOST_SEARCHES} search paths"));
    }
    let length: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if length.saturating_sub(1) > LONGEST_SEARCHES {
        let why = format!(
            "must not have more than {LONGEST_SEARCHES} characters (including spaces) in the search list"
        );
        searches.invalid(&why);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let text = search.text().strip_suffix('.').unwrap_or(search.text());
        names::tell(&search, text, names::search(text));
    }
    for option in config.at("options").items() {
        if option.at("name").text().is_empty() {
            option.required("must not be empty");
        }
    }
}

/// Checks `hostAliases`.
pub(crate) fn aliases(at: &At) {
    for alias in at.items() {
        ip(&alias.at("ip"));
        alias.at("hostnames").items().for_each(|name| names::must_be_subdomain(&name));
    }
}

/// A pod with users of its own shares no other namespace of its node, and no block devices.
pub(crate) fn own_users(spec: &At) {
    const WHY: &str = "when `hostUsers` is false";
    if *spec.at("hostUsers").value() != Value::Bool(false) {
        return;
    }
    // Two of them are told by the names of the real server's own fields.
    for (field, told) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.at(field).is_true() {
            spec.at(told).forbidden(WHY);
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for c in spec.at(list).items() {
            if !c.at("volumeDevices").is_empty() {
                c.at("volumeDevices").forbidden(WHY);
            }
        }
    }
}

/// Checks `hostnameOverride`.
pub(crate) fn host_name(spec: &At) {
    let name = spec.at("hostnameOverride");
    if !name.is_set() {
        return;
    }
    if spec.at("setHostnameAsFQDN").is_true() {
        name.forbidden("may not be specified when setHostnameAsFQDN is true");
    }
    if spec.at("hostNetwork").is_true() {
        name.forbidden("may not be specified when hostNetwork is true");
    }
    if name.text().len() > LONGEST_HOST {
        name.too_long(LONGEST_HOST);
    }
    names::must_be_subdomain(&name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_before_a_number_are_told_apart() {
        assert!(has_zeros("010.0.0.1") && has_zeros("1.2.3.000"));
        assert!(!has_zeros("300.1.1.1") && !has_zeros("1.2.3") && !has_zeros("a.0.0.1"));
    }
}

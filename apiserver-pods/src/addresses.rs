//! The addresses in the status of a pod: its own, and those of its host.
//!
//! Inputs: the status before and after. Absent on purpose: whose addresses these are.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// Whose addresses are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pod,
    Host,
}

/// An address, and whether it has the leading zeros that older clients wrote.
fn parse(text: &str) -> Option<(IpAddr, bool)> {
    if let Ok(address) = text.parse() {
        return Some((address, false));
    }
    let parts: Vec<&str> = text.split('.').collect();
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if parts.len() != 4 || !parts.iter().all(digits) {
        return None;
    }
    let mut bytes = [0_u8; 4];
    for (byte, part) in bytes.iter_mut().zip(parts) {
        let short = part.trim_start_matches('0');
        *byte = if short.is_empty() { 0 } else { short.parse().ok()? };
    }
    Some((IpAddr::V4(Ipv4Addr::from(bytes)), true))
}

/// True for an address of the older kind, also in the form of the newer one.
fn is_v4(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(six) => six.to_ipv4_mapped().is_some(),
    }
}

/// Why a text is no address of an interface, which has the length of its network behind it, or None.
pub fn interface_problem(text: &str) -> Option<String> {
    const FORM: &str = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let plain = length.bytes().all(|b| b.is_ascii_digit());
        Some((parse(address)?.0, length.parse::<u8>().ok().filter(|_| plain)?))
    });
    let most = |address: &IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let Some((address, length)) = parsed.filter(|(address, length)| *length <= most(address)) else {
        return Some(FORM.into());
    };
    let canonical = match address {
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            // The network of the older kind is the end of that of the newer one.
            Some(four) => format!("{four}/{}", if length > 32 { length.saturating_sub(96) } else { length }),
            None => format!("{six}/{length}"),
        },
        IpAddr::V4(four) => format!("{four}/{length}"),
    };
    (text != canonical).then(|| format!("must be in canonical form ({canonical:?})"))
}

/// Checks the list of addresses of this kind. Those that were there before stay as they are.
pub(crate) fn check(kind: Kind, status: &At, before: &Value) {
    let key = if kind == Kind::Pod { "podIPs" } else { "hostIPs" };
    let list = status.at(key);
    let known: Vec<&str> = tree::list(before, &[key]).iter().map(|ip| tree::text(ip, &["ip"])).collect();
    if kind == Kind::Host
        && let Some(first) = list.items().next()
        && first.at("ip").text() != status.at("hostIP").text()
    {
        first.at("ip").invalid("must be equal to `hostIP`");
    }
    let mut all = Vec::new();
    for item in list.items() {
        let text = item.at("ip").text();
        let found = parse(text);
        all.push((text, found));
        if known.contains(&text) {
            continue;
        }
        let refuse = |why: &str| item.note(Cause::invalid(item.path(), &json!(text), why));
        match found {
            None => refuse("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            Some((_, true)) => refuse("must not have leading 0s"),
            Some((IpAddr::V6(six), _)) if six.to_ipv4_mapped().is_some() => {
                refuse("must not be an IPv4-mapped IPv6 address");
            }
            Some(_) => {}
        }
    }
    check_families(&list, &all);
}

/// Of several addresses one is of each family.
fn check_families(list: &At, all: &[(&str, Option<(IpAddr, bool)>)]) {
    if all.len() < 2 {
        return;
    }
    let unknown = all.iter().enumerate().find(|(_, (_, found))| found.is_none());
    if let Some((i, (text, _))) = unknown {
        let why =
            format!("Internal error: failed to check for dual stack with error:invalid IP[{i}]: {text}");
        list.note(Cause::new("InternalError", list.path(), why));
    }
    let has = |four: bool| all.iter().any(|(_, found)| found.is_some_and(|(ip, _)| is_v4(&ip) == four));
    if unknown.is_some() || !has(true) || !has(false) || all.len() > 2 {
        let shown: Value = all.iter().map(|(text, _)| json!({"IP": text})).collect();
        let why = "may specify no more than one IP for each IP family";
        list.note(Cause::invalid(list.path(), &shown, why));
    }
}

/// What is to be said of an address that is accepted, and is not in its usual form.
pub(crate) fn warning(text: &str) -> Option<String> {
    let (address, zeros) = parse(text)?;
    match address {
        IpAddr::V4(_) if zeros => {
            Some(format!("non-standard IP address {text:?} is invalid: use \"{address}\""))
        }
        IpAddr::V4(_) => None,
        IpAddr::V6(six) => {
            if let Some(four) = six.to_ipv4_mapped() {
                return Some(format!("non-standard IP address {text:?} is invalid: use \"{four}\""));
            }
            let usual = six.to_string();
            (usual != text)
                .then(|| format!("IPv6 address {text:?} should be in RFC 5952 canonical format ({usual:?})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::field::Causes;

    fn told(kind: Kind, status: &Value, before: &Value) -> Vec<(String, String)> {
        let causes = Causes::default();
        {
            let root = At::root(status, &causes);
            check(kind, &root, before);
        }
        causes.into_inner().into_iter().map(|c| (c.field, c.message)).collect()
    }

    #[test]
    fn one_address_of_each_family() {
        let ips =
            |list: &[&str]| json!({"podIPs": list.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>()});
        assert!(told(Kind::Pod, &ips(&["10.0.0.1", "fd00::1"]), &Value::Null).is_empty());
        let two = told(Kind::Pod, &ips(&["10.0.0.1", "10.0.0.2"]), &Value::Null);
        let why = "Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.2\"}]: may specify no more than one IP for each IP family";
        assert_eq!(two, [("podIPs".to_string(), why.to_string())]);
        let zeros = ips(&["10.0.0.01"]);
        let why = "Invalid value: \"10.0.0.01\": must not have leading 0s";
        assert_eq!(told(Kind::Pod, &zeros, &Value::Null), [("podIPs[0]".to_string(), why.to_string())]);
        assert!(told(Kind::Pod, &zeros, &zeros).is_empty());
        let host = json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]});
        let why = "Invalid value: \"10.0.0.2\": must be equal to `hostIP`";
        assert_eq!(told(Kind::Host, &host, &Value::Null), [("hostIPs[0].ip".to_string(), why.to_string())]);
    }

    #[test]
    fn unusual_forms_are_warned_of() {
        assert_eq!(warning("10.0.0.1"), None);
        assert_eq!(
            warning("FD00:0::1").unwrap(),
            "IPv6 address \"FD00:0::1\" should be in RFC 5952 canonical format (\"fd00::1\")"
        );
        assert_eq!(
            warning("::ffff:10.0.0.1").unwrap(),
            "non-standard IP address \"::ffff:10.0.0.1\" is invalid: use \"10.0.0.1\""
        );
    }
}

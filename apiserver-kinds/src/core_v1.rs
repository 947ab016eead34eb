//! Kinds of the core group except pods: configuration, namespaces, nodes, ranges and quotas, events.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::network;
use base64::Engine;
use fleet_apiserver_pods::placing;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::validate;
use serde_json::{Value, json};

mod bounds;
mod events;

pub use bounds::{limit_range, resource_name, resource_quota};
pub use events::event;

/// Most bytes of the values of a ConfigMap or Secret.
const MOST_BYTES: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";
const REDACTED: &str = "<secret contents redacted>";

fn keys(map: &At) {
    for (key, entry) in map.entries() {
        if let Some(why) = validate::config_key(key) {
            entry.note(Cause::invalid(entry.path(), &json!(key), why));
        }
    }
}

/// Checks a ConfigMap.
pub fn config_map(new: &At, old: Option<&At>) {
    let (data, binary) = (new.at("data"), new.at("binaryData"));
    keys(&data);
    keys(&binary);
    for (key, entry) in data.entries() {
        if binary.value().get(key).is_some() {
            entry.note(Cause::invalid(entry.path(), &json!(key), "duplicate of key present in binaryData"));
        }
    }
    let text: usize = data.entries().map(|(_, v)| v.text().len()).sum();
    let bytes: usize = binary.entries().map(|(_, v)| decoded_length(v.text())).sum();
    if text + bytes > MOST_BYTES {
        let why = format!("Too long: may not be more than {MOST_BYTES} bytes");
        new.note(Cause::new("FieldValueTooLong", "[]", why));
    }
    frozen(new, old, &["data", "binaryData"]);
}

fn decoded_length(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count().min(text.len() / 4 * 3)
}

fn frozen(new: &At, old: Option<&At>, fields: &[&str]) {
    let Some(old) = old.filter(|old| old.at("immutable").is_true()) else { return };
    if !new.at("immutable").is_true() {
        new.at("immutable").forbidden(FROZEN);
    }
    for field in fields {
        if !same(new.at(field).value(), old.at(field).value()) {
            new.at(field).forbidden(FROZEN);
        }
    }
}

/// Checks a Secret.
pub fn secret(new: &At, old: Option<&At>) {
    let data = new.at("data");
    keys(&data);
    let bytes: usize = data.entries().map(|(_, v)| decoded_length(v.text())).sum();
    if bytes > MOST_BYTES {
        data.too_long(MOST_BYTES);
    }
    let need = |key: &str| {
        let entry = data.key(key);
        if !entry.is_set() {
            entry.required("");
        }
        entry.is_set()
    };
    match new.at("type").text() {
        "kubernetes.io/service-account-token" => {
            let annotations = new.at("metadata.annotations");
            let account = annotations.key("kubernetes.io/service-account.name");
            if account.text().is_empty() {
                account.required("");
            }
        }
        "kubernetes.io/dockercfg" => document(&data, ".dockercfg", need(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => document(&data, ".dockerconfigjson", need(".dockerconfigjson")),
        "kubernetes.io/basic-auth" => {
            let some = ["username", "password"].iter().any(|key| data.key(key).is_set());
            if !some {
                need("username");
                need("password");
            }
        }
        "kubernetes.io/ssh-auth" => {
            need("ssh-privatekey");
        }
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        _ => {}
    }
    if let Some(old) = old {
        let kind = new.at("type");
        kind.same_as(&old.at("type"));
    }
    frozen(new, old, &["data"]);
}

fn document(data: &At, key: &str, there: bool) {
    if !there {
        return;
    }
    let entry = data.key(key);
    let bytes = base64::engine::general_purpose::STANDARD.decode(entry.text()).unwrap_or_default();
    let kind = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(Value::Array(_)) => "array",
        Ok(Value::String(_)) => "string",
        Ok(Value::Number(_)) => "number",
        Ok(Value::Bool(_)) => "bool",
        Err(e) => {
            let why = if e.is_eof() { "unexpected end of JSON input".into() } else { e.to_string() };
            entry.note(Cause::invalid(entry.path(), &json!(REDACTED), &why));
            return;
        }
    };
    let why = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
    entry.note(Cause::invalid(entry.path(), &json!(REDACTED), &why));
}

/// Checks a Namespace.
pub fn namespace(new: &At, subresource: &str) {
    if subresource == "status" {
        let phase = new.at("status.phase");
        let (due, when) = match new.at("metadata.deletionTimestamp").is_set() {
            true => ("Terminating", "`deletionTimestamp` is not empty"),
            false => ("Active", "`deletionTimestamp` is empty"),
        };
        if phase.text() != due {
            let why = format!("may only be '{due}' if {when}");
            phase.note(Cause::invalid("status.Phase", &json!(phase.text()), &why));
        }
        return;
    }
    let list = new.at("spec.finalizers");
    for finalizer in list.items() {
        // Only when they are taken away one by one, the place in the list is told.
        let numbered = subresource == "finalize";
        let (at, text) = (if numbered { &finalizer } else { &list }, finalizer.text());
        at.qualified_as(text);
        if !text.contains('/') && !matches!(text, "kubernetes" | "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            finalizer.invalid_as(at.path(), why);
        }
    }
}

/// Checks a Node.
pub fn node(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    // A node's taints are told at a place where they are not.
    placing::taints(&new.at("metadata").beside("taints", spec.value().get("taints")));
    let (addresses, mut seen) = (new.at("status.addresses"), std::collections::BTreeSet::new());
    for address in addresses.items() {
        if !seen.insert((address.at("type").text(), address.at("address").text())) {
            address.duplicate();
        }
    }
    for part in ["status.capacity", "status.allocatable"] {
        let amounts = new.at(part);
        for (name, amount) in amounts.entries() {
            amount.quantity();
            if !validate::is_qualified(name) {
                amount.note(Cause::invalid(amount.path(), &json!(name), validate::QUALIFIED));
            }
        }
    }
    pod_ranges(&spec.at("podCIDRs"));
    let Some(old) = old else { return };
    let before = old.at("spec");
    if !before.at("podCIDRs").is_empty() && !same(spec.at("podCIDRs").value(), before.at("podCIDRs").value())
    {
        spec.at("podCIDRs").forbidden("node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = before.at("providerID");
    if !provider.text().is_empty() && spec.at("providerID").text() != provider.text() {
        spec.at("providerID").forbidden("node updates may not change providerID except from \"\" to valid");
    }
    let source = spec.at("configSource");
    if source.is_set() {
        source.forbidden("configSource is not allowed");
    }
}

/// The ranges of addresses of a node's pods: one, or one of each family.
fn pod_ranges(ranges: &At) {
    for range in ranges.items() {
        if let Err(why) = network::cidr(range.text()) {
            range.invalid(why);
        }
    }
    let families: Vec<bool> = ranges.items().map(|range| range.text().contains(':')).collect();
    if families.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
        ranges.invalid("may specify no more than one CIDR for each IP family");
    }
}

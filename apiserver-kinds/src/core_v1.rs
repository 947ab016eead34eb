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

pub use bounds::{limit_range, quantity_value, resource_name, resource_quota};
pub use events::event;

/// Most bytes of the values of a ConfigMap or Secret.
const MOST_BYTES: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";
/// Most bytes of the name of a feature.
const LONGEST_NAME: usize = 253;
const REDACTED: &str = "<secret contents redacted>";

fn check_key(key: &str, entry: &At) {
    if let Some(why) = validate::config_key(key) {
        entry.note(Cause::invalid(entry.path(), &json!(key), why));
    }
}

/// Checks a ConfigMap.
pub fn config_map(new: &At, old: Option<&At>) {
    frozen(new, old, &["data", "binaryData"]);
    let (data, binary) = (new.at("data"), new.at("binaryData"));
    for (key, entry) in data.entries() {
        check_key(key, &entry);
        if binary.value().get(key).is_some() {
            entry.note(Cause::invalid(entry.path(), &json!(key), "duplicate of key present in binaryData"));
        }
    }
    binary.entries().for_each(|(key, entry)| check_key(key, &entry));
    let text: usize = data.entries().map(|(_, v)| v.text().len()).sum();
    let bytes: usize = binary.entries().map(|(_, v)| decoded_length(v.text())).sum();
    if text + bytes > MOST_BYTES {
        let why = format!("Too long: may not be more than {MOST_BYTES} bytes");
        new.note(Cause::new("FieldValueTooLong", "[]", why));
    }
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
    if let Some(old) = old {
        new.at("type").same_as(&old.at("type"));
    }
    frozen(new, old, &["data"]);
    let data = new.at("data");
    data.entries().for_each(|(key, entry)| check_key(key, &entry));
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
        // This one is nothing without content.
        "kubernetes.io/ssh-auth" if data.key("ssh-privatekey").is_empty() => {
            data.key("ssh-privatekey").required("");
        }
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        _ => {}
    }
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
pub fn node(new: &At, old: Option<&At>, subresource: &str) {
    // What a node says of itself has no ranges to be looked at.
    if subresource != "status" {
        node_taints(new);
        node_amounts(new);
        declared_features(&new.at("status.declaredFeatures"));
        pod_ranges(&new.at("spec.podCIDRs"));
    }
    if let Some(old) = old {
        changed_node(new, old);
    }
}

/// A node's taints are told at a place where they are not.
fn node_taints(new: &At) {
    placing::taints(&new.at("metadata").beside("taints", new.value().pointer("/spec/taints")));
}

/// What a node has, told by paths in which the names are fields.
fn node_amounts(new: &At) {
    for part in ["status.capacity", "status.allocatable"] {
        for (name, amount) in new.at(part).entries() {
            let place = format!("{part}.{name}");
            bounds::quantity_value(&new.beside(&place, Some(amount.value())), name);
        }
    }
}

fn changed_node(new: &At, old: &At) {
    node_amounts(new);
    declared_features(&new.at("status.declaredFeatures"));
    let (addresses, mut seen) = (new.at("status.addresses"), std::collections::BTreeSet::new());
    for address in addresses.items() {
        let (kind, text) = (address.at("type").text(), address.at("address").text());
        if !seen.insert((kind, text)) {
            // In the form of the server's own type.
            let shown = format!("{{\"Type\":{},\"Address\":{}}}", json!(kind), json!(text));
            address.note(Cause::new(
                "FieldValueDuplicate",
                address.path(),
                format!("Duplicate value: {shown}"),
            ));
        }
    }
    let (spec, before) = (new.at("spec"), old.at("spec"));
    let (ranges, had) = (spec.at("podCIDRs"), before.at("podCIDRs"));
    if !had.is_empty() && !same(ranges.value(), had.value()) {
        ranges.forbidden("node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = before.at("providerID");
    if !provider.text().is_empty() && spec.at("providerID").text() != provider.text() {
        spec.at("providerID").forbidden("node updates may not change providerID except from \"\" to valid");
    }
    node_taints(new);
    if spec.at("externalID").text() != before.at("externalID").text() {
        spec.at("externalID").forbidden("may not be updated");
    }
}

const FEATURE: &str = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";

/// Features that a node says it has, each once, in the order of the alphabet.
fn declared_features(list: &At) {
    let mut last: Option<&str> = None;
    for feature in list.items() {
        let text = feature.text();
        match last {
            Some(last) if last == text => feature.duplicate(),
            Some(last) if last > text => feature.invalid("list must be sorted alphabetically"),
            _ => {}
        }
        last = Some(text);
        let word = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        if text.len() > LONGEST_NAME {
            let why = format!("must be no more than {LONGEST_NAME} characters");
            feature.invalid(&format!("invalid feature name {text:?}: {why}"));
        } else if !text.starts_with(|c: char| c.is_ascii_uppercase()) || !text.split('/').all(word) {
            feature.invalid(&format!("invalid feature name {text:?}: {FEATURE}"));
        }
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

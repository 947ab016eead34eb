//! Kinds of dynamic resource allocation: claims of devices, their classes, and slices of what a node or network has.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36. Absent on purpose: giving
//! devices out.

use super::storage;
use fleet_apiserver_cel::rules::{Wanted, problem};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::Value;
use std::collections::BTreeSet;

/// Most requests for devices of one claim.
const MOST_REQUESTS: usize = 32;

/// A name that may not be empty either; which of the two it is, is not told.
fn label(name: &At) {
    if let Some(why) = validate::name(NameRule::Label, name.text()) {
        let text = Value::String(name.text().into());
        name.note(Cause::invalid(name.path(), &text, &why));
    }
}

/// Checks the spec of a ResourceClaim, alone or in a template.
pub fn resource_claim(spec: &At, old: Option<&At>) {
    let requests = spec.at("devices.requests");
    requests.unique("name");
    if requests.len() > MOST_REQUESTS {
        requests.too_many(MOST_REQUESTS);
    }
    for request in requests.items() {
        label(&request.at("name"));
        let (exactly, first) = (request.at("exactly"), request.at("firstAvailable"));
        match (exactly.is_set(), !first.is_empty()) {
            (true, true) => request.invalid("exactly one of `exactly` or `firstAvailable` is required"),
            (false, false) => request.required("exactly one of `exactly` or `firstAvailable` is required"),
            _ => {}
        }
        if exactly.is_set() {
            device_request(&exactly);
        }
        for sub in first.items() {
            label(&sub.at("name"));
            device_request(&sub);
        }
    }
    let names = request_names(&requests);
    for constraint in spec.at("devices.constraints").items() {
        named_requests(&constraint.at("requests"), &names);
        let (same, other) = (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
        if !same.is_set() && !other.is_set() {
            constraint.at("matchAttribute").required("");
        }
        for attribute in [same, other] {
            if attribute.is_set() {
                if !attribute.text().contains('/') {
                    attribute.invalid("must include a domain");
                }
                identifier(&attribute, attribute.text());
            }
        }
    }
    for config in spec.at("devices.config").items() {
        named_requests(&config.at("requests"), &names);
        opaque(&config);
    }
    if let Some(old) = old {
        spec.same_as(old);
    }
}

/// The names by which constraints mean requests: of a request, or of one of its alternatives.
fn request_names(requests: &At) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for request in requests.items() {
        let name = request.at("name").text();
        names.insert(name.to_string());
        for sub in request.at("firstAvailable").items() {
            names.insert(format!("{name}/{}", sub.at("name").text()));
        }
    }
    names
}

fn named_requests(list: &At, names: &BTreeSet<String>) {
    for name in list.items().filter(|name| !names.contains(name.text())) {
        let why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        name.invalid(why);
    }
}

/// Parameters for a driver, named by its domain.
fn opaque(config: &At) {
    let opaque = config.at("opaque");
    if !opaque.is_set() {
        opaque.required("");
        return;
    }
    storage::driver_name(&opaque.at("driver"));
    let parameters = opaque.at("parameters");
    if !parameters.is_set() {
        parameters.required("");
    } else if !parameters.value().is_object() {
        parameters.invalid("parameters must be a valid JSON object");
    }
}

/// What an expression about a device may read.
const DEVICE: [&str; 4] = ["driver", "attributes", "capacity", "allowMultipleAllocations"];

fn selectors(list: &At) {
    for selector in list.items() {
        let expression = selector.at("cel.expression");
        if expression.text().is_empty() {
            selector.at("cel").required("");
            continue;
        }
        let unknown = unknown_field(expression.text());
        let unknown = unknown.map(|name| format!("compilation failed: undefined field '{name}'"));
        if let Some(why) = problem(expression.text(), &["device"], Wanted::Bool).or(unknown) {
            expression.invalid(&why);
        }
    }
}

/// A field of `device` that devices do not have.
fn unknown_field(text: &str) -> Option<&str> {
    text.match_indices("device.").find_map(|(at, found)| {
        let before = text[..at].chars().next_back();
        let rest = &text[at + found.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let own = before.is_none_or(|c| !(c.is_ascii_alphanumeric() || "_.\"'".contains(c)));
        (own && !DEVICE.contains(&&rest[..end])).then_some(&rest[..end])
    })
}

/// Checks a DeviceClass.
pub fn class(new: &At) {
    let spec = new.at("spec");
    selectors(&spec.at("selectors"));
    spec.at("config").items().for_each(|config| opaque(&config));
}

/// Checks a ResourceSlice.
pub fn slice(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    if let Some(old) = old {
        let before = old.at("spec");
        for field in ["pool.name", "driver", "nodeName"] {
            spec.at(field).same_as(&before.at(field));
        }
    }
    storage::driver_name(&spec.at("driver"));
    let pool = spec.at("pool");
    if pool.at("name").text().is_empty() {
        pool.at("name").required("");
    }
    let count = pool.at("resourceSliceCount");
    if count.number().unwrap_or(0) <= 0 {
        count.invalid("must be greater than zero");
    }
    let generation = pool.at("generation");
    generation.non_negative();
    let places = [
        !spec.at("nodeName").text().is_empty(),
        spec.at("nodeSelector").is_set(),
        spec.at("allNodes").is_true(),
        spec.at("perDeviceNodeSelection").is_true(),
    ];
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let with_devices = spec.at("sharedCounters").is_empty() || !spec.at("devices").is_empty();
    match places.iter().filter(|place| **place).count() {
        0 if with_devices => spec.required(one),
        0 | 1 => {}
        _ => spec.invalid(one),
    }
    let devices = spec.at("devices");
    if devices.len() > 128 {
        devices.too_many(128);
    }
    devices.unique("name");
    for device in devices.items() {
        label(&device.at("name"));
        for part in ["attributes", "capacity"] {
            for (name, value) in device.at(part).entries() {
                identifier(&value, name);
                if part == "attributes" {
                    let kinds = ["int", "bool", "string", "version"];
                    if kinds.iter().filter(|kind| value.at(kind).is_set()).count() != 1 {
                        value.required("exactly one value must be specified");
                    }
                }
            }
        }
    }
}

/// The key of an attribute or capacity.
fn identifier(value: &At, name: &str) {
    let (of, id) = name.split_once('/').map_or((None, name), |(of, id)| (Some(of), id));
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let fine = id.starts_with(letter)
        && id.chars().all(|c| letter(c) || c.is_ascii_digit())
        && id.len() <= 32
        && of.is_none_or(|of| validate::name(NameRule::Subdomain, of).is_none());
    if !fine {
        let why = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_', after a domain and a slash if any";
        value.note(Cause::invalid(value.path(), &Value::from(name), why));
    }
}

fn device_request(at: &At) {
    at.at("deviceClassName").need_name(NameRule::Subdomain);
    selectors(&at.at("selectors"));
    let (mode, count) = (at.at("allocationMode"), at.at("count"));
    match mode.text() {
        "ExactCount" if count.number().is_none_or(|n| n < 1) => count.invalid("must be greater than zero"),
        "All" if count.number().is_some_and(|n| n != 0) => {
            count.invalid("must not be specified when allocationMode is 'All'");
        }
        "" | "ExactCount" | "All" => {}
        _ => mode.unsupported(&["All", "ExactCount"]),
    }
}

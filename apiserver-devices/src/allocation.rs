//! What a claim was given, who uses it, and what drivers say of it: the status of a claim.
//!
//! Inputs: the claim before and after, in the stored form. Source: the validation of Kubernetes 1.36. Absent on purpose: who may
//! write which part (see the admission wing).

use super::claim;
use super::parts::{self, fits};
use super::requests::{self, Requests};
use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::{interface_problem, placing};
use fleet_apiserver_schema::conditions;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Most users of a claim.
const MOST_USERS: usize = 256;
/// Most conditions of a device.
const MOST_CONDITIONS: usize = 8;
/// Most addresses of a device, and the longest name and hardware address of its interface, in bytes.
const MOST_ADDRESSES: usize = 16;
const LONGEST_INTERFACE: usize = 256;
const LONGEST_HARDWARE: usize = 128;
/// Most conditions that a device waits for, and most by which it fails.
const MOST_BINDING: usize = 4;

/// Checks the status of a claim.
pub fn status(new: &At, old: &At) {
    let requests = Requests::of(&new.at("spec"));
    let (status, before) = (new.at("status"), old.at("status"));
    let (users, allocation) = (status.at("reservedFor"), status.at("allocation"));
    parts::set(&users, MOST_USERS, user, |user| parts::text_of(user, "uid"));
    let given: BTreeSet<String> =
        tree::list(status.value(), &["allocation", "devices", "results"]).iter().map(device_key).collect();
    let devices = status.at("devices");
    // There is one for each device that is given at most.
    parts::set(
        &devices,
        usize::MAX,
        |device| device_status(device, &given),
        |device| device_key(device.value()),
    );
    if !users.is_empty() {
        if !allocation.is_set() {
            users.forbidden("may not be specified when `allocated` is not set");
        } else if new.at("metadata.deletionTimestamp").is_set() {
            let known = tree::list(before.value(), &["reservedFor"]);
            if users.items().any(|user| !known.contains(user.value())) {
                let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
                users.forbidden(why);
            }
        }
    }
    let was = before.at("allocation");
    if allocation.is_set() && was.is_set() {
        parts::lasting(&allocation, &was, "AllocationResult");
    } else if allocation.is_set() {
        self::allocation(&allocation, &requests);
    }
}

fn user(user: &At) {
    for field in ["resource", "name", "uid"] {
        if user.at(field).text().is_empty() {
            user.at(field).required("");
        }
    }
}

fn allocation(at: &At, requests: &Requests) {
    let (results, configs) = (at.at("devices.results"), at.at("devices.config"));
    if fits(&results, requests::MOST) {
        results.items().for_each(|result| self::result(&result, requests));
    }
    // Those of the class and those of the claim.
    if fits(&configs, 2 * claim::MOST) {
        for config in configs.items() {
            config.at("source").need_one_of(&["FromClaim", "FromClass"]);
            requests.references(&config.at("requests"));
            claim::configuration(&config);
        }
    }
    if at.at("nodeSelector").is_set() {
        placing::node_selector(&at.at("nodeSelector"));
    }
}

fn result(result: &At, requests: &Requests) {
    requests.reference(&result.at("request"));
    result.at("driver").driver_name();
    parts::pool(&result.at("pool"));
    parts::label(&result.at("device"));
    binding_conditions(result);
    if result.at("shareID").is_set() {
        parts::uid(&result.at("shareID"));
    }
}

/// Checks which conditions a device has to meet before it is used, and by which it fails.
pub fn binding_conditions(owner: &At) {
    let (waits, fails) = (owner.at("bindingConditions"), owner.at("bindingFailureConditions"));
    for list in [&waits, &fails] {
        if fits(list, MOST_BINDING) {
            list.items().for_each(|name| name.qualified());
        }
    }
    let mut waited = BTreeSet::new();
    for name in waits.items() {
        if !waited.insert(name.text()) {
            name.duplicate();
        }
    }
    let mut failed = BTreeSet::new();
    for name in fails.items() {
        if !failed.insert(name.text()) {
            name.duplicate();
        }
        if waited.contains(name.text()) {
            name.invalid("bindingFailureConditions must not overlap with bindingConditions");
        }
    }
    let lone = |list: &At, why: &str| list.note(Cause::invalid(list.path(), &Value::Null, why));
    match (waits.is_empty(), fails.is_empty()) {
        (true, false) => lone(&waits, "bindingConditions are required to use bindingFailureConditions"),
        (false, true) => lone(&fails, "bindingFailureConditions are required to use bindingConditions"),
        _ => {}
    }
}

/// What tells a device that is given from others, as messages show it.
pub fn device_key(device: &Value) -> String {
    let text = |key: &str| Value::from(tree::text(device, &[key]));
    let (driver, pool, name, share) = (text("driver"), text("pool"), text("device"), text("shareID"));
    format!("{{\"Driver\":{driver},\"Pool\":{pool},\"Device\":{name},\"ShareID\":{share}}}")
}

fn device_status(device: &At, given: &BTreeSet<String>) {
    device.at("driver").driver_name();
    parts::pool(&device.at("pool"));
    parts::label(&device.at("device"));
    if device.at("shareID").is_set() {
        parts::uid(&device.at("shareID"));
    }
    let key = device_key(device.value());
    if !given.contains(&key) {
        device.wrong(&format!("{key}: must be an allocated device in the claim"));
    }
    let states = device.at("conditions");
    fits(&states, MOST_CONDITIONS);
    conditions::check(&states);
    if device.at("data").is_set() {
        parts::object(&device.at("data"), claim::MOST_PARAMETERS);
    }
    network(&device.at("networkData"));
}

fn network(data: &At) {
    for (field, most) in [("interfaceName", LONGEST_INTERFACE), ("hardwareAddress", LONGEST_HARDWARE)] {
        let name = data.at(field);
        if name.text().len() > most {
            name.too_long(most);
        }
    }
    parts::set(&data.at("ips"), MOST_ADDRESSES, address, |address| address.value().to_string());
}

fn address(at: &At) {
    if let Some(why) = interface_problem(at.text()) {
        at.note(Cause::invalid(at.path(), &json!(at.text()), &why));
    }
}

/// Removes what drivers say of devices that a claim has no longer.
pub fn drop_freed(old: &Value, new: &mut Value) {
    let given = |claim: &Value| -> BTreeSet<String> {
        let results = tree::list(claim, &["status", "allocation", "devices", "results"]);
        results.iter().map(device_key).collect()
    };
    let freed: BTreeSet<String> = given(old).difference(&given(new)).cloned().collect();
    if freed.is_empty() {
        return;
    }
    let status = tree::child(new, "status");
    if let Some(Value::Array(devices)) = status.get_mut("devices") {
        devices.retain(|device| !freed.contains(&device_key(device)));
        if devices.is_empty() {
            status.remove("devices");
        }
    }
}

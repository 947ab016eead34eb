//! Kinds of storage classes, drivers and attachments.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::volume::{self, Place};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same, same_but};
use fleet_apiserver_schema::names;
use fleet_apiserver_schema::validate::NameRule;
use std::collections::{BTreeMap, BTreeSet};

fn provisioner(at: &At) {
    if at.text().is_empty() {
        at.required("");
    } else {
        at.qualified_as(&at.text().to_lowercase());
    }
}

/// Checks a StorageClass.
pub fn class(new: &At, old: Option<&At>) {
    let maker = new.at("provisioner");
    provisioner(&maker);
    let parameters = new.at("parameters");
    parameter_map(&parameters);
    new.at("reclaimPolicy").one_of(&["Delete", "Retain"]);
    let binding = new.at("volumeBindingMode");
    binding.need_one_of(&["Immediate", "WaitForFirstConsumer"]);
    topologies(&new.at("allowedTopologies"));
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        new.at(field).same_as(&old.at(field));
    }
}

/// Where volumes of a class may lie: no two terms say the same.
fn topologies(terms: &At) {
    let mut before: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    for term in terms.items() {
        let (list, mut term_says) = (term.at("matchLabelExpressions"), BTreeMap::new());
        for e in list.items() {
            let (key, values, mut seen) = (e.at("key"), e.at("values"), BTreeSet::new());
            values.need();
            for value in values.items().filter(|value| !seen.insert(value.text())) {
                value.duplicate();
            }
            key.qualified();
            if term_says.insert(key.text(), seen).is_some() {
                key.duplicate();
            }
        }
        for _ in before.iter().filter(|earlier| **earlier == term_says) {
            list.note(Cause::new("FieldValueDuplicate", list.path(), "Duplicate value: \"\""));
        }
        before.push(term_says);
    }
}

/// Most parameters of a class, and most bytes of them.
const MOST_PARAMETERS: usize = 512;
const MOST_BYTES: usize = 256 * 1024;

fn parameter_map(at: &At) {
    if at.len() > MOST_PARAMETERS {
        at.too_long(MOST_PARAMETERS);
        return;
    }
    let mut size = 0;
    for (key, value) in at.entries() {
        if key.is_empty() {
            at.tell(key, &["field can not be empty."]);
        }
        size += key.len() + value.text().len();
    }
    if size > MOST_BYTES {
        at.too_long(MOST_BYTES);
    }
}

/// Checks a VolumeAttributesClass.
pub fn attributes_class(new: &At, old: Option<&At>) {
    for field in ["driverName", "parameters"] {
        let now = new.at(field);
        if old.is_some_and(|old| !same(now.value(), old.at(field).value())) {
            now.forbidden(&format!("updates to {field} are forbidden."));
        }
    }
    provisioner(&new.at("driverName"));
    let parameters = new.at("parameters");
    parameter_map(&parameters);
    if parameters.is_empty() {
        parameters.required("must contain at least one key/value pair");
    }
}

/// Seconds that a token for a driver lives at least, and at most.
const TOKEN_LIFE_S: std::ops::RangeInclusive<i64> = 600..=1 << 32;
/// Least seconds between two counts of how many volumes a node can take.
const LEAST_COUNT_PERIOD_S: i64 = 10;

/// Checks a CSIDriver.
pub fn driver(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    spec.at("fsGroupPolicy").one_of(&["File", "None", "ReadWriteOnceWithFSType"]);
    token_requests(&spec.at("tokenRequests"));
    let modes = spec.at("volumeLifecycleModes");
    for mode in modes.items().filter(|mode| !matches!(mode.text(), "Persistent" | "Ephemeral")) {
        // The list is blamed, not the item.
        let why =
            format!("Unsupported value: {:?}: supported values: \"Persistent\", \"Ephemeral\"", mode.text());
        modes.note(Cause::new("FieldValueNotSupported", modes.path(), why));
    }
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
    if period.number().is_some_and(|n| n < LEAST_COUNT_PERIOD_S) {
        period.invalid("must be greater than or equal to 10 seconds");
    }
    let secret = spec.at("serviceAccountTokenInSecrets");
    if secret.is_set() && spec.at("tokenRequests").is_empty() {
        secret.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified");
    }
    if let Some(old) = old {
        let before = old.at("spec");
        let attached = spec.beside("attachedRequired", spec.value().get("attachRequired"));
        attached.same_as(&before.at("attachRequired"));
        modes.same_as(&before.at("volumeLifecycleModes"));
    }
}

fn token_requests(requests: &At) {
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let (audience, life) = (request.at("audience"), request.at("expirationSeconds"));
        if !audiences.insert(audience.text()) {
            audience.duplicate();
            continue;
        }
        match life.number() {
            Some(n) if n < *TOKEN_LIFE_S.start() => {
                life.invalid("may not specify a duration less than 10 minutes");
            }
            Some(n) if n > *TOKEN_LIFE_S.end() => {
                life.invalid("may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}

/// Most bytes of the name that a driver has for a node.
const MOST_NODE_ID: usize = 256;

/// Checks a CSINode.
pub fn node(new: &At, old: Option<&At>) {
    let (drivers, mut seen) = (new.at("spec.drivers"), BTreeSet::new());
    for driver in drivers.items() {
        let name = driver.at("name");
        name.driver_name();
        let id = driver.at("nodeID");
        id.need();
        if id.text().len() > MOST_NODE_ID {
            id.invalid(&format!("must be {MOST_NODE_ID} characters or less"));
        }
        driver.at("allocatable.count").non_negative();
        if !seen.insert(name.text()) {
            name.duplicate();
        }
        // The driver is blamed for its keys.
        let mut keys = BTreeSet::new();
        for key in driver.at("topologyKeys").items() {
            if key.text().is_empty() {
                driver.required("");
            }
            if !keys.insert(key.text()) {
                let message = format!("Duplicate value: {}", key.value());
                driver.note(Cause::new("FieldValueDuplicate", driver.path(), message));
            }
            driver.qualified_as(key.text());
        }
    }
    let Some(old) = old else { return };
    for before in old.at("spec.drivers").items() {
        let same_name = |driver: &At| driver.at("name").text() == before.at("name").text();
        for driver in drivers.items().filter(same_name) {
            if !same_but(driver.value(), before.value(), &["allocatable"]) {
                let text = |field: &str| driver.at(field).value().to_string();
                let shown = format!(
                    "{{\"Name\":{},\"NodeID\":{},\"TopologyKeys\":{},\"Allocatable\":null}}",
                    text("name"),
                    text("nodeID"),
                    text("topologyKeys")
                );
                let message = format!("Invalid value: {shown}: field is immutable");
                drivers.note(Cause::new("FieldValueInvalid", drivers.path(), message));
            }
        }
    }
}

/// Checks a CSIStorageCapacity.
pub fn capacity(new: &At, old: Option<&At>) {
    new.at("nodeTopology").label_selector();
    // Also an empty one is no name, and not one that lacks.
    new.at("storageClassName").any_name(NameRule::Subdomain);
    new.at("capacity").quantity();
    if let Some(old) = old {
        for field in ["nodeTopology", "storageClassName"] {
            new.at(field).same_as(&old.at(field));
        }
    }
}

/// Checks a VolumeAttachment.
pub fn attachment(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    spec.at("attacher").driver_name();
    let source = spec.at("source");
    let (named, inline) = (source.at("persistentVolumeName"), source.at("inlineVolumeSpec"));
    match (named.is_set(), inline.is_set()) {
        (true, true) => {
            source.forbidden("must specify exactly one of inlineVolumeSpec and persistentVolumeName")
        }
        (false, false) => {
            source.required("must specify exactly one of inlineVolumeSpec and persistentVolumeName")
        }
        (true, false) if named.is_empty() => {
            named.required("must specify non empty persistentVolumeName");
        }
        (true, false) => {}
        (false, true) => volume::check_spec(&inline, Place::Inline),
    }
    let node = spec.at("nodeName");
    // An empty name is a wrong one here, not a missing one.
    node.tell(node.text(), &names::subdomain(node.text()));
    attachment_status(&new.at("status"));
    if named.is_set() {
        named.any_name(NameRule::Subdomain);
    }
    if let Some(old) = old {
        spec.same_as(&old.at("spec"));
    }
}

/// Most bytes of what is told about an attachment, and of why it failed.
const MOST_METADATA: usize = 256 * 1024;
const MOST_MESSAGE: usize = 1024;

fn attachment_status(status: &At) {
    let notes = status.at("attachmentMetadata");
    if notes.entries().map(|(key, value)| key.len() + value.text().len()).sum::<usize>() > MOST_METADATA {
        notes.too_long(MOST_METADATA);
    }
    for field in ["attachError", "detachError"] {
        let error = status.at(field);
        let (message, code) = (error.at("message"), error.at("errorCode"));
        if message.text().len() > MOST_MESSAGE {
            // The limit that is told is that of the metadata.
            message.too_long(MOST_METADATA);
        }
        if code.number().is_some_and(|n| n < 0) {
            code.invalid(&format!("must be between 0 and {}, inclusive", i32::MAX));
        }
    }
}

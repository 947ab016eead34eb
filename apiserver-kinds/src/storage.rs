//! Kinds of storage classes, drivers and attachments.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::validate::{self, NameRule};
use fleet_resources::quantity;

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
    for term in new.at("allowedTopologies").items() {
        for e in term.at("matchLabelExpressions").items() {
            let values = e.at("values");
            if values.is_empty() {
                values.required("");
            }
            e.at("key").qualified();
        }
    }
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        let now = new.at(field);
        if !same(now.value(), old.at(field).value()) {
            now.invalid("field is immutable");
        }
    }
    binding.same_as(&old.at("volumeBindingMode"));
}

/// Most parameters of a class, and most bytes of them.
const MOST_PARAMETERS: usize = 512;
const MOST_BYTES: usize = 256 * 1024;

fn parameter_map(at: &At) {
    if at.len() > MOST_PARAMETERS {
        at.too_long(MOST_PARAMETERS);
    }
    let mut size = 0;
    for (key, value) in at.entries() {
        if key.is_empty() {
            value.invalid("field can not be empty.");
        }
        size += key.len() + value.text().len();
    }
    if size > MOST_BYTES {
        at.too_long(MOST_BYTES);
    }
}

/// Checks a VolumeAttributesClass.
pub fn attributes_class(new: &At, old: Option<&At>) {
    let driver = new.at("driverName");
    provisioner(&driver);
    let parameters = new.at("parameters");
    if parameters.is_empty() {
        parameters.required("must contain at least one key/value pair");
    }
    parameter_map(&parameters);
    let Some(old) = old else { return };
    for field in ["driverName", "parameters"] {
        let now = new.at(field);
        if !same(now.value(), old.at(field).value()) {
            now.forbidden(&format!("updates to {field} are forbidden."));
        }
    }
}

/// Checks a CSIDriver.
pub fn driver(new: &At, old: Option<&At>) {
    let name = new.at("metadata.name");
    if name.text().len() > 63 {
        name.too_long(63);
    }
    let spec = new.at("spec");
    let modes = spec.at("volumeLifecycleModes");
    for mode in modes.items().filter(|mode| !matches!(mode.text(), "Persistent" | "Ephemeral")) {
        // The list is blamed, not the item.
        let why =
            format!("Unsupported value: {:?}: supported values: \"Persistent\", \"Ephemeral\"", mode.text());
        modes.note(Cause::new("FieldValueNotSupported", modes.path(), why));
    }
    spec.at("fsGroupPolicy").one_of(&["File", "None", "ReadWriteOnceWithFSType"]);
    if let Some(old) = old {
        for field in ["attachRequired", "volumeLifecycleModes"] {
            spec.at(field).same_as(&old.at("spec").at(field));
        }
    }
}

/// Checks a CSINode.
pub fn node(new: &At) {
    let drivers = new.at("spec.drivers");
    drivers.unique("name");
    for driver in drivers.items() {
        driver.at("name").need();
        driver.at("nodeID").need();
        let count = driver.at("allocatable.count");
        count.non_negative();
    }
}

/// Checks a CSIStorageCapacity.
pub fn capacity(new: &At, old: Option<&At>) {
    // Also an empty one is no name, and not one that lacks.
    new.at("storageClassName").any_name(NameRule::Subdomain);
    new.at("nodeTopology").label_selector();
    for field in ["capacity", "maximumVolumeSize"] {
        let amount = new.at(field);
        if quantity::parse("storage", amount.text()).is_ok_and(|n| n < 0) {
            amount.invalid("must be greater than or equal to 0");
        }
    }
    if let Some(old) = old {
        for field in ["nodeTopology", "storageClassName"] {
            new.at(field).same_as(&old.at(field));
        }
    }
}

/// Checks a VolumeAttachment.
pub fn attachment(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    let attacher = spec.at("attacher");
    provisioner(&attacher);
    let source = spec.at("source");
    let (volume, inline) = (source.at("persistentVolumeName"), source.at("inlineVolumeSpec"));
    match (volume.is_set(), inline.is_set()) {
        (true, true) => {
            source.forbidden("must specify exactly one of inlineVolumeSpec and persistentVolumeName")
        }
        (false, false) => {
            source.required("must specify exactly one of inlineVolumeSpec and persistentVolumeName")
        }
        _ => {}
    }
    let node = spec.at("nodeName");
    // An empty name is a wrong one here, not a missing one.
    if let Some(why) = validate::name(NameRule::Subdomain, node.text()) {
        node.invalid(&why);
    }
    if let Some(old) = old {
        spec.same_as(&old.at("spec"));
    }
}

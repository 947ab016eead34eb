//! PersistentVolumes and PersistentVolumeClaims.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::placing;
use fleet_apiserver_schema::field::{At, same, same_but};
use fleet_apiserver_schema::validate::NameRule;
use fleet_resources::quantity;

const ACCESS: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(spec: &At, why: &str) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        modes.required(why);
    }
    for mode in modes.items().filter(|m| !ACCESS.contains(&m.text())) {
        // The list as a whole is named, as the real server does.
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            mode.value(),
            ACCESS.map(|m| format!("{m:?}")).join(", ")
        );
        modes.note(fleet_apiserver_schema::error::Cause::new(
            "FieldValueNotSupported",
            modes.path(),
            message,
        ));
    }
    if modes.len() > 1 && modes.items().any(|m| m.text() == "ReadWriteOncePod") {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks the spec of a claim, alone or in a template.
pub fn check_spec(spec: &At) {
    access_modes(spec, "at least 1 access mode is required");
    spec.at("selector").label_selector();
    let storage = spec.at("resources.requests.storage");
    if !storage.is_set() {
        let requests = spec.at("resources");
        requests.key("storage").required("");
    } else if quantity::parse("storage", storage.text()).is_ok_and(|n| n <= 0) {
        storage.invalid_as(format!("{}[storage]", spec.at("resources").path()), "must be greater than zero");
    }
    spec.at("volumeMode").one_of(&["Block", "Filesystem"]);
    spec.at("storageClassName").name(NameRule::Subdomain);
    for source in ["dataSource", "dataSourceRef"] {
        let source = spec.at(source);
        if source.is_set() {
            source.at("name").need();
            source.at("kind").need();
        }
    }
}

/// Checks a claim.
pub fn claim(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    if subresource == "status" {
        return;
    }
    check_spec(&spec);
    let Some(old) = old else { return };
    let before = old.at("spec");
    // A controller fills in the volume, once; the size may grow where the claim is bound.
    let unbound = before.at("volumeName").text().is_empty();
    let mut free = vec!["resources", "volumeAttributesClassName"];
    if unbound {
        free.push("volumeName");
    }
    if !before.at("storageClassName").is_set() {
        free.push("storageClassName");
    }
    if !same_but(spec.value(), before.value(), &free) {
        spec.forbidden(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        );
    }
    let (size, was) = (spec.at("resources.requests.storage"), before.at("resources.requests.storage"));
    if same(size.value(), was.value()) {
        return;
    }
    let amounts = (quantity::parse("storage", size.text()), quantity::parse("storage", was.text()));
    let (Ok(now), Ok(before_amount)) = amounts else { return };
    if now < before_amount {
        let capacity = old.at("status.capacity.storage");
        let least = quantity::parse("storage", capacity.text()).unwrap_or(0);
        if now <= least || old.at("status.phase").text() != "Bound" {
            size.forbidden("field can not be less than status.capacity");
        }
    } else if old.at("status.phase").text() != "Bound" && now != before_amount {
        spec.forbidden(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        );
    }
}

/// Where a volume can lie.
const SOURCES: [&str; 22] = [
    "hostPath",
    "nfs",
    "local",
    "csi",
    "iscsi",
    "fc",
    "rbd",
    "cephfs",
    "cinder",
    "glusterfs",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "quobyte",
    "portworxVolume",
    "scaleIO",
    "storageos",
    "vsphereVolume",
    "photonPersistentDisk",
];

/// Checks a volume.
pub fn volume(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    access_modes(&spec, "");
    let capacity = spec.at("capacity");
    if capacity.is_empty() {
        capacity.required("");
    } else {
        if !capacity.at("storage").is_set() || capacity.len() > 1 {
            capacity.unsupported(&["storage"]);
        }
        for (_, amount) in capacity.entries() {
            if quantity::parse("storage", amount.text()).is_ok_and(|n| n <= 0) {
                amount.invalid("must be greater than zero");
            }
        }
    }
    spec.at("persistentVolumeReclaimPolicy").one_of(&["Delete", "Recycle", "Retain"]);
    spec.at("volumeMode").one_of(&["Block", "Filesystem"]);
    spec.at("storageClassName").name(NameRule::Subdomain);
    let affinity = spec.at("nodeAffinity");
    if affinity.is_set() {
        let needed = affinity.at("required");
        if needed.is_set() {
            placing::node_selector(&needed)
        } else {
            needed.required("must specify required node constraints")
        }
    }
    source(&spec, old);
    let Some(old) = old else { return };
    let mode = spec.at("volumeMode");
    mode.same_as(&old.at("spec.volumeMode"));
    let was = old.at("spec.nodeAffinity");
    if was.is_set() && !same(affinity.value(), was.value()) {
        affinity.invalid("field is immutable");
    }
}

fn source(spec: &At, old: Option<&At>) {
    let mut found = 0;
    for kind in SOURCES {
        let source = spec.at(kind);
        if !source.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            source.forbidden("may not specify more than 1 volume type");
        }
        let needed: &[&str] = match kind {
            "hostPath" | "local" => &["path"],
            "nfs" => &["server", "path"],
            "csi" => &["driver", "volumeHandle"],
            _ => &[],
        };
        for field in needed {
            source.at(field).need();
        }
        if kind == "local" && !spec.at("nodeAffinity").is_set() {
            spec.at("nodeAffinity").required("Local volume requires node affinity");
        }
    }
    if found == 0 {
        spec.required("must specify a volume type");
    }
    if let Some(old) = old {
        let before = old.at("spec");
        for kind in SOURCES {
            let (now, was) = (spec.at(kind), before.at(kind));
            if !same(now.value(), was.value()) {
                let why = "spec.persistentvolumesource is immutable after creation";
                spec.at("persistentvolumesource").forbidden(why);
                return;
            }
        }
    }
}

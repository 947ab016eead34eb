//! PersistentVolumes and PersistentVolumeClaims.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_pods::claim_spec::{access_modes, check_spec};
use fleet_apiserver_pods::placing;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same, same_but};
use fleet_apiserver_schema::validate::NameRule;
use fleet_resources::quantity;
use serde_json::Value;

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
    let mut free = vec!["resources"];
    if new.at("status.phase").text() == "Bound" {
        free.push("volumeAttributesClassName");
    }
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
    let mode = spec.at("volumeMode");
    new.beside("volumeMode", Some(mode.value())).same_as(&before.at("volumeMode"));
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
        let message = "Unsupported value: null: supported values: \"storage\"";
        capacity.note(Cause::new("FieldValueNotSupported", capacity.path(), message));
    } else if !capacity.at("storage").is_set() || capacity.len() > 1 {
        capacity.unsupported(&["storage"]);
    }
    for (_, amount) in capacity.entries() {
        if quantity::parse("storage", amount.text()).is_ok_and(|n| n <= 0) {
            amount.invalid("must be greater than zero");
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
    let class = spec.at("volumeAttributesClassName");
    if class.is_set() {
        if class.text().is_empty() {
            class.required("an empty string is disallowed");
        }
        class.name(NameRule::Subdomain);
        if !spec.at("csi").is_set() {
            spec.at("csi").required("has to be specified when using volumeAttributesClassName");
        }
    }
    let Some(old) = old else { return };
    let before = old.at("spec");
    // These two are told at a place where they are not.
    let mode = spec.at("volumeMode");
    new.beside("volumeMode", Some(mode.value())).same_as(&before.at("volumeMode"));
    let was = before.at("nodeAffinity");
    if was.is_set() && !promoted(was.value(), affinity.value()) {
        let why = "field is immutable, except for updating from beta label to GA";
        affinity.invalid_as("nodeAffinity".into(), why);
    }
    if before.at("volumeAttributesClassName").is_set() && !class.is_set() {
        class.forbidden("update from non-nil value to nil is forbidden");
    }
}

/// Labels of nodes, and what they are called since they are no longer beta.
const PROMOTED: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// True when nothing changed but keys, from beta labels to those that followed.
fn promoted(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let renamed = |key: &str, a: &Value, b: &Value| {
                key == "key" && PROMOTED.iter().any(|(from, to)| a == from && b == to)
            };
            let fine = |(key, v): (&String, &Value)| {
                b.get(key).is_some_and(|w| promoted(v, w) || renamed(key.as_str(), v, w))
            };
            a.len() == b.len() && a.iter().all(fine)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| promoted(a, b))
        }
        _ => old == new,
    }
}

const EXPANDER: &str = "controllerExpandSecretRef";
const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// A directory or a file of the node.
fn host_path(spec: &At, source: &At) {
    let (path, kind, policy) =
        (source.at("path"), source.at("type"), spec.at("persistentVolumeReclaimPolicy"));
    if path.text().split('/').any(|part| part == "..") {
        path.invalid("must not contain '..'");
    }
    if !HOST_PATHS.contains(&kind.text()) {
        kind.unsupported(&HOST_PATHS);
    }
    let root = path.text().starts_with('/') && path.text().split('/').all(|part| matches!(part, "" | "."));
    if root && policy.text() == "Recycle" {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'");
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
        if kind == "hostPath" {
            host_path(spec, &source);
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
            // Who may make a volume larger can be told once.
            let free: &[&str] = match kind {
                "csi" if was.is_set() && !was.at(EXPANDER).is_set() => &[EXPANDER],
                _ => &[],
            };
            if now.is_set() != was.is_set() || !same_but(now.value(), was.value(), free) {
                let why = "spec.persistentvolumesource is immutable after creation";
                spec.at("persistentvolumesource").forbidden(why);
                return;
            }
        }
    }
}

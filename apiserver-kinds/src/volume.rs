//! PersistentVolumes, and volumes that are given with what attaches them.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::claim;
use fleet_apiserver_pods::claim_spec::access_modes;
use fleet_apiserver_pods::{placing, shown};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same_but};
use fleet_apiserver_schema::validate::NameRule;
use fleet_resources::quantity;
use serde_json::Value;

/// Who asks for a volume, and what it may say then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// An object of its own.
    Alone,
    /// A part of an attachment.
    Inline,
}

/// Checks a volume.
pub fn volume(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == "status" {
        return;
    }
    let spec = new.at("spec");
    check_spec(&spec, Place::Alone);
    mount_options(new, &spec);
    let Some(old) = old else { return };
    // There too, this is looked at twice.
    check_spec(&spec, Place::Alone);
    change(new, &spec, &old.at("spec"));
}

fn change(new: &At, spec: &At, before: &At) {
    if SOURCES.iter().any(|(kind, _)| !same_source(kind, &spec.at(kind), &before.at(kind))) {
        let why = "spec.persistentvolumesource is immutable after creation";
        let difference = shown::difference(shown::VOLUME, before.value(), &without_expander(spec, before));
        spec.at("persistentvolumesource").forbidden(&format!("{why}\n{difference}"));
    }
    // These two are told at a place where they are not.
    let (mode, affinity) = (spec.at("volumeMode"), spec.at("nodeAffinity"));
    new.beside("volumeMode", Some(mode.value())).same_as(&before.at("volumeMode"));
    let was = before.at("nodeAffinity");
    if was.is_set() && !promoted(was.value(), affinity.value()) {
        let why = "field is immutable, except for updating from beta label to GA";
        affinity.invalid_as("nodeAffinity".into(), why);
    }
    let class = spec.at("volumeAttributesClassName");
    if before.at("volumeAttributesClassName").is_set() && !class.is_set() {
        class.forbidden("update from non-nil value to nil is forbidden");
    }
}

/// Checks the spec of a volume.
pub fn check_spec(spec: &At, place: Place) {
    if place == Place::Inline {
        const NEVER: &str = "may not be specified in the context of inline volumes";
        for field in ["claimRef", "capacity"].into_iter().filter(|field| !spec.at(field).is_empty()) {
            spec.at(field).forbidden(NEVER);
        }
        if !spec.at("csi").is_set() {
            spec.at("csi").required("has to be specified in the context of inline volumes");
        }
        access_modes(spec, "");
        inline_policy(spec);
        if spec.at("nodeAffinity").is_set() {
            spec.at("nodeAffinity").forbidden(NEVER);
        }
        sources(spec);
        if !spec.at("storageClassName").is_empty() {
            spec.at("storageClassName").forbidden(NEVER);
        }
        let mode = spec.at("volumeMode");
        if mode.is_set() && mode.text() != "Filesystem" {
            let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
            mode.forbidden(why);
        }
        return;
    }
    access_modes(spec, "");
    capacity(&spec.at("capacity"));
    let policy = spec.at("persistentVolumeReclaimPolicy");
    policy.one_of(&["Delete", "Recycle", "Retain"]);
    let affinity = spec.at("nodeAffinity");
    if affinity.is_set() {
        let needed = affinity.at("required");
        if needed.is_set() {
            placing::node_selector(&needed);
        } else {
            needed.required("must specify required node constraints");
        }
    }
    sources(spec);
    if is_root(spec.at("hostPath.path").text()) && policy.text() == "Recycle" {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'");
    }
    spec.at("storageClassName").name(NameRule::Subdomain);
    spec.at("volumeMode").one_of(&["Block", "Filesystem"]);
    attributes(spec);
}

fn inline_policy(spec: &At) {
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !matches!(policy.text(), "" | "Retain") {
        policy.forbidden("may only be Retain in the context of inline volumes");
    }
}

fn capacity(capacity: &At) {
    if capacity.is_empty() {
        capacity.required("");
        let message = "Unsupported value: null: supported values: \"storage\"";
        capacity.note(Cause::new("FieldValueNotSupported", capacity.path(), message));
    } else if !capacity.at("storage").is_set() || capacity.len() > 1 {
        capacity.unsupported(&["storage"]);
    }
    for (_, amount) in capacity.entries() {
        claim::amount(&amount);
        if quantity::parse("storage", amount.text()).is_ok_and(|n| n <= 0) {
            amount.invalid("must be greater than zero");
        }
    }
}

fn attributes(spec: &At) {
    let class = spec.at("volumeAttributesClassName");
    if !class.is_set() {
        return;
    }
    if class.text().is_empty() {
        class.required("an empty string is disallowed");
    }
    class.name(NameRule::Subdomain);
    if !spec.at("csi").is_set() {
        spec.at("csi").required("has to be specified when using volumeAttributesClassName");
    }
}

/// Sources that take options of the mount from an annotation.
const MOUNTED: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

fn mount_options(new: &At, spec: &At) {
    const NOTE: &str = "volume.beta.kubernetes.io/mount-options";
    let notes = new.at("metadata.annotations");
    if notes.key(NOTE).is_set() && !MOUNTED.iter().any(|kind| spec.at(kind).is_set()) {
        let why = "may not specify mount options for this volume type";
        new.note(Cause::forbidden(format!("metadata.annotations.{NOTE}"), why));
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

/// Where a volume can lie, in the order in which this is looked at, and what each cannot do without.
const SOURCES: [(&str, &[&str]); 22] = [
    ("hostPath", &["path"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("nfs", &["server", "path"]),
    ("rbd", &["monitors", "image"]),
    ("quobyte", &[]),
    ("cephfs", &["monitors"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("cinder", &["volumeID"]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &[]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("local", &["path"]),
    ("storageos", &[]),
    ("csi", &[]),
];
const EXPANDER: &str = "controllerExpandSecretRef";

/// Nothing of a source changes but who may make a volume larger (see `without_expander`).
fn same_source(kind: &str, now: &At, was: &At) -> bool {
    let free: &[&str] = if kind == "csi" && no_expander(was) { &[EXPANDER] } else { &[] };
    now.is_set() == was.is_set() && same_but(now.value(), was.value(), free)
}

fn no_expander(source: &At) -> bool {
    source.is_set() && !source.at(EXPANDER).is_set()
}

/// The spec without the secret of who may make the volume larger, where it is told for the first time.
fn without_expander(spec: &At, before: &At) -> Value {
    let mut now = spec.value().clone();
    if no_expander(&before.at("csi"))
        && let Some(Value::Object(source)) = now.get_mut("csi")
    {
        source.remove(EXPANDER);
    }
    now
}

const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."))
}

fn no_steps_back(path: &At) {
    if path.text().split('/').any(|part| part == "..") {
        path.invalid("must not contain '..'");
    }
}

fn sources(spec: &At) {
    let mut found = 0;
    for (kind, needed) in SOURCES {
        let source = spec.at(kind);
        if !source.is_set() {
            continue;
        }
        found += 1;
        if found > 1 && kind != "flexVolume" {
            // One of them is told by another name here.
            let kind = if kind == "cephfs" { "cephFS" } else { kind };
            spec.at(kind).forbidden("may not specify more than 1 volume type");
            continue;
        }
        // Also this one is, below it.
        let place = if kind == "gcePersistentDisk" { "persistentDisk" } else { kind };
        let place = spec.beside(place, Some(source.value()));
        for field in needed {
            place.at(field).need();
        }
        match kind {
            "hostPath" if !source.at("path").is_empty() => {
                no_steps_back(&source.at("path"));
                if !HOST_PATHS.contains(&source.at("type").text()) {
                    source.at("type").unsupported(&HOST_PATHS);
                }
            }
            "nfs" if !source.at("path").text().starts_with('/') => {
                let path = source.at("path");
                path.note(Cause::invalid(path.path(), &Value::from(path.text()), "must be an absolute path"));
            }
            "local" => {
                no_steps_back(&source.at("path"));
                if !spec.at("nodeAffinity").is_set() {
                    spec.at("nodeAffinity").required("Local volume requires node affinity");
                }
            }
            "csi" => csi(&source),
            _ => {}
        }
    }
    if found == 0 {
        spec.required("must specify a volume type");
    }
}

/// A volume of a driver, and the secrets that the driver is given.
fn csi(source: &At) {
    source.at("driver").driver_name();
    source.at("volumeHandle").need();
    for field in ["controllerPublishSecretRef", EXPANDER, "nodePublishSecretRef", "nodeExpandSecretRef"] {
        let secret = source.at(field);
        if secret.is_set() {
            secret.at("name").need_name(NameRule::Subdomain);
            secret.at("namespace").need_name(NameRule::Label);
        }
    }
}

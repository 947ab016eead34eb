//! Checks of a pod's volumes.
//!
//! Inputs: the volumes of a pod or of a template, in the stored form. Source: the validation of Kubernetes 1.36. Sources
//! that only the drivers of a vendor read are in `volume_drivers`.

use super::files::{downward_file, key_to_path, mode};
use super::mounts::Volumes;
use super::names::need;
use super::{claim_spec, names, paths, projections, volume_drivers};
use fleet_apiserver_schema::field::{At, Causes};

/// The object that a spec is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Pod,
    Template,
}

/// Sources, in the order in which they are looked at.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Kinds of paths of a host; nothing is checked for the first.
const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks the volumes of a pod's spec, and returns those that are valid.
pub(crate) fn check_all<'v>(spec: &At<'v, '_>, owner: Owner) -> Volumes<'v> {
    let mut known = Volumes::new();
    for volume in spec.at("volumes").items() {
        let name = volume.at("name");
        let again = known.contains_key(name.text());
        let alone = Causes::default();
        check(&At::root(volume.value(), &alone), owner);
        if alone.into_inner().is_empty() && !again {
            known.insert(name.text(), volume.value());
            continue;
        }
        check(&volume, owner);
        if again {
            names::duplicate(&name, name.text());
        }
    }
    known
}

fn check(volume: &At, owner: Owner) {
    let mut found = 0;
    for kind in SOURCES {
        let source = volume.at(kind);
        if !source.is_set() {
            continue;
        }
        found += 1;
        if found == 1 {
            body(volume, &source, kind, owner);
            continue;
        }
        // Two of them are told by other names.
        let place = match kind {
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            kind => kind,
        };
        volume.at(place).forbidden("may not specify more than 1 volume type");
        if kind == "iscsi" {
            volume_drivers::initiator(volume, &source);
        }
    }
    if found == 0 {
        volume.required("must specify a volume type");
    }
    let name = volume.at("name");
    if name.text().is_empty() {
        name.required("");
    } else {
        names::must_be_label(&name);
    }
}

fn body(volume: &At, source: &At, kind: &str, owner: Owner) {
    match kind {
        "emptyDir" => {
            let limit = source.at("sizeLimit");
            if limit.text().starts_with('-') {
                limit.forbidden("SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => {
            let path = source.at("path");
            if path.text().is_empty() {
                path.required("");
                return;
            }
            paths::no_steps_back(&path, path.text());
            names::if_set_one_of(&source.at("type"), &HOST_PATHS);
        }
        "secret" | "configMap" => {
            need(source, &[if kind == "secret" { "secretName" } else { "name" }]);
            mode(&source.at("defaultMode"));
            source.at("items").items().for_each(|item| key_to_path(&item));
        }
        "nfs" => {
            need(source, &["server", "path"]);
            let path = source.at("path");
            if !path.text().starts_with('/') {
                names::tell_one(&path, path.text(), "must be an absolute path");
            }
        }
        "persistentVolumeClaim" => need(source, &["claimName"]),
        "downwardAPI" => {
            mode(&source.at("defaultMode"));
            source.at("items").items().for_each(|item| downward_file(source, &item));
        }
        "projected" => {
            mode(&source.at("defaultMode"));
            projections::check(source);
        }
        "ephemeral" => {
            let template = source.at("volumeClaimTemplate");
            if template.is_set() {
                claim_spec::check_template(&template);
            } else {
                template.required("");
            }
        }
        "image" => {
            if owner == Owner::Pod {
                need(source, &["reference"]);
            }
            names::need_one_of(&source.at("pullPolicy"), &["Always", "IfNotPresent", "Never"]);
        }
        _ => volume_drivers::check(volume, source, kind),
    }
}

//! Checks of a pod's volumes.
//!
//! Inputs: the volumes of a pod or of a template. Source: the validation of Kubernetes 1.36; of the sources that only drivers
//! read, that they are there.

use super::container::{field_ref, local_path, resource_ref};
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;

/// Sources, each with the texts it cannot be without.
const SOURCES: [(&str, &[&str]); 30] = [
    ("emptyDir", &[]),
    ("hostPath", &["path"]),
    ("secret", &["secretName"]),
    ("configMap", &["name"]),
    ("downwardAPI", &[]),
    ("projected", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("nfs", &["server", "path"]),
    ("csi", &["driver"]),
    ("ephemeral", &[]),
    ("image", &["reference"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("rbd", &["monitors", "image"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("flocker", &[]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("quobyte", &["registry", "volume"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &[]),
    ("vsphereVolume", &["volumePath"]),
];

/// Modes of files: 0 to 0777.
const MODES: std::ops::RangeInclusive<i64> = 0..=0o777;

/// Checks the volumes of a pod's spec.
pub fn check_all(spec: &At) {
    let volumes = spec.at("volumes");
    volumes.unique("name");
    for volume in volumes.items() {
        volume.at("name").need_name(NameRule::Label);
        check(&volume);
    }
}

fn check(volume: &At) {
    let mut found = 0;
    for (kind, needed) in SOURCES {
        let source = volume.at(kind);
        if !source.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            source.forbidden("may not specify more than 1 volume type");
            continue;
        }
        for field in needed {
            source.at(field).need();
        }
        body(&source, kind);
    }
    if found == 0 {
        volume.required("must specify a volume type");
    }
}

fn body(source: &At, kind: &str) {
    match kind {
        "hostPath" => {
            let path = source.at("path");
            if path.text().split('/').any(|part| part == "..") {
                path.invalid("must not contain '..'");
            }
            source.at("type").one_of(&[
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ]);
        }
        "emptyDir" => source.at("sizeLimit").quantity(),
        "nfs" => {
            let path = source.at("path");
            if !path.text().is_empty() && !path.text().starts_with('/') {
                path.invalid("must be an absolute path");
            }
        }
        "secret" | "configMap" => {
            mode(&source.at("defaultMode"));
            keys(&source.at("items"));
        }
        "downwardAPI" => {
            mode(&source.at("defaultMode"));
            downward(&source.at("items"));
        }
        "projected" => projected(source),
        "ephemeral" => {
            let template = source.at("volumeClaimTemplate");
            if !template.is_set() {
                template.required("");
            } else {
                super::claim_spec::check_spec(&template.at("spec"));
            }
        }
        _ => {}
    }
}

fn mode(at: &At) {
    if at.number().is_some_and(|n| !MODES.contains(&n)) {
        at.invalid("must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn file(path: &At) {
    if path.text().is_empty() {
        path.required("");
    } else {
        local_path(path);
    }
}

fn keys(items: &At) {
    for item in items.items() {
        item.at("key").need();
        file(&item.at("path"));
        mode(&item.at("mode"));
    }
}

fn downward(items: &At) {
    for item in items.items() {
        file(&item.at("path"));
        mode(&item.at("mode"));
        let (field, resource) = (item.at("fieldRef"), item.at("resourceFieldRef"));
        match (field.is_set(), resource.is_set()) {
            (true, true) => item.invalid("fieldRef and resourceFieldRef can not be specified simultaneously"),
            (true, false) => field_ref(&field, false),
            (false, true) => resource_ref(&resource, true),
            (false, false) => item.required("one of fieldRef and resourceFieldRef is required"),
        }
    }
}

fn projected(source: &At) {
    mode(&source.at("defaultMode"));
    let mut paths = std::collections::BTreeSet::new();
    let sources = source.at("sources");
    for part in sources.items() {
        let kinds = [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ];
        let mut found = 0;
        for kind in kinds {
            let chosen = part.at(kind);
            if !chosen.is_set() {
                continue;
            }
            found += 1;
            if found > 1 {
                chosen.forbidden("may not specify more than 1 volume type per source");
                continue;
            }
            match kind {
                "secret" | "configMap" => {
                    chosen.at("name").need();
                    keys(&chosen.at("items"));
                }
                "downwardAPI" => downward(&chosen.at("items")),
                "serviceAccountToken" => {
                    file(&chosen.at("path"));
                    let seconds = chosen.at("expirationSeconds");
                    if seconds.number().is_some_and(|n| n < 600) {
                        seconds.invalid("may not specify a duration less than 10 minutes");
                    }
                }
                _ => {}
            }
            let items = chosen.at("items");
            for item in items.items() {
                let path = item.at("path");
                if !path.text().is_empty() && !paths.insert(path.text()) {
                    path.invalid("conflicting duplicate paths");
                }
            }
        }
        if found == 0 {
            part.required("must specify a volume type");
        }
    }
}

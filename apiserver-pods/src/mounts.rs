//! Checks of what a container mounts: files of volumes, and block devices.
//!
//! Inputs: containers in the stored form, and the volumes of the pod. Source: the validation of Kubernetes 1.36.

use super::environment::not_found;
use super::{names, paths};
use fleet_apiserver_schema::field::At;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Volumes by their names, without those that are not valid themselves.
pub(crate) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

/// Checks `volumeMounts` and `volumeDevices` of a container.
pub(crate) fn check(c: &At, volumes: &Volumes<'_>) {
    let (mounts, devices) = (c.at("volumeMounts"), c.at("volumeDevices"));
    let mounted = by_name(&mounts, "mountPath");
    let attached = by_name(&devices, "devicePath");
    let privileged = c.at("securityContext.privileged").is_true();
    check_mounts(&mounts, &attached, volumes, privileged);
    check_devices(&devices, &mounted, volumes);
}

/// Where each volume is; the last place of a name counts.
fn by_name<'v>(list: &At<'v, '_>, path: &str) -> BTreeMap<&'v str, &'v str> {
    list.items().map(|item| (item.at("name").text(), item.at(path).text())).collect()
}

fn check_mounts(mounts: &At, attached: &BTreeMap<&str, &str>, volumes: &Volumes<'_>, privileged: bool) {
    let mut seen = BTreeSet::new();
    let attached_paths: BTreeSet<&str> = attached.values().copied().collect();
    for mount in mounts.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        if name.text().is_empty() {
            name.required("");
        }
        if !volumes.contains_key(name.text()) {
            not_found(&name, name.text());
        }
        if path.text().is_empty() {
            path.required("");
        }
        if !seen.insert(path.text()) {
            names::tell_one(&path, path.text(), "must be unique");
        }
        if attached.contains_key(name.text()) {
            names::tell_one(&name, name.text(), "must not already exist in volumeDevices");
        }
        if attached_paths.contains(path.text()) {
            names::tell_one(&path, path.text(), "must not already exist as a path in volumeDevices");
        }
        let (sub, expression) = (mount.at("subPath").text(), mount.at("subPathExpr").text());
        // Told without the number of the mount.
        paths::local(&mounts.at("subPath"), sub);
        if !sub.is_empty() && !expression.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            names::tell_one(&mount.at("subPathExpr"), expression, why);
        }
        paths::local(&mounts.at("subPathExpr"), expression);
        propagation(mounts, &mount, privileged);
    }
}

/// How mounts below a mount are seen elsewhere. This, too, is told without the number of the mount.
fn propagation(mounts: &At, mount: &At, privileged: bool) {
    let given = mount.at("mountPropagation");
    let place = mounts.beside("mountPropagation", Some(given.value()));
    names::if_set_one_of(&place, &["Bidirectional", "HostToContainer", "None"]);
    if given.text() == "Bidirectional" && !privileged {
        place.forbidden("Bidirectional mount propagation is available only to privileged containers");
    }
    let recursive = mount.at("recursiveReadOnly");
    let place = mounts.beside("recursiveReadOnly", Some(recursive.value()));
    names::if_set_one_of(&place, &["Disabled", "Enabled", "IfPossible"]);
    if !matches!(recursive.text(), "Enabled" | "IfPossible") {
        return;
    }
    if !mount.at("readOnly").is_true() {
        place.forbidden("may only be specified when readOnly is true");
    }
    if given.is_set() && given.text() != "None" {
        place.forbidden("may only be specified when mountPropagation is None or not specified");
    }
}

fn check_devices(devices: &At, mounted: &BTreeMap<&str, &str>, volumes: &Volumes<'_>) {
    let (mut names_seen, mut paths_seen) = (BTreeSet::new(), BTreeSet::new());
    let mounted_paths: BTreeSet<&str> = mounted.values().copied().collect();
    for device in devices.items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        let text = name.text();
        let tell_name = |why: &str| names::tell_one(&name, text, why);
        let tell_path = |why: &str| names::tell_one(&path, path.text(), why);
        if text.is_empty() {
            name.required("");
        }
        if names_seen.contains(text) {
            tell_name("must be unique");
        }
        match volumes.get(text) {
            None => not_found(&name, text),
            Some(volume) => {
                let is_claim =
                    ["persistentVolumeClaim", "ephemeral"].into_iter().any(|kind| volume.get(kind).is_some());
                if !is_claim {
                    tell_name(
                        "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                    );
                }
            }
        }
        if path.text().is_empty() {
            path.required("");
        }
        if paths_seen.contains(path.text()) {
            tell_path("must be unique");
        }
        if paths::goes_back(path.text()) {
            tell_path("can not contain backsteps ('..')");
        } else {
            paths_seen.insert(path.text());
        }
        if mounted.contains_key(text) {
            tell_name("must not already exist in volumeMounts");
        }
        if mounted_paths.contains(path.text()) {
            tell_path("must not already exist as a path in volumeMounts");
        }
        if !text.is_empty() {
            names_seen.insert(text);
        }
    }
}

//! Defaults of a pod's volumes, by their kinds.
//!
//! Inputs: volumes of a pod or of a template.

use super::defaults::{Obj, inner, items, round_up};
use super::images;
use fleet_apiserver_ground::tree::default_to;
use serde_json::{Value, json};

/// Mode of files in volumes that the kubelet writes: 0644.
const MODE: i64 = 0o644;

/// Texts of a source that stand where nothing is said.
const TEXTS: [(&str, &[(&str, &str)]); 5] = [
    ("hostPath", &[("type", "")]),
    ("iscsi", &[("iscsiInterface", "default")]),
    ("rbd", &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")]),
    ("azureDisk", &[("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("kind", "Shared")]),
    ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
];

/// Fills in one volume.
pub(crate) fn volume(volume: &mut Obj) {
    // A volume that says nothing is an empty directory.
    if volume.iter().all(|(key, value)| key == "name" || value.is_null()) {
        volume.insert("emptyDir".into(), json!({}));
    }
    for (kind, texts) in TEXTS {
        let Some(Value::Object(source)) = volume.get_mut(kind) else { continue };
        texts.iter().for_each(|(field, text)| default_to(source, field, *text));
    }
    for kind in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(Value::Object(source)) = volume.get_mut(kind) {
            default_to(source, "defaultMode", MODE);
        }
    }
    if let Some(Value::Object(disk)) = volume.get_mut("azureDisk") {
        default_to(disk, "readOnly", false);
    }
    if let Some(Value::Object(image)) = volume.get_mut("image")
        && image.get("pullPolicy").is_none_or(Value::is_null)
    {
        let policy = images::pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        image.insert("pullPolicy".into(), policy.into());
    }
    if let Some(Value::Object(source)) = volume.get_mut("projected") {
        items(source, "sources").for_each(part);
    }
    field_versions(volume.get_mut("downwardAPI"));
    if let Some(Value::Object(claim)) =
        volume.get_mut("ephemeral").and_then(|e| e.get_mut("volumeClaimTemplate"))
    {
        let spec = inner(claim, "spec");
        default_to(spec, "volumeMode", "Filesystem");
        if let Some(Value::Object(resources)) = spec.get_mut("resources") {
            for list in ["limits", "requests"] {
                if let Some(Value::Object(amounts)) = resources.get_mut(list) {
                    round_up(amounts);
                }
            }
        }
    }
}

fn part(part: &mut Obj) {
    // Bundles of trust and certificates of pods are features that are off in this version.
    part.remove("clusterTrustBundle");
    part.remove("podCertificate");
    if let Some(Value::Object(token)) = part.get_mut("serviceAccountToken") {
        default_to(token, "expirationSeconds", 3600);
    }
    field_versions(part.get_mut("downwardAPI"));
}

/// References to fields of the pod name the version they are meant in.
fn field_versions(source: Option<&mut Value>) {
    let Some(Value::Object(source)) = source else { return };
    for item in items(source, "items") {
        if let Some(Value::Object(field)) = item.get_mut("fieldRef") {
            default_to(field, "apiVersion", "v1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: Value, wanted: Value) {
        let Value::Object(mut map) = given else { panic!("an object") };
        volume(&mut map);
        assert_eq!(Value::Object(map), wanted);
    }

    #[test]
    fn each_kind_has_its_defaults() {
        check(json!({"name": "v"}), json!({"name": "v", "emptyDir": {}}));
        check(json!({"iscsi": {}}), json!({"iscsi": {"iscsiInterface": "default"}}));
        check(
            json!({"rbd": {"pool": "p"}}),
            json!({"rbd": {"pool": "p", "user": "admin", "keyring": "/etc/ceph/keyring"}}),
        );
        check(
            json!({"azureDisk": {"diskName": "d"}}),
            json!({"azureDisk": {"diskName": "d", "cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared", "readOnly": false}}),
        );
        check(
            json!({"scaleIO": {}}),
            json!({"scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"}}),
        );
        check(
            json!({"image": {"reference": "i:1"}}),
            json!({"image": {"reference": "i:1", "pullPolicy": "IfNotPresent"}}),
        );
        check(
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1n"}}}}}}),
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1m"}}, "volumeMode": "Filesystem"}}}}),
        );
        check(
            json!({"projected": {"sources": [{"podCertificate": {}}, {"serviceAccountToken": {"path": "t"}}]}}),
            json!({"projected": {"defaultMode": 420, "sources": [{}, {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}),
        );
    }
}

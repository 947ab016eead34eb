//! Cells of volumes, and of what they come from.

use super::other;
use super::text::{age, join, or, texts};
use fleet_apiserver_ground::tree::{at, list, meta_text, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

const MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    match r.plural.as_str() {
        "persistentvolumes" => {
            let claim = at(v, &["spec", "claimRef"]);
            let claim = claim.map(|c| format!("{}/{}", text(c, &["namespace"]), text(c, &["name"])));
            out.extend([
                or(text(v, &["spec", "capacity", "storage"]), "0"),
                modes(v, "spec"),
                json!(text(v, &["spec", "persistentVolumeReclaimPolicy"])),
                json!(phase(v)),
                json!(claim.unwrap_or_default()),
                json!(class(v)),
                or(text(v, &["spec", "volumeAttributesClassName"]), "<unset>"),
                json!(text(v, &["status", "reason"])),
                old(),
                or(text(v, &["spec", "volumeMode"]), "<unset>"),
            ]);
        }
        "persistentvolumeclaims" => {
            let volume = text(v, &["spec", "volumeName"]);
            let (capacity, modes) = match volume {
                "" => (json!(""), json!("")),
                _ => (or(text(v, &["status", "capacity", "storage"]), "0"), modes(v, "status")),
            };
            out.extend([
                json!(phase(v)),
                json!(volume),
                capacity,
                modes,
                json!(class(v)),
                or(text(v, &["spec", "volumeAttributesClassName"]), "<unset>"),
                old(),
                or(text(v, &["spec", "volumeMode"]), "<unset>"),
            ]);
        }
        "storageclasses" => out.extend([
            json!(text(v, &["provisioner"])),
            or(text(v, &["reclaimPolicy"]), "Delete"),
            or(text(v, &["volumeBindingMode"]), "Immediate"),
            flag(v, &["allowVolumeExpansion"], false),
            old(),
        ]),
        "volumeattributesclasses" => out.extend([json!(text(v, &["driverName"])), old()]),
        "csinodes" => out.extend([json!(list(v, &["spec", "drivers"]).len()), old()]),
        "csidrivers" => {
            let audiences = |requests: &Value| {
                let all = requests.as_array().into_iter().flatten().map(|t| text(t, &["audience"]));
                all.collect::<Vec<_>>().join(",")
            };
            out.extend([
                flag(v, &["spec", "attachRequired"], true),
                flag(v, &["spec", "podInfoOnMount"], false),
                flag(v, &["spec", "storageCapacity"], false),
                json!(at(v, &["spec", "tokenRequests"]).map_or("<unset>".into(), audiences)),
                flag(v, &["spec", "requiresRepublish"], false),
                or(&texts(v, &["spec", "volumeLifecycleModes"]).join(","), "<none>"),
                old(),
            ]);
        }
        "volumeattachments" => out.extend([
            json!(text(v, &["spec", "attacher"])),
            json!(text(v, &["spec", "source", "persistentVolumeName"])),
            json!(text(v, &["spec", "nodeName"])),
            flag(v, &["status", "attached"], false),
            old(),
        ]),
        _ => other::fill(r, v, now, out),
    }
}

fn flag(v: &Value, path: &[&str], default: bool) -> Value {
    json!(at(v, path).and_then(Value::as_bool).unwrap_or(default))
}

fn phase(v: &Value) -> &str {
    match at(v, &["metadata", "deletionTimestamp"]) {
        Some(_) => "Terminating",
        None => text(v, &["status", "phase"]),
    }
}

fn modes(v: &Value, of: &str) -> Value {
    let all = texts(v, &[of, "accessModes"]);
    join(MODES.iter().filter(|(mode, _)| all.contains(mode)).map(|(_, short)| *short), "")
}

/// The class of a volume or claim; an annotation said it before the field did.
fn class(v: &Value) -> &str {
    let annotation = at(v, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    annotation.and_then(Value::as_str).unwrap_or_else(|| text(v, &["spec", "storageClassName"]))
}

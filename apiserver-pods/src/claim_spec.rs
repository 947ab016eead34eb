//! Checks of the spec of a PersistentVolumeClaim: alone, in a StatefulSet, or in a pod's ephemeral volume.
//!
//! Inputs: the spec in the stored form. Source: the validation of Kubernetes 1.36.

use super::names;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_resources::quantity;
use serde_json::{Value, json};

const ACCESS: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Checks the access modes of a volume or a claim; `why` says who lacks them.
pub fn access_modes(spec: &At, why: &str) {
    if spec.at("accessModes").is_empty() {
        spec.at("accessModes").required(why);
    }
    stated_modes(spec);
}

fn stated_modes(spec: &At) {
    let modes = spec.at("accessModes");
    let known = |mode: &At| ACCESS.contains(&mode.text());
    for mode in modes.items().filter(|mode| !known(mode)) {
        // The list as a whole is named, as the real server does.
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            mode.value(),
            ACCESS.map(|m| format!("{m:?}")).join(", ")
        );
        modes.note(Cause::new("FieldValueNotSupported", modes.path(), message));
    }
    let alone = |mode: &At| mode.text() == "ReadWriteOncePod";
    if modes.items().any(|mode| alone(&mode)) && modes.items().any(|mode| known(&mode) && !alone(&mode)) {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks the spec of a claim, alone or in a template.
pub fn check_spec(spec: &At) {
    if spec.at("accessModes").is_empty() {
        spec.at("accessModes").required("at least 1 access mode is required");
    }
    names::selector(&spec.at("selector"));
    stated_modes(spec);
    let (resources, storage) = (spec.at("resources"), spec.at("resources.requests.storage"));
    let place = resources.key("storage");
    if !storage.is_set() {
        place.required("");
    } else if quantity::parse("storage", storage.text()).is_ok_and(|n| n <= 0) {
        names::tell_one(&place, storage.text(), "must be greater than zero");
    }
    names::may_be_subdomain(&spec.at("storageClassName"));
    names::if_set_one_of(&spec.at("volumeMode"), &["Block", "Filesystem"]);
    data_sources(spec);
    names::may_be_subdomain(&spec.at("volumeAttributesClassName"));
}

/// Where the content of a claim comes from, said in an older and a newer way.
fn data_sources(spec: &At) {
    let (old, new) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for source in [&old, &new].into_iter().filter(|source| source.is_set()) {
        let (group, kind) = (source.at("apiGroup"), source.at("kind"));
        if source.at("name").text().is_empty() {
            source.at("name").required("");
        }
        if kind.text().is_empty() {
            kind.required("");
        }
        if group.text().is_empty() && kind.text() != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            names::tell_one(source, kind.text(), why);
        }
        names::may_be_subdomain(&group);
        let namespace = source.at("namespace");
        if !namespace.text().is_empty() {
            names::must_be_label(&namespace);
        }
    }
    if !old.is_set() || !new.is_set() {
        return;
    }
    // The real server shows nothing of the value.
    let wrong = |why: &str| spec.note(Cause::invalid(spec.path(), &json!({}), why));
    let equal = |field: &str| old.at(field).value() == new.at(field).value();
    if !new.at("namespace").text().is_empty() {
        wrong("may not be specified when dataSourceRef.namespace is specified");
    } else if !["apiGroup", "kind", "name"].into_iter().all(equal) {
        wrong("must match dataSourceRef");
    }
}

/// Checks a claim that a pod's volume brings with it: of its metadata only labels and annotations mean something.
pub(crate) fn check_template(template: &At) {
    check_template_meta(&template.at("metadata"));
    check_spec(&template.at("spec"));
}

/// Checks the metadata of what is made from a template.
pub fn check_template_meta(meta: &At) {
    names::annotations(&meta.at("annotations"));
    names::labels(&meta.at("labels"));
    for (name, shown) in NOT_OF_TEMPLATE {
        let field = meta.at(name);
        let empty = match field.value() {
            Value::Null => true,
            Value::Number(n) => n.as_i64() == Some(0),
            _ => field.is_empty(),
        };
        if !empty {
            meta.at(shown).forbidden("cannot be set");
        }
    }
}

/// Other fields of metadata, in the order they are looked at, and as they are named then.
const NOT_OF_TEMPLATE: [(&str, &str); 13] = [
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

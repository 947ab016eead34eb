//! Checks of the spec of a PersistentVolumeClaim: alone, in a StatefulSet, or in a pod's ephemeral volume.
//!
//! Inputs: the spec in the stored form. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::NameRule;
use fleet_resources::quantity;
use serde_json::json;

const ACCESS: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Checks the access modes of a volume or a claim; `why` says who lacks them.
pub fn access_modes(spec: &At, why: &str) {
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
        modes.note(Cause::new("FieldValueNotSupported", modes.path(), message));
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
    data_sources(spec);
    spec.at("volumeAttributesClassName").name(NameRule::Subdomain);
}

/// Where the content of a claim comes from, said in an older and a newer way.
fn data_sources(spec: &At) {
    let (old, new) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for source in [&old, &new].into_iter().filter(|source| source.is_set()) {
        let (group, kind) = (source.at("apiGroup"), source.at("kind"));
        source.at("name").need();
        kind.need();
        if group.text().is_empty() && kind.text() != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            source.note(Cause::invalid(source.path(), &json!(kind.text()), why));
        }
        group.name(NameRule::Subdomain);
        source.at("namespace").name(NameRule::Label);
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

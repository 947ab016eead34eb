//! PersistentVolumeClaims.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::claim_spec::check_spec;
use fleet_apiserver_pods::shown;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same_but};
use fleet_apiserver_schema::names;
use fleet_resources::quantity;
use serde_json::{Value, json};

/// Checks a claim.
pub fn claim(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == "status" {
        status(new);
        return;
    }
    check_spec(&new.at("spec"));
    if let Some(old) = old {
        change(new, old);
    }
}

/// The size that a claim asks for.
const SIZE: &str = "resources.requests.storage";
const FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

fn change(new: &At, old: &At) {
    let (spec, before) = (new.at("spec"), old.at("spec"));
    let now = with_what_may_change(new, old);
    if !same_but(&now, before.value(), &[]) {
        let difference = shown::difference(shown::CLAIM, before.value(), &now);
        spec.forbidden(&format!("{FIXED}\n{difference}"));
    }
    let size = spec.at(SIZE);
    let amount = |text: &str| quantity::parse("storage", text).unwrap_or(0);
    let (now, was) = (amount(size.text()), amount(before.at(SIZE).text()));
    // Down to what the volume has, so that an expansion that failed can be taken back.
    if now < was && now <= amount(old.at("status.capacity.storage").text()) {
        size.forbidden("field can not be less than status.capacity");
    }
    let mode = spec.at("volumeMode");
    new.beside("volumeMode", Some(mode.value())).same_as(&before.at("volumeMode"));
    let class = spec.at("volumeAttributesClassName");
    if old.at("status.currentVolumeAttributesClassName").is_set() {
        let gone = if class.is_set() { "empty string" } else { "nil" };
        if class.text().is_empty() && class.value() != before.at("volumeAttributesClassName").value() {
            let why = "is forbidden when status.currentVolumeAttributesClassName is not nil";
            class.forbidden(&format!("update to {gone} {why}"));
        }
    }
}

/// The spec of a changed claim, with what may change as it was.
fn with_what_may_change(new: &At, old: &At) -> Value {
    let before = old.at("spec");
    let earlier = |field: &str| Some(before.at(field).value().clone()).filter(|value| !value.is_null());
    let mut spec = new.at("spec").value().clone();
    let fields = tree::object(&mut spec);
    // A controller fills in the volume, once.
    if before.at("volumeName").text().is_empty() {
        tree::put(fields, "volumeName", earlier("volumeName"));
    }
    if class_may_change(new, old) {
        tree::put(fields, "storageClassName", earlier("storageClassName"));
    }
    if new.at("status.phase").text() == "Bound" {
        if let Some(Value::Object(amounts)) = fields.get_mut("resources").and_then(|r| r.get_mut("requests"))
        {
            tree::put(amounts, "storage", earlier(SIZE));
        }
        tree::put(fields, "volumeAttributesClassName", earlier("volumeAttributesClassName"));
    }
    spec
}

/// The class of a claim that has none may be told once; an older annotation can have told it before, and stays.
fn class_may_change(new: &At, old: &At) -> bool {
    const NOTE: &str = "volume.beta.kubernetes.io/storage-class";
    let (notes, earlier) = (new.at("metadata.annotations"), old.at("metadata.annotations"));
    let (note, was) = (notes.key(NOTE), earlier.key(NOTE));
    let class = new.at("spec.storageClassName");
    let fits = class.is_set() && !old.at("spec.storageClassName").is_set();
    let told = was.is_set() && class.text() == was.text();
    let moved = fits && told && (!note.is_set() || note.text() == was.text());
    if !moved && note.text() != was.text() {
        let path = format!("metadata.annotations.{NOTE}");
        note.note(Cause::invalid(path, &json!(note.text()), "field is immutable"));
    }
    fits && (told || !was.is_set())
}

const RESIZE: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// An amount that is not negative. True when it is.
pub(crate) fn amount(at: &At) -> bool {
    let wrong = quantity::parse("storage", at.text()).ok().filter(|n| *n < 0);
    if let Some(n) = wrong {
        at.note(Cause::invalid(at.path(), &json!(n), "must be a valid resource quantity"));
    }
    wrong.is_none()
}

fn status(new: &At) {
    if new.at("spec.accessModes").is_empty() {
        new.beside("Spec", None).at("accessModes").required("");
    }
    let status = new.at("status");
    status.at("capacity").entries().for_each(|(_, size)| {
        amount(&size);
    });
    let states = status.at("allocatedResourceStatuses");
    for (name, state) in states.entries() {
        resource_key(&states, name);
        if !RESIZE.contains(&state.text()) {
            // The name is shown, and not the state.
            unsupported(&states, name, &RESIZE);
        }
    }
    let amounts = status.at("allocatedResources");
    for (name, size) in amounts.entries() {
        if resource_key(&amounts, name) {
            amount(&size);
        }
    }
}

/// The name of what a claim has: storage, or something of a vendor. True when it is one.
fn resource_key(at: &At, name: &str) -> bool {
    let whys = names::qualified(name);
    at.tell(name, &whys);
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    let other = whys.is_empty() && native && name != "storage";
    if other {
        unsupported(at, name, &["storage"]);
    }
    whys.is_empty() && !other
}

fn unsupported(at: &At, name: &str, allowed: &[&str]) {
    let list: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
    let message = format!("Unsupported value: {name:?}: supported values: {}", list.join(", "));
    at.note(Cause::new("FieldValueNotSupported", at.path(), message));
}

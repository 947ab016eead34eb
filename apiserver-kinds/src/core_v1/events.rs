//! Events, of the older and the newer group.
//!
//! Inputs: decoded objects in the core form, whichever group they came by.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::validate::NameRule;
use serde_json::{Value, json};

/// Most characters of texts of an event, and of its note.
const MOST_TEXT: usize = 128;
const MOST_NOTE: usize = 1024;

/// Fields of references and sources, and their names in the server's own types.
const REFERENCE: [(&str, &str); 7] = [
    ("kind", "Kind"),
    ("namespace", "Namespace"),
    ("name", "Name"),
    ("uid", "UID"),
    ("apiVersion", "APIVersion"),
    ("resourceVersion", "ResourceVersion"),
    ("fieldPath", "FieldPath"),
];
const SOURCE: [(&str, &str); 2] = [("component", "Component"), ("host", "Host")];

/// What stays as it is once the newer group has seen it.
const FROZEN: [&str; 14] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    // There too, this is looked at twice.
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// Checks an Event; `modern`: it came by the newer group.
pub fn event(new: &At, old: Option<&At>, modern: bool) {
    let namespace = new.at("metadata.namespace").text();
    let of = new.at("involvedObject.namespace").text();
    let timed = new.at("eventTime").is_set();
    let right = match of {
        "" => namespace == "default" || (timed && namespace == "kube-system"),
        of => timed || of == namespace,
    };
    if !right {
        new.note(Cause::invalid("involvedObject.namespace", &json!(of), "does not match event.namespace"));
    }
    if timed {
        reporter(new, modern);
    }
    if !modern {
        return;
    }
    let Some(old) = old else {
        new.at("metadata.name").name(NameRule::Subdomain);
        series(new);
        new_event(new);
        return;
    };
    if !same(new.at("series").value(), old.at("series").value()) {
        series(new);
    }
    for field in FROZEN {
        let now = new.at(field);
        if !same(now.value(), old.at(field).value()) {
            let shown = if field == "reportingComponent" { "reportingController" } else { field };
            let why = format!("Invalid value: {}: field is immutable", internal(field, now.value()));
            new.note(Cause::new("FieldValueInvalid", shown, why));
        }
    }
}

fn blank(new: &At, field: &str, why: &str) {
    new.note(Cause::invalid(field, &json!(""), why));
}

fn at_most(text: &At, most: usize) {
    if text.text().len() > most {
        let why = format!("can have at most {most} characters");
        text.note(Cause::invalid(text.path(), &json!(""), &why));
    }
}

/// Who reports, and what: events that have a time of their own say so.
fn reporter(new: &At, modern: bool) {
    let name = if modern { "reportingController" } else { "reportingComponent" };
    let controller = new.beside(name, Some(new.at("reportingComponent").value()));
    if controller.text().is_empty() {
        controller.required("");
    }
    controller.qualified();
    for field in ["reportingInstance", "action", "reason"] {
        let text = new.at(field);
        text.need();
        at_most(&text, MOST_TEXT);
    }
    at_most(&new.at("message"), MOST_NOTE);
}

/// More of the same, seen again.
fn series(new: &At) {
    let series = new.at("series");
    if series.is_set() {
        if series.at("count").number().unwrap_or(0) < 2 {
            blank(new, "series.count", "should be at least 2");
        }
        series.at("lastObservedTime").need();
    }
}

/// What the newer group asks of a new event. What only the older one has is not set through it.
fn new_event(new: &At) {
    new.at("eventTime").need();
    let kind = new.at("type").text();
    if !matches!(kind, "Normal" | "Warning") {
        blank(new, "type", &format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        let found = new.at(field);
        if found.is_set() && *found.value() != json!(0) {
            blank(new, field, "needs to be unset");
        }
    }
    let source = new.at("source");
    if SOURCE.iter().any(|(field, _)| !source.at(field).text().is_empty()) {
        blank(new, "source", "needs to be unset");
    }
}

/// A field in the form of the server's own type.
fn internal(field: &str, value: &Value) -> String {
    let names: &[(&str, &str)] = match field {
        "involvedObject" => &REFERENCE,
        "related" if !value.is_null() => &REFERENCE,
        "source" => &SOURCE,
        "count" if value.is_null() => return "0".into(),
        "reason" | "message" | "type" | "action" | "reportingComponent" | "reportingInstance"
            if value.is_null() =>
        {
            return "\"\"".into();
        }
        _ => return value.to_string(),
    };
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let fields: Vec<String> = names.iter().map(|(key, name)| format!("{name:?}:{:?}", text(key))).collect();
    format!("{{{}}}", fields.join(","))
}

//! An object as readable text: the head, then every field with its words apart, then events. Pure.

use fleet_cli_ground::age;
use jiff::Timestamp;
use serde_json::Value;

use fleet_console::{table::Table, terminal};

/// Lines before the events, as kubectl describes a generic kind.
pub fn describe(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or("<none>").to_string();
    let mut out = String::new();
    let mut head = |key: &str, value: &str| out.push_str(&format!("{:<14}{value}\n", format!("{key}:")));
    head("Name", &text(&metadata["name"]));
    if metadata["namespace"].is_string() {
        head("Namespace", &text(&metadata["namespace"]));
    }
    head("Labels", &pairs(&metadata["labels"]));
    head("Annotations", &pairs(&metadata["annotations"]));
    head("API Version", &text(&object["apiVersion"]));
    head("Kind", &text(&object["kind"]));
    head("Created", &text(&metadata["creationTimestamp"]));
    if let Some(deleting) = metadata["deletionTimestamp"].as_str() {
        head("Deleting", deleting);
    }
    for (key, value) in object.as_object().into_iter().flatten() {
        if !["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
            field(&mut out, key, value, 0);
        }
    }
    out
}

fn pairs(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        // kubectl's last-applied annotation is long and repeats the object.
        .filter(|(key, _)| *key != "kubectl.kubernetes.io/last-applied-configuration")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_string() } else { pairs.join("\n              ") }
}

fn field(out: &mut String, key: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let title = title(key);
    match value {
        Value::Object(map) if map.is_empty() => {}
        Value::Object(map) => {
            out.push_str(&format!("{indent}{title}:\n"));
            for (key, value) in map {
                field(out, key, value, depth + 1);
            }
        }
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = items.iter().map(scalar).collect();
            out.push_str(&format!("{indent}{title}:  {}\n", items.join(" ")));
        }
        Value::Array(items) => {
            out.push_str(&format!("{indent}{title}:\n"));
            for item in items {
                list_item(out, item, depth + 1);
            }
        }
        other => out.push_str(&format!("{indent}{title}:  {}\n", scalar(other))),
    }
}

/// An item of a list: its first field after a dash, the others below it.
fn list_item(out: &mut String, item: &Value, depth: usize) {
    let mut body = String::new();
    match item {
        Value::Object(map) => map.iter().for_each(|(key, value)| field(&mut body, key, value, depth + 1)),
        other => body.push_str(&format!("{}{}\n", "  ".repeat(depth + 1), scalar(other))),
    }
    let dash = format!("{}- ", "  ".repeat(depth));
    match body.get(dash.len()..) {
        Some(rest) => {
            out.push_str(&dash);
            out.push_str(rest);
        }
        None => out.push_str(&body),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_string(),
        other => other.to_string(),
    }
}

/// `pytorchReplicaSpecs` as `Pytorch Replica Specs`; names that are no identifiers stay as they are.
fn title(key: &str) -> String {
    if !key.chars().all(char::is_alphanumeric) {
        return key.to_string();
    }
    let mut out = String::new();
    let mut previous_lower = false;
    for (index, letter) in key.chars().enumerate() {
        if index == 0 {
            out.extend(letter.to_uppercase());
        } else {
            if letter.is_uppercase() && previous_lower {
                out.push(' ');
            }
            out.push(letter);
        }
        previous_lower = letter.is_lowercase() || letter.is_ascii_digit();
    }
    out
}

/// When an event was last seen.
pub fn event_time(event: &Value) -> Option<&str> {
    ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
        .iter()
        .find_map(|path| event.pointer(path).and_then(Value::as_str))
}

/// The events of an object, in order of time.
pub fn events(events: &[Value], now: Timestamp) -> String {
    // They are indented by two columns.
    events_within(events, now, terminal::width().map(|width| width.saturating_sub(2)))
}

fn events_within(events: &[Value], now: Timestamp, width: Option<usize>) -> String {
    if events.is_empty() {
        return "Events:       <none>\n".to_string();
    }
    // Their headers are not in capitals.
    let titles = ["Type", "Reason", "Age", "From", "Message"];
    let mut table = Table { spare: &["From", "Age"], ..Table::new(&titles) };
    table.row(titles);
    table.row(["----", "------", "----", "----", "-------"]);
    for event in events {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let from = match event["source"]["component"].as_str().filter(|from| !from.is_empty()) {
            Some(component) => component.to_string(),
            None => text(&event["reportingComponent"]),
        };
        let count = event["count"].as_i64().unwrap_or(1);
        let mut seen = age::since(event_time(event), now);
        if count > 1 {
            seen.push_str(&format!(" (x{count})"));
        }
        table.row([text(&event["type"]), text(&event["reason"]), seen, from, text(&event["message"])]);
    }
    let rows = table.rows_within(width);
    let rows: String = rows.lines().map(|line| format!("  {line}\n")).collect();
    format!("Events:\n{rows}")
}

#[cfg(test)]
mod tests;

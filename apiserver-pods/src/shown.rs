//! A spec as a real server prints it in messages, and the difference of two.
//!
//! Inputs: the values before and after, in the stored form. The text is that of the server's own types: see
//! `shown_fields`. Absent on purpose: what may differ (see `change`).

use super::line_diff::unified;
use super::shown_fields::TYPES;
use fleet_apiserver_ground::tree;
use serde_json::{Map, Value};

/// The spec of a pod.
pub(crate) const SPEC: &str = "PodSpec";
/// An ephemeral container.
pub(crate) const EPHEMERAL: &str = "EphemeralContainer";
/// Fields of a spec that are shown as fields of its security context.
const SHARED: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// What differs between two values of a type, as lines.
pub(crate) fn difference(kind: &str, before: &Value, after: &Value) -> String {
    unified(&lines(kind, before), &lines(kind, after))
}

fn lines(kind: &str, value: &Value) -> Vec<String> {
    let mut out = String::new();
    if kind == SPEC {
        let mut spec = value.clone();
        let shared: Vec<(&str, Value)> =
            SHARED.iter().filter_map(|key| Some((*key, spec.get(*key)?.clone()))).collect();
        let context = tree::child(&mut spec, "securityContext");
        context.extend(shared.into_iter().map(|(key, value)| (key.to_string(), value)));
        object(&mut out, kind, &spec, 0);
    } else {
        object(&mut out, kind, value, 0);
    }
    out.push('\n');
    out.split_inclusive('\n').map(str::to_string).collect()
}

fn indent(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', depth));
}

/// Starts the next entry of an object or a list.
fn next(out: &mut String, depth: usize, first: &mut bool) {
    if !*first {
        out.push(',');
    }
    *first = false;
    indent(out, depth);
}

/// All fields of a value of this type.
fn object(out: &mut String, kind: &str, value: &Value, depth: usize) {
    let fields = TYPES.iter().find(|(name, _)| *name == kind).map_or("", |(_, fields)| *fields);
    let mut first = true;
    out.push('{');
    for field in fields.split(' ') {
        if field == "@" {
            for key in ["labels", "annotations"] {
                let Some(found) = tree::at(value, &["metadata", key]).filter(|v| !is_empty(v)) else {
                    continue;
                };
                next(out, depth + 1, &mut first);
                out.push_str(&format!("\"{key}\": "));
                raw(out, found, depth + 1);
            }
            continue;
        }
        let end = field.find(['#', '!', '%', '?', '~', ':', '*', '[']).unwrap_or(field.len());
        let (name, rest) = field.split_at(end);
        let (shown, key) = match name.split_once('=') {
            Some((shown, key)) => (shown, key.to_string()),
            None => (name, small(name)),
        };
        next(out, depth + 1, &mut first);
        out.push_str(&format!("\"{shown}\": "));
        let found = value.get(&key).unwrap_or(&Value::Null);
        let (sign, inner) = rest.split_at(rest.len().min(1));
        write(out, sign, inner, found, depth + 1);
    }
    indent(out, depth);
    out.push('}');
}

/// A name with a small first letter.
fn small(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn write(out: &mut String, sign: &str, kind: &str, value: &Value, depth: usize) {
    match sign {
        "?" => raw(out, value, depth),
        "~" => selector(out, value, depth),
        "*" if value.is_null() => out.push_str("null"),
        "*" | ":" => object(out, kind, value, depth),
        "[" => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            list(out, items, depth, |out, item| object(out, kind, item, depth + 1));
        }
        _ if !value.is_null() => raw(out, value, depth),
        "#" => out.push('0'),
        "!" => out.push_str("false"),
        "%" => out.push_str("\"0\""),
        _ => out.push_str("\"\""),
    }
}

fn list(out: &mut String, items: &[Value], depth: usize, each: impl Fn(&mut String, &Value)) {
    if items.is_empty() {
        out.push_str("null");
        return;
    }
    let mut first = true;
    out.push('[');
    for item in items {
        next(out, depth + 1, &mut first);
        each(out, item);
    }
    indent(out, depth);
    out.push(']');
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// A value as it is; an empty list or map is one that is not there.
fn raw(out: &mut String, value: &Value, depth: usize) {
    match value {
        _ if is_empty(value) => out.push_str("null"),
        Value::Array(items) => list(out, items, depth, |out, item| raw(out, item, depth + 1)),
        Value::Object(map) => {
            let entries: Vec<(&str, &Value)> = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
            entries_of(out, &entries, depth);
        }
        Value::String(text) => out.push_str(&quoted(text)),
        other => out.push_str(&other.to_string()),
    }
}

fn entries_of(out: &mut String, entries: &[(&str, &Value)], depth: usize) {
    let mut first = true;
    out.push('{');
    for (key, value) in entries {
        next(out, depth + 1, &mut first);
        out.push_str(&format!("{}: ", quoted(key)));
        raw(out, value, depth + 1);
    }
    indent(out, depth);
    out.push('}');
}

/// A text in quotes; what would be markup in a page is written as a number.
fn quoted(text: &str) -> String {
    let text = Value::from(text).to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let escape = |c: char| match c {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", u32::from(c)),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

/// A label selector, whose labels come before its expressions.
fn selector(out: &mut String, value: &Value, depth: usize) {
    let none = Map::new();
    if value.is_null() {
        out.push_str("null");
        return;
    }
    let map = value.as_object().unwrap_or(&none);
    let parts = ["matchLabels", "matchExpressions"].into_iter();
    let entries: Vec<(&str, &Value)> =
        parts.filter_map(|key| Some((key, map.get(key)?))).filter(|(_, value)| !is_empty(value)).collect();
    if entries.is_empty() {
        out.push_str("{}");
        return;
    }
    entries_of(out, &entries, depth);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_type_is_in_the_table_once() {
        for (kind, fields) in TYPES {
            assert_eq!(TYPES.iter().filter(|(name, _)| name == kind).count(), 1, "{kind}");
            for field in fields.split(' ') {
                let Some((_, other)) = field.split_once([':', '*', '[']) else { continue };
                assert!(TYPES.iter().any(|(name, _)| *name == other), "{kind}: {other}");
            }
        }
    }

    #[test]
    fn a_value_is_shown_with_all_its_fields() {
        let shown = |kind: &str, value: Value| lines(kind, &value).concat();
        assert_eq!(
            shown("Toleration", json!({"key": "a<b", "tolerationSeconds": 3})),
            "{\n \"Key\": \"a\\u003cb\",\n \"Operator\": \"\",\n \"Value\": \"\",\n \"Effect\": \"\",\n \"TolerationSeconds\": 3\n}\n"
        );
        assert_eq!(
            shown("PodDNSConfig", json!({"nameservers": ["1.1.1.1"], "options": [{"name": "a"}]})),
            "{\n \"Nameservers\": [\n  \"1.1.1.1\"\n ],\n \"Searches\": null,\n \"Options\": [\n  {\n   \"Name\": \"a\",\n   \"Value\": null\n  }\n ]\n}\n"
        );
    }

    #[test]
    fn a_changed_spec_is_shown_with_what_is_around_it() {
        let spec = |node: &str| json!({"containers": [{"name": "c", "image": "i"}], "nodeName": node, "hostNetwork": true});
        let found = difference(SPEC, &spec(""), &spec("n"));
        let changed = " \"ServiceAccountName\": \"\",\n  \"AutomountServiceAccountToken\": null,\n- \"NodeName\": \"\",\n+ \"NodeName\": \"n\",\n  \"SecurityContext\": {\n   \"HostNetwork\": true,\n";
        assert!(found.contains(changed), "{found}");
    }
}

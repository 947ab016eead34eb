//! Parts of objects as a real server prints them in messages, and the difference of two.
//!
//! Inputs: values in the stored form. The text is that of the server's own types: see `shown_fields`. Absent on purpose: what
//! may differ.

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

/// The spec of a claim of a volume.
pub const CLAIM: &str = "PersistentVolumeClaimSpec";
/// Where a volume lies.
pub const VOLUME: &str = "PersistentVolumeSource";

/// How an object is written: over lines, this deep, or without blanks.
#[derive(Clone, Copy)]
enum Layout {
    Lines(usize),
    One,
}

impl Layout {
    fn below(self) -> Layout {
        match self {
            Layout::Lines(depth) => Layout::Lines(depth + 1),
            Layout::One => Layout::One,
        }
    }
}

/// A value of a type in one line.
pub fn line(kind: &str, value: &Value) -> String {
    let mut out = String::new();
    object(&mut out, kind, value, Layout::One);
    out
}

/// What differs between two values of a type, as lines.
pub fn difference(kind: &str, before: &Value, after: &Value) -> String {
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
        object(&mut out, kind, &spec, Layout::Lines(0));
    } else {
        object(&mut out, kind, value, Layout::Lines(0));
    }
    out.push('\n');
    out.split_inclusive('\n').map(str::to_string).collect()
}

fn indent(out: &mut String, layout: Layout) {
    if let Layout::Lines(depth) = layout {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    }
}

/// The key of an entry, in quotes by now.
fn key(out: &mut String, quoted: &str, layout: Layout) {
    out.push_str(quoted);
    out.push_str(if matches!(layout, Layout::One) { ":" } else { ": " });
}

/// Starts the next entry of an object or a list.
fn next(out: &mut String, layout: Layout, first: &mut bool) {
    if !*first {
        out.push(',');
    }
    *first = false;
    indent(out, layout);
}

/// All fields of a value of this type.
fn object(out: &mut String, kind: &str, value: &Value, layout: Layout) {
    let fields = TYPES.iter().find(|(name, _)| *name == kind).map_or("", |(_, fields)| *fields);
    let mut first = true;
    out.push('{');
    for field in fields.split(' ') {
        if field == "@" {
            for key in ["labels", "annotations"] {
                let Some(found) = tree::at(value, &["metadata", key]).filter(|v| !is_empty(v)) else {
                    continue;
                };
                next(out, layout.below(), &mut first);
                self::key(out, &quoted(key), layout);
                raw(out, found, layout.below());
            }
            continue;
        }
        let end = field.find(['#', '!', '%', '?', '~', ':', '*', '[']).unwrap_or(field.len());
        let (name, rest) = field.split_at(end);
        let (shown, key) = match name.split_once('=') {
            Some((shown, key)) => (shown, key.to_string()),
            None => (name, small(name)),
        };
        next(out, layout.below(), &mut first);
        self::key(out, &quoted(shown), layout);
        let found = value.get(&key).unwrap_or(&Value::Null);
        let (sign, inner) = rest.split_at(rest.len().min(1));
        write(out, sign, inner, found, layout.below());
    }
    indent(out, layout);
    out.push('}');
}

/// A name with a small first letter.
fn small(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn write(out: &mut String, sign: &str, kind: &str, value: &Value, layout: Layout) {
    match sign {
        "?" => raw(out, value, layout),
        "~" => selector(out, value, layout),
        "*" if value.is_null() => out.push_str("null"),
        "*" | ":" => object(out, kind, value, layout),
        "[" => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            list(out, items, layout, |out, item| object(out, kind, item, layout.below()));
        }
        _ if !value.is_null() => raw(out, value, layout),
        "#" => out.push('0'),
        "!" => out.push_str("false"),
        "%" => out.push_str("\"0\""),
        _ => out.push_str("\"\""),
    }
}

fn list(out: &mut String, items: &[Value], layout: Layout, each: impl Fn(&mut String, &Value)) {
    if items.is_empty() {
        out.push_str("null");
        return;
    }
    let mut first = true;
    out.push('[');
    for item in items {
        next(out, layout.below(), &mut first);
        each(out, item);
    }
    indent(out, layout);
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
fn raw(out: &mut String, value: &Value, layout: Layout) {
    match value {
        _ if is_empty(value) => out.push_str("null"),
        Value::Array(items) => list(out, items, layout, |out, item| raw(out, item, layout.below())),
        Value::Object(map) => {
            let entries: Vec<(&str, &Value)> = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
            entries_of(out, &entries, layout);
        }
        Value::String(text) => out.push_str(&quoted(text)),
        other => out.push_str(&other.to_string()),
    }
}

fn entries_of(out: &mut String, entries: &[(&str, &Value)], layout: Layout) {
    let mut first = true;
    out.push('{');
    for (name, value) in entries {
        next(out, layout.below(), &mut first);
        key(out, &quoted(name), layout);
        raw(out, value, layout.below());
    }
    indent(out, layout);
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
fn selector(out: &mut String, value: &Value, layout: Layout) {
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
    entries_of(out, &entries, layout);
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
    fn a_value_can_be_shown_in_one_line() {
        let toleration = json!({"key": "a", "tolerationSeconds": 3});
        let want = r#"{"Key":"a","Operator":"","Value":"","Effect":"","TolerationSeconds":3}"#;
        assert_eq!(line("Toleration", &toleration), want);
        let term = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]});
        let want =
            r#"{"MatchExpressions":[{"Key":"a","Operator":"In","Values":["b","c"]}],"MatchFields":null}"#;
        assert_eq!(line("NodeSelectorTerm", &term), want);
    }

    #[test]
    fn a_changed_spec_is_shown_with_what_is_around_it() {
        let spec = |node: &str| json!({"containers": [{"name": "c", "image": "i"}], "nodeName": node, "hostNetwork": true});
        let found = difference(SPEC, &spec(""), &spec("n"));
        let changed = " \"ServiceAccountName\": \"\",\n  \"AutomountServiceAccountToken\": null,\n- \"NodeName\": \"\",\n+ \"NodeName\": \"n\",\n  \"SecurityContext\": {\n   \"HostNetwork\": true,\n";
        assert!(found.contains(changed), "{found}");
    }
}

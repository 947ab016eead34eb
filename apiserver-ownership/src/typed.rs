//! What is wrong with an applied configuration before it is merged: fields that no schema knows, values of another type,
//! items that cannot be told apart.
//!
//! Inputs: a configuration as it was sent, and the schema of its kind. Texts: those of structured merge, which prints values
//! as Go does. Absent on purpose: the merge itself (see `merge`), and rules of values (see `validate`).

use crate::fieldset;
use fleet_apiserver_schema::{ListKind, MICRO_TIME, Schema, Type, go_text};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Bytes of problems that are told; after them, no more are looked for. Paths may be long, and have much in common.
const MOST_BYTES: usize = 1 << 20;

struct Walk {
    /// Of built-in kinds; times of custom resources are plain strings.
    builtin: bool,
    path: String,
    found: Vec<String>,
    /// Of all that was found.
    bytes: usize,
}

/// Everything that is wrong with a configuration, with its path.
pub fn problems(schema: &Schema, config: &Value, builtin: bool) -> Vec<String> {
    let mut walk = Walk { builtin, path: String::new(), found: Vec::new(), bytes: 0 };
    walk.visit(schema, config);
    walk.found
}

/// Problems as one text: one as it is, more below each other.
pub fn told(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        more => format!("errors:\n  {}", more.join("\n  ")),
    }
}

impl Walk {
    fn note(&mut self, what: impl AsRef<str>) {
        let what = what.as_ref();
        if self.bytes > MOST_BYTES {
            return;
        }
        let text = if self.path.is_empty() { what.to_string() } else { format!("{}: {what}", self.path) };
        self.bytes += text.len();
        self.found.push(text);
    }

    fn within(&mut self, element: &str, f: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(element);
        f(self);
        self.path.truncate(length);
    }

    fn visit(&mut self, schema: &Schema, value: &Value) {
        let node = schema.get();
        if value.is_null() || self.bytes > MOST_BYTES {
            return;
        }
        match node.ty {
            Type::Any if node.is_opaque() => {}
            Type::Any | Type::Object => match value {
                Value::Object(map) => self.map(node, map),
                _ if node.ty == Type::Any => {}
                other => self.note(format!("expected map, got &{{{}}}", shown(other))),
            },
            Type::Array => match value {
                Value::Array(list) => self.list(node, list),
                other => self.note(format!("expected list, got &{{{}}}", shown(other))),
            },
            Type::Integer | Type::Number if !value.is_number() => {
                self.note(format!("expected numeric (int or float), got {}", go_type(value)));
            }
            Type::Boolean if !value.is_boolean() => {
                self.note(format!("expected boolean, got &{{{}}}", shown(value)));
            }
            Type::String if !(value.is_string() || self.builtin && is_time(node) && is_scalar(value)) => {
                let text = if is_time(node) && self.builtin {
                    format!("expected any scalar, got &{{{}}}", shown(value))
                } else {
                    format!("expected string, got &value.valueUnstructured{{Value:{}}}", literal(value))
                };
                self.note(text);
            }
            Type::IntOrString | Type::Quantity if !is_scalar(value) => {
                self.note(format!("expected any scalar, got &{{{}}}", shown(value)));
            }
            _ => {}
        }
    }

    fn map(&mut self, node: &Schema, map: &Map<String, Value>) {
        for (key, value) in map {
            let element = format!(".{key}");
            match node.field(key) {
                Some(field) => self.within(&element, |walk| walk.visit(field, value)),
                None if node.preserve || node.is_opaque() => {}
                None if node.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") => {}
                None => self.within(&element, |walk| walk.note("field not declared in schema")),
            }
        }
    }

    fn list(&mut self, node: &Schema, list: &[Value]) {
        let Some(items) = node.items.as_deref() else { return };
        let mut seen = BTreeSet::new();
        for (i, item) in list.iter().enumerate() {
            let element = match &node.list {
                ListKind::Atomic => format!("[{i}]"),
                ListKind::Set => {
                    if let Some(why) = not_of_a_set(item) {
                        // Without a name for the item, nothing more is said of the list.
                        return self.note(format!("element {i}: {why}"));
                    }
                    format!("[={item}]")
                }
                ListKind::Map(keys) => {
                    let key = fieldset::item_key(keys, Some(items), item);
                    if let Some(why) = without_key(keys, item, &key) {
                        return self.note(format!("element {i}: {why}"));
                    }
                    fieldset::shown(&key)
                }
            };
            if node.list != ListKind::Atomic && !seen.insert(element.clone()) {
                self.note(format!("duplicate entries for key {element}"));
            }
            self.within(&element, |walk| walk.visit(items, item));
        }
    }
}

/// Why a value is not one that a set can have.
fn not_of_a_set(item: &Value) -> Option<&'static str> {
    match item {
        Value::Object(_) => Some("associative list without keys has an element that's a map type"),
        Value::Array(_) => Some("not supported: associative list with lists as elements"),
        Value::Null => Some("associative list without keys has an element that's an explicit null"),
        _ => None,
    }
}

/// Why an item is not told apart by its keys; `key` is what they make of it.
fn without_key(keys: &[Box<str>], item: &Value, key: &str) -> Option<String> {
    if item.is_null() {
        return Some("associative list with keys may not have a null element".into());
    }
    if !item.is_object() {
        return Some("associative list with keys may not have non-map elements".into());
    }
    (key == "k:{}").then(|| {
        let named: Vec<String> = keys.iter().map(|k| go_text::quoted(k)).collect();
        format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            named.join(" ")
        )
    })
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

/// Times of built-in kinds are read later, whatever scalar they are.
fn is_time(node: &Schema) -> bool {
    let format = node.rules.as_ref().and_then(|r| r.format.as_deref());
    matches!(format, Some("date-time" | MICRO_TIME))
}

/// A number as Go prints one that came by JSON: a float.
fn number(n: &serde_json::Number) -> String {
    go_text::float(n.as_f64().unwrap_or_default())
}

/// A value as Go's `%v` prints it.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(n) => number(n),
        Value::Array(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", shown(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => go_text::printed(other),
    }
}

/// A value as Go's `%#v` prints it.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::Number(n) => number(n),
        Value::Array(list) => {
            format!("[]interface {{}}{{{}}}", list.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(k, v)| format!("{}:{}", go_text::quoted(k), literal(v))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        Value::String(text) => go_text::quoted(text),
        scalar => scalar.to_string(),
    }
}

/// The name of a value's type in Go.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_deployment(config: Value) -> Vec<String> {
        problems(&Schema::builtin("api.apps.v1.Deployment"), &config, true)
    }

    #[test]
    fn what_no_schema_knows_has_its_path() {
        let config =
            json!({"spec": {"foo": 1, "template": {"spec": {"containers": [{"name": "c", "bar": 2}]}}}});
        let found = of_deployment(config);
        let item = ".spec.template.spec.containers[name=\"c\"].bar: field not declared in schema";
        assert_eq!(found, [".spec.foo: field not declared in schema", item]);
        assert_eq!(told(&found), format!("errors:\n  {}\n  {}", found[0], found[1]));
        assert_eq!(told(&found[..1]), found[0]);
    }

    #[test]
    fn types_are_named_as_go_names_them() {
        for (spec, want) in [
            (json!({"replicas": "3"}), ".spec.replicas: expected numeric (int or float), got string"),
            (
                json!({"replicas": {}}),
                ".spec.replicas: expected numeric (int or float), got map[string]interface {}",
            ),
            (json!({"paused": "yes"}), ".spec.paused: expected boolean, got &{yes}"),
            (json!({"template": []}), ".spec.template: expected map, got &{[]}"),
            (json!({"template": 5}), ".spec.template: expected map, got &{5}"),
            (
                json!({"strategy": {"type": 7}}),
                ".spec.strategy.type: expected string, got &value.valueUnstructured{Value:7}",
            ),
            (
                json!({"strategy": {"rollingUpdate": {"maxSurge": [1]}}}),
                ".spec.strategy.rollingUpdate.maxSurge: expected any scalar, got &{[1]}",
            ),
            (
                json!({"template": {"spec": {"containers": {"a": true}}}}),
                ".spec.template.spec.containers: expected list, got &{map[a:true]}",
            ),
            (
                json!({"selector": {"matchLabels": {"a": ["b", null]}}}),
                ".spec.selector.matchLabels.a: expected string, got &value.valueUnstructured{Value:[]interface {}{\"b\", interface {}(nil)}}",
            ),
        ] {
            assert_eq!(of_deployment(json!({"spec": spec})), [want]);
        }
        let fine = json!({"metadata": {"creationTimestamp": null, "labels": null}, "spec": {"replicas": 3}});
        assert!(of_deployment(fine).is_empty());
    }

    #[test]
    fn a_hostile_configuration_costs_no_more_than_a_few_times_its_size() {
        // Each problem has the whole path, of which a body can have many of a megabyte.
        let long = "a".repeat(MOST_BYTES);
        let many: Map<String, Value> = (0..10_000).map(|i| (format!("k{i}"), json!({"x": 1}))).collect();
        let found = of_deployment(json!({"metadata": {"labels": {long: many}}, "spec": many}));
        let bytes: usize = found.iter().map(String::len).sum();
        assert!(!found.is_empty() && bytes < 4 * MOST_BYTES, "{bytes}");
        let finalizers = vec![json!("a".repeat(1000)); 10_000];
        let bytes: usize =
            of_deployment(json!({"metadata": {"finalizers": finalizers}})).iter().map(String::len).sum();
        assert!(bytes < 2 * MOST_BYTES, "{bytes}");
    }

    #[test]
    fn items_are_told_apart() {
        let of = |containers: Value| {
            of_deployment(json!({"spec": {"template": {"spec": {"containers": containers}}}}))
        };
        let at = ".spec.template.spec.containers";
        let twice = of(json!([{"name": "a"}, {"name": "a"}]));
        assert_eq!(twice, [format!("{at}: duplicate entries for key [name=\"a\"]")]);
        let nameless = of(json!([{"image": "x"}]));
        let why = "associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)";
        assert_eq!(nameless, [format!("{at}: element 0: {why}")]);
        let wrong = of(json!([{"name": "a"}, "x"]));
        assert_eq!(
            wrong,
            [format!("{at}: element 1: associative list with keys may not have non-map elements")]
        );
        let null = of(json!([null]));
        assert_eq!(
            null,
            [format!("{at}: element 0: associative list with keys may not have a null element")]
        );
        let finalizers = of_deployment(json!({"metadata": {"finalizers": ["a/b", "a/b"]}}));
        assert_eq!(finalizers, [".metadata.finalizers: duplicate entries for key [=\"a/b\"]"]);
    }
}

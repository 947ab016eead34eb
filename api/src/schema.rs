//! Schema parts that derived schemas cannot express: quantities that may be numbers, open maps, the recursive
//! quota node.

use fleet_quota_tree::Attribute;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::advice::LEVELS;

/// Pattern of a Kubernetes quantity.
const QUANTITY: &str = "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|\
                        ([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";

/// [`QUANTITY`] without a minus sign.
const AMOUNT: &str = "^\\+?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|\
                      ([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";

/// A Kubernetes quantity: `2`, `500m`, `16Gi`, a string or a number.
pub fn quantity_value() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// Restricts the quantities of a map to zero or more. A CEL rule could not do this: for its cost estimate an
/// API server assumes megabytes for each int-or-string.
pub fn at_least_zero(map: &mut Value) {
    let value = &mut map["additionalProperties"];
    value["pattern"] = AMOUNT.into();
    value["minimum"] = 0.into();
}

/// Whether a field is a quantity.
pub fn is_quantity(field: &Value) -> bool {
    field["x-kubernetes-int-or-string"] == true
        && [QUANTITY, AMOUNT].iter().any(|pattern| field["pattern"] == **pattern)
}

/// A map of resource names to quantities that Fleet writes itself, always as strings.
pub fn written_quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"type": "string", "pattern": QUANTITY}})
}

/// A resource list: resource name to quantity.
pub fn resource_list(_: &mut SchemaGenerator) -> Schema {
    resource_list_value().try_into().unwrap_or_else(|_| json_schema!({"type": "object"}))
}

fn resource_list_value() -> Value {
    json!({"type": "object", "additionalProperties": quantity_value()})
}

/// An object whose fields are kept as they are.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of objects whose fields are kept as they are.
pub fn any_object_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}

/// A list of complete Kubernetes objects.
pub fn embedded_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}})
}

/// A value of any JSON type.
pub fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// The root of an ElasticQuotaTree's spec. Structural schemas cannot recurse: levels below [`LEVELS`] are kept unchecked, and
/// the controller validates them.
pub fn quota_node(_: &mut SchemaGenerator) -> Schema {
    quota_node_value(LEVELS).try_into().unwrap_or_else(|_| json_schema!({"type": "object"}))
}

fn quota_node_value(depth: usize) -> Value {
    if depth == 0 {
        return json!({
            "type": "object",
            "description": "Only the controller validates nodes at this depth.",
            "x-kubernetes-preserve-unknown-fields": true,
        });
    }
    let attributes: Vec<String> = fleet_quota_tree::ATTRIBUTES
        .iter()
        .map(|Attribute(name, on, values, ..)| format!("{name} on {}: {}", on.describe(), values.describe()))
        .collect();
    let described = |mut value: Value, text: &str| {
        value["description"] = json!(text);
        value
    };
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let words = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let children = json!({"type": "array", "items": quota_node_value(depth - 1)});
    json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "description":
                "Name among its siblings; the root's is root. A job's label quota.scheduling.alibabacloud.com/name \
                 names its leaf by name or by path."},
            "namespaces": described(texts, "On a leaf: namespaces whose jobs belong here; each in one leaf only."),
            "attributes": described(words, &format!("Rules of this node. {}.", attributes.join(". "))),
            "min": described(resource_list_value(), "What is guaranteed, by resource: others may borrow it while it is idle, \
                and it is reclaimed when needed. Absent: nothing."),
            "max": described(resource_list_value(), "The most that admitted jobs below may use, by resource; \
                kube-queue/max-jobs counts jobs. Absent: no limit. The root's max is the capacity."),
            "children": described(children, "Quotas below this one. A node without children is a leaf: jobs queue \
                there."),
        },
    })
}

/// Whether a schema keeps descriptions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    Kept,
    /// Inside a built-in type: Kubernetes documents its fields, and the descriptions are most of the schema's
    /// size.
    Dropped,
}

/// Prepares a derived schema for a CustomResourceDefinition: removes descriptions inside pod templates and
/// volume claims, turns the others into plain text for `kubectl explain`, lets quantities be numbers, and
/// removes formats that Kubernetes does not know, and
/// bounds integers of 32 bits.
pub fn tidy(schema: &mut Value) {
    tidy_below(schema, Texts::Kept);
}

fn tidy_below(schema: &mut Value, texts: Texts) {
    match schema {
        Value::Object(map) => {
            let quantity = map
                .get("description")
                .and_then(Value::as_str)
                .is_some_and(|text| text.starts_with("Quantity is a fixed-point representation"));
            if quantity {
                *schema = quantity_value();
                return;
            }
            // A property may itself be called `description`; then its value is an object, not a text.
            if let Some(Value::String(text)) = map.get("description") {
                match texts {
                    Texts::Kept => drop(map.insert("description".to_string(), json!(plain(text)))),
                    Texts::Dropped => drop(map.remove("description")),
                }
            }
            // Hoisting moves the types out of this union, the only union in which a definition may name
            // types.
            if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) && map.contains_key("anyOf")
            {
                map.insert("anyOf".to_string(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            if let Some(Value::String(format)) = map.get("format")
                && !["int32", "int64", "float", "double", "date-time", "byte"].contains(&format.as_str())
            {
                map.remove("format");
            }
            bound_integer(map);
            for (key, value) in map.iter_mut() {
                if texts == Texts::Kept && is_built_in(key, value) {
                    let own = value["description"].take();
                    tidy_below(value, Texts::Dropped);
                    if let Some(text) = own.as_str() {
                        value["description"] = json!(plain(text));
                    }
                } else {
                    tidy_below(value, texts);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| tidy_below(item, texts)),
        _ => {}
    }
}

/// API servers do not enforce the formats of integers, only their bounds. A controller that reads 32 bits stops at a list
/// with one number that has more, and with it all jobs of that kind.
fn bound_integer(schema: &mut serde_json::Map<String, Value>) {
    if schema.get("type").is_some_and(|kind| kind == "integer")
        && schema.get("format").is_some_and(|format| format == "int32")
    {
        schema.entry("minimum").or_insert_with(|| i32::MIN.into());
        schema.entry("maximum").or_insert_with(|| i32::MAX.into());
    }
}

/// A property with the fields of a large built-in type of Kubernetes.
fn is_built_in(key: &str, value: &Value) -> bool {
    let has = |path: &str| value.pointer(path).is_some();
    (key == "template" && has("/properties/spec/properties/containers"))
        || (key == "volumeClaim" && has("/properties/accessModes"))
        || (key == "metrics" && has("/items/properties/containerResource"))
}

/// A comment as `kubectl explain` shows it: one paragraph without Markdown.
fn plain(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(without_link).collect();
    words.join(" ").replace('`', "")
}

/// `[Type]` as `Type`; other brackets stay.
fn without_link(word: &str) -> String {
    let inside = word.split_once('[').and_then(|(before, rest)| Some((before, rest.split_once(']')?)));
    match inside {
        Some((before, (name, after)))
            if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "`:".contains(c)) =>
        {
            format!("{before}{name}{after}")
        }
        _ => word.to_string(),
    }
}

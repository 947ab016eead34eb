//! Schema pieces that the derived schemas cannot say: quantities that may be written as numbers,
//! open maps, the recursive quota node.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// What Kubernetes reads as a quantity.
const QUANTITY: &str = "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|\
                        ([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";

/// A Kubernetes quantity: `2`, `500m`, `16Gi`, a string or a number.
pub fn quantity_value() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// A map of resource names to quantities that Fleet writes itself, always as texts.
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

/// Levels of the quota tree whose fields are checked by the schema. Structural schemas cannot
/// recurse; below this the fields are kept unchecked and judged by the controller.
const CHECKED_TREE_DEPTH: usize = 6;

/// The root of an ElasticQuotaTree's spec.
pub fn quota_node(_: &mut SchemaGenerator) -> Schema {
    quota_node_value(CHECKED_TREE_DEPTH).try_into().unwrap_or_else(|_| json_schema!({"type": "object"}))
}

fn quota_node_value(depth: usize) -> Value {
    if depth == 0 {
        return json!({
            "type": "object",
            "description": "A node this deep is checked by the controller alone.",
            "x-kubernetes-preserve-unknown-fields": true,
        });
    }
    let attributes: Vec<String> = fleet_quota::known_attributes()
        .map(|(name, nodes, values)| format!("{name} on {nodes}: {values}"))
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
            "min": described(resource_list_value(), "What is guaranteed, by resource: borrowed by others while idle, \
                and taken back. Nothing where absent."),
            "max": described(resource_list_value(), "The most that admitted jobs below may use, by resource; \
                kube-queue/max-jobs counts jobs. No bound where absent; the root's is the capacity."),
            "children": described(children, "Quotas below this one. A node without children is a leaf: jobs queue \
                there."),
        },
    })
}

/// Whose texts a schema keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    Kept,
    /// Inside a built-in type; its texts stand in Kubernetes' own reference and are most of the size.
    Dropped,
}

/// Makes a derived schema fit for a CustomResourceDefinition: descriptions inside pod templates and volume claims go,
/// the others become plain text for `kubectl explain`, quantities accept numbers, formats unknown to Kubernetes go.
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
            // A property may itself be called `description`; then it holds an object, not a text.
            if let Some(Value::String(text)) = map.get("description") {
                match texts {
                    Texts::Kept => drop(map.insert("description".to_string(), json!(plain(text)))),
                    Texts::Dropped => drop(map.remove("description")),
                }
            }
            if let Some(Value::String(format)) = map.get("format")
                && !["int32", "int64", "float", "double", "date-time", "byte"].contains(&format.as_str())
            {
                map.remove("format");
            }
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

/// A property with the fields of a type of Kubernetes' own that has many.
fn is_built_in(key: &str, value: &Value) -> bool {
    let has = |path: &str| value.pointer(path).is_some();
    (key == "template" && has("/properties/spec/properties/containers"))
        || (key == "volumeClaim" && has("/properties/accessModes"))
        || (key == "metrics" && has("/items/properties/containerResource"))
}

/// A comment as `kubectl explain` shows it: without the marks of code and links, in one paragraph.
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

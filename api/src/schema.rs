//! Schema pieces that the derived schemas cannot say: quantities that may be written as numbers,
//! open maps, the recursive quota node.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A Kubernetes quantity: `2`, `500m`, `16Gi`, a string or a number.
pub fn quantity_value() -> Value {
    json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
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
        return json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "namespaces": {"type": "array", "items": {"type": "string"}},
            "attributes": {"type": "object", "additionalProperties": {"type": "string"}},
            "min": resource_list_value(),
            "max": resource_list_value(),
            "children": {"type": "array", "items": quota_node_value(depth - 1)},
        },
    })
}

/// Makes a derived schema fit for a CustomResourceDefinition: descriptions of the built-in types go
/// (they are half of its size), quantities accept numbers, formats unknown to Kubernetes go.
pub fn tidy(schema: &mut Value) {
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
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            if let Some(Value::String(format)) = map.get("format")
                && !["int32", "int64", "float", "double", "date-time", "byte"].contains(&format.as_str())
            {
                map.remove("format");
            }
            for value in map.values_mut() {
                tidy(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

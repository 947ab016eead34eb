//! Pod specs inside workloads.

use serde_json::{Map, Value};

/// Pod specs of every known kind of workload, found by their containers.
pub(crate) fn pod_specs(value: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            if fields.get("containers").is_some_and(Value::is_array) {
                visit(fields);
                return;
            }
            for field in fields.values_mut() {
                pod_specs(field, visit);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| pod_specs(item, visit)),
        _ => {}
    }
}

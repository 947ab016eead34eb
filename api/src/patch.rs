//! Merge patches with only the differences. Hub and member write statuses with them.

use serde::Serialize;
use serde_json::{Map, Value};

/// The merge patch (RFC 7386) that turns `old` into `new`; `None` if they are equal.
pub fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(known) => patch.extend(merge_diff(known, value).map(|value| (key.clone(), value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    Some(Value::Object(patch))
}

/// [`merge_diff`] of two values in JSON form; a value that cannot be serialized counts as null.
pub fn merge_diff_of<T: Serialize>(old: &T, new: &T) -> Option<Value> {
    let json = |value| serde_json::to_value(value).unwrap_or_default();
    merge_diff(&json(old), &json(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs() {
        let old = json!({"same": 1, "gone": 2, "deep": {"same": [1], "changed": [1], "gone": "x"}});
        let new = json!({"same": 1, "deep": {"same": [1], "changed": [2]}, "new": {"a": 1}});
        assert_eq!(
            merge_diff(&old, &new),
            Some(json!({"gone": null, "deep": {"changed": [2], "gone": null}, "new": {"a": 1}}))
        );
        assert_eq!(merge_diff(&new, &new), None);
        assert_eq!(merge_diff(&Value::Null, &new), Some(new.clone()));
    }
}

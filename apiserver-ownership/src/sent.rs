//! Entries of `managedFields` that a client sent: those of a manager that can be understood.
//!
//! Inputs: what stands in the metadata of a request. Absent on purpose: what becomes of them (see `managed` of `apiserver`).

use fleet_apiserver_ground::tree;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Reads entries that a client sent: of two of one manager, the later counts. None if one cannot be understood.
pub fn read(sent: Vec<Value>) -> Option<Vec<Value>> {
    let mut known = HashMap::new();
    let mut list: Vec<Value> = Vec::new();
    for mut entry in sent {
        let text = |key: &str| tree::text(&entry, &[key]);
        let applied = text("operation") == "Apply";
        if !(applied || text("operation") == "Update")
            || text("apiVersion").is_empty()
            || text("fieldsType") != "FieldsV1"
        {
            return None;
        }
        let version = if applied { "" } else { text("apiVersion") };
        let identity = [text("manager"), text("operation"), text("subresource"), version].map(str::to_string);
        if let Some(set) = entry.get_mut("fieldsV1")
            && !read_paths(set)
        {
            return None;
        }
        match known.entry(identity) {
            Entry::Occupied(at) => list[*at.get()] = entry,
            Entry::Vacant(at) => {
                at.insert(list.len());
                list.push(entry);
            }
        }
    }
    Some(list)
}

/// Reads a set of paths; elements of a kind that nobody knows yet are dropped. False if it is no such set.
fn read_paths(set: &mut Value) -> bool {
    if set.is_null() {
        *set = json!({});
    }
    let Value::Object(map) = set else { return false };
    let kind_of = |key: &str| match key.as_bytes() {
        [kind, b':', ..] => Some(*kind),
        b"." => Some(b'.'),
        _ => None,
    };
    if map.keys().any(|key| kind_of(key).is_none()) {
        return false;
    }
    map.retain(|key, _| matches!(kind_of(key), Some(b'.' | b'f' | b'v' | b'k' | b'i')));
    map.iter_mut().all(|(key, below)| {
        let content = key.get(2..).unwrap_or_default();
        let is_element = match kind_of(key) {
            Some(b'v') => serde_json::from_str::<Value>(content).is_ok(),
            Some(b'k') => serde_json::from_str::<Map<String, Value>>(content).is_ok(),
            Some(b'i') => content.parse::<i64>().is_ok(),
            // What is said of the node itself is not looked at.
            Some(b'.') => return true,
            _ => true,
        };
        is_element && read_paths(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields})
    }

    #[test]
    fn entries_are_read_or_not() {
        let sets =
            json!({"f:a": {"k:{\"n\":1}": {".": {}, "f:b": null}}, "v:\"x\"": {}, "i:3": {}, "q:new": {}});
        let read_once = read(vec![entry("m", sets)]).expect("entries");
        let want = json!({"f:a": {"k:{\"n\":1}": {".": {}, "f:b": {}}}, "v:\"x\"": {}, "i:3": {}});
        assert_eq!(read_once[0]["fieldsV1"], want, "what nobody knows yet is dropped");
        for broken in
            [json!({"a": {}}), json!({"bc": {}}), json!({"v:{": {}}), json!({"k:1": {}}), json!({"f:a": 5})]
        {
            assert_eq!(read(vec![entry("m", broken.clone())]), None, "{broken}");
        }
        assert_eq!(read(vec![json!({"manager": "m"})]), None);
    }

    #[test]
    fn of_two_entries_of_one_manager_the_later_counts() {
        let sent =
            vec![entry("m", json!({"f:a": {}})), entry("n", json!({})), entry("m", json!({"f:b": {}}))];
        let read = read(sent).expect("entries");
        assert_eq!(read, [entry("m", json!({"f:b": {}})), entry("n", json!({}))]);
    }
}

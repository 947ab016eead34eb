use super::*;
use serde_json::json;

fn schema() -> Schema {
    let list = |kind: &str| {
        json!({"type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["a", "b"],
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
    };
    Schema::compile_root(&json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": list("map"),
        "named": {"type": "object", "additionalProperties": list("map")},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}}}))
}

fn found(value: &Value, old: Option<&Value>) -> Vec<String> {
    let mut causes = Vec::new();
    check(&schema(), value, old, &mut causes);
    causes.into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[test]
fn items_are_there_once() {
    let twice = json!({"set": ["x", "y", "x", "x"], "map": [{"a": 1, "c": 1}, {"a": 1, "c": 2}, {}, {}]});
    let wants = [
        "map[1]: Duplicate value: {\"a\":1}",
        "map[3]: Duplicate value: {}",
        "set[2]: Duplicate value: \"x\"",
    ];
    assert_eq!(found(&twice, None), wants);
    assert!(found(&twice, Some(&json!({"set": ["z", "z"]}))).is_empty());
    assert_eq!(found(&twice, Some(&json!({"set": ["z"]}))).len(), 3);
    let below = json!({"named": {"k.l": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}});
    assert_eq!(found(&below, None), ["named[k.l][1]: Duplicate value: {\"a\":1,\"b\":2}"]);
    let odd = found(&json!({"map": [{}, 5]}), None);
    assert_eq!(odd, ["map[1]: Invalid value: 5: must be an object for an array of list-type map"]);
    // Metadata is checked elsewhere.
    assert!(found(&json!({"metadata": {"finalizers": ["a/b", "a/b"]}}), None).is_empty());
}

#[test]
fn what_is_embedded_says_what_it_is() {
    let of = |inner: Value| found(&json!({"inner": inner}), None);
    assert_eq!(of(json!({})), ["inner.apiVersion: Required value", "inner.kind: Required value"]);
    let wants = [
        "inner.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
        "inner.kind: Invalid value: \"\": must not be empty",
    ];
    assert_eq!(of(json!({"apiVersion": "a/b/c", "kind": ""})), wants);
    let kind = of(json!({"apiVersion": "v1", "kind": "A_b"}));
    let start =
        "inner.kind: Invalid value: \"A_b\": may have mixed case, but should otherwise match: a DNS-1035";
    assert!(matches!(&kind[..], [one] if one.starts_with(start)), "{kind:?}");
    assert!(of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})).is_empty());
}

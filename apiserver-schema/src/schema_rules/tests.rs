use super::*;

fn found(schema: &Value) -> Vec<String> {
    let mut causes = Vec::new();
    check(schema, "s", &mut causes);
    causes.into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

fn of_property(property: Value) -> Vec<String> {
    let at = "s.properties[x]";
    let all = found(&json!({"type": "object", "properties": {"x": property}}));
    all.iter().map(|text| text.strip_prefix(at).unwrap_or(text).to_string()).collect()
}

#[test]
fn what_no_schema_may_say() {
    for (property, want) in [
        (
            json!({"type": "colour"}),
            ".type: Unsupported value: \"colour\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (json!({"type": "string", "$ref": "#/a"}), ".$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "string", "patternProperties": {"a": {}}}),
            ".patternProperties: Forbidden: patternProperties is not supported",
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            ".items: Forbidden: items must be a schema object and not an array",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            ".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
            ".x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
        ),
        (
            json!({"x-kubernetes-list-type": "set"}),
            ".type: Required value: must be array if x-kubernetes-list-type is specified",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
            ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            ".x-kubernetes-list-map-keys: Invalid value: [\"b\"]: entries must all be names of item properties",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            ".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
    ] {
        assert_eq!(of_property(property.clone()), [want], "{property}");
    }
    let fine = json!({"type": "object", "additionalProperties": false});
    assert!(of_property(fine).is_empty());
}

#[test]
fn what_all_objects_say_of_themselves_has_no_defaults() {
    let schema = json!({"type": "object", "properties": {
        "kind": {"type": "string", "default": "A"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "a"}}}}});
    let want = [
        "s.properties[kind].default: Forbidden: must not be set in top-level kind",
        "s.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
    ];
    assert_eq!(found(&schema), want);
}

#[test]
fn a_hostile_schema_has_a_bounded_number_of_causes() {
    let keys: Vec<String> = (0..10_000).map(|i| format!("k{i}")).collect();
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let found = of_property(list);
    let longest = found.iter().map(String::len).max();
    assert!(found.len() <= MAX_CAUSES && longest < Some(1000), "{}", found.len());
}

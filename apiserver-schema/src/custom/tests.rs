use super::*;
use crate::schema::Schema;
use serde_json::json;
use std::sync::Arc;

fn resource(schema: Value) -> Resource {
    let path = |text: &str| text.split('.').map(str::to_string).collect::<Vec<_>>();
    Resource {
        rules: fleet_apiserver_cel::rules::Rules::compile(&schema).map(Arc::new),
        schema: Arc::new(Schema::compile_root(&schema)),
        custom: true,
        status: true,
        scale: Some(ScalePaths {
            spec: path("spec.replicas"),
            status: path("status.replicas"),
            selector: path("status.selector"),
        }),
        ..Resource::default()
    }
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn found(r: &Resource, value: &Value, subresource: &str) -> Vec<String> {
    let mut causes = Vec::new();
    check(r, None, value, subresource, &mut causes);
    causes.into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[test]
fn numbers_of_a_scale_are_counts() {
    let r = resource(open());
    let value = json!({"spec": {"replicas": -1}, "status": {"replicas": 2_147_483_648_i64, "selector": 5}});
    let of_status = [
        ".status.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
        ".status.selector: Invalid value: \"\": .status.selector accessor error: 5 is of the type int64, expected string",
    ];
    assert_eq!(found(&r, &value, "status"), of_status, "the spec is not the status' to judge");
    let all = found(&r, &value, "");
    assert_eq!(all[0], ".spec.replicas: Invalid value: -1: should be a non-negative integer");
    assert_eq!(all[1..], of_status);
    let odd = found(&r, &json!({"spec": {"replicas": {"a": [1, "b"]}}, "status": null}), "");
    let why =
        ".spec.replicas accessor error: map[a:[1 b]] is of the type map[string]interface {}, expected int64";
    assert_eq!(odd, [format!(".spec.replicas: Invalid value: 0: {why}")]);
    let odd = found(&r, &json!({"spec": "x"}), "");
    let why = ".spec.replicas accessor error: x is of the type string, expected map[string]interface {}";
    assert_eq!(odd, [format!(".spec.replicas: Invalid value: 0: {why}")]);
    assert!(found(&r, &json!({}), "").is_empty());
}

#[test]
fn rules_are_judged_where_values_have_their_shape() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "name": {"type": "string", "pattern": "^a", "maxLength": 3}, "n": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.n < 5", "message": "n is small"}]}}});
    let r = Resource { scale: None, ..resource(schema) };
    let last = |spec: Value| found(&r, &json!({"spec": spec}), "").pop().unwrap_or_default();
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    // A pattern does not keep rules from being judged; a type, a length and a missing field do.
    assert_eq!(last(json!({"name": "b", "n": 9})), "spec: Invalid value: n is small");
    assert_eq!(last(json!({"name": "abcd", "n": 1})), unchecked);
    assert_eq!(last(json!({"name": "a", "n": "1"})), unchecked);
    assert_eq!(last(json!({"name": "a", "n": 1})), "");
}

#[test]
fn a_status_is_judged_by_itself() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}, "f": {"type": "integer", "format": "int32"}}}}});
    let r = Resource { scale: None, ..resource(schema) };
    let told = found(&r, &json!({"spec": {}, "status": {"n": "x", "f": 3_000_000_000_i64}}), "status");
    let want = [
        "status: Invalid value: \"\": Checked value must be of type integer with format int32 in f",
        "status.n: Invalid value: \"string\": n in body must be of type integer: \"string\"",
    ];
    assert_eq!(told, want);
}

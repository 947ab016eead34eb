use super::*;
use serde_json::json;

#[test]
fn fields_are_merged_into_bindings_only() {
    let of = |version: &str, kind: &str| {
        merged_by(&json!({"apiVersion": version, "kind": kind})).err().unwrap_or_default()
    };
    assert_eq!(of("v1", "Binding"), "");
    assert_eq!(of("policy/v1", "Eviction"), "no corresponding type for policy/v1, Kind=Eviction");
    assert_eq!(of("v1", "PodExecOptions"), "no corresponding type for /v1, Kind=PodExecOptions");
}

#[test]
fn fields_are_those_of_the_kind() {
    let found = |mut sent: Value| problem(&mut sent);
    let unknown = |field: &str| Some(format!("strict decoding error: unknown field {field:?}"));
    let token =
        |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    assert_eq!(found(token(json!({"audiences": ["a"], "expirationSeconds": 600}))), None);
    assert_eq!(found(token(json!({"x": 1}))), unknown("spec.x"));
    let exec =
        |field: &str| json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["a"], field: "b"});
    assert_eq!(found(exec("container")), None);
    assert_eq!(found(exec("x")), unknown("x"));
    let evict =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": {"gracePeriodSeconds": "x"}});
    assert!(
        found(evict).is_some_and(|why| why.starts_with("json: cannot unmarshal string into Go struct field"))
    );
}

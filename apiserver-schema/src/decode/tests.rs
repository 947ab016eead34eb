use super::*;
use serde_json::json;

#[test]
fn unknown_fields_of_a_pod() {
    let mut pod = json!({"metadata": {"creationTimestamp": null, "name": "a", "x": 1},
        "spec": {"containers": [{"name": "c", "bogus": 1, "resources": {"limits": {"cpu": 1}}}]}});
    let mut report = Report::default();
    builtin(&Schema::builtin("api.core.v1.Pod"), &mut pod, &mut report);
    assert_eq!(report.unknown, ["metadata.x", "spec.containers[0].bogus"]);
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"], "1");
    assert!(pod["metadata"].get("creationTimestamp").is_none());
    let mut bad = json!({"spec": {"containers": "x"}});
    builtin(&Schema::builtin("api.core.v1.Pod"), &mut bad, &mut report);
    assert_eq!(report.mismatched.len(), 1);
}

#[test]
fn custom_defaults_and_pruning() {
    let schema = Schema::compile_root(&json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"max": {"type": "integer", "default": 10}, "free": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}}}}}));
    let mut v = json!({"spec": {"max": null, "zzz": 1, "free": {"a": 1}}});
    let mut report = Report::default();
    custom(&schema, &mut v, &mut report);
    defaults(&schema, &mut v);
    assert_eq!(v, json!({"spec": {"max": 10, "free": {"a": 1}}}));
    assert_eq!(report.unknown, ["spec.zzz"]);
}

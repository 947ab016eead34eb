use super::*;
use serde_json::json;

#[test]
fn what_is_zero_is_left_out_and_what_is_required_is_there() {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}, "name": "p"},
        "spec": {"hostNetwork": false, "nodeName": "", "priority": 0, "tolerations": [], "volumes": null,
            "containers": [{"name": "c", "env": [], "tty": false, "securityContext": {},
                "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {}}}]}});
    complete(&mut pod);
    assert_eq!(
        pod,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {},
            "spec": {"priority": 0, "containers": [{"name": "c", "securityContext": {},
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}})
    );
}

#[test]
fn an_empty_object_shows_what_is_always_there() {
    let event = empty(&json!({"apiVersion": "v1", "kind": "Event"}));
    assert_eq!(event["firstTimestamp"], Value::Null);
    assert!(event.as_object().unwrap().contains_key("firstTimestamp"));
    assert_eq!((&event["source"], &event["reportingComponent"]), (&json!({}), &json!("")));
    let role = empty(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}));
    assert!(role.as_object().unwrap().contains_key("rules") && role["rules"].is_null());
    let other = empty(&json!({"apiVersion": "example.com/v1", "kind": "Other"}));
    assert_eq!(other, json!({"apiVersion": "example.com/v1", "kind": "Other"}));
}

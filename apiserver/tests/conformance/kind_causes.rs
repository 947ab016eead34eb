//! All causes for which objects of built-in kinds are refused: each field, in the exact words, and in the order of a real server.
//!
//! Maps hold one entry where it matters: a real server looks at several in any order.

mod network;
mod storage;

use crate::api::{Answer, Api, random};
use crate::table::merged;
use serde_json::{Value, json};

/// What an answer blames, in its order: each field and what is wrong with it.
fn told(answer: &Answer) -> Vec<String> {
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_string();
    causes.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
}

/// A new object is refused for these causes and no others, in this order. Nothing is stored.
async fn refused(api: &Api, path: &str, object: Value, causes: &[&str]) {
    let answer = api.post(&format!("{path}?dryRun=All"), object.clone()).await.fails(422, "Invalid");
    assert_eq!(told(&answer), causes, "{object}");
}

/// A change is refused for these causes and no others, in this order.
async fn kept(api: &Api, at: &str, change: Value, causes: &[&str]) {
    let answer = api.patch(at, "merge", change.clone()).await.fails(422, "Invalid");
    assert_eq!(told(&answer), causes, "{change}");
}

fn spec(change: Value) -> Value {
    json!({"spec": change})
}

#[tokio::test]
async fn configuration_that_is_frozen() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let map = json!({"metadata": {"name": "m"}, "immutable": true, "data": {"a": "1"}});
    api.post(&path, map).await.expect(201);
    let frozen = |field: &str| format!("{field}: Forbidden: field is immutable when `immutable` is set");
    let change = json!({"immutable": false, "data": {"a": "2"}, "binaryData": {"a": "AA=="}});
    let twice = "data[a]: Invalid value: \"a\": duplicate of key present in binaryData";
    let causes = [frozen("immutable"), frozen("data"), frozen("binaryData"), twice.into()];
    kept(&api, &format!("{path}/m"), change, &causes.each_ref().map(String::as_str)).await;
    let path = api.core("secrets");
    let secret = json!({"metadata": {"name": "s"}, "immutable": true, "data": {"a": "AA=="}});
    api.post(&path, secret).await.expect(201);
    let causes: [&str; 4] = [
        "type: Invalid value: \"kubernetes.io/tls\": field is immutable",
        &frozen("immutable"),
        "data[tls.crt]: Required value",
        "data[tls.key]: Required value",
    ];
    let change = json!({"type": "kubernetes.io/tls", "immutable": null});
    kept(&api, &format!("{path}/s"), change, &causes).await;
    let key =
        json!({"metadata": {"name": "k"}, "type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}});
    refused(&api, &path, key, &["data[ssh-privatekey]: Required value"]).await;
    api.done().await;
}

#[tokio::test]
async fn accounts_know_names_of_secrets_only() {
    let api = Api::new().await;
    let account = json!({"metadata": {"name": "a"},
        "secrets": [{"name": "s", "namespace": "elsewhere", "kind": "Secret"}]});
    let made = api.post(&api.core("serviceaccounts"), account).await.expect(201).body;
    assert_eq!(made["secrets"], json!([{"name": "s"}]));
    api.done().await;
}

#[tokio::test]
async fn nodes_say_what_they_have() {
    let api = Api::new().await;
    let (path, name) = ("/api/v1/nodes", random("n-"));
    let node = json!({"metadata": {"name": name}});
    let half = json!({"status": {"capacity": {"example.com/gpu": "1500m"}}});
    // What can be given out is what there is, unless the node says otherwise.
    let causes = [
        "status.capacity.example.com/gpu: Invalid value: \"1500m\": must be an integer",
        "status.allocatable.example.com/gpu: Invalid value: \"1500m\": must be an integer",
    ];
    refused(&api, path, merged(&node, &half), &causes).await;
    let features = json!({"status": {"declaredFeatures": ["B", "A", "A", "b"]}});
    let form = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
    let causes: [&str; 3] = [
        "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically",
        "status.declaredFeatures[2]: Duplicate value: \"A\"",
        &format!("status.declaredFeatures[3]: Invalid value: \"b\": invalid feature name \"b\": {form}"),
    ];
    refused(&api, path, merged(&node, &features), &causes).await;
    let old = spec(json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.2.0.0/24"],
        "configSource": {"configMap": {"name": "c", "namespace": "d", "kubeletConfigKey": "k"}}}));
    let made = api.post(path, merged(&node, &old)).await.expect(201).body;
    assert_eq!(made["spec"]["podCIDRs"], json!(["10.1.0.0/24"]), "the older field counts");
    assert_eq!(made["spec"].get("configSource"), None, "{made}");
    let at = format!("{path}/{name}");
    let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
    let twice = json!({"status": {"addresses": [address, address]}});
    let says = "status.addresses[1]: Duplicate value: {\"Type\":\"InternalIP\",\"Address\":\"10.0.0.1\"}";
    kept(&api, &format!("{at}/status"), twice, &[says]).await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn bounds_and_quotas() {
    let api = Api::new().await;
    let quota =
        |name: &str, amount: &str| json!({"metadata": {"name": "q"}, "spec": {"hard": {name: amount}}});
    let path = api.core("resourcequotas");
    let causes = [
        "spec.hard[tapes]: Invalid value: \"tapes\": must be a standard resource type or fully qualified",
        "spec.hard[tapes]: Invalid value: \"tapes\": must be a standard resource for quota",
    ];
    refused(&api, &path, quota("tapes", "1"), &causes).await;
    let causes = ["spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota"];
    refused(&api, &path, quota("storage", "1"), &causes).await;
    let causes = ["spec.hard[pods]: Invalid value: \"1500m\": must be an integer"];
    refused(&api, &path, quota("pods", "1500m"), &causes).await;
    let limit = json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"},
        "maxLimitRequestRatio": {"cpu": "500m"}});
    let other = json!({"type": "Tape"});
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [limit, other, other]}});
    let causes = [
        "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
        "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
        "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
        "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
        "spec.limits[1].type: Invalid value: \"Tape\": must be a standard limit type or fully qualified",
        "spec.limits[2].type: Invalid value: \"Tape\": must be a standard limit type or fully qualified",
        "spec.limits[2].type: Duplicate value: \"Tape\"",
    ];
    refused(&api, &api.core("limitranges"), range, &causes).await;
    let claim = json!({"type": "PersistentVolumeClaim", "maxLimitRequestRatio": {"tapes": "2"}});
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [claim]}});
    let causes = [
        "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
        "spec.limits[0].maxLimitRequestRatio[tapes]: Invalid value: \"tapes\": must be a standard resource type or fully qualified",
    ];
    refused(&api, &api.core("limitranges"), range, &causes).await;
    api.done().await;
}

#[tokio::test]
async fn events_of_the_newer_group_stay_what_they_are() {
    let api = Api::new().await;
    let path = api.group("events.k8s.io/v1", "events");
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
        "reportingController": "example.com/c", "reportingInstance": "i", "action": "Act", "reason": "a",
        "regarding": {"kind": "Pod", "name": "p"}});
    let event = merged(&event, &json!({"regarding": {"namespace": api.ns}}));
    api.post(&path, event).await.expect(201);
    let says = "reason: Invalid value: \"b\": field is immutable";
    kept(&api, &format!("{path}/e"), json!({"reason": "b"}), &[says, says]).await;
    api.done().await;
}

#[tokio::test]
async fn roles_and_autoscalers() {
    let api = Api::new().await;
    let rule = json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]});
    let role =
        json!({"metadata": {"name": random("r-")}, "aggregationRule": {"clusterRoleSelectors": [rule]}});
    let at = "aggregationRule.clusterRoleSelectors[0]";
    let causes = [
        format!("{at}.matchExpressions[0].operator: Invalid value: \"Odd\": not a valid selector operator"),
        format!("{at}: Invalid value: null: invalid label selector."),
    ];
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    refused(&api, roles, role, &causes.each_ref().map(String::as_str)).await;
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let metric = json!({"type": "ContainerResource",
        "containerResource": {"name": "pods", "container": "c", "target": target}});
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 2, "metrics": [metric],
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let says = "spec.metrics[0].containerResource.name: Invalid value: \"pods\": must be a standard resource for containers";
    let path = api.group("autoscaling/v2", "horizontalpodautoscalers");
    refused(&api, &path, scaler, &[says]).await;
    api.done().await;
}

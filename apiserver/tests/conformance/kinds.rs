//! Groups of checks: all other built-in kinds, what they may say and what of them may change.

mod access;
mod network;
mod storage;

use crate::api::{Api, TABLE, random};
use crate::table::{Case, changes, new_objects};
use serde_json::{Value, json};

fn spec(change: Value) -> Value {
    json!({"spec": change})
}

#[tokio::test]
async fn config_maps_and_secrets() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "1"}});
    let cases: &[Case] = &[
        (json!({"data": {"a b": "x"}}), "Invalid", "data[a b]"),
        (json!({"data": {"..": "x"}}), "Invalid", "data[..]"),
        (json!({"binaryData": {"a": "eA=="}}), "Invalid", "data[a]"),
        (json!({"data": {"b": "x".repeat(1 << 20)}}), "TooLong", "[]"),
    ];
    new_objects(&api, &maps, &map, cases).await;
    api.post(&maps, json!({"metadata": {"name": "b"}, "binaryData": {"x": "not base64!"}}))
        .await
        .fails(400, "BadRequest");
    let frozen = json!({"metadata": {"name": "f"}, "data": {"a": "1"}, "immutable": true});
    let refused: &[Case] = &[
        (json!({"data": {"a": "2"}}), "Forbidden", "data"),
        (json!({"binaryData": {"b": "eA=="}}), "Forbidden", "binaryData"),
        (json!({"immutable": false}), "Forbidden", "immutable"),
        (json!({"immutable": null}), "Forbidden", "immutable"),
    ];
    changes(&api, &maps, &frozen, refused, &[json!({"metadata": {"labels": {"a": "b"}}})]).await;
    let secrets = api.core("secrets");
    let typed = |kind: &str| json!({"type": kind});
    let plain = json!({"metadata": {"name": "s"}, "stringData": {"a": "1"}});
    let cases: &[Case] = &[
        (typed("kubernetes.io/tls"), "Required", "data[tls.crt]"),
        (typed("kubernetes.io/ssh-auth"), "Required", "data[ssh-privatekey]"),
        (typed("kubernetes.io/basic-auth"), "Required", "data[username]"),
        (typed("kubernetes.io/dockerconfigjson"), "Required", "data[.dockerconfigjson]"),
        (
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{"}}),
            "Invalid",
            "data[.dockerconfigjson]",
        ),
        (
            typed("kubernetes.io/service-account-token"),
            "Required",
            "metadata.annotations[kubernetes.io/service-account.name]",
        ),
    ];
    new_objects(&api, &secrets, &plain, cases).await;
    api.post(&secrets, json!({"metadata": {"name": "b"}, "data": {"x": "***"}}))
        .await
        .fails(400, "BadRequest");
    changes(
        &api,
        &secrets,
        &plain,
        &[(typed("example.com/other"), "Invalid", "type")],
        &[json!({"data": {"b": "eA=="}})],
    )
    .await;
    let made = api.get(&format!("{secrets}/s")).await.body;
    assert_eq!(
        (&made["type"], &made["data"]["a"], made.get("stringData")),
        (&json!("Opaque"), &json!("MQ=="), None)
    );
    api.done().await;
}

#[tokio::test]
async fn ranges_and_quotas_themselves() {
    let api = Api::new().await;
    let limit = |l: Value| spec(json!({"limits": [l]}));
    let base =
        json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}});
    let cases: &[Case] = &[
        (limit(json!({"type": ""})), "Invalid", "spec.limits[0].type"),
        (limit(json!({"type": "Thing"})), "Invalid", "spec.limits[0].type"),
        (spec(json!({"limits": [{"type": "Pod"}, {"type": "Pod"}]})), "Duplicate", "spec.limits[1].type"),
        (limit(json!({"type": "Pod", "default": {"cpu": "1"}})), "Forbidden", "spec.limits[0].default"),
        (
            limit(json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}})),
            "Invalid",
            "spec.limits[0].min[cpu]",
        ),
        (
            limit(json!({"type": "Container", "default": {"cpu": "3"}, "max": {"cpu": "1"}})),
            "Invalid",
            "spec.limits[0].default[cpu]",
        ),
        (
            limit(json!({"type": "Container", "defaultRequest": {"cpu": "3"}, "default": {"cpu": "1"}})),
            "Invalid",
            "spec.limits[0].defaultRequest[cpu]",
        ),
        (limit(json!({"type": "PersistentVolumeClaim"})), "Required", "spec.limits[0].limits"),
        (
            limit(json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}})),
            "Invalid",
            "spec.limits[0].maxLimitRequestRatio[cpu]",
        ),
    ];
    new_objects(&api, &api.core("limitranges"), &base, cases).await;
    let made = api.post(&api.core("limitranges"), base).await.expect(201).body;
    assert_eq!(made["spec"]["limits"][0]["default"]["cpu"], "2");
    assert_eq!(made["spec"]["limits"][0]["defaultRequest"]["cpu"], "2");
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}});
    let hard = |h: Value| spec(json!({"hard": h}));
    let cases: &[Case] = &[
        (hard(json!({"bogus": "1"})), "Invalid", "spec.hard[bogus]"),
        (hard(json!({"pods": "-1"})), "Invalid", "spec.hard[pods]"),
        (hard(json!({"pods": "500m"})), "Invalid", "spec.hard[pods]"),
        (spec(json!({"scopes": ["Nowhere"]})), "Invalid", "spec.scopes"),
        (spec(json!({"scopes": ["BestEffort", "NotBestEffort"]})), "Invalid", "spec.scopes"),
        (
            spec(
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
            ),
            "Required",
            "spec.scopeSelector.matchExpressions.values",
        ),
    ];
    new_objects(&api, &api.core("resourcequotas"), &quota, cases).await;
    changes(
        &api,
        &api.core("resourcequotas"),
        &quota,
        &[(spec(json!({"scopes": ["Terminating"]})), "Invalid", "spec.scopes")],
        &[hard(json!({"pods": "6"}))],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn budgets_and_autoscalers() {
    let api = Api::new().await;
    let path = api.group("policy/v1", "poddisruptionbudgets");
    let base = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    let cases: &[Case] = &[
        (spec(json!({"maxUnavailable": 1})), "Invalid", "spec"),
        (spec(json!({"minAvailable": -1})), "Invalid", "spec.minAvailable"),
        (spec(json!({"minAvailable": "101%"})), "Invalid", "spec.minAvailable"),
        (spec(json!({"minAvailable": "most"})), "Invalid", "spec.minAvailable"),
        (spec(json!({"unhealthyPodEvictionPolicy": "x"})), "NotSupported", "spec.unhealthyPodEvictionPolicy"),
    ];
    new_objects(&api, &path, &base, cases).await;
    changes(&api, &path, &base, &[], &[spec(json!({"minAvailable": 2}))]).await;
    let path = api.group("autoscaling/v2", "horizontalpodautoscalers");
    let base = json!({"metadata": {"name": "h"}, "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 5}});
    let cases: &[Case] = &[
        (spec(json!({"maxReplicas": 0})), "Invalid", "spec.maxReplicas"),
        (spec(json!({"minReplicas": 0})), "Invalid", "spec.minReplicas"),
        (spec(json!({"minReplicas": 6})), "Invalid", "spec.maxReplicas"),
        (spec(json!({"scaleTargetRef": {"name": ""}})), "Required", "spec.scaleTargetRef.name"),
        (spec(json!({"scaleTargetRef": {"kind": ""}})), "Required", "spec.scaleTargetRef.kind"),
        (spec(json!({"metrics": [{"type": "Resource"}]})), "Required", "spec.metrics[0].resource"),
        (spec(json!({"metrics": [{"type": "Magic"}]})), "NotSupported", "spec.metrics[0].type"),
        (
            spec(json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 4000}}})),
            "Invalid",
            "spec.behavior.scaleDown.stabilizationWindowSeconds",
        ),
    ];
    new_objects(&api, &path, &base, cases).await;
    let made = api.post(&path, base).await.expect(201).body;
    assert_eq!(
        (
            &made["spec"]["minReplicas"],
            &made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"]
        ),
        (&json!(1), &json!(80))
    );
    // The older version shows the share of cpu in a field of its own.
    let old = api.group("autoscaling/v1", "horizontalpodautoscalers");
    let seen = api.get(&format!("{old}/h")).await.expect(200).body;
    assert_eq!(
        (&seen["apiVersion"], &seen["spec"]["targetCPUUtilizationPercentage"], seen["spec"].get("metrics")),
        (&json!("autoscaling/v1"), &json!(80), None)
    );
    api.patch(&format!("{old}/h"), "merge", spec(json!({"targetCPUUtilizationPercentage": 60})))
        .await
        .expect(200);
    let seen = api.get(&format!("{path}/h")).await.body;
    assert_eq!(seen["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    let table = api.get_as(&path, TABLE).await.expect(200).body;
    assert_eq!(table["rows"][0]["cells"][2], "cpu: <unknown>/60%", "{table}");
    api.done().await;
}

#[tokio::test]
async fn leases_runtime_classes_and_priorities() {
    let api = Api::new().await;
    let path = api.group("coordination.k8s.io/v1", "leases");
    let base = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let cases: &[Case] = &[
        (spec(json!({"leaseDurationSeconds": 0})), "Invalid", "spec.leaseDurationSeconds"),
        (spec(json!({"leaseDurationSeconds": -3})), "Invalid", "spec.leaseDurationSeconds"),
        (spec(json!({"leaseTransitions": -1})), "Invalid", "spec.leaseTransitions"),
    ];
    new_objects(&api, &path, &base, cases).await;
    for time in ["yesterday", "2026-01-01T00:00:00Z", "2026-01-01"] {
        let bad = json!({"metadata": {"name": "t"}, "spec": {"renewTime": time}});
        api.post(&path, bad).await.fails(400, "BadRequest");
    }
    let shifted =
        json!({"metadata": {"name": "t"}, "spec": {"renewTime": "2026-01-01T02:00:00.000001+01:00"}});
    assert_eq!(
        api.post(&path, shifted).await.expect(201).body["spec"]["renewTime"],
        "2026-01-01T01:00:00.000001Z"
    );
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let name = random("rt-");
    let class =
        json!({"metadata": {"name": name}, "handler": "runc", "overhead": {"podFixed": {"cpu": "100m"}}});
    new_objects(
        &api,
        classes,
        &class,
        &[(json!({"handler": ""}), "Required", "handler"), (json!({"handler": "A B"}), "Invalid", "handler")],
    )
    .await;
    changes(
        &api,
        classes,
        &class,
        &[(json!({"handler": "other"}), "Invalid", "handler")],
        &[json!({"metadata": {"labels": {"a": "b"}}})],
    )
    .await;
    // Pods of the class carry its overhead; an unknown class refuses them.
    let mut pod = crate::api::pod("p");
    pod["spec"]["runtimeClassName"] = json!(name);
    let made = api.post(&api.core("pods"), pod.clone()).await.expect(201).body;
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "100m"}));
    pod["metadata"]["name"] = json!("q");
    pod["spec"]["runtimeClassName"] = json!("no-such");
    let refused = api.post(&api.core("pods"), pod).await.fails(403, "Forbidden");
    assert!(refused.message().contains("RuntimeClass \"no-such\" not found"), "{}", refused.message());
    api.delete(&format!("{classes}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn nodes_start_tainted_until_they_are_ready() {
    let api = Api::new().await;
    let name = random("node-");
    let path = "/api/v1/nodes";
    let base =
        json!({"metadata": {"name": name}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let taint = |t: Value| spec(json!({"taints": [t]}));
    let cases: &[Case] = &[
        (taint(json!({"key": "a", "effect": "Explode"})), "NotSupported", "metadata.taints[0].effect"),
        (taint(json!({"key": "", "effect": "NoSchedule"})), "Invalid", "metadata.taints[0].key"),
        (
            spec(
                json!({"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}),
            ),
            "Duplicate",
            "metadata.taints[1]",
        ),
    ];
    new_objects(&api, path, &base, cases).await;
    let made = api.post(path, base).await.expect(201).body;
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    assert!(made["spec"]["taints"].as_array().unwrap().contains(&not_ready), "{made}");
    let at = format!("{path}/{name}");
    if api.embedded().is_some() {
        let ready = |is: &str| json!({"status": {"conditions": [{"type": "Ready", "status": is}]}});
        let taints =
            |a: &crate::api::Answer| a.body["spec"]["taints"].as_array().cloned().unwrap_or_default();
        api.patch(&format!("{at}/status"), "merge", ready("True")).await.expect(200);
        api.until(&at, |a| taints(a) == [json!({"key": "a", "effect": "NoSchedule"})]).await;
        api.patch(&format!("{at}/status"), "merge", ready("False")).await.expect(200);
        api.until(&at, |a| taints(a).contains(&not_ready)).await;
        api.patch(&format!("{at}/status"), "merge", ready("True")).await.expect(200);
        api.patch(&at, "merge", spec(json!({"unschedulable": true}))).await.expect(200);
        let cordoned = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        api.until(&at, |a| taints(a).contains(&cordoned) && !taints(a).contains(&not_ready)).await;
    }
    api.patch(&at, "merge", spec(json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]})))
        .await
        .expect(200);
    let moved = spec(json!({"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"]}));
    api.patch(&at, "merge", moved).await.fails(422, "Invalid");
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn claims_of_devices() {
    let api = Api::new().await;
    let path = api.group("resource.k8s.io/v1", "resourceclaims");
    let request = |r: Value| spec(json!({"devices": {"requests": [r]}}));
    let base = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
    let cases: &[Case] = &[
        (
            request(json!({"name": "", "exactly": {"deviceClassName": "gpu"}})),
            "Invalid",
            "spec.devices.requests[0].name",
        ),
        (request(json!({"name": "r"})), "Required", "spec.devices.requests[0]"),
        (
            request(json!({"name": "r", "exactly": {}})),
            "Required",
            "spec.devices.requests[0].exactly.deviceClassName",
        ),
        (
            request(json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}})),
            "NotSupported",
            "spec.devices.requests[0].exactly.allocationMode",
        ),
    ];
    new_objects(&api, &path, &base, cases).await;
    let other = request(json!({"name": "q", "exactly": {"deviceClassName": "gpu"}}));
    changes(
        &api,
        &path,
        &base,
        &[(other, "Invalid", "spec")],
        &[json!({"metadata": {"labels": {"a": "b"}}})],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn events_have_columns_of_their_own() {
    let api = Api::new().await;
    let event = json!({"metadata": {"name": "e"}, "reason": "Started", "message": "it runs", "type": "Normal", "count": 3,
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": api.ns}, "source": {"component": "kubelet"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"});
    api.post(&api.core("events"), event).await.expect(201);
    let table = api.get_as(&api.core("events"), TABLE).await.expect(200).body;
    let columns = table["columnDefinitions"].as_array().unwrap();
    let names: Vec<&str> = columns.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "Subobject",
            "Source",
            "Message",
            "First Seen",
            "Count",
            "Name"
        ]
    );
    assert_eq!((&columns[9]["format"], &columns[9]["priority"]), (&json!("name"), &json!(1)));
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 10);
    assert_eq!(cells[1..4], [json!("Normal"), json!("Started"), json!("pod/p")]);
    assert_eq!((&cells[8], &cells[9]), (&json!(3), &json!("e")));
    api.done().await;
}

#[tokio::test]
async fn times_and_bytes_are_read_as_a_typed_decoder_reads_them() {
    let api = Api::new().await;
    let path = api.core("events");
    let event = |time: &str| json!({"metadata": {"name": "e"}, "reason": "R", "involvedObject": {"kind": "Pod", "name": "p", "namespace": api.ns}, "lastTimestamp": time});
    for wrong in ["now", "2026-01-01", "2026-01-01 00:00:00Z", "2026-13-01T00:00:00Z"] {
        let refused = api.post(&path, event(wrong)).await.fails(400, "BadRequest");
        assert!(refused.message().contains("parsing time"), "{}", refused.message());
    }
    let made = api.post(&path, event("2026-01-01T02:00:00.5+02:00")).await.expect(201).body;
    assert_eq!(made["lastTimestamp"], "2026-01-01T00:00:00Z");
    api.done().await;
}

#[tokio::test]
async fn names_of_fields_that_select_are_told_wrong_by_kind() {
    let api = Api::new().await;
    for (path, says) in [
        (api.core("pods"), "field label not supported: spec.bogus"),
        (api.core("secrets"), "field label not supported: spec.bogus"),
        (
            api.core("configmaps"),
            "\"spec.bogus\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        let refused = api.get(&format!("{path}?fieldSelector=spec.bogus%3Dx")).await.fails(400, "BadRequest");
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    api.done().await;
}

#[tokio::test]
async fn finalizers_have_a_domain() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let of = |name: &str| json!({"metadata": {"name": "f", "finalizers": [name]}});
    let refused = api.post(&path, of("mine")).await.fails(422, "Invalid");
    assert!(refused.causes().contains(&("FieldValueInvalid", "metadata.finalizers[0]")), "{}", refused.text);
    api.post(&format!("{path}?dryRun=All"), of("example.com/mine")).await.expect(201);
    api.post(&format!("{path}?dryRun=All"), of("orphan")).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn a_cluster_has_its_own_service() {
    let api = Api::new().await;
    let service = api.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200).body;
    assert_eq!(
        (&service["spec"]["ports"][0]["name"], &service["spec"]["ports"][0]["port"]),
        (&json!("https"), &json!(443))
    );
    api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication").await.expect(200);
    api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.expect(200);
    api.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await.expect(200);
    api.done().await;
}

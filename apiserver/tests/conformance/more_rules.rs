//! Rules of single kinds, of lists, and of custom resources: what is filled in, and which words a refusal has.

use crate::api::{Answer, Api, config_map, random, signing_request};
use serde_json::{Value, json};

/// Each cause as one text.
fn told(answer: &Answer) -> Vec<String> {
    let list = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_string();
    list.iter().map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
}

#[tokio::test]
async fn selectors_are_read_token_by_token() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let pre = "unable to parse requirement: ";
    for (selector, says) in [
        ("a%3D%3D%3Db", format!("{pre}found '=', expected: identifier")),
        ("a%20in%20(b", format!("{pre}found '', expected: ',' or ')'")),
        ("a%20in", format!("{pre}found '' expected: '('")),
        ("!", format!("{pre}found '', expected: identifier")),
        ("a%3Db,", "found '', expected: identifier after ','".into()),
        ("a%3Db%20c", "found 'c', expected: ',' or 'end of string'".into()),
        ("(a)", "found '(', expected: !, identifier, or 'end of string'".into()),
        (
            "a%3Ex",
            format!(
                "{pre}values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
    ] {
        let refused = api.get(&format!("{path}?labelSelector={selector}")).await.fails(400, "BadRequest");
        assert_eq!(refused.message(), says, "{selector}");
    }
    let mut map = config_map("m");
    map["metadata"]["labels"] = json!({"in": "notin"});
    api.post(&path, map).await.expect(201);
    let found = api.get(&format!("{path}?labelSelector=in%20in%20(notin,x)")).await.expect(200);
    assert_eq!(found.body["items"].as_array().unwrap().len(), 1);
    api.done().await;
}

#[tokio::test]
async fn options_of_lists_are_all_told() {
    let api = Api::new().await;
    let path = api.core("configmaps");
    let at = "resourceVersionMatch: ";
    let refused =
        api.get(&format!("{path}?resourceVersionMatch=Odd&continue=x&sendInitialEvents=true")).await;
    let refused = refused.fails(422, "Invalid");
    let wants = [
        format!("{at}Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
        format!("{at}Forbidden: resourceVersionMatch is forbidden when continue is provided"),
        format!("{at}Unsupported value: \"Odd\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".to_string(),
    ];
    assert_eq!(told(&refused), wants);
    let refused =
        api.get(&format!("{path}?watch=true&resourceVersionMatch=Exact")).await.fails(422, "Invalid");
    let wants = [
        format!(
            "{at}Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        ),
        format!("{at}Unsupported value: \"Exact\": supported values: \"NotOlderThan\""),
    ];
    assert_eq!(told(&refused), wants);
    let start = "invalid continue token: continue key is not valid: ";
    let token = |v: Value| {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(v.to_string())
    };
    for (token, says) in [
        ("!!!".to_string(), "illegal base64 data at input byte 0".to_string()),
        (token(json!({"v": "v9"})), "server does not recognize this encoded version v9".into()),
        (
            token(json!({"v": "meta.k8s.io/v1", "start": "a"})),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into(),
        ),
        (
            token(json!({"v": "meta.k8s.io/v1", "rv": 1})),
            "encoded start key empty (version meta.k8s.io/v1)".into(),
        ),
        (token(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": "a/../b"})), "a/../b".into()),
    ] {
        let refused = api.get(&format!("{path}?limit=1&continue={token}")).await.fails(400, "BadRequest");
        assert_eq!(refused.message(), format!("{start}{says}"));
    }
    api.done().await;
}

#[tokio::test]
async fn kinds_are_completed() {
    let api = Api::new().await;
    // A volume knows since when it is in its first phase.
    let (volumes, name) = ("/api/v1/persistentvolumes", random("pv"));
    let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}});
    let made = api.post(volumes, volume).await.expect(201).body;
    assert_eq!(made["status"]["lastPhaseTransitionTime"], made["metadata"]["creationTimestamp"], "{made}");
    api.delete(&format!("{volumes}/{name}"), Value::Null).await.expect(200);
    // A namespace is held by its own finalizer, whichever others it has.
    let name = random("ns");
    let namespace = json!({"metadata": {"name": name}, "spec": {"finalizers": ["example.com/hold"]}});
    let made = api.post("/api/v1/namespaces", namespace).await.expect(201).body;
    assert_eq!(made["spec"]["finalizers"], json!(["example.com/hold", "kubernetes"]));
    let mut free = made.clone();
    free["spec"]["finalizers"] = json!([]);
    api.put(&format!("/api/v1/namespaces/{name}/finalize"), free).await.expect(200);
    api.delete(&format!("/api/v1/namespaces/{name}"), Value::Null).await.expect(200);
    // A balancer's address is one that traffic arrives with.
    let services = api.core("services");
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    api.post(&services, service).await.expect(201);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a.example.com"}]}}});
    let placed = api.patch(&format!("{services}/s/status"), "merge", status).await.expect(200).body;
    let want = json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "a.example.com"}]);
    assert_eq!(placed["status"]["loadBalancer"]["ingress"], want);
    // Fields of what is off in this version are dropped.
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "strategy": "OldestEmulationVersion"}});
    let made = api.post(&api.group("coordination.k8s.io/v1", "leases"), lease).await.expect(201).body;
    assert_eq!(made["spec"], json!({"holderIdentity": "a"}));
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let group = format!("{}.example.com", random("g"));
    let elsewhere = json!({"metadata": {"name": format!("v1.{group}")}, "spec": {"group": group, "version": "v1",
        "groupPriorityMinimum": 1, "versionPriority": 1, "insecureSkipTLSVerify": true,
        "service": {"namespace": "default", "name": "none"}}});
    let made = api.post(services, elsewhere).await.expect(201).body;
    assert_eq!(made["spec"]["service"]["port"], 443);
    api.delete(&format!("{services}/v1.{group}"), Value::Null).await.expect(200);
    let tracking =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = api.get(tracking).await.expect(200).body["data"]["since"].as_str().unwrap().to_string();
    assert!(since.len() == 10 && since.bytes().filter(|b| *b == b'-').count() == 2, "{since}");
    api.done().await;
}

#[tokio::test]
async fn autoscalers_without_policies_are_refused() {
    let api = Api::new().await;
    let path = api.group("autoscaling/v2", "horizontalpodautoscalers");
    let scaler = |behavior: Value| {
        json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 2, "behavior": behavior,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
    };
    let refused = api.post(&path, scaler(json!({"scaleUp": {"policies": []}}))).await.fails(422, "Invalid");
    let says = "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy";
    assert_eq!(told(&refused), [says]);
    let made =
        api.post(&path, scaler(json!({"scaleUp": {"stabilizationWindowSeconds": 5}}))).await.expect(201).body;
    assert_eq!(made["spec"]["behavior"]["scaleUp"]["policies"].as_array().unwrap().len(), 2);
    api.done().await;
}

#[tokio::test]
async fn kinds_are_refused_in_their_own_words() {
    let api = Api::new().await;
    let namespace = json!({"metadata": {"name": random("ns")}, "spec": {"finalizers": ["odd"]}});
    let refused = api.post("/api/v1/namespaces", namespace).await.fails(422, "Invalid");
    let says = "spec.finalizers: Invalid value: \"odd\": name is neither a standard finalizer name nor is it fully qualified";
    assert_eq!(told(&refused), [says]);

    let budgets = api.group("policy/v1", "poddisruptionbudgets");
    let both = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": "50%"}});
    let refused = api.post(&budgets, both).await.fails(422, "Invalid");
    let says = "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":\"50%\",\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set";
    assert_eq!(told(&refused), [says]);
    api.post(&budgets, json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1}})).await.expect(201);
    let status = json!({"status": {"disruptionsAllowed": -1, "conditions": [
        {"type": "a b", "status": "Maybe", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let refused = api.patch(&format!("{budgets}/b/status"), "merge", status).await.fails(422, "Invalid");
    let found = told(&refused);
    assert!(
        found[0].starts_with("status.conditions[0].type: Invalid value: \"a b\": name part must"),
        "{found:?}"
    );
    let wants = [
        "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\"",
        "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
    ];
    assert_eq!(found[1..], wants);

    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let class = json!({"metadata": {"name": random("c")}, "handler": "runc", "overhead": {"podFixed": {"cpu": "-1"}},
        "scheduling": {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]}});
    let refused = api.post(classes, class).await.fails(422, "Invalid");
    let wants = [
        "overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        "scheduling.tolerations[1]: Duplicate value: {\"Key\":\"a\",\"Operator\":\"Exists\",\"Value\":\"\",\"Effect\":\"\",\"TolerationSeconds\":null}",
    ];
    assert_eq!(told(&refused), wants);

    let quotas = api.core("resourcequotas");
    api.post(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})).await.expect(201);
    let status = json!({"status": {"used": {"pods": "-1"}}});
    let refused = api.patch(&format!("{quotas}/q/status"), "merge", status).await.fails(422, "Invalid");
    let says = "status.used[pods]: Invalid value: \"-1\": must be greater than or equal to 0";
    assert_eq!(told(&refused), [says]);
    api.done().await;
}

#[tokio::test]
async fn signers_are_a_domain_and_a_path() {
    let api = Api::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let form = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    let label = "a lowercase RFC 1123 label must consist";
    for (signer, says) in [
        ("example.com", format!("\"example.com\": {form}")),
        ("example.com/a/b", format!("\"example.com/a/b\": {form}")),
        ("example/a", "\"example\": should be a domain with at least two segments separated by dots".into()),
        ("exam_ple.com/a", format!("\"exam_ple.com\": validating label \"exam_ple\": {label}")),
        (
            "example.com/A",
            "\"A\": validating label \"A\": a lowercase RFC 1123 subdomain must consist".into(),
        ),
    ] {
        let body = json!({"metadata": {"name": random("csr")}, "spec": {"request": signing_request("u"),
            "usages": ["client auth"], "signerName": signer}});
        let refused = api.post(path, body).await.fails(422, "Invalid");
        let found = told(&refused);
        let want = format!("spec.signerName: Invalid value: {says}");
        assert!(matches!(&found[..], [one] if one.starts_with(&want)), "{found:?}");
    }
    api.done().await;
}

#[tokio::test]
async fn lists_of_custom_resources_have_each_item_once() {
    let api = Api::new().await;
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "parts": list,
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "range": {"type": "string", "format": "cidr"}}}}});
    let version =
        json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
    let group = api.crd("boxes", "Box", version).await;
    let path = api.group(&format!("{group}/v1"), "boxes");
    let of = |spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Box", "metadata": {"name": "b"}, "spec": spec});
    let twice =
        json!({"parts": [{"name": "a", "size": 1}, {"name": "a", "size": 2}], "tags": ["x", "x", "x"]});
    let refused = api.post(&path, of(twice)).await.fails(422, "Invalid");
    let found = told(&refused);
    let wants = ["spec.parts[1]: Duplicate value: {\"name\":\"a\"}", "spec.tags[1]: Duplicate value: \"x\""];
    assert_eq!(found, wants);
    let refused = api.post(&path, of(json!({"range": "10.0.0.0"}))).await.fails(422, "Invalid");
    let says =
        "spec.range: Invalid value: \"10.0.0.0\": spec.range in body must be of type cidr: \"10.0.0.0\"";
    assert_eq!(told(&refused), [says]);
    api.post(&path, of(json!({"range": "10.0.0.0/8", "tags": ["x"]}))).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn each_kind_is_selected_by_its_own_fields() {
    let api = Api::new().await;
    let default = "is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    for (path, field, says) in [
        (
            "/api/v1/nodes".to_string(),
            "metadata.namespace",
            "field label not supported: metadata.namespace".to_string(),
        ),
        ("/api/v1/namespaces".into(), "spec.a", "field label not supported: spec.a".into()),
        (api.group("apps/v1", "replicasets"), "status.replicas", format!("\"status.replicas\" {default}")),
        (api.group("batch/v1", "jobs"), "spec.a", "field label \"spec.a\" not supported for Job".into()),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests".into(),
            "spec.a",
            "field label not supported: spec.a".into(),
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices".into(),
            "spec.a",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.a".into(),
        ),
        (
            api.group("events.k8s.io/v1", "events"),
            "involvedObject.name",
            "field label not supported: involvedObject.name".into(),
        ),
        (api.core("events"), "regarding.name", "field label not supported: regarding.name".into()),
    ] {
        let refused = api.get(&format!("{path}?fieldSelector={field}%3Dx")).await.fails(400, "BadRequest");
        assert_eq!(refused.message(), says, "{path}");
    }
    for path in [
        format!("{}?fieldSelector=spec.host%3Dx", api.core("pods")),
        format!("{}?fieldSelector=regarding.name%3Dx", api.group("events.k8s.io/v1", "events")),
        "/apis/storage.k8s.io/v1/storageclasses?fieldSelector=metadata.namespace%3D".to_string(),
    ] {
        api.get(&path).await.expect(200);
    }
    api.done().await;
}

//! Details of built-in kinds: which part is blamed and in what words, and what the server does beside.

mod network;

use crate::api::{Api, random, signing_request};
use crate::table::merged;
use serde_json::{Value, json};

/// The base is accepted; each change of it is refused, and the answer says so. Nothing is stored.
async fn refused(api: &Api, path: &str, base: &Value, cases: &[(Value, &str)]) {
    let path = format!("{path}?dryRun=All");
    api.post(&path, base.clone()).await.expect(201);
    for (change, says) in cases {
        let answer = api.post(&path, merged(base, change)).await.fails(422, "Invalid");
        assert!(answer.message().contains(says), "{change}\n  {says}\n  {}", answer.message());
    }
}

/// Each change of what is there is refused, and the answer says so.
async fn kept(api: &Api, at: &str, cases: &[(Value, &str)]) {
    for (change, says) in cases {
        let answer = api.patch(at, "merge", change.clone()).await.fails(422, "Invalid");
        assert!(answer.message().contains(says), "{change}\n  {says}\n  {}", answer.message());
    }
}

fn spec(change: Value) -> Value {
    json!({"spec": change})
}

#[tokio::test]
async fn a_request_for_a_certificate_stays_what_it_was() {
    let api = Api::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let name = random("csr-");
    let asked = json!({"metadata": {"name": name}, "spec": {"request": signing_request("dave"),
        "usages": ["client auth"], "signerName": "kubernetes.io/kube-apiserver-client"}});
    let made = api.post(path, asked).await.expect(201).body;
    let at = format!("{path}/{name}");
    let other = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"usages": ["server auth"], "username": "root", "request": signing_request("eve")}});
    let changed = api.patch(&at, "merge", other).await.expect(200).body;
    assert_eq!((&changed["spec"], &changed["metadata"]["labels"]["a"]), (&made["spec"], &json!("b")));
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn generations_count_what_each_kind_asks_for() {
    let api = Api::new().await;
    let of = |body: &Value| body["metadata"]["generation"].clone();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (classes, name) = ("/apis/scheduling.k8s.io/v1/priorityclasses", random("p-"));
    let made = api.post(classes, json!({"metadata": {"name": name}, "value": 7})).await.expect(201).body;
    let at = format!("{classes}/{name}");
    let told = api.patch(&at, "merge", json!({"description": "x"})).await.expect(200).body;
    assert_eq!((of(&made), of(&told)), (json!(1), json!(1)));
    api.delete(&at, Value::Null).await.expect(200);
    let (drivers, name) = ("/apis/storage.k8s.io/v1/csidrivers", random("d."));
    let made = api.post(drivers, json!({"metadata": {"name": name}, "spec": {}})).await.expect(201).body;
    let at = format!("{drivers}/{name}");
    let marked = api.patch(&at, "merge", labels.clone()).await.expect(200).body;
    let told = api.patch(&at, "merge", spec(json!({"podInfoOnMount": true}))).await.expect(200).body;
    assert_eq!((of(&made), of(&marked), of(&told)), (Value::Null, Value::Null, json!(1)));
    kept(
        &api,
        &at,
        &[(
            spec(json!({"attachRequired": false})),
            "spec.attachedRequired: Invalid value: false: field is immutable",
        )],
    )
    .await;
    api.delete(&at, Value::Null).await.expect(200);
    let slices = api.group("discovery.k8s.io/v1", "endpointslices");
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []});
    let made = api.post(&slices, slice).await.expect(201).body;
    let marked = api.patch(&format!("{slices}/s"), "merge", labels).await.expect(200).body;
    assert_eq!((of(&made), of(&marked)), (json!(1), json!(2)));
    api.done().await;
}

#[tokio::test]
async fn volumes() {
    let api = Api::new().await;
    let (path, name) = ("/api/v1/persistentvolumes", random("pv-"));
    let zone = |key: &str| {
        let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["z"]}]});
        json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}})
    };
    let base = json!({"metadata": {"name": name}, "status": {"phase": "Bound"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}});
    let base = merged(&base, &spec(zone("failure-domain.beta.kubernetes.io/zone")));
    let root = json!({"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"});
    let cases = &[
        (
            spec(json!({"capacity": null})),
            "[spec.capacity: Required value, spec.capacity: Unsupported value: null: supported values: \"storage\"]",
        ),
        (spec(json!({"hostPath": {"path": "/a/../b"}})), "spec.hostPath.path: Invalid value"),
        (spec(json!({"hostPath": {"type": "Odd"}})), "spec.hostPath.type: Unsupported value: \"Odd\""),
        (
            spec(root),
            "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
        ),
        (
            spec(json!({"volumeAttributesClassName": "gold"})),
            "spec.csi: Required value: has to be specified when using volumeAttributesClassName",
        ),
    ];
    refused(&api, path, &base, cases).await;
    let made = api.post(path, base).await.expect(201).body;
    assert_eq!(made["status"]["phase"], "Pending");
    let at = format!("{path}/{name}");
    let bound = json!({"status": {"phase": "Bound"}});
    let bound = api.patch(&format!("{at}/status"), "merge", bound).await.expect(200).body;
    assert!(bound["status"]["lastPhaseTransitionTime"].is_string(), "{bound}");
    let named = json!({"status": {"phase": "Failed", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"}});
    let named = api.patch(&format!("{at}/status"), "merge", named).await.expect(200).body;
    assert_eq!(named["status"]["lastPhaseTransitionTime"], "2026-01-01T00:00:00Z");
    kept(
        &api,
        &at,
        &[
            (
                spec(json!({"volumeMode": "Block"})),
                "is invalid: volumeMode: Invalid value: \"Block\": field is immutable",
            ),
            (spec(zone("example.com/zone")), "field is immutable, except for updating from beta label to GA"),
        ],
    )
    .await;
    api.patch(&at, "merge", spec(zone("topology.kubernetes.io/zone"))).await.expect(200);
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn claims() {
    let api = Api::new().await;
    let path = api.core("persistentvolumeclaims");
    let base = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = |name: &str| json!({"kind": "PersistentVolumeClaim", "name": name});
    let cases = &[
        (
            spec(json!({"dataSourceRef": {"kind": "VolumeSnapshot", "name": "s"}})),
            "spec.dataSourceRef: Invalid value: \"VolumeSnapshot\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ),
        (
            spec(json!({"dataSource": claim("a"), "dataSourceRef": claim("b")})),
            "spec: Invalid value: {}: must match dataSourceRef",
        ),
    ];
    refused(&api, &path, &base, cases).await;
    api.post(&path, base).await.expect(201);
    let mode =
        (spec(json!({"volumeMode": "Block"})), ", volumeMode: Invalid value: \"Block\": field is immutable");
    kept(&api, &format!("{path}/c"), &[mode]).await;
    api.done().await;
}

#[tokio::test]
async fn drivers_and_what_they_know_of_nodes() {
    let api = Api::new().await;
    let group = "/apis/storage.k8s.io/v1";
    let driver = json!({"metadata": {"name": format!("{}{}", random("d."), ".x".repeat(30))}, "spec": {}});
    let token = |life: i64| json!({"audience": "a", "expirationSeconds": life});
    let cases = &[
        (
            spec(json!({"tokenRequests": [token(600), token(600)]})),
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
        ),
        (
            spec(json!({"tokenRequests": [token(599)]})),
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            spec(json!({"nodeAllocatableUpdatePeriodSeconds": 9})),
            "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
        ),
    ];
    refused(&api, &format!("{group}/csidrivers"), &driver, cases).await;
    let (nodes, name) = (format!("{group}/csinodes"), random("n-"));
    let drivers =
        |extra: Value| spec(json!({"drivers": [merged(&json!({"name": "d", "nodeID": "n"}), &extra)]}));
    let node = merged(&json!({"metadata": {"name": name}}), &drivers(json!({})));
    let long = "x".repeat(257);
    let cases = &[
        (drivers(json!({"name": "a/b"})), "spec.drivers[0].name: Invalid value: \"a/b\""),
        (drivers(json!({"nodeID": long})), "must be 256 characters or less"),
        (drivers(json!({"topologyKeys": ["a", "a"]})), "spec.drivers[0]: Duplicate value: \"a\""),
        (drivers(json!({"topologyKeys": ["a b"]})), "spec.drivers[0]: Invalid value: \"a b\""),
    ];
    refused(&api, &nodes, &node, cases).await;
    api.post(&nodes, node).await.expect(201);
    let at = format!("{nodes}/{name}");
    let says = "spec.drivers: Invalid value: {\"Name\":\"d\",\"NodeID\":\"other\"";
    kept(&api, &at, &[(drivers(json!({"nodeID": "other"})), says)]).await;
    api.patch(&at, "merge", drivers(json!({"allocatable": {"count": 5}}))).await.expect(200);
    api.delete(&at, Value::Null).await.expect(200);
    let attachment = json!({"metadata": {"name": random("a-")}, "spec": {"attacher": "Example.com", "nodeName": "n",
        "source": {"persistentVolumeName": "v"}}});
    let wrong = (spec(json!({"attacher": "a/b"})), "spec.attacher: Invalid value: \"a/b\"");
    refused(&api, &format!("{group}/volumeattachments"), &attachment, &[wrong]).await;
    let (slices, name) = ("/apis/resource.k8s.io/v1/resourceslices", random("s-"));
    let slice = json!({"metadata": {"name": name}, "spec": {"driver": "a.b", "allNodes": true,
        "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1}}});
    api.post(slices, slice).await.expect(201);
    let at = format!("{slices}/{name}");
    let cases = &[
        (spec(json!({"driver": "c.d"})), "spec.driver: Invalid value: \"c.d\": field is immutable"),
        (spec(json!({"pool": {"name": "q"}})), "spec.pool.name: Invalid value: \"q\": field is immutable"),
        (spec(json!({"nodeName": "n"})), "spec.nodeName: Invalid value: \"n\": field is immutable"),
    ];
    kept(&api, &at, cases).await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn ranges_and_quotas() {
    let api = Api::new().await;
    let limit = |extra: Value| spec(json!({"limits": [merged(&json!({"type": "Container"}), &extra)]}));
    let base = merged(&json!({"metadata": {"name": "l"}}), &limit(json!({"max": {"cpu": "2"}})));
    let pages = json!({"default": {"hugepages-2Mi": "4Mi"}, "defaultRequest": {"hugepages-2Mi": "2Mi"}});
    let cases = &[
        (
            limit(json!({"default": {"cpu": "3"}, "max": {"cpu": "1"}})),
            "spec.limits[0].default[cpu]: Invalid value: \"1\": default value 3 is greater than max value 1",
        ),
        (
            limit(json!({"default": {"cpu": "1"}, "min": {"cpu": "2"}})),
            "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
        ),
        (
            limit(json!({"max": {"bogus": "1"}})),
            "spec.limits[0].max[bogus]: Invalid value: \"bogus\": must be a standard resource type or fully qualified",
        ),
        (
            limit(json!({"max": {"pods": "1"}})),
            "spec.limits[0].max[pods]: Invalid value: \"pods\": must be a standard resource for containers",
        ),
        (limit(pages), "default value 4Mi must equal to defaultRequest value 2Mi in hugepages-2Mi"),
    ];
    refused(&api, &api.core("limitranges"), &base, cases).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}});
    let scopes = |list: Value| json!({"scopeSelector": {"matchExpressions": list}});
    let best = json!({"scopeName": "BestEffort", "operator": "Exists"});
    let rest = json!({"scopeName": "NotBestEffort", "operator": "Exists"});
    let cases = &[
        (
            spec(scopes(json!([{"scopeName": "Nowhere", "operator": "Exists"}]))),
            "spec.scopeSelector.matchExpressions.scopeName: Invalid value: \"Nowhere\": unsupported scope",
        ),
        (
            spec(scopes(json!([{"scopeName": "Terminating", "operator": "DoesNotExist"}]))),
            "spec.scopeSelector.matchExpressions.operator: Invalid value: \"DoesNotExist\": must be 'Exists' when scope is any of",
        ),
        (
            spec(scopes(json!([{"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}]))),
            "spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]",
        ),
        (
            spec(scopes(json!([best, rest]))),
            "spec.scopeSelector.matchExpressions: Invalid value: null: conflicting scopes",
        ),
        (
            spec(merged(&json!({"hard": {"cpu": "1"}}), &scopes(json!([best])))),
            "spec.scopeSelector.matchExpressions: Invalid value: {\"MatchExpressions\":[{\"ScopeName\":\"BestEffort\",\"Operator\":\"Exists\",\"Values\":null}]}: unsupported scope applied to resource",
        ),
    ];
    refused(&api, &api.core("resourcequotas"), &quota, cases).await;
    api.done().await;
}

#[tokio::test]
async fn events_of_both_groups() {
    let api = Api::new().await;
    let of = |extra: Value| {
        let base = json!({"metadata": {"name": "e"}, "reason": "R", "involvedObject": {"kind": "Pod", "name": "p", "namespace": api.ns}});
        merged(&base, &extra)
    };
    let time = "2026-01-01T00:00:00.000000Z";
    let timed =
        json!({"eventTime": time, "reportingComponent": "a.b/c", "reportingInstance": "i", "action": "A"});
    let nowhere = json!({"involvedObject": {"namespace": null}});
    let astray = "involvedObject.namespace: Invalid value: \"\": does not match event.namespace";
    let path = api.core("events");
    refused(
        &api,
        &path,
        &of(json!({})),
        &[(nowhere.clone(), astray), (json!({"eventTime": time}), "reportingComponent: Required value")],
    )
    .await;
    let cases = &[
        (json!({"action": null}), "action: Required value"),
        (json!({"reportingInstance": null}), "reportingInstance: Required value"),
        (nowhere.clone(), astray),
    ];
    refused(&api, &path, &of(timed.clone()), cases).await;
    let system = "/api/v1/namespaces/kube-system/events?dryRun=All";
    api.post(system, of(nowhere.clone())).await.fails(422, "Invalid");
    api.post(system, of(merged(&timed, &nowhere))).await.expect(201);
    let path = api.group("events.k8s.io/v1", "events");
    let event = json!({"metadata": {"name": "m"}, "eventTime": time, "reportingController": "a.b/c", "reportingInstance": "i",
        "action": "A", "reason": "R", "type": "Normal", "note": "n",
        "regarding": {"kind": "Pod", "name": "p", "namespace": api.ns}});
    let unset = "Invalid value: \"\": needs to be unset";
    let (count, source, last) =
        (format!("count: {unset}"), format!("source: {unset}"), format!("lastTimestamp: {unset}"));
    let cases = &[
        (json!({"deprecatedCount": 2}), count.as_str()),
        (json!({"deprecatedSource": {"host": "h"}}), source.as_str()),
        (json!({"deprecatedLastTimestamp": "2026-01-01T00:00:00Z"}), last.as_str()),
        (json!({"note": "x".repeat(1025)}), "message: Invalid value: \"\": can have at most 1024 characters"),
        (json!({"reportingController": null}), "reportingController: Required value"),
    ];
    refused(&api, &path, &event, cases).await;
    api.post(&path, event).await.expect(201);
    let cases = &[
        (json!({"note": "x"}), "message: Invalid value: \"x\": field is immutable"),
        (json!({"deprecatedCount": 2}), "count: Invalid value: 2: field is immutable"),
        (
            json!({"related": {"kind": "Pod", "name": "q"}}),
            "related: Invalid value: {\"Kind\":\"Pod\",\"Namespace\":\"\",\"Name\":\"q\",\"UID\":\"\",\"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable",
        ),
    ];
    kept(&api, &format!("{path}/m"), cases).await;
    api.done().await;
}

#[tokio::test]
async fn secrets_accounts_namespaces_and_names() {
    let api = Api::new().await;
    let secret = json!({"metadata": {"name": "s"}, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}});
    let with = |text: &str| json!({"stringData": {".dockerconfigjson": text}});
    let at = "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\"";
    let list = format!("{at}: json: cannot unmarshal array into Go value of type map[string]interface {{}}");
    let cut = format!("{at}: unexpected end of JSON input");
    refused(&api, &api.core("secrets"), &secret, &[(with("[]"), list.as_str()), (with("{"), cut.as_str())])
        .await;
    let account = json!({"metadata": {"name": "a"}, "imagePullSecrets": [{"name": "A_b"}]});
    api.post(&format!("{}?dryRun=All", api.core("serviceaccounts")), account).await.expect(201);
    let namespace = json!({"metadata": {"name": random("ns-")}, "status": {"phase": "Terminating"}});
    let made = api.post("/api/v1/namespaces?dryRun=All", namespace).await.expect(201).body;
    assert_eq!(made["status"], json!({"phase": "Active"}));
    let going = json!({"status": {"phase": "Terminating"}});
    let says =
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty";
    kept(&api, &format!("/api/v1/namespaces/{}/status", api.ns), &[(going, says)]).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": crate::api::pod("p")["spec"]});
    let set = json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
        "template": template}});
    let named = (
        json!({"metadata": {"name": "a.b"}}),
        "metadata.name: Invalid value: \"a.b\": must not contain dots",
    );
    refused(&api, &api.group("apps/v1", "statefulsets"), &set, &[named]).await;
    api.done().await;
}

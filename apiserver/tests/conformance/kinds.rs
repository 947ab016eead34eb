//! Groups of checks: all other built-in kinds, what they may say and what of them may change.

use crate::api::{Api, RBAC, TABLE, random, signing_request};
use crate::table::{Case, accepted, changes, new_objects};
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
async fn services() {
    let api = Api::new().await;
    let path = api.core("services");
    let base = json!({"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
    let ports = |list: Value| spec(json!({"ports": list}));
    let cases: &[Case] = &[
        (ports(json!([])), "Required", "spec.ports"),
        (ports(json!([{"port": 0}])), "Invalid", "spec.ports[0].port"),
        (ports(json!([{"port": 70000}])), "Invalid", "spec.ports[0].port"),
        (ports(json!([{"port": 80, "protocol": "ICMP"}])), "NotSupported", "spec.ports[0].protocol"),
        (ports(json!([{"port": 80}, {"port": 81, "name": "b"}])), "Required", "spec.ports[0].name"),
        (
            ports(json!([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}])),
            "Duplicate",
            "spec.ports[1].name",
        ),
        (ports(json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}])), "Duplicate", "spec.ports[1]"),
        (ports(json!([{"port": 80, "targetPort": "a b"}])), "Invalid", "spec.ports[0].targetPort"),
        (spec(json!({"type": "Magic"})), "NotSupported", "spec.type"),
        (spec(json!({"type": "ExternalName"})), "Required", "spec.externalName"),
        (spec(json!({"sessionAffinity": "Sticky"})), "NotSupported", "spec.sessionAffinity"),
        (
            spec(
                json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 90000}}}),
            ),
            "Invalid",
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        ),
        (spec(json!({"externalTrafficPolicy": "Local"})), "Invalid", "spec.externalTrafficPolicy"),
        (spec(json!({"internalTrafficPolicy": "Far"})), "NotSupported", "spec.internalTrafficPolicy"),
        (spec(json!({"selector": {"a b": "c"}})), "Invalid", "spec.selector"),
        (spec(json!({"externalIPs": ["127.0.0.1"]})), "Invalid", "spec.externalIPs[0]"),
        (
            spec(json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]})),
            "Forbidden",
            "spec.LoadBalancerSourceRanges",
        ),
        (spec(json!({"ipFamilies": ["IPv5"]})), "NotSupported", "spec.ipFamilies[0]"),
    ];
    new_objects(&api, &path, &base, cases).await;
    accepted(
        &api,
        &path,
        &base,
        &[spec(json!({"clusterIP": "None", "ports": null})), spec(json!({"type": "LoadBalancer"}))],
    )
    .await;
    let made = api.post(&path, json!({"metadata": {"name": "n"}, "spec": {"type": "NodePort", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]}})).await;
    let made = made.expect(201).body;
    assert_eq!(made["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10800);
    assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
    api.done().await;
}

#[tokio::test]
async fn endpoints_and_slices() {
    let api = Api::new().await;
    let base = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]});
    let subset = |s: Value| json!({"subsets": [s]});
    let cases: &[Case] = &[
        (subset(json!({"ports": [{"port": 80}]})), "Required", "subsets[0]"),
        (subset(json!({"addresses": [{"ip": "10.0.0"}]})), "Invalid", "subsets[0].addresses[0].ip"),
        (subset(json!({"addresses": [{"ip": "127.0.0.1"}]})), "Invalid", "subsets[0].addresses[0].ip"),
        (
            subset(json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 0}]})),
            "Invalid",
            "subsets[0].ports[0].port",
        ),
    ];
    new_objects(&api, &api.core("endpoints"), &base, cases).await;
    let path = api.group("discovery.k8s.io/v1", "endpointslices");
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]});
    let cases: &[Case] = &[
        (json!({"addressType": ""}), "Required", "addressType"),
        (json!({"addressType": "IPX"}), "NotSupported", "addressType"),
        (json!({"endpoints": [{"addresses": []}]}), "Required", "endpoints[0].addresses"),
        (json!({"endpoints": [{"addresses": ["::1"]}]}), "Invalid", "endpoints[0].addresses[0]"),
        (json!({"ports": [{"port": 80}, {"port": 81}]}), "Duplicate", "ports[1].name"),
    ];
    new_objects(&api, &path, &slice, cases).await;
    changes(
        &api,
        &path,
        &slice,
        &[(json!({"addressType": "FQDN"}), "Invalid", "addressType")],
        &[json!({"ports": [{"port": 81}]})],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn ingresses_and_their_classes() {
    let api = Api::new().await;
    let path = api.group("networking.k8s.io/v1", "ingresses");
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let rule = |host: &str, path: Value| json!([{"host": host, "http": {"paths": [path]}}]);
    let good = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let base = json!({"metadata": {"name": "i"}, "spec": {"rules": rule("a.example.com", good.clone())}});
    let cases: &[Case] = &[
        (spec(json!({"rules": []})), "Invalid", "spec"),
        (spec(json!({"rules": rule("10.0.0.1", good.clone())})), "Invalid", "spec.rules[0].host"),
        (spec(json!({"rules": rule("UPPER", good.clone())})), "Invalid", "spec.rules[0].host"),
        (
            spec(json!({"rules": rule("a", json!({"path": "/", "backend": backend}))})),
            "Required",
            "spec.rules[0].http.paths[0].pathType",
        ),
        (
            spec(json!({"rules": rule("a", json!({"path": "x", "pathType": "Exact", "backend": backend}))})),
            "Invalid",
            "spec.rules[0].http.paths[0].path",
        ),
        (
            spec(json!({"rules": rule("a", json!({"path": "/", "pathType": "Other", "backend": backend}))})),
            "NotSupported",
            "spec.rules[0].http.paths[0].pathType",
        ),
        (
            spec(
                json!({"rules": rule("a", json!({"path": "/", "pathType": "Exact", "backend": {"service": {"name": "s"}}}))}),
            ),
            "Required",
            "spec.rules[0].http.paths[0].backend",
        ),
    ];
    new_objects(&api, &path, &base, cases).await;
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let class = json!({"metadata": {"name": random("class-")}, "spec": {"controller": "example.com/c"}});
    new_objects(
        &api,
        classes,
        &class,
        &[
            (spec(json!({"controller": "nodomain"})), "Invalid", "spec.controller"),
            (spec(json!({"controller": ""})), "Required", "spec.controller"),
        ],
    )
    .await;
    changes(
        &api,
        classes,
        &class,
        &[(spec(json!({"controller": "example.com/d"})), "Invalid", "spec.controller")],
        &[json!({"metadata": {"labels": {"a": "b"}}})],
    )
    .await;
    api.delete(&format!("{classes}/{}", class["metadata"]["name"].as_str().unwrap()), Value::Null)
        .await
        .expect(200);
    api.done().await;
}

#[tokio::test]
async fn network_policies() {
    let api = Api::new().await;
    let path = api.group("networking.k8s.io/v1", "networkpolicies");
    let base = json!({"metadata": {"name": "n"}, "spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}});
    let from = |peer: Value| spec(json!({"ingress": [{"from": [peer]}]}));
    let port = |p: Value| spec(json!({"ingress": [{"ports": [p]}]}));
    let cases: &[Case] = &[
        (from(json!({})), "Required", "spec.ingress[0].from[0]"),
        (
            from(json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}})),
            "Forbidden",
            "spec.ingress[0].from[0]",
        ),
        (from(json!({"ipBlock": {"cidr": "10.0.0.0"}})), "Invalid", "spec.ingress[0].from[0].ipBlock.cidr"),
        (
            from(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}})),
            "Invalid",
            "spec.ingress[0].from[0].ipBlock.except[0]",
        ),
        (port(json!({"protocol": "ICMP"})), "NotSupported", "spec.ingress[0].ports[0].protocol"),
        (port(json!({"port": 80, "endPort": 70})), "Invalid", "spec.ingress[0].ports[0].endPort"),
        (spec(json!({"policyTypes": ["Sideways"]})), "NotSupported", "spec.policyTypes[0]"),
    ];
    new_objects(&api, &path, &base, cases).await;
    let made = api.post(&path, base).await.expect(201).body;
    assert_eq!(made["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(made["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    api.done().await;
}

#[tokio::test]
async fn addresses_and_ranges() {
    let api = Api::new().await;
    let path = "/apis/networking.k8s.io/v1/ipaddresses";
    let base = json!({"metadata": {"name": "10.96.7.7"}, "spec": {"parentRef": {"resource": "services", "name": "s", "namespace": "default"}}});
    let cases: &[Case] = &[
        (json!({"metadata": {"name": "ten"}}), "Invalid", "metadata.name"),
        (spec(json!({"parentRef": null})), "Required", "spec.parentRef"),
        (spec(json!({"parentRef": {"name": ""}})), "Required", "spec.parentRef.name"),
    ];
    new_objects(&api, path, &base, cases).await;
    let path = "/apis/networking.k8s.io/v1/servicecidrs";
    let base = json!({"metadata": {"name": "r"}, "spec": {"cidrs": ["10.100.0.0/16"]}});
    let cases: &[Case] = &[
        (spec(json!({"cidrs": []})), "Required", "spec.cidrs"),
        (spec(json!({"cidrs": ["10.100.0.0"]})), "Invalid", "spec.cidrs[0]"),
    ];
    new_objects(&api, path, &base, cases).await;
    api.done().await;
}

#[tokio::test]
async fn claims_and_volumes() {
    let api = Api::new().await;
    let path = api.core("persistentvolumeclaims");
    let base = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let cases: &[Case] = &[
        (spec(json!({"accessModes": []})), "Required", "spec.accessModes"),
        (spec(json!({"accessModes": ["Sometimes"]})), "NotSupported", "spec.accessModes"),
        (spec(json!({"resources": null})), "Required", "spec.resources[storage]"),
        (spec(json!({"resources": {"requests": {"storage": "0"}}})), "Invalid", "spec.resources[storage]"),
        (spec(json!({"volumeMode": "Tape"})), "NotSupported", "spec.volumeMode"),
        (spec(json!({"storageClassName": "A_B"})), "Invalid", "spec.storageClassName"),
    ];
    new_objects(&api, &path, &base, cases).await;
    let refused: &[Case] = &[
        (spec(json!({"accessModes": ["ReadWriteMany"]})), "Forbidden", "spec"),
        (spec(json!({"volumeMode": "Block"})), "Forbidden", "spec"),
        (spec(json!({"resources": {"requests": {"storage": "2Gi"}}})), "Forbidden", "spec"),
    ];
    changes(&api, &path, &base, refused, &[spec(json!({"volumeName": "v"}))]).await;
    let path = "/api/v1/persistentvolumes";
    let name = random("pv-");
    let base = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}});
    let cases: &[Case] = &[
        (spec(json!({"capacity": null})), "Required", "spec.capacity"),
        (spec(json!({"hostPath": null})), "Required", "spec"),
        (spec(json!({"nfs": {"server": "a", "path": "/"}})), "Forbidden", "spec.nfs"),
        (
            spec(json!({"persistentVolumeReclaimPolicy": "Burn"})),
            "NotSupported",
            "spec.persistentVolumeReclaimPolicy",
        ),
        (spec(json!({"accessModes": null})), "Required", "spec.accessModes"),
    ];
    new_objects(&api, path, &base, cases).await;
    let refused: &[Case] =
        &[(spec(json!({"hostPath": {"path": "/y"}})), "Forbidden", "spec.persistentvolumesource")];
    changes(&api, path, &base, refused, &[spec(json!({"persistentVolumeReclaimPolicy": "Delete"}))]).await;
    api.delete(&format!("{path}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn storage_classes_and_drivers() {
    let api = Api::new().await;
    let path = "/apis/storage.k8s.io/v1/storageclasses";
    let name = random("sc-");
    let base = json!({"metadata": {"name": name}, "provisioner": "example.com/p", "parameters": {"a": "b"}});
    let cases: &[Case] = &[
        (json!({"provisioner": ""}), "Required", "provisioner"),
        (json!({"reclaimPolicy": "Burn"}), "NotSupported", "reclaimPolicy"),
        (json!({"volumeBindingMode": "Later"}), "NotSupported", "volumeBindingMode"),
    ];
    new_objects(&api, path, &base, cases).await;
    let refused: &[Case] = &[
        (json!({"provisioner": "example.com/q"}), "Invalid", "provisioner"),
        (json!({"parameters": {"a": "c"}}), "Invalid", "parameters"),
        (json!({"reclaimPolicy": "Retain"}), "Invalid", "reclaimPolicy"),
        (json!({"volumeBindingMode": "WaitForFirstConsumer"}), "Invalid", "volumeBindingMode"),
    ];
    changes(&api, path, &base, refused, &[json!({"allowVolumeExpansion": true})]).await;
    // The class that is marked is that of claims which name none.
    let mark = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    api.patch(&format!("{path}/{name}"), "merge", mark).await.expect(200);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let made = api.post(&api.core("persistentvolumeclaims"), claim).await.expect(201).body;
    assert_eq!(made["spec"]["storageClassName"], json!(name));
    api.delete(&format!("{path}/{name}"), Value::Null).await.expect(200);
    let attributes =
        json!({"metadata": {"name": random("vac-")}, "driverName": "example.com", "parameters": {"a": "b"}});
    let cases: &[Case] = &[
        (json!({"driverName": ""}), "Required", "driverName"),
        (json!({"parameters": null}), "Required", "parameters"),
    ];
    new_objects(&api, "/apis/storage.k8s.io/v1/volumeattributesclasses", &attributes, cases).await;
    let driver = json!({"metadata": {"name": random("d.")}, "spec": {}});
    let cases: &[Case] = &[
        (spec(json!({"volumeLifecycleModes": ["Forever"]})), "NotSupported", "spec.volumeLifecycleModes"),
        (spec(json!({"fsGroupPolicy": "x"})), "NotSupported", "spec.fsGroupPolicy"),
    ];
    new_objects(&api, "/apis/storage.k8s.io/v1/csidrivers", &driver, cases).await;
    let node =
        json!({"metadata": {"name": random("n-")}, "spec": {"drivers": [{"name": "d", "nodeID": "n"}]}});
    new_objects(
        &api,
        "/apis/storage.k8s.io/v1/csinodes",
        &node,
        &[(spec(json!({"drivers": [{"name": "d", "nodeID": ""}]})), "Required", "spec.drivers[0].nodeID")],
    )
    .await;
    let attachment = json!({"metadata": {"name": random("a-")}, "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    new_objects(
        &api,
        "/apis/storage.k8s.io/v1/volumeattachments",
        &attachment,
        &[
            (spec(json!({"attacher": ""})), "Required", "spec.attacher"),
            (spec(json!({"source": {"persistentVolumeName": null}})), "Required", "spec.source"),
            (spec(json!({"nodeName": ""})), "Invalid", "spec.nodeName"),
        ],
    )
    .await;
    let capacity = json!({"metadata": {"name": "c"}, "storageClassName": "fast", "capacity": "1Ti"});
    let path = api.group("storage.k8s.io/v1", "csistoragecapacities");
    new_objects(
        &api,
        &path,
        &capacity,
        &[
            (json!({"storageClassName": ""}), "Invalid", "storageClassName"),
            (json!({"capacity": "-1"}), "Invalid", "capacity"),
        ],
    )
    .await;
    changes(
        &api,
        &path,
        &capacity,
        &[(json!({"storageClassName": "slow"}), "Invalid", "storageClassName")],
        &[json!({"capacity": "2Ti"})],
    )
    .await;
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
async fn roles_and_bindings_themselves() {
    let api = Api::new().await;
    let rule = |r: Value| json!({"rules": [r]});
    let roles = format!("{RBAC}/namespaces/{}/roles", api.ns);
    let base = json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let cases: &[Case] = &[
        (rule(json!({"apiGroups": [""], "resources": ["pods"]})), "Required", "rules[0].verbs"),
        (rule(json!({"resources": ["pods"], "verbs": ["get"]})), "Required", "rules[0].apiGroups"),
        (rule(json!({"apiGroups": [""], "verbs": ["get"]})), "Required", "rules[0].resources"),
        (rule(json!({"nonResourceURLs": ["/x"], "verbs": ["get"]})), "Invalid", "rules[0].nonResourceURLs"),
        (json!({"metadata": {"name": "a/b"}}), "Invalid", "metadata.name"),
    ];
    new_objects(&api, &roles, &base, cases).await;
    let cluster = format!("{RBAC}/clusterroles");
    let both =
        rule(json!({"nonResourceURLs": ["/x"], "resources": ["pods"], "apiGroups": [""], "verbs": ["get"]}));
    let named = json!({"metadata": {"name": random("cr-")}, "rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]});
    new_objects(&api, &cluster, &named, &[(both, "Invalid", "rules[0].nonResourceURLs")]).await;
    let bindings = format!("{RBAC}/namespaces/{}/rolebindings", api.ns);
    let base = json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}]});
    let subject = |s: Value| json!({"subjects": [s]});
    let cases: &[Case] = &[
        (json!({"roleRef": {"kind": "Thing"}}), "NotSupported", "roleRef.kind"),
        (json!({"roleRef": {"apiGroup": "other"}}), "NotSupported", "roleRef.apiGroup"),
        (json!({"roleRef": {"name": ""}}), "Required", "roleRef.name"),
        (subject(json!({"kind": "Robot", "name": "x"})), "NotSupported", "subjects[0].kind"),
        (subject(json!({"kind": "User", "name": ""})), "Required", "subjects[0].name"),
        (
            subject(json!({"kind": "User", "name": "x", "apiGroup": "other"})),
            "NotSupported",
            "subjects[0].apiGroup",
        ),
    ];
    new_objects(&api, &bindings, &base, cases).await;
    changes(
        &api,
        &bindings,
        &base,
        &[(json!({"roleRef": {"name": "q"}}), "Invalid", "roleRef")],
        &[subject(json!({"kind": "User", "name": "v"}))],
    )
    .await;
    let all = format!("{RBAC}/clusterrolebindings");
    let base = json!({"metadata": {"name": random("crb-")}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "Group", "name": "g"}]});
    let cases: &[Case] = &[
        (subject(json!({"kind": "ServiceAccount", "name": "x"})), "Required", "subjects[0].namespace"),
        (json!({"roleRef": {"kind": "Role"}}), "NotSupported", "roleRef.kind"),
    ];
    new_objects(&api, &all, &base, cases).await;
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
async fn certificates_are_asked_for_approved_and_signed() {
    let api = Api::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let name = random("csr-");
    let base = json!({"metadata": {"name": name}, "spec": {"request": signing_request("dave"), "usages": ["client auth"],
        "signerName": "example.com/signer", "username": "somebody-else"}});
    let cases: &[Case] = &[
        (spec(json!({"request": "eA=="})), "Invalid", "spec.request"),
        (spec(json!({"request": ""})), "Invalid", "spec.request"),
        (spec(json!({"usages": []})), "Required", "spec.usages"),
        (spec(json!({"usages": ["world domination"]})), "NotSupported", "spec.usages[0]"),
        (spec(json!({"signerName": ""})), "Required", "spec.signerName"),
        (spec(json!({"signerName": "nodomain"})), "Invalid", "spec.signerName"),
        (spec(json!({"expirationSeconds": 60})), "Invalid", "spec.expirationSeconds"),
    ];
    new_objects(&api, path, &base, cases).await;
    let made = api.post(path, base).await.expect(201).body;
    assert_ne!(made["spec"]["username"], "somebody-else");
    assert!(!made["spec"]["groups"].as_array().unwrap().is_empty());
    let at = format!("{path}/{name}");
    let with = |kinds: &[&str]| {
        let mut body = made.clone();
        body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let list: Vec<Value> =
            kinds.iter().map(|k| json!({"type": k, "status": "True", "reason": "R"})).collect();
        body["status"]["conditions"] = json!(list);
        body
    };
    api.put(&format!("{at}/approval"), with(&["Approved", "Denied"])).await.fails(422, "Invalid");
    api.put(&format!("{at}/status"), with(&["Approved"])).await.fails(422, "Invalid");
    api.put(&format!("{at}/approval"), with(&["Approved"])).await.expect(200);
    api.put(&format!("{at}/approval"), with(&[])).await.fails(422, "Invalid");
    let garbage = json!({"status": {"certificate": "bm90IGEgY2VydA=="}});
    api.patch(&format!("{at}/status"), "merge", garbage).await.fails(422, "Invalid");
    // Approving takes a right on the signer.
    let role = json!({"metadata": {"name": name}, "rules": [{"apiGroups": ["certificates.k8s.io"], "verbs": ["get", "update", "patch"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"]}]});
    api.post(&format!("{RBAC}/clusterroles"), role).await.expect(201);
    let weak = api.account("weak").await;
    let bind = json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "weak", "namespace": api.ns}]});
    api.post(&format!("{RBAC}/clusterrolebindings"), bind).await.expect(201);
    // A server may learn of the role a moment later.
    let start = std::time::Instant::now();
    let refused = loop {
        let answer = weak.put(&format!("{at}/approval"), with(&["Approved"])).await;
        if !answer.message().contains("cannot update resource") || start.elapsed().as_secs() > 30 {
            break answer.fails(403, "Forbidden");
        }
    };
    assert!(
        refused.message().contains("user not permitted to approve requests with signerName"),
        "{}",
        refused.message()
    );
    for what in [at, format!("{RBAC}/clusterroles/{name}"), format!("{RBAC}/clusterrolebindings/{name}")] {
        api.delete(&what, Value::Null).await.expect(200);
    }
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

//! Groups of checks: kinds of the network, and how they reach pods.

use super::spec;
use crate::api::{Api, random};
use crate::table::{Case, accepted, changes, new_objects};
use serde_json::{Value, json};

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

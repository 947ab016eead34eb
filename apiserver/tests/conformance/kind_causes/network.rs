//! Causes for which kinds of the network are refused.

use super::{kept, refused, spec};
use crate::api::Api;
use crate::table::merged;
use serde_json::{Value, json};

fn service(name: &str, extra: Value) -> Value {
    merged(&json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}), &spec(extra))
}

const STICKY: &str =
    "spec.sessionAffinity: Unsupported value: \"Sticky\": supported values: \"ClientIP\", \"None\"";

#[tokio::test]
async fn services() {
    let api = Api::new().await;
    let path = api.core("services");
    let ports = json!([{"name": "a", "port": 80, "nodePort": 30_001}, {"name": "a", "port": 80}]);
    let wrong = json!({"ports": ports, "sessionAffinity": "Sticky", "trafficDistribution": "X"});
    let causes = [
        "spec.ports[1].name: Duplicate value: \"a\"",
        STICKY,
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
        "spec.trafficDistribution: Unsupported value: \"X\": supported values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\"",
    ];
    refused(&api, &path, service("s", wrong), &causes).await;
    let notes = json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto",
        "service.kubernetes.io/topology-aware-hints": "Disabled",
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.1/8"}}});
    let source = "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]";
    let causes: [&str; 3] = [
        "metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: \"Auto\": must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified",
        &format!("{source}: Forbidden: may only be used when `type` is 'LoadBalancer'"),
        &format!("{source}: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length"),
    ];
    refused(&api, &path, merged(&service("s", json!({})), &notes), &causes).await;
    api.post(&path, service("s", json!({}))).await.expect(201);
    let moved = json!({"clusterIP": "10.96.250.251", "clusterIPs": ["10.96.250.251"],
        "sessionAffinity": "Sticky", "loadBalancerClass": "a.b/c"});
    let class = "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'";
    let causes = [
        "spec.clusterIPs[0]: Invalid value: [\"10.96.250.251\"]: may not change once set",
        class,
        STICKY,
        class,
    ];
    kept(&api, &format!("{path}/s"), spec(moved), &causes).await;
    api.done().await;
}

#[tokio::test]
async fn families_of_addresses_are_told_alone() {
    let api = Api::new().await;
    let path = api.core("services");
    let two = json!(["10.96.200.7", "10.96.200.8"]);
    let cases = [
        (
            json!({"clusterIPs": ["10.96.200.7"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.200.7\"]: must be empty when `clusterIP` is not specified",
        ),
        (
            json!({"clusterIP": "10.96.200.7", "clusterIPs": ["10.96.200.8"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.200.8\"]: first value must match `clusterIP`",
        ),
        (
            json!({"clusterIP": "10.96.200.7", "clusterIPs": two}),
            "spec.clusterIPs: Invalid value: [\"10.96.200.7\",\"10.96.200.8\"]: may specify no more than one IP for each IP family",
        ),
        (json!({"ipFamilies": ["IPv4", "IPv4"]}), "spec.ipFamilies[1]: Duplicate value: \"IPv4\""),
        (
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"clusterIP": "192.0.2.1"}),
            "spec.clusterIPs: Invalid value: [\"192.0.2.1\"]: failed to allocate IP 192.0.2.1: the provided network does not match the current range",
        ),
    ];
    for (wrong, says) in cases {
        let wrong = merged(&wrong, &json!({"sessionAffinity": "Sticky"}));
        refused(&api, &path, service("s", wrong), &[says]).await;
    }
    let free = api.post(&path, service("free", json!({"clusterIP": "None"}))).await.expect(201).body;
    assert_eq!(free["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let says = "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary IP family";
    kept(&api, &format!("{path}/free"), spec(json!({"ipFamilies": ["IPv4"]})), &[says]).await;
    let single = spec(json!({"ipFamilyPolicy": "SingleStack"}));
    let single = api.patch(&format!("{path}/free"), "merge", single).await.expect(200).body;
    assert_eq!(single["spec"]["ipFamilies"], json!(["IPv4"]));
    api.done().await;
}

#[tokio::test]
async fn what_services_have_without_saying_so() {
    let api = Api::new().await;
    let path = api.core("services");
    let reached = json!({"externalIPs": ["203.0.113.7"], "ports": [{"port": 80, "targetPort": ""}]});
    let made = api.post(&path, service("s", reached)).await.expect(201).body;
    assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
    assert_eq!(made["spec"]["ports"][0]["targetPort"], 80);
    let inner = spec(json!({"externalIPs": null}));
    let inner = api.patch(&format!("{path}/s"), "merge", inner).await.expect(200).body;
    assert_eq!(inner["spec"].get("externalTrafficPolicy"), None, "{inner}");
    // One number is one port of nodes for all protocols.
    let names = json!([{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}]);
    let made = api.post(&path, service("dns", json!({"type": "NodePort", "ports": names}))).await;
    let made = made.expect(201).body;
    let node = made["spec"]["ports"][0]["nodePort"].clone();
    assert!(node.is_u64(), "{made}");
    assert_eq!(made["spec"]["ports"][1]["nodePort"], node);
    // A port is known by its name.
    let moved = json!([{"name": "a", "port": 54}, {"name": "b", "port": 55, "protocol": "UDP"}]);
    let moved = api.patch(&format!("{path}/dns"), "merge", spec(json!({"ports": moved}))).await;
    let moved = moved.expect(200).body;
    for port in [0_usize, 1] {
        assert_eq!(moved["spec"]["ports"][port]["nodePort"], node, "{moved}");
    }
    let twice = json!([{"name": "a", "port": 80, "nodePort": 31_999},
        {"name": "b", "port": 81, "protocol": "UDP", "nodePort": 31_999}]);
    let says = "spec.ports[1].nodePort: Invalid value: 31999: provided port is already allocated";
    refused(&api, &path, service("t", json!({"type": "NodePort", "ports": twice})), &[says]).await;
    api.done().await;
}

#[tokio::test]
async fn slices() {
    let api = Api::new().await;
    let path = api.group("discovery.k8s.io/v1", "endpointslices");
    let slice = |endpoint: Value, port: Value| json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint], "ports": [port]});
    let hints =
        json!({"forZones": [{"name": "z"}, {"name": "z"}], "forNodes": [{"name": "n"}, {"name": "n"}]});
    let wrong = slice(json!({"addresses": [], "hints": hints}), json!({"port": 80, "protocol": "ICMP"}));
    let causes = [
        "ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        "endpoints[0].addresses: Required value: must contain at least 1 address",
        "endpoints[0].hints.forZones[1].name: Duplicate value: \"z\"",
        "endpoints[0].hints.forNodes[1].name: Duplicate value: \"n\"",
    ];
    refused(&api, &path, wrong, &causes).await;
    let zones: Vec<Value> = (0..9).map(|i| json!({"name": format!("z{i}")})).collect();
    let wrong = slice(json!({"addresses": ["10.0.0.1"], "hints": {"forZones": zones}}), json!({"port": 80}));
    let says = "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items";
    refused(&api, &path, wrong, &[says]).await;
    // The number of a port is not looked at; what an earlier version said of places is dropped.
    let fine = json!({"addresses": ["10.0.0.1"], "deprecatedTopology": {"a": "b"}});
    let made = api.post(&path, slice(fine, json!({"port": 70_000}))).await.expect(201).body;
    assert_eq!(made["endpoints"][0].get("deprecatedTopology"), None, "{made}");
    let ends = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}],
        "ports": [{"port": 80, "appProtocol": "/x"}]}]});
    let says = "subsets[0].ports[0].appProtocol: Invalid value: \"/x\": prefix part must be non-empty";
    refused(&api, &api.core("endpoints"), ends, &[says]).await;
    api.done().await;
}

#[tokio::test]
async fn ingresses() {
    let api = Api::new().await;
    let path = api.group("networking.k8s.io/v1", "ingresses");
    let class = json!({"metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": "a"}},
        "spec": {"ingressClassName": "b"}});
    let causes = [
        "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
        "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are specified",
    ];
    refused(&api, &path, class, &causes).await;
    let rule = json!({"host": "010.0.0.1", "http": {"paths": [{"path": "/", "backend": {}}]}});
    let untyped = json!({"metadata": {"name": "i"}, "spec": {"rules": [rule]}});
    let causes = [
        "spec.rules[0].host: Invalid value: \"010.0.0.1\": must be a DNS name, not an IP address",
        "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
    ];
    refused(&api, &path, untyped, &causes).await;
    api.done().await;
}

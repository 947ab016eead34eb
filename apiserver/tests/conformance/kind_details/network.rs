//! Details of kinds of the network.

use super::{kept, refused, spec};
use crate::api::{Api, random};
use crate::table::merged;
use serde_json::{Value, json};

fn service(name: &str, extra: Value) -> Value {
    merged(&json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}), &spec(extra))
}

#[tokio::test]
async fn balanced_services() {
    let api = Api::new().await;
    let path = api.core("services");
    let local =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "a.b/c"});
    let made = api.post(&path, service("s", local.clone())).await.expect(201).body;
    let port = made["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0);
    assert!((30_000..=32_767).contains(&port), "{made}");
    assert_ne!(made["spec"]["ports"][0]["nodePort"], port);
    let (at, other) = (format!("{path}/s"), if port == 30_000 { 30_001 } else { 30_000 });
    kept(
        &api,
        &at,
        &[
            (
                spec(json!({"healthCheckNodePort": other})),
                "spec.healthCheckNodePort: Forbidden: field is immutable",
            ),
            (
                spec(json!({"loadBalancerClass": "a.b/d"})),
                "spec.loadBalancerClass: Invalid value: \"a.b/d\": may not change once set",
            ),
            (
                spec(json!({"loadBalancerSourceRanges": ["10.0.0.1/8"]})),
                "spec.LoadBalancerSourceRanges[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
            ),
        ],
    )
    .await;
    let again = spec(json!({"healthCheckNodePort": 0}));
    assert_eq!(api.patch(&at, "merge", again).await.expect(200).body["spec"]["healthCheckNodePort"], port);
    let mut taken = service("t", local);
    taken["spec"]["healthCheckNodePort"] = json!(port);
    api.post(&path, taken).await.fails(500, "InternalError");
    let point = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}});
    let seen = api.patch(&format!("{at}/status"), "merge", point).await.expect(200).body;
    assert_eq!(seen["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    let wide =
        api.patch(&at, "merge", spec(json!({"externalTrafficPolicy": "Cluster"}))).await.expect(200).body;
    assert_eq!(wide["spec"].get("healthCheckNodePort"), None);
    assert_eq!(wide["status"], seen["status"]);
    let inner = api.patch(&at, "merge", spec(json!({"type": "ClusterIP"}))).await.expect(200).body;
    assert_eq!(inner["status"], json!({"loadBalancer": {}}));
    for field in ["loadBalancerClass", "externalTrafficPolicy", "allocateLoadBalancerNodePorts"] {
        assert_eq!(inner["spec"].get(field), None, "{inner}");
    }
    assert_eq!(inner["spec"]["ports"][0].get("nodePort"), None);
    api.done().await;
}

#[tokio::test]
async fn services_without_addresses_of_their_own() {
    let api = Api::new().await;
    let path = api.core("services");
    let free = api.post(&path, service("free", json!({"clusterIP": "None"}))).await.expect(201).body;
    assert_eq!(
        (&free["spec"]["ipFamilyPolicy"], &free["spec"]["ipFamilies"]),
        (&json!("RequireDualStack"), &json!(["IPv4", "IPv6"]))
    );
    let chosen = json!({"clusterIP": "None", "selector": {"a": "b"}});
    let chosen = api.post(&path, service("chosen", chosen)).await.expect(201).body;
    assert_eq!(
        (&chosen["spec"]["ipFamilyPolicy"], &chosen["spec"]["ipFamilies"]),
        (&json!("SingleStack"), &json!(["IPv4"]))
    );
    let name = json!({"type": "ExternalName", "externalName": "x.example.com"});
    api.post(&path, service("s", json!({"type": "NodePort"}))).await.expect(201);
    let away = api.patch(&format!("{path}/s"), "merge", spec(name.clone())).await.expect(200).body;
    let here = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];
    for field in here {
        assert_eq!(away["spec"].get(field), None, "{away}");
    }
    assert_eq!(away["spec"]["ports"][0].get("nodePort"), None);
    let never = "Forbidden: may not be set for ExternalName services";
    let cases = [
        (json!({"clusterIP": "10.96.9.9"}), format!("spec.clusterIPs: {never}")),
        (json!({"ipFamilies": ["IPv4"]}), format!("spec.ipFamilies: {never}")),
        (json!({"ipFamilyPolicy": "SingleStack"}), format!("spec.ipFamilyPolicy: {never}")),
    ];
    let cases: Vec<_> = cases.iter().map(|(change, says)| (spec(change.clone()), says.as_str())).collect();
    refused(&api, &path, &service("t", name), &cases).await;
    let back = api.patch(&format!("{path}/s"), "merge", spec(json!({"type": "ClusterIP"}))).await;
    assert!(back.expect(200).body["spec"]["clusterIP"].is_string());
    api.done().await;
}

#[tokio::test]
async fn the_endpoints_of_a_service_go_with_it() {
    let api = Api::new().await;
    api.post(&api.core("services"), service("s", json!({}))).await.expect(201);
    for name in ["s", "other"] {
        let ends = json!({"metadata": {"name": name}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]});
        api.post(&api.core("endpoints"), ends).await.expect(201);
    }
    api.delete(&api.core("services/s"), Value::Null).await.expect(200);
    api.until_code(&api.core("endpoints/s"), 404).await;
    api.get(&api.core("endpoints/other")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn addresses_and_ports_of_services() {
    let api = Api::new().await;
    let path = api.core("services");
    let twice = json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]);
    let wrong_ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let bogus = format!("spec.clusterIPs[0]: Invalid value: \"bogus\": {wrong_ip}");
    let outside = format!("spec.externalIPs[0]: Invalid value: \"x\": {wrong_ip}");
    let cases = &[
        (spec(json!({"clusterIP": "bogus"})), bogus.as_str()),
        (
            spec(json!({"clusterIP": "010.96.0.9"})),
            "spec.clusterIPs[0]: Invalid value: \"010.96.0.9\": must not have leading 0s",
        ),
        (
            spec(json!({"clusterIP": "fd00::1"})),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
        ),
        (spec(json!({"externalIPs": ["x"]})), outside.as_str()),
        (
            spec(json!({"externalIPs": ["0.0.0.0"]})),
            "spec.externalIPs[0]: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)",
        ),
        (
            spec(json!({"ports": twice})),
            "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
        ),
        (
            spec(json!({"trafficDistribution": "X"})),
            "supported values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\"",
        ),
        (
            spec(json!({"type": "LoadBalancer", "loadBalancerClass": "a b"})),
            "spec.loadBalancerClass: Invalid value: \"a b\"",
        ),
    ];
    refused(&api, &path, &service("s", json!({})), cases).await;
    api.post(&path, service("s", json!({}))).await.expect(201);
    let moved = spec(json!({"clusterIP": "10.96.250.251", "clusterIPs": ["10.96.250.251"]}));
    let says = "spec.clusterIPs[0]: Invalid value: [\"10.96.250.251\"]: may not change once set";
    kept(&api, &format!("{path}/s"), &[(moved, says)]).await;
    // More ports get ports of nodes of their own, however late they come.
    let open = api.post(&path, service("open", json!({"type": "NodePort"}))).await.expect(201).body;
    let first = open["spec"]["ports"][0]["nodePort"].clone();
    let more = json!([{"name": "a", "port": 80, "nodePort": first}, {"name": "b", "port": 81}]);
    let more =
        api.patch(&format!("{path}/open"), "merge", spec(json!({"ports": more}))).await.expect(200).body;
    assert_ne!(more["spec"]["ports"][1]["nodePort"], first, "{more}");
    api.done().await;
}

#[tokio::test]
async fn ingresses_and_their_classes() {
    let api = Api::new().await;
    let path = api.group("networking.k8s.io/v1", "ingresses");
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let resource = json!({"kind": "K", "name": "n", "apiGroup": "a.b"});
    let base = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}});
    let cases = &[
        (
            spec(json!({"defaultBackend": {"service": null}})),
            "spec.defaultBackend: Invalid value: \"\": resource or service backend is required",
        ),
        (
            spec(json!({"defaultBackend": {"resource": resource}})),
            "spec.defaultBackend: Invalid value: \"\": cannot set both resource and service backends",
        ),
        (
            spec(json!({"defaultBackend": {"service": {"port": {"name": "http"}}}})),
            "spec.defaultBackend: Invalid value: \"\": cannot set both port name & port number",
        ),
        (
            spec(json!({"defaultBackend": null})),
            "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
        ),
        (spec(json!({"tls": [{"secretName": "A_"}]})), "spec.tls[0].secretName: Invalid value: \"A_\""),
    ];
    refused(&api, &path, &base, cases).await;
    api.post(&path, base).await.expect(201);
    let point = |point: Value| json!({"status": {"loadBalancer": {"ingress": [point]}}});
    let at = "status.loadBalancer.ingress[0]";
    let host = format!("{at}.hostname: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address");
    let ip = format!("{at}.ip: Invalid value: \"x\": must be a valid IP address");
    let cases =
        &[(point(json!({"ip": "x"})), ip.as_str()), (point(json!({"hostname": "10.0.0.1"})), host.as_str())];
    kept(&api, &format!("{path}/i/status"), cases).await;
    let class = json!({"metadata": {"name": random("c-")}, "spec": {"controller": "example.com/c"}});
    let parameters =
        |extra: Value| spec(json!({"parameters": merged(&json!({"kind": "K", "name": "n"}), &extra)}));
    let cases = &[
        (
            parameters(json!({"scope": "Namespace"})),
            "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
        ),
        (
            parameters(json!({"scope": "Cluster", "namespace": "a"})),
            "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'",
        ),
        (parameters(json!({"apiGroup": "A_"})), "spec.parameters.apiGroup: Invalid value: \"A_\""),
        (
            spec(json!({"controller": format!("a.b/{}", "c".repeat(250))})),
            "spec.controller: Too long: may not be more than 250 bytes",
        ),
    ];
    refused(&api, "/apis/networking.k8s.io/v1/ingressclasses", &class, cases).await;
    api.done().await;
}

#[tokio::test]
async fn network_policies_and_ranges() {
    let api = Api::new().await;
    let path = api.group("networking.k8s.io/v1", "networkpolicies");
    let base = json!({"metadata": {"name": "n"}, "spec": {"podSelector": {}}});
    let port = |p: Value| spec(json!({"ingress": [{"ports": [p]}]}));
    let block = |cidr: &str| spec(json!({"ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]}));
    let at = "spec.ingress[0].from[0].ipBlock.cidr: Invalid value";
    let (bits, zeros) = (
        format!("{at}: \"10.0.0.1/8\": must not have bits set beyond the prefix length"),
        format!("{at}: \"10.0.0.0/08\": must not have leading 0s in IP or prefix length"),
    );
    let cases = &[
        (port(json!({"protocol": "ICMP"})), "supported values: \"TCP\", \"UDP\", \"SCTP\""),
        (
            port(json!({"port": 80, "endPort": 70})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
        ),
        (
            port(json!({"port": 80, "endPort": 70_000})),
            "spec.ingress[0].ports[0].endPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (spec(json!({"policyTypes": ["Up"]})), "supported values: \"Ingress\", \"Egress\""),
        (block("10.0.0.1/8"), bits.as_str()),
        (block("10.0.0.0/08"), zeros.as_str()),
    ];
    refused(&api, &path, &base, cases).await;
    let node = json!({"metadata": {"name": random("n-")}, "spec": {"podCIDR": "10.1.0.0/24"}});
    let says =
        "spec.podCIDRs[0]: Invalid value: \"10.1.0.1/24\": must not have bits set beyond the prefix length";
    refused(&api, "/api/v1/nodes", &node, &[(spec(json!({"podCIDR": "10.1.0.1/24"})), says)]).await;
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let range = json!({"metadata": {"name": random("r-")}, "spec": {"cidrs": ["10.101.0.0/16"]}});
    let of = |cidrs: Value| spec(json!({"cidrs": cidrs}));
    let cases = &[
        (
            of(json!(["10.1.0.0/16", "10.2.0.0/16"])),
            "spec.cidrs: Invalid value: [\"10.1.0.0/16\",\"10.2.0.0/16\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        ),
        (of(json!(["10.1.0.1/16"])), "spec.cidrs[0]: Invalid value: \"10.1.0.1/16\": must not have bits set"),
        (
            of(json!(["FD00::/64"])),
            "spec.cidrs[0]: Invalid value: \"FD00::/64\": must be in canonical form (\"fd00::/64\")",
        ),
    ];
    refused(&api, ranges, &range, cases).await;
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let address = json!({"metadata": {"name": "10.96.7.8"}, "spec": {"parentRef": {"resource": "services", "name": "s"}}});
    let named = |name: &str| json!({"metadata": {"name": name}});
    let cases = &[
        (
            named("ten"),
            "metadata.name: Invalid value: \"ten\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (named("2001:DB8::1"), "must be in canonical form (\"2001:db8::1\")"),
    ];
    refused(&api, addresses, &address, cases).await;
    api.done().await;
}

#[tokio::test]
async fn endpoints_and_slices() {
    let api = Api::new().await;
    let of = |ip: &str| json!({"subsets": [{"addresses": [{"ip": ip}]}]});
    let base = merged(&json!({"metadata": {"name": "e"}}), &of("10.0.0.1"));
    let at = "subsets[0].addresses[0].ip: Invalid value";
    let both = format!(
        "[{at}: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff), {at}: \"x\": must be a valid IP address]"
    );
    let cases = &[(of("x"), both.as_str()), (of("0.0.0.0"), "\"0.0.0.0\": may not be unspecified (0.0.0.0)")];
    refused(&api, &api.core("endpoints"), &base, cases).await;
    let slice = |family: &str, address: &str| json!({"metadata": {"name": "s"}, "addressType": family, "endpoints": [{"addresses": [address]}]});
    let cases = &[
        (
            slice("IPv4", "x"),
            "endpoints[0].addresses[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            slice("IPv4", "2001:db8::1"),
            "endpoints[0].addresses: Invalid value: \"2001:db8::1\": must be an IPv4 address",
        ),
        (
            slice("IPv6", "10.0.0.1"),
            "endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address",
        ),
        (
            slice("FQDN", "host"),
            "endpoints[0].addresses[0]: Invalid value: \"host\": should be a domain with at least two segments separated by dots",
        ),
    ];
    refused(&api, &api.group("discovery.k8s.io/v1", "endpointslices"), &slice("IPv4", "10.0.0.1"), cases)
        .await;
    api.done().await;
}

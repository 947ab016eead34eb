//! Groups of checks: what a pod may say, and what of it may change.

mod changes;
mod containers;
mod spec_rules;
mod status_rules;
mod volume_rules;

use crate::api::{Api, pod};
use crate::table::{Case, accepted, merged, new_objects};
use serde_json::{Value, json};

/// A pod whose one container has these fields too.
fn with(container: Value) -> Value {
    let mut pod = pod("p");
    let changed = merged(&pod["spec"]["containers"][0], &container);
    pod["spec"]["containers"][0] = changed;
    pod
}

/// A change of the one container.
fn c(change: Value) -> Value {
    json!({"spec": {"containers": [merged(&json!({"name": "c", "image": "i:1"}), &change)]}})
}

async fn refused(base: Value, cases: &[Case]) {
    let api = Api::new().await;
    new_objects(&api, &api.core("pods"), &base, cases).await;
    api.done().await;
}

#[tokio::test]
async fn policies_names_and_numbers_of_pods() {
    let spec = |change: Value| json!({"spec": change});
    refused(
        pod("p"),
        &[
            (spec(json!({"restartPolicy": "Maybe"})), "NotSupported", "spec.restartPolicy"),
            (spec(json!({"dnsPolicy": "Mine"})), "NotSupported", "spec.dnsPolicy"),
            (spec(json!({"dnsPolicy": "None"})), "Required", "spec.dnsConfig"),
            (spec(json!({"activeDeadlineSeconds": 0})), "Invalid", "spec.activeDeadlineSeconds"),
            (spec(json!({"hostname": "a.b"})), "Invalid", "spec.hostname"),
            (spec(json!({"subdomain": "A"})), "Invalid", "spec.subdomain"),
            (spec(json!({"nodeName": "A_B"})), "Invalid", "spec.nodeName"),
            (spec(json!({"nodeSelector": {"a b": "c"}})), "Invalid", "spec.nodeSelector"),
            (spec(json!({"nodeSelector": {"a": "-"}})), "Invalid", "spec.nodeSelector"),
            (spec(json!({"hostAliases": [{"ip": "300.1.1.1"}]})), "Invalid", "spec.hostAliases[0].ip"),
            (
                spec(json!({"readinessGates": [{"conditionType": "a b"}]})),
                "Invalid",
                "spec.readinessGates[0].conditionType",
            ),
            (
                spec(json!({"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/a"}]})),
                "Duplicate",
                "spec.schedulingGates[1]",
            ),
            (
                spec(json!({"schedulingGates": [{"name": "example.com/a"}], "nodeName": "n"})),
                "Forbidden",
                "spec.nodeName",
            ),
            (
                spec(json!({"securityContext": {"runAsUser": -1}})),
                "Invalid",
                "spec.securityContext.runAsUser",
            ),
            (
                spec(json!({"securityContext": {"seccompProfile": {"type": "Own"}}})),
                "NotSupported",
                "spec.securityContext.seccompProfile.type",
            ),
            (
                c(json!({"resources": {"requests": {"bogus": "1"}}})),
                "Invalid",
                "spec.containers[0].resources.requests[bogus]",
            ),
            (
                c(json!({"resources": {"requests": {"example.com/gpu": "1"}}})),
                "Required",
                "spec.containers[0].resources.limits",
            ),
            (
                c(json!({"resources": {"limits": {"example.com/gpu": "1500m"}}})),
                "Invalid",
                "spec.containers[0].resources.limits[example.com/gpu]",
            ),
            (
                c(json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": false}})),
                "Invalid",
                "spec.containers[0].securityContext",
            ),
            (spec(json!({"resourceClaims": [{"name": "c"}]})), "Invalid", "spec.resourceClaims[0]"),
        ],
    )
    .await;
}

#[tokio::test]
async fn tolerations_affinity_and_spreading() {
    let t = |t: Value| json!({"spec": {"tolerations": [t]}});
    let needed = |term: Value| json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}}}}});
    let expression = |e: Value| needed(json!([{"matchExpressions": [e]}]));
    let spread = |change: Value| {
        let base = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        json!({"spec": {"topologySpreadConstraints": [merged(&base, &change)]}})
    };
    let pods = |term: Value| json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
    refused(
        pod("p"),
        &[
            (t(json!({"key": "", "operator": "Equal"})), "Invalid", "spec.tolerations[0].operator"),
            (t(json!({"key": "a", "operator": "Near"})), "NotSupported", "spec.tolerations[0].operator"),
            (t(json!({"key": "a", "operator": "Exists", "value": "x"})), "Invalid", "spec.tolerations[0].operator"),
            (t(json!({"key": "a", "effect": "Explode"})), "NotSupported", "spec.tolerations[0].effect"),
            (
                t(json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5})),
                "Invalid",
                "spec.tolerations[0].effect",
            ),
            (
                needed(json!([])),
                "Required",
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
            ),
            (
                expression(json!({"key": "a", "operator": "In"})),
                "Required",
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values",
            ),
            (
                expression(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
                "Forbidden",
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values",
            ),
            (
                expression(json!({"key": "a", "operator": "Like"})),
                "Invalid",
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator",
            ),
            (
                pods(json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": ""})),
                "Required",
                "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
            ),
            (spread(json!({"maxSkew": 0})), "Invalid", "spec.topologySpreadConstraints[0].maxSkew"),
            (spread(json!({"topologyKey": ""})), "Required", "spec.topologySpreadConstraints[0].topologyKey"),
            (
                spread(json!({"whenUnsatisfiable": "Cry"})),
                "NotSupported",
                "spec.topologySpreadConstraints[0].whenUnsatisfiable",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn defaults_of_pods() {
    let api = Api::new().await;
    let made = api
        .post(
            &api.core("pods"),
            with(json!({"ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}},
        "resources": {"limits": {"cpu": "1"}}})),
        )
        .await
        .expect(201)
        .body;
    let (spec, c) = (&made["spec"], &made["spec"]["containers"][0]);
    for (field, wanted) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("serviceAccountName", json!("default")),
        ("serviceAccount", json!("default")),
        ("enableServiceLinks", json!(true)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
        ("securityContext", json!({})),
    ] {
        assert_eq!(spec[field], wanted, "{field}");
    }
    assert_eq!((&c["ports"][0]["protocol"], &c["imagePullPolicy"]), (&json!("TCP"), &json!("IfNotPresent")));
    assert_eq!(c["resources"]["requests"]["cpu"], "1");
    assert_eq!(
        (&c["livenessProbe"]["periodSeconds"], &c["livenessProbe"]["httpGet"]["path"]),
        (&json!(10), &json!("/"))
    );
    assert_eq!(
        (&made["status"]["phase"], &made["status"]["qosClass"]),
        (&json!("Pending"), &json!("Burstable"))
    );
    api.done().await;
}

#[tokio::test]
async fn the_token_of_the_account_lies_in_every_container() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let mut two = pod("p");
    two["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]);
    let made = api.post(&pods, two).await.expect(201).body;
    let volume = &made["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    let sources = volume["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources[0]["serviceAccountToken"], json!({"expirationSeconds": 3607, "path": "token"}));
    assert_eq!(sources[1]["configMap"]["name"], "kube-root-ca.crt");
    assert_eq!(sources[2]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"], "metadata.namespace");
    let mount =
        json!({"name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true});
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"], json!([mount]));
    assert_eq!(made["spec"]["initContainers"][0]["volumeMounts"], json!([mount]));
    // The pod itself or its account may want none, and images may be pulled with the account's secrets.
    let mut none = pod("none");
    none["spec"]["automountServiceAccountToken"] = json!(false);
    assert_eq!(api.post(&pods, none).await.expect(201).body["spec"].get("volumes"), None);
    let account = json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "reg"}]});
    api.post(&api.core("serviceaccounts"), account).await.expect(201);
    let mut quiet = pod("quiet");
    quiet["spec"]["serviceAccountName"] = json!("quiet");
    let quiet = api.post(&pods, quiet).await.expect(201).body;
    assert_eq!(
        (quiet["spec"].get("volumes"), &quiet["spec"]["imagePullSecrets"]),
        (None, &json!([{"name": "reg"}]))
    );
    api.done().await;
}

#[tokio::test]
async fn limit_ranges_fill_in_and_refuse() {
    let api = Api::new().await;
    let limits = json!([{"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m", "memory": "64Mi"},
        "min": {"cpu": "100m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "2"}}, {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}, "min": {"storage": "1Gi"}}]);
    api.post(&api.core("limitranges"), json!({"metadata": {"name": "l"}, "spec": {"limits": limits}}))
        .await
        .expect(201);
    let pods = api.core("pods");
    let made = api.post(&pods, pod("p")).await.expect(201).body;
    let resources = &made["spec"]["containers"][0]["resources"];
    assert_eq!(resources, &json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "200m", "memory": "64Mi"}}));
    let note = made["metadata"]["annotations"]["kubernetes.io/limit-ranger"].as_str().unwrap();
    assert!(
        note.starts_with(
            "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c"
        ),
        "{note}"
    );
    let asking = |request: &str, limit: &str| {
        with(json!({"resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}}}))
    };
    for (pod, says) in [
        (asking("50m", "100m"), "minimum cpu usage per Container is 100m, but request is 50m"),
        (asking("500m", "1500m"), "maximum cpu usage per Container is 1, but limit is 1500m"),
        (
            asking("100m", "500m"),
            "cpu max limit to request ratio per Container is 4, but provided ratio is 5.000000",
        ),
    ] {
        let refused = api.post(&pods, pod).await.fails(403, "Forbidden");
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    let mut three = pod("three");
    three["spec"]["containers"] = json!(
        (0..3)
            .map(|i| json!({"name": format!("c{i}"), "image": "i",
        "resources": {"limits": {"cpu": "900m"}}}))
            .collect::<Vec<_>>()
    );
    let refused = api.post(&pods, three).await.fails(403, "Forbidden");
    assert!(
        refused.message().contains("maximum cpu usage per Pod is 2, but limit is 2700m"),
        "{}",
        refused.message()
    );
    let claim = |size: &str| json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}});
    let refused = api.post(&api.core("persistentvolumeclaims"), claim("11Gi")).await.fails(403, "Forbidden");
    assert!(
        refused
            .message()
            .contains("maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi"),
        "{}",
        refused.message()
    );
    api.post(&api.core("persistentvolumeclaims"), claim("5Gi")).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn the_way_to_a_container_is_told_wrong_in_the_real_words() {
    let api = Api::new().await;
    let pods = api.core("pods");
    api.post(&pods, pod("free")).await.expect(201);
    let mut two = pod("two");
    two["spec"]["containers"] = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    api.post(&pods, two).await.expect(201);
    api.post(&pods, pod("bound")).await.expect(201);
    for how in ["exec?command=ls", "attach", "portforward"] {
        for method in ["GET", "POST"] {
            let answer = api
                .raw(method, &format!("{pods}/free/{how}"), &[], Vec::new())
                .await
                .fails(400, "BadRequest");
            assert_eq!(answer.message(), "pod free does not have a host assigned", "{how}");
        }
    }
    api.get(&format!("{pods}/free/log")).await.expect(204);
    let answer = api.get(&format!("{pods}/two/log")).await.fails(400, "BadRequest");
    assert_eq!(answer.message(), "a container name must be specified for pod two, choose one of: [a b]");
    let answer = api.get(&format!("{pods}/two/log?container=x")).await.fails(400, "BadRequest");
    assert_eq!(answer.message(), "container x is not valid for pod two");
    api.get(&format!("{pods}/none/log")).await.fails(404, "NotFound");
    api.get(&format!("{pods}/free/log?tailLines=-1")).await.fails(422, "Invalid");
    // A pod on a node that nobody knows of, and on one that does not answer.
    let node = crate::api::random("node-");
    let bind = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": node}});
    api.post(&format!("{pods}/bound/binding"), bind).await.expect(201);
    let answer = api
        .raw("POST", &format!("{pods}/bound/exec?command=ls"), &[], Vec::new())
        .await
        .fails(404, "NotFound");
    assert_eq!(answer.message(), format!("pods \"{node}\" not found"));
    api.post("/api/v1/nodes", json!({"metadata": {"name": node}})).await.expect(201);
    let exec = format!("{pods}/bound/exec?command=ls");
    let answer = api.raw("POST", &exec, &[], Vec::new()).await.fails(500, "");
    assert_eq!(answer.message(), "no preferred addresses found; known addresses: []");
    let at = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
    api.patch(&format!("/api/v1/nodes/{node}/status"), "merge", at).await.expect(200);
    let answer = api
        .raw("POST", &format!("{pods}/bound/exec?command=ls"), &[], Vec::new())
        .await
        .fails(400, "BadRequest");
    assert_eq!(answer.message(), "Upgrade request required");
    let service = |name: &str, selector: Value| json!({"metadata": {"name": name}, "spec": {"selector": selector, "ports": [{"port": 80}]}});
    api.post(&api.core("services"), service("s", json!({"app": "none"}))).await.expect(201);
    let proxied = api.until_code(&api.core("services/s/proxy/path"), 503).await;
    let answer = proxied.fails(503, "ServiceUnavailable");
    assert_eq!(answer.message(), "no endpoints available for service \"s\"");
    let answer = api.get(&api.core("services/s:99/proxy/path")).await.fails(503, "ServiceUnavailable");
    assert_eq!(answer.message(), "no service port 99 found for service \"s\"");
    api.post(&api.core("services"), service("without", Value::Null)).await.expect(201);
    let answer = api.get(&api.core("services/without/proxy/path")).await.fails(404, "NotFound");
    assert_eq!(answer.message(), "services \"without\" not found");
    let answer = api.get(&format!("{pods}/free/proxy")).await.fails(400, "BadRequest");
    assert_eq!(answer.message(), "address not allowed");
    api.delete(&format!("/api/v1/nodes/{node}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn what_pods_may_say() {
    let api = Api::new().await;
    accepted(
        &api,
        &api.core("pods"),
        &pod("p"),
        &[
            json!({"metadata": {"annotations": {"example.com/A": "x"}}}),
            json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
            json!({"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.b"]}]}}),
            json!({"spec": {"volumes": [{"name": "h", "hostPath": {"path": "/dev/shm", "type": "Directory"}}]}}),
            c(json!({"env": [{"name": "MY.VAR-1", "value": ""}], "resources": {"limits": {"nvidia.com/gpu": 8, "hugepages-2Mi": "4Mi", "memory": "1Gi"}}})),
            c(json!({"startupProbe": {"grpc": {"port": 5000}}, "lifecycle": {"preStop": {"sleep": {"seconds": 3}}}})),
            json!({"spec": {"initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "readinessProbe": {"tcpSocket": {"port": 1}}}]}}),
            json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"a": "b"}}}]}}),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn a_namespace_says_how_secure_its_pods_are() {
    let api = Api::new().await;
    let level = |mode: &str, level: &str| json!({"metadata": {"labels": {format!("pod-security.kubernetes.io/{mode}"): level}}});
    let namespace = format!("/api/v1/namespaces/{}", api.ns);
    let pods = format!("{}?dryRun=All", api.core("pods"));
    let mut loud = with(json!({"securityContext": {"privileged": true}}));
    loud["spec"]["hostNetwork"] = json!(true);
    api.post(&pods, loud.clone()).await.expect(201);
    api.patch(&namespace, "merge", level("enforce", "baseline")).await.expect(200);
    // A server may learn of the label a moment later.
    let start = std::time::Instant::now();
    let refused = loop {
        let answer = api.post(&pods, loud.clone()).await;
        if answer.code != 201 || start.elapsed().as_secs() > 30 {
            break answer.fails(403, "Forbidden");
        }
    };
    let says = "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true), privileged (container \"c\" must not set securityContext.privileged=true)";
    assert!(refused.message().ends_with(says), "{}", refused.message());
    api.post(&pods, pod("p")).await.expect(201);
    api.patch(&namespace, "merge", level("warn", "restricted")).await.expect(200);
    let start = std::time::Instant::now();
    let warned = loop {
        let answer = api.post(&pods, pod("p")).await.expect(201);
        if !answer.warnings().is_empty() || start.elapsed().as_secs() > 30 {
            break answer;
        }
    };
    assert!(warned.warnings()[0].contains("would violate PodSecurity"), "{:?}", warned.warnings());
    api.patch(&namespace, "merge", level("enforce", "restricted")).await.expect(200);
    let refused = api.post(&pods, pod("p")).await.fails(403, "Forbidden");
    for says in [
        "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
        "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])",
        "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)",
        "seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
    ] {
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    let quiet = with(
        json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}),
    );
    api.post(&pods, quiet).await.expect(201);
    // Controllers are let through with a warning; their pods are not.
    let warned = api
        .post(&format!("{}?dryRun=All", api.group("apps/v1", "deployments")), crate::api::deployment("d"))
        .await
        .expect(201);
    assert!(warned.warnings()[0].contains("would violate PodSecurity"), "{:?}", warned.warnings());
    api.done().await;
}

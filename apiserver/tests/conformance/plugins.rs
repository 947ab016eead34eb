//! What the default plugins and controllers of a cluster do: pods at their gates, quotas of classes, levels of
//! security, what every namespace has, nodes.

use crate::api::{Api, RBAC, pod, random};
use serde_json::{Value, json};

fn with(extra: Value) -> Value {
    let mut pod = pod("p");
    pod["spec"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    pod
}

fn container(extra: Value) -> Value {
    let mut pod = pod("p");
    pod["spec"]["containers"][0].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn a_resize_changes_cpu_and_memory_and_nothing_else() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let amounts = json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}});
    let made = api.post(&pods, container(amounts)).await.expect(201).body;
    let name = made["spec"]["containers"][0]["name"].clone();
    let path = format!("{pods}/p/resize");
    let sent = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": name, "image": "other",
        "resources": {"limits": {"cpu": "2"}}}]}});
    let now = api.patch(&path, "strategic-merge", sent).await.expect(200).body;
    let (before, after) = (&made["spec"]["containers"][0], &now["spec"]["containers"][0]);
    assert_eq!((&after["image"], &after["resources"]["limits"]["cpu"]), (&before["image"], &json!("2")));
    assert!(now["metadata"].get("labels").is_none(), "{}", now["metadata"]);
    let disk = json!({"spec": {"containers": [{"name": name, "resources": {"limits": {"ephemeral-storage": "1Gi"}}}]}});
    let refused = api.patch(&path, "strategic-merge", disk).await.fails(422, "Invalid");
    assert!(refused.message().contains("only cpu and memory resources are mutable"), "{}", refused.message());
    let more = json!({"spec": {"containers": [{"name": "second", "image": "i"}]}});
    let refused = api.patch(&format!("{pods}/p"), "strategic-merge", more).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueForbidden", "spec.containers")]);
    api.done().await;
}

#[tokio::test]
async fn a_gated_pod_says_so_from_the_start() {
    let api = Api::new().await;
    let gated = with(json!({"schedulingGates": [{"name": "example.com/wait"}]}));
    let made = api.post(&api.core("pods"), gated).await.expect(201).body;
    let condition = &made["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("False"), &json!("SchedulingGated"))
    );
    api.done().await;
}

#[tokio::test]
async fn a_quota_bounds_what_one_class_is_asked_for() {
    let api = Api::new().await;
    let hard = json!({"fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
        "slow.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
        "gpu.example.com.deviceclass.resource.k8s.io/devices": "1"});
    let quotas = api.core("resourcequotas");
    api.post(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.expect(201);
    let counted = |a: &crate::api::Answer| a.body["status"]["used"].as_object().is_some_and(|u| u.len() == 3);
    api.until(&format!("{quotas}/q"), counted).await;
    let claim = |name: &str, class: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}})
    };
    let claims = api.core("persistentvolumeclaims");
    let refused = api.post(&claims, claim("a", "fast", "2Gi")).await.fails(403, "Forbidden");
    assert!(refused.message().contains("requests.storage=2Gi"), "{}", refused.message());
    api.post(&claims, claim("b", "fast", "1Gi")).await.expect(201);
    api.post(&claims, claim("c", "slow", "1Gi")).await.fails(403, "Forbidden");
    api.post(&claims, claim("d", "other", "9Gi")).await.expect(201);
    let devices = |name: &str, count: i64| {
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r",
            "exactly": {"deviceClassName": "gpu.example.com", "count": count, "allocationMode": "ExactCount"}}]}}})
    };
    let claims = api.group("resource.k8s.io/v1", "resourceclaims");
    api.post(&claims, devices("a", 2)).await.fails(403, "Forbidden");
    api.post(&claims, devices("b", 1)).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn the_baseline_refuses_what_reaches_into_the_machine() {
    let api = Api::new().await;
    let namespace = format!("/api/v1/namespaces/{}", api.ns);
    let labels = |level: &str, version: &str| {
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/enforce-version": version}}})
    };
    api.patch(&namespace, "merge", labels("baseline", "latest")).await.expect(200);
    let pods = format!("{}?dryRun=All", api.core("pods"));
    let name = pod("p")["spec"]["containers"][0]["name"].as_str().unwrap().to_string();
    for (asked, says) in [
        (
            with(json!({"securityContext": {"seLinuxOptions": {"type": "x"}}})),
            "pod set forbidden securityContext.seLinuxOptions: type \"x\"".to_string(),
        ),
        (
            with(json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}})),
            "pod must not set AppArmor profile type to \"Unconfined\"".into(),
        ),
        (
            container(json!({"livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}})),
            format!("container {name:?} uses probe or lifecycle host \"10.0.0.1\""),
        ),
        (
            container(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
            format!("hostPort (container {name:?} uses hostPort 80)"),
        ),
        (
            container(json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})),
            format!(
                "non-default capabilities (container {name:?} must not include \"NET_ADMIN\" in securityContext.capabilities.add)"
            ),
        ),
    ] {
        let refused = api.post(&pods, asked).await.fails(403, "Forbidden");
        assert!(refused.message().contains(&says), "{}", refused.message());
    }
    // An older version of a level has fewer rules.
    api.patch(&namespace, "merge", labels("restricted", "v1.0")).await.expect(200);
    let refused = api.post(&pods, pod("p")).await.fails(403, "Forbidden");
    assert!(refused.message().contains("violates PodSecurity \"restricted:v1.0\""), "{}", refused.message());
    api.post(&pods, with(json!({"securityContext": {"runAsNonRoot": true}}))).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn what_every_namespace_has_comes_back() {
    let api = Api::new().await;
    let account = format!("{}/default", api.core("serviceaccounts"));
    let before = api.until_code(&account, 200).await.body["metadata"]["uid"].clone();
    let gone = api.delete(&account, json!({})).await.expect(200);
    assert_eq!(gone.body["kind"], "ServiceAccount", "this kind answers with the object");
    api.until(&account, |a| a.code == 200 && a.body["metadata"]["uid"] != before).await;
    let map = format!("{}/kube-root-ca.crt", api.core("configmaps"));
    let is_whole = |a: &crate::api::Answer| {
        a.code == 200 && a.body["data"]["ca.crt"].as_str().is_some_and(|pem| pem.contains("BEGIN CERT"))
    };
    api.until(&map, is_whole).await;
    api.patch(&map, "merge", json!({"data": {"ca.crt": "x"}})).await.expect(200);
    api.until(&map, is_whole).await;
    api.delete(&map, json!({})).await.expect(200);
    api.until(&map, is_whole).await;
    api.done().await;
}

#[tokio::test]
async fn a_namespace_says_what_it_waits_for() {
    let api = Api::new().await;
    let maps = api.core("configmaps");
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    api.post(&maps, held).await.expect(201);
    let namespace = format!("/api/v1/namespaces/{}", api.ns);
    api.delete(&namespace, json!({})).await.expect(200);
    let says = |a: &crate::api::Answer, kind: &str, text: &str| {
        let conditions = a.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |c: &Value| {
            c["type"] == kind
                && c["status"] == "True"
                && c["message"].as_str().unwrap_or_default().ends_with(text)
        };
        conditions.iter().any(is)
    };
    api.until(&namespace, |a| {
        says(a, "NamespaceContentRemaining", "configmaps. has 1 resource instances")
            && says(a, "NamespaceFinalizersRemaining", "example.com/hold in 1 resource instances")
    })
    .await;
    api.patch(&format!("{maps}/a"), "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.until_code(&namespace, 404).await;
}

#[tokio::test]
async fn every_cluster_has_its_own_objects() {
    let api = Api::new().await;
    for (path, names) in [
        (format!("{RBAC}/clusterroles"), &["system:node", "system:kube-dns", "system:volume-scheduler"][..]),
        (format!("{RBAC}/clusterrolebindings"), &["system:node", "system:service-account-issuer-discovery"]),
        (format!("{RBAC}/namespaces/kube-public/roles"), &["system:controller:bootstrap-signer"]),
        (
            format!("{RBAC}/namespaces/kube-system/rolebindings"),
            &["system::extension-apiserver-authentication-reader", "system:controller:token-cleaner"],
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas".into(),
            &["exempt", "catch-all", "system-nodes"],
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations".into(),
            &["workload-low", "exempt"],
        ),
        ("/api/v1/namespaces/default/endpoints".into(), &["kubernetes"]),
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".into(), &["kubernetes"]),
    ] {
        for name in names {
            api.get(&format!("{path}/{name}")).await.expect(200);
        }
    }
    let admin = api.get(&format!("{RBAC}/clusterrolebindings/cluster-admin")).await.expect(200);
    let note = &admin.body["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"];
    assert_eq!(note, "true");
    api.done().await;
}

#[tokio::test]
async fn a_level_has_its_defaults_and_a_schema_its_bounds() {
    let api = Api::new().await;
    let levels = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations?dryRun=All";
    let level = |limited: Value| json!({"metadata": {"name": random("l-")}, "spec": {"type": "Limited", "limited": limited}});
    let made = api.post(levels, level(json!({"limitResponse": {"type": "Queue"}}))).await.expect(201).body;
    assert_eq!(
        made["spec"]["limited"],
        json!({"nominalConcurrencyShares": 30, "lendablePercent": 0, "limitResponse": {"type": "Queue",
            "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}}})
    );
    let refused = api.post(levels, level(json!({"limitResponse": {"type": "Reject", "queuing": {}}}))).await;
    let refused = refused.fails(422, "Invalid");
    assert_eq!(refused.causes()[0], ("FieldValueForbidden", "spec.limited.limitResponse.queuing"));
    let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas?dryRun=All";
    for (spec, field) in [
        (json!({"matchingPrecedence": 10_001}), "spec.matchingPrecedence"),
        (json!({"rules": [{"subjects": []}]}), "spec.rules[0].subjects"),
    ] {
        let mut asked = json!({"metadata": {"name": random("f-")}, "spec": {"priorityLevelConfiguration": {"name": "catch-all"}}});
        asked["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let refused = api.post(schemas, asked).await.fails(422, "Invalid");
        assert!(refused.causes().iter().any(|(_, at)| *at == field), "{}", refused.text);
    }
    api.done().await;
}

#[tokio::test]
async fn a_node_reads_and_writes_what_is_its_own() {
    let api = Api::new().await;
    let (own, other) = (random("n-"), random("n-"));
    for name in [&own, &other] {
        api.post("/api/v1/nodes", json!({"metadata": {"name": name}})).await.expect(201);
    }
    let user = format!("system:node:{own}");
    let node = [("Impersonate-User", user.as_str()), ("Impersonate-Group", "system:nodes")];
    let ask = |method: &'static str, path: String, media: &'static str, body: Value| {
        let (api, node) = (api.clone(), node.map(|(k, v)| (k.to_string(), v.to_string())));
        async move {
            let mut headers: Vec<(&str, &str)> = node.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            headers.push(("Content-Type", media));
            let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            let response = api.send(method, &path, &headers, body).await;
            (response.status().as_u16(), response.text().await.unwrap_or_default())
        }
    };
    let (json, merge) = ("application/json", "application/merge-patch+json");
    let lease = |name: &str| json!({"metadata": {"name": name}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases".to_string();
    let ready = json!({"status": {"phase": "Running"}});
    let label = |key: &str| json!({"metadata": {"labels": {key: "y"}}});
    for (method, path, media, body, code) in [
        ("GET", format!("/api/v1/nodes/{own}"), json, Value::Null, 200),
        ("GET", format!("/api/v1/nodes/{other}"), json, Value::Null, 403),
        ("GET", format!("/api/v1/namespaces/{}/secrets/x", api.ns), json, Value::Null, 403),
        ("GET", "/api/v1/pods".into(), json, Value::Null, 403),
        ("GET", format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{own}"), json, Value::Null, 200),
        ("POST", leases.clone(), json, lease(&own), 201),
        ("DELETE", format!("{leases}/{other}"), json, Value::Null, 403),
        ("PATCH", format!("/api/v1/nodes/{own}/status"), merge, ready.clone(), 200),
        ("PATCH", format!("/api/v1/nodes/{other}/status"), merge, ready, 403),
        ("PATCH", format!("/api/v1/nodes/{own}"), merge, label("example.com/x"), 200),
        ("PATCH", format!("/api/v1/nodes/{own}"), merge, label("node-restriction.kubernetes.io/x"), 403),
    ] {
        let (found, text) = ask(method, path.clone(), media, body).await;
        assert_eq!(found, code, "{method} {path}: {text}");
    }
    // What a pod on the node uses, the node may read.
    let secret = json!({"metadata": {"name": "s"}});
    api.post(&api.core("secrets"), secret).await.expect(201);
    let mut user_of_it = with(json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}));
    user_of_it["spec"]["nodeName"] = json!(own);
    api.post(&api.core("pods"), user_of_it).await.expect(201);
    let (found, text) = ask("GET", format!("{}/s", api.core("secrets")), json, Value::Null).await;
    assert_eq!(found, 200, "{text}");
    api.done().await;
}

#[tokio::test]
async fn what_is_probably_not_meant_is_said() {
    let api = Api::new().await;
    let pods = format!("{}?dryRun=All", api.core("pods"));
    for (asked, says) in [
        (
            container(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})),
            "hides previous definition of",
        ),
        (
            container(json!({"ports": [{"containerPort": 80}, {"containerPort": 80}]})),
            "duplicate port definition",
        ),
        (container(json!({"resources": {"requests": {"memory": "100m"}}})), "fractional byte value"),
        (with(json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}})), "deprecated since v1.14"),
        (with(json!({"terminationGracePeriodSeconds": -1})), "must be >= 0"),
        (pod("b.c"), "a DNS label is recommended"),
    ] {
        let warned = api.post(&pods, asked).await.expect(201).warnings();
        assert!(warned.iter().any(|w| w.contains(says)), "{says}: {warned:?}");
    }
    assert!(api.post(&pods, pod("p")).await.expect(201).warnings().is_empty());
    let jobs = api.group("batch/v1", "jobs");
    let job = json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}]}}}});
    api.post(&jobs, job).await.expect(201);
    let said = api.delete(&format!("{jobs}/j?dryRun=All"), json!({})).await.warnings();
    assert!(said.iter().any(|w| w.contains("child pods are preserved by default")), "{said:?}");
    let quiet = api.delete(&format!("{jobs}/j?propagationPolicy=Background"), json!({})).await.warnings();
    assert!(quiet.is_empty(), "{quiet:?}");
    api.done().await;
}

//! Admission in detail: limits of what is resized, scopes of quotas, levels that rise under pods, what a node may write.

use crate::api::{Answer, Api, deployment, pod, random};
use serde_json::{Value, json};

fn sized(name: &str, resources: Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

async fn quota(api: &Api, name: &str, spec: Value) {
    let path = api.core("resourcequotas");
    api.post(&path, json!({"metadata": {"name": name}, "spec": spec})).await.expect(201);
    let counted = |a: &Answer| a.body["status"]["used"].as_object().is_some_and(|used| !used.is_empty());
    api.until(&format!("{path}/{name}"), counted).await;
}

#[tokio::test]
async fn limits_hold_for_what_grows() {
    let api = Api::new().await;
    let (pods, claims) = (api.core("pods"), api.core("persistentvolumeclaims"));
    let class = random("sc-");
    let growing =
        json!({"metadata": {"name": class}, "provisioner": "example.com/p", "allowVolumeExpansion": true});
    api.post("/apis/storage.k8s.io/v1/storageclasses", growing).await.expect(201);
    api.post(&pods, sized("p", json!({"limits": {"cpu": "1"}}))).await.expect(201);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": class,
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}});
    api.post(&claims, claim).await.expect(201);
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "5Gi"}}});
    api.patch(&format!("{claims}/c/status"), "merge", bound).await.expect(200);
    let limits = json!([{"type": "Container", "max": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}}]);
    api.post(&api.core("limitranges"), json!({"metadata": {"name": "r"}, "spec": {"limits": limits}}))
        .await
        .expect(201);
    let grow = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let refused = api.patch(&format!("{claims}/c"), "merge", grow("11Gi")).await.fails(403, "Forbidden");
    assert_eq!(
        refused.message(),
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi"
    );
    api.patch(&format!("{claims}/c"), "merge", grow("9Gi")).await.expect(200);
    let resize = |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}, "requests": {"cpu": cpu}}}]}});
    let path = format!("{pods}/p/resize");
    let refused = api.patch(&path, "strategic-merge", resize("3")).await.fails(403, "Forbidden");
    assert_eq!(
        refused.message(),
        "pods \"p\" is forbidden: maximum cpu usage per Container is 2, but limit is 3"
    );
    api.patch(&path, "strategic-merge", resize("2")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_quota_names_the_containers_in_order_and_its_bound_as_written() {
    let api = Api::new().await;
    quota(&api, "q", json!({"hard": {"requests.memory": "1G"}})).await;
    let pods = api.core("pods");
    let mut two = pod("p");
    two["spec"]["containers"] = json!([{"name": "b", "image": "i"}, {"name": "a", "image": "i"}]);
    let refused = api.post(&pods, two).await.fails(403, "Forbidden");
    assert_eq!(
        refused.message(),
        "pods \"p\" is forbidden: failed quota: q: must specify requests.memory for: a,b"
    );
    let refused = api.post(&pods, sized("p", json!({"requests": {"memory": "2G"}}))).await;
    let refused = refused.fails(403, "Forbidden");
    assert!(refused.message().ends_with(", limited: requests.memory=1G"), "{}", refused.message());
    api.done().await;
}

#[tokio::test]
async fn scopes_are_those_of_pods_and_claims() {
    let api = Api::new().await;
    quota(&api, "idle", json!({"hard": {"count/pods": "0"}, "scopes": ["BestEffort"]})).await;
    quota(&api, "endless", json!({"hard": {"count/services": "0"}, "scopes": ["NotTerminating"]})).await;
    quota(&api, "ports", json!({"hard": {"services.nodeports": "1"}})).await;
    let refused = api.post(&api.core("pods"), pod("p")).await.fails(403, "Forbidden");
    assert_eq!(
        refused.message(),
        "pods \"p\" is forbidden: exceeded quota: idle, requested: count/pods=1, used: count/pods=0, limited: count/pods=0"
    );
    api.post(&api.core("pods"), sized("p", json!({"requests": {"cpu": "1"}}))).await.expect(201);
    // No service is in a scope. A load balancer that declines node ports has none.
    let balancer = |name: &str, allocates: bool| {
        json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": allocates,
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}})
    };
    let services = api.core("services");
    let refused = api.post(&services, balancer("s", true)).await.fails(403, "Forbidden");
    assert_eq!(
        refused.message(),
        "services \"s\" is forbidden: exceeded quota: ports, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1"
    );
    api.post(&services, balancer("s", false)).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn a_pod_from_before_its_level_changes_in_what_is_harmless() {
    let api = Api::new().await;
    let namespace = format!("/api/v1/namespaces/{}", api.ns);
    let pods = api.core("pods");
    let mut loud = pod("p");
    loud["spec"]["hostNetwork"] = json!(true);
    api.post(&pods, loud).await.expect(201);
    let level = |mode: &str| json!({"metadata": {"labels": {format!("pod-security.kubernetes.io/{mode}"): "baseline"}}});
    api.patch(&namespace, "merge", level("enforce")).await.expect(200);
    let at = format!("{pods}/p");
    api.patch(&at, "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    api.patch(&at, "merge", json!({"spec": {"activeDeadlineSeconds": 100}})).await.expect(200);
    let image = json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}});
    let refused = api.patch(&at, "strategic-merge", image).await.fails(403, "Forbidden");
    assert!(refused.message().contains("violates PodSecurity \"baseline:latest\""), "{}", refused.message());
    // A controller is warned of at each change, whatever it changes.
    api.patch(&namespace, "merge", level("warn")).await.expect(200);
    let mut loud = deployment("d");
    loud["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    let path = api.group("apps/v1", "deployments");
    api.post(&path, loud).await.expect(201);
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let warned = api.patch(&format!("{path}/d"), "merge", labelled).await.expect(200).warnings();
    let says = "would violate PodSecurity \\\"baseline:latest\\\": host namespaces (hostNetwork=true)";
    assert!(warned.iter().any(|w| w.contains(says)), "{warned:?}");
    api.done().await;
}

/// A write by a node.
async fn by(api: &Api, node: &str, method: &str, path: &str, media: &str, body: &Value) -> Answer {
    let user = format!("system:node:{node}");
    let headers =
        [("Impersonate-User", user.as_str()), ("Impersonate-Group", "system:nodes"), ("Content-Type", media)];
    api.raw(method, path, &headers, body.to_string()).await
}

#[tokio::test]
async fn a_node_makes_only_what_is_about_itself() {
    let api = Api::new().await;
    let node = random("n-");
    let made = api.post("/api/v1/nodes", json!({"metadata": {"name": node}})).await.expect(201);
    let uid = made.body["metadata"]["uid"].clone();
    let pods = api.core("pods");
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true});
    let mirror = |owners: Value| {
        json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases".to_string();
    let other = json!({"metadata": {"name": "other"}});
    let json_body = "application/json";
    for (path, body, says) in [
        (leases, other, "can only access node lease with the same name as the requesting node".to_string()),
        (
            "/apis/storage.k8s.io/v1/csinodes".into(),
            json!({"metadata": {"name": "other"}, "spec": {"drivers": [{"name": "d", "nodeID": "x"}]}}),
            "can only access CSINode with the same name as the requesting node".into(),
        ),
        (
            pods.clone(),
            pod("p"),
            format!(
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
            ),
        ),
        (
            pods.clone(),
            mirror(json!([])),
            format!("node {node:?} can only create pods with an owner reference set to itself"),
        ),
    ] {
        let refused = by(&api, &node, "POST", &path, json_body, &body).await.fails(403, "Forbidden");
        assert!(refused.message().ends_with(&says), "{}", refused.message());
    }
    let made = by(&api, &node, "POST", &pods, json_body, &mirror(json!([owner]))).await.expect(201).body;
    assert!(made["spec"].get("serviceAccountName").is_none(), "{made}");
    let label = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}});
    let at = format!("/api/v1/nodes/{node}");
    let refused = by(&api, &node, "PATCH", &at, "application/merge-patch+json", &label).await;
    let refused = refused.fails(403, "Forbidden");
    let says = "is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/x";
    assert!(refused.message().ends_with(says), "{}", refused.message());
    // What it may do is no list: `kubectl auth can-i --list` says that there is more.
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let asked = json!({"spec": {"namespace": api.ns}});
    let told = by(&api, &node, "POST", reviews, json_body, &asked).await.expect(201).body["status"].clone();
    assert_eq!(told["incomplete"], true);
    assert_eq!(told["evaluationError"], "node authorizer does not support user rule resolution");
    api.delete(&at, json!({})).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_node_gets_the_tokens_of_its_pods() {
    let api = Api::new().await;
    let node = random("n-");
    api.post("/api/v1/nodes", json!({"metadata": {"name": node}})).await.expect(201);
    let mut placed = pod("p");
    placed["spec"]["nodeName"] = json!(node);
    let uid = api.post(&api.core("pods"), placed).await.expect(201).body["metadata"]["uid"].clone();
    let path = api.core("serviceaccounts/default/token");
    let request = |bound: Value, audiences: Value| {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "audiences": audiences}})
    };
    let to_pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
    let json_body = "application/json";
    for (body, says) in [
        (request(Value::Null, json!([])), "node requested token not bound to a pod".to_string()),
        (
            request(json!({"apiVersion": "v1", "kind": "Pod", "name": "p"}), json!([])),
            "node requested token with a pod binding without a uid".into(),
        ),
        (
            request(to_pod.clone(), json!(["vault"])),
            format!(
                "audience \"vault\" not found in pod spec volume, system:node:{node} is not authorized to request tokens for this audience"
            ),
        ),
    ] {
        let refused = by(&api, &node, "POST", &path, json_body, &body).await.fails(403, "Forbidden");
        assert_eq!(refused.message(), format!("serviceaccounts \"default\" is forbidden: {says}"));
    }
    by(&api, &node, "POST", &path, json_body, &request(to_pod, json!([]))).await.expect(201);
    api.delete(&format!("/api/v1/nodes/{node}"), json!({})).await.expect(200);
    api.done().await;
}

//! Cells and columns of built-in kinds, as `kubectl get` shows them.

use crate::api::{Api, TABLE, deployment, pod, random};
use crate::table::merged;
use serde_json::{Value, json};

/// The row of what is at a path.
async fn row(api: &Api, at: &str) -> Value {
    api.get_as(at, TABLE).await.expect(200).body["rows"][0].clone()
}

/// The row of a new object that is not stored.
async fn shown(api: &Api, path: &str, object: Value) -> Value {
    let headers = [("content-type", "application/json"), ("accept", TABLE)];
    let answer = api.raw("POST", &format!("{path}?dryRun=All"), &headers, object.to_string()).await;
    answer.expect(201).body["rows"][0].clone()
}

/// The row of a new object with this status.
async fn stored(api: &Api, path: &str, object: Value, status: Value) -> Value {
    let name = object["metadata"]["name"].as_str().expect("a name").to_string();
    api.post(path, object).await.expect(201);
    let at = format!("{path}/{name}");
    api.patch(&format!("{at}/status"), "merge", json!({"status": status})).await.expect(200);
    row(api, &at).await
}

/// The row has these cells; null stands for any.
#[track_caller]
fn has(row: &Value, wanted: Value) {
    let (found, wanted) =
        (row["cells"].as_array().expect("cells"), wanted.as_array().expect("a list").clone());
    let same = found.iter().zip(&wanted).all(|(found, wanted)| wanted.is_null() || found == wanted);
    assert!(found.len() == wanted.len() && same, "\nwanted {}\nfound  {}", json!(wanted), json!(found));
}

fn container(name: &str, restarts: i64, more: Value) -> Value {
    let base = json!({"name": name, "image": "i:1", "imageID": "", "ready": false, "restartCount": restarts});
    merged(&base, &more)
}

fn ended(code: i64, more: Value) -> Value {
    json!({"state": {"terminated": merged(&json!({"exitCode": code}), &more)}})
}

#[tokio::test]
async fn pods() {
    let api = Api::new().await;
    let path = api.core("pods");
    let named = |name: &str| json!({"name": name, "image": "i:1"});
    let runs =
        json!({"ready": true, "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
    let before = json!({"lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}});
    let sidecar = json!({"name": "s", "image": "i:1", "restartPolicy": "Always"});
    let two = json!({"initContainers": [named("a"), named("b")]});
    let open = json!([{"type": "example.com/a", "status": "True"}]);
    let gates =
        json!({"readinessGates": [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]});
    let done = ended(0, json!({"reason": "Completed"}));
    for (spec, status, wanted) in [
        (
            json!({"initContainers": [sidecar]}),
            json!({"phase": "Running", "initContainerStatuses": [container("s", 2, runs.clone())],
                "containerStatuses": [container("c", 0, runs.clone())]}),
            ["2/2", "Running", "2", "<none>"],
        ),
        (
            two.clone(),
            json!({"phase": "Pending", "initContainerStatuses": [container("a", 3, done.clone()),
                container("b", 4, json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}}))]}),
            ["0/1", "Init:CrashLoopBackOff", "7", "<none>"],
        ),
        (
            two,
            json!({"phase": "Pending", "initContainerStatuses": [container("a", 0, ended(137, json!({"signal": 9})))]}),
            ["0/1", "Init:Signal:9", "0", "<none>"],
        ),
        (
            json!({"containers": [named("c"), named("d")]}),
            json!({"phase": "Failed", "containerStatuses": [container("c", 0, done.clone()),
                container("d", 0, ended(1, json!({"reason": "Error"})))]}),
            ["0/2", "Error", "0", "<none>"],
        ),
        (gates, json!({"phase": "Pending", "conditions": open}), ["0/1", "Pending", "0", "1/2"]),
    ] {
        let object = merged(&pod(&random("p")), &json!({"spec": spec}));
        let row = stored(&api, &path, object, status).await;
        let [ready, status, restarts, gates] = wanted;
        has(&row, json!([null, ready, status, restarts, null, null, null, null, gates]));
    }
    let again = container("c", 3, merged(&runs, &before));
    let row =
        stored(&api, &path, pod("again"), json!({"phase": "Running", "containerStatuses": [again]})).await;
    let restarts = row["cells"][3].as_str().unwrap_or_default();
    assert!(restarts.starts_with("3 (") && restarts.ends_with(" ago)"), "{row}");
    assert_eq!(row.get("conditions"), None);
    api.done().await;
}

#[tokio::test]
async fn pods_that_end() {
    let api = Api::new().await;
    let path = api.core("pods");
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    let done = json!([container("c", 0, ended(0, json!({"reason": "Completed"})))]);
    for (name, status, wanted, condition) in [
        ("a", json!({"phase": "Pending"}), "Terminating", Value::Null),
        (
            "b",
            json!({"phase": "Succeeded", "containerStatuses": done}),
            "Completed",
            json!({"type": "Completed", "status": "True", "reason": "Succeeded",
                "message": "The pod has completed successfully."}),
        ),
        (
            "c",
            json!({"phase": "Failed", "reason": "Evicted"}),
            "Evicted",
            json!({"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}),
        ),
    ] {
        stored(&api, &path, merged(&pod(name), &held), status).await;
        let at = format!("{path}/{name}");
        api.delete(&at, json!({"gracePeriodSeconds": 0})).await.expect(200);
        let row = row(&api, &at).await;
        assert_eq!((&row["cells"][2], &row["conditions"][0]), (&json!(wanted), &condition), "{row}");
        api.patch(&at, "merge", json!({"metadata": {"finalizers": null}})).await.expect(200);
    }
    api.done().await;
}

#[tokio::test]
async fn workloads() {
    let api = Api::new().await;
    let template = json!({"metadata": {"labels": {"app": "d", "tier": "db"}}, "spec": pod("p")["spec"]});
    let tiers = json!([{"key": "tier", "operator": "In", "values": ["web", "db"]}]);
    let change = json!({"spec": {"selector": {"matchExpressions": tiers}, "template": template}});
    let object = merged(&deployment("d"), &change);
    let row = shown(&api, &api.group("apps/v1", "deployments"), object).await;
    has(&row, json!(["d", "0/1", 0, 0, null, "c", "i:1", "app=d,tier in (db,web)"]));
    let job = json!({"template": {"spec": merged(&pod("p")["spec"], &json!({"restartPolicy": "Never"}))}});
    let object =
        json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}});
    let row = shown(&api, &api.group("batch/v1", "cronjobs"), object).await;
    has(&row, json!(["c", "* * * * *", "<none>", "False", 0, "<none>", null, "c", "i:1", "<none>"]));
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "1"},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "2", "controller": true}]);
    let object = json!({"metadata": {"name": "r", "ownerReferences": owners}, "data": {}, "revision": 2});
    let row = shown(&api, &api.group("apps/v1", "controllerrevisions"), object).await;
    has(&row, json!(["r", "statefulset.apps/web", 2, null]));
    let metric = |kind: &str, field: &str, more: Value| json!({"type": kind, field: merged(&json!({"metric": {"name": "m"}}), &more)});
    let average = |n: &str| json!({"target": {"type": "AverageValue", "averageValue": n}});
    let lines = json!({"describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
        "target": {"type": "Value", "value": "2k"}});
    let share =
        json!({"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 60}});
    let plain = json!({"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}});
    for (metrics, wanted) in [
        (
            json!([metric("Pods", "pods", average("100")), metric("External", "external", average("30"))]),
            "<unknown>/100, <unknown>/30 (avg)",
        ),
        (
            json!([metric("Object", "object", lines), {"type": "ContainerResource", "containerResource": share},
                {"type": "Resource", "resource": plain}]),
            "<unknown>/2k, cpu: <unknown>/60% + 1 more...",
        ),
    ] {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let object = json!({"metadata": {"name": "h"},
            "spec": {"scaleTargetRef": target, "maxReplicas": 5, "metrics": metrics}});
        let row = shown(&api, &api.group("autoscaling/v2", "horizontalpodautoscalers"), object).await;
        has(&row, json!(["h", "Deployment/d", wanted, "1", 5, 0, null]));
    }
    api.done().await;
}

#[tokio::test]
async fn services() {
    let api = Api::new().await;
    let path = api.core("services");
    let service = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let balanced = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    let row = shown(&api, &path, service("s", balanced.clone())).await;
    has(&row, json!(["s", "LoadBalancer", null, "<pending>", null, null, "<none>"]));
    let object = service("l", merged(&balanced, &json!({"externalIPs": ["192.0.2.1"]})));
    let points = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.2"}, {"ip": "203.0.113.1"}]}});
    let row = stored(&api, &path, object, points.clone()).await;
    has(&row, json!(["l", null, null, "203.0.113.1,203.0.113.2,192.0.2.1", null, null, null]));
    let object = service("n", json!({"type": "ExternalName", "externalName": "db.example.com"}));
    let row = shown(&api, &path, object).await;
    has(&row, json!(["n", "ExternalName", "<none>", "db.example.com", "<none>", null, "<none>"]));

    let ips: Vec<String> = (1..5).map(|n| format!("10.0.0.{n}")).collect();
    let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let object =
        json!({"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
    let row = shown(&api, &api.core("endpoints"), object).await;
    has(&row, json!(["e", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more...", null]));
    let ends: Vec<Value> = ips.iter().map(|ip| json!({"addresses": [ip]})).collect();
    let object = json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": ends,
        "ports": [{"name": "a", "port": 80}, {"name": "b"}]});
    let row = shown(&api, &api.group("discovery.k8s.io/v1", "endpointslices"), object).await;
    has(&row, json!(["e", "IPv4", "80,b", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", null]));

    let hosts: Vec<Value> = ["a", "b", "c", "d"].map(|h| json!({"host": format!("{h}.example.com")})).into();
    let object = json!({"metadata": {"name": "i"}, "spec": {"rules": hosts}});
    let row = stored(&api, &api.group("networking.k8s.io/v1", "ingresses"), object, points).await;
    let hosts = "a.example.com,b.example.com,c.example.com + 1 more...";
    has(&row, json!(["i", null, hosts, "203.0.113.1,203.0.113.2", "80", null]));
    api.done().await;
}

#[tokio::test]
async fn network_and_storage() {
    let api = Api::new().await;
    let default = |of: &str| {
        let mark = format!("{of}.kubernetes.io/is-default-class");
        json!({"name": "x", "annotations": {mark: "true"}})
    };
    let some =
        json!([{"key": "b", "operator": "DoesNotExist"}, {"key": "a", "operator": "In", "values": ["x"]}]);
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]});
    let param = json!({"name": "p", "parameterNotFoundAction": "Deny"});
    for (path, object, wanted) in [
        (
            "/apis/networking.k8s.io/v1/ingressclasses".to_string(),
            json!({"metadata": default("ingressclass"), "spec": {"controller": "example.com/c"}}),
            json!(["x (default)", "example.com/c", "<none>", null]),
        ),
        (
            api.group("networking.k8s.io/v1", "networkpolicies"),
            json!({"metadata": {"name": "n"}, "spec": {"podSelector": {"matchExpressions": some}}}),
            json!(["n", "a in (x),!b", null]),
        ),
        (
            "/apis/networking.k8s.io/v1/ipaddresses".into(),
            json!({"metadata": {"name": "203.0.113.9"},
                "spec": {"parentRef": {"group": "example.com", "resource": "things", "name": "t"}}}),
            json!(["203.0.113.9", "things.example.com/t", null]),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses".into(),
            json!({"metadata": default("storageclass"), "provisioner": "example.com/p"}),
            json!(["x (default)", "example.com/p", "Delete", "Immediate", false, null]),
        ),
        (
            "/apis/storage.k8s.io/v1/csidrivers".into(),
            json!({"metadata": {"name": "d.example.com"}, "spec": {}}),
            json!(["d.example.com", true, false, false, "<unset>", false, "Persistent", null]),
        ),
        (
            "/api/v1/persistentvolumes".into(),
            json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "claimRef": {"namespace": "n", "name": "c"}}}),
            json!(["v", "1Gi", "RWO,RWX", "Retain", null, "n/c", "", "<unset>", "", null, "Filesystem"]),
        ),
        (
            api.core("persistentvolumeclaims"),
            json!({"metadata": {"name": "c"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            json!(["c", "Pending", "", "", "", null, "<unset>", null, "Filesystem"]),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings".into(),
            json!({"metadata": {"name": "b"},
                "spec": {"policyName": "p", "paramRef": param, "validationActions": ["Deny"]}}),
            json!(["b", "p", "*/p", null]),
        ),
        (
            api.group("resource.k8s.io/v1", "resourceclaims"),
            json!({"metadata": {"name": "r"}, "spec": {"devices": devices}}),
            json!(["r", "pending", null]),
        ),
    ] {
        has(&shown(&api, &path, object).await, wanted);
    }
    api.done().await;
}

#[tokio::test]
async fn nodes_and_flows() {
    let api = Api::new().await;
    let name = random("n-");
    let labels = json!({"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a"});
    let object = json!({"metadata": {"name": name, "labels": labels}});
    let info = json!({"machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1", "osImage": "",
        "containerRuntimeVersion": "", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "", "operatingSystem": "linux",
        "architecture": "arm64"});
    let row = stored(&api, "/api/v1/nodes", object, json!({"nodeInfo": info})).await;
    let (none, unknown) = ("<none>", "<unknown>");
    has(&row, json!([name, null, "a,b", null, "v1.36.0", none, none, unknown, "6.1 (arm64)", unknown]));
    api.delete(&format!("/api/v1/nodes/{name}"), Value::Null).await.expect(200);

    let flow = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let levels = format!("{flow}/prioritylevelconfigurations");
    let exempt = self::row(&api, &format!("{levels}/exempt")).await;
    has(&exempt, json!(["exempt", "Exempt", none, none, none, none, null]));
    let last = self::row(&api, &format!("{levels}/catch-all")).await;
    has(&last, json!(["catch-all", "Limited", 5, none, none, none, null]));
    let schemas = format!("{flow}/flowschemas");
    let all = api.get_as(&schemas, TABLE).await.expect(200).body;
    let cells =
        |i: usize| all["rows"].as_array().expect("rows").iter().map(move |row| row["cells"][i].clone());
    assert_eq!((cells(0).next(), cells(0).next_back()), (Some(json!("exempt")), Some(json!("catch-all"))));
    assert!(cells(2).map(|n| n.as_i64()).is_sorted(), "{all}");
    let object = json!({"metadata": {"name": "f"}, "spec": {"matchingPrecedence": 500,
        "priorityLevelConfiguration": {"name": "catch-all"}}});
    has(&shown(&api, &schemas, object).await, json!(["f", "catch-all", 500, none, null, "?"]));
    api.done().await;
}

#[tokio::test]
async fn columns() {
    let api = Api::new().await;
    let created =
        "CreationTimestamp is a timestamp representing the server time when this object was created.";
    for (path, name, ty, format, says) in [
        (api.core("pods"), "Status", "string", "", "The aggregate status of the containers in this pod."),
        (api.core("pods"), "Age", "string", "", created),
        (api.core("events"), "Count", "string", "", ""),
        (api.core("events"), "Name", "string", "name", "Name must be unique within a namespace."),
        (api.group("batch/v1", "cronjobs"), "Suspend", "boolean", "", ""),
        (api.group("batch/v1", "jobs"), "Duration", "string", "", "Time required to complete the job."),
        (api.group("storage.k8s.io/v1", "csistoragecapacities"), "Created At", "date", "", created),
        ("/apis/storage.k8s.io/v1/storageclasses".into(), "AllowVolumeExpansion", "string", "", ""),
        ("/apis/storage.k8s.io/v1/volumeattachments".into(), "Attacher", "string", "name", ""),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas".into(), "MatchingPrecedence", "string", "", ""),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations".into(),
            "HandSize",
            "string",
            "",
            "",
        ),
    ] {
        let table = api.get_as(&path, TABLE).await.expect(200).body;
        let columns = table["columnDefinitions"].as_array().expect("columns");
        let column = columns.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{name}: {table}"));
        assert_eq!((&column["type"], &column["format"]), (&json!(ty), &json!(format)), "{path} {column}");
        assert!(column["description"].as_str().is_some_and(|text| text.starts_with(says)), "{path} {column}");
    }
    api.done().await;
}

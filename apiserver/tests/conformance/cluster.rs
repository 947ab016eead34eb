//! What schedulers, controllers and kubelets rely on: rules of pods, events, kinds and roles.

use crate::api::{Api, RBAC, TABLE, config_map, deployment, pod};
use serde_json::{Value, json};

fn with(resources: Value) -> Value {
    let mut pod = pod("p");
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

#[tokio::test]
async fn a_pod_asks_for_no_more_than_its_limits() {
    let api = Api::new().await;
    let pods = api.core("pods");
    for (resources, field, says) in [
        (
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}),
            "requests",
            "less than or equal to cpu limit of 1500m",
        ),
        (
            json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}}),
            "requests",
            "memory limit of 1G",
        ),
        (
            json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}),
            "requests",
            "equal to nvidia.com/gpu limit of 2",
        ),
        (json!({"requests": {"cpu": "-1"}}), "requests[cpu]", "greater than or equal to 0"),
    ] {
        let refused = api.post(&pods, with(resources.clone())).await.fails(422, "Invalid");
        let at = format!("spec.containers[0].resources.{field}");
        assert_eq!(refused.causes(), [("FieldValueInvalid", at.as_str())], "{}", refused.text);
        assert!(refused.message().contains(says), "{}", refused.message());
        let mut template = deployment("d");
        template["spec"]["template"]["spec"]["containers"][0]["resources"] = resources;
        api.post(&api.group("apps/v1", "deployments"), template).await.fails(422, "Invalid");
    }
    api.post(&pods, with(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}))).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn the_class_of_a_pod_gives_its_priority() {
    let api = Api::new().await;
    let (pods, classes) = (api.core("pods"), "/apis/scheduling.k8s.io/v1/priorityclasses");
    let name = crate::api::random("c-");
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"});
    api.post(classes, class(&name, 77)).await.expect(201);
    let of = |pod_name: &str, spec: Value| {
        let mut pod = pod(pod_name);
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    };
    let made = api.post(&pods, of("a", json!({"priorityClassName": name}))).await.expect(201).body;
    assert_eq!((&made["spec"]["priority"], &made["spec"]["preemptionPolicy"]), (&json!(77), &json!("Never")));
    let made = api.post(&pods, of("b", json!({}))).await.expect(201).body;
    assert_eq!((&made["spec"]["priority"], made["spec"].get("priorityClassName")), (&json!(0), None));
    let made =
        api.post(&pods, of("c", json!({"priorityClassName": "system-node-critical"}))).await.expect(201);
    assert_eq!(made.body["spec"]["priority"], 2_000_001_000);
    assert_eq!(
        api.get(&format!("{classes}/system-cluster-critical")).await.expect(200).body["value"],
        2_000_000_000
    );
    for (spec, says) in [
        (json!({"priorityClassName": "no-such"}), "no PriorityClass with name no-such was found"),
        (json!({"priority": 5}), "the integer value of priority (5) must not be provided"),
        (json!({"priorityClassName": name, "preemptionPolicy": "PreemptLowerPriority"}), "PreemptionPolicy"),
    ] {
        let refused = api.post(&pods, of("x", spec)).await.fails(403, "Forbidden");
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    api.post(classes, class("system-mine", 1)).await.fails(422, "Invalid");
    api.post(classes, class(&format!("{name}-high"), 1_000_000_001)).await.fails(422, "Invalid");
    let changed = json!({"value": 78});
    api.patch(&format!("{classes}/{name}"), "merge", changed).await.fails(422, "Invalid");
    api.delete(&format!("{classes}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_pod_runs_as_an_account_that_exists() {
    let api = Api::new().await;
    let mut stranger = pod("p");
    stranger["spec"]["serviceAccountName"] = json!("nobody");
    let refused = api.post(&api.core("pods"), stranger.clone()).await.fails(403, "Forbidden");
    let says =
        format!("error looking up service account {}/nobody: serviceaccount \"nobody\" not found", api.ns);
    assert!(refused.message().ends_with(&says), "{}", refused.message());
    api.post(&api.core("serviceaccounts"), json!({"metadata": {"name": "nobody"}})).await.expect(201);
    api.post(&api.core("pods"), stranger).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn where_a_pod_may_run_does_not_change() {
    let api = Api::new().await;
    let mut made = pod("p");
    made["spec"]["nodeSelector"] = json!({"zone": "a"});
    made["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]);
    api.post(&api.core("pods"), made.clone()).await.expect(201);
    let at = api.core("pods/p");
    for change in [
        json!({"nodeSelector": {"zone": "b"}}),
        json!({"nodeSelector": null}),
        json!({"nodeName": "n1"}),
        json!({"tolerations": []}),
        json!({"schedulingGates": [{"name": "example.com/late"}]}),
        json!({"terminationGracePeriodSeconds": 5}),
        json!({"priority": 9}),
        json!({"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}]}),
    ] {
        api.patch(&at, "merge", json!({"spec": change})).await.fails(422, "Invalid");
    }
    let mut more = api.get(&at).await.body["spec"]["tolerations"].as_array().unwrap().clone();
    more.push(json!({"key": "other", "operator": "Exists"}));
    api.patch(&at, "merge", json!({"spec": {"tolerations": more}})).await.expect(200);
    api.patch(&at, "merge", json!({"spec": {"activeDeadlineSeconds": 50}})).await.expect(200);
    api.patch(&at, "merge", json!({"spec": {"activeDeadlineSeconds": 60}})).await.fails(422, "Invalid");
    // A gated pod may be tied to fewer nodes, and its gates go.
    made["metadata"]["name"] = json!("gated");
    made["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    api.post(&api.core("pods"), made).await.expect(201);
    let at = api.core("pods/gated");
    api.patch(&at, "merge", json!({"spec": {"nodeSelector": {"disk": "ssd"}}})).await.expect(200);
    api.patch(&at, "merge", json!({"spec": {"nodeSelector": {"zone": null}}})).await.fails(422, "Invalid");
    api.patch(&at, "merge", json!({"spec": {"schedulingGates": null}})).await.expect(200);
    api.patch(&at, "merge", json!({"spec": {"nodeSelector": {"disk2": "ssd"}}})).await.fails(422, "Invalid");
    api.done().await;
}

#[tokio::test]
async fn a_binding_names_the_pod_it_means() {
    let api = Api::new().await;
    let uid = api.post(&api.core("pods"), pod("p")).await.expect(201).body["metadata"]["uid"].clone();
    let bind = |meta: Value, kind: &str| json!({"metadata": meta, "target": {"kind": kind, "name": "n1"}});
    let at = api.core("pods/p/binding");
    let other = json!({"name": "p", "uid": "00000000-0000-0000-0000-000000000000"});
    api.post(&at, bind(other, "Node")).await.fails(409, "Conflict");
    api.post(&at, bind(json!({"name": "q"}), "Node")).await.fails(400, "BadRequest");
    api.post(&at, bind(json!({}), "Node")).await.fails(400, "BadRequest");
    let kind = api.post(&at, bind(json!({"name": "p"}), "Pod")).await.fails(500, "");
    assert_eq!(
        kind.message(),
        "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\""
    );
    assert_eq!(api.get(&api.core("pods/p")).await.body["spec"].get("nodeName"), None);
    api.post(&at, bind(json!({"name": "p", "uid": uid}), "Node")).await.expect(201);
    let bound = api.get(&api.core("pods/p")).await.body;
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["generation"]), (&json!("n1"), &json!(1)));
    api.done().await;
}

#[tokio::test]
async fn an_event_lies_where_what_it_tells_of_lies() {
    let api = Api::new().await;
    let event = |name: &str, namespace: &str| {
        json!({"metadata": {"name": name}, "reason": "R", "message": "m", "type": "Normal",
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace}})
    };
    api.post(&api.core("events"), event("a", &api.ns)).await.expect(201);
    let refused = api.post(&api.core("events"), event("b", "default")).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "involvedObject.namespace")]);
    api.post(&api.core("events"), event("c", "")).await.fails(422, "Invalid");
    let name = crate::api::random("e-");
    api.post("/api/v1/namespaces/default/events", event(&name, "")).await.expect(201);
    let new = json!({"metadata": {"name": "d"}, "reason": "R", "type": "Normal", "action": "A",
        "reportingController": "c", "reportingInstance": "i", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z"});
    // The newer group does not ask where it lies.
    api.post(&api.group("events.k8s.io/v1", "events"), new).await.expect(201);
    api.done().await;
}

#[tokio::test]
async fn kinds_that_schedulers_watch_are_served() {
    let api = Api::new().await;
    for path in [
        "/apis/storage.k8s.io/v1/csistoragecapacities",
        "/apis/storage.k8s.io/v1/volumeattributesclasses",
        "/apis/networking.k8s.io/v1/ipaddresses",
        "/apis/networking.k8s.io/v1/servicecidrs",
    ] {
        let list = api.get(path).await.expect(200);
        let rv = list.rv();
        let watch = format!("{path}?watch=true&resourceVersion={rv}&timeoutSeconds=1");
        assert_eq!(api.send("GET", &watch, &[], Vec::new()).await.status(), 200, "{path}");
        api.get_as(path, TABLE).await.expect(200);
    }
    let capacity = json!({"metadata": {"name": "c"}, "storageClassName": "fast", "capacity": "1Ti"});
    api.post(&api.group("storage.k8s.io/v1", "csistoragecapacities"), capacity).await.expect(201);
    let refused = api.delete("/api/v1/namespaces", Value::Null).await;
    refused.fails(405, "MethodNotAllowed");
    let list = api.get("/api/v1").await.body;
    let namespaces =
        list["resources"].as_array().unwrap().iter().find(|r| r["name"] == "namespaces").unwrap();
    assert!(!namespaces["verbs"].as_array().unwrap().contains(&json!("deletecollection")));
    let metrics = api.get("/metrics").await.expect(200);
    assert!(metrics.text.contains("apiserver_storage_objects{resource=\"pods\"} "), "{}", metrics.text);
    api.done().await;
}

#[tokio::test]
async fn a_request_for_a_certificate_is_approved_through_its_own_path() {
    let api = Api::new().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let name = crate::api::random("csr-");
    let asked = json!({"metadata": {"name": name}, "spec": {"request": crate::api::signing_request("dave"),
        "usages": ["client auth"], "signerName": "example.com/signer"}});
    api.post(requests, asked).await.expect(201);
    let at = format!("{requests}/{name}/approval");
    let mut approved = api.get(&at).await.expect(200).body;
    approved["spec"]["signerName"] = json!("example.com/other");
    approved["status"] = json!({"certificate": "c25lYWtlZA==", "conditions": [{"type": "Approved", "status": "True", "reason": "R"}]});
    let written = api.put(&at, approved).await.expect(200).body;
    assert_eq!(written["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(written["status"].get("certificate"), None);
    assert_eq!(written["spec"]["signerName"], "example.com/signer");
    api.delete(&format!("{requests}/{name}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn controllers_with_accounts_of_their_own_have_their_rights() {
    let api = Api::new().await;
    let can = async |user: &str, verb: &str, group: &str, resource: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let spec = json!({"user": user, "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": "default"}});
        let answer =
            api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json!({"spec": spec})).await;
        answer.expect(201).body["status"]["allowed"] == json!(true)
    };
    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    assert!(can(&account("job-controller"), "create", "", "pods").await);
    assert!(can(&account("job-controller"), "update", "batch", "jobs/status").await);
    assert!(!can(&account("job-controller"), "create", "", "secrets").await);
    assert!(can(&account("generic-garbage-collector"), "delete", "example.com", "things").await);
    assert!(can(&account("namespace-controller"), "deletecollection", "", "pods").await);
    assert!(can("system:kube-scheduler", "create", "", "pods/binding").await);
    assert!(can("system:kube-scheduler", "list", "storage.k8s.io", "csistoragecapacities").await);
    assert!(!can("system:kube-scheduler", "get", "", "secrets").await);
    api.get(&format!("{RBAC}/clusterroles/system:controller:deployment-controller")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn an_apply_to_the_status_is_the_status_alone_and_the_same_apply_again_changes_nothing() {
    let api = Api::new().await;
    // A kind whose status no controller writes while it is suspended.
    let at = api.group("batch/v1", "cronjobs/d");
    let config = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "d"},
        "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}});
    let apply = async |path: &str, manager: &str, body: &Value| {
        api.patch(&format!("{path}?fieldManager={manager}"), "apply", body.clone()).await
    };
    apply(&at, "spec-owner", &config).await.expect(201);
    let mut status = config.clone();
    status["spec"]["suspend"] = json!(false);
    status["status"] = json!({"lastScheduleTime": "2026-01-01T00:00:00Z"});
    let written = apply(&format!("{at}/status"), "status-owner", &status).await.expect(200).body;
    assert_eq!(written["spec"]["suspend"], true);
    assert_eq!(written["status"]["lastScheduleTime"], "2026-01-01T00:00:00Z");
    let entries = written["metadata"]["managedFields"].as_array().unwrap();
    let mine = entries.iter().find(|e| e["manager"] == "status-owner").unwrap();
    assert_eq!((&mine["operation"], &mine["subresource"]), (&json!("Apply"), &json!("status")));
    let fields: Vec<&String> = mine["fieldsV1"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["f:status"]);

    // Long enough for the clock's next second, by which a touched entry would be told.
    let before = api.get(&at).await.rv();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let again = apply(&format!("{at}/status"), "status-owner", &status).await.expect(200);
    assert_eq!(again.rv(), before, "{written} became {}", again.text);
    assert_eq!(apply(&at, "spec-owner", &config).await.expect(200).rv(), before);
    let mut namespaced = config_map("m");
    namespaced["metadata"]["namespace"] = json!(api.ns);
    namespaced["metadata"]["labels"] = json!({"a": "b"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}, {"port": 81, "name": "x", "targetPort": 8081}]}});
    let mut bare = pod("p");
    bare["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": 1, "memory": "1024Mi"}});
    bare["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"a": "b"}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "creationTimestamp": null},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let mut service = service;
    service["spec"]["ports"][0]["name"] = json!("w");
    let kinds = [
        (api.core("configmaps/m"), namespaced),
        (api.core("services/s"), service),
        (api.core("pods/p"), bare),
        (api.core("secrets/x"), secret),
        (api.group("batch/v1", "jobs/j"), job),
    ];
    for (path, body) in &kinds {
        apply(path, "mine", body).await.expect(201);
    }
    let before: Vec<String> =
        futures::future::join_all(kinds.iter().map(|(path, _)| async { api.get(path).await.rv() })).await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    for ((path, body), before) in kinds.iter().zip(before) {
        assert_eq!(apply(path, "mine", body).await.expect(200).rv(), before, "{path}");
    }
    api.done().await;
}

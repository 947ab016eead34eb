//! Exactly what is said of a change of a pod, by each endpoint, in the words of Kubernetes 1.36.

use super::spec_rules::causes;
use crate::api::{Api, pod, random};
use serde_json::{Value, json};

const MIRROR: &str = "metadata.annotations[kubernetes.io/config.mirror]";
const OTHER_UID: &str = "00000000-0000-0000-0000-000000000000";

/// A pod with this node, which runs.
async fn running(api: &Api, name: &str, labels: Value) {
    let pods = api.core("pods");
    let mut made = pod(name);
    made["metadata"]["labels"] = labels;
    api.post(&pods, made).await.expect(201);
    let bind = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    api.post(&format!("{pods}/{name}/binding"), bind).await.expect(201);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    api.patch(&format!("{pods}/{name}/status"), "strategic-merge", status).await.expect(200);
}

#[tokio::test]
async fn what_may_not_change_is_shown_with_what_is_around_it() {
    let api = Api::new().await;
    let pods = api.core("pods");
    api.post(&pods, pod("p")).await.expect(201);
    let at = format!("{pods}/p");
    let refused = api
        .patch(&at, "merge", json!({"spec": {"terminationGracePeriodSeconds": 5}}))
        .await
        .fails(422, "Invalid");
    let found = causes(&refused);
    let says = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n@@ -";
    let shown = " @@\n  ],\n  \"EphemeralContainers\": null,\n  \"RestartPolicy\": \"Always\",\n- \"TerminationGracePeriodSeconds\": 30,\n+ \"TerminationGracePeriodSeconds\": 5,\n  \"ActiveDeadlineSeconds\": null,\n  \"DNSPolicy\": \"ClusterFirst\",\n  \"NodeSelector\": null,\n";
    assert_eq!((found.len(), found[0].0), (1, "spec"), "{}", refused.text);
    assert!(found[0].1.starts_with(says) && found[0].1.ends_with(shown), "{}", found[0].1);
    // What is shared with the host is shown in the security context.
    let refused =
        api.patch(&at, "merge", json!({"spec": {"shareProcessNamespace": true}})).await.fails(422, "Invalid");
    let changed = "-  \"ShareProcessNamespace\": null,\n+  \"ShareProcessNamespace\": true,\n";
    assert!(refused.message().contains(changed), "{}", refused.message());
    api.done().await;
}

#[tokio::test]
async fn images_deadlines_tolerations_and_gates() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let mut made = pod("p");
    made["spec"]["activeDeadlineSeconds"] = json!(10);
    made["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
    api.post(&pods, made).await.expect(201);
    let at = format!("{pods}/p");
    let image = |image: &str| json!({"spec": {"containers": [{"name": "c", "image": image}]}});
    for (change, wanted) in [
        (
            image(" i"),
            vec![
                (
                    "spec.containers[0].image",
                    "Invalid value: \" i\": must not have leading or trailing whitespace"
                );
                2
            ],
        ),
        (
            json!({"spec": {"activeDeadlineSeconds": 11}}),
            vec![(
                "spec.activeDeadlineSeconds",
                "Invalid value: 11: must be less than or equal to previous value",
            )],
        ),
        (
            json!({"spec": {"activeDeadlineSeconds": null}}),
            vec![(
                "spec.activeDeadlineSeconds",
                "Invalid value: null: must not update from a positive integer to nil value",
            )],
        ),
        (
            json!({"spec": {"schedulingGates": [{"name": "example.com/late"}]}}),
            vec![(
                "spec.schedulingGates[0].name",
                "Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/late'",
            )],
        ),
        (
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": null}}),
            vec![
                (MIRROR, "Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set"),
                (MIRROR, "Forbidden: may not add mirror pod annotation"),
                (MIRROR, "Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set"),
            ],
        ),
    ] {
        let refused = api.patch(&at, "strategic-merge", change).await.fails(422, "Invalid");
        assert_eq!(causes(&refused), wanted);
    }
    let gone = api.patch(&at, "merge", json!({"spec": {"tolerations": []}})).await.fails(422, "Invalid");
    let why = "Forbidden: existing toleration can not be modified except its tolerationSeconds";
    assert_eq!(causes(&gone), [("spec.tolerations", why)]);
    api.patch(&at, "strategic-merge", image("other:2")).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn a_priority_that_an_update_leaves_out_is_kept() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let mut critical = pod("p");
    critical["spec"]["priorityClassName"] = json!("system-node-critical");
    let mut made = api.post(&pods, critical).await.expect(201).body;
    made["spec"].as_object_mut().unwrap().remove("priority");
    made["spec"].as_object_mut().unwrap().remove("preemptionPolicy");
    let now = api.put(&format!("{pods}/p"), made).await.expect(200).body;
    assert_eq!(now["spec"]["priority"], json!(2_000_001_000));
    api.done().await;
}

#[tokio::test]
async fn ephemeral_containers_only_come() {
    let api = Api::new().await;
    let pods = api.core("pods");
    api.post(&pods, pod("p")).await.expect(201);
    let at = format!("{pods}/p/ephemeralcontainers");
    let list = |list: Value| json!({"spec": {"ephemeralContainers": list}});
    api.patch(&at, "strategic-merge", list(json!([{"name": "d", "image": "i"}]))).await.expect(200);
    let gone = api.patch(&at, "merge", list(json!([]))).await.fails(422, "Invalid");
    let why = "Forbidden: existing ephemeral containers \"d\" may not be removed\n";
    assert_eq!(causes(&gone), [("spec.ephemeralContainers", why)]);
    let changed = api
        .patch(&at, "strategic-merge", list(json!([{"name": "d", "image": "j"}])))
        .await
        .fails(422, "Invalid");
    let starts = "Forbidden: existing ephemeral containers \"d\" may not be changed\n@@ -1,6 +1,6 @@\n {\n  \"Name\": \"d\",\n- \"Image\": \"i\",\n+ \"Image\": \"j\",\n  \"Command\": null,\n  \"Args\": null,\n  \"WorkingDir\": \"\",\n";
    assert_eq!(causes(&changed), [("spec.ephemeralContainers", starts)]);
    api.done().await;
}

#[tokio::test]
async fn a_resize_keeps_containers_and_asks_the_node() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let mut made = pod("p");
    made["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    api.post(&pods, made.clone()).await.expect(201);
    let at = format!("{pods}/p/resize");
    let more = json!({"spec": {"containers": [{"name": "second", "image": "i"}]}});
    let refused = api.patch(&at, "strategic-merge", more).await.fails(422, "Invalid");
    let why = "Forbidden: containers may not be added or removed on resize";
    assert!(causes(&refused).contains(&("spec.containers", why)), "{}", refused.text);
    let fewer = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": null}}}]}});
    let refused = api.patch(&at, "strategic-merge", fewer).await.fails(422, "Invalid");
    let why = "Forbidden: resource requests cannot be removed";
    assert_eq!(causes(&refused), [("spec.containers[0].resources.requests", why)]);
    // A pod that runs is resized as far as its node has room.
    let node = random("node-");
    let bind = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    api.post(&format!("{pods}/p/binding"), bind).await.expect(201);
    let cpu =
        |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    let refused = api.patch(&at, "strategic-merge", cpu("2")).await.fails(403, "Forbidden");
    assert_eq!(refused.message(), format!("pods \"p\" is forbidden: node \"{node}\" not found"));
    api.post("/api/v1/nodes", json!({"metadata": {"name": node}})).await.expect(201);
    let room = json!({"status": {"allocatable": {"cpu": "3", "memory": "4Gi"}}});
    api.patch(&format!("/api/v1/nodes/{node}/status"), "merge", room).await.expect(200);
    let refused = api.patch(&at, "strategic-merge", cpu("4")).await.fails(403, "Forbidden");
    let why = "node didn't have enough allocatable resources: cpu, requested: 4000, allocatable: 3000";
    assert_eq!(refused.message(), format!("pods \"p\" is forbidden: {why}"));
    assert_eq!(refused.causes(), [("NodeCapacity", "")]);
    api.patch(&at, "strategic-merge", cpu("2")).await.expect(200);
    // A kubelet that does not say what a container has cannot resize it.
    let runs = json!({"status": {"containerStatuses": [{"name": "c", "image": "i:1", "imageID": "", "ready": true,
        "restartCount": 0, "state": {"running": {}}}]}});
    api.patch(&format!("{pods}/p/status"), "merge", runs).await.expect(200);
    let refused = api.patch(&at, "strategic-merge", cpu("1")).await.fails(422, "Invalid");
    let why = "Forbidden: Pod running on node without support for resize";
    assert_eq!(causes(&refused), [("spec", why)]);
    api.delete(&format!("/api/v1/nodes/{node}"), Value::Null).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn an_eviction_marks_the_pod_and_keeps_to_its_options() {
    let api = Api::new().await;
    let pods = api.core("pods");
    running(&api, "p", json!({"app": "x"})).await;
    let uid = api.get(&format!("{pods}/p")).await.body["metadata"]["uid"].as_str().unwrap().to_string();
    let evict = |options: Value| json!({"metadata": {"name": "p"}, "deleteOptions": options});
    let at = format!("{pods}/p/eviction");
    let refused =
        api.post(&at, evict(json!({"preconditions": {"uid": OTHER_UID}}))).await.fails(409, "Conflict");
    let why = format!(
        "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition ({OTHER_UID}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(refused.message(), why);
    let refused = api
        .post(&at, evict(json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true})))
        .await
        .fails(422, "Invalid");
    assert_eq!(
        refused.message(),
        "Eviction.policy \"p\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: can not be set for pod eviction, try after removing the option"
    );
    api.post(&at, evict(json!({"dryRun": ["All"]}))).await.expect(201);
    let untouched = api.get(&format!("{pods}/p")).await.body;
    assert_eq!(untouched["metadata"].get("deletionTimestamp"), None);
    // Of two budgets neither is asked.
    let budgets = api.group("policy/v1", "poddisruptionbudgets");
    let budget = |name: &str| json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    for name in ["a", "b"] {
        api.post(&budgets, budget(name)).await.expect(201);
    }
    let several = api.post(&at, evict(Value::Null)).await.expect(201).body;
    assert_eq!(
        several,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
            "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."})
    );
    for name in ["a", "b"] {
        api.delete(&format!("{budgets}/{name}"), Value::Null).await.expect(200);
    }
    api.post(&at, evict(json!({"gracePeriodSeconds": 7}))).await.expect(201);
    let gone = api.get(&format!("{pods}/p")).await.expect(200).body;
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], json!(7));
    let conditions = gone["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&target["status"], &target["reason"], &target["message"]),
        (&json!("True"), &json!("EvictionByEvictionAPI"), &json!("Eviction API: evicting"))
    );
    api.done().await;
}

#[tokio::test]
async fn a_binding_gives_a_pod_its_node_and_what_it_says_of_itself() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let mut made = pod("p");
    made["metadata"]["labels"] = json!({"a": "1", "b": "1"});
    api.post(&pods, made).await.expect(201);
    let at = format!("{pods}/p/binding");
    let wrong = json!({"metadata": {"name": "p"}, "target": {"kind": "Pod"}});
    let refused = api.post(&at, wrong).await.fails(500, "");
    assert_eq!(
        refused.message(),
        "[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: Required value]"
    );
    let nominated = json!({"status": {"nominatedNodeName": "m"}});
    api.patch(&format!("{pods}/p/status"), "merge", nominated).await.expect(200);
    let bind = json!({"metadata": {"name": "p", "labels": {"b": "2"}, "annotations": {"c": "3"}},
        "target": {"kind": "Node", "name": "n"}});
    api.post(&at, bind.clone()).await.expect(201);
    let bound = api.get(&format!("{pods}/p")).await.body;
    assert_eq!(bound["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(bound["metadata"]["annotations"], json!({"c": "3"}));
    assert_eq!(bound["status"].get("nominatedNodeName"), None);
    let refused = api.post(&at, bind).await.fails(409, "Conflict");
    let why = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"";
    assert_eq!(refused.message(), why);
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let made = api.post(&pods, gated).await.expect(201).body;
    let condition = &made["status"]["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], made["metadata"]["creationTimestamp"]);
    let bind = json!({"metadata": {"name": "gated"}, "target": {"kind": "Node", "name": "n"}});
    let refused = api.post(&format!("{pods}/gated/binding"), bind).await.fails(409, "Conflict");
    let why = "Operation cannot be fulfilled on pods/binding \"gated\": pod gated has non-empty .spec.schedulingGates";
    assert_eq!(refused.message(), why);
    api.done().await;
}

#[tokio::test]
async fn the_options_of_logs_and_the_names_of_containers() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let mut many = pod("p");
    many["spec"]["containers"] = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    many["spec"]["initContainers"] = json!([{"name": "first", "image": "i"}]);
    api.post(&pods, many).await.expect(201);
    let which = "a container name must be specified for pod p, choose one of: [first a b]";
    for (path, code, says) in [
        ("log", 400, which),
        ("exec?command=ls", 400, which),
        ("log?container=x", 400, "container x is not valid for pod p"),
        (
            "log?sinceSeconds=0&sinceTime=2026-01-01T00:00:00Z",
            422,
            "PodLogOptions \"p\" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        (
            "log?limitBytes=0&tailLines=-1",
            422,
            "PodLogOptions \"p\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, limitBytes: Invalid value: 0: must be greater than 0]",
        ),
        ("log?stream=Stdout", 422, "PodLogOptions \"p\" is invalid: stream: Forbidden: may not be specified"),
    ] {
        let answer = api.get(&format!("{pods}/p/{path}")).await;
        assert_eq!((answer.code, answer.message()), (code, says), "{path}");
    }
    let at = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    api.patch(&format!("{pods}/p/status"), "merge", at).await.expect(200);
    let answer = api.get(&format!("{pods}/p/proxy")).await.fails(400, "BadRequest");
    assert_eq!(answer.message(), "address not allowed");
    api.done().await;
}

#[tokio::test]
async fn a_stream_is_begun_by_who_may_create_it() {
    let api = Api::new().await;
    let pods = api.core("pods");
    api.post(&pods, pod("p")).await.expect(201);
    let robot = api.account("robot").await;
    let roles = api.group("rbac.authorization.k8s.io/v1", "roles");
    let role = |verbs: Value| json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs}]});
    api.post(&roles, role(json!(["get"]))).await.expect(201);
    let grant = json!({"metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": api.ns}]});
    api.post(&api.group("rbac.authorization.k8s.io/v1", "rolebindings"), grant).await.expect(201);
    let exec = format!("{pods}/p/exec?command=ls");
    // A server may learn of the grant a moment later.
    let refused = robot
        .until(&exec, |answer| !answer.message().contains("cannot get resource"))
        .await
        .fails(403, "Forbidden");
    assert_eq!(refused.message(), "pods \"p\" is forbidden: ");
    api.patch(&format!("{roles}/r"), "merge", role(json!(["get", "create"]))).await.expect(200);
    let begun = robot.until_code(&exec, 400).await;
    assert_eq!(begun.message(), "pod p does not have a host assigned");
    api.done().await;
}

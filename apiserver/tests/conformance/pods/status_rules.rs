//! Exactly what is said of a pod's status, what the server keeps of it, and what it warns of, as Kubernetes 1.36 does.

use super::spec_rules::causes;
use crate::api::{Api, pod};
use crate::table::merged;
use serde_json::{Value, json};

fn status(change: Value) -> Value {
    json!({"status": change})
}

#[tokio::test]
async fn a_status_is_checked_against_the_one_before() {
    let api = Api::new().await;
    let pods = api.core("pods");
    api.post(&pods, pod("p")).await.expect(201);
    let at = format!("{pods}/p/status");
    for (change, wanted) in [
        (
            json!({"qosClass": "Guaranteed"}),
            ("status.qosClass", "Invalid value: \"Guaranteed\": field is immutable"),
        ),
        (
            json!({"observedGeneration": -1}),
            ("status.observedGeneration", "Invalid value: -1: must be a non-negative integer"),
        ),
        (
            json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": -1}]}),
            ("status.conditions[0].observedGeneration", "Invalid value: -1: must be a non-negative integer"),
        ),
        (
            json!({"resourceClaimStatuses": [{"name": "c"}]}),
            (
                "status.resourceClaimStatuses[0].name",
                "Invalid value: \"c\": must match the name of an entry in `spec.resourceClaims`",
            ),
        ),
        (
            json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}),
            (
                "status.podIPs",
                "Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.2\"}]: may specify no more than one IP for each IP family",
            ),
        ),
        (
            json!({"podIP": "10.0.0.256"}),
            (
                "status.podIPs[0]",
                "Invalid value: \"10.0.0.256\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
        ),
        (
            json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}),
            ("status.hostIPs[0].ip", "Invalid value: \"10.0.0.2\": must be equal to `hostIP`"),
        ),
        (
            json!({"ephemeralContainerStatuses": [{"name": "e", "image": "i", "imageID": "", "ready": true,
                "restartCount": 0, "allocatedResourcesStatus": [{"name": "cpu"}]}]}),
            (
                "status.ephemeralContainerStatuses[0].allocatedResourcesStatus",
                "Forbidden: must not be specified in container status",
            ),
        ),
    ] {
        let refused = api.patch(&at, "merge", status(change)).await.fails(422, "Invalid");
        assert_eq!(causes(&refused), [wanted]);
    }
    let named = json!({"conditions": [{"type": "not a name", "status": "True"}]});
    let refused = api.patch(&at, "merge", status(named)).await.fails(422, "Invalid");
    assert_eq!(causes(&refused)[0].0, "status.conditions[0].Type");
    let bind = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    api.post(&format!("{pods}/p/binding"), bind).await.expect(201);
    let refused =
        api.patch(&at, "merge", status(json!({"nominatedNodeName": "m"}))).await.fails(422, "Invalid");
    let why = "Forbidden: may not be set on pods that are already bound to a node";
    assert_eq!(causes(&refused), [("status.nominatedNodeName", why)]);
    api.done().await;
}

#[tokio::test]
async fn what_has_ended_does_not_run_again() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let mut once = pod("p");
    once["spec"]["restartPolicy"] = json!("OnFailure");
    api.post(&pods, once).await.expect(201);
    let at = format!("{pods}/p/status");
    let container = |state: Value| {
        status(json!({"containerStatuses": [{"name": "c", "image": "i:1", "imageID": "", "ready": false,
            "restartCount": 0, "state": state}]}))
    };
    let ended = |code: i64| container(json!({"terminated": {"exitCode": code}}));
    let runs = || container(json!({"running": {}}));
    api.patch(&at, "merge", ended(1)).await.expect(200);
    api.patch(&at, "merge", runs()).await.expect(200);
    api.patch(&at, "merge", ended(0)).await.expect(200);
    let refused = api.patch(&at, "merge", runs()).await.fails(422, "Invalid");
    let why = "Forbidden: may not be transitioned to non-terminated state";
    assert_eq!(causes(&refused), [("status.containerStatuses[0].state", why)]);
    api.done().await;
}

#[tokio::test]
async fn what_a_status_leaves_out_is_kept() {
    let api = Api::new().await;
    let pods = api.core("pods");
    let made = api.post(&pods, pod("p")).await.expect(201).body;
    let at = format!("{pods}/p/status");
    let first = json!({"phase": "Running", "qosClass": "BestEffort", "observedGeneration": 1, "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "False", "observedGeneration": 1}]});
    let now = api.patch(&at, "merge", status(first)).await.expect(200).body;
    assert_eq!(now["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]));
    let mut sent = now.clone();
    sent["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    sent["spec"]["hostname"] = json!("other");
    sent["metadata"]["labels"] = json!({"a": "b"});
    sent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": made["metadata"]["uid"]}]);
    let now = api.put(&at, sent).await.expect(200).body;
    assert_eq!(now["status"]["qosClass"], "BestEffort");
    assert_eq!(now["status"]["observedGeneration"], json!(1));
    assert_eq!(now["status"]["conditions"][0]["observedGeneration"], json!(1));
    assert_eq!(now["spec"], made["spec"]);
    assert_eq!(now["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(now["metadata"].get("ownerReferences"), None);
    api.done().await;
}

#[tokio::test]
async fn warnings_in_the_real_words() {
    let api = Api::new().await;
    let pods = format!("{}?dryRun=All", api.core("pods"));
    let two = |first: Value, second: Value| {
        let one = |name: &str, port: &Value| json!({"name": name, "image": "i", "ports": [port]});
        json!({"spec": {"containers": [one("c", &first), one("d", &second)]}})
    };
    let affinity = |term: Value| {
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 1, "preference": {"matchExpressions": [term]}}]}}}})
    };
    for (change, wanted) in [
        (
            json!({"metadata": {"name": "b.c"}}),
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
        ),
        (
            two(json!({"containerPort": 80, "name": "x"}), json!({"containerPort": 81, "name": "x"})),
            "spec.containers[1].ports[0]: duplicate port name \\\"x\\\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
        ),
        (
            two(json!({"containerPort": 80}), json!({"containerPort": 80, "hostPort": 80})),
            "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]",
        ),
        (
            json!({"spec": {"nodeSelector": {"node-role.kubernetes.io/master": ""}}}),
            "spec.nodeSelector[node-role.kubernetes.io/master]: use \\\"node-role.kubernetes.io/control-plane\\\" instead",
        ),
        (
            affinity(json!({"key": "beta.kubernetes.io/os", "operator": "In", "values": ["linux"]})),
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use \\\"kubernetes.io/os\\\" instead",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "m",
                "items": [{"key": "a", "path": "d"}, {"key": "b", "path": "d/e"}]}}]}}),
            "volume \\\"v\\\" (ConfigMap \\\"m\\\"): overlapping paths: \\\"d/e\\\" with \\\"d\\\"",
        ),
        (
            json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}}),
            "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
        ),
        (
            json!({"spec": {"hostAliases": [{"ip": "FD00::1"}]}}),
            "spec.hostAliases[0].ip: IPv6 address \\\"FD00::1\\\" should be in RFC 5952 canonical format (\\\"fd00::1\\\")",
        ),
    ] {
        let warned = api.post(&pods, merged(&pod("p"), &change)).await.expect(201).warnings();
        assert_eq!(warned, [format!("299 - \"{wanted}\"")], "{change}");
    }
    api.done().await;
}

#[tokio::test]
async fn classes_of_the_system_are_the_systems() {
    let api = Api::new().await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses?dryRun=All";
    let class = json!({"metadata": {"name": "system-mine"}, "value": 1});
    let refused = api.post(classes, class).await.fails(422, "Invalid");
    let why = "Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class";
    assert_eq!(causes(&refused), [("metadata.name", why)]);
    api.done().await;
}

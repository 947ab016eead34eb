use super::*;
use fleet_apiserver_schema::builtins;

/// What a write of the status brings into form is the same object as if all of it had been.
#[test]
fn a_write_of_the_status_leads_to_the_same_object() {
    let container =
        json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}});
    let pod = json!({"restartPolicy": "Never", "containers": [container]});
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod});
    let selecting = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
    let cases = [
        ("", "pods", "v1", "Pod", pod),
        (
            "",
            "replicationcontrollers",
            "v1",
            "ReplicationController",
            json!({"selector": {"app": "x"}, "template": template}),
        ),
        ("apps", "deployments", "apps/v1", "Deployment", selecting.clone()),
        ("apps", "replicasets", "apps/v1", "ReplicaSet", selecting.clone()),
        ("apps", "statefulsets", "apps/v1", "StatefulSet", selecting.clone()),
        ("apps", "daemonsets", "apps/v1", "DaemonSet", selecting),
        ("batch", "jobs", "batch/v1", "Job", json!({"template": template})),
        (
            "batch",
            "cronjobs",
            "batch/v1",
            "CronJob",
            json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}),
        ),
        ("", "nodes", "v1", "Node", json!({"podCIDR": "10.0.0.0/24"})),
    ];
    let condition =
        json!({"type": "A", "status": "True", "reason": "", "lastProbeTime": null, "message": ""});
    let changes = [
        json!({"status": {"conditions": [], "observedGeneration": 0, "phase": "", "replicas": 0, "active": 0}}),
        json!({"status": {"conditions": [condition], "observedGeneration": 2, "replicas": 3, "startTime": null}}),
        json!({"metadata": {"name": "w", "labels": null, "annotations": {}, "finalizers": []}, "status": null}),
    ];
    for (group, plural, version, kind, spec) in cases {
        let r = builtins::find(group, plural);
        let mut stored =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec});
        apply(r, &mut stored);
        for change in &changes {
            let mut part = stored.clone();
            tree::object(&mut part).extend(change.as_object().expect("fields").clone());
            let mut whole = part.clone();
            apply(r, &mut whole);
            apply_status(r, &mut part);
            assert_eq!(part, whole, "{kind} {change}");
            assert_eq!(part["spec"], stored["spec"], "{kind} {change}");
        }
    }
}

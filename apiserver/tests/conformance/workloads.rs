//! Groups of checks: controllers of pods, what they may say and what of them may change.

mod apps;
mod jobs;

use crate::api::{Api, deployment};
use crate::table::{Case, accepted, changes, merged, new_objects};
use serde_json::{Value, json};

fn of_kind(kind: &str, spec: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let base = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}});
    merged(&base, &json!({"spec": spec}))
}

fn job(spec: Value) -> Value {
    let base = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "w"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}});
    merged(&base, &json!({"spec": spec}))
}

fn spec(change: Value) -> Value {
    json!({"spec": change})
}

#[tokio::test]
async fn deployments() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    let cases: &[Case] = &[
        (spec(json!({"replicas": -1})), "Invalid", "spec.replicas"),
        (spec(json!({"minReadySeconds": -1})), "Invalid", "spec.minReadySeconds"),
        (spec(json!({"revisionHistoryLimit": -1})), "Invalid", "spec.revisionHistoryLimit"),
        (
            spec(json!({"progressDeadlineSeconds": 5, "minReadySeconds": 5})),
            "Invalid",
            "spec.progressDeadlineSeconds",
        ),
        (spec(json!({"selector": null})), "Required", "spec.selector"),
        (spec(json!({"selector": {"matchLabels": null}})), "Invalid", "spec.selector"),
        (
            spec(json!({"selector": {"matchLabels": {"app": "y"}}})),
            "Invalid",
            "spec.template.metadata.labels",
        ),
        (
            spec(json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}})),
            "Invalid",
            "spec.selector.matchExpressions[0].operator",
        ),
        (spec(json!({"strategy": {"type": "Magic"}})), "NotSupported", "spec.strategy"),
        (
            spec(json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}})),
            "Forbidden",
            "spec.strategy.rollingUpdate",
        ),
        (
            spec(json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}})),
            "Invalid",
            "spec.strategy.rollingUpdate.maxUnavailable",
        ),
        (
            spec(json!({"strategy": {"rollingUpdate": {"maxUnavailable": "120%"}}})),
            "Invalid",
            "spec.strategy.rollingUpdate.maxUnavailable",
        ),
        (
            spec(json!({"strategy": {"rollingUpdate": {"maxSurge": "many"}}})),
            "Invalid",
            "spec.strategy.rollingUpdate.maxSurge",
        ),
        (
            spec(json!({"template": {"spec": {"restartPolicy": "Never"}}})),
            "NotSupported",
            "spec.template.spec.restartPolicy",
        ),
        (
            spec(json!({"template": {"spec": {"activeDeadlineSeconds": 5}}})),
            "Forbidden",
            "spec.template.spec.activeDeadlineSeconds",
        ),
        (
            spec(json!({"template": {"spec": {"containers": []}}})),
            "Required",
            "spec.template.spec.containers",
        ),
        (json!({"metadata": {"name": "Not_A_Name"}}), "Invalid", "metadata.name"),
    ];
    new_objects(&api, &path, &of_kind("Deployment", json!({})), cases).await;
    let selector = json!({"selector": {"matchLabels": {"app": "z"}}, "template": {"metadata": {"labels": {"app": "z"}}}});
    let through =
        [spec(json!({"replicas": 3})), spec(json!({"template": {"spec": {"dnsPolicy": "Default"}}}))];
    changes(
        &api,
        &path,
        &of_kind("Deployment", json!({})),
        &[(spec(selector), "Invalid", "spec.selector")],
        &through,
    )
    .await;
    // Counts of the status fit together, and the count of collisions only grows.
    let at = format!("{path}/w/status");
    let status = |s: Value| json!({"status": s});
    api.patch(&at, "merge", status(json!({"replicas": 1, "readyReplicas": 2}))).await.fails(422, "Invalid");
    api.patch(&at, "merge", status(json!({"replicas": 1, "collisionCount": 2}))).await.expect(200);
    let refused = api.patch(&at, "merge", status(json!({"collisionCount": 1}))).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "status.collisionCount")]);
    api.done().await;
}

#[tokio::test]
async fn replica_sets_and_controllers() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "replicasets");
    let cases: &[Case] = &[
        (spec(json!({"replicas": -1})), "Invalid", "spec.replicas"),
        (
            spec(json!({"selector": {"matchLabels": {"app": "y"}}})),
            "Invalid",
            "spec.template.metadata.labels",
        ),
        (
            spec(json!({"template": {"spec": {"restartPolicy": "OnFailure"}}})),
            "NotSupported",
            "spec.template.spec.restartPolicy",
        ),
    ];
    new_objects(&api, &path, &of_kind("ReplicaSet", json!({})), cases).await;
    let other = json!({"selector": {"matchLabels": {"app": "z"}}, "template": {"metadata": {"labels": {"app": "z"}}}});
    let through = [spec(json!({"replicas": 2})), spec(json!({"minReadySeconds": 3}))];
    changes(
        &api,
        &path,
        &of_kind("ReplicaSet", json!({})),
        &[(spec(other), "Invalid", "spec.selector")],
        &through,
    )
    .await;
    let controller = json!({"metadata": {"name": "rc"}, "spec": {"selector": {"app": "x"}, "template": {"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    let cases: &[Case] = &[
        (spec(json!({"replicas": -2})), "Invalid", "spec.replicas"),
        (spec(json!({"selector": {"app": "y"}})), "Invalid", "spec.template.metadata.labels"),
        (spec(json!({"template": null})), "Required", "spec.template"),
    ];
    new_objects(&api, &api.core("replicationcontrollers"), &controller, cases).await;
    api.done().await;
}

#[tokio::test]
async fn stateful_sets() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "statefulsets");
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let container =
        json!([{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]);
    let base = of_kind(
        "StatefulSet",
        json!({"serviceName": "s", "volumeClaimTemplates": [claim], "template": {"spec": {"containers": container}}}),
    );
    let cases: &[Case] = &[
        (spec(json!({"replicas": -1})), "Invalid", "spec.replicas"),
        (spec(json!({"podManagementPolicy": "Chaos"})), "Invalid", "spec.podManagementPolicy"),
        (spec(json!({"updateStrategy": {"type": "Magic"}})), "Invalid", "spec.updateStrategy"),
        (
            spec(json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}})),
            "Invalid",
            "spec.updateStrategy.rollingUpdate",
        ),
        (
            spec(json!({"updateStrategy": {"rollingUpdate": {"partition": -1}}})),
            "Invalid",
            "spec.updateStrategy.rollingUpdate.partition",
        ),
        (
            spec(json!({"selector": {"matchLabels": {"app": "y"}}})),
            "Invalid",
            "spec.template.metadata.labels",
        ),
        (
            spec(json!({"template": {"spec": {"restartPolicy": "Never"}}})),
            "NotSupported",
            "spec.template.spec.restartPolicy",
        ),
    ];
    new_objects(&api, &path, &base, cases).await;
    let refused: &[Case] = &[
        (spec(json!({"serviceName": "other"})), "Forbidden", "spec"),
        (spec(json!({"podManagementPolicy": "Parallel"})), "Forbidden", "spec"),
        (spec(json!({"volumeClaimTemplates": []})), "Forbidden", "spec"),
    ];
    let through = [
        spec(json!({"replicas": 2})),
        spec(json!({"minReadySeconds": 5})),
        spec(json!({"updateStrategy": {"rollingUpdate": {"partition": 1}}})),
        spec(json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}})),
    ];
    changes(&api, &path, &base, refused, &through).await;
    api.done().await;
}

#[tokio::test]
async fn daemon_sets() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "daemonsets");
    let base = of_kind("DaemonSet", json!({}));
    let cases: &[Case] = &[
        (spec(json!({"selector": {"matchLabels": null}})), "Invalid", "spec.selector"),
        (
            spec(json!({"template": {"spec": {"restartPolicy": "Never"}}})),
            "NotSupported",
            "spec.template.spec.restartPolicy",
        ),
        (spec(json!({"updateStrategy": {"type": "Magic"}})), "NotSupported", "spec.updateStrategy"),
        (
            spec(json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}})),
            "Required",
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
        ),
        (spec(json!({"minReadySeconds": -1})), "Invalid", "spec.minReadySeconds"),
    ];
    new_objects(&api, &path, &base, cases).await;
    let other = json!({"selector": {"matchLabels": {"app": "z"}}, "template": {"metadata": {"labels": {"app": "z"}}}});
    changes(
        &api,
        &path,
        &base,
        &[(spec(other), "Invalid", "spec.selector")],
        &[spec(json!({"minReadySeconds": 3}))],
    )
    .await;
    let made = api.get(&format!("{path}/w")).await.body;
    assert_eq!(
        made["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    );
    api.done().await;
}

#[tokio::test]
async fn new_jobs() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "jobs");
    let cases: &[Case] = &[
        (spec(json!({"parallelism": -1})), "Invalid", "spec.parallelism"),
        (spec(json!({"completions": -1})), "Invalid", "spec.completions"),
        (spec(json!({"backoffLimit": -1})), "Invalid", "spec.backoffLimit"),
        (spec(json!({"activeDeadlineSeconds": -1})), "Invalid", "spec.activeDeadlineSeconds"),
        (spec(json!({"ttlSecondsAfterFinished": -1})), "Invalid", "spec.ttlSecondsAfterFinished"),
        (spec(json!({"completionMode": "Indexed", "parallelism": 1})), "Required", "spec.completions"),
        (spec(json!({"completionMode": "Magic"})), "NotSupported", "spec.completionMode"),
        (spec(json!({"maxFailedIndexes": 1})), "Invalid", "spec.maxFailedIndexes"),
        (spec(json!({"managedBy": "nobody"})), "Invalid", "spec.managedBy"),
        (
            spec(json!({"template": {"spec": {"restartPolicy": null}}})),
            "Required",
            "spec.template.spec.restartPolicy",
        ),
        (
            spec(json!({"template": {"spec": {"restartPolicy": "Always"}}})),
            "Required",
            "spec.template.spec.restartPolicy",
        ),
        (
            spec(
                json!({"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [{"action": "Explode", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}}),
            ),
            "NotSupported",
            "spec.podFailurePolicy.rules[0].action",
        ),
        (
            spec(
                json!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]}}),
            ),
            "Invalid",
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]",
        ),
        (spec(json!({"successPolicy": {"rules": [{"succeededCount": 1}]}})), "Invalid", "spec.successPolicy"),
        (
            spec(json!({"selector": {"matchLabels": {"a": "b"}}, "manualSelector": true})),
            "Invalid",
            "spec.template.metadata.labels",
        ),
    ];
    new_objects(&api, &path, &job(json!({})), cases).await;
    let fine = [spec(
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2}),
    )];
    accepted(&api, &path, &job(json!({})), &fine).await;
    let made = api.post(&path, job(json!({}))).await.expect(201).body;
    let uid = &made["metadata"]["uid"];
    assert_eq!(made["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], *uid);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"]["job-name"], "w");
    for (field, wanted) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("suspend", json!(false)),
        ("completionMode", json!("NonIndexed")),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(made["spec"][field], wanted, "{field}");
    }
    api.done().await;
}

#[tokio::test]
async fn what_of_a_job_may_change() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "jobs");
    let refused: &[Case] = &[
        (spec(json!({"completions": 9})), "Invalid", "spec.completions"),
        (spec(json!({"selector": {"matchLabels": {"a": "b"}}})), "Invalid", "spec.selector"),
        (spec(json!({"completionMode": "Indexed"})), "Invalid", "spec.completionMode"),
        (spec(json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}})), "Invalid", "spec.template"),
        (spec(json!({"template": {"metadata": {"labels": {"a": "b"}}}})), "Invalid", "spec.template"),
        (spec(json!({"managedBy": "example.com/other"})), "Invalid", "spec.managedBy"),
    ];
    let through = [
        spec(json!({"parallelism": 0})),
        spec(json!({"activeDeadlineSeconds": 50})),
        spec(json!({"backoffLimit": 2})),
        spec(json!({"ttlSecondsAfterFinished": 9})),
        spec(json!({"suspend": true})),
    ];
    changes(&api, &path, &job(json!({"completions": 3})), refused, &through).await;
    // One that waits may be told where to run; an indexed one may be resized with its parallelism.
    let mut waits =
        job(json!({"suspend": true, "completionMode": "Indexed", "completions": 2, "parallelism": 2}));
    waits["metadata"]["name"] = json!("waits");
    let refused: &[Case] = &[
        (spec(json!({"completions": 3})), "Invalid", "spec.completions"),
        (spec(json!({"template": {"spec": {"hostNetwork": true}}})), "Invalid", "spec.template.spec"),
    ];
    let through = [
        spec(json!({"completions": 4, "parallelism": 4})),
        spec(json!({"template": {"spec": {"nodeSelector": {"pool": "a"}}}})),
        spec(json!({"template": {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}})),
    ];
    changes(&api, &path, &waits, refused, &through).await;
    api.done().await;
}

#[tokio::test]
async fn how_a_job_ends() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "jobs");
    // Some other controller's, so that none here writes its status.
    api.post(&path, job(json!({"managedBy": "example.com/test"}))).await.expect(201);
    let at = format!("{path}/w/status");
    let now = "2026-01-01T00:00:00Z";
    let status = |kinds: &[&str], more: Value| {
        let list: Vec<Value> =
            kinds.iter().map(|k| json!({"type": k, "status": "True", "lastTransitionTime": now})).collect();
        json!({"status": merged(&json!({"conditions": list}), &more)})
    };
    let times = json!({"startTime": now, "completionTime": now});
    let refuse = async |body: Value, says: &str| {
        let refused = api.patch(&at, "merge", body).await.fails(422, "Invalid");
        assert!(refused.message().contains(says), "{says}: {}", refused.message());
    };
    refuse(
        status(&["Complete"], times.clone()),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    )
    .await;
    refuse(
        status(&["Failed"], json!({"startTime": now})),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    )
    .await;
    refuse(
        status(&["SuccessCriteriaMet", "FailureTarget"], json!({})),
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    )
    .await;
    refuse(
        status(&["SuccessCriteriaMet", "Complete"], json!({"startTime": now})),
        "completionTime is required for Complete jobs",
    )
    .await;
    refuse(status(&[], times.clone()), "cannot set completionTime when there is no Complete=True condition")
        .await;
    refuse(
        status(&["SuccessCriteriaMet", "Complete"], merged(&times, &json!({"active": 1}))),
        "active>0 is invalid for finished job",
    )
    .await;
    api.patch(&at, "merge", status(&["SuccessCriteriaMet"], json!({"startTime": now}))).await.expect(200);
    refuse(status(&[], json!({})), "cannot disable the SuccessCriteriaMet=True condition").await;
    api.patch(&at, "merge", status(&["SuccessCriteriaMet", "Complete"], times)).await.expect(200);
    refuse(status(&["SuccessCriteriaMet"], json!({})), "cannot disable the terminal Complete=True condition")
        .await;
    api.done().await;
}

#[tokio::test]
async fn cron_jobs() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "cronjobs");
    let base = json!({"metadata": {"name": "c"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job(json!({}))["spec"]}}});
    let cases: &[Case] = &[
        (spec(json!({"schedule": ""})), "Required", "spec.schedule"),
        (spec(json!({"schedule": "every day"})), "Invalid", "spec.schedule"),
        (spec(json!({"schedule": "60 * * * *"})), "Invalid", "spec.schedule"),
        (spec(json!({"schedule": "* * * *"})), "Invalid", "spec.schedule"),
        (spec(json!({"schedule": "TZ=UTC * * * * *"})), "Invalid", "spec.schedule"),
        (spec(json!({"timeZone": "Mars/Olympus"})), "Invalid", "spec.timeZone"),
        (spec(json!({"timeZone": ""})), "Invalid", "spec.timeZone"),
        (spec(json!({"timeZone": "Local"})), "Invalid", "spec.timeZone"),
        (spec(json!({"concurrencyPolicy": "Maybe"})), "NotSupported", "spec.concurrencyPolicy"),
        (spec(json!({"startingDeadlineSeconds": -1})), "Invalid", "spec.startingDeadlineSeconds"),
        (spec(json!({"successfulJobsHistoryLimit": -1})), "Invalid", "spec.successfulJobsHistoryLimit"),
        (
            spec(json!({"jobTemplate": {"spec": {"selector": {"matchLabels": {"a": "b"}}}}})),
            "Invalid",
            "spec.jobTemplate.spec.selector",
        ),
        (
            spec(json!({"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}})),
            "Required",
            "spec.jobTemplate.spec.template.spec.restartPolicy",
        ),
        (json!({"metadata": {"name": "c".repeat(53)}}), "Invalid", "metadata.name"),
    ];
    new_objects(&api, &path, &base, cases).await;
    let fine = [
        spec(json!({"schedule": "@hourly"})),
        spec(json!({"timeZone": "Etc/UTC"})),
        spec(json!({"schedule": "0 0 1 JAN MON-FRI"})),
    ];
    accepted(&api, &path, &base, &fine).await;
    api.done().await;
}

#[tokio::test]
async fn revisions_and_templates() {
    let api = Api::new().await;
    let revision = json!({"metadata": {"name": "r"}, "revision": 1, "data": {"a": 1}});
    let path = api.group("apps/v1", "controllerrevisions");
    new_objects(
        &api,
        &path,
        &revision,
        &[(json!({"data": null}), "Required", "data"), (json!({"revision": -1}), "Invalid", "revision")],
    )
    .await;
    changes(
        &api,
        &path,
        &revision,
        &[(json!({"data": {"a": 2}}), "Invalid", "data")],
        &[json!({"revision": 2})],
    )
    .await;
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let cases: &[Case] =
        &[(json!({"template": {"spec": {"containers": []}}}), "Required", "template.spec.containers")];
    new_objects(&api, &api.core("podtemplates"), &template, cases).await;
    api.done().await;
}

#[tokio::test]
async fn defaults_of_workloads() {
    let api = Api::new().await;
    let made = api.post(&api.group("apps/v1", "deployments"), deployment("d")).await.expect(201).body;
    for (field, wanted) in [
        ("replicas", json!(1)),
        ("revisionHistoryLimit", json!(10)),
        ("progressDeadlineSeconds", json!(600)),
        (
            "strategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
        ),
    ] {
        assert_eq!(made["spec"][field], wanted, "{field}");
    }
    assert_eq!(made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 30);
    let made = api
        .post(&api.group("apps/v1", "statefulsets"), of_kind("StatefulSet", json!({})))
        .await
        .expect(201)
        .body;
    for (field, wanted) in [
        ("podManagementPolicy", json!("OrderedReady")),
        ("updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})),
        ("persistentVolumeClaimRetentionPolicy", json!({"whenDeleted": "Retain", "whenScaled": "Retain"})),
    ] {
        assert_eq!(made["spec"][field], wanted, "{field}");
    }
    api.done().await;
}

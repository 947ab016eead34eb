//! Exactly what is said of controllers of pods: all causes, in their order and in the words of Kubernetes 1.36.

use super::{of_kind, spec};
use crate::api::{Answer, Api, deployment};
use crate::table::merged;
use serde_json::{Value, json};

/// A change of an object, and all fields that are refused for it with what is said of them.
pub(super) type Told = (Value, &'static [(&'static str, &'static str)]);

pub(super) fn causes(answer: &Answer) -> Vec<(&str, &str)> {
    let list = answer.body["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|cause| {
            (cause["field"].as_str().unwrap_or_default(), cause["message"].as_str().unwrap_or_default())
        })
        .collect()
}

/// Each change of the base is refused for exactly these causes.
pub(super) async fn tells(api: &Api, path: &str, base: &Value, cases: &[Told]) {
    let path = format!("{path}?dryRun=All");
    api.post(&path, base.clone()).await.expect(201);
    for (change, wanted) in cases {
        let answer = api.post(&path, merged(base, change)).await.fails(422, "Invalid");
        assert_eq!(causes(&answer), *wanted, "{change}");
    }
}

/// Each status of what is there is refused for exactly these causes, or taken where there are none.
pub(super) async fn statuses(api: &Api, at: &str, cases: &[Told]) {
    for (status, wanted) in cases {
        let answer = api.patch(at, "merge", json!({"status": status})).await;
        assert_eq!(causes(&answer), *wanted, "{status}");
        assert_eq!(answer.code, if wanted.is_empty() { 200 } else { 422 }, "{status}");
    }
}

const NO_MATCH: &str = "Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`";

#[tokio::test]
async fn deployments_in_the_real_words() {
    let api = Api::new().await;
    let rolling = |bounds: Value| spec(json!({"strategy": {"rollingUpdate": bounds}}));
    let near = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let cases: &[Told] = &[
        (
            spec(json!({"strategy": {"type": "Magic", "rollingUpdate": {"maxSurge": 1}}})),
            &[(
                "spec.strategy",
                "Unsupported value: {\"Type\":\"Magic\",\"RollingUpdate\":{\"MaxUnavailable\":0,\"MaxSurge\":1}}: supported values: \"Recreate\", \"RollingUpdate\"",
            )],
        ),
        (
            rolling(json!({"maxSurge": 0, "maxUnavailable": "0%"})),
            &[(
                "spec.strategy.rollingUpdate.maxUnavailable",
                "Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
            )],
        ),
        (
            rolling(json!({"maxUnavailable": "101%"})),
            &[(
                "spec.strategy.rollingUpdate.maxUnavailable",
                "Invalid value: \"101%\": must not be greater than 100%",
            )],
        ),
        (
            spec(json!({"selector": null})),
            &[("spec.selector", "Required value"), ("spec.template.metadata.labels", NO_MATCH)],
        ),
        (
            spec(json!({"selector": {"matchLabels": null}})),
            &[("spec.selector", "Invalid value: {}: empty selector is invalid for deployment")],
        ),
        (
            // A selector that cannot be used hides what is wrong with the template.
            spec(json!({"selector": near, "template": {"spec": {"restartPolicy": "Never"}}})),
            &[
                (
                    "spec.selector.matchExpressions[0].operator",
                    "Invalid value: \"Near\": not a valid selector operator",
                ),
                (
                    "spec.selector",
                    "Invalid value: {\"matchLabels\":{\"app\":\"x\"},\"matchExpressions\":[{\"key\":\"app\",\"operator\":\"Near\"}]}: invalid label selector",
                ),
            ],
        ),
        (
            spec(json!({"progressDeadlineSeconds": -1, "minReadySeconds": -2})),
            &[
                ("spec.minReadySeconds", "Invalid value: -2: must be greater than or equal to 0"),
                ("spec.progressDeadlineSeconds", "Invalid value: -1: must be greater than or equal to 0"),
            ],
        ),
        (
            spec(json!({"progressDeadlineSeconds": 5, "minReadySeconds": 5})),
            &[("spec.progressDeadlineSeconds", "Invalid value: 5: must be greater than minReadySeconds")],
        ),
    ];
    tells(&api, &api.group("apps/v1", "deployments"), &of_kind("Deployment", json!({})), cases).await;
    api.done().await;
}

#[tokio::test]
async fn annotations_of_a_deployment_count() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "deployments");
    api.post(&path, deployment("d")).await.expect(201);
    let at = format!("{path}/d");
    let marked = |key: &str, value: &str| json!({"metadata": {key: {"example.com/a": value}}});
    for (change, wanted) in [(marked("labels", "1"), 1), (marked("annotations", "1"), 2)] {
        let now = api.patch(&at, "merge", change).await.expect(200).body;
        assert_eq!(now["metadata"]["generation"], json!(wanted));
    }
    // Who writes the status may leave annotations, which do not count then, but no labels.
    let mut told = merged(&marked("labels", "2"), &marked("annotations", "2"));
    told["status"] = json!({"replicas": 1});
    let now = api.patch(&format!("{at}/status"), "merge", told).await.expect(200).body;
    assert_eq!(now["metadata"]["generation"], json!(2));
    assert_eq!(now["metadata"]["labels"]["example.com/a"], "1");
    assert_eq!(now["metadata"]["annotations"]["example.com/a"], "2");
    api.done().await;
}

#[tokio::test]
async fn a_replica_set_names_what_it_selects() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "replicasets");
    let cases: &[Told] = &[
        (
            spec(json!({"selector": null})),
            &[("spec.selector", "Required value"), ("spec.template.metadata.labels", NO_MATCH)],
        ),
        (
            spec(json!({"template": {"spec": {"activeDeadlineSeconds": 1}}})),
            &[(
                "spec.template.spec.activeDeadlineSeconds",
                "Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
            )],
        ),
    ];
    tells(&api, &path, &of_kind("ReplicaSet", json!({})), cases).await;
    let template =
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let controller = json!({"metadata": {"name": "rc"}, "spec": {"template": template}});
    let made = api.post(&api.core("replicationcontrollers"), controller).await.expect(201).body;
    assert_eq!(made["spec"]["selector"], json!({"app": "x"}));
    assert_eq!(made["metadata"]["labels"], json!({"app": "x"}));
    api.done().await;
}

#[tokio::test]
async fn counts_of_a_status() {
    let api = Api::new().await;
    for (plural, kind, ready) in [
        ("deployments", "Deployment", "cannot be greater than readyReplicas"),
        ("statefulsets", "StatefulSet", "cannot be greater than status.readyReplicas"),
    ] {
        let path = api.group("apps/v1", plural);
        // Nothing is wanted, so that no controller writes a status.
        let mut object = of_kind(kind, json!({"replicas": 0}));
        object["metadata"]["name"] = json!("counted");
        api.post(&path, object).await.expect(201);
        let at = format!("{path}/counted/status");
        let counts = json!({"replicas": 1, "updatedReplicas": 2, "readyReplicas": 0, "availableReplicas": 1});
        let refused = api.patch(&at, "merge", json!({"status": counts})).await.fails(422, "Invalid");
        let available = format!("Invalid value: 1: {ready}");
        assert_eq!(
            causes(&refused),
            [
                ("status.updatedReplicas", "Invalid value: 2: cannot be greater than status.replicas"),
                ("status.availableReplicas", available.as_str()),
            ]
        );
        let cases: &[Told] = &[
            (json!({"replicas": 0, "collisionCount": 2}), &[]),
            (
                json!({"collisionCount": null}),
                &[("status.collisionCount", "Invalid value: 0: cannot be decremented")],
            ),
            (
                json!({"collisionCount": -1}),
                &[
                    ("status.collisionCount", "Invalid value: -1: must be greater than or equal to 0"),
                    ("status.collisionCount", "Invalid value: -1: cannot be decremented"),
                ],
            ),
        ];
        statuses(&api, &at, cases).await;
    }
    api.done().await;
}

#[tokio::test]
async fn stateful_sets_in_the_real_words() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "statefulsets");
    let update = |strategy: Value| spec(json!({"updateStrategy": strategy}));
    let value = "Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let cases: &[Told] = &[
        (
            update(json!({"type": "Magic"})),
            &[(
                "spec.updateStrategy",
                "Invalid value: {\"Type\":\"Magic\",\"RollingUpdate\":null}: must be 'RollingUpdate' or 'OnDelete'",
            )],
        ),
        (
            update(json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}})),
            &[(
                "spec.updateStrategy.rollingUpdate",
                "Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed for updateStrategy 'RollingUpdate'",
            )],
        ),
        (
            spec(json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Never"}})),
            &[(
                "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
                "Unsupported value: \"Never\": supported values: \"Retain\", \"Delete\"",
            )],
        ),
        (
            spec(json!({"serviceName": "a.b", "ordinals": {"start": -1}})),
            &[
                ("spec.ordinals.start", "Invalid value: -1: must be greater than or equal to 0"),
                ("spec.serviceName", "Invalid value: \"a.b\": must not contain dots"),
            ],
        ),
        (
            spec(json!({"selector": {"matchLabels": null}})),
            &[("spec.selector", "Invalid value: {}: empty selector is invalid for statefulset")],
        ),
        (
            spec(
                json!({"template": {"spec": {"restartPolicy": "OnFailure", "activeDeadlineSeconds": 1, "hostname": "A"}}}),
            ),
            &[
                (
                    "spec.template.spec.restartPolicy",
                    "Unsupported value: \"OnFailure\": supported values: \"Always\"",
                ),
                (
                    "spec.template.spec.activeDeadlineSeconds",
                    "Forbidden: activeDeadlineSeconds in StatefulSet is not Supported",
                ),
            ],
        ),
    ];
    tells(&api, &path, &of_kind("StatefulSet", json!({})), cases).await;
    // Labels of the template are looked at twice.
    let labelled = json!({"template": {"metadata": {"labels": {"app": "x", "b": "-"}}}});
    let refused = api.post(&path, of_kind("StatefulSet", labelled)).await.fails(422, "Invalid");
    assert_eq!(causes(&refused), [("spec.template.labels", value), ("spec.template.labels", value)]);
    let kept = json!({"revisionHistoryLimit": -1, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}});
    let made = api.post(&path, of_kind("StatefulSet", kept)).await.expect(201).body;
    assert_eq!(made["spec"]["updateStrategy"]["rollingUpdate"], json!({"partition": 0}));
    let refused = api.patch(&format!("{path}/w"), "merge", spec(json!({"serviceName": "other"}))).await;
    let why = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    assert_eq!(causes(&refused), [("spec", why)]);
    api.done().await;
}

#[tokio::test]
async fn daemon_sets_in_the_real_words() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "daemonsets");
    let rolling = |bounds: Value| spec(json!({"updateStrategy": {"rollingUpdate": bounds}}));
    let cases: &[Told] = &[
        (spec(json!({"selector": null})), &[("spec.template.metadata.labels", NO_MATCH)]),
        (
            spec(json!({"selector": {"matchLabels": null}})),
            &[("spec.selector", "Invalid value: {}: empty selector is invalid for daemonset")],
        ),
        (
            rolling(json!({"maxUnavailable": 0, "maxSurge": 0})),
            &[(
                "spec.updateStrategy.rollingUpdate.maxUnavailable",
                "Required value: cannot be 0 when maxSurge is 0",
            )],
        ),
        (
            rolling(json!({"maxSurge": 1})),
            &[(
                "spec.updateStrategy.rollingUpdate.maxSurge",
                "Invalid value: 1: may not be set when maxUnavailable is non-zero",
            )],
        ),
        (
            spec(json!({"updateStrategy": {"type": "Magic"}})),
            &[(
                "spec.updateStrategy",
                "Unsupported value: {\"Type\":\"Magic\",\"RollingUpdate\":null}: supported values: \"RollingUpdate\", \"OnDelete\"",
            )],
        ),
    ];
    let base = of_kind("DaemonSet", json!({}));
    tells(&api, &path, &base, cases).await;
    let started = json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": "4"}}});
    let made = api.post(&path, merged(&base, &started)).await.expect(201).body;
    assert_eq!(made["metadata"]["annotations"], started["metadata"]["annotations"]);
    let change = spec(json!({"template": {"spec": {"dnsPolicy": "Default"}}}));
    let now = api.patch(&format!("{path}/w"), "merge", change).await.expect(200).body;
    assert_eq!(now["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "5");
    assert_eq!(now["metadata"]["generation"], json!(2));
    api.done().await;
}

#[tokio::test]
async fn scales_of_workloads() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "statefulsets");
    let selector =
        json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
    let set = of_kind("StatefulSet", json!({"replicas": 0, "selector": selector}));
    api.post(&path, set).await.expect(201);
    let at = format!("{path}/w/scale");
    let scale = api.get(&at).await.expect(200).body;
    assert_eq!(scale["status"]["selector"], "!a,app=x");
    let refused = api.patch(&at, "merge", spec(json!({"replicas": -1}))).await.fails(422, "Invalid");
    let why = "Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(causes(&refused), [("spec.replicas", why)]);
    assert!(refused.message().starts_with("Scale.autoscaling \"w\" is invalid"), "{}", refused.message());
    api.patch(&at, "merge", spec(json!({"replicas": 2}))).await.expect(200);
    assert_eq!(api.get(&format!("{path}/w")).await.body["metadata"]["generation"], json!(2));
    api.done().await;
}

#[tokio::test]
async fn revisions_hold_objects() {
    let api = Api::new().await;
    let path = api.group("apps/v1", "controllerrevisions");
    let base = json!({"metadata": {"name": "r"}, "revision": 1, "data": {"a": 1}});
    let cases: &[Told] = &[(
        json!({"data": null, "revision": -1}),
        &[
            ("revision", "Invalid value: -1: must be greater than or equal to 0"),
            ("data", "Required value: data is mandatory"),
        ],
    )];
    tells(&api, &path, &base, cases).await;
    api.done().await;
}

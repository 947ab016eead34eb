//! Exactly what is said of Jobs and CronJobs: all causes, in their order and in the words of Kubernetes 1.36.

use super::apps::{Told, causes, statuses, tells};
use super::{job, spec};
use crate::api::Api;
use crate::table::merged;
use serde_json::{Value, json};

fn indexed(more: Value) -> Value {
    spec(merged(&json!({"completionMode": "Indexed", "completions": 5, "parallelism": 2}), &more))
}

#[tokio::test]
async fn defaults_of_a_job_depend_on_each_other() {
    let api = Api::new().await;
    let path = format!("{}?dryRun=All", api.group("batch/v1", "jobs"));
    let made = async |change: Value| api.post(&path, merged(&job(json!({})), &change)).await.expect(201).body;
    let by_index = made(indexed(json!({"backoffLimitPerIndex": 1}))).await;
    assert_eq!(by_index["spec"]["backoffLimit"], json!(2_147_483_647));
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
    let careful = made(spec(json!({"podFailurePolicy": {"rules": [rule]}}))).await;
    assert_eq!(careful["spec"]["podReplacementPolicy"], "Failed");
    assert_eq!(careful["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
    assert_eq!(careful["spec"]["manualSelector"], json!(false));
    api.done().await;
}

#[tokio::test]
async fn labels_that_the_server_generates() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "jobs");
    let dry = format!("{path}?dryRun=All");
    let template = |labels: Value| spec(json!({"template": {"metadata": {"labels": labels}}}));
    let made = async |change: Value| api.post(&dry, merged(&job(json!({})), &change)).await.expect(201).body;
    for change in [json!({}), template(json!({"a": "b"}))] {
        let made = made(change).await;
        assert_eq!(made["metadata"]["labels"], made["spec"]["template"]["metadata"]["labels"]);
        assert_eq!(made["metadata"]["labels"]["batch.kubernetes.io/job-name"], "w");
    }
    let own = merged(&template(json!({"a": "b"})), &json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(made(own).await["metadata"]["labels"], json!({"a": "b"}));
    let mut unnamed = template(json!({"a": "b"}));
    unnamed["metadata"] = json!({"name": null, "generateName": "g-"});
    assert_eq!(made(unnamed).await["metadata"]["labels"], json!({"a": "b"}));
    // What is there already is not overwritten, and refused.
    let told = async |change: Value| {
        let refused = api.post(&dry, merged(&job(json!({})), &change)).await.fails(422, "Invalid");
        let list = causes(&refused);
        list.into_iter().map(|(field, why)| (field.to_string(), why.to_string())).collect::<Vec<_>>()
    };
    let found = told(template(json!({"job-name": "other"}))).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "spec.template.metadata.labels[job-name]");
    assert!(found[0].1.starts_with("Invalid value: {\"batch.kubernetes.io/controller-uid\":"), "{found:?}");
    let selecting =
        merged(&template(json!({"a": "b"})), &spec(json!({"selector": {"matchLabels": {"a": "b"}}})));
    let found = told(selecting).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "spec.selector");
    assert!(found[0].1.ends_with("`selector` not auto-generated"), "{found:?}");
    // One that selects for itself gets nothing.
    let manual = spec(json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}));
    let made = made(merged(&template(json!({"a": "b"})), &manual)).await;
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], json!({"a": "b"}));
    api.done().await;
}

#[tokio::test]
async fn bounds_of_indexed_jobs() {
    let api = Api::new().await;
    let many = |more: Value| {
        indexed(merged(&json!({"completions": 100_001, "backoffLimitPerIndex": 1, "parallelism": 1}), &more))
    };
    let cases: &[Told] = &[
        (
            indexed(json!({"parallelism": 100_001})),
            &[(
                "spec.parallelism",
                "Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
            )],
        ),
        (
            indexed(json!({"maxFailedIndexes": 6})),
            &[
                ("spec.backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified"),
                ("spec.maxFailedIndexes", "Invalid value: 6: must be less than or equal to completions"),
            ],
        ),
        (
            many(json!({"parallelism": 10_001})),
            &[
                (
                    "spec.maxFailedIndexes",
                    "Required value: must be specified when completions is above 100000",
                ),
                (
                    "spec.parallelism",
                    "Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
                ),
            ],
        ),
        (
            many(json!({"maxFailedIndexes": 10_001})),
            &[(
                "spec.maxFailedIndexes",
                "Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
            )],
        ),
        (
            spec(json!({"completionMode": "Magic"})),
            &[(
                "spec.completionMode",
                "Unsupported value: \"Magic\": supported values: \"NonIndexed\", \"Indexed\"",
            )],
        ),
        (
            merged(&indexed(json!({"completions": 2})), &json!({"metadata": {"name": "a.b"}})),
            &[(
                "metadata.name",
                "Invalid value: \"a.b\": will not able to create pod with invalid DNS label: a.b-1",
            )],
        ),
        (
            spec(json!({"managedBy": "nobody"})),
            &[(
                "spec.managedBy",
                "Invalid value: \"nobody\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            )],
        ),
        (
            spec(json!({"managedBy": "a.io/b c"})),
            &[(
                "spec.managedBy",
                "Invalid value: \"b c\": Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
            )],
        ),
    ];
    tells(&api, &api.group("batch/v1", "jobs"), &job(json!({})), cases).await;
    api.done().await;
}

#[tokio::test]
async fn when_a_job_fails() {
    let api = Api::new().await;
    let rule = |rule: Value| spec(json!({"podFailurePolicy": {"rules": [rule]}}));
    let codes = |codes: Value| rule(json!({"action": "FailJob", "onExitCodes": codes}));
    let cases: &[Told] = &[
        (
            rule(json!({"onExitCodes": {"operator": "In", "values": [1]}})),
            &[(
                "spec.podFailurePolicy.rules[0].action",
                "Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            )],
        ),
        (
            rule(json!({"action": "FailIndex"})),
            &[
                (
                    "spec.podFailurePolicy.rules[0].action",
                    "Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
                ),
                (
                    "spec.podFailurePolicy.rules[0]",
                    "Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
                ),
            ],
        ),
        (
            codes(json!({"containerName": "d", "operator": "In", "values": [3, 2, 2, 0]})),
            &[
                (
                    "spec.podFailurePolicy.rules[0].onExitCodes.containerName",
                    "Invalid value: \"d\": must be one of the container or initContainer names in the pod template",
                ),
                ("spec.podFailurePolicy.rules[0].onExitCodes.values[2]", "Duplicate value: 2"),
                (
                    "spec.podFailurePolicy.rules[0].onExitCodes.values[3]",
                    "Invalid value: 0: must not be 0 for the In operator",
                ),
                (
                    "spec.podFailurePolicy.rules[0].onExitCodes.values",
                    "Invalid value: [3,2,2,0]: must be ordered",
                ),
            ],
        ),
        (
            merged(
                &codes(json!({"operator": "In", "values": [1]})),
                &spec(
                    json!({"podReplacementPolicy": "TerminatingOrFailed", "template": {"spec": {"restartPolicy": "OnFailure"}}}),
                ),
            ),
            &[
                (
                    "spec.podReplacementPolicy",
                    "Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
                ),
                (
                    "spec.template.spec.restartPolicy",
                    "Invalid value: \"OnFailure\": only \"Never\" is supported when podFailurePolicy is specified",
                ),
            ],
        ),
    ];
    tells(&api, &api.group("batch/v1", "jobs"), &job(json!({})), cases).await;
    api.done().await;
}

#[tokio::test]
async fn when_a_job_has_succeeded() {
    let api = Api::new().await;
    let success = |rule: Value| indexed(json!({"successPolicy": {"rules": [rule]}}));
    let cases: &[Told] = &[
        (
            spec(json!({"successPolicy": {"rules": [{"succeededCount": 1}]}})),
            &[(
                "spec.successPolicy",
                "Invalid value: {\"Rules\":[{\"SucceededIndexes\":null,\"SucceededCount\":1}]}: requires indexed completion mode",
            )],
        ),
        (
            success(json!({"succeededIndexes": "0-1,1"})),
            &[(
                "spec.successPolicy.rules[0].succeededIndexes",
                "Invalid value: \"0-1,1\": error parsing succeededIndexes: non-increasing order, previous: 1, current: 1",
            )],
        ),
        (
            success(json!({"succeededIndexes": "0-1", "succeededCount": 6})),
            &[
                (
                    "spec.successPolicy.rules[0].succeededCount",
                    "Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
                ),
                (
                    "spec.successPolicy.rules[0].succeededCount",
                    "Invalid value: 6: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
                ),
            ],
        ),
        (
            success(json!({})),
            &[(
                "spec.successPolicy.rules[0]",
                "Required value: at least one of succeededCount or succeededIndexes must be specified",
            )],
        ),
    ];
    tells(&api, &api.group("batch/v1", "jobs"), &job(json!({})), cases).await;
    api.done().await;
}

#[tokio::test]
async fn changes_of_jobs_in_the_real_words() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "jobs");
    let changed =
        async |name: &str, change: Value| api.patch(&format!("{path}/{name}"), "merge", change).await;
    let held =
        json!({"metadata": {"name": "held"}, "spec": {"suspend": true, "managedBy": "example.com/test"}});
    let job = merged(&job(json!({})), &indexed(json!({})));
    api.post(&path, merged(&job, &held)).await.expect(201);
    api.post(&path, merged(&job, &spec(json!({"managedBy": "example.com/test"})))).await.expect(201);
    // A changed spec is looked at twice.
    let negative = ("spec.parallelism", "Invalid value: -1: must be greater than or equal to 0");
    let refused = changed("w", spec(json!({"parallelism": -1}))).await.fails(422, "Invalid");
    assert_eq!(causes(&refused), [negative, negative]);
    let refused = changed("w", spec(json!({"completions": 6}))).await.fails(422, "Invalid");
    let why = "Invalid value: 6: can only be modified in tandem with spec.parallelism";
    assert_eq!(causes(&refused), [("spec.completions", why)]);
    let rules = json!({"rules": [{"succeededCount": 1}]});
    let refused = changed("w", spec(json!({"successPolicy": rules}))).await.fails(422, "Invalid");
    let why =
        "Invalid value: {\"Rules\":[{\"SucceededIndexes\":null,\"SucceededCount\":1}]}: field is immutable";
    assert_eq!(causes(&refused), [("spec.successPolicy", why)]);
    changed("w", spec(json!({"podReplacementPolicy": "Failed"}))).await.expect(200);
    // What is held back may be told where to run and with how much, and nothing else.
    let container = |image: &str| {
        let limits = json!({"limits": {"cpu": "2"}});
        spec(
            json!({"template": {"spec": {"containers": [{"name": "c", "image": image, "resources": limits}]}}}),
        )
    };
    changed("held", container("i:1")).await.expect(200);
    let refused = changed("held", container("i:2")).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "spec.template.spec")]);
    changed("held", spec(json!({"template": {"metadata": {"annotations": {"a": "b"}}}}))).await.expect(200);
    let refused = changed("w", container("i:1")).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "spec.template")]);
    // It stays so while its pods are ended, until they have.
    let at = format!("{path}/held/status");
    let suspended = json!([{"type": "Suspended", "status": "True"}]);
    let status = json!({"startTime": "2026-01-01T00:00:00Z", "active": 1, "conditions": suspended});
    api.patch(&at, "merge", json!({"status": status})).await.expect(200);
    let placed = || spec(json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}}));
    let refused = changed("held", placed()).await.fails(422, "Invalid");
    assert_eq!(refused.causes(), [("FieldValueInvalid", "spec.template")]);
    api.patch(&at, "merge", json!({"status": {"active": 0}})).await.expect(200);
    changed("held", placed()).await.expect(200);
    api.done().await;
}

#[tokio::test]
async fn statuses_of_jobs_in_the_real_words() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "jobs");
    api.post(&path, job(json!({"managedBy": "example.com/test"}))).await.expect(201);
    let cases: &[Told] = &[
        (json!({"failed": 2, "succeeded": 2, "startTime": "2026-01-01T00:00:00Z"}), &[]),
        (
            json!({"failed": 1, "succeeded": null}),
            &[
                ("status.failed", "Invalid value: 1: cannot decrease the failed counter"),
                ("status.succeeded", "Invalid value: 0: cannot decrease the succeeded counter"),
            ],
        ),
        (
            json!({"startTime": "2026-01-02T00:00:00Z"}),
            &[(
                "status.startTime",
                "Invalid value: \"2026-01-02T00:00:00Z\": field is immutable for unsuspended job once set",
            )],
        ),
        (
            json!({"completedIndexes": "0", "failedIndexes": "0"}),
            &[
                (
                    "status.completedIndexes",
                    "Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode",
                ),
                (
                    "status.failedIndexes",
                    "Invalid value: \"0\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
                ),
                (
                    "status.failedIndexes",
                    "Invalid value: \"0\": failedIndexes and completedIndexes overlap at index: 0",
                ),
            ],
        ),
        (
            json!({"uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}}),
            &[
                ("status.uncountedTerminatedPods.succeeded[1]", "Invalid value: \"\": must not be empty"),
                ("status.uncountedTerminatedPods.failed[0]", "Duplicate value: \"a\""),
            ],
        ),
        (
            json!({"ready": 2, "active": 1}),
            &[("status.ready", "Invalid value: 2: cannot set more ready pods than active")],
        ),
        (
            json!({"uncountedTerminatedPods": {"failed": ["a"]}, "conditions": [
                {"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}]}),
            &[(
                "status.uncountedTerminatedPods",
                "Invalid value: {\"Succeeded\":null,\"Failed\":[\"a\"]}: must be empty for finished job",
            )],
        ),
    ];
    statuses(&api, &format!("{path}/w/status"), cases).await;
    api.done().await;
}

#[tokio::test]
async fn indexes_in_the_status_of_a_job() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "jobs");
    let managed = json!({"managedBy": "example.com/test"});
    let elastic = merged(&job(managed), &indexed(json!({"completions": 2, "backoffLimitPerIndex": 1})));
    api.post(&path, merged(&elastic, &json!({"metadata": {"name": "elastic"}}))).await.expect(201);
    let cases: &[Told] = &[
        (json!({"succeeded": 2, "completedIndexes": "0,1"}), &[]),
        (
            json!({"completedIndexes": "0-2"}),
            &[(
                "status.completedIndexes",
                "Invalid value: \"0-2\": error parsing completedIndexes: too large index: \"2\"",
            )],
        ),
        (
            json!({"failedIndexes": "1,0"}),
            &[
                (
                    "status.failedIndexes",
                    "Invalid value: \"1,0\": error parsing failedIndexes: non-increasing order, previous: 1, current: 0",
                ),
                (
                    "status.failedIndexes",
                    "Invalid value: \"1,0\": failedIndexes and completedIndexes overlap at index: 1",
                ),
            ],
        ),
        // One that shrinks with its pods loses completions.
        (json!({"succeeded": 1, "completedIndexes": "0"}), &[]),
    ];
    statuses(&api, &format!("{path}/elastic/status"), cases).await;
    api.done().await;
}

#[tokio::test]
async fn cron_jobs_in_the_real_words() {
    let api = Api::new().await;
    let path = api.group("batch/v1", "cronjobs");
    let base = json!({"metadata": {"name": "c"},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job(json!({}))["spec"]}}});
    let at = |schedule: &str| spec(json!({"schedule": schedule}));
    let zone = |name: &str| spec(json!({"timeZone": name}));
    let template = |spec_of_job: Value| spec(json!({"jobTemplate": {"spec": spec_of_job}}));
    let cases: &[Told] = &[
        (at(""), &[("spec.schedule", "Required value")]),
        (
            at("* * *"),
            &[("spec.schedule", "Invalid value: \"* * *\": expected exactly 5 fields, found 3: [* * *]")],
        ),
        (at("@never"), &[("spec.schedule", "Invalid value: \"@never\": unrecognized descriptor: @never")]),
        (
            at("TZ=Mars * * * * *"),
            &[
                (
                    "spec.schedule",
                    "Invalid value: \"TZ=Mars * * * * *\": provided bad location Mars: unknown time zone Mars",
                ),
                (
                    "spec.schedule",
                    "Invalid value: \"TZ=Mars * * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
                ),
            ],
        ),
        (zone(""), &[("spec.timeZone", "Invalid value: \"\": timeZone must be nil or non-empty string")]),
        (zone("a//b"), &[("spec.timeZone", "Invalid value: \"a//b\": unknown time zone a//b")]),
        (
            zone("Local"),
            &[(
                "spec.timeZone",
                "Invalid value: \"Local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            )],
        ),
        (
            template(json!({"selector": {"matchLabels": {"a": "b"}}, "manualSelector": true})),
            &[
                (
                    "spec.jobTemplate.spec.selector",
                    "Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` will be auto-generated",
                ),
                (
                    "spec.jobTemplate.spec.manualSelector",
                    "Unsupported value: true: supported values: \"nil\", \"false\"",
                ),
            ],
        ),
        (
            merged(
                &spec(json!({"failedJobsHistoryLimit": -1})),
                &json!({"metadata": {"name": "c".repeat(53)}}),
            ),
            &[
                ("spec.failedJobsHistoryLimit", "Invalid value: -1: must be greater than or equal to 0"),
                (
                    "metadata.name",
                    "Invalid value: \"ccccccccccccccccccccccccccccccccccccccccccccccccccccc\": must be no more than 52 characters",
                ),
            ],
        ),
    ];
    tells(&api, &path, &base, cases).await;
    // The template of its Jobs has no more defaults than a template of pods has.
    let made = api.post(&path, base).await.expect(201).body;
    let inner = &made["spec"]["jobTemplate"]["spec"];
    assert_eq!(
        (inner.get("backoffLimit"), &inner["template"]["spec"]["dnsPolicy"]),
        (None, &json!("ClusterFirst"))
    );
    // The status is the controller's own.
    let told = json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}});
    api.patch(&format!("{path}/c/status"), "merge", told).await.expect(200);
    api.done().await;
}

//! A tenant who may write jobs, policies and overrides in one namespace of the hub gets no more than its own: no
//! object outside its namespace, no second run, no quota beside what is counted.
//!
//! Judged by the pods that ran in the members, not by what Fleet wrote about them.

use std::{collections::BTreeMap, time::Duration};

use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    jobs::{Job, Queueing, gang_policy, quota_tree},
    objects::{self, BATCH_JOB, BINDING, CONFIG_MAP, POD, PYTORCH_JOB},
    wait_for,
};
use serde_json::{Value, json};

const GPU: &str = "nvidia.com/gpu";

/// A fleet with a leaf of `gpus` GPUs for the namespace `default`, whose jobs are queued.
async fn fleet(members: &str, gpus: i64) -> anyhow::Result<TestFleet> {
    let fleet = FleetSpec::of(members).start().await?;
    fleet.apply(&quota_tree(json!({GPU: gpus}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    Ok(fleet)
}

fn overrides(name: &str, overriders: Value) -> Value {
    json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"overrideRules": [{"overriders": overriders}]}})
}

fn plaintext(path: &str, value: Value) -> Value {
    json!({"plaintext": [{"path": path, "operator": "replace", "value": value}]})
}

/// The most GPUs that pods on nodes held at one moment, over all members.
fn most_gpus(fleet: &TestFleet) -> i64 {
    let mut held: BTreeMap<(String, String), i64> = BTreeMap::new();
    let (mut now, mut most) = (0, 0);
    for change in &fleet.history().changes {
        let (Some(cluster), pod) = (&change.cluster, &change.object) else { continue };
        let key = (cluster.clone(), pod["metadata"]["uid"].as_str().unwrap_or_default().to_string());
        let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let holds = !change.gone && !ended && pod["spec"]["nodeName"].is_string();
        let asked = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
            let amount = &container["resources"]["requests"][GPU];
            amount.as_str().and_then(|text| text.parse().ok()).or(amount.as_i64()).unwrap_or(0)
        });
        let gpus = if holds { asked.sum() } else { 0 };
        now += gpus - held.insert(key, gpus).unwrap_or(0);
        most = most.max(now);
    }
    most
}

async fn wait_waiting(fleet: &TestFleet, name: &str, reason: &str) -> anyhow::Result<String> {
    let binding = fleet.wait_reason(PYTORCH_JOB, name, reason).await?;
    let message = objects::condition(&binding, "Scheduled").map(|told| told["message"].clone());
    Ok(message.and_then(|message| message.as_str().map(str::to_string)).unwrap_or_default())
}

/// Namespace, name, kind and API version of what a member is asked to apply are nobody's to override.
#[tokio::test]
async fn an_override_changes_nothing_of_an_objects_identity() -> anyhow::Result<()> {
    let fleet = fleet("east 2x4", 8).await?;
    let attacks = [
        ("/metadata/namespace", json!("kube-system")),
        ("/metadata/name", json!("second")),
        ("/kind", json!("TFJob")),
        ("/apiVersion", json!("v1")),
        ("/metadata", json!({"name": "a", "namespace": "kube-system"})),
    ];
    for (at, (path, value)) in attacks.into_iter().enumerate() {
        fleet.apply(&overrides("attack", plaintext(path, value))).await?;
        let name = format!("job-{at}");
        fleet.apply(&Job::pytorch(&name).runs("forever").manifest()).await?;
        let message = wait_waiting(&fleet, &name, "OverrideInvalid").await?;
        assert!(message.contains("override policy attack: /"), "{message}");
        fleet.delete(PYTORCH_JOB, "default", &name).await?;
    }
    assert_eq!(fleet.member_objects(PYTORCH_JOB).await?, []);
    assert_eq!(most_gpus(&fleet), 0);
    fleet.finish().await
}

/// What an override makes of a running job waits for its next run, and what it asks for is counted then.
#[tokio::test]
async fn an_override_starts_no_second_run_and_gives_no_quota() -> anyhow::Result<()> {
    let fleet = fleet("east 4x4", 3).await?;
    fleet.apply(&Job::pytorch("a").workers(2).runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    let more = json!({"plaintext": [
        {"path": "/spec/pytorchReplicaSpecs/Worker/replicas", "operator": "replace", "value": 12}]});
    fleet.apply(&overrides("more", more)).await?;
    fleet
        .wait_for("the change to wait for the next run", async || {
            let binding = fleet.binding(PYTORCH_JOB, "a").await.unwrap_or_default();
            let pending = objects::condition(&binding, "EditPending").cloned().unwrap_or_default();
            let told = pending["status"] == "True"
                && pending["message"].as_str().is_some_and(|m| m.contains("spec.pytorchReplicaSpecs"));
            Ok(Polled::when(told, || binding["status"].to_string()))
        })
        .await?;
    // A new job is counted as it would be sent.
    fleet.apply(&Job::pytorch("b").workers(1).runs("forever").manifest()).await?;
    let message = wait_waiting(&fleet, "b", "ExceedsQuota").await?;
    assert!(message.contains("13"), "{message}");
    // Requests of the pods count likewise.
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    fleet.delete(PYTORCH_JOB, "default", "b").await?;
    let amounts = json!({"cpu": "1", GPU: "4"});
    let large = json!({"plaintext": [
        {"path": "/spec/pytorchReplicaSpecs/Master/template/spec/containers/0/resources", "operator": "replace",
            "value": {"requests": amounts, "limits": amounts}}]});
    fleet.apply(&overrides("more", large)).await?;
    fleet.apply(&Job::pytorch("c").workers(1).runs("forever").manifest()).await?;
    let message = wait_waiting(&fleet, "c", "ExceedsQuota").await?;
    assert!(message.contains('5'), "{message}");
    assert!(most_gpus(&fleet) <= 3, "{}", most_gpus(&fleet));
    fleet.finish().await
}

/// An override for one cluster is counted where the job may go, reserved as it is sent, and sent as it was reserved.
#[tokio::test]
async fn an_override_that_fits_is_counted_reserved_and_sent() -> anyhow::Result<()> {
    let fleet = fleet("east 4x4", 6).await?;
    let more = json!({"plaintext": [
        {"path": "/spec/pytorchReplicaSpecs/Worker/replicas", "operator": "replace", "value": 5}]});
    fleet.apply(&overrides("more", more)).await?;
    fleet.apply(&Job::pytorch("a").workers(1).runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Running").await?;
    let binding = fleet.binding(PYTORCH_JOB, "a").await?;
    assert_eq!(binding["spec"]["components"][1]["replicas"], 5);
    assert_eq!(fleet.pods_of("a").await?.len(), 6);
    assert_eq!(most_gpus(&fleet), 6);
    fleet.finish().await
}

/// Workers from 1 to 20 within milliseconds of the job's creation: whatever the order of claim, reservation and bind,
/// no pod runs that was not counted.
#[tokio::test]
async fn an_edit_right_after_the_creation_passes_no_quota() -> anyhow::Result<()> {
    let fleet = fleet("east 8x8", 4).await?;
    for n in 0..24 {
        let name = format!("job-{n}");
        fleet.apply(&Job::pytorch(&name).workers(1).runs("100ms").manifest()).await?;
        tokio::time::sleep(Duration::from_millis(n * 4 % 80)).await;
        let (role, amount) = if n % 2 == 0 { ("Worker", json!(20)) } else { ("Master", json!(20)) };
        let edit = json!({"spec": {"pytorchReplicaSpecs": {role: {"replicas": amount}}}});
        // It may be over already.
        let _ = objects::merge(&fleet.hub(), PYTORCH_JOB, "default", &name, &edit).await;
    }
    fleet
        .wait_for("every job to have ended or to wait", async || {
            let mut left = Vec::new();
            for binding in objects::list(&fleet.hub(), BINDING).await? {
                let waits =
                    objects::condition(&binding, "Scheduled").is_some_and(|c| c["reason"] == "ExceedsQuota");
                if binding["status"]["result"].is_null() && !waits {
                    left.push(binding["metadata"]["name"].to_string());
                }
            }
            Ok(Polled::when(left.is_empty(), || left.join(" ")))
        })
        .await?;
    assert!(most_gpus(&fleet) <= 4, "{} GPUs ran in a leaf of 4", most_gpus(&fleet));
    fleet.finish().await
}

/// A job that says it is over while its workers run on keeps its quota until they have ended.
#[tokio::test]
async fn workers_that_outlive_their_job_keep_its_quota() -> anyhow::Result<()> {
    let fleet = fleet("east 4x4", 3).await?;
    for name in ["a", "b", "c"] {
        let mut job = Job::pytorch(name).workers(2).manifest();
        job["metadata"]["annotations"]["fleet.dev/after-end"] = json!("3s");
        for (role, time) in [("Master", "200ms"), ("Worker", "1000s")] {
            job["spec"]["pytorchReplicaSpecs"][role]["template"]["metadata"] =
                json!({"annotations": {fleet_api::names::SIM_RUNTIME_ANNOTATION: time}});
        }
        fleet.apply(&job).await?;
    }
    for name in ["a", "b", "c"] {
        fleet.wait_state(PYTORCH_JOB, name, "Succeeded").await?;
    }
    assert!(most_gpus(&fleet) <= 3, "{} GPUs ran in a leaf of 3", most_gpus(&fleet));
    fleet
        .wait_for("the workers to be deleted", async || {
            let pods = fleet.member_objects(POD).await?;
            let live = pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Running").count();
            Ok(Polled::when(live == 0, || format!("{live} run")))
        })
        .await?;
    fleet.finish().await
}

/// A job that is deleted keeps its quota until its pods are gone, however long they take to end.
#[tokio::test]
async fn a_deleted_job_keeps_its_quota_until_its_pods_are_gone() -> anyhow::Result<()> {
    let fleet = fleet("east 4x4", 2).await?;
    for n in 0..6 {
        let name = format!("job-{n}");
        let pod = json!({"terminationGracePeriodSeconds": 1});
        fleet.apply(&Job::pytorch(&name).workers(1).pod(pod).runs("forever").manifest()).await?;
        fleet.wait_state(PYTORCH_JOB, &name, "Running").await?;
        fleet.delete(PYTORCH_JOB, "default", &name).await?;
    }
    assert!(most_gpus(&fleet) <= 2, "{} GPUs ran in a leaf of 2", most_gpus(&fleet));
    fleet.finish().await
}

/// Two kinds with one lower-case name, and names as long as names may be.
#[tokio::test]
async fn any_legal_name_of_any_kind_works() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 4x4").start().await?;
    let mut policy = gang_policy(Queueing::AtOnce);
    let also = [("batch.volcano.sh/v1alpha1", "Job"), ("v1", "ConfigMap")];
    for (api_version, kind) in also {
        let selectors = policy["spec"]["resourceSelectors"].as_array_mut();
        selectors.expect("a list").push(json!({"apiVersion": api_version, "kind": kind}));
    }
    fleet.apply(&policy).await?;
    fleet.apply(&Job::batch("x").manifest()).await?;
    let volcano = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "x", "namespace": "default"}, "spec": {"minAvailable": 1, "schedulerName": "volcano",
            "tasks": [{"name": "t", "replicas": 1, "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
                "template": {"spec": {"containers": [{"name": "c", "image": "i",
                    "resources": {"requests": {"cpu": "1"}}}]}}}]}});
    fleet.apply(&volcano).await?;
    let long: Vec<String> = [200, 240, 253].iter().map(|length| "n".repeat(*length)).collect();
    for name in &long {
        fleet
            .apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
                "metadata": {"name": name, "namespace": "default"}}))
            .await?;
    }
    let ended = async |kind, path: &str, wanted: &str| {
        fleet
            .wait_for(&format!("{wanted} at {path}"), async || {
                let job = fleet.get(kind, "default", "x").await?.unwrap_or_default();
                let found = job.pointer(path).cloned().unwrap_or_default();
                Ok(Polled::when(found.to_string().contains(wanted), || job["status"].to_string()))
            })
            .await
    };
    ended(BATCH_JOB, "/status/conditions", "Complete").await?;
    ended(objects::VOLCANO_JOB, "/status/state/phase", "Completed").await?;
    let member = fleet.member("east")?;
    for name in &long {
        fleet
            .wait_for("the ConfigMap in the member", async || {
                let found = objects::get(&member, CONFIG_MAP, "default", name).await?;
                Ok(Polled::when(found.is_some(), || format!("none of {} characters", name.len())))
            })
            .await?;
    }
    fleet.finish().await
}

/// A job that is too large with what it depends on says so at once, and takes nothing.
#[tokio::test]
async fn a_job_that_is_too_large_says_so() -> anyhow::Result<()> {
    let fleet = fleet("east 2x4", 8).await?;
    let mut from = Vec::new();
    for n in 0..5 {
        let name = format!("large-{n}");
        let data = "x".repeat(900 * 1024);
        fleet
            .apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data},
                "metadata": {"name": name, "namespace": "default"}}))
            .await?;
        from.push(json!({"configMapRef": {"name": name}}));
    }
    fleet.apply(&Job::pytorch("a").container(json!({"envFrom": from})).manifest()).await?;
    let message = wait_waiting(&fleet, "a", "WorkloadTooLarge").await?;
    assert!(message.contains("its 5 dependencies") && message.contains("allowed: 1200000"), "{message}");
    let binding = fleet.binding(PYTORCH_JOB, "a").await?;
    assert_eq!(binding["spec"]["epoch"], 0, "{binding:#}");
    fleet.finish().await
}

/// Pods get no more than the level of their namespace on the hub allows, in the template or by an override.
#[tokio::test]
async fn pods_keep_the_security_level_of_their_namespace() -> anyhow::Result<()> {
    let fleet = fleet("east 2x4", 8).await?;
    let level = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    objects::merge(&fleet.hub(), objects::NAMESPACE, "", "default", &level).await?;
    fleet.apply(&Job::pytorch("a").pod(json!({"hostPID": true})).manifest()).await?;
    let message = wait_waiting(&fleet, "a", "PodSecurityViolation").await?;
    assert!(
        message.contains("hostPID: found true; allowed at pod security level baseline: false"),
        "{message}"
    );
    fleet.delete(PYTORCH_JOB, "default", "a").await?;
    let privileged = json!({"plaintext": [
        {"path": "/spec/pytorchReplicaSpecs/Worker/template/spec/hostPID", "operator": "add", "value": true}]});
    fleet.apply(&overrides("more", privileged)).await?;
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    wait_waiting(&fleet, "b", "PodSecurityViolation").await?;
    assert_eq!(fleet.member_objects(POD).await?, []);
    fleet.finish().await
}

/// What the account `fleet` of namespace `default` may do in a member.
fn grant(rules: Value) -> [Value; 2] {
    let api = "rbac.authorization.k8s.io";
    let meta = json!({"name": "fleet", "namespace": "default"});
    [
        json!({"apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": meta, "rules": rules}),
        json!({"apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "fleet"},
            "subjects": [{"kind": "ServiceAccount", "name": "fleet", "namespace": "default"}]}),
    ]
}

/// The member's own roles decide what is applied under an account of the namespace, and no more than that: what Fleet has
/// made there it takes away by its own right.
#[tokio::test]
async fn the_roles_of_a_members_account_bound_what_is_applied_there() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x4").impersonating("fleet").start().await?;
    let member = fleet.member("east")?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    fleet.apply(&Job::pytorch("train").runs("forever").manifest()).await?;
    let binding = fleet.wait_reason(PYTORCH_JOB, "train", "NotPermitted").await?;
    let waits = objects::condition(&binding, "Scheduled").cloned().unwrap_or_default();
    let told = waits["message"].as_str().unwrap_or_default();
    let right = "create pytorchjobs.kubeflow.org";
    for part in [
        format!(
            "system:serviceaccount:default:fleet (--impersonate) may not {right} in namespace default of the member"
        ),
        "allowed with a role for ServiceAccount default/fleet that has create on pytorchjobs.kubeflow.org"
            .to_owned(),
    ] {
        anyhow::ensure!(told.contains(&part), "{told}");
    }
    let attempts = &binding["status"]["attempts"];
    assert_eq!(
        (&attempts[0]["reason"], attempts.as_array().map(Vec::len)),
        (&json!("NotPermitted"), Some(1))
    );
    for granted in grant(
        json!([{"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["create", "patch"]}]),
    ) {
        objects::apply(&member, &granted).await?;
    }
    let long = Duration::from_secs(60);
    wait_for("the job to run where it is permitted now", long, async || {
        let state = fleet.job_state(PYTORCH_JOB, "train").await?;
        Ok(Polled::when(state == "Running", || state.clone()))
    })
    .await?;
    // Whatever becomes of the account, a run that is over goes.
    objects::delete(&member, objects::ROLE_BINDING, "default", "fleet").await?;
    fleet.delete(PYTORCH_JOB, "default", "train").await?;
    fleet
        .wait_for("the member to be clean", async || {
            let left = objects::list(&member, PYTORCH_JOB).await?.len()
                + objects::list(&member, objects::POD).await?.len();
            Ok(Polled::when(left == 0, || left.to_string()))
        })
        .await?;
    fleet.finish().await
}

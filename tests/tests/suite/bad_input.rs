//! Bad input gets one clear error that names object, field, found and allowed, and changes nothing.

use std::path::Path;

use anyhow::Context;
use fleet_tests::{
    FleetProcess, FleetSpec, TestFleet,
    jobs::{Job, POLICY_NAME, Queueing, gang_policy, quota_tree},
    kubectl::{Said, Shell},
    objects::{self, BINDING, Kind, POLICY, PYTORCH_JOB, QUOTA_TREE},
    process::{fleet_binary, ports_in_a_row},
    wait::Polled,
};
use serde_json::{Value, json};

/// Waits until an object's condition is False with this reason; returns its message.
async fn wait_refused(
    fleet: &TestFleet,
    kind: Kind,
    namespace: &str,
    name: &str,
    condition: &str,
    reason: &str,
) -> anyhow::Result<String> {
    fleet
        .wait_for(&format!("{} {name} to be {condition}=False, {reason}", kind.kind), async || {
            let found = fleet.get(kind, namespace, name).await?.unwrap_or_default();
            let seen = objects::condition(&found, condition).cloned().unwrap_or_default();
            let right = seen["status"] == "False" && seen["reason"] == reason;
            let message = seen["message"].as_str().unwrap_or_default().to_string();
            Ok(if right { Polled::Yes(message) } else { Polled::NotYet(found["status"].to_string()) })
        })
        .await
}

/// What `kubectl get elasticquotatrees` prints under VALID.
async fn valid_by_name(fleet: &TestFleet) -> anyhow::Result<Value> {
    let request = http::Request::get("/apis/scheduling.sigs.k8s.io/v1beta1/elasticquotatrees")
        .header(http::header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = fleet.hub().request(request).await?;
    let column = |name: &str| {
        let columns = table["columnDefinitions"].as_array().into_iter().flatten();
        columns.map(|column| &column["name"]).position(|column| column == name)
    };
    let (name, valid) = column("Name").zip(column("VALID")).context("a column VALID")?;
    let rows = table["rows"].as_array().into_iter().flatten().map(|row| &row["cells"]);
    Ok(rows
        .map(|cells| (cells[name].as_str().unwrap_or_default().to_string(), cells[valid].clone()))
        .collect())
}

/// The same sentence stands in a warning event about the object.
async fn wait_warned(fleet: &TestFleet, kind: Kind, name: &str, message: &str) -> anyhow::Result<()> {
    fleet
        .wait_for(&format!("a warning about {} {name}", kind.kind), async || {
            let events = fleet.events_of(kind, name).await?;
            let told = events.iter().any(|event| event["type"] == "Warning" && event["message"] == message);
            Ok(Polled::when(told, || json!(events).to_string()))
        })
        .await
}

#[track_caller]
fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[tokio::test]
async fn a_policy_with_both_forms_of_affinity() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["spec"]["placement"]["clusterAffinity"] = json!({"clusterNames": ["east"]});
    policy["spec"]["placement"]["clusterAffinities"] =
        json!([{"affinityName": "a", "clusterNames": ["east"]}]);
    // A server that knows validation rules refuses it; elsewhere the controller does not act on it.
    match objects::create(&fleet.hub(), &policy).await {
        Err(error) => assert_says(&error.to_string(), &["placement", "clusterAffinity", "clusterAffinities"]),
        Ok(()) => {
            let message =
                wait_refused(&fleet, POLICY, "default", POLICY_NAME, "Valid", "PolicyInvalid").await?;
            assert_says(&message, &["clusterAffinity", "clusterAffinities", "found", "allowed"]);
            wait_warned(&fleet, POLICY, POLICY_NAME, &message).await?;
        }
    }
    fleet.apply(&Job::pytorch("a").manifest()).await?;
    // A second policy governs a second job; when that has ended, the first was looked at long ago.
    let mut good = gang_policy(Queueing::AtOnce);
    good["metadata"]["name"] = "good".into();
    good["spec"]["resourceSelectors"] =
        json!([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "b"}]);
    fleet.apply(&good).await?;
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    assert_eq!(fleet.get(BINDING, "default", "a-pytorchjob").await?, None);
    fleet.finish().await
}

#[tokio::test]
async fn a_field_that_does_not_exist() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["spec"]["placemnt"] = json!({});
    let error = format!("{:#}", fleet.apply(&policy).await.expect_err("refused"));
    assert_says(&error, &["spec.placemnt"]);
    assert_eq!(fleet.get(POLICY, "default", POLICY_NAME).await?, None);
    let mut policy = gang_policy(Queueing::AtOnce);
    policy["spec"]["propagateDeps"] = json!(true);
    policy["spec"]["failover"] = json!({"application": {"purgeMode": "Quickly"}});
    let error = format!("{:#}", fleet.apply(&policy).await.expect_err("refused"));
    assert_says(&error, &["spec.failover.application.purgeMode", "Quickly", "Directly", "Gracefully"]);
    fleet.finish().await
}

#[tokio::test]
async fn a_job_that_no_cluster_could_hold() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x4, west 1x8").start().await?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 1}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    fleet.apply(&Job::pytorch("huge").gpus(9).manifest()).await?;
    let binding = fleet.wait_reason(PYTORCH_JOB, "huge", "ExceedsEveryCluster").await?;
    let message =
        objects::condition(&binding, "Scheduled").map(|c| c["message"].to_string()).unwrap_or_default();
    assert_says(&message, &["nvidia.com/gpu", "18", "{master 1} {worker 1}", "east", "west"]);
    fleet.wait_state(PYTORCH_JOB, "huge", "Queuing").await?;
    // It holds no quota: the only job that may run is another.
    fleet.apply(&Job::pytorch("small").runs("forever").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "small", "Running").await?;
    assert_eq!(fleet.job_state(PYTORCH_JOB, "huge").await?, "Queuing");
    fleet.finish().await
}

#[tokio::test]
async fn a_second_tree() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 5}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    fleet.apply(&Job::pytorch("a").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    let mut second = quota_tree(json!({"kube-queue/max-jobs": 0}));
    second["metadata"]["name"] = "zzz".into();
    fleet.apply(&second).await?;
    let message = wait_refused(&fleet, QUOTA_TREE, "kube-system", "zzz", "Valid", "QuotaTreeInvalid").await?;
    assert_says(&message, &["kube-system/zzz", "found", "allowed", "one tree", "kube-system/tree"]);
    wait_warned(&fleet, QUOTA_TREE, "zzz", &message).await?;
    assert_eq!(valid_by_name(&fleet).await?, json!({"tree": "True", "zzz": "False"}));
    // The first one is in force: under the second no job could run.
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    let queues = objects::list(&fleet.hub(), objects::QUEUE).await?;
    assert_eq!(queues.len(), 2);
    fleet.finish().await
}

#[tokio::test]
async fn a_namespace_in_two_leaves() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    let tree = quota_tree(json!({"kube-queue/max-jobs": 5}));
    fleet.apply(&tree).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    fleet.apply(&Job::pytorch("a").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "a", "Succeeded").await?;
    let mut broken = tree;
    broken["spec"]["root"]["children"] = json!([
        {"name": "team", "namespaces": ["default"]}, {"name": "other", "namespaces": ["default"]}]);
    fleet.apply(&broken).await?;
    let message =
        wait_refused(&fleet, QUOTA_TREE, "kube-system", "tree", "Valid", "QuotaTreeInvalid").await?;
    assert_says(&message, &["\"default\"", "root/team", "root/other", "allowed"]);
    wait_warned(&fleet, QUOTA_TREE, "tree", &message).await?;
    // The last usable tree stays in force.
    fleet.apply(&Job::pytorch("b").manifest()).await?;
    fleet.wait_state(PYTORCH_JOB, "b", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_tree_whose_rules_are_broken_works_with_a_warning() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8").start().await?;
    fleet.apply_file(&fleet_tests::walkthrough("elasticquotatree.yaml")).await?;
    let name = "elasticquotatree";
    let message =
        wait_refused(&fleet, QUOTA_TREE, "kube-system", name, "RulesKept", "QuotaTreeWarning").await?;
    assert_says(&message, &["root", "max", "min"]);
    wait_warned(&fleet, QUOTA_TREE, name, &message).await?;
    let tree = fleet.get(QUOTA_TREE, "kube-system", name).await?.unwrap_or_default();
    let valid = objects::condition(&tree, "Valid").cloned().unwrap_or_default();
    assert_eq!(valid["status"], "True", "{tree}");
    fleet.apply_file(&fleet_tests::walkthrough("propagationpolicy-gang-queued.yaml")).await?;
    fleet.apply_file(&fleet_tests::walkthrough("pytorchjob.yaml")).await?;
    fleet.wait_state(PYTORCH_JOB, "pytorch-test", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_job_in_no_leaf_and_a_job_with_an_unreadable_request() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    let mut tree = quota_tree(json!({}));
    tree["spec"]["root"]["children"][0]["namespaces"] = json!(["elsewhere"]);
    fleet.apply(&tree).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    fleet.apply(&Job::pytorch("lost").manifest()).await?;
    let binding = fleet.wait_reason(PYTORCH_JOB, "lost", "NotInQuotaTree").await?;
    let text =
        objects::condition(&binding, "Scheduled").map(|c| c["message"].to_string()).unwrap_or_default();
    assert_says(&text, &["default"]);
    let mut odd = Job::pytorch("odd").manifest();
    odd["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(-1);
    match objects::create(&fleet.hub(), &odd).await {
        Err(error) => assert_says(&error.to_string(), &["replicas"]),
        Ok(()) => {
            fleet
                .wait_for("a warning that names the field", async || {
                    let events = fleet.events_of(PYTORCH_JOB, "odd").await?;
                    let text = json!(events).to_string();
                    let told =
                        text.contains("spec.pytorchReplicaSpecs.Worker.replicas") && text.contains("-1");
                    Ok(Polled::when(told, || text.clone()))
                })
                .await?;
        }
    }
    fleet.finish().await
}

/// The controller looks at all jobs again whenever one is submitted. What it says of one that can never run stays said once.
#[tokio::test]
async fn a_job_that_can_never_run_is_told_once_whatever_else_is_submitted() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").start().await?;
    fleet.apply(&gang_policy(Queueing::AtOnce)).await?;
    let wrong = Job::pytorch("wrong").pod(json!({"priorityClassName": "system-node-critical"}));
    fleet.apply(&wrong.manifest()).await?;
    let told = async || -> anyhow::Result<Vec<Value>> {
        let mut events = fleet.events_of(PYTORCH_JOB, "wrong").await?;
        events.retain(|event| event["reason"] == "InvalidWorkload");
        Ok(events)
    };
    fleet
        .wait_for("a warning about the job", async || {
            let events = told().await?;
            Ok(Polled::when(!events.is_empty(), || json!(events).to_string()))
        })
        .await?;
    fleet.wait_state(PYTORCH_JOB, "wrong", "InvalidWorkload").await?;
    let before = fleet.get(PYTORCH_JOB, "default", "wrong").await?.unwrap_or_default();
    for number in 0..3 {
        let name = format!("right-{number}");
        fleet.apply(&Job::pytorch(&name).manifest()).await?;
        fleet.wait_state(PYTORCH_JOB, &name, "Succeeded").await?;
    }
    let events = told().await?;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0]["count"].is_null() || events[0]["count"] == 1, "{events:?}");
    assert_says(events[0]["message"].as_str().unwrap_or_default(), &["system-node-critical", "allowed"]);
    let after = fleet.get(PYTORCH_JOB, "default", "wrong").await?.unwrap_or_default();
    assert_eq!(
        after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
        "nothing is written"
    );
    assert_eq!(fleet.get(BINDING, "default", "wrong-pytorchjob").await?, None);
    fleet.finish().await
}

/// `fleet explain -o json` names the trees that are not in force, beside the limits that are.
#[tokio::test]
async fn a_tree_that_is_not_in_force_is_in_the_data_of_explain() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").listening().start().await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, fleet.kubeconfig().context("a hub that listens")?)?;
    fleet.apply(&quota_tree(json!({"kube-queue/max-jobs": 1}))).await?;
    fleet.apply(&gang_policy(Queueing::Queued)).await?;
    for name in ["first", "second"] {
        fleet.apply(&Job::pytorch(name).runs("forever").manifest()).await?;
        let state = if name == "first" { "Running" } else { "Queuing" };
        fleet.wait_state(PYTORCH_JOB, name, state).await?;
    }
    let explained = async || -> anyhow::Result<Value> {
        let said = fleet_says(&kubeconfig, "explain second -o json").await?;
        serde_json::from_str(&said.stdout).with_context(|| said.to_string())
    };
    let found = explained().await?;
    assert_eq!((&found["job"], &found["notInForce"]), (&json!("default/second"), &Value::Null), "{found}");
    let mut broken = quota_tree(json!({"kube-queue/max-jobs": 9}));
    broken["spec"]["root"]["children"] = json!([
        {"name": "team", "namespaces": ["default"]}, {"name": "other", "namespaces": ["default"]}]);
    fleet.apply(&broken).await?;
    wait_refused(&fleet, QUOTA_TREE, "kube-system", "tree", "Valid", "QuotaTreeInvalid").await?;
    let found = explained().await?;
    let told = found["notInForce"].as_str().unwrap_or_default();
    assert_says(
        told,
        &["INVALID: ElasticQuotaTree tree: ", "root/other", "In force: ElasticQuotaTree tree, generation 1"],
    );
    let most: Vec<&Value> = found["quota"].as_array().into_iter().flatten().collect();
    assert!(most.iter().any(|node| node["max"]["kube-queue/max-jobs"] == "1"), "{found}");
    fleet.finish().await
}

/// Runs `fleet WORD..` with this kubeconfig.
async fn fleet_says(kubeconfig: &Path, line: &str) -> anyhow::Result<Said> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Shell::new(kubeconfig, Path::new("/nowhere"))?.run(&fleet_binary()?, &words).await
}

#[tokio::test]
async fn an_unreadable_kubeconfig() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let missing = folder.path().join("missing");
    let said = fleet_says(&missing, "clusters").await?;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said}");
    assert_says(&said.stderr, &["error:", "KUBECONFIG", &missing.display().to_string()]);
    assert_eq!(said.stderr.lines().count(), 1, "{said}");

    let broken = folder.path().join("broken");
    std::fs::write(&broken, "clusters: {")?;
    let said = fleet_says(&missing, &format!("clusters --kubeconfig {}", broken.display())).await?;
    assert_eq!(said.code, Some(1), "{said}");
    assert_says(&said.stderr, &["error:", &broken.display().to_string()]);

    let empty = folder.path().join("empty");
    std::fs::write(&empty, "apiVersion: v1\nkind: Config\n")?;
    let said = fleet_says(&empty, "clusters").await?;
    assert_eq!(said.code, Some(1), "{said}");
    assert_says(&said.stderr, &["error:", "current-context"]);
    Ok(())
}

#[tokio::test]
async fn a_data_directory_in_use_and_a_port_taken() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (home, other) = (folder.path().join("home"), folder.path().join("other"));
    let small = ["--members", "1", "--nodes", "1"];
    let port = ports_in_a_row(4)?;
    let first = FleetProcess::up(&home, port, &small).await?;

    let mut second = FleetProcess::start(&home, port + 2, &small)?;
    assert_eq!(second.wait().await?, Some(1), "{}", second.output());
    assert_says(&second.output(), &["error:", "in use by another process", &home.display().to_string()]);

    let mut third = FleetProcess::start(&other, port, &small)?;
    assert_eq!(third.wait().await?, Some(1), "{}", third.output());
    assert_says(&third.output(), &["error:", &format!("port {port}"), "taken", "--port"]);

    // The first one never noticed.
    let kubeconfig = home.join("kubeconfig");
    let said = fleet_says(&kubeconfig, "clusters -o json").await?;
    let clusters: Value = serde_json::from_str(&said.stdout)?;
    assert_eq!(clusters["items"].as_array().map(Vec::len), Some(1), "{said}");
    assert_eq!(first.interrupt().await?, Some(0));
    // And it has let go of the directory.
    let again = FleetProcess::up(&home, port, &[]).await?;
    assert_eq!(again.interrupt().await?, Some(0));
    Ok(())
}

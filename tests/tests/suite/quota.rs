//! Quota over a whole fleet: what is guaranteed is taken back from those who borrowed it, at the smallest cost,
//! and whatever is killed in between.

use std::collections::BTreeMap;

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    fleet::Part,
    jobs::{Job, Queueing, gang_policy},
    objects::{self, BATCH_JOB, BINDING, EVENT, PYTORCH_JOB, QUEUE_UNIT},
};
use serde_json::{Value, json};

/// A job of `cores` cpu in one pod of a batch Job.
fn job(name: &str, namespace: &str, cores: i64) -> Value {
    let requests = json!({"cpu": cores.to_string()});
    Job::batch(name)
        .namespace(namespace)
        .workers(1)
        .gpus(0)
        .runs("forever")
        .container(json!({"resources": {"requests": requests, "limits": requests}}))
        .manifest()
}

fn in_class(mut job: Value, class: &str) -> Value {
    job["spec"]["template"]["spec"]["priorityClassName"] = class.into();
    job
}

fn tree(root: Value) -> Value {
    json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"}, "spec": {"root": root}})
}

fn cpu(cores: i64) -> Value {
    json!({"cpu": cores})
}

fn leaf(name: &str, namespace: &str, min: i64, max: i64) -> Value {
    json!({"name": name, "namespaces": [namespace], "min": cpu(min), "max": cpu(max)})
}

async fn namespaces(fleet: &TestFleet, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        if *name != "default" {
            fleet
                .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .await?;
        }
        let mut policy = gang_policy(Queueing::Queued);
        policy["metadata"]["namespace"] = (*name).into();
        fleet.apply(&policy).await?;
    }
    Ok(())
}

/// Running jobs of each namespace, by their bindings; and those that hold a place in a cluster at all.
async fn running(fleet: &TestFleet) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut found = BTreeMap::new();
    for unit in objects::list(&fleet.hub(), QUEUE_UNIT).await? {
        if unit["status"]["phase"] == "Running" {
            let namespace = unit["metadata"]["namespace"].as_str().unwrap_or_default().to_string();
            *found.entry(namespace).or_default() += 1;
        }
    }
    Ok(found)
}

async fn expect_running(fleet: &TestFleet, expected: &[(&str, usize)]) -> anyhow::Result<()> {
    let expected: BTreeMap<String, usize> =
        expected.iter().map(|(name, count)| ((*name).to_string(), *count)).collect();
    fleet
        .wait_for(&format!("{expected:?} to run"), async || {
            let found = running(fleet).await?;
            Ok(Polled::when(found == expected, || format!("{found:?}")))
        })
        .await
}

async fn unit(fleet: &TestFleet, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let name = format!("{name}-job-rb-qu");
    Ok(fleet.get(QUEUE_UNIT, namespace, &name).await?.unwrap_or_default())
}

async fn binding(fleet: &TestFleet, namespace: &str, name: &str) -> anyhow::Result<Value> {
    Ok(fleet.get(BINDING, namespace, &format!("{name}-job")).await?.unwrap_or_default())
}

/// Waits until the job runs, and returns its binding.
async fn runs(fleet: &TestFleet, namespace: &str, name: &str) -> anyhow::Result<Value> {
    fleet
        .wait_for(&format!("{namespace}/{name} to run"), async || {
            let unit = unit(fleet, namespace, name).await?;
            Ok(Polled::when(unit["status"]["phase"] == "Running", || unit["status"].to_string()))
        })
        .await?;
    binding(fleet, namespace, name).await
}

#[tokio::test]
async fn four_namespaces_share_forty_cores() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0").cpu("40").run_time(RunTime::Forever).start().await?;
    let side = |name: &str, one: &str, other: &str| {
        json!({"name": name, "min": cpu(20), "max": cpu(40), "children": [
            leaf(&format!("{name}1"), one, 10, 20), leaf(&format!("{name}2"), other, 10, 20)]})
    };
    let root = json!({"name": "root", "min": cpu(40), "max": cpu(40),
        "children": [side("a", "ns1", "ns2"), side("b", "ns3", "ns4")]});
    fleet.apply(&tree(root)).await?;
    namespaces(&fleet, &["ns1", "ns2", "ns3", "ns4"]).await?;
    let steps: [&[(&str, usize)]; 4] = [
        &[("ns1", 4)],
        &[("ns1", 4), ("ns2", 4)],
        &[("ns1", 3), ("ns2", 3), ("ns3", 2)],
        &[("ns1", 2), ("ns2", 2), ("ns3", 2), ("ns4", 2)],
    ];
    for (namespace, expected) in ["ns1", "ns2", "ns3", "ns4"].into_iter().zip(steps) {
        for n in 0..5 {
            fleet.apply(&job(&format!("job-{n}"), namespace, 5)).await?;
        }
        expect_running(&fleet, expected).await?;
    }
    // Each eviction was noted as one, with its taker and its rule.
    let mut preempted = 0;
    for binding in objects::list(&fleet.hub(), BINDING).await? {
        for attempt in binding["status"]["attempts"].as_array().into_iter().flatten() {
            assert_eq!(attempt["reason"], "Preempted", "{attempt}");
            let message = attempt["message"].as_str().unwrap_or_default();
            assert!(message.contains("(Reclaim)") && message.contains("preempted by ns"), "{message}");
            preempted += 1;
        }
    }
    // Two for ns3, and then one each of ns1 and ns2 for ns4.
    assert_eq!(preempted, 4);
    fleet.finish().await
}

/// A leaf that borrowed gives back what another is guaranteed; a controller that dies in the middle of it changes
/// nothing of that.
#[tokio::test]
async fn a_guarantee_is_taken_back_over_a_crash_of_the_controller() -> anyhow::Result<()> {
    let mut fleet = FleetSpec::of("east 2x0").cpu("4").run_time(RunTime::Forever).start().await?;
    let root = json!({"name": "root", "min": cpu(8), "max": cpu(8),
        "children": [leaf("a", "a", 4, 8), leaf("b", "b", 4, 8)]});
    fleet.apply(&tree(root)).await?;
    namespaces(&fleet, &["a", "b"]).await?;
    for name in ["one", "two", "three", "four"] {
        fleet.apply(&job(name, "b", 2)).await?;
    }
    expect_running(&fleet, &[("b", 4)]).await?;
    // A whole node of four: two jobs of b have to go, and only those of one node help.
    fleet.apply(&job("wide", "a", 4)).await?;
    fleet
        .wait_for("the first victim", async || {
            let mut noted = 0;
            for binding in objects::list(&fleet.hub(), BINDING).await? {
                noted += usize::from(!binding["status"]["attempts"].is_null());
            }
            Ok(Polled::when(noted > 0, || "no run was given up".to_string()))
        })
        .await?;
    fleet.kill(&Part::Controller).await;
    fleet.begin(Part::Controller)?;
    let wide = runs(&fleet, "a", "wide").await?;
    assert_eq!(wide["spec"]["clusters"][0]["name"], "east");
    expect_running(&fleet, &[("a", 1), ("b", 2)]).await?;
    let mut waiting = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let binding = binding(&fleet, "b", name).await?;
        if let Some(attempts) = binding["status"]["attempts"].as_array() {
            assert_eq!(attempts.len(), 1, "{name}: {attempts:?}");
            waiting.push(name);
        }
    }
    assert_eq!(waiting.len(), 2, "no more victims than needed, also over the crash: {waiting:?}");
    for name in waiting {
        let reason = fleet
            .wait_for("the victim to say why it waits", async || {
                let unit = unit(&fleet, "b", name).await?;
                let reason = unit["status"]["reason"].as_str().unwrap_or_default().to_string();
                Ok(if reason.is_empty() { Polled::NotYet(unit.to_string()) } else { Polled::Yes(reason) })
            })
            .await?;
        assert!(reason.starts_with("InsufficientQuota"), "{reason}");
        let events = objects::list(&fleet.hub(), EVENT).await?;
        let told = events
            .iter()
            .any(|event| event["reason"] == "Preempted" && event["involvedObject"]["name"] == name);
        assert!(told, "{name} has an event that names its taker");
    }
    fleet.finish().await
}

#[tokio::test]
async fn in_its_own_queue_a_job_takes_from_lower_priorities_alone() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0").cpu("8").run_time(RunTime::Forever).start().await?;
    for (name, value) in [("low", -1), ("high", 1)] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value});
        fleet.apply(&class).await?;
        // Where the pods are made, their class has to be too.
        fleet_tests::objects::apply(&fleet.member("east")?, &class).await?;
    }
    fleet.apply(&tree(json!({"name": "root", "max": cpu(6), "children": [leaf("a", "a", 6, 6)]}))).await?;
    namespaces(&fleet, &["a"]).await?;
    let mut firm = in_class(job("firm", "a", 2), "low");
    firm["metadata"]["labels"] = json!({"quota.scheduling.alibabacloud.com/preemptible": "false"});
    fleet.apply(&firm).await?;
    fleet.apply(&in_class(job("low", "a", 2), "low")).await?;
    fleet.apply(&job("mid", "a", 2)).await?;
    expect_running(&fleet, &[("a", 3)]).await?;
    fleet.apply(&in_class(job("high", "a", 2), "high")).await?;
    runs(&fleet, "a", "high").await?;
    expect_running(&fleet, &[("a", 3)]).await?;
    let low = binding(&fleet, "a", "low").await?;
    let attempt = &low["status"]["attempts"][0];
    assert_eq!(attempt["reason"], "Preempted", "{low}");
    assert!(attempt["message"].as_str().unwrap_or_default().contains("(InQueuePriority)"), "{attempt}");
    for spared in ["mid", "firm"] {
        let binding = binding(&fleet, "a", spared).await?;
        assert!(binding["status"]["attempts"].is_null(), "{spared}: {binding}");
    }
    // Room that is free again goes to the one that was taken back.
    fleet.delete(objects::BATCH_JOB, "a", "mid").await?;
    let low = runs(&fleet, "a", "low").await?;
    assert_eq!(low["spec"]["epoch"], 2);
    fleet.finish().await
}

#[tokio::test]
async fn a_job_that_belongs_nowhere_says_so() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x4").start().await?;
    fleet.apply(&tree(json!({"name": "root", "children": [leaf("a", "a", 1, 4)]}))).await?;
    namespaces(&fleet, &["default"]).await?;
    let labelled = Job::pytorch("astray").label("quota.scheduling.alibabacloud.com/name", "none");
    fleet.apply(&labelled.manifest()).await?;
    fleet.apply(&Job::pytorch("homeless").manifest()).await?;
    for (name, words) in [("astray", "\"none\""), ("homeless", "namespace \"default\"")] {
        let unit = fleet.wait_reason(PYTORCH_JOB, name, "NotInQuotaTree").await?;
        assert!(unit.to_string().replace("\\\"", "\"").contains(words), "{unit}");
    }
    // An edit of the tree takes effect at once.
    let root = json!({"name": "root", "children": [leaf("a", "a", 1, 4),
        {"name": "d", "namespaces": ["default"]}]});
    fleet.apply(&tree(root)).await?;
    fleet.wait_state(PYTORCH_JOB, "homeless", "Succeeded").await?;
    fleet.finish().await
}

#[tokio::test]
async fn by_fair_share_the_heavier_leaf_takes_from_the_larger_borrower() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0").cpu("9").run_time(RunTime::Forever).start().await?;
    let mut heavy = leaf("a", "a", 3, 9);
    heavy["attributes"] = json!({"fleet.dev/weight": "2"});
    let root = json!({"name": "root", "max": cpu(9), "attributes": {"fleet.dev/share-preemption": "FairShare"},
        "children": [heavy, leaf("b", "b", 3, 9), leaf("c", "c", 3, 9)]});
    fleet.apply(&tree(root)).await?;
    namespaces(&fleet, &["a", "b", "c"]).await?;
    for n in 0..3 {
        fleet.apply(&job(&format!("job-{n}"), "a", 1)).await?;
    }
    for n in 0..6 {
        fleet.apply(&job(&format!("job-{n}"), "b", 1)).await?;
    }
    expect_running(&fleet, &[("a", 3), ("b", 6)]).await?;
    fleet.apply(&job("wide", "a", 2)).await?;
    expect_running(&fleet, &[("a", 4), ("b", 4)]).await?;
    let mut told = Vec::new();
    for binding in objects::list(&fleet.hub(), BINDING).await? {
        for attempt in binding["status"]["attempts"].as_array().into_iter().flatten() {
            let message = attempt["message"].as_str().unwrap_or_default();
            assert!(message.contains("preempted by a/wide") && message.contains("(FairShare)"), "{message}");
            told.push(binding["metadata"]["namespace"].clone());
        }
    }
    assert_eq!(told, ["b", "b"]);
    fleet.finish().await
}

#[tokio::test]
async fn a_wide_job_is_not_passed_without_end() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0").cpu("4").run_time(RunTime::Forever).start().await?;
    let mut leaf = leaf("a", "a", 4, 4);
    leaf["attributes"] = json!({"fleet.dev/max-bypass": "500ms"});
    fleet.apply(&tree(json!({"name": "root", "max": cpu(4), "children": [leaf]}))).await?;
    namespaces(&fleet, &["a"]).await?;
    // Room is kept only for a start that is in sight: these say when they end at the latest.
    let small = |n: usize| {
        let mut job = job(&format!("small-{n}"), "a", 2);
        job["spec"]["activeDeadlineSeconds"] = json!(600);
        job
    };
    fleet.apply(&small(0)).await?;
    runs(&fleet, "a", "small-0").await?;
    fleet.apply(&job("big", "a", 4)).await?;
    // Of jobs made in one second the name decides who stands first in line; `big` stands before `small`.
    // It cannot start beside the first, and the second passes it.
    fleet
        .wait_for("the wide job to wait", async || {
            let unit = unit(&fleet, "a", "big").await?;
            Ok(Polled::when(unit["status"]["reason"] == "InsufficientQuota", || unit["status"].to_string()))
        })
        .await?;
    fleet.apply(&small(1)).await?;
    runs(&fleet, "a", "small-1").await?;
    fleet
        .wait_for("the wide job's claim", async || {
            let unit = unit(&fleet, "a", "big").await?;
            Ok(Polled::when(unit["status"]["reason"] == "Claimed", || unit["status"].to_string()))
        })
        .await?;
    // Half of the room is free, and kept for it.
    fleet.delete(BATCH_JOB, "a", "small-0").await?;
    fleet.apply(&small(2)).await?;
    fleet
        .wait_for("the third to wait for the claim", async || {
            let unit = unit(&fleet, "a", "small-2").await?;
            let told = unit["status"]["message"].as_str().unwrap_or_default().contains("a/big");
            Ok(Polled::when(unit["status"]["reason"] == "Claimed" && told, || unit["status"].to_string()))
        })
        .await?;
    fleet.delete(BATCH_JOB, "a", "small-1").await?;
    runs(&fleet, "a", "big").await?;
    fleet.finish().await
}

//! Runs that end before their job: the cluster is lost, tainted or drained, the name is taken, nothing starts.

use std::time::Duration;

use fleet_api::{Cluster, Work, binding::ResourceBindingStatus};
use fleet_controller::Options;
use fleet_hub_core::Options as Rules;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::hub::{Hub, condition, hub, hub_with, until};

/// A cluster is lost 300 ms after its last renewal.
fn quick() -> Options {
    Options {
        rules: Rules {
            lease_duration: Duration::from_millis(200),
            lease_margin: Duration::from_millis(50),
            fence_grace: Duration::from_millis(50),
            drain_interval: Duration::from_millis(20),
            ..Rules::default()
        },
        ..Options::default()
    }
}

fn running() -> Value {
    json!([condition("Created", "True"), condition("Running", "True")])
}

async fn lease(hub: &Hub, cluster: &str) -> Lease {
    let leases: Api<Lease> = Api::namespaced(hub.client.clone(), &format!("fleet-{cluster}"));
    leases.get("member-agent").await.expect("a lease")
}

async fn status_where(
    hub: &Hub,
    what: &str,
    is: impl Fn(&ResourceBindingStatus) -> bool,
) -> ResourceBindingStatus {
    until(what, || async { hub.binding().await.status.filter(|status| is(status)) }).await
}

#[tokio::test]
async fn a_job_leaves_a_lost_cluster_and_the_old_run_is_cleaned_up_when_it_returns() {
    let hub = hub_with(quick()).await;
    hub.member("east").await;
    hub.member("west").await;
    let (east, _west) = (hub.renews("east"), hub.renews("west"));
    let state = json!({"rules": [{"aliasLabelName": "train.example.com/step", "jsonPath": "{.step}"}]});
    hub.policy(json!({"cluster": {"tolerationSeconds": 0, "statePreservation": state}})).await;
    hub.apply("pytorchjob.yaml").await;
    let old = hub.accept("east").await;
    assert!(old.spec.fenced);
    hub.report(&old, running()).await;
    hub.until_state("pytorch-test", "Running").await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    let step = json!({"status": {"manifestStatuses": [{
        "identifier": {"ordinal": 0, "version": "v1", "kind": "PyTorchJob", "name": "pytorch-test"},
        "status": {"conditions": running(), "step": 1200}}]}});
    works
        .patch_status(&old.name_any(), &PatchParams::default(), &Patch::Merge(step))
        .await
        .expect("reported");
    east.cancel();

    let new = hub.accept("west").await;
    assert_eq!(new.spec.epoch, 2);
    assert_eq!(hub.attempts().await, [("east".to_string(), "ClusterLost".to_string())]);
    // The next run has what the old one left.
    let job = &new.spec.workload.manifests[0];
    assert_eq!(job["metadata"]["labels"]["train.example.com/step"], "1200");
    let containers = &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"];
    let env = containers[0]["env"].as_array().cloned().unwrap_or_default();
    assert!(env.contains(&json!({"name": "FLEET_RESTORE_STEP", "value": "1200"})), "{env:?}");
    // The lease is marked, and the old Work waits for the agent.
    assert_eq!(lease(&hub, "east").await.annotations()["fleet.dev/declared-lost"], "true");
    let left = works.get(&old.name_any()).await.expect("it stays for the agent");
    assert!(left.metadata.deletion_timestamp.is_some());
    hub.report(&new, running()).await;
    hub.until_state("pytorch-test", "Running").await;

    // East is back and says that its run has failed: nobody listens.
    let _east = hub.renews("east");
    hub.report(&old, json!([condition("Created", "True"), condition("Failed", "True")])).await;
    until("the mark to go", || async {
        (!lease(&hub, "east").await.annotations().contains_key("fleet.dev/declared-lost")).then_some(())
    })
    .await;
    hub.let_go(&old).await;
    assert_eq!(hub.state("pytorch-test").await, "Running");
    let binding = hub.binding().await;
    assert_eq!((binding.spec.epoch, binding.spec.clusters[0].name.as_str()), (2, "west"));
}

#[tokio::test]
async fn without_cluster_failover_a_job_waits_for_its_lost_cluster() {
    let hub = hub_with(quick()).await;
    hub.member("east").await;
    hub.member("west").await;
    let (east, _west) = (hub.renews("east"), hub.renews("west"));
    hub.policy(json!({"application": {}})).await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    assert!(!work.spec.fenced);
    hub.report(&work, running()).await;
    east.cancel();
    status_where(&hub, "the loss to be noted", |status| {
        status.run.as_ref().is_some_and(|run| run.lost_since.is_some())
    })
    .await;
    let status = hub.binding().await.status.unwrap_or_default();
    let told = status.conditions.iter().find(|c| c.type_ == "ClusterReachable").expect("told");
    assert!(told.message.contains("no failover.cluster"), "{}", told.message);
    assert!(status.attempts.is_empty());
    let _east = hub.renews("east");
    status_where(&hub, "the loss to be forgotten", |status| {
        let told = status.conditions.iter().any(|c| c.type_ == "ClusterReachable");
        !told && status.run.as_ref().is_some_and(|run| run.lost_since.is_none())
    })
    .await;
}

#[tokio::test]
async fn a_restarted_controller_neither_forgets_nor_shortens_the_wait() {
    let mut hub = hub_with(quick()).await;
    hub.member("east").await;
    hub.member("west").await;
    let (east, _west) = (hub.renews("east"), hub.renews("west"));
    hub.policy(json!({"cluster": {"tolerationSeconds": 2}})).await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    hub.report(&work, running()).await;
    hub.until_state("pytorch-test", "Running").await;
    east.cancel();
    let status = status_where(&hub, "the loss to be noted", |status| {
        status.run.as_ref().is_some_and(|run| run.lost_since.is_some())
    })
    .await;
    let noted = status.run.and_then(|run| run.lost_since);
    hub.restart().await;
    // Moved in the end, and no sooner than the policy says after the first sight.
    let new = hub.accept("west").await;
    assert_eq!(new.spec.epoch, 2);
    let binding = hub.binding().await;
    let attempt = &binding.status.as_ref().expect("status").attempts[0];
    let read = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
    let waited = read(&attempt.ended_at).duration_since(read(&noted.expect("noted"))).as_secs();
    assert!(waited >= 2, "waited {waited} s");
}

#[tokio::test]
async fn a_name_that_is_taken_sends_the_job_elsewhere() {
    let hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    hub.policy(json!({})).await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    let refused = json!({"status": {"conditions": [{"type": "Applied", "status": "False", "reason": "NameTaken",
        "message": "PyTorchJob default/pytorch-test exists in the member and was not made by Fleet",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    works
        .patch_status(&work.name_any(), &PatchParams::default(), &Patch::Merge(refused))
        .await
        .expect("refused");
    hub.let_go(&work).await;
    let new = hub.accept("west").await;
    assert_eq!(new.spec.epoch, 2);
    assert_eq!(hub.attempts().await, [("east".to_string(), "NameTaken".to_string())]);
}

#[tokio::test]
async fn a_gang_that_does_not_start_is_taken_back_and_ends_failed_after_its_runs() {
    let hub = hub().await;
    hub.member("east").await;
    hub.policy(json!({"application": {"backoffLimit": 2}})).await;
    hub.create(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "pytorch-test", "annotations": {"fleet.dev/start-timeout": "100ms"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "c", "image": "i"}]}}}}}}))
        .await;
    for _ in 0..2 {
        let work = hub.accept("east").await;
        hub.let_go(&work).await;
    }
    hub.until_state("pytorch-test", "Failed").await;
    let status = status_where(&hub, "the result", |status| status.result.is_some()).await;
    let result = status.result.expect("a result");
    assert_eq!(result.reason.as_deref(), Some("BackoffLimitExceeded"));
    let history = "east (epoch 1): GangNotStarted; east (epoch 2): GangNotStarted";
    assert!(result.message.as_ref().is_some_and(|message| message.contains(history)), "{result:?}");
    let job = hub.jobs().get("pytorch-test").await.expect("there");
    let last = job.data["status"]["conditions"].as_array().and_then(|list| list.last().cloned());
    assert!(last.is_some_and(|last| last["message"].as_str().is_some_and(|m| m.contains(history))));
}

#[tokio::test]
async fn a_taint_that_is_not_tolerated_moves_jobs_once_they_are_gone() {
    let hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    hub.policy(json!({})).await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    hub.report(&work, running()).await;
    hub.taint("east", json!([{"key": "power", "effect": "NoExecute"}])).await;
    until("the run to be taken back", || async { (!hub.attempts().await.is_empty()).then_some(()) }).await;
    assert_eq!(hub.binding().await.spec.clusters[0].name, "east", "still there while the member cleans up");
    hub.let_go(&work).await;
    hub.accept("west").await;
    assert_eq!(hub.attempts().await, [("east".to_string(), "TaintUntolerated".to_string())]);
}

#[tokio::test]
async fn a_taint_is_tolerated_for_as_long_as_the_policy_says_across_a_restart() {
    let mut hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    // The shorter of two that match holds; one of another effect says nothing of running jobs.
    let tolerations = json!([
        {"key": "power", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2},
        {"key": "power", "operator": "Exists", "tolerationSeconds": 3600},
        {"key": "power", "operator": "Exists", "effect": "NoSchedule"}]);
    hub.policy_that_tolerates(json!({}), tolerations).await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    hub.report(&work, running()).await;
    hub.until_state("pytorch-test", "Running").await;
    hub.taint("east", json!([{"key": "power", "effect": "NoExecute"}])).await;
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let added = until("the time of the taint to be noted", || async {
        clusters.get("east").await.ok()?.spec.taints.first()?.time_added.clone()
    })
    .await;
    hub.restart().await;
    until("the run to be taken back", || async { (!hub.attempts().await.is_empty()).then_some(()) }).await;
    assert_eq!(hub.attempts().await, [("east".to_string(), "TaintUntolerated".to_string())]);
    let read = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
    let ended = hub.binding().await.status.expect("status").attempts[0].ended_at.clone();
    let waited = read(&ended).duration_since(read(&added)).as_secs();
    assert!((2..10).contains(&waited), "taken back {waited} s after the taint; tolerated for 2 s");
    hub.let_go(&work).await;
    assert_eq!(hub.accept("west").await.spec.epoch, 2);
}

#[tokio::test]
async fn what_an_earlier_binding_of_the_name_left_is_deleted_while_the_new_one_waits() {
    let hub = hub().await;
    hub.member("east").await;
    hub.policy(json!({})).await;
    hub.apply("pytorchjob.yaml").await;
    hub.reservation("east").await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    let left = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Work",
        "metadata": {"name": "pytorch-test-pytorchjob-earlier", "namespace": "fleet-east"},
        "spec": {"binding": {"namespace": "default", "name": "pytorch-test-pytorchjob", "uid": "earlier"},
            "epoch": 1, "workload": {"manifests": []}}});
    let left: Work = serde_json::from_value(left).expect("a work");
    works.create(&PostParams::default(), &left).await.expect("made");
    until("the work to go", || async {
        works.get_opt("pytorch-test-pytorchjob-earlier").await.ok()?.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_drained_cluster_is_left_by_one_gang_after_the_other() {
    let hub = hub_with(Options {
        rules: Rules { drain_interval: Duration::from_millis(20), ..Rules::default() },
        ..Options::default()
    })
    .await;
    hub.member("east").await;
    hub.policy(json!({})).await;
    let mut works = Vec::new();
    for name in ["a", "b"] {
        hub.create(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [
                {"name": "c", "image": "i"}]}}}}}}))
            .await;
        works.push(hub.accept("east").await);
    }
    hub.taint("east", json!([{"key": "cluster.fleet.dev/drain", "effect": "NoExecute"}])).await;
    let api: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    let leaving = || async {
        let list = api.list(&ListParams::default()).await.ok()?.items;
        let names: Vec<String> = list
            .iter()
            .filter(|work| work.metadata.deletion_timestamp.is_some())
            .map(|work| work.spec.binding.name.clone())
            .collect();
        (!names.is_empty()).then_some(names)
    };
    let first = until("the first to leave", leaving).await;
    assert_eq!(first, ["a-pytorchjob"]);
    hub.let_go(&works[0]).await;
    let second = until("the second to leave", leaving).await;
    assert_eq!(second, ["b-pytorchjob"]);
    hub.let_go(&works[1]).await;
}

#[tokio::test]
async fn gracefully_the_old_run_goes_when_the_new_one_runs() {
    let hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    hub.policy(
        json!({"application": {"decisionConditions": {"tolerationSeconds": 0}, "purgeMode": "Gracefully"}}),
    )
    .await;
    hub.apply("pytorchjob.yaml").await;
    let old = hub.accept("east").await;
    hub.report(&old, json!([condition("Created", "True"), condition("Failed", "True")])).await;
    let new = hub.accept("west").await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    let kept = works.get(&old.name_any()).await.expect("kept");
    assert!(kept.metadata.deletion_timestamp.is_none());
    hub.report(&new, running()).await;
    hub.let_go(&old).await;
    hub.until_state("pytorch-test", "Running").await;
}

#[tokio::test]
async fn with_purge_mode_never_the_old_run_stays_until_the_job_is_deleted() {
    let hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    hub.policy(
        json!({"application": {"decisionConditions": {"tolerationSeconds": 0}, "purgeMode": "Never"}}),
    )
    .await;
    hub.apply("pytorchjob.yaml").await;
    let old = hub.accept("east").await;
    hub.report(&old, json!([condition("Created", "True"), condition("Failed", "True")])).await;
    // At once: nobody has let go of the old run.
    let new = hub.accept("west").await;
    assert_eq!(new.spec.epoch, 2);
    hub.report(&new, running()).await;
    hub.until_state("pytorch-test", "Running").await;
    // Its later reports are those of a run that is over.
    hub.report(&old, json!([condition("Created", "True"), condition("Succeeded", "True")])).await;
    hub.report(&new, json!([condition("Created", "True"), condition("Failed", "True")])).await;
    until("the second run to be taken back", || async { (hub.attempts().await.len() == 2).then_some(()) })
        .await;
    assert!(hub.binding().await.status.is_none_or(|status| status.result.is_none()));
    for (cluster, run) in [("east", &old), ("west", &new)] {
        let works: Api<Work> = Api::namespaced(hub.client.clone(), &format!("fleet-{cluster}"));
        let kept = works.get(&run.name_any()).await.expect("kept");
        assert!(kept.metadata.deletion_timestamp.is_none(), "{cluster}");
    }
    hub.jobs().delete("pytorch-test", &Default::default()).await.expect("deleted");
    hub.let_go(&old).await;
    hub.let_go(&new).await;
    let bindings: Api<fleet_api::ResourceBinding> = Api::namespaced(hub.client.clone(), "default");
    until("the binding to go", || async {
        bindings.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_job_waits_for_what_it_depends_on() {
    let hub = hub().await;
    hub.member("east").await;
    hub.policy(json!({})).await;
    hub.create(
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "pytorch-test"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}}}}}}),
    )
    .await;
    until("the reason", || async {
        let status = hub.binding().await.status?;
        let told = status.conditions.iter().find(|c| c.reason == "WaitingForDependencies")?;
        told.message.contains("ConfigMap settings").then_some(())
    })
    .await;
    hub.create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {}}),
    )
    .await;
    let work = hub.accept("east").await;
    assert_eq!(work.spec.workload.manifests[1]["metadata"]["name"], "settings");
}

#[tokio::test]
async fn a_report_that_speaks_of_another_job_is_not_taken() {
    let hub = hub().await;
    hub.member("east").await;
    hub.policy(json!({})).await;
    hub.apply("pytorchjob.yaml").await;
    let work = hub.accept("east").await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    let status = json!({"status": {"observedEpoch": 1, "manifestStatuses": [{
        "identifier": {"ordinal": 0, "version": "v1", "kind": "PyTorchJob", "name": "other"},
        "status": {"conditions": [condition("Succeeded", "True")]}}]}});
    works
        .patch_status(&work.name_any(), &PatchParams::default(), &Patch::Merge(status))
        .await
        .expect("reported");
    let events: Api<Event> = Api::namespaced(hub.client.clone(), "default");
    until("it to be told", || async {
        let list = events.list(&ListParams::default()).await.ok()?;
        let told = list.items.iter().find(|event| event.reason.as_deref() == Some("StatusRefused"))?;
        told.message.as_ref()?.contains("found PyTorchJob /other").then_some(())
    })
    .await;
    assert!(hub.binding().await.status.is_none_or(|status| status.result.is_none()));
    // What a member writes into the spec is put right.
    let forged = json!({"spec": {"binding": {"namespace": "default", "name": "other", "uid": "other"}}});
    works.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(forged)).await.expect("forged");
    until("the spec to be put right", || async {
        let work = works.get(&work.name_any()).await.ok()?;
        (work.spec.binding.name == "pytorch-test-pytorchjob").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_is_written_off_leaves_nothing_and_every_job_has_its_end() {
    let hub = hub().await;
    hub.member("east").await;
    hub.member("west").await;
    hub.policy(json!({"cluster": {}})).await;
    let stays = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "stays", "namespace": "default"}, "spec": {"priority": 5,
            "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "stays"}],
            "placement": {"clusterAffinity": {"clusterNames": ["east"]}}}});
    hub.create(stays).await;
    for name in ["pytorch-test", "stays"] {
        hub.create(json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [
                {"name": "c", "image": "i"}]}}}}}}))
            .await;
        hub.accept("east").await;
    }
    hub.taint("east", json!([{"key": "cluster.fleet.dev/gone", "effect": "NoExecute"}])).await;
    // No agent lets anything go.
    let moved = hub.accept("west").await;
    assert_eq!((moved.spec.binding.name.as_str(), moved.spec.epoch), ("pytorch-test-pytorchjob", 2));
    hub.until_state("stays", "Failed").await;
    let works: Api<Work> = Api::namespaced(hub.client.clone(), "fleet-east");
    until("east to have no works", || async {
        works.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(())
    })
    .await;
    assert_eq!(hub.attempts().await, [("east".to_string(), "ClusterGone".to_string())]);
}

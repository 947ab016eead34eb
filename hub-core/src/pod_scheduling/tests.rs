use serde_json::json;

use super::*;
use crate::{manifests, world::World};

fn bound(kind: &str, policy: &Value, scheduling: &str) -> BindingEntry {
    let binding = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"namespace": "team", "name": "train", "uid": "b"},
        "spec": {"resource": {"apiVersion": if kind == "Job" { "batch/v1" } else { "apps/v1" }, "kind": kind,
                "namespace": "team", "name": "train", "uid": "u"},
            "policy": policy, "podScheduling": scheduling, "epoch": 1}});
    BindingEntry::read(serde_json::from_value(binding).expect("a binding"), None)
}

#[test]
fn only_a_policy_of_the_cluster_leaves_pods_to_other_schedulers() {
    let cluster = json!({"kind": "ClusterPropagationPolicy", "namespace": "", "name": "p"});
    let own = json!({"kind": "PropagationPolicy", "namespace": "team", "name": "p"});
    let gone = json!({"kind": "", "namespace": "", "name": ""});
    for (policy, scheduling, sent) in [
        (&cluster, "AsWritten", json!("AsWritten")),
        (&own, "AsWritten", Value::Null),
        (&gone, "AsWritten", Value::Null),
        (&own, "Gates", json!("Gates")),
        (&own, "Fleet", json!("Fleet")),
        (&cluster, "Gates", json!("Gates")),
    ] {
        let entry = bound("Job", policy, scheduling);
        let work = manifests::work_spec(&World::default(), &entry, Vec::new(), None, None, None);
        assert_eq!(work["podScheduling"], sent, "{policy} {scheduling}");
        let told = not_as_written(&entry, None);
        assert_eq!(told.is_some(), sent.is_null(), "{policy} {scheduling}: {told:?}");
        assert_eq!(not_as_written(&bound("Deployment", policy, scheduling), None), None);
    }
}

#[test]
fn a_gang_that_was_sent_keeps_its_scheduling_when_its_policy_goes() {
    let entry = bound("Job", &json!({"kind": "", "namespace": "", "name": ""}), "AsWritten");
    for (epoch, sent, expected, is_told) in [
        (1, json!("AsWritten"), json!("AsWritten"), false),
        (1, Value::Null, Value::Null, true),
        // Of an earlier run.
        (0, json!("AsWritten"), Value::Null, true),
    ] {
        let known: Work =
            serde_json::from_value(json!({"apiVersion": crate::binding::API_VERSION, "kind": "Work",
            "metadata": {"namespace": "fleet-east", "name": "w"},
            "spec": {"binding": {"namespace": "team", "name": "train", "uid": "b"}, "epoch": epoch,
                "workload": {"manifests": []}, "podScheduling": sent}}))
            .expect("a Work");
        let spec = manifests::work_spec(&World::default(), &entry, Vec::new(), None, None, Some(&known));
        assert_eq!(spec["podScheduling"], expected, "epoch {epoch}, sent {sent}");
        assert_eq!(not_as_written(&entry, Some(&known)).is_some(), is_told, "epoch {epoch}, sent {sent}");
    }
}

#[test]
fn what_was_asked_for_in_vain_does_not_begin_when_another_policy_takes_over() {
    let spec = |kind: &str, scheduling: Value| json!({"policy": {"kind": kind}, "podScheduling": scheduling});
    let (cluster, own) = ("ClusterPropagationPolicy", "PropagationPolicy");
    for (before, scheduling, after, expected) in [
        (own, json!("AsWritten"), cluster, true),
        ("", json!("AsWritten"), cluster, true),
        (own, json!("AsWritten"), own, false),
        (cluster, json!("AsWritten"), cluster, false),
        (cluster, json!("AsWritten"), own, false),
        (own, json!("Gates"), cluster, false),
        (own, Value::Null, cluster, false),
    ] {
        let found = would_begin(&spec(before, scheduling.clone()), &spec(after, Value::Null));
        assert_eq!(found, expected, "{before} {scheduling} {after}");
    }
}

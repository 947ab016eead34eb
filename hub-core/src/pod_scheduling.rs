//! Who binds the pods of a run (`podScheduling`). With `AsWritten` a pod template keeps its scheduler, which may be the
//! member's own. That one knows neither reserved places nor cells, and preempts the pods of others by their PriorityClass. So
//! it counts in a policy of the cluster, which tenants do not write. From a policy of a namespace the agent binds the pods,
//! as without the word.

use fleet_api::{Work, policy::PodScheduling};
use fleet_policies::choice::PolicyScope;
use serde_json::Value;

use crate::{binding::BindingEntry, governor::scope_of};

/// What the Work of the run says; absent: `Fleet`. Who may write a namespace may also delete its policy, so a run without one
/// is treated as if it had been that. A gang that was sent keeps what its Work says until it ends, whatever its policy becomes.
pub(crate) fn of_run(entry: &BindingEntry, known: Option<&Work>) -> Option<PodScheduling> {
    match sent(entry, known) {
        Some(work) => work.spec.pod_scheduling,
        None => entry.object.spec.pod_scheduling.filter(|_| !is_withheld(entry)),
    }
}

/// The Work of this run, if it is a gang that was sent.
fn sent<'w>(entry: &BindingEntry, known: Option<&'w Work>) -> Option<&'w Work> {
    known.filter(|work| entry.is_gang() && work.spec.epoch == entry.object.spec.epoch)
}

fn is_withheld(entry: &BindingEntry) -> bool {
    let spec = &entry.object.spec;
    spec.pod_scheduling == Some(PodScheduling::AsWritten)
        && scope_of(&spec.policy.kind) != PolicyScope::Cluster
}

/// Whether a change of the policy would make `AsWritten` count for a run that was sent without it. Both are specs of its binding.
pub(crate) fn would_begin(known: &Value, desired: &Value) -> bool {
    let is_of_cluster =
        |spec: &Value| scope_of(spec["policy"]["kind"].as_str().unwrap_or_default()) == PolicyScope::Cluster;
    known["podScheduling"] == "AsWritten" && !is_of_cluster(known) && is_of_cluster(desired)
}

/// Says that the pods of a gang do not go to the scheduler of their template. Only a gang has reserved places; templates of
/// everything else are sent as they are written in any case.
pub(crate) fn not_as_written(entry: &BindingEntry, known: Option<&Work>) -> Option<String> {
    let is_as_written = of_run(entry, known) == Some(PodScheduling::AsWritten);
    (entry.is_gang() && is_withheld(entry) && !is_as_written).then(|| {
        "podScheduling of its policy: found AsWritten, but the scheduler of a template knows no reserved places and may \
         take those of others, so the agent binds the pods; allowed are Fleet and Gates, or AsWritten in a \
         ClusterPropagationPolicy"
            .to_string()
    })
}

#[cfg(test)]
mod tests {
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
        let spec =
            |kind: &str, scheduling: Value| json!({"policy": {"kind": kind}, "podScheduling": scheduling});
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
}

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
mod tests;

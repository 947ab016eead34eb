//! How many pods one workload may have. The hub and the agent's own controllers go by the same numbers, so nothing is
//! admitted that no member would run.

use serde_json::Value;

use super::{WorkloadKind, error::WorkloadError};

/// Most pods of one workload, over its whole life. Kubernetes has this limit for the parallelism of an indexed Job; it
/// is far above any cluster's number of pods for one job, and what the hub and the members keep for one job stays small.
pub const PODS_MAX: i64 = 100_000;
/// Most pods of a job that writes the addresses of all into a ConfigMap or into each pod: as many as Kubernetes supports
/// nodes in one cluster.
pub const HOSTS_MAX: i64 = 5_000;

/// Most tasks of a Volcano Job. Its definitions allow 100; an override may write more, and each is a component that is
/// placed by itself.
pub(super) const TASKS_MAX: usize = 1_000;
pub(super) const TASKS_ALLOWED: &str = "at most 1000 tasks";
/// Most names in one of the annotations by which tasks of a Volcano Job share nodes or avoid each other: the members'
/// scheduler reads no more.
const NAMES_MAX: usize = 1_000;

const PODS_ALLOWED: &str = "at most 100000 pods in all";
const HOSTS_ALLOWED: &str = "at most 5000 pods in all, since they get a list of the addresses of all";
/// Volcano's plugins that make such a list.
const LIST_HOSTS: [&str; 6] = ["svc", "ssh", "mpi", "tensorflow", "pytorch", "ray"];

/// Whether the pods of a job of this kind and spec get a list of the addresses of all.
pub fn lists_hosts(kind: WorkloadKind, spec: &Value) -> bool {
    match kind {
        WorkloadKind::TFJob | WorkloadKind::MPIJob => true,
        WorkloadKind::VolcanoJob => LIST_HOSTS.iter().any(|name| spec["plugins"].get(name).is_some()),
        _ => false,
    }
}

/// # Errors
/// An annotation of a Volcano Job names more tasks than a job may have.
pub(super) fn names_bounded(job: &Value) -> Result<(), WorkloadError> {
    for rule in ["affinity", "anti-affinity", "task-order"] {
        let annotation = format!("volcano.sh/task-topology-{rule}");
        let text = job["metadata"]["annotations"][&annotation].as_str().unwrap_or_default();
        let names = text.split([',', ';']).filter(|name| !name.trim().is_empty()).count();
        if names > NAMES_MAX {
            return Err(WorkloadError::Field {
                path: format!("metadata.annotations[{annotation}]"),
                found: format!("{names} names"),
                allowed: "at most 1000 names",
            });
        }
    }
    Ok(())
}

/// # Errors
/// More pods than such a workload may have.
pub(super) fn bounded(
    kind: WorkloadKind,
    spec: &Value,
    pods: i64,
    path: String,
) -> Result<(), WorkloadError> {
    let (most, allowed) = match lists_hosts(kind, spec) {
        true => (HOSTS_MAX, HOSTS_ALLOWED),
        false => (PODS_MAX, PODS_ALLOWED),
    };
    if pods <= most {
        return Ok(());
    }
    Err(WorkloadError::Field { path, found: format!("{pods} pods"), allowed })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_that_share_nodes_are_as_many_as_a_job_has() {
        for rule in ["affinity", "anti-affinity", "task-order"] {
            let annotation = format!("volcano.sh/task-topology-{rule}");
            let check = |names: usize| {
                let text = "ps,worker;".repeat(names / 2);
                names_bounded(&json!({"metadata": {"annotations": {&annotation: text}}}))
                    .map_err(|error| error.to_string())
            };
            assert_eq!(check(1_000), Ok(()));
            let why =
                format!("metadata.annotations[{annotation}]: found 1002 names; allowed: at most 1000 names");
            assert_eq!(check(1_002), Err(why));
        }
        assert_eq!(names_bounded(&json!({"spec": {}})).map_err(|error| error.to_string()), Ok(()));
    }

    #[test]
    fn jobs_whose_pods_know_all_addresses_are_smaller() {
        let check = |kind, spec: Value, most: i64| {
            let fits =
                |pods: i64| bounded(kind, &spec, pods, "spec".to_owned()).map_err(|error| error.to_string());
            assert_eq!(fits(most), Ok(()), "{spec}");
            let why = fits(most + 1).unwrap_err();
            assert!(why.contains(&format!("allowed: at most {most} pods in all")), "{why}");
        };
        check(WorkloadKind::MPIJob, json!({}), 5_000);
        check(WorkloadKind::TFJob, json!({}), 5_000);
        for plugin in LIST_HOSTS {
            check(WorkloadKind::VolcanoJob, json!({"plugins": {plugin: []}}), 5_000);
        }
        check(WorkloadKind::VolcanoJob, json!({"plugins": {"env": []}}), 100_000);
        check(WorkloadKind::PyTorchJob, json!({}), 100_000);
        check(WorkloadKind::BatchJob, json!({}), 100_000);
    }
}

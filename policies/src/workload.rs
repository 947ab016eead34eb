//! Reading a workload: its requests, its health, its dependencies, and the form in which a member gets it.
//!
//! Every function takes the kind and the object (or its status) as JSON, and is total: a field of the wrong type
//! counts as absent. So a broken object becomes a job with a reason, and never a panic.

mod aggregate;
mod between;
mod bounds;
mod check;
mod components;
mod conditions;
mod dependencies;
mod elastic;
mod error;
mod health;
mod limits;
mod revise;
mod run;

use serde::{Deserialize, Serialize};

pub use aggregate::{aggregate, withhold_end};
pub use between::between_runs;
pub use bounds::check_templates;
pub use check::{check, check_placement};
pub use components::{
    Component, PodRequirements, completions, components, most, pod_templates, requests_of_any_pods,
    template_requests, total,
};
pub use conditions::{Condition, created_condition, queuing_condition, set_failed};
pub use dependencies::{DependencyKind, DependencyRef, dependencies};
pub use error::WorkloadError;
pub use health::{Health, Outcome, ended_at, failure, health, is_running, outcome, restarts, state_text};
pub use limits::{HOSTS_MAX, PODS_MAX, lists_hosts};
pub use revise::{remove_finalizers, revise_replicas, set_env, strip_for_member};
pub use run::{declared_deadline_s, declared_run_time_ms, is_suspended, keep_run, limit_run_time};

/// The kinds that Fleet understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// kubeflow.org/v1
    PyTorchJob,
    /// kubeflow.org/v1
    TFJob,
    /// kubeflow.org/v2beta1 and v1
    MPIJob,
    /// batch.volcano.sh/v1alpha1 Job
    VolcanoJob,
    /// batch/v1 Job
    BatchJob,
    /// apps/v1 Deployment, StatefulSet and ReplicaSet
    Deployment,
    /// Any other object.
    Other,
}

impl WorkloadKind {
    pub fn of(api_version: &str, kind: &str) -> Self {
        match (api_version, kind) {
            ("kubeflow.org/v1", "PyTorchJob") => Self::PyTorchJob,
            ("kubeflow.org/v1", "TFJob") => Self::TFJob,
            ("kubeflow.org/v1" | "kubeflow.org/v2beta1", "MPIJob") => Self::MPIJob,
            ("batch.volcano.sh/v1alpha1", "Job") => Self::VolcanoJob,
            ("batch/v1", "Job") => Self::BatchJob,
            ("apps/v1", "Deployment" | "StatefulSet" | "ReplicaSet") => Self::Deployment,
            _ => Self::Other,
        }
    }

    /// Runs to an end; other kinds run until they are deleted.
    pub fn is_job(self) -> bool {
        !matches!(self, Self::Deployment | Self::Other)
    }

    /// Has Kubeflow's status: a list of conditions of which kubectl prints the last as STATE.
    pub fn is_kubeflow(self) -> bool {
        matches!(self, Self::PyTorchJob | Self::TFJob | Self::MPIJob)
    }
}

/// The field of the spec with a Kubeflow job's roles.
fn replica_specs_field(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::TFJob => "tfReplicaSpecs",
        WorkloadKind::MPIJob => "mpiReplicaSpecs",
        _ => "pytorchReplicaSpecs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let check = |api_version, kind, expected| assert_eq!(WorkloadKind::of(api_version, kind), expected);
        check("kubeflow.org/v1", "PyTorchJob", WorkloadKind::PyTorchJob);
        check("kubeflow.org/v2beta1", "MPIJob", WorkloadKind::MPIJob);
        check("batch.volcano.sh/v1alpha1", "Job", WorkloadKind::VolcanoJob);
        check("batch/v1", "Job", WorkloadKind::BatchJob);
        check("apps/v1", "StatefulSet", WorkloadKind::Deployment);
        check("v1", "ConfigMap", WorkloadKind::Other);
    }
}

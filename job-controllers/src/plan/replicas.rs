//! Roles and replicas of a Kubeflow job, as input of its plan.

use fleet_agent_ground::Object;
use serde_json::{Value, json};

use super::Pods;

pub(super) const JOB_NAME_LABEL: &str = "training.kubeflow.org/job-name";
pub(super) const OPERATOR_LABEL: &str = "training.kubeflow.org/operator-name";
pub(super) const REPLICA_TYPE_LABEL: &str = "training.kubeflow.org/replica-type";
pub(super) const REPLICA_INDEX_LABEL: &str = "training.kubeflow.org/replica-index";
pub(super) const JOB_ROLE_LABEL: &str = "training.kubeflow.org/job-role";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framework {
    PyTorch,
    TensorFlow,
    Mpi,
}

impl Framework {
    pub fn kind(self) -> &'static str {
        match self {
            Self::PyTorch => "PyTorchJob",
            Self::TensorFlow => "TFJob",
            Self::Mpi => "MPIJob",
        }
    }

    pub fn operator(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorchjob-controller",
            Self::TensorFlow => "tfjob-controller",
            Self::Mpi => "mpi-operator",
        }
    }

    /// The value of `runPolicy.managedBy`, besides none, for this controller.
    pub fn manager(self) -> &'static str {
        match self {
            Self::Mpi => "kubeflow.org/mpi-operator",
            _ => "kubeflow.org/training-operator",
        }
    }

    pub fn replica_specs_field(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorchReplicaSpecs",
            Self::TensorFlow => "tfReplicaSpecs",
            Self::Mpi => "mpiReplicaSpecs",
        }
    }

    /// Roles in the order of ranks, with their default restart policies.
    pub fn roles(self) -> &'static [(&'static str, Restart)] {
        match self {
            Self::PyTorch => &[("Master", Restart::OnFailure), ("Worker", Restart::OnFailure)],
            Self::TensorFlow => &[
                ("Chief", Restart::Never),
                ("Master", Restart::Never),
                ("PS", Restart::Never),
                ("Worker", Restart::Never),
                ("Evaluator", Restart::Never),
            ],
            Self::Mpi => &[("Launcher", Restart::OnFailure), ("Worker", Restart::Never)],
        }
    }

    /// Each pod, or the launcher, gets the addresses of all.
    pub fn lists_hosts(self) -> bool {
        matches!(self, Self::TensorFlow | Self::Mpi)
    }

    pub fn default_clean_pods(self) -> &'static str {
        match self {
            Self::TensorFlow => "Running",
            _ => "None",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
    /// By the exit code: 128 and above is retried.
    ExitCode,
}

/// One role of a job.
#[derive(Debug)]
pub(super) struct Role<'j> {
    pub name: &'static str,
    pub lower: String,
    pub replicas: i64,
    pub restart: Restart,
    pub template: &'j Value,
}

impl Role<'_> {
    pub fn pod_name(&self, job: &Object, index: i64) -> String {
        format!("{}-{}-{index}", job.name(), self.lower)
    }

    /// The component's name in bindings and reservations.
    pub fn component(&self, framework: Framework) -> &str {
        if framework == Framework::Mpi { self.name } else { &self.lower }
    }

    pub fn labels(&self, job: &Object, framework: Framework) -> Value {
        json!({
            JOB_NAME_LABEL: job.name(),
            OPERATOR_LABEL: framework.operator(),
            REPLICA_TYPE_LABEL: self.lower,
        })
    }
}

/// Number of pods of one role by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub active: i64,
    pub succeeded: i64,
    pub failed: i64,
}

/// State of the job by the rules of its framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Starting,
    Running,
    Succeeded,
}

/// Input for the rules of a framework.
pub(super) struct View<'a> {
    pub job: &'a Object,
    pub roles: &'a [Role<'a>],
    pub tallies: &'a [Tally],
    pub pods: &'a Pods,
}

impl View<'_> {
    pub fn role(&self, name: &str) -> Option<(&Role<'_>, Tally)> {
        let at = self.roles.iter().position(|role| role.name == name)?;
        Some((&self.roles[at], self.tallies[at]))
    }

    pub fn total(&self) -> i64 {
        fleet_resources::sum(self.roles.iter().map(|role| role.replicas))
    }
}

//! The kinds of objects with controllers, each with its planning rules.

use std::collections::BTreeSet;

use fleet_agent_ground::{JobController, resource};
use kube::discovery::ApiResource;

use crate::plan::Framework;

/// A kind of object that owns pods (a Deployment: that owns ReplicaSets).
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub role: Role,
    pub resource: ApiResource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Kubeflow(Framework),
    Batch,
    Volcano,
    Deployment,
    ReplicaSet,
}

pub(crate) fn kinds(enabled: &BTreeSet<JobController>) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for controller in enabled {
        let (role, resource) = match controller {
            JobController::PyTorchJob => (
                Role::Kubeflow(Framework::PyTorch),
                resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
            ),
            JobController::TFJob => {
                (Role::Kubeflow(Framework::TensorFlow), resource("kubeflow.org", "v1", "TFJob", "tfjobs"))
            }
            JobController::MPIJob => {
                (Role::Kubeflow(Framework::Mpi), resource("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"))
            }
            JobController::VolcanoJob => {
                (Role::Volcano, resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"))
            }
            JobController::BatchJob => (Role::Batch, resource("batch", "v1", "Job", "jobs")),
            JobController::Deployment => {
                let sets = resource("apps", "v1", "ReplicaSet", "replicasets");
                kinds.push(Kind { role: Role::ReplicaSet, resource: sets });
                (Role::Deployment, resource("apps", "v1", "Deployment", "deployments"))
            }
        };
        kinds.push(Kind { role, resource });
    }
    kinds
}

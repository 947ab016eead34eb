//! Job controllers for members that have no operators of their own: PyTorchJob, TFJob, MPIJob, Volcano Job,
//! batch Job and Deployment; each runs only when the options name it.
//!
//! `plan` decides, as pure functions; `driver` watches, carries out and writes status. The controllers
//! delete what a deleted job leaves themselves, because a member may have no garbage collector.
//! Deliberately absent: placing pods (the scheduler's), running them (the kubelet's, real or hollow).

mod driver;
mod objects;
mod pace;
mod plan;
mod ssh_keys;
mod state;
#[cfg(test)]
mod tests;
mod volcano_feed;
pub(crate) mod writes;

use std::sync::Arc;

use fleet_informer::Source;
use kube::discovery::ApiResource;

pub(crate) use objects::{Object, Pod, controller_of, resource};
pub(crate) use plan::volcano;

use crate::{Context, JobController, clock::Clock, flows};
use driver::Driver;
use plan::Framework;

/// Runs the enabled controllers until the agent stops.
///
/// # Errors
/// None at present; what fails is tried again.
pub async fn run(context: Arc<Context>) -> anyhow::Result<()> {
    let kinds = kinds(&context.options.controllers);
    if kinds.is_empty() {
        context.shutdown.cancelled().await;
        return Ok(());
    }
    let (cluster, lease) = (&context.options.cluster, Some(context.lease.clone()));
    // Where others schedule, groups are let in by them, or by nobody.
    let admissions = (!context.options.scheduler_names.is_empty()).then(|| context.admissions.clone());
    let (client, shutdown) = (context.member.clone(), context.shutdown.clone());
    let source = &context.sources.member;
    let flows = async {
        if kinds.iter().any(|kind| kind.role == Role::Volcano) {
            flows::run(client.clone(), source.clone(), cluster, context.clock, shutdown.clone()).await;
        }
    };
    let driver =
        Driver::new(client.clone(), source.clone(), cluster, kinds.clone(), context.clock, lease, admissions)
            .with_places(context.reservations().clone());
    let jobs = driver::run(driver, shutdown.clone());
    tokio::join!(jobs, flows);
    Ok(())
}

/// Runs these controllers against one API server, without an agent, until `shutdown` is cancelled.
pub async fn run_alone(
    client: kube::Client,
    name: &str,
    enabled: &std::collections::BTreeSet<JobController>,
    shutdown: tokio_util::sync::CancellationToken,
) {
    let kinds = kinds(enabled);
    if kinds.is_empty() {
        shutdown.cancelled().await;
    } else {
        let driver = Driver::new(client, Source::unasked(name), name, kinds, Clock::start(), None, None);
        driver::run(driver, shutdown).await;
    }
}

/// A kind of object that owns pods (a Deployment: that owns ReplicaSets).
#[derive(Clone, Debug)]
struct Kind {
    role: Role,
    resource: ApiResource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Kubeflow(Framework),
    Batch,
    Volcano,
    Deployment,
    ReplicaSet,
}

fn kinds(enabled: &std::collections::BTreeSet<JobController>) -> Vec<Kind> {
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

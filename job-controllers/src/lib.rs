//! Job controllers for members without operators: PyTorchJob, TFJob, MPIJob, Volcano Job, batch Job and
//! Deployment. Each runs only if the options name it.
//!
//! `plan` decides, as pure functions; `driver` watches, and `carry_out` writes the plan. The controllers
//! delete the objects of a deleted job themselves, because a member may have no garbage collector. `flows`
//! does the same for JobFlows and Volcano's CronJobs. Deliberately absent: placing pods (the scheduler does),
//! running them (the kubelet does, real or simulated).

mod carry_out;
mod cycle;
mod driver;
mod events;
mod flows;
mod kinds;
mod pace;
mod plan;
mod refusals;
mod ssh_keys;
mod state;
#[cfg(test)]
mod tests;
mod volcano_feed;

use std::collections::BTreeSet;

use fleet_agent_ground::{Admissions, Clock, JobController, LeaseClock, Link, Reservations};
use fleet_informer::Source;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub use flows::problem_of as flow_problem;
pub use plan::volcano::problem as volcano_job_problem;

use driver::Driver;
use kinds::{Kind, Role, kinds};

/// Handles of this crate.
pub struct Handles {
    pub member: Link,
    pub clock: Clock,
    /// Fenced jobs run only while it is in good standing; `None`: there is no hub.
    pub lease: Option<LeaseClock>,
    /// The scheduler's admission of jobs; without a scheduler all are admitted.
    pub admissions: Option<Admissions>,
    /// Access to held places; without it the scheduler binds every pod.
    pub places: Option<Reservations>,
}

/// Runs the enabled controllers until `shutdown` is cancelled.
pub fn run(
    handles: Handles,
    enabled: &BTreeSet<JobController>,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(run_in_place(handles, kinds(enabled), shutdown))
}

async fn run_in_place(handles: Handles, kinds: Vec<Kind>, shutdown: CancellationToken) {
    let (member, clock) = (handles.member.clone(), handles.clock);
    let flows = async {
        if kinds.iter().any(|kind| kind.role == Role::Volcano) {
            flows::run(member, clock, shutdown.clone()).await;
        }
    };
    tokio::join!(run_jobs(handles, kinds.clone(), shutdown.clone()), flows);
}

async fn run_jobs(handles: Handles, kinds: Vec<Kind>, shutdown: CancellationToken) {
    if kinds.is_empty() {
        return shutdown.cancelled().await;
    }
    driver::run(Driver::new(handles, kinds), shutdown).await;
}

/// Runs these controllers against one API server, without an agent and flows, until `shutdown` is cancelled.
pub fn run_alone(
    client: kube::Client,
    name: &str,
    enabled: &BTreeSet<JobController>,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    let member = Link::new(client, Source::unasked(name), name);
    let handles = Handles { member, clock: Clock::start(), lease: None, admissions: None, places: None };
    Box::pin(run_jobs(handles, kinds(enabled), shutdown))
}

//! The plan of one job: a pure function of the job, its pods and the time.
//!
//! Inputs: the job as JSON, the pods that it controls, `now`. Output: a `JobPlan`, which the driver carries out
//! without further decisions. Deliberately absent: clients, clocks, random names.

#[cfg(test)]
mod any_form;
mod batch;
mod deployment;
mod kubeflow;
pub(crate) mod limits;
mod mpi;
mod pod;
mod pytorch;
mod replicas;
mod status;
mod tensorflow;
#[cfg(test)]
mod tests;
mod types;
pub(crate) mod volcano;

pub(crate) use batch::plan as batch;
pub(crate) use deployment::{plan_deployment, plan_replica_set};
pub(crate) use kubeflow::plan as kubeflow;
pub(crate) use replicas::Framework;
pub(crate) use types::{Delayed, JobPlan, Pods, RESTARTS_ANNOTATION, count, rfc3339, time_left};

//! Volcano's Job (`batch.volcano.sh/v1alpha1`): tasks of pods in one gang, driven through ten phases by
//! lifecycle policies, or by the completion rules of a job that brings its own (`policy`).
//!
//! Upstream derives events as they happen; here they are read off what stands (a failed pod of the present
//! version, a task whose pods have all succeeded), so that a restart of the agent loses none. Only a pod that
//! was gone before a plan saw it go leaves no such mark: the driver hands those in as `lost`. A change of phase is
//! written before anything it entails is done. What has changed of a job is handed in as well: a change made while no
//! agent ran is the event `JobUpdated` for nobody.

mod count;
mod group;
mod group_status;
mod job;
mod make;
mod phase;
mod plugins;
mod policy;
mod step;
mod task;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use job::plan;
pub(crate) use plugins::SSH_SECRET_LABEL;
pub use task::problem;
pub(crate) use view::{Command, Input, OUT_OF_SYNC};

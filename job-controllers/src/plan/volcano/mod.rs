//! Volcano's Job (`batch.volcano.sh/v1alpha1`): tasks of pods in one gang, driven through ten phases by
//! lifecycle policies, or by the job's own completion rules (`policy`).
//!
//! Volcano derives events as they happen. Here they are derived from existing objects (a failed pod of the
//! current version, a task whose pods have all succeeded), so a restart of the agent loses none. Only a pod
//! that was gone before a plan saw its deletion leaves no trace; the driver passes those as `lost`. A change
//! of phase is written before its work is done. Changes of a job are passed in as well; `seen` records the
//! spec, so that changes made while no agent ran are noticed.

mod count;
mod group;
mod group_status;
mod job;
mod make;
mod phase;
mod plugins;
mod policy;
mod seen;
mod step;
mod task;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use job::{INVALID_SPEC, plan};
pub(crate) use plugins::SSH_SECRET_LABEL;
pub(crate) use seen::is_changed_since;
pub use task::problem;
pub(crate) use view::{Command, Input, OUT_OF_SYNC};

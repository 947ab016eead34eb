//! Pure rules of admission: the use of each node of the quota tree, the order of waiting jobs, preemption, and why a
//! job waits.
//!
//! Inputs are plain data; times are milliseconds given by the caller. Whether a job fits on a cluster is asked
//! through [`Places`], so that admission and placement are one decision. Deliberately absent: clocks, clients, and
//! any choice that depends on hash order.

mod ledger;
mod names;
mod places;
mod plan;
mod planner;
mod queues;
mod refusal;
mod share;
#[cfg(test)]
mod tests;
mod victims;

pub use ledger::{AdmittedJob, Ledger};
pub use names::{ClusterName, JobId};
pub use places::{AnyPlace, Places};
pub use plan::{
    Claim, Decision, NotAdmitted, Outcome, PlanLimits, QuotaPlan, Take, TakeRule, Victim, WaitReason,
};
pub use planner::{Planner, Position, TreeEdit};
pub use queues::{OrderKey, QueuePolicy, Queues, WaitingJob};
pub use refusal::{QuotaRefusal, Rule, Shortfall};
pub use share::Share;

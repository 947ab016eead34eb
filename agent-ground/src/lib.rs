//! Foundations of the agent's crates: requests with timeouts, lean objects and pods, feeds and queues, and
//! the handles through which the crates communicate ([`Admissions`], [`Reservations`], [`Owned`], [`Terms`],
//! [`LeaseClock`]).
//!
//! A handle is data with an owner: one crate writes it, others read. Deliberately absent: decisions about
//! objects.

mod admissions;
mod call;
mod clock;
mod counts;
mod events;
mod job_controller;
pub mod lean;
mod link;
mod objects;
mod owned;
pub mod permits;
mod places;
pub mod pod_group;
mod queue;
pub mod requests;
mod sorted;
mod standing;
mod terms;
mod turns;
pub mod volcano;

pub use admissions::{AdmissionVerdict, Admissions};
pub use call::{CALL_TIMEOUT, CallError, call};
pub use clock::{Backoff, Clock};
pub use counts::{AgentMetrics, Counts, WorkOutcome};
pub use events::{Event, run as feed_events};
pub use job_controller::JobController;
pub use link::Link;
pub use objects::{Object, Pod, PodStatus, controller_of, resource};
pub use owned::{Owned, OwnedJob};
pub use permits::Permits;
pub use places::{HoldRequest, PlaceQuestion, Reservations};
pub use queue::{Next, Queue};
pub use sorted::Sorted;
pub use standing::{LeaseClock, LeaseState, Standing};
pub use terms::{IDENTITY_CONFIG_MAP, Terms};
pub use turns::{ObjectKey, Shown, Turn, check, follow, is_same_but_status, key_of, show, take};

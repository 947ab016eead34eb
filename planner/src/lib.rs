//! Which job is admitted next, and to which cluster: admission and placement as one decision.
//!
//! Inputs: jobs, members, the quota tree and queue policies as plain data, the members' answers, and the time
//! in milliseconds. Outputs: typed decisions, and for each waiting job the reason why it waits. The
//! controller's `schedule` converts objects to inputs and decisions to writes; simulations drive the same
//! planner. Deliberately absent: API objects, clocks, IO, and anything that depends on hash order. The cost
//! of a plan depends on what changed.

mod cells;
mod decision;
mod entry;
mod job;
mod learnt;
mod place;
mod planner;
mod refusals;
mod room;
mod settings;
mod silence;
#[cfg(test)]
mod tests;
pub mod unqueued;
mod verdicts;
pub mod verify;
mod view;

pub use cells::ask::{CellGroupAsk, CellJob, CellNodes, SharedCellJob, as_admitted};
pub use decision::{Answer, Decision, Plan, earliest};
pub use job::{Counted, Held, Job, JobPhase, JobShape, Waiting};
pub use place::unfit_text;
pub use planner::{Planner, VcJobs, VcUse};
pub use room::{Member, Room, Rooms};
pub use settings::Settings;
pub use silence::Silence;
pub use view::{
    Amounts, ClaimView, HOLDERS_LISTED, HolderView, LINE_LISTED, MemberView, QueueView, View, WaitingView,
};

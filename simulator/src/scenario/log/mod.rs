//! The log of a run: typed records, their JSON lines, their text form, and the summary.
//!
//! Both modes pass [`Record`]s in the order of virtual time to a [`Log`] and end with a [`Summary`]. The names of
//! events and fields are a contract, described in `docs/scenarios.md`. Deliberately absent: colours by default,
//! wall-clock times, and anything else that would make two runs of one file differ.

mod chart;
mod people;
mod record;
mod sink;
mod summary;
#[cfg(test)]
mod tests;
mod whole;

pub use people::{People, SummaryOnly};
pub use record::{Ending, NodesOf, Record, What};
pub use sink::{JsonLines, Kept, Log};
pub use summary::{Summary, Tally, Violation};
pub use whole::WholeLog;

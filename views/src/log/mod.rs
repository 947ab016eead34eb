//! Run logs: the events of a fleet, one JSON object a line, and the fleet at any time of the log.
//!
//! `fleet simulate` writes such logs, and so does the controller. [`Line`] is their format, [`Replay`]
//! computes the state of the fleet from lines, [`Recording`] seeks to any time of a log, and [`Recorder`]
//! writes lines when facts change. Not here: files and clocks.

mod line;
mod recorder;
mod recording;
mod replay;
mod shown;
mod story;
#[cfg(test)]
mod tests;

pub use line::{Clock, Event, Line, LineError, Parsed, Submission};
pub use recorder::Recorder;
pub use recording::{Around, Coverage, Recording};
pub use replay::Replay;
pub use story::story;

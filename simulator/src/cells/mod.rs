//! Scenarios of mode `cells`: virtual clusters and groups over the allocator of cells alone, on a virtual clock.
//!
//! The file has HiveD's configuration, unchanged, and timed events; see `docs/scenarios.md`. Jobs (`group`) wait in
//! one queue per virtual cluster, by priority and age, and are tried again after each change; a job that does not
//! fit is skipped. Single pods (`pod`) are tried once, as by HiveD's extender. Deliberately absent: clusters, quota
//! trees and the hub; here only cells decide.

mod engine;
mod log_event;
mod model;
mod named;
mod read;
mod run_log;
#[cfg(test)]
mod tests;

use std::io;

use fleet_cells::Cells;
pub use log_event::{LogEvent, Record, Summary};
pub use model::{Action, CellScenario, Event, Job, NeverFits, Pod};
pub use run_log::RunLog;

use crate::scenario::ScenarioError;

/// Reads a file that is HiveD's configuration, or OpenPAI's wrapper of one.
///
/// # Errors
/// The first mistake, with line and field.
pub fn read_config(file: &str, text: &str) -> Result<fleet_cells::config::ClusterConfig, ScenarioError> {
    read::config_file(file, text)
}

impl CellScenario {
    /// Reads a file's text; none when it is a scenario of another mode.
    ///
    /// # Errors
    /// The first mistake, with line and field.
    pub fn read(file: &str, text: &str) -> Result<Option<Self>, ScenarioError> {
        read::scenario(file, text)
    }

    /// Runs it. Each record is reported as it happens.
    ///
    /// # Errors
    /// A record cannot be told, or the configuration does not hold together.
    pub fn run(&self, watch: &mut dyn Watch) -> io::Result<Summary> {
        engine::run(self, watch)
    }
}

/// Is told what happens in a run.
pub trait Watch {
    /// # Errors
    /// It cannot be told.
    fn record(&mut self, record: &Record) -> io::Result<()>;

    /// How the cells stand after the records so far.
    ///
    /// # Errors
    /// It cannot be told.
    fn stand(&mut self, _at_ms: i64, _cells: &Cells) -> io::Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&Record) -> io::Result<()>> Watch for F {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self(record)
    }
}

/// Tells the first, and the second if there is one.
pub struct Both<A, B>(pub A, pub Option<B>);

impl<A: Watch, B: Watch> Watch for Both<A, B> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.0.record(record)?;
        self.1.as_mut().map_or(Ok(()), |second| second.record(record))
    }

    fn stand(&mut self, at_ms: i64, cells: &Cells) -> io::Result<()> {
        self.0.stand(at_ms, cells)?;
        self.1.as_mut().map_or(Ok(()), |second| second.stand(at_ms, cells))
    }
}

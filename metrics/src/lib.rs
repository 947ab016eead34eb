//! What processes count, as Prometheus reads it: OpenMetrics text at `/metrics`.
//!
//! A part of a process has a registry of its own and implements [`Exposed`]; the process puts the parts together in an
//! [`Exposition`]. Names follow Prometheus' rules: base units, `_total` for counters, one prefix for each part.
//! Deliberately absent: names of jobs, users and namespaces, since whoever reaches the port may read it.

mod gauges;
mod process;
mod serve;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{encoding::text::encode_registry, registry::Registry};

pub use gauges::{Gauges, Labels, amounts};
pub use process::Process;
pub use serve::{answer, serve};

/// Media type of the text.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A part of a process that counts.
pub trait Exposed: Send + Sync {
    /// Appends all that it counts, without the end mark.
    fn write(&self, text: &mut String);
}

impl Exposed for Mutex<Registry> {
    fn write(&self, text: &mut String) {
        let registry = self.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        let _ = encode_registry(text, &registry);
    }
}

/// Everything that one process counts.
#[derive(Clone, Default)]
pub struct Exposition(Vec<Arc<dyn Exposed>>);

impl Exposition {
    pub fn new(parts: impl IntoIterator<Item = Arc<dyn Exposed>>) -> Self {
        Self(parts.into_iter().collect())
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.0 {
            part.write(&mut text);
        }
        text.push_str("# EOF\n");
        text
    }
}

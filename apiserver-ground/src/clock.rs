//! The time of objects.
//!
//! Absent on purpose: timers, which use `tokio::time`.

use std::sync::Arc;

/// The time source of objects. Timers use `tokio::time` instead.
#[derive(Clone)]
pub struct Clock(pub Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>);

impl Default for Clock {
    fn default() -> Self {
        Clock(Arc::new(jiff::Timestamp::now))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// The time now.
    pub fn now(&self) -> jiff::Timestamp {
        (self.0)()
    }

    /// The time now, as object timestamps are written.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }
}

/// RFC 3339 in whole seconds, as object timestamps are written.
pub fn stamp(t: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(t.as_second()).unwrap_or(t).to_string()
}

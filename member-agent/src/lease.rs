//! The agent's Lease on the hub, and the clock that says until when the hub must believe it.
//!
//! The deadline counts from the moment the last renewal that succeeded was *sent*, on this process's
//! monotonic clock, so it is never later than the hub's own count.

use tokio::{sync::watch, time::Instant};

/// Until when the last renewal that succeeded holds.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    deadline: watch::Receiver<Option<Instant>>,
}

impl LeaseClock {
    pub(crate) fn new() -> (watch::Sender<Option<Instant>>, Self) {
        let (sender, deadline) = watch::channel(None);
        (sender, Self { deadline })
    }

    /// `None`: never renewed yet.
    pub fn deadline(&self) -> Option<Instant> {
        *self.deadline.borrow()
    }

    /// Whether the deadline lies ahead.
    pub fn is_held(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() < deadline)
    }

    /// Follows the deadline as renewals succeed.
    pub fn watch(&self) -> watch::Receiver<Option<Instant>> {
        self.deadline.clone()
    }
}

//! Writes that others wait for go before those that nobody waits for.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

/// Counts writes under way that others wait for, so that what nobody waits for can let them pass.
#[derive(Debug, Default)]
pub(crate) struct Urgent {
    under_way: AtomicUsize,
    ended: Notify,
}

/// One write under way.
pub(crate) struct UnderWay<'u>(&'u Urgent);

impl Urgent {
    pub fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Waits until at most `most` are under way, no longer than `patience`.
    pub async fn let_pass(&self, most: usize, patience: Duration) {
        let quiet = async {
            loop {
                let ended = self.ended.notified();
                if self.under_way.load(Ordering::Relaxed) <= most {
                    return;
                }
                ended.await;
            }
        };
        // Out of patience: the write goes out beside the others.
        let _ = tokio::time::timeout(patience, quiet).await;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

//! Writes on which others wait go before low-priority writes.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

/// Counts urgent writes in flight, so that low-priority writes can wait for them.
#[derive(Debug, Default)]
pub(crate) struct Urgent {
    under_way: AtomicUsize,
    ended: Notify,
}

/// One write in flight.
pub(crate) struct UnderWay<'u>(&'u Urgent);

impl Urgent {
    pub fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Waits until at most `most` are in flight, no longer than `patience`.
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
        // The time is over: the write is sent beside the others.
        let _ = tokio::time::timeout(patience, quiet).await;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

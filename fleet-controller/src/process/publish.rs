//! The snapshot that readers get after each pass.

use fleet_hub_core::planner::View;
use tokio::time::Instant;

use super::Process;

/// A snapshot rests this many times as long as it took: where there are very many jobs it is a small part of the
/// loop's time, and a little behind.
const VIEW_REST: u32 = 20;

impl Process {
    /// Publishes what the planner knows, if a pass was made since and the last snapshot has rested.
    pub(super) fn publish(&mut self, at: Instant) {
        if !self.view_due || self.view_rested > at {
            return;
        }
        self.view_due = false;
        let began = Instant::now();
        let now_ms = self.options.clock.now().as_millisecond();
        self.options.views.publish(View::of(self.scheduler.planner(), now_ms));
        let ended = Instant::now();
        self.view_rested = ended + (ended - began) * VIEW_REST;
    }
}

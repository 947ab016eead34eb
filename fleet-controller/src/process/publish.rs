//! Publishes a snapshot for readers after each pass.

use fleet_hub_core::planner::View;
use tokio::time::Instant;

use super::Process;

/// Pause between snapshots, as a multiple of the time that one took: with very many jobs, snapshots take a
/// small part of the loop's time and lag a little.
const VIEW_REST: u32 = 20;

impl Process {
    /// Publishes the planner's state, if there was a pass since the last snapshot and the pause is over.
    pub(super) fn publish(&mut self, at: Instant) {
        if !self.view_due || self.view_rested > at {
            return;
        }
        self.view_due = false;
        let began = Instant::now();
        let now_ms = self.options.clock.now().as_millisecond();
        let view = View::of(self.scheduler.planner(), now_ms);
        self.options.metrics.see(&view);
        self.options.views.publish(view);
        let ended = Instant::now();
        self.view_rested = ended + (ended - began) * VIEW_REST;
    }
}

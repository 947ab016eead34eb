//! The newest snapshot of the planner, for readers outside the loop.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fleet_hub_core::planner::View;

/// Clones share the snapshot. A reader keeps the snapshot that it took.
#[derive(Clone, Debug, Default)]
pub struct Views(Arc<ArcSwap<View>>);

impl Views {
    pub fn publish(&self, view: View) {
        self.0.store(Arc::new(view));
    }

    /// The newest snapshot; sequence 0 before the first plan, and on a controller that does not lead.
    pub fn latest(&self) -> Arc<View> {
        self.0.load_full()
    }
}

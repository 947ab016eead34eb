//! What the controller knows, for readers beside it: the newest snapshot of its planner.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fleet_hub_core::planner::View;

/// Clones share what is published. A reader keeps the snapshot it took, whatever comes next.
#[derive(Clone, Debug, Default)]
pub struct Views(Arc<ArcSwap<View>>);

impl Views {
    pub fn publish(&self, view: View) {
        self.0.store(Arc::new(view));
    }

    /// The newest; of sequence 0 before the first plan, and of a controller that does not lead.
    pub fn latest(&self) -> Arc<View> {
        self.0.load_full()
    }
}

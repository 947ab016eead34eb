//! Shuffle: evicts pods that should leave their nodes, for no other pod (plugins tdm, rescheduling).

use crate::cluster::Cluster;
use crate::cycle::{Eviction, Outcome};
use crate::pod::Status;
use crate::settings::Action;

impl Cluster {
    pub(crate) fn shuffle(&mut self, outcome: &mut Outcome) {
        for pod in self.policy.plugins.leavers(&self.state) {
            let node = self.pod(pod).node;
            if self.pod(pod).status != Status::Releasing {
                self.set_place(pod, Status::Releasing, node);
                outcome.evicted.push(Eviction { pod, taker: None, action: Action::Shuffle });
            }
        }
        if self.is_rescheduling_due() {
            self.rescheduled_at = Some(self.now);
        }
    }

    fn is_rescheduling_due(&self) -> bool {
        let plugin = self.policy.plugins.rescheduling.as_ref();
        plugin.is_some_and(|on| on.rules.is_due(&self.state))
    }
}

//! Shuffle: evicts pods whose node is revoked at this time of day (plugin tdm), one of a group at a time.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::cycle::{Eviction, Outcome};
use crate::ids::PodId;
use crate::pod::Status;
use crate::settings::Action;

impl Cluster {
    pub(crate) fn shuffle(&mut self, outcome: &mut Outcome) {
        let Some(tdm) = self.policy.tdm() else { return };
        let mut doomed: Vec<PodId> = Vec::new();
        let mut disturbed = BTreeSet::new();
        for (_, node) in self.nodes.iter() {
            if !tdm.is_revoked(node, self.minute) {
                continue;
            }
            for pod in &node.pods {
                let known = self.pod(*pod);
                let leaves = matches!(known.status, Status::Running | Status::Bound) && known.preemptable;
                if leaves && !known.critical && disturbed.insert(known.group) {
                    doomed.push(*pod);
                }
            }
        }
        for pod in doomed {
            let node = self.pod(pod).node;
            self.set_place(pod, Status::Releasing, node);
            outcome.evicted.push(Eviction { pod, taker: None, action: Action::Shuffle });
        }
    }
}

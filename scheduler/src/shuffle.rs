//! Shuffle: evicts pods whose node is revoked at this time of day (plugin tdm), one of a group at a time.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::config::Action;
use crate::cycle::{Eviction, Outcome};
use crate::pod::{PodId, Status};

/// Whether a minute of the day is in a window that may cross midnight.
pub(crate) fn within((from, to): (i64, i64), minute: i64) -> bool {
    if from <= to { (from..to).contains(&minute) } else { minute >= from || minute < to }
}

impl Cluster {
    pub(crate) fn shuffle(&mut self, outcome: &mut Outcome) {
        let Some(zones) = self.policy.revocable_zones.clone() else { return };
        let mut doomed: Vec<PodId> = Vec::new();
        let mut disturbed = BTreeSet::new();
        for (_, node) in self.nodes.iter() {
            let zone = node.labels.get("volcano.sh/revocable-zone").and_then(|zone| zones.get(zone));
            if zone.is_none_or(|window| within(*window, self.minute)) {
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

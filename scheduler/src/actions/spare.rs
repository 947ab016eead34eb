//! Reprieve: victims that prove unnecessary are kept.
//!
//! Checked for each preemptor when it has its places, and once more for all preemptors of a cycle: a later one may
//! have freed more than it needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::cycle::Outcome;
use crate::ids::{GroupId, NodeId, PodId, QueueId};
use crate::pod::Status;

impl Cluster {
    /// Reprieves victims of this group that it does not need: a whole gang, or a pod beyond its gang's minimum.
    pub(crate) fn spare_the_unneeded(&mut self, id: GroupId) {
        let before = self.statuses_before();
        let mut leaving: BTreeMap<GroupId, Vec<PodId>> = BTreeMap::new();
        for pod in self.moved() {
            let known = self.pod(pod);
            if known.group != id && known.status == Status::Releasing {
                leaving.entry(known.group).or_default().push(pod);
            }
        }
        let queue = self.group(id).queue;
        for (gang, pods) in leaving {
            self.spare(gang, pods, &before, queue);
        }
    }

    /// The same for the victims of all preemptors of the cycle, highest priority first. They are removed from the
    /// outcome.
    pub(crate) fn spare_the_untaken(&mut self, outcome: &mut Outcome) {
        let stood = std::mem::take(&mut outcome.stood);
        let takers: BTreeSet<GroupId> =
            outcome.evicted.iter().filter_map(|eviction| eviction.taker).collect();
        // A single preemptor was checked already.
        if takers.len() < 2 {
            return;
        }
        let mut leaving: BTreeMap<(std::cmp::Reverse<i64>, GroupId), Vec<PodId>> = BTreeMap::new();
        for pod in stood.keys().copied().filter(|pod| self.pod(*pod).status == Status::Releasing) {
            let gang = self.pod(pod).group;
            leaving.entry((std::cmp::Reverse(self.group(gang).input.priority), gang)).or_default().push(pod);
        }
        for ((_, gang), pods) in leaving {
            let queue = self.group(gang).queue;
            self.spare(gang, pods, &stood, queue);
        }
        let stays = |pod: PodId| stood.contains_key(&pod) && self.pod(pod).status != Status::Releasing;
        let staying: BTreeSet<PodId> = stood.keys().copied().filter(|pod| stays(*pod)).collect();
        outcome.evicted.retain(|eviction| !staying.contains(&eviction.pod));
    }

    /// Reprieves pods of one gang, a whole gang or one spare pod at a time, if every reserved place can still be
    /// bound and the queue does not exceed its limit.
    fn spare(&mut self, gang: GroupId, pods: Vec<PodId>, stood: &BTreeMap<PodId, Status>, queue: QueueId) {
        let whole = self.group(gang).ready() < self.group(gang).min();
        let parts: Vec<Vec<PodId>> =
            if whole { vec![pods] } else { pods.into_iter().map(|pod| vec![pod]).collect() };
        for part in parts {
            let nodes: Vec<NodeId> = part.iter().filter_map(|pod| self.pod(*pod).node).collect();
            for (pod, node) in part.iter().zip(&nodes) {
                let was = stood.get(pod).copied().unwrap_or(Status::Releasing);
                self.set_place(*pod, was, Some(*node));
            }
            let crowded = nodes.iter().any(|node| {
                self.nodes.cells(*node).iter().any(|cell| cell.future_idle() < 0 && cell.pipelined > 0)
            });
            if crowded || self.over_queue(queue) || nodes.iter().any(|node| self.is_sensitive(*node)) {
                for (pod, node) in part.iter().zip(&nodes) {
                    self.set_place(*pod, Status::Releasing, Some(*node));
                }
            }
        }
    }

    /// A pod with a place there depends on its neighbours, or on the cards or NUMA cells that they leave.
    fn is_sensitive(&self, node: NodeId) -> bool {
        let standing = self.nodes.get(node).pods.iter().map(|pod| self.pod(*pod));
        standing.filter(|pod| pod.status == Status::Pipelined).any(|pod| {
            let class = self.class(pod.class);
            !pod.matches.is_empty() || class.has_pod_terms() || self.policy.plugins.is_sensitive(class)
        })
    }
}

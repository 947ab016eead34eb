//! Claims: a wide gang that others have passed too often gets nodes reserved until it fits.
//!
//! One gang at a time, the first in order. Only nodes that will hold it once they are empty are reserved, those
//! with the least to wait for. All other nodes stay open to everybody (backfill).

use std::cmp::Reverse;

use crate::cluster::Cluster;
use crate::group::{Phase, Waits};
use crate::ids::{GroupId, NodeId};

/// Pods that may pass a gang, for each pod that it needs.
const BYPASS_PER_POD: u64 = 8;
/// Pods that may pass any gang.
const MIN_BYPASS: u64 = 64;

impl Cluster {
    pub(crate) fn claim_for_the_bypassed(&mut self) {
        let over: Vec<GroupId> = self.claims.keys().copied().filter(|id| !self.still_waits(*id)).collect();
        over.into_iter().for_each(|id| self.drop_claims(id));
        if !self.claims.is_empty() || !self.policy.gang {
            return;
        }
        let mut first = None;
        for queue in self.queue_ids() {
            let waiting = self
                .queue(queue)
                .waiting
                .iter()
                .filter(|(shape, w)| shape.need > 1 && w.is_refused(self.room));
            for (key, id) in waiting.filter_map(|(_, waiting)| waiting.groups.first()) {
                let order = (self.queue_key(queue), *key, *id);
                if self.is_bypassed(*id) && first.is_none_or(|first| order < first) {
                    first = Some(order);
                }
            }
        }
        let Some((.., id)) = first else { return };
        let nodes = self.nodes_to_keep(id);
        if nodes.is_empty() {
            return;
        }
        nodes.iter().for_each(|node| self.nodes.claim(*node, Some(id)));
        self.claims.insert(id, nodes);
        self.mark(id);
    }

    fn still_waits(&self, id: GroupId) -> bool {
        self.try_group(id).is_some_and(|group| {
            group.phase != Phase::Pending && matches!(group.waits, Waits::Inside(..)) && group.need() > 0
        })
    }

    fn is_bypassed(&self, id: GroupId) -> bool {
        let group = self.group(id);
        let most = MIN_BYPASS.max((group.need() as u64).saturating_mul(BYPASS_PER_POD));
        group.refused_since.is_some_and(|since| self.bound_pods.saturating_sub(since) >= most)
    }

    /// Nodes that can hold the gang's minimum once they are empty; none if they cannot.
    fn nodes_to_keep(&self, id: GroupId) -> Vec<NodeId> {
        let group = self.group(id);
        let mut kept: Vec<NodeId> = Vec::new();
        let mut need = group.need();
        for (class, pending) in &group.pending_by_class {
            let class = self.class(*class);
            let mut left = need.min(i64::from(*pending));
            need -= left;
            let fits = |node: NodeId| {
                let cells = self.nodes.cells(node);
                let times = class.request.iter().map(|(d, n)| cells[usize::from(*d)].allocatable / n).min();
                times.unwrap_or(i64::MAX).min(cells[crate::amounts::PODS].allocatable)
            };
            let standing = |node: NodeId| self.nodes.get(node).pods.len();
            let mut open: Vec<(Reverse<i64>, usize, NodeId)> = self
                .nodes
                .iter()
                .filter(|(node, state)| {
                    !kept.contains(node) && self.admits(class, state).is_ok() && fits(*node) > 0
                })
                .map(|(node, _)| {
                    let idle = class
                        .request
                        .first()
                        .map_or(0, |(d, _)| self.nodes.cell(node, usize::from(*d)).idle());
                    (Reverse(idle), standing(node), node)
                })
                .collect();
            open.sort_unstable();
            for (.., node) in open {
                if left <= 0 {
                    break;
                }
                left -= fits(node);
                kept.push(node);
            }
            if left > 0 {
                return Vec::new();
            }
        }
        kept
    }
}

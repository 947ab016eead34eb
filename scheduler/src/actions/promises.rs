//! Pipelined places: places of a group whose former pods are terminating.
//!
//! They are bound when all places of the group are free. They are dropped when that can no longer happen: the node
//! is gone, the victims stayed, or the group changed.

use crate::cluster::Cluster;
use crate::cycle::Outcome;
use crate::ids::{GroupId, NodeId, PodId};
use crate::pod::Status;

impl Cluster {
    pub(crate) fn settle_promises(&mut self, outcome: &mut Outcome) {
        let groups: Vec<GroupId> = self.promised.iter().copied().collect();
        for id in groups {
            if self.try_group(id).is_none_or(|group| group.count(Status::Pipelined) == 0) {
                self.promised.remove(&id);
                continue;
            }
            let promised: Vec<(PodId, NodeId)> = self
                .group(id)
                .pods
                .iter()
                .filter(|pod| self.pod(**pod).status == Status::Pipelined)
                .filter_map(|pod| Some((*pod, self.pod(*pod).node?)))
                .collect();
            let holds = |node: &NodeId| {
                let state = self.nodes.get(*node);
                state.known
                    && state.ready
                    && !state.unschedulable
                    && self
                        .nodes
                        .cells(*node)
                        .iter()
                        .all(|cell| cell.pipelined == 0 || cell.future_idle() >= 0)
            };
            if !promised.iter().all(|(_, node)| holds(node)) || !self.group(id).is_pipelined() {
                promised.iter().for_each(|(pod, _)| self.set_place(*pod, Status::Pending, None));
                self.promised.remove(&id);
                self.freed();
                self.refresh_group(id);
                continue;
            }
            self.begin();
            let free = promised.iter().all(|(pod, node)| {
                let request = self.request_of(*pod);
                let known = self.pod(*pod);
                let terms = !self.is_plain(self.class(known.class)) || !known.matches.is_empty();
                let leaving = terms
                    && self
                        .nodes
                        .get(*node)
                        .pods
                        .iter()
                        .any(|pod| self.pod(*pod).status == Status::Releasing);
                let enough = !leaving
                    && self.nodes.cell(*node, crate::amounts::PODS).idle() >= 1
                    && request
                        .iter()
                        .all(|(place, amount)| self.nodes.cell(*node, usize::from(*place)).idle() >= *amount);
                if enough {
                    self.set_place(*pod, Status::Binding, Some(*node));
                }
                enough
            });
            if !free {
                self.rollback(0);
            }
            self.commit();
            if free {
                self.promised.remove(&id);
                self.group_mut(id).why = None;
                outcome.bind(id, promised);
                self.refresh_group(id);
            }
        }
    }
}

//! Places by the packing search, which tries other orders than pod by pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::ids::{ClassId, GroupId, NodeId, PodId, QueueId};
use crate::pod::Status;

impl Cluster {
    /// Places the pods that the group needs by the packing search, which tries other orders.
    pub(super) fn pack(&mut self, id: GroupId) -> Option<Vec<(PodId, NodeId)>> {
        let group = self.group(id);
        let need = usize::try_from(group.need()).ok()?;
        if group.pending.len() < need {
            return None;
        }
        let mut pods: Vec<PodId> = Vec::with_capacity(need);
        // The tasks' own minima first, then in order.
        let wanted: Vec<i64> = group
            .roles
            .iter()
            .map(|role| {
                let have = [Status::Bound, Status::Binding, Status::Running, Status::Succeeded];
                (role.min - have.map(|status| role.counts[status as usize]).iter().sum::<i64>()).max(0)
            })
            .collect();
        let mut taken = vec![0_i64; wanted.len()];
        let mut demanded: BTreeSet<PodId> = BTreeSet::new();
        for first in [true, false] {
            for (.., pod) in &group.pending {
                let role = usize::from(self.pod(*pod).role);
                let of_role = taken[role] < wanted[role];
                if pods.len() < need && of_role == first && !demanded.contains(pod) {
                    taken[role] += 1;
                    pods.push(*pod);
                }
            }
            demanded.extend(&pods);
        }
        if pods.len() < need {
            return None;
        }
        let mut placed = self.pack_pods(id, &pods)?;
        self.place_best_effort(id, None, &mut placed).then_some(placed)
    }

    /// Places exactly these pods of a waiting group, or none and says why.
    ///
    /// # Errors
    /// One sentence.
    pub fn place_exactly(&mut self, id: GroupId, pods: &[PodId]) -> Result<Vec<(PodId, NodeId)>, Arc<str>> {
        self.refresh();
        self.refresh_shares();
        self.begin();
        let mut placed = Vec::with_capacity(pods.len());
        let mut unplaced = None;
        for pod in pods {
            match self.find_node(*pod, None) {
                Some(node) => {
                    self.set_place(*pod, Status::Binding, Some(node));
                    placed.push((*pod, node));
                }
                None => {
                    unplaced = Some(*pod);
                    break;
                }
            }
        }
        if let Some(pod) = unplaced {
            self.rollback(0);
            match self.pack_pods(id, pods) {
                Some(found) => placed = found,
                None => {
                    self.rollback(0);
                    self.commit();
                    return Err(self.explain_pods(id, pods, pod));
                }
            }
        }
        self.commit();
        Ok(placed)
    }

    fn pack_pods(&mut self, id: GroupId, pods: &[PodId]) -> Option<Vec<(PodId, NodeId)>> {
        let mut by_class: BTreeMap<ClassId, Vec<PodId>> = BTreeMap::new();
        for pod in pods {
            by_class.entry(self.pod(*pod).class).or_default().push(*pod);
        }
        let special = |class: &ClassId| {
            let class = self.class(*class);
            class.has_pod_terms()
                || class.extras().is_some_and(|extras| !extras.ports.is_empty() || !extras.devices.is_empty())
                || self.policy.plugins.is_sensitive(class)
        };
        let selected = pods.iter().any(|pod| !self.pod(*pod).matches.is_empty());
        let vetoed = self.policy.plugins.judges_alone(&self.state, id);
        if by_class.len() < 2 || vetoed || selected || by_class.keys().any(special) {
            return None;
        }
        let places: BTreeSet<u16> = by_class
            .keys()
            .flat_map(|class| self.class(*class).request.iter().map(|(place, _)| *place))
            .collect();
        let places: Vec<usize> = places.into_iter().map(usize::from).collect();
        let requests: Vec<Vec<i64>> = by_class
            .keys()
            .map(|class| {
                let request = &self.class(*class).request;
                let of = |place: &usize| {
                    request.iter().find(|(at, _)| usize::from(*at) == *place).map_or(0, |(_, amount)| *amount)
                };
                places.iter().map(of).chain([1]).collect()
            })
            .collect();
        let wanted: Vec<i64> = by_class.values().map(|pods| pods.len() as i64).collect();
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut offers = Vec::new();
        for (node, state) in self.nodes.iter() {
            let admitted: Vec<bool> =
                by_class.keys().map(|class| self.admits(self.class(*class), state).is_ok()).collect();
            if self.may_use(id, state).is_err() || !admitted.iter().any(|admitted| *admitted) {
                continue;
            }
            let cells = self.nodes.cells(node);
            let free =
                places.iter().chain([&crate::amounts::PODS]).map(|place| cells[*place].free()).collect();
            nodes.push(node);
            offers.push((admitted, free));
        }
        let counts = fleet_placement::pack(&requests, &wanted, &offers)?;
        let mut left: Vec<std::vec::IntoIter<PodId>> = by_class.into_values().map(Vec::into_iter).collect();
        let mut placed = Vec::with_capacity(pods.len());
        for (at, counts) in counts {
            for (k, count) in counts.iter().enumerate() {
                for pod in left[k].by_ref().take(usize::try_from(*count).unwrap_or(0)) {
                    self.set_place(pod, Status::Binding, Some(nodes[at]));
                    placed.push((pod, nodes[at]));
                }
            }
        }
        let queue = self.group(id).queue;
        let over = self.queue_admits(queue, &[]).is_err() || self.over_queue(queue);
        (!over).then_some(placed)
    }

    /// The queue, or one above it, uses more than it may.
    pub(super) fn over_queue(&self, id: QueueId) -> bool {
        self.policy.queues.allocatable
            && self.lineage(id).into_iter().any(|queue| {
                (1..self.dimensions.len()).any(|d| {
                    let most = if self.policy.queues.capacity {
                        self.may_have(queue, d)
                    } else {
                        self.deserves(queue, d)
                    };
                    crate::amounts::get(&self.queue(queue).allocated, d) > most
                })
            })
    }
}

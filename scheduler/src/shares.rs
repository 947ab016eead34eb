//! What queues deserve and may use, updated once a cycle.

use fleet_scheduler_state::shares::{CapacityQueue, ProportionQueue, capacity_shares, proportion};

use crate::amounts::{PODS, get, padded};
use crate::cluster::Cluster;
use crate::ids::QueueId;
use crate::queue::ROOT_QUEUE;

/// No limit.
pub const NO_BOUND: i64 = i64::MAX;

impl Cluster {
    pub(crate) fn refresh_shares(&mut self) {
        if !std::mem::take(&mut self.shares_stale) {
            return;
        }
        let n = self.dimensions.len();
        let mut total = padded(self.nodes.total(), n);
        if let Some(root) = self.find_queue(ROOT_QUEUE).filter(|root| self.queue(*root).known) {
            let capability = self.queue(root).input.capability.clone();
            for (place, limit) in self.limits(&capability).into_iter().enumerate() {
                total[place] = limit.map_or(total[place], |limit| limit.min(total[place]));
            }
        }
        let ids: Vec<QueueId> = self.queue_ids().collect();
        if self.policy.queues.capacity {
            self.capacity(&ids, &total);
        } else if self.policy.queues.proportion {
            self.proportion(&ids, &total);
        } else {
            for id in ids {
                let queue = self.queue_mut(id);
                queue.real_capability = vec![NO_BOUND; n];
                queue.deserved = vec![None; n];
                queue.guarantee = vec![0; n];
            }
        }
    }

    /// The limits per dimension.
    fn limits(&mut self, resources: &fleet_resources::Resources) -> Vec<Option<i64>> {
        let vector = self.dimensions.vector(resources);
        let mut limits = vec![None; self.dimensions.len()];
        for (name, _) in resources.iter() {
            let Some(place) = self.dimensions.place(name) else { continue };
            limits[place] = Some(vector[place]);
        }
        limits
    }

    fn proportion(&mut self, ids: &[QueueId], total: &[i64]) {
        let n = total.len();
        let served: Vec<QueueId> = ids
            .iter()
            .copied()
            .filter(|id| self.queue(*id).known)
            .filter(|id| !self.queue(*id).groups.is_empty() || !self.queue(*id).input.guarantee.is_zero())
            .collect();
        let mut queues = Vec::with_capacity(served.len());
        for id in &served {
            let input = self.queue(*id).input.clone();
            let (allocated, requested) = (&self.queue(*id).allocated, &self.queue(*id).requested);
            let request = (0..n).map(|d| get(allocated, d).saturating_add(get(requested, d))).collect();
            queues.push(ProportionQueue {
                weight: input.weight.max(1),
                capability: self.limits(&input.capability),
                guarantee: padded(&self.dimensions.vector(&input.guarantee), n),
                request,
            });
        }
        let deserved = proportion(total, &queues);
        let guaranteed: Vec<i64> =
            (0..n).map(|d| queues.iter().map(|queue| queue.guarantee[d]).sum()).collect();
        for (at, id) in served.iter().enumerate() {
            let real = (0..n)
                .map(|d| {
                    let room = total[d].saturating_sub(guaranteed[d]).saturating_add(queues[at].guarantee[d]);
                    queues[at].capability[d].map_or(room, |most| most.min(room))
                })
                .collect();
            let queue = self.queue_mut(*id);
            queue.real_capability = real;
            queue.guarantee.clone_from(&queues[at].guarantee);
            queue.deserved = deserved[at].iter().map(|n| Some(*n)).collect();
        }
        for id in ids.iter().filter(|id| !served.contains(id)) {
            let queue = self.queue_mut(*id);
            queue.real_capability = total.to_vec();
            queue.deserved = vec![Some(0); n];
            queue.guarantee = vec![0; n];
        }
    }

    fn capacity(&mut self, ids: &[QueueId], total: &[i64]) {
        let n = total.len();
        let mut queues = Vec::with_capacity(ids.len());
        for id in ids {
            let input = self.queue(*id).input.clone();
            let mut deserved = self.limits(&input.deserved);
            for name in &input.deserved_names {
                let place = self.dimensions.place(&fleet_resources::ResourceName::new(name));
                if let Some(limit) = place.and_then(|place| deserved.get_mut(place)) {
                    limit.get_or_insert(0);
                }
            }
            queues.push(CapacityQueue {
                parent: self
                    .queue(*id)
                    .parent
                    .filter(|_| self.queue(*id).problem.is_none())
                    .map(|p| p as usize),
                capability: self.limits(&input.capability),
                deserved,
                guarantee: padded(&self.dimensions.vector(&input.guarantee), n),
            });
        }
        // Queues in a cycle have no parent here; the rest is a tree.
        let Ok(shares) = capacity_shares(total, &queues) else { return };
        for ((id, share), queue) in ids.iter().zip(shares).zip(queues) {
            let known = self.queue_mut(*id);
            known.real_capability = share.real_capability;
            known.deserved = share.deserved;
            known.guarantee = queue.guarantee;
        }
    }

    /// What the queue deserves of one dimension; nothing if it does not say.
    pub(crate) fn deserves(&self, id: QueueId, place: usize) -> i64 {
        self.queue(id).deserved.get(place).copied().flatten().unwrap_or(0)
    }

    pub(crate) fn may_have(&self, id: QueueId, place: usize) -> i64 {
        self.queue(id).real_capability.get(place).copied().unwrap_or(NO_BOUND)
    }

    /// At or over what it deserves in every dimension.
    pub(crate) fn is_overused(&self, id: QueueId) -> bool {
        self.policy.queues.overused && {
            let queue = self.queue(id);
            (PODS + 1..self.dimensions.len()).all(|d| self.deserves(id, d) <= get(&queue.allocated, d))
        }
    }

    /// Whether the queue may have one more pod with this request; else the dimension that is used up, and in which
    /// queue.
    pub(crate) fn queue_admits(&self, id: QueueId, request: &[(u16, i64)]) -> Result<(), (QueueId, usize)> {
        if !self.policy.queues.allocatable {
            return Ok(());
        }
        let lineage = if self.policy.queues.capacity { self.lineage(id) } else { vec![id] };
        for queue in lineage {
            for (place, amount) in request {
                let place = usize::from(*place);
                let most = if self.policy.queues.capacity {
                    self.may_have(queue, place)
                } else {
                    self.deserves(queue, place)
                };
                // A limit that is no less than the cluster is not the queue's.
                if most >= get(self.nodes.total(), place) {
                    continue;
                }
                if get(&self.queue(queue).allocated, place).saturating_add(*amount) > most {
                    return Err((queue, place));
                }
            }
        }
        Ok(())
    }

    /// `queue q: 4 of 4 cpu are in use, 1 is asked for`
    pub(crate) fn queue_sentence(&self, id: QueueId, place: usize, used: i64, asked: i64) -> String {
        let name = self.dimensions.name(place).as_str();
        let text =
            |amount: i64| fleet_resources::quantity::format(name, amount / self.dimensions.parts(place));
        let most = match self.may_have(id, place) {
            NO_BOUND => "any".to_owned(),
            most if self.policy.queues.proportion && !self.policy.queues.capacity => {
                text(most.min(self.deserves(id, place).max(0)))
            }
            most => text(most),
        };
        format!(
            "queue {}: {} of {most} {name} are in use, {} are asked for",
            self.queue(id).input.name,
            text(used),
            text(asked)
        )
    }
}

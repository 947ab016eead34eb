//! Orders of queues, of groups in a queue, and of victims.

use crate::cluster::Cluster;
use crate::config::{JobOrder, TreeOrder};
use crate::fair::LEVELS;
use crate::group::{Group, JOB_KEYS, JobKey};
use crate::ids::{GroupId, PodId, QueueId};
use crate::pod::TaskOrder;

/// Parts of the order of queues.
const QUEUE_KEYS: usize = 3 + LEVELS;

/// Order of queues: higher priority and smaller share, before or after their position in drf's tree; then by the
/// order of first mention.
pub type QueueKey = ([i64; QUEUE_KEYS], QueueId);

/// Order of victims: the largest is evicted first.
pub type VictimKey = (QueueKey, JobKey, GroupId, TaskOrder);

impl Cluster {
    pub fn job_key(&self, group: &Group) -> JobKey {
        let mut key = [0_i64; JOB_KEYS];
        for (at, order) in self.policy.job_order.iter().take(JOB_KEYS).enumerate() {
            key[at] = match order {
                JobOrder::Repair => i64::from(!(group.was_ready && group.ready() < group.min())),
                JobOrder::Plugin(name) => self.policy.plugins.job_order(*name, &self.state, group),
            };
        }
        (key, group.input.created)
    }

    pub fn queue_key(&self, id: QueueId) -> QueueKey {
        let queue = self.queue(id);
        let share = if self.policy.queues.order { self.queue_share(id) } else { 0 };
        // A queue with deserved amounts before one without.
        let bare = i64::from(self.policy.queues.capacity && queue.deserved.iter().all(Option::is_none));
        let own = [queue.input.priority.saturating_neg(), share, bare];
        let mut key = [0; QUEUE_KEYS];
        let (own_at, tree_at) = match self.policy.queues.tree {
            Some(TreeOrder::First) => (LEVELS, 0),
            _ => (0, own.len()),
        };
        key[own_at..own_at + own.len()].copy_from_slice(&own);
        if matches!(self.policy.queues.tree, Some(TreeOrder::First | TreeOrder::Last)) {
            key[tree_at..tree_at + LEVELS].copy_from_slice(&self.fair.key(id));
        }
        (key, id)
    }

    pub fn queue_share(&self, id: QueueId) -> i64 {
        let queue = self.queue(id);
        fleet_scheduler_state::shares::deserved_share(&queue.allocated, &queue.deserved)
    }

    /// The reverse of the orders of queues, jobs and pods.
    pub fn victim_key(&self, id: PodId) -> VictimKey {
        let pod = self.pod(id);
        let group = self.group(pod.group);
        (self.queue_key(group.queue), self.job_key(group), pod.group, pod.order(id))
    }
}

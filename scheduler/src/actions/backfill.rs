//! Backfill: places best-effort pods, which request nothing.

use crate::cluster::Cluster;
use crate::cycle::Outcome;
use crate::group::Phase;
use crate::ids::GroupId;
use crate::pod::Status;

impl Cluster {
    pub(crate) fn backfill(&mut self, outcome: &mut Outcome) {
        self.best_effort =
            std::mem::take(&mut self.best_effort).into_iter().filter(|id| self.groups_has(*id)).collect();
        let waits = |id: &GroupId| {
            let group = self.group(*id);
            !group.input.manual
                && !group.pending_best_effort.is_empty()
                && group.phase != Phase::Pending
                && group.validity().is_ok()
        };
        let mut groups: Vec<GroupId> = self.best_effort.iter().copied().filter(waits).collect();
        groups.sort_by_key(|id| {
            let group = self.group(*id);
            (self.queue_key(group.queue), self.job_key(group), *id)
        });
        for id in groups {
            if let Some(why) = self.queue(self.group(id).queue).closed_because() {
                self.say_why(id, &why.into());
                continue;
            }
            self.begin();
            let mut placed = Vec::new();
            let pods: Vec<u32> = self.group(id).pending_best_effort.iter().map(|order| order.3).collect();
            let mut unplaced = None;
            for pod in pods {
                match self.find_node(pod, None) {
                    Some(node) => {
                        self.set_place(pod, Status::Binding, Some(node));
                        placed.push((pod, node));
                    }
                    None => unplaced = Some(pod),
                }
            }
            // Best-effort pods form gangs, too.
            let group = self.group(id);
            if self.policy.gang && group.ready() < group.min() {
                self.rollback(0);
                placed.clear();
            }
            self.commit();
            if !placed.is_empty() {
                outcome.bind(id, placed);
                self.group_mut(id).why = None;
                self.refresh_group(id);
            }
            if let Some(pod) = unplaced {
                let why = self.explain(id, &super::stopped::Stopped::Pod(pod));
                self.say_why(id, &why);
            }
        }
    }
}

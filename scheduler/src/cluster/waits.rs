//! Where groups wait: for admission to their queue, or for places in it.

use std::sync::Arc;

use super::Cluster;
use crate::group::{Phase, Shape, Waits};
use crate::ids::{ClassId, GroupId};
use crate::pod::Status;

impl Cluster {
    /// Puts changed groups into the lists in which they wait now.
    pub(crate) fn refresh(&mut self) {
        for id in std::mem::take(&mut self.dirty_groups) {
            if self.try_group(id).is_some() {
                self.refresh_group(id);
            }
        }
    }

    pub(crate) fn refresh_group(&mut self, id: GroupId) {
        self.uncount_admission(id);
        let group = self.group_mut(id);
        group.dirty = false;
        group.see_end();
        if group.ready() >= group.min() {
            group.was_ready = true;
        }
        if group.pods.is_empty() {
            group.was_ready = false;
        }
        if !group.is_waiting() || group.need() == 0 {
            group.refused_since = None;
        }
        let (best_effort, promised) = {
            let group = self.group(id);
            (!group.pending_best_effort.is_empty(), group.count(Status::Pipelined) > 0)
        };
        if best_effort {
            self.best_effort.insert(id)
        } else {
            self.best_effort.remove(&id)
        };
        if promised {
            self.promised.insert(id);
        }
        let group = self.group(id);
        let key = self.job_key(group);
        let queue = group.queue as usize;
        let waits = if group.input.manual {
            Waits::No
        } else if group.phase == Phase::Pending {
            if group.over { Waits::No } else { Waits::Outside(key) }
        } else if group.is_waiting() && group.validity().is_ok() {
            let shape = self.shape_of(id);
            let known = self.queues[queue].waiting.get_key_value(&shape).map(|(known, _)| known.clone());
            Waits::Inside(known.unwrap_or_else(|| Arc::new(shape)), key)
        } else {
            Waits::No
        };
        // A group that waits as before keeps its refusal.
        if group.waits != waits {
            self.unlist_waits(id);
            match &waits {
                Waits::Outside(key) => {
                    self.queues[queue].pending.insert((*key, id));
                }
                Waits::Inside(shape, key) => {
                    self.queues[queue].waiting.entry(shape.clone()).or_default().groups.insert((*key, id));
                }
                Waits::No => {}
            }
            self.group_mut(id).waits = waits;
        }
        self.count_admission(id);
    }

    fn shape_of(&self, id: GroupId) -> Shape {
        let group = self.group(id);
        let pods: Vec<(ClassId, u32)> =
            group.pending_by_class.iter().map(|(class, n)| (*class, *n)).collect();
        let own = |class: &ClassId| self.class(*class).has_pod_terms();
        let selected = !self.terms.is_empty()
            && group.pending.iter().any(|(.., pod)| !self.pod(*pod).matches.is_empty());
        let special = selected
            || pods.iter().any(|(class, _)| own(class))
            || group.wants_domains()
            || group.roles.iter().any(|role| role.min > 0)
            || self.nodes_claimed_by(id)
            || self.policy.plugins.judges_alone(&self.state, id);
        Shape { pods, need: group.need(), only: special.then_some(id) }
    }

    fn nodes_claimed_by(&self, id: GroupId) -> bool {
        self.claims.contains_key(&id)
    }
}

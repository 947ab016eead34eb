//! Events of queues, and the tree of queues.

use fleet_resources::Resources;

use super::{Cluster, add_vector};
use crate::group::GroupId;
use crate::queue::{Queue, QueueId, QueueInput, ROOT_QUEUE};

/// Deepest queue below the root, as in Volcano's default.
const MAX_QUEUE_DEPTH: usize = 5;

impl Cluster {
    /// The number of the queue with that name, known or not.
    pub fn intern_queue(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.find_queue(name) {
            return id;
        }
        let id = self.queues.len() as QueueId;
        let input = QueueInput::named(name);
        self.queue_ids.insert(input.name.clone(), id);
        self.fair.restructure = true;
        self.queues.push(Queue { input, ..Queue::default() });
        id
    }

    pub fn put_queue(&mut self, input: QueueInput) {
        let id = self.intern_queue(&input.name);
        if self.queues[id as usize].known && self.queues[id as usize].input == input {
            return;
        }
        for resources in [&input.capability, &input.deserved, &input.guarantee] {
            self.dimensions.vector(resources);
        }
        self.nodes.widen(self.dimensions.len());
        self.queues[id as usize].input = input;
        self.queues[id as usize].known = true;
        self.queue_changed(id);
    }

    /// Whether the queue has a parent or children, now or before the last rebuild.
    fn in_tree(&self, id: QueueId) -> bool {
        let queue = &self.queues[id as usize];
        let named = queue.input.parent.as_ref().is_some_and(|name| **name != *ROOT_QUEUE);
        named || queue.parent.is_some() || !queue.children.is_empty() || queue.problem.is_some()
    }

    pub fn remove_queue(&mut self, name: &str) {
        if let Some(id) = self.find_queue(name) {
            self.queues[id as usize].known = false;
            self.queue_changed(id);
        }
    }

    fn queue_changed(&mut self, id: QueueId) {
        self.fair.restructure = true;
        if self.in_tree(id) {
            self.rebuild_tree();
        }
        let groups: Vec<GroupId> = self.queues[id as usize].groups.iter().copied().collect();
        groups.into_iter().for_each(|group| self.mark(group));
        self.shares_stale = true;
        self.freed();
        self.mark_queue(id);
    }

    /// Parents, children and the sums along them.
    fn rebuild_tree(&mut self) {
        for group in self.group_list() {
            self.unlist(group);
            self.mark(group);
        }
        for id in self.queue_ids() {
            let named = self.queues[id as usize].input.parent.clone().filter(|name| &**name != ROOT_QUEUE);
            let parent = named.as_ref().map(|name| self.intern_queue(name));
            let queue = &mut self.queues[id as usize];
            queue.parent = parent;
            queue.children.clear();
            queue.problem = None;
        }
        for id in self.queue_ids() {
            let mut path = vec![id];
            let mut at = self.queues[id as usize].parent;
            while let Some(parent) = at {
                if path.contains(&parent) {
                    let names: Vec<&str> =
                        path.iter().chain([&parent]).map(|q| &*self.queues[*q as usize].input.name).collect();
                    let text = format!(
                        "field spec.parent: found the cycle {}; allowed: parents that lead to {ROOT_QUEUE}",
                        names.join(" -> ")
                    );
                    self.queues[id as usize].problem = Some(text.into());
                    break;
                }
                path.push(parent);
                at = self.queues[parent as usize].parent;
            }
            if self.queues[id as usize].problem.is_none() {
                self.queues[id as usize].ancestors = path.split_off(1);
            } else {
                self.queues[id as usize].ancestors = Vec::new();
            }
        }
        for id in self.queue_ids() {
            if let Some(parent) = self.queues[id as usize].parent {
                self.queues[parent as usize].children.insert(id);
                if !self.queues[parent as usize].known && self.queues[id as usize].problem.is_none() {
                    let name = &self.queues[parent as usize].input.name;
                    let text = format!(
                        "field spec.parent: found {name}, which does not exist; allowed: a queue, or {ROOT_QUEUE}"
                    );
                    self.queues[id as usize].problem = Some(text.into());
                }
            }
        }
        self.queue_ids().for_each(|id| self.mark_queue(id));
        for id in self.queue_ids() {
            let queue = &mut self.queues[id as usize];
            queue.allocated.clear();
            queue.requested.clear();
        }
        for group in self.group_list() {
            let (queue, allocated, requested) = {
                let group = self.group(group);
                (group.queue, group.allocated.clone(), group.requested.clone())
            };
            self.add_up(queue, |queue| {
                add_vector(&mut queue.allocated, &allocated, 1);
                add_vector(&mut queue.requested, &requested, 1);
            });
        }
    }

    /// Changes a queue and everything above it.
    pub(crate) fn add_up(&mut self, id: QueueId, mut change: impl FnMut(&mut Queue)) {
        change(&mut self.queues[id as usize]);
        for at in 0..self.queues[id as usize].ancestors.len() {
            let ancestor = self.queues[id as usize].ancestors[at];
            change(&mut self.queues[ancestor as usize]);
        }
    }

    pub(super) fn mark_queue(&mut self, id: QueueId) {
        let queue = &mut self.queues[id as usize];
        if !queue.changed {
            queue.changed = true;
            self.changed_queues.push(id);
        }
    }

    /// Queues whose status may have changed.
    pub fn take_changed_queues(&mut self) -> Vec<QueueId> {
        let changed = std::mem::take(&mut self.changed_queues);
        changed.iter().for_each(|id| self.queues[*id as usize].changed = false);
        changed
    }

    /// What is wrong with a queue among the others, in one sentence.
    pub fn queue_problem(&self, id: QueueId) -> Option<String> {
        let queue = self.queue(id);
        if let Some(problem) = &queue.problem {
            return Some(problem.to_string());
        }
        if let Some(unreadable) = &queue.input.unreadable {
            return Some(unreadable.to_string());
        }
        if let Some(problem) = self.hierarchy_problem(id) {
            return Some(problem);
        }
        let parent = self.queue(queue.parent?);
        let depth = queue.ancestors.len() + 1;
        if depth > MAX_QUEUE_DEPTH {
            return Some(format!(
                "field spec.parent: found {depth} levels below {ROOT_QUEUE}; allowed: up to {MAX_QUEUE_DEPTH}"
            ));
        }
        let held = parent.groups.iter().filter(|group| !self.group(**group).pods.is_empty()).count();
        if held > 0 && self.policy.hierarchy {
            return Some(format!(
                "field spec.parent: found {}, which holds {held} groups of its own; allowed: a queue without any",
                parent.input.name
            ));
        }
        if let Some(problem) = self.over_ancestor(id) {
            return Some(problem);
        }
        let children = || parent.children.iter().map(|id| &self.queue(*id).input);
        type Part = fn(&QueueInput) -> &Resources;
        let parts: [(&str, Part); 2] =
            [("guarantee.resource", |input| &input.guarantee), ("deserved", |input| &input.deserved)];
        for (field, part) in parts {
            let allowed = part(&parent.input);
            for (name, _) in part(&queue.input).iter() {
                let most = allowed.get(name.as_str());
                let sum = children().map(|input| part(input).get(name.as_str())).fold(0, i64::saturating_add);
                if most > 0 && sum > most {
                    let text = |amount: i64| fleet_resources::quantity::format(name.as_str(), amount);
                    return Some(format!(
                        "field spec.{field}: found {} {name} for the queues of {} together; allowed: its own {}",
                        text(sum),
                        parent.input.name,
                        text(most)
                    ));
                }
            }
        }
        None
    }

    /// Amounts beyond the capability of the nearest queue above that has one.
    fn over_ancestor(&self, id: QueueId) -> Option<String> {
        let queue = self.queue(id);
        let parts = [
            ("capability", &queue.input.capability),
            ("deserved", &queue.input.deserved),
            ("guarantee.resource", &queue.input.guarantee),
        ];
        for (field, amounts) in parts {
            for (name, amount) in amounts.iter() {
                let above = queue.ancestors.iter().map(|id| &self.queue(*id).input);
                let limit = above.map(|input| (input, input.capability.get(name.as_str())));
                let Some((above, most)) = limit.into_iter().find(|(_, most)| *most > 0) else { continue };
                if amount > most {
                    let text = |amount: i64| fleet_resources::quantity::format(name.as_str(), amount);
                    return Some(format!(
                        "field spec.{field}: found {} {name}; allowed: up to the capability of {} above it, {}",
                        text(amount),
                        above.name,
                        text(most)
                    ));
                }
            }
        }
        None
    }

    /// A path of plugin drf that leads through another queue's own path: jobs must be in leaves.
    fn hierarchy_problem(&self, id: QueueId) -> Option<String> {
        fn path(input: &QueueInput) -> Vec<&str> {
            let names: Vec<&str> = input.hierarchy.iter().map(|(name, _)| name.as_str()).collect();
            if names.first() == Some(&ROOT_QUEUE) { names[1..].to_vec() } else { names }
        }
        let own = path(&self.queue(id).input);
        if own.is_empty() {
            return None;
        }
        let others = self.queue_ids().filter(|other| *other != id && self.queue(*other).known);
        let through = others.map(|other| &self.queue(other).input).find(|other| {
            let other = path(other);
            !other.is_empty()
                && other.len() != own.len()
                && (other.starts_with(&own) || own.starts_with(&other))
        })?;
        Some(format!(
            "field metadata.annotations[volcano.sh/hierarchy]: found {}, and {} of queue {}; allowed: paths of which none \
             leads through another",
            own.join("/"),
            path(through).join("/"),
            through.name
        ))
    }
}

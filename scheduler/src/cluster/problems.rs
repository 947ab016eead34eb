//! What is wrong with a queue among the others.

use fleet_resources::Resources;

use super::Cluster;
use crate::ids::QueueId;
use crate::queue::{QueueInput, ROOT_QUEUE};

/// Deepest queue below the root, as in Volcano's default.
const MAX_QUEUE_DEPTH: usize = 5;

/// Amounts of a queue beyond other amounts of the same queue.
fn over_its_own(queue: &QueueInput) -> Option<String> {
    let (capability, deserved) = (("capability", &queue.capability), ("deserved", &queue.deserved));
    let guarantee = ("guarantee.resource", &queue.guarantee);
    for ((field, amounts), (bound, most)) in
        [(guarantee, capability), (guarantee, deserved), (deserved, capability)]
    {
        for (name, amount) in amounts.iter() {
            let Some((_, most)) = most.iter().find(|(bounded, _)| *bounded == name) else { continue };
            if amount > most {
                let text = |amount: i64| fleet_resources::quantity::format(name.as_str(), amount);
                return Some(format!(
                    "field spec.{field}: found {} {name}; allowed: up to its {bound}, {}",
                    text(amount),
                    text(most)
                ));
            }
        }
    }
    None
}

impl Cluster {
    /// What is wrong with a queue among the others, in one sentence.
    pub fn queue_problem(&self, id: QueueId) -> Option<String> {
        let queue = self.queue(id);
        if let Some(problem) = &queue.problem {
            return Some(problem.to_string());
        }
        if let Some(unreadable) = &queue.input.unreadable {
            return Some(unreadable.to_string());
        }
        if let Some(problem) = over_its_own(&queue.input) {
            return Some(problem);
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
        if held > 0 && self.policy.queues.hierarchy {
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

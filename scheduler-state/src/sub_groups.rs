//! Sub-groups of a gang (`subGroupPolicy` of a PodGroup): partitions of a task, of which a minimum must be
//! complete.

use std::sync::Arc;

use fleet_resources::constraints::NodeSelectorRequirement;

use crate::group::Group;
use crate::pod::{Labels, Status};
use crate::topology::Topology;

/// One entry of `subGroupPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubGroupPolicy {
    pub name: Arc<str>,
    /// All must match.
    pub selector: Vec<NodeSelectorRequirement>,
    /// Pods with equal values of these labels are one sub-group.
    pub keys: Vec<String>,
    /// Pods of a complete sub-group.
    pub size: i64,
    /// Sub-groups that must be complete.
    pub min: i64,
    /// Each sub-group is in one topology domain.
    pub topology: Option<Topology>,
}

/// Pods of one policy with equal labels.
#[derive(Clone, Debug)]
pub struct SubGroup {
    policy: usize,
    pub counts: [i64; Status::COUNT],
}

impl SubGroup {
    /// Number of its policy.
    pub fn policy(&self) -> usize {
        self.policy
    }

    /// Pods that hold places.
    pub fn ready(&self) -> i64 {
        Counted::Ready.of(&self.counts)
    }
}

/// Which pods count for a minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those that hold places.
    Ready,
    /// And those that wait for a promised place.
    Promised,
    /// And those that wait for any.
    Valid,
}

impl Counted {
    pub const ALL: [Self; 3] = [Self::Ready, Self::Promised, Self::Valid];

    /// How many of the pods count.
    pub fn of(self, counts: &[i64; Status::COUNT]) -> i64 {
        let count = |status: Status| counts[status as usize];
        let ready =
            count(Status::Bound) + count(Status::Binding) + count(Status::Running) + count(Status::Succeeded);
        match self {
            Self::Ready => ready,
            Self::Promised => ready + count(Status::Pipelined),
            Self::Valid => ready + count(Status::Pipelined) + count(Status::Pending),
        }
    }
}

/// Pods of a group that may be evicted, one after the other, before it has less than it needs.
#[derive(Clone, Debug)]
pub struct Spare {
    /// Beyond the minimum of the group.
    pods: i64,
    /// By policy, complete sub-groups beyond the minimum.
    whole: Vec<i64>,
    /// By sub-group, pods beyond a complete one; below zero: it is not complete.
    beyond: Vec<i64>,
}

impl Spare {
    /// Counts a pod of the sub-group as evicted, if the group can spare it.
    pub fn take(&mut self, group: &Group, sub_group: Option<u16>) -> bool {
        if self.pods <= 0 {
            return false;
        }
        let at = sub_group.map(usize::from).filter(|at| *at < self.beyond.len());
        if let Some(at) = at {
            let policy = group.sub_groups[at].policy;
            if self.beyond[at] == 0 {
                if self.whole[policy] <= 0 {
                    return false;
                }
                self.whole[policy] -= 1;
            }
            self.beyond[at] -= 1;
        }
        self.pods -= 1;
        true
    }
}

impl Group {
    /// What the group can spare of its ready pods.
    pub fn spare(&self) -> Spare {
        let size = |policy: usize| self.input.sub_groups[policy].size.max(1);
        let beyond: Vec<i64> =
            self.sub_groups.iter().map(|known| known.ready() - size(known.policy)).collect();
        let policies = self.input.sub_groups.iter().enumerate();
        Spare {
            pods: self.surplus(),
            whole: policies.map(|(at, policy)| self.whole(at, Counted::Ready) - policy.min).collect(),
            beyond,
        }
    }

    /// Sub-groups of a policy that have all their pods.
    fn whole(&self, policy: usize, counted: Counted) -> i64 {
        self.whole.get(policy).map_or(0, |whole| whole[counted as usize])
    }

    /// The sub-group of a pod with these labels; the first pod creates it.
    pub fn sub_group_of(&mut self, labels: &Labels) -> Option<u16> {
        let selects = |policy: &SubGroupPolicy| {
            policy.selector.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
        };
        let policy = self.input.sub_groups.iter().position(selects)?;
        let keys = &self.input.sub_groups[policy].keys;
        let values: Vec<String> =
            keys.iter().map(|key| labels.get(key).unwrap_or_default().to_owned()).collect();
        let key = (policy, values);
        if let Some(at) = self.sub_groups_at.get(&key) {
            return Some(*at);
        }
        let at = u16::try_from(self.sub_groups.len()).ok()?;
        self.sub_groups.push(SubGroup { policy, counts: [0; Status::COUNT] });
        self.sub_groups_at.insert(key, at);
        Some(at)
    }

    /// All pods have left their sub-groups.
    pub(crate) fn forget_sub_groups(&mut self) {
        self.sub_groups.clear();
        self.sub_groups_at.clear();
        self.whole.clear();
    }

    /// Counts a pod in its sub-group, and the sub-group as whole or not.
    pub(crate) fn count_in_sub_group(&mut self, at: u16, status: Status, sign: i64) {
        let Some(known) = self.sub_groups.get_mut(usize::from(at)) else { return };
        let size = self.input.sub_groups.get(known.policy).map_or(1, |policy| policy.size.max(1));
        let is_whole = |known: &SubGroup| Counted::ALL.map(|counted| counted.of(&known.counts) >= size);
        let before = is_whole(known);
        known.counts[status as usize] += sign;
        let after = is_whole(known);
        if self.whole.len() <= known.policy {
            self.whole.resize(known.policy + 1, [0; 3]);
        }
        for ((whole, before), after) in self.whole[known.policy].iter_mut().zip(before).zip(after) {
            *whole += i64::from(after) - i64::from(before);
        }
    }

    /// The first policy of which too few sub-groups have all their pods among these, and how many have.
    pub fn short_of_sub_groups(&self, counted: Counted) -> Option<(&SubGroupPolicy, i64)> {
        self.input.sub_groups.iter().enumerate().find_map(|(at, policy)| {
            let whole = self.whole(at, counted);
            (whole < policy.min).then_some((policy, whole))
        })
    }
}

#[cfg(test)]
mod tests;

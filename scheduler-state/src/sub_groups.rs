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
    values: Vec<String>,
    pub counts: [i64; Status::COUNT],
}

impl SubGroup {
    /// Number of its policy.
    pub fn policy(&self) -> usize {
        self.policy
    }

    /// Pods that hold places.
    pub fn ready(&self) -> i64 {
        self.sum(&READY)
    }

    fn sum(&self, of: &[Status]) -> i64 {
        of.iter().map(|status| self.counts[*status as usize]).sum()
    }
}

pub const READY: [Status; 4] = [Status::Bound, Status::Binding, Status::Running, Status::Succeeded];
pub const PROMISED: [Status; 5] =
    [Status::Bound, Status::Binding, Status::Running, Status::Succeeded, Status::Pipelined];
pub const VALID: [Status; 6] =
    [Status::Bound, Status::Binding, Status::Running, Status::Succeeded, Status::Pipelined, Status::Pending];

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
            self.sub_groups.iter().map(|known| known.sum(&READY) - size(known.policy)).collect();
        let complete = |policy: usize| {
            let own = self.sub_groups.iter().zip(&beyond).filter(|(known, _)| known.policy == policy);
            own.filter(|(_, beyond)| **beyond >= 0).count() as i64
        };
        let policies = self.input.sub_groups.iter().enumerate();
        Spare {
            pods: self.surplus(),
            whole: policies.map(|(at, policy)| complete(at) - policy.min).collect(),
            beyond,
        }
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
        let same = |known: &SubGroup| known.policy == policy && known.values == values;
        let at = self.sub_groups.iter().position(same).unwrap_or_else(|| {
            self.sub_groups.push(SubGroup { policy, values: values.clone(), counts: [0; Status::COUNT] });
            self.sub_groups.len() - 1
        });
        u16::try_from(at).ok()
    }

    /// The first policy of which too few sub-groups have all their pods among these, and how many have.
    pub fn short_of_sub_groups(&self, of: &[Status]) -> Option<(&SubGroupPolicy, i64)> {
        self.input.sub_groups.iter().enumerate().find_map(|(at, policy)| {
            let own = self.sub_groups.iter().filter(|known| known.policy == at);
            let whole = own.filter(|known| known.sum(of) >= policy.size.max(1)).count() as i64;
            (whole < policy.min).then_some((policy, whole))
        })
    }
}

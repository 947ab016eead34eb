//! Sub-groups of a gang (`subGroupPolicy` of a PodGroup): partitions of a task, of which a minimum must be
//! complete.

use std::sync::Arc;

use fleet_resources::constraints::NodeSelectorRequirement;

use crate::group::Group;
use crate::pod::{Labels, Status};

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
}

/// Pods of one policy with equal labels.
#[derive(Clone, Debug)]
pub struct SubGroup {
    policy: usize,
    values: Vec<String>,
    pub counts: [i64; Status::COUNT],
}

impl SubGroup {
    fn sum(&self, of: &[Status]) -> i64 {
        of.iter().map(|status| self.counts[*status as usize]).sum()
    }
}

pub const READY: [Status; 4] = [Status::Bound, Status::Binding, Status::Running, Status::Succeeded];
pub const PROMISED: [Status; 5] =
    [Status::Bound, Status::Binding, Status::Running, Status::Succeeded, Status::Pipelined];
pub const VALID: [Status; 6] =
    [Status::Bound, Status::Binding, Status::Running, Status::Succeeded, Status::Pipelined, Status::Pending];

impl Group {
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

//! Parses PodGroup objects.

use std::{collections::BTreeMap, sync::Arc};

use fleet_scheduler::{
    GroupId, GroupInput, Phase, group::Topology, queue::DEFAULT_QUEUE, sub_groups::SubGroupPolicy,
    task_topology::TaskTopology,
};
use serde_json::Value;

use super::hyper_node::read_labels;
use crate::amounts::amounts;

/// A PodGroup object.
#[derive(Clone, Debug)]
pub struct PodGroup {
    pub uid: String,
    /// Uid of the Volcano Job to which it belongs; that job's controller writes its status.
    pub job: Option<String>,
    pub input: GroupInput,
    pub priority_class: Option<String>,
    /// Names of the highest tiers of HyperNodes that it allows.
    pub tier_names: TierNames,
    /// The written status, as far as known.
    pub status: Value,
    pub group: GroupId,
    /// A write of its status is in flight.
    pub busy: bool,
}

/// Tiers that are given by name: their numbers follow the HyperNodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierNames {
    whole: Option<String>,
    /// In the order of the input's subgroups.
    sub_groups: Vec<Option<String>>,
}

impl TierNames {
    /// Sets the numbers; returns whether one has changed.
    pub fn resolve(&self, input: &mut GroupInput, number: impl Fn(&str) -> i64) -> bool {
        let sub_groups = input.sub_groups.iter_mut().map(|policy| &mut policy.topology);
        let all = std::iter::once(&mut input.topology).chain(sub_groups);
        let mut changed = false;
        for (topology, name) in all.zip(std::iter::once(&self.whole).chain(&self.sub_groups)) {
            let (Some(topology), Some(name)) = (topology, name) else { continue };
            let tier = Some(number(name));
            changed |= topology.highest_tier != tier;
            topology.highest_tier = tier;
        }
        changed
    }
}

/// A parsed PodGroup of the API server.
#[derive(Clone, Debug, Default)]
pub struct PodGroupObject {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub job: Option<String>,
    pub created: i64,
    pub annotations: BTreeMap<String, String>,
    pub spec: Value,
    pub status: Value,
    pub priority_class: Option<String>,
}

impl PodGroupObject {
    pub fn tier_names(&self) -> TierNames {
        let sub_groups = counted(&self.spec["subGroupPolicy"]);
        TierNames {
            whole: tier_name(&self.spec["networkTopology"]),
            sub_groups: sub_groups.map(|(_, policy)| tier_name(&policy["networkTopology"])).collect(),
        }
    }

    pub fn input(&self) -> GroupInput {
        let spec = &self.spec;
        let roles = spec["minTaskMember"].as_object().into_iter().flatten();
        let minimum = &spec["minResources"];
        let resources = minimum.is_object().then(|| amounts(minimum));
        let annotation = |name: &str| self.annotations.get(name);
        let (sub_groups, refused) = match self.sub_groups() {
            Ok(sub_groups) => (sub_groups, None),
            Err(why) => (Vec::new(), Some(why.into())),
        };
        GroupInput {
            namespace: self.namespace.as_str().into(),
            name: self.name.as_str().into(),
            queue: spec["queue"].as_str().filter(|queue| !queue.is_empty()).unwrap_or(DEFAULT_QUEUE).into(),
            min_member: number(&spec["minMember"]).unwrap_or(1),
            min_roles: roles.map(|(role, n)| (Arc::from(role.as_str()), number(n).unwrap_or(0))).collect(),
            sub_groups,
            min_resources: resources,
            priority: 0,
            created: self.created,
            preemptable: annotation("volcano.sh/preemptable").map(|text| text == "true"),
            sla_wait: annotation("volcano.sh/sla-waiting-time")
                .and_then(|text| fleet_scheduler::config::duration_s(text)),
            topology: topology(&spec["networkTopology"]),
            task_topology: TaskTopology::read(
                annotation("volcano.sh/task-topology-affinity").map(String::as_str),
                annotation("volcano.sh/task-topology-anti-affinity").map(String::as_str),
                annotation("volcano.sh/task-topology-task-order").map(String::as_str),
            )
            .map(Arc::new),
            phase: Phase::read(self.status["phase"].as_str().unwrap_or_default()),
            no_gate: false,
            manual: false,
            refused,
        }
    }

    /// Subgroups with a minimum or a topology; an invalid part of a selector is ignored.
    ///
    /// # Errors
    /// Each pod would be compared with too much, in one sentence.
    fn sub_groups(&self) -> Result<Vec<SubGroupPolicy>, String> {
        let found: Vec<SubGroupPolicy> =
            counted(&self.spec["subGroupPolicy"]).map(|(policy, _)| policy).collect();
        let compared = |policy: &SubGroupPolicy| {
            let values = policy.selector.iter().map(|rule| rule.values.len().max(1));
            (values.sum::<usize>() + policy.keys.len()).max(1)
        };
        let compared: usize = found.iter().map(compared).sum();
        if compared <= MAX_COMPARED {
            return Ok(found);
        }
        Err(format!(
            "podgroup {}/{}, field spec.subGroupPolicy: found {compared} labels and values to compare with those of each pod; allowed: \
             at most {MAX_COMPARED}",
            self.namespace, self.name
        ))
    }
}

/// Most labels and values of the subgroups of one PodGroup: each of its pods may be compared with all.
const MAX_COMPARED: usize = 2048;

/// A number of pods or parts, which objects have in 32 bits.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().map(|number| number.clamp(i32::MIN.into(), i32::MAX.into()))
}

fn tier_name(wish: &Value) -> Option<String> {
    wish["highestTierName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

fn topology(wish: &Value) -> Option<Topology> {
    let wish = wish.as_object()?;
    Some(Topology {
        hard: wish.get("mode").is_none_or(|mode| mode != "soft"),
        highest_tier: wish.get("highestTierAllowed").and_then(Value::as_i64),
    })
}

/// Subgroups with a minimum or a topology, each with its object.
fn counted(list: &Value) -> impl Iterator<Item = (SubGroupPolicy, &Value)> {
    let read = |policy: &Value| SubGroupPolicy {
        name: policy["name"].as_str().unwrap_or_default().into(),
        selector: read_labels(&policy["labelSelector"]).unwrap_or_default(),
        keys: policy["matchLabelKeys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|key| key.as_str().map(str::to_owned))
            .collect(),
        size: number(&policy["subGroupSize"]).unwrap_or(1),
        min: number(&policy["minSubGroups"]).unwrap_or(0),
        topology: topology(&policy["networkTopology"]),
    };
    let counts = |policy: &SubGroupPolicy| policy.min > 0 || policy.topology.is_some();
    let all = list.as_array().into_iter().flatten().map(move |policy| (read(policy), policy));
    all.filter(move |(policy, _)| counts(policy))
}

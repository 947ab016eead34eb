//! HiveD's annotation `hivedscheduler.microsoft.com/pod-bind-info`. Each pod carries the placement of its whole
//! group; a restart knows nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    decision::{Placement, PodPlacement},
    recover::BoundGroup,
    request::{GroupRequest, Member, PodGroup},
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodBindInfo {
    pub node: String,
    /// Numbers of the pod's devices in its node.
    #[serde(alias = "gpuIsolation")]
    pub leaf_cell_isolation: Vec<i32>,
    pub cell_chain: String,
    /// One entry for each size of pod, in order of the members.
    pub affinity_group_bind_info: Vec<MemberBindInfo>,
    /// The member cluster; an addition to HiveD.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberBindInfo {
    pub pod_placements: Vec<PodPlacementInfo>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodPlacementInfo {
    pub physical_node: String,
    #[serde(alias = "physicalGpuIndices")]
    pub physical_leaf_cell_indices: Vec<i32>,
    /// One for each device; empty for opportunistic pods.
    pub preassigned_cell_types: Vec<String>,
}

impl PodBindInfo {
    /// The annotation of the pod with this number; none if the group has no such pod.
    #[must_use]
    pub fn of(request: &GroupRequest, placement: &Placement, pod: usize) -> Option<Self> {
        let own = placement.pods.get(pod)?;
        let mut rest = placement.pods.iter();
        let mut members = Vec::new();
        flatten(&request.affinity_group.root, &mut members);
        let members = members
            .into_iter()
            .map(|member| {
                let pods = usize::try_from(member.pod_number).unwrap_or(0);
                MemberBindInfo { pod_placements: rest.by_ref().take(pods).map(info_of).collect() }
            })
            .collect();
        Some(Self {
            node: own.node.clone(),
            leaf_cell_isolation: own.leaf_cells.clone(),
            cell_chain: placement.cell_chain.clone(),
            affinity_group_bind_info: members,
            cluster: placement.cluster.clone(),
        })
    }

    /// The text of the annotation `hivedscheduler.microsoft.com/pod-leaf-cell-isolation`.
    #[must_use]
    pub fn isolation(&self) -> String {
        self.leaf_cell_isolation.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
    }

    /// The placement of the whole group.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let pods = self.affinity_group_bind_info.iter().flat_map(|member| &member.pod_placements);
        Placement {
            cluster: self.cluster.clone(),
            cell_chain: self.cell_chain.clone(),
            leaf_cell_type: String::new(),
            pods: pods
                .map(|pod| PodPlacement {
                    node: pod.physical_node.clone(),
                    leaf_cells: pod.physical_leaf_cell_indices.clone(),
                    preassigned_cell_type: pod.preassigned_cell_types.first().cloned().unwrap_or_default(),
                })
                .collect(),
        }
    }
}

impl BoundGroup {
    /// Rebuilds a group from its bound pods, by name. Each pod gets the number that has its node and devices. None
    /// without pods.
    #[must_use]
    pub fn from_pods(
        request: GroupRequest,
        pods: &BTreeMap<String, PodBindInfo>,
        work_since_ms: i64,
    ) -> Option<Self> {
        let (_, first) = pods.first_key_value()?;
        let placement = first.placement();
        let mut names = vec![None; placement.pods.len()];
        for (name, info) in pods {
            let own = |(place, pod): &(usize, &PodPlacement)| {
                names[*place].is_none() && pod.node == info.node && pod.leaf_cells == info.leaf_cell_isolation
            };
            if let Some((place, _)) = placement.pods.iter().enumerate().find(own) {
                names[place] = Some(name.clone());
            }
        }
        Some(Self { request, placement, pods: names, lazily_preempted: None, work_since_ms })
    }
}

fn info_of(pod: &PodPlacement) -> PodPlacementInfo {
    PodPlacementInfo {
        physical_node: pod.node.clone(),
        physical_leaf_cell_indices: pod.leaf_cells.clone(),
        preassigned_cell_types: vec![pod.preassigned_cell_type.clone(); pod.leaf_cells.len()],
    }
}

fn flatten<'a>(group: &'a PodGroup, into: &mut Vec<&'a Member>) {
    into.extend(&group.members);
    for child in &group.child_groups {
        flatten(child, into);
    }
}

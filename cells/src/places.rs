//! Placements as nodes and devices.

use crate::{
    cells::Cells,
    decision::{Placement, PodPlacement, Victim},
    group::{Group, PodState},
    topology::{ChainNo, GroupNo, LeafNo, SlotNo},
};

impl Cells {
    pub(crate) fn placement_of(&self, chain: ChainNo, pods: &[(&[LeafNo], Option<SlotNo>)]) -> Placement {
        let topology = &self.topology;
        let chain = topology.chain(chain);
        let first = pods.iter().find_map(|(leaves, _)| leaves.first());
        let cluster = first.map(|leaf| topology.nodes[topology.leaf(*leaf).node.at()].name.cluster.clone());
        let pod = |(leaves, slot): &(&[LeafNo], Option<SlotNo>)| PodPlacement {
            node: leaves
                .first()
                .map(|leaf| topology.nodes[topology.leaf(*leaf).node.at()].name.node.clone())
                .unwrap_or_default(),
            leaf_cells: leaves.iter().map(|leaf| topology.leaf(*leaf).index).collect(),
            preassigned_cell_type: slot
                .map(|slot| topology.slot(slot))
                .map(|slot| topology.chain(slot.chain).level(slot.level).name.clone())
                .unwrap_or_default(),
        };
        Placement {
            cluster: cluster.unwrap_or_default(),
            cell_chain: chain.name.clone(),
            leaf_cell_type: chain.leaf_type().to_string(),
            pods: pods.iter().map(pod).collect(),
        }
    }

    pub(crate) fn group_placement(&self, group: &Group) -> Placement {
        let pods: Vec<_> = group.pods.iter().map(|pod| (pod.leaves.as_slice(), pod.slot)).collect();
        self.placement_of(group.chain, &pods)
    }

    pub(crate) fn victim(&self, number: GroupNo, now_ms: i64) -> Option<Victim> {
        let group = self.groups.get(number)?;
        let mut nodes: Vec<_> = group
            .leaves()
            .map(|leaf| self.topology.nodes[self.topology.leaf(leaf).node.at()].name.clone())
            .collect();
        nodes.sort();
        nodes.dedup();
        let live = |pod: &crate::group::GroupPod| match &pod.state {
            PodState::Live(name) => Some(name.clone()),
            PodState::Expected | PodState::Gone => None,
        };
        Some(Victim {
            group: group.request.name().to_string(),
            vc: group.request.vc.clone(),
            priority: i32::from(group.priority),
            lost_work_ms: group.lost_work(now_ms),
            nodes,
            pods: group.pods.iter().filter_map(live).collect(),
        })
    }

    /// Where a group runs, or has reserved cells.
    #[must_use]
    pub fn placement(&self, name: &str) -> Option<Placement> {
        self.groups.named(name).map(|(_, group)| self.group_placement(group))
    }
}

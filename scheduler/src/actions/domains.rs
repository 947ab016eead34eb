//! Places within one domain of the network.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::stopped::Stopped;
use crate::cluster::Cluster;
use crate::group::Topology;
use crate::ids::{GroupId, NodeId, PodId};

/// A topology domain: its tier, its name, its nodes.
type Domain = (i64, Arc<str>, BTreeSet<NodeId>);

impl Cluster {
    /// A group with a topology constraint: the lowest tier with a domain that can hold all of it, and there the
    /// domain with the least capacity left.
    pub(crate) fn place_in_domains(
        &mut self,
        id: GroupId,
        topology: Topology,
    ) -> Result<Vec<(PodId, NodeId)>, Stopped> {
        let most = if topology.hard { topology.highest_tier } else { None };
        let nodes = std::mem::take(&mut self.nodes);
        let domains = self.hypernodes.domains(&nodes, most);
        self.nodes = nodes;
        let standing: BTreeSet<NodeId> = self
            .group(id)
            .pods
            .iter()
            .map(|pod| self.pod(*pod))
            .filter(|pod| pod.status.is_allocated())
            .filter_map(|pod| pod.node)
            .collect();
        let mut why = None;
        let mut best: Option<(i64, i64, &BTreeSet<NodeId>)> = None;
        for (tier, _, nodes) in &domains {
            if best.is_some_and(|(found, ..)| found < *tier) {
                break;
            }
            if !standing.is_subset(nodes) {
                continue;
            }
            self.begin();
            let placed = self.place_within(id, Some(nodes));
            let room: i64 = nodes
                .iter()
                .map(|node| self.nodes.cells(*node)[crate::amounts::PODS].idle().min(1 << 20))
                .sum();
            let idle: i64 = nodes
                .iter()
                .map(|node| self.nodes.cells(*node).iter().skip(1).map(|cell| cell.idle() >> 10).sum::<i64>())
                .sum();
            self.rollback(0);
            self.commit();
            match placed {
                Ok(_) if best.is_none_or(|(_, known, _)| idle.saturating_add(room) < known) => {
                    best = Some((*tier, idle.saturating_add(room), nodes));
                }
                Ok(_) => {}
                Err(stopped) => why = Some(stopped),
            }
        }
        if best.is_none() && topology.hard && (topology.highest_tier.is_some() || !domains.is_empty()) {
            // A refusal by the queue holds in every domain.
            if let Some(stopped @ Stopped::Queue(_)) = why {
                return Err(stopped);
            }
            return Err(Stopped::Queue(self.domains_sentence(id, &domains, most)));
        }
        self.begin();
        let placed = self.place_within(id, best.map(|(_, _, nodes)| nodes));
        if placed.is_err() {
            self.rollback(0);
        }
        self.commit();
        placed
    }
    /// `none of 2 hypernodes up to tier 1 has room for 3 pods of the gang`
    fn domains_sentence(&self, id: GroupId, domains: &[Domain], most: Option<i64>) -> String {
        let tier = most.map_or(String::new(), |tier| format!(" up to tier {tier}"));
        let need = self.group(id).need().max(1);
        match domains.len() {
            0 => format!("there is no hypernode{tier} that could hold the gang"),
            n => format!("none of {n} hypernodes{tier} has room for {need} pods of the gang"),
        }
    }
}

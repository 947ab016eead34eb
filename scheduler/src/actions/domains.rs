//! Places within one domain of the network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::stopped::Stopped;
use crate::amounts::PODS;
use crate::cluster::Cluster;
use crate::group::Topology;
use crate::ids::{GroupId, NodeId, PodId};
use crate::index::Allowed;
use crate::node::Cell;
use crate::pod::Status;
use crate::state::State;

/// A topology domain: its tier, its name, its nodes.
type Domain = (i64, Arc<str>, BTreeSet<NodeId>);

/// By sub-group, the nodes chosen for it in one search; `None`: any.
pub(super) type SubGroupDomains = BTreeMap<u16, Result<Option<Arc<BTreeSet<NodeId>>>, String>>;

impl Cluster {
    /// A group with a topology constraint: the lowest tier with a domain that can hold all of it, and there the
    /// domain with the least capacity left.
    pub(crate) fn place_in_domains(
        &mut self,
        id: GroupId,
        topology: Topology,
    ) -> Result<Vec<(PodId, NodeId)>, Stopped> {
        let most = if topology.hard { topology.highest_tier } else { None };
        let domains = self.list_domains(most);
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
            let idle = self.idle_in(nodes);
            self.rollback(0);
            self.commit();
            match placed {
                Ok(_) if best.is_none_or(|(_, known, _)| idle < known) => {
                    best = Some((*tier, idle, nodes));
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
            let need = self.group(id).need().max(1);
            return Err(Stopped::Queue(sentence(&domains, most, &format!("{need} pods of the gang"))));
        }
        self.begin();
        let placed = self.place_within(id, best.map(|(_, _, nodes)| nodes));
        if placed.is_err() {
            self.rollback(0);
        }
        self.commit();
        placed
    }
    /// The nodes of the pod's sub-group, if that wants one domain: those of its placed pods, or the domain chosen for
    /// it, the lowest tier first.
    ///
    /// # Errors
    /// No domain can hold the sub-group, in one sentence.
    pub(super) fn domain_for(
        &mut self,
        id: GroupId,
        pod: PodId,
        allowed: Allowed<'_>,
        known: &mut SubGroupDomains,
    ) -> Result<Option<Arc<BTreeSet<NodeId>>>, String> {
        let group = self.group(id);
        let Some(at) = self.pod(pod).sub_group else { return Ok(None) };
        let Some(sub_group) = group.sub_groups.get(usize::from(at)) else { return Ok(None) };
        let policy = &group.input.sub_groups[sub_group.policy()];
        let Some(wish) = policy.topology.filter(|wish| wish.hard || self.policy.prefers_domains()) else {
            return Ok(None);
        };
        if let Some(answer) = known.get(&at) {
            return answer.clone();
        }
        let need = (policy.size - sub_group.ready()).max(1);
        let pods: Vec<PodId> = group
            .pending
            .iter()
            .map(|order| order.3)
            .filter(|pod| self.pod(*pod).sub_group == Some(at))
            .take(usize::try_from(need).unwrap_or(0))
            .collect();
        let found = self.domain_of_sub_group(id, at, (&pods, need), wish, allowed);
        let answer = match found {
            Ok(nodes) => Ok(Some(Arc::new(nodes))),
            Err(_) if !wish.hard => Ok(None),
            Err(why) => Err(why),
        };
        known.insert(at, answer.clone());
        answer
    }

    fn domain_of_sub_group(
        &mut self,
        id: GroupId,
        at: u16,
        (pods, need): (&[PodId], i64),
        wish: Topology,
        allowed: Allowed<'_>,
    ) -> Result<BTreeSet<NodeId>, String> {
        let most = if wish.hard { wish.highest_tier } else { None };
        let domains = self.list_domains(most);
        let own = self.group(id).pods.iter().map(|pod| self.pod(*pod));
        let standing: BTreeSet<NodeId> = own
            .filter(|pod| pod.sub_group == Some(at) && pod.status.is_allocated())
            .filter_map(|pod| pod.node)
            .collect();
        let mut best: Option<(i64, i64, BTreeSet<NodeId>)> = None;
        for (tier, _, nodes) in &domains {
            if best.as_ref().is_some_and(|(found, ..)| found < tier) {
                break;
            }
            if !standing.is_subset(nodes) {
                continue;
            }
            let nodes: BTreeSet<NodeId> = match allowed {
                Some(allowed) => nodes.intersection(allowed).copied().collect(),
                None => nodes.clone(),
            };
            let point = self.mark_point();
            let mut placed = 0;
            for pod in pods {
                let Some(node) = self.find_node(*pod, Some(&nodes)) else { break };
                self.set_place(*pod, Status::Binding, Some(node));
                placed += 1;
            }
            let idle = self.idle_in(&nodes);
            self.rollback(point);
            if placed >= need && best.as_ref().is_none_or(|(_, known, _)| idle < *known) {
                best = Some((*tier, idle, nodes));
            }
        }
        best.map(|(.., nodes)| nodes)
            .ok_or_else(|| sentence(&domains, most, &format!("{need} pods of a partition")))
    }

    fn list_domains(&mut self, most: Option<i64>) -> Vec<Domain> {
        let State { nodes, hypernodes, .. } = &mut self.state;
        hypernodes.domains(nodes, most)
    }

    /// What the nodes have left, as one number for comparison.
    fn idle_in(&self, nodes: &BTreeSet<NodeId>) -> i64 {
        let slots = |cells: &[Cell]| cells[PODS].idle().min(1 << 20);
        let rest = |cells: &[Cell]| cells.iter().skip(1).map(|cell| cell.idle() >> 10).sum::<i64>();
        let of = |node: &NodeId| {
            let cells = self.nodes.cells(*node);
            slots(cells).saturating_add(rest(cells))
        };
        nodes.iter().map(of).fold(0, i64::saturating_add)
    }
}

/// `none of 2 hypernodes up to tier 1 has room for 3 pods of the gang`
fn sentence(domains: &[Domain], most: Option<i64>, what: &str) -> String {
    let tier = most.map_or(String::new(), |tier| format!(" up to tier {tier}"));
    match domains.len() {
        0 => format!("there is no hypernode{tier} that could hold the gang"),
        n => format!("none of {n} hypernodes{tier} has room for {what}"),
    }
}

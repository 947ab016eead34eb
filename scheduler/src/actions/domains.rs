//! Places within one domain of the network.

use std::borrow::Cow;
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

/// The nodes chosen for a sub-group; `None`: any.
type Chosen = Result<Option<Arc<BTreeSet<NodeId>>>, String>;

/// The pods of one sub-group.
#[derive(Default)]
struct Own {
    /// Those that wait, in the order of placement.
    waiting: Vec<PodId>,
    /// Nodes of those that hold places.
    standing: BTreeSet<NodeId>,
}

/// What one search for a group knows of its sub-groups.
#[derive(Default)]
pub(super) struct SubGroupDomains {
    /// By sub-group.
    chosen: BTreeMap<u16, Chosen>,
    /// By sub-group, as it was before the search: the nodes of a sub-group are chosen before its first place.
    own: Option<BTreeMap<u16, Own>>,
    /// By their highest tier.
    domains: BTreeMap<Option<i64>, Arc<[Domain]>>,
}

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
    ) -> Chosen {
        let group = self.group(id);
        let Some(at) = self.pod(pod).sub_group else { return Ok(None) };
        let Some(sub_group) = group.sub_groups.get(usize::from(at)) else { return Ok(None) };
        let policy = &group.input.sub_groups[sub_group.policy()];
        let Some(wish) = policy.topology.filter(|wish| wish.hard || self.policy.prefers_domains()) else {
            return Ok(None);
        };
        if let Some(answer) = known.chosen.get(&at) {
            return answer.clone();
        }
        let need = policy.size.saturating_sub(sub_group.ready()).max(1);
        let most = if wish.hard { wish.highest_tier } else { None };
        let domains = known.domains.entry(most).or_insert_with(|| self.list_domains(most).into()).clone();
        let own = known.own.get_or_insert_with(|| self.pods_of_sub_groups(id));
        let found = own.get(&at).and_then(|own| self.domain_of_sub_group(own, need, &domains, allowed));
        let answer = match found {
            Some(nodes) => Ok(Some(Arc::new(nodes))),
            None if !wish.hard => Ok(None),
            None => Err(sentence(&domains, most, &format!("{need} pods of a partition"))),
        };
        known.chosen.insert(at, answer.clone());
        answer
    }

    fn pods_of_sub_groups(&self, id: GroupId) -> BTreeMap<u16, Own> {
        let group = self.group(id);
        let mut found: BTreeMap<u16, Own> = BTreeMap::new();
        for (.., pod) in &group.pending {
            if let Some(at) = self.pod(*pod).sub_group {
                found.entry(at).or_default().waiting.push(*pod);
            }
        }
        for pod in group.pods.iter().map(|pod| self.pod(*pod)).filter(|pod| pod.status.is_allocated()) {
            if let (Some(at), Some(node)) = (pod.sub_group, pod.node) {
                found.entry(at).or_default().standing.insert(node);
            }
        }
        found
    }

    /// The domain for so many of the waiting pods, of the lowest tier, and there the one with the least capacity left.
    fn domain_of_sub_group(
        &mut self,
        own: &Own,
        need: i64,
        domains: &[Domain],
        allowed: Allowed<'_>,
    ) -> Option<BTreeSet<NodeId>> {
        let most = usize::try_from(need).unwrap_or(usize::MAX).min(own.waiting.len());
        let mut best: Option<(i64, i64, BTreeSet<NodeId>)> = None;
        for (tier, _, nodes) in domains {
            if best.as_ref().is_some_and(|(found, ..)| found < tier) {
                break;
            }
            if !own.standing.is_subset(nodes) {
                continue;
            }
            let nodes: Cow<'_, BTreeSet<NodeId>> = match allowed {
                Some(allowed) => Cow::Owned(nodes.intersection(allowed).copied().collect()),
                None => Cow::Borrowed(nodes),
            };
            let point = self.mark_point();
            let mut placed = 0;
            for pod in &own.waiting[..most] {
                let Some(node) = self.find_node(*pod, Some(&*nodes)) else { break };
                self.set_place(*pod, Status::Binding, Some(node));
                placed += 1;
            }
            let idle = self.idle_in(&nodes);
            self.rollback(point);
            if placed >= need && best.as_ref().is_none_or(|(_, known, _)| idle < *known) {
                best = Some((*tier, idle, nodes.into_owned()));
            }
        }
        best.map(|(.., nodes)| nodes)
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

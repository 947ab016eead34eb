//! For each class of pods, the nodes that can take one more, best first.
//!
//! An index follows the nodes' log of changes, so it costs by what changed since its last use. Rules that depend on
//! the single pod (pods nearby, ports, claims) are checked on the nodes in order, until one passes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::amounts::PODS;
use crate::cluster::Cluster;
use crate::ids::{ClassId, GroupId, NodeId, PodId};
use crate::misfit::{Fit, Misfit};
use crate::node::{Cell, NodeState};
use crate::plugins::rules::Spreads;
use crate::pod::{Class, Extras};
use crate::score::FULL;
use crate::task_topology::Buckets;

/// Most indexes kept; the least recently used is dropped first.
const MAX_INDEXES: usize = 256;
/// The node is not in the order.
const OUT: i64 = i64::MIN;

/// Nodes that a search may use; `None`: all.
pub(crate) type Allowed<'a> = Option<&'a BTreeSet<NodeId>>;

#[derive(Clone, Copy, Debug, Default)]
struct Static {
    version: u32,
    seen: bool,
    admitted: bool,
    score: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ClassIndex {
    /// Of the class, whose number may be reused.
    serial: u64,
    order: BTreeSet<(Reverse<i64>, NodeId)>,
    scores: Vec<i64>,
    statics: Vec<Static>,
    cursor: u64,
    pub used: u64,
}

impl Cluster {
    /// The node itself admits pods of the class, whatever runs on it.
    pub(crate) fn admits(&self, class: &Class, node: &NodeState) -> Result<(), Misfit> {
        if !node.known || !node.ready {
            return Err(Misfit::NotReady);
        }
        if node.kept {
            return Err(Misfit::Kept);
        }
        if !class.whole {
            return Err(Misfit::TooManyResources);
        }
        self.policy.plugins.admits(class, node)
    }

    /// Pods of the class depend on amounts and nodes alone.
    pub(crate) fn is_plain(&self, class: &Class) -> bool {
        class.extras().is_none_or(Extras::is_whole_cpus_alone) && !self.policy.plugins.is_sensitive(class)
    }

    pub(crate) fn fits(&self, class: &Class, node: NodeId, fit: Fit) -> Result<(), Misfit> {
        let cells = self.nodes.cells(node);
        let room = |cell: &Cell| match fit {
            Fit::Now => cell.free(),
            Fit::Future => cell.future_idle(),
        };
        if room(&cells[PODS]) < 1 {
            return Err(Misfit::PodCount);
        }
        let short = |(place, amount): &&(u16, i64)| room(&cells[usize::from(*place)]) < *amount;
        if class.request.iter().any(|part| short(&part)) {
            let short = class.request.iter().filter(short).map(|(place, _)| *place).collect();
            return Err(Misfit::Resources(short));
        }
        self.policy.plugins.fits(&self.state, class, node, fit)
    }

    /// Rules that depend on the pod itself and on pods nearby.
    pub(crate) fn agrees(&self, id: PodId, node: NodeId, spreads: &Spreads, fit: Fit) -> Result<(), Misfit> {
        let pod = self.pod(id);
        let state = self.nodes.get(node);
        self.may_use(pod.group, state)?;
        self.policy.plugins.agrees(&self.state, id, node, spreads, fit)
    }

    /// Rules that depend on the pod's group.
    pub(crate) fn may_use(&self, group: GroupId, node: &NodeState) -> Result<(), Misfit> {
        if node.claimed_by.is_some_and(|of| of != group) {
            return Err(Misfit::Claimed);
        }
        let known = self.group(group);
        // Places for the hub have no queue here.
        if known.input.manual {
            Ok(())
        } else {
            self.policy.plugins.admits_queue(&self.state, known.queue, node)
        }
    }

    /// Per spread rule of the class, the fewest pods in any domain whose nodes admit it.
    pub(crate) fn spreads(&self, class: &Class) -> Spreads {
        if class.spread.is_empty() {
            return Spreads::default();
        }
        let mut least: Vec<BTreeMap<&str, i64>> = vec![BTreeMap::new(); class.spread.len()];
        for (_, node) in self.nodes.iter().filter(|(_, node)| self.admits(class, node).is_ok()) {
            for (at, (_, term)) in class.spread.iter().enumerate() {
                if let Some(domain) = node.labels.get(self.terms.key(*term)) {
                    least[at].entry(domain).or_insert_with(|| self.terms.selected(*term, domain));
                }
            }
        }
        Spreads { least: least.iter().map(|domains| domains.values().copied().min().unwrap_or(0)).collect() }
    }

    /// The `most` best nodes that could take the pod now by its request.
    pub fn best_nodes(&mut self, id: PodId, most: usize) -> Vec<NodeId> {
        let class = self.pod(id).class;
        self.catch_up(class);
        let order = self.indexes[class as usize].iter().flat_map(|index| &index.order);
        order.take(most).map(|(_, node)| *node).collect()
    }

    /// The best node for the pod, if there is one.
    pub(crate) fn find_node(&mut self, id: PodId, allowed: Allowed<'_>) -> Option<NodeId> {
        self.find_node_near(id, allowed, None)
    }

    /// As [`find_node`](Self::find_node), considering the other tasks of the pod's job.
    pub(crate) fn find_node_near(
        &mut self,
        id: PodId,
        allowed: Allowed<'_>,
        buckets: Option<&Buckets>,
    ) -> Option<NodeId> {
        let class = self.pod(id).class;
        self.catch_up(class);
        let index = self.indexes[class as usize].take()?;
        let spread = self.spreads(self.class(class));
        let usable = |node: &NodeId| {
            allowed.is_none_or(|allowed| allowed.contains(node))
                && self.agrees(id, *node, &spread, Fit::Now).is_ok()
        };
        let scored = buckets.is_some() || self.policy.plugins.scores_pod(&self.state, id);
        let mut nodes =
            index.order.iter().map(|(score, node)| (score.0, *node)).filter(|(_, node)| usable(node));
        let found = if scored {
            nodes
                .map(|(score, node)| {
                    let near = buckets.map_or(0, |buckets| self.bucket_score(id, node, buckets));
                    (score + self.policy.plugins.pod_score(&self.state, id, node) + near, Reverse(node))
                })
                .max()
                .map(|(_, n)| n.0)
        } else {
            nodes.next().map(|(_, node)| node)
        };
        self.indexes[class as usize] = Some(index);
        found
    }

    pub(crate) fn score(&self, class: &Class, node: NodeId) -> i64 {
        self.whole_score(class, node, self.policy.plugins.fixed_score(class, self.nodes.get(node)))
    }

    fn whole_score(&self, class: &Class, node: NodeId, fixed: i64) -> i64 {
        fixed + self.policy.plugins.node_score(&self.state, class, node)
    }

    /// Points of a node by the buckets of the pod's job.
    fn bucket_score(&self, id: PodId, node: NodeId, buckets: &Buckets) -> i64 {
        let cells = self.nodes.cells(node);
        let points = buckets.points(id, node, |place| cells[place].idle() + cells[place].releasing);
        self.policy.buckets().0 * FULL / buckets.full() * points
    }

    /// Updates the class's index.
    fn catch_up(&mut self, id: ClassId) {
        self.index_uses += 1;
        if self.indexes.len() < self.class_slots() {
            let classes = self.class_slots();
            self.indexes.resize_with(classes, || None);
        }
        let serial = self.class(id).serial;
        let mut index = match self.indexes[id as usize].take().filter(|index| index.serial == serial) {
            Some(index) => index,
            None => {
                self.make_room_for_index();
                Box::new(ClassIndex { serial, ..ClassIndex::default() })
            }
        };
        index.used = self.index_uses;
        let class = self.class(id);
        let nodes = self.nodes.len();
        if index.scores.len() < nodes {
            index.scores.resize(nodes, OUT);
            index.statics.resize(nodes, Static::default());
        }
        let changed = if index.cursor == 0 { None } else { self.nodes.changes_since(index.cursor) };
        match changed {
            Some(changed) if changed.len() < nodes * 2 => {
                changed.iter().for_each(|node| self.place_in(&mut index, class, *node));
            }
            _ => self.nodes.ids().for_each(|node| self.place_in(&mut index, class, node)),
        }
        index.cursor = self.nodes.log_end();
        self.indexes[id as usize] = Some(index);
    }

    fn place_in(&self, index: &mut ClassIndex, class: &Class, node: NodeId) {
        let at = node as usize;
        let state = self.nodes.get(node);
        let known = &mut index.statics[at];
        if !known.seen || known.version != state.version {
            *known = Static {
                version: state.version,
                seen: true,
                admitted: self.admits(class, state).is_ok(),
                score: self.policy.plugins.fixed_score(class, state),
            };
        }
        let known = *known;
        let score = if known.admitted && self.fits(class, node, Fit::Now).is_ok() {
            self.whole_score(class, node, known.score)
        } else {
            OUT
        };
        if index.scores[at] == score {
            return;
        }
        if index.scores[at] != OUT {
            index.order.remove(&(Reverse(index.scores[at]), node));
        }
        if score != OUT {
            index.order.insert((Reverse(score), node));
        }
        index.scores[at] = score;
    }

    fn make_room_for_index(&mut self) {
        let kept = self.indexes.iter().flatten().count();
        if kept < MAX_INDEXES {
            return;
        }
        let oldest = self.indexes.iter_mut().filter(|index| index.is_some());
        if let Some(oldest) = oldest.min_by_key(|index| index.as_ref().map_or(0, |index| index.used)) {
            *oldest = None;
        }
    }

    /// Why nodes cannot take the pod, each reason with its number of nodes; and how many nodes could.
    pub(crate) fn misfits(&self, id: PodId) -> (BTreeMap<Misfit, i64>, i64) {
        let class = self.class(self.pod(id).class);
        let spread = self.spreads(class);
        let mut found = BTreeMap::new();
        let mut fitting = 0;
        for (node, state) in self.nodes.iter() {
            let look = self
                .admits(class, state)
                .and_then(|()| self.fits(class, node, Fit::Now))
                .and_then(|()| self.agrees(id, node, &spread, Fit::Now));
            match look {
                Ok(()) => fitting += 1,
                Err(misfit) => *found.entry(misfit).or_insert(0) += 1,
            }
        }
        (found, fitting)
    }
}

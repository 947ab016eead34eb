//! For each class of pods, the nodes that can take one more, best first.
//!
//! An index follows the nodes' log of changes, so it costs by what changed since its last use. Rules that depend on
//! the single pod (pods nearby, ports, claims) are checked on the nodes in order, until one passes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_resources::constraints;

use crate::amounts::PODS;
use crate::cluster::Cluster;
use crate::node::{Cell, NodeId, NodeState};
use crate::pod::{Class, ClassId, PodId, Status};
use crate::task_topology::Buckets;

/// Most indexes kept; the least recently used is dropped first.
const MAX_INDEXES: usize = 256;
/// The node is not in the order.
const OUT: i64 = i64::MIN;

/// Why one node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    NotReady,
    /// For pods that are placed by name.
    Kept,
    Unschedulable,
    NodeAffinity,
    Taint,
    Volume,
    Devices,
    NumaPolicy,
    NumaCells,
    Ports,
    PodCount,
    /// The resources that are short, by dimension.
    Resources(Vec<u16>),
    PodAffinity,
    AntiAffinity,
    Spread,
    Claimed,
    /// By the extender, with the reason.
    Vetoed(Arc<str>),
    Revoked,
    /// The pod's queue does not go to the node's group.
    NodeGroup,
    BusyCpu,
    BusyMemory,
}

impl Misfit {
    /// About the pod itself, not about resources and nodes alone.
    pub(crate) fn is_about_pods(&self) -> bool {
        !matches!(
            self,
            Self::NotReady
                | Self::Kept
                | Self::Unschedulable
                | Self::NodeAffinity
                | Self::Taint
                | Self::PodCount
                | Self::Resources(_)
        )
    }

    /// As in the sentence `2 node(s) ...`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NotReady => "were not ready",
            Self::Kept => "were cells of virtual clusters",
            Self::Unschedulable => "were unschedulable",
            Self::NodeAffinity => "didn't match the pod's node affinity/selector",
            Self::Taint => "had untolerated taints",
            Self::Volume => "had volume node affinity conflict",
            Self::Devices => "had no card with enough left",
            Self::NumaPolicy => "didn't report the pod's NUMA policy",
            Self::NumaCells => "had not enough free cpus close together",
            Self::Ports => "didn't have free ports for the requested pod ports",
            Self::PodCount => "pod number exceeded",
            Self::Resources(_) => "resource fit failed",
            Self::PodAffinity => "didn't match pod affinity rules",
            Self::AntiAffinity => "didn't match pod anti-affinity rules",
            Self::Spread => "didn't match pod topology spread constraints",
            Self::Claimed => "were kept for a gang that waited longer",
            Self::Vetoed(_) => "were refused by the extender",
            Self::NodeGroup => "were not of the node groups of the pod's queue",
            Self::Revoked => "were revocable and not offered now",
            Self::BusyCpu => "were over the threshold of measured cpu load",
            Self::BusyMemory => "were over the threshold of measured memory load",
        }
    }
}

/// Which capacity counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Free now.
    Now,
    /// Free once everything that is terminating is gone.
    Future,
}

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
        if let Some(busy) = self.overloaded(node) {
            return Err(busy);
        }
        let filters = &self.policy.filters;
        if !filters.any {
            return Ok(());
        }
        let shape = &class.spec.shape;
        let cordon = fleet_resources::Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            value: String::new(),
            effect: fleet_resources::TaintEffect::NoSchedule,
        };
        if node.unschedulable && !shape.tolerations.iter().any(|t| t.tolerates(&cordon)) {
            return Err(Misfit::Unschedulable);
        }
        let selected = || {
            shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
                && constraints::any_term_matches(&shape.node_affinity, &node.name, &node.labels)
        };
        if filters.node_affinity && !selected() {
            return Err(Misfit::NodeAffinity);
        }
        if filters.taints && !constraints::tolerates(&shape.tolerations, &node.taints) {
            return Err(Misfit::Taint);
        }
        if let Some(extras) = class.extras() {
            let reaches = |terms: &Vec<_>| constraints::any_term_matches(terms, &node.name, &node.labels);
            if filters.volumes && !extras.volumes.iter().all(reaches) {
                return Err(Misfit::Volume);
            }
        }
        Ok(())
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
        self.choose_cards(class, node, fit)?;
        self.choose_cpus(class, node, fit).map(drop)
    }

    /// Rules that depend on the pod itself and on pods nearby.
    pub(crate) fn agrees(
        &self,
        id: PodId,
        node: NodeId,
        spread: &SpreadRoom,
        fit: Fit,
    ) -> Result<(), Misfit> {
        let pod = self.pod(id);
        let class = self.class(pod.class);
        let state = self.nodes.get(node);
        if state.claimed_by.is_some_and(|group| group != pod.group) {
            return Err(Misfit::Claimed);
        }
        if let Some(why) = self.vetoed(id, node) {
            return Err(Misfit::Vetoed(why.clone()));
        }
        let group = self.group(pod.group);
        // Places for the hub have no queue here.
        if !group.input.manual && !self.in_node_group(group.queue, state) {
            return Err(Misfit::NodeGroup);
        }
        let filters = &self.policy.filters;
        if let Some(zones) = &self.policy.revocable_zones
            && let Some(zone) = state.labels.get("volcano.sh/revocable-zone")
        {
            let asked = class.extras().and_then(|extras| extras.revocable_zone.as_deref());
            let open = zones.get(zone).is_some_and(|window| crate::shuffle::within(*window, self.minute));
            if !open || !asked.is_some_and(|asked| asked == "*" || asked == zone) {
                return Err(Misfit::Revoked);
            }
        }
        if let Some(extras) = class.extras()
            && filters.ports
            && extras.ports.iter().any(|port| state.ports.iter().any(|used| used.collides(port)))
        {
            return Err(Misfit::Ports);
        }
        if fit == Fit::Now {
            self.agrees_with_leaving(id, state)?;
        }
        if self.terms.is_empty() {
            return Ok(());
        }
        let domain = |term| state.labels.get(self.terms.key(term)).map(String::as_str);
        if filters.pods {
            for term in &class.affinity {
                let own = pod.matches.contains(term);
                let first = self.terms.selected_anywhere(*term) == 0 && own;
                let near = domain(*term).is_some_and(|d| first || self.terms.selected(*term, d) > 0);
                if !near {
                    return Err(Misfit::PodAffinity);
                }
            }
            let apart = |term: &u32| domain(*term).is_none_or(|d| self.terms.selected(*term, d) == 0);
            if !class.anti_affinity.iter().all(apart)
                || pod.matches.iter().any(|term| self.terms.repels(*term, domain(*term)))
            {
                return Err(Misfit::AntiAffinity);
            }
        }
        if filters.spread {
            for (at, (rule, term)) in class.spread.iter().enumerate().filter(|(_, (rule, _))| rule.hard) {
                let Some(domain) = domain(*term) else { return Err(Misfit::Spread) };
                let own = i64::from(pod.matches.contains(term));
                let least = spread.least.get(at).copied().unwrap_or(0);
                if self.terms.selected(*term, domain) + own - least > rule.max_skew {
                    return Err(Misfit::Spread);
                }
            }
        }
        Ok(())
    }

    /// Terminating pods still have their ports, and still count for anti-affinity.
    fn agrees_with_leaving(&self, id: PodId, state: &NodeState) -> Result<(), Misfit> {
        let pod = self.pod(id);
        let class = self.class(pod.class);
        let portless = class.extras().is_none_or(|extras| extras.ports.is_empty());
        if portless && class.anti_affinity.is_empty() && pod.matches.is_empty() {
            return Ok(());
        }
        for other in state.pods.iter().map(|other| self.pod(*other)).filter(|o| o.status == Status::Releasing)
        {
            let theirs = self.class(other.class);
            let ports = |class: &Class| class.extras().map_or(Vec::new(), |extras| extras.ports.clone());
            if self.policy.filters.ports
                && ports(class).iter().any(|port| ports(theirs).iter().any(|p| p.collides(port)))
            {
                return Err(Misfit::Ports);
            }
            let apart = class.anti_affinity.iter().any(|term| other.matches.contains(term))
                || theirs.anti_affinity.iter().any(|term| pod.matches.contains(term));
            if self.policy.filters.pods && apart {
                return Err(Misfit::AntiAffinity);
            }
        }
        Ok(())
    }

    /// Per spread rule of the class, the fewest pods in any domain whose nodes admit it.
    pub(crate) fn spread_room(&self, class: &Class) -> SpreadRoom {
        if class.spread.is_empty() {
            return SpreadRoom::default();
        }
        let mut least: Vec<BTreeMap<&str, i64>> = vec![BTreeMap::new(); class.spread.len()];
        for (_, node) in self.nodes.iter().filter(|(_, node)| self.admits(class, node).is_ok()) {
            for (at, (_, term)) in class.spread.iter().enumerate() {
                if let Some(domain) = node.labels.get(self.terms.key(*term)) {
                    least[at].entry(domain).or_insert_with(|| self.terms.selected(*term, domain));
                }
            }
        }
        SpreadRoom {
            least: least.iter().map(|domains| domains.values().copied().min().unwrap_or(0)).collect(),
        }
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
        let spread = self.spread_room(self.class(class));
        let usable = |node: &NodeId| {
            allowed.is_none_or(|allowed| allowed.contains(node))
                && self.agrees(id, *node, &spread, Fit::Now).is_ok()
        };
        let given = self.given_scores(self.pod(id).group, class);
        let soft = self.class(class).has_pod_terms() && !self.class(class).preferred_pods.is_empty()
            || self.class(class).spread.iter().any(|(rule, _)| !rule.hard)
            || buckets.is_some()
            || given.is_some()
            || self.policy.node_groups.is_some();
        let mut nodes =
            index.order.iter().map(|(score, node)| (score.0, *node)).filter(|(_, node)| usable(node));
        let found = if soft {
            nodes
                .map(|(score, node)| {
                    let near = buckets.map_or(0, |buckets| self.bucket_score(id, node, buckets));
                    let given = given.and_then(|given| given.get(&node)).copied().unwrap_or(0);
                    (score + self.pods_score(id, node) + near + given, Reverse(node))
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
        let state = self.nodes.get(node);
        self.whole_score(class, node, self.policy.scoring.fixed_score(class, state))
    }

    fn whole_score(&self, class: &Class, node: NodeId, fixed: i64) -> i64 {
        let cells = self.nodes.cells(node);
        self.policy.scoring.node_score(&self.dimensions, class, cells, fixed)
            + self.cards_score(class, node)
            + self.usage_score(node)
            + self.numa_score(class, node)
    }

    /// Points of a node by preferred pod terms and soft spreading.
    fn pods_score(&self, id: PodId, node: NodeId) -> i64 {
        use crate::score::POINT;
        let pod = self.pod(id);
        let class = self.class(pod.class);
        let labels = &self.nodes.get(node).labels;
        let count = |term: u32| labels.get(self.terms.key(term)).map_or(0, |d| self.terms.selected(term, d));
        let near: i64 = class.preferred_pods.iter().map(|(weight, term)| weight * count(*term).min(1)).sum();
        let crowd: i64 =
            class.spread.iter().filter(|(rule, _)| !rule.hard).map(|(_, term)| count(*term)).sum();
        let scoring = &self.policy.scoring;
        let group = self.node_group_score(self.group(pod.group).queue, self.nodes.get(node)).unwrap_or(0);
        scoring.pod_affinity.max(1) * near * POINT - scoring.spread.max(1) * crowd * POINT + group
    }

    /// Points of a node by the buckets of the pod's job.
    fn bucket_score(&self, id: PodId, node: NodeId, buckets: &Buckets) -> i64 {
        let cells = self.nodes.cells(node);
        let points = buckets.points(id, node, |place| cells[place].idle() + cells[place].releasing);
        self.policy.task_topology.0 * crate::score::FULL / buckets.full() * points
    }

    /// Updates the class's index.
    fn catch_up(&mut self, id: ClassId) {
        self.index_uses += 1;
        let mut index = match self.indexes[id as usize].take() {
            Some(index) => index,
            None => {
                self.make_room_for_index();
                Box::default()
            }
        };
        index.used = self.index_uses;
        let class = &self.classes()[id as usize];
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
                score: self.policy.scoring.fixed_score(class, state),
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
        let spread = self.spread_room(class);
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

/// What spreading allows, computed once per search.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpreadRoom {
    least: Vec<i64>,
}

/// A sentence made from counts of misfits.
pub(crate) fn sentence(
    dimensions: &crate::amounts::Dimensions,
    misfits: &BTreeMap<Misfit, i64>,
    nodes: i64,
) -> Arc<str> {
    if nodes == 0 {
        return "there are no nodes".into();
    }
    // Each missing resource counts, as in Kubernetes and Volcano.
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for (misfit, count) in misfits {
        let mut add = |what: String| *counts.entry(what).or_default() += count;
        match misfit {
            Misfit::Resources(places) => places.iter().for_each(|place| {
                add(format!("Insufficient {}", dimensions.name(usize::from(*place)).as_str()))
            }),
            Misfit::Vetoed(why) => add(format!("node(s) were refused by the extender ({why})")),
            other => add(format!("node(s) {}", other.as_str())),
        }
    }
    let mut parts: Vec<String> = counts.into_iter().map(|(what, count)| format!("{count} {what}")).collect();
    parts.sort();
    format!("0/{nodes} nodes are unavailable: {}.", parts.join(", ")).into()
}

//! The search for cells of a whole group, in one chain and one member cluster.
//!
//! A search changes the state, so that each pod sees what earlier pods took; the caller rolls it back. For
//! guaranteed groups, the promises of their virtual cluster count, and cells of opportunistic groups are free. For
//! opportunistic groups, unused cells count. Pods are placed largest first, each on the node with the fewest free
//! leaves that are enough (smallest promised cell first). That is exact if each size divides the next; otherwise a
//! bounded search tries other nodes. A group that finds no place so is searched for again in other [`Manner`]s.

mod costs;
mod fresh;
mod options;
mod pick;
mod preempt;
mod spare;
mod within;

pub(crate) use spare::{SearchResult, reprieve};

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

use crate::{
    decision::Ask,
    group::Groups,
    leaf::{Holder, LeafEvent, LeafState},
    request::{Asker, GroupNeed, GroupRequest, Need},
    state::{Mark, State},
    topology::{CellNo, ChainNo, ClusterNo, GroupNo, LeafNo, NodeName, NodeNo, SlotNo, Topology},
};

/// The group that is searched for; it has no number yet.
pub(crate) const NEWCOMER: GroupNo = GroupNo(u32::MAX);
/// Extra steps of a search, beyond placing each pod a few times.
const SPARE_STEPS: u32 = 5_000;
/// Pods of different sizes for which other nodes than the tightest are tried.
const SEARCHED_PODS: usize = 64;
/// Nodes tried for one pod by the bounded search.
const BRANCHES: usize = 4;
/// As [`BRANCHES`], in [`Order::Compact`]: nodes that differ, and a promise of each level.
const DISTINCT_BRANCHES: usize = 8;

/// Which nodes may be used.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub heed_health: bool,
    named: Option<Named>,
}

/// The nodes that a question names for one group.
#[derive(Clone, Copy, Default)]
pub(crate) struct Names<'a> {
    pub suggested: Option<&'a BTreeSet<NodeName>>,
    pub excluded: Option<&'a BTreeSet<NodeName>>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(request: &GroupRequest, ask: &Ask<'a>) -> Self {
        let suggested = ask.suggested.filter(|_| !request.ignore_k8s_suggested_nodes);
        Self { suggested, excluded: ask.excluded.filter(|nodes| !nodes.is_empty()) }
    }

    fn allow(&self, name: &NodeName) -> bool {
        self.suggested.is_none_or(|nodes| nodes.contains(name))
            && self.excluded.is_none_or(|nodes| !nodes.contains(name))
    }
}

/// Of the named nodes, those that may be used.
#[derive(Clone, Debug)]
struct Named {
    nodes: Vec<bool>,
    /// Nodes that may not be used, before each position of `Topology::node_cells`.
    unusable_before: Vec<u32>,
}

impl Filter {
    pub(crate) fn new(topology: &Topology, state: &State, heed_health: bool, names: Names<'_>) -> Self {
        if names.suggested.is_none() && names.excluded.is_none() {
            return Self { heed_health, named: None };
        }
        let nodes: Vec<bool> = topology.nodes.iter().map(|node| names.allow(&node.name)).collect();
        let mut unusable_before = vec![0];
        for cell in &topology.node_cells {
            let node = topology.node_of(*cell);
            let usable = nodes[node.at()] && (!heed_health || state.good(node));
            unusable_before.push(unusable_before[unusable_before.len() - 1] + u32::from(!usable));
        }
        Self { heed_health, named: Some(Named { nodes, unusable_before }) }
    }

    pub(crate) fn usable(&self, state: &State, node: NodeNo) -> bool {
        (!self.heed_health || state.good(node))
            && self.named.as_ref().is_none_or(|named| named.nodes[node.at()])
    }

    /// Nodes of a cell that may not be used.
    pub(crate) fn unusable(&self, topology: &Topology, state: &State, cell: CellNo) -> u32 {
        match &self.named {
            None if self.heed_health => state.bad_nodes(topology, cell),
            None => 0,
            Some(named) => {
                let cell = topology.cell(cell);
                let (first, after) = (cell.first_node as usize, (cell.first_node + cell.nodes) as usize);
                named.unusable_before[after] - named.unusable_before[first]
            }
        }
    }

    pub(crate) fn names_nodes(&self) -> bool {
        self.named.is_some()
    }
}

/// Where pods may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// All promises of the VC that are not pinned; all cells for opportunistic groups.
    Whole,
    /// Within one cell; for guaranteed groups it is in a bound promise.
    Within(CellNo),
}

/// Whether groups of a lower priority in the same VC may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Free,
    Preempt,
}

/// How a guaranteed group uses the promises of its virtual cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub borrowers: Borrowers,
    pub order: Order,
}

/// What opportunistic groups count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Borrowers {
    /// Cells without them come first, even if more is split for that.
    Spared,
    /// As if they were not there, and nothing is split that need not be. So whatever a group would find if its virtual
    /// cluster were alone it finds, as far as its promises can be bound.
    Ignored,
}

/// Which promises come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The smallest that are enough.
    Smallest,
    /// Those in use, then the largest: they hold most for what they take of a cluster. Of nodes with as many free leaves
    /// the bounded search tries one.
    Compact,
}

impl Manner {
    /// In the order in which they are tried.
    pub(crate) const ALL: [Self; 4] = [
        Self { borrowers: Borrowers::Spared, order: Order::Smallest },
        Self { borrowers: Borrowers::Spared, order: Order::Compact },
        Self { borrowers: Borrowers::Ignored, order: Order::Smallest },
        Self { borrowers: Borrowers::Ignored, order: Order::Compact },
    ];
    pub(crate) const FIRST: Self = Self::ALL[0];
}

/// A pass in a manner.
pub(crate) type Trial = (Pass, Manner);

/// The leaves of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub pod: u32,
    pub leaves: Vec<LeafNo>,
    pub slot: Option<SlotNo>,
    /// What the leaves were before.
    pub was: Vec<LeafState>,
}

/// A way to place one pod.
#[derive(Clone, Debug)]
struct Choice {
    slot: Option<SlotNo>,
    /// For this choice the promise is bound to this cell.
    bind: Option<CellNo>,
    leaves: Vec<LeafNo>,
}

pub(crate) struct Search<'a> {
    pub topology: &'a Topology,
    pub state: &'a mut State,
    pub groups: &'a Groups,
    pub filter: &'a Filter,
    pub asker: Asker,
    pub chain: ChainNo,
    pub cluster: ClusterNo,
    pub pass: Pass,
    pub manner: Manner,
    pub now_ms: i64,
    /// Only these promises may be used.
    pub only: Option<BTreeSet<SlotNo>>,
    /// Of guaranteed groups only these may be preempted.
    pub victims: Option<BTreeSet<GroupNo>>,
    pub picks: Vec<Pick>,
    /// The most pods placed at once, and the first that did not fit then.
    pub reached: (usize, Option<Need>),
    steps: u32,
    pub exhausted: bool,
    /// Steps and views looked at, of all runs together.
    pub visits: Cell<u32>,
    costs: RefCell<costs::Costs>,
}

impl<'a> Search<'a> {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        topology: &'a Topology,
        state: &'a mut State,
        groups: &'a Groups,
        filter: &'a Filter,
        asker: Asker,
        (chain, cluster): (ChainNo, ClusterNo),
        (pass, manner): Trial,
        now_ms: i64,
    ) -> Self {
        Self {
            topology,
            state,
            groups,
            filter,
            asker,
            chain,
            cluster,
            pass,
            manner,
            now_ms,
            only: None,
            victims: None,
            picks: Vec::new(),
            reached: (0, None),
            steps: 0,
            exhausted: false,
            visits: Cell::new(0),
            costs: RefCell::default(),
        }
    }

    /// Places the group; its changes stay until the caller rolls them back.
    pub(crate) fn run(&mut self, need: &GroupNeed) -> bool {
        let pods = u32::try_from(count_pods(need)).unwrap_or(u32::MAX);
        self.steps = pods.saturating_mul(4).saturating_add(SPARE_STEPS);
        self.exhausted = false;
        self.costs.borrow_mut().clear();
        let region = match self.asker.pin.and_then(|pin| self.state.slot_cell(pin)) {
            Some(cell) => Region::Within(cell),
            None => Region::Whole,
        };
        self.place_group(region, need)
    }

    pub(crate) fn guaranteed(&self) -> bool {
        self.asker.priority >= 0
    }

    fn spares(&self) -> bool {
        self.manner.borrowers == Borrowers::Spared
    }

    /// Opportunistic leaves in a cell that a guaranteed group avoids.
    fn borrowed(&self, cell: CellNo) -> u32 {
        if self.spares() { self.state.counts(cell).opportunistic } else { 0 }
    }

    fn place_group(&mut self, region: Region, need: &GroupNeed) -> bool {
        match need.within {
            Some(level) => self.place_within(region, level, need),
            None => self.place_in(region, need),
        }
    }

    fn place_in(&mut self, region: Region, need: &GroupNeed) -> bool {
        if !self.place_pods(region, &need.pods) {
            return false;
        }
        need.children.iter().all(|child| self.place_group(region, child))
    }

    fn place_pods(&mut self, region: Region, pods: &[Need]) -> bool {
        let mark = self.mark();
        if self.place_tightest(region, pods) {
            return true;
        }
        let mixed = pods.windows(2).any(|pair| pair[0].leaves % pair[1].leaves != 0);
        if !mixed || pods.len() > SEARCHED_PODS {
            return false;
        }
        self.roll_back(mark);
        self.place_searching(region, pods)
    }

    fn place_tightest(&mut self, region: Region, pods: &[Need]) -> bool {
        for pod in pods {
            let choice = if self.step() { self.options(region, pod, 1).pop() } else { None };
            let Some(choice) = choice else {
                if self.picks.len() >= self.reached.0 {
                    self.reached = (self.picks.len(), Some(*pod));
                }
                return false;
            };
            self.take(pod, choice);
        }
        true
    }

    /// Depth first over the few tightest nodes of each pod.
    fn place_searching(&mut self, region: Region, pods: &[Need]) -> bool {
        let Some((pod, rest)) = pods.split_first() else { return true };
        if !self.step() {
            return false;
        }
        let limit = if self.manner.order == Order::Compact { DISTINCT_BRANCHES } else { BRANCHES };
        for choice in self.options(region, pod, limit) {
            let mark = self.mark();
            self.take(pod, choice);
            if self.place_searching(region, rest) {
                return true;
            }
            self.roll_back(mark);
        }
        false
    }

    fn step(&mut self) -> bool {
        self.exhausted |= self.steps == 0;
        self.steps = self.steps.saturating_sub(1);
        self.visits.set(self.visits.get().saturating_add(1));
        !self.exhausted
    }

    fn take(&mut self, pod: &Need, choice: Choice) {
        if let (Some(slot), Some(cell)) = (choice.slot, choice.bind) {
            self.state.bind(self.topology, slot, cell);
        }
        let holder = Holder { group: NEWCOMER, priority: self.asker.priority };
        let is_bound_anew = choice.bind.is_some();
        let was = choice.leaves.iter().map(|leaf| self.state.leaf(*leaf)).collect();
        let changes: Vec<_> = choice.leaves.iter().map(|leaf| (*leaf, LeafState::Used(holder))).collect();
        self.state.set_leaves(self.topology, &changes);
        let pick = Pick { pod: pod.pod, leaves: choice.leaves, slot: choice.slot, was };
        self.note_pick(&pick, is_bound_anew);
        self.picks.push(pick);
    }

    /// Makes a group opportunistic in place and releases its promises.
    pub(crate) fn downgrade(&mut self, group: GroupNo) {
        let Some(group_record) = self.groups.get(group) else { return };
        let holder = Holder { group, priority: -1 };
        for pod in &group_record.pods {
            let changes: Vec<_> = pod
                .leaves
                .iter()
                .filter_map(|leaf| {
                    Some((*leaf, self.state.leaf(*leaf).apply(LeafEvent::Reprice(holder)).ok()?))
                })
                .collect();
            self.state.set_leaves(self.topology, &changes);
        }
        for slot in group_record.slots() {
            self.state.unbind_if_idle(self.topology, slot);
        }
    }

    pub(crate) fn mark(&mut self) -> (Mark, usize) {
        (self.state.mark(), self.picks.len())
    }

    pub(crate) fn roll_back(&mut self, mark: (Mark, usize)) {
        self.state.roll_back(self.topology, mark.0);
        self.picks.truncate(mark.1);
        self.costs.borrow_mut().clear();
    }

    /// Groups on the leaves picked since a position, as they were before.
    pub(crate) fn displaced(&self, from: usize) -> BTreeSet<GroupNo> {
        self.picks[from..]
            .iter()
            .flat_map(|pick| &pick.was)
            .flat_map(|was| was.holders())
            .map(|holder| holder.group)
            .filter(|group| *group != NEWCOMER)
            .collect()
    }
}

pub(crate) fn count_pods(need: &GroupNeed) -> usize {
    need.pods.len() + need.children.iter().map(count_pods).sum::<usize>()
}

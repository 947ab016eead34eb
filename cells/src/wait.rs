//! Why a group waits. The search is repeated with excluded nodes, then without suggestions, then without health; otherwise
//! the level that has too few free cells is the reason.

use std::collections::BTreeSet;

use crate::{
    admit::{capacity, no_chain},
    cells::Cells,
    decision::Ask,
    reason::{Scope, WaitCause, WaitReason},
    request::{Asker, Checked, GroupNeed, GroupRequest, Need},
    schedule::{Target, targets, trials},
    search::{Filter, Manner, Names, Pass, Search, count_pods},
    topology::{ChainNo, Level, NodeName, NodeNo},
};

/// How far a search without health and suggestions came.
struct Reach {
    pods: usize,
    stuck: Option<Need>,
    exhausted: bool,
}

impl Cells {
    pub(crate) fn diagnose(
        &mut self,
        request: &GroupRequest,
        checked: &Checked,
        ask: &Ask<'_>,
        targets: &[Target],
    ) -> WaitReason {
        let asker = checked.asker;
        let scope = scope(request, asker);
        let nodes_matter = (0..self.topology.nodes.len()).any(|node| !self.state.good(NodeNo::of(node)));
        let names = Names::of(request, ask);
        if let Some(excluded) = names.excluded {
            let lax = Names { excluded: None, ..names };
            let without = Filter::new(&self.topology, &self.state, true, lax);
            let is_excluded = |cells: &Cells, node: NodeNo| excluded.contains(cells.name_of(node));
            if let Some((node, level)) = self.node_with(asker, targets, &without, ask, is_excluded) {
                return WaitReason { scope, level, cause: WaitCause::Excluded { node } };
            }
        }
        if let Some(suggested) = names.suggested {
            let without = Filter::new(&self.topology, &self.state, true, Names::default());
            let is_not = |cells: &Cells, node: NodeNo| !suggested.contains(cells.name_of(node));
            if let Some((node, level)) = self.node_with(asker, targets, &without, ask, is_not) {
                return WaitReason { scope, level, cause: WaitCause::NotSuggested { node } };
            }
        }
        if nodes_matter {
            let without = Filter::new(&self.topology, &self.state, false, Names::default());
            let bad = |cells: &Cells, node: NodeNo| !cells.state.good(node);
            if let Some((node, level)) = self.node_with(asker, targets, &without, ask, bad) {
                let absent = self.absent.contains(&node);
                return WaitReason { scope, level, cause: WaitCause::BadNode { node, absent } };
            }
        }
        self.shortage(request, checked, ask, targets, scope)
    }

    fn name_of(&self, node: NodeNo) -> &NodeName {
        &self.topology.nodes[node.at()].name
    }

    /// The first node of a kind in the placement that a laxer filter allows, and its level's type.
    fn node_with(
        &mut self,
        asker: Asker,
        targets: &[Target],
        filter: &Filter,
        ask: &Ask<'_>,
        wanted: impl Fn(&Cells, NodeNo) -> bool,
    ) -> Option<(NodeName, String)> {
        for trial in trials(asker) {
            for target in targets {
                let Some(found) = self.attempt(asker, target, filter, trial, ask.now_ms) else { continue };
                let nodes = found
                    .picks
                    .iter()
                    .flat_map(|pick| &pick.leaves)
                    .map(|leaf| self.topology.leaf(*leaf).node);
                let node = nodes.into_iter().find(|node| wanted(self, *node));
                let chain = self.topology.chain(target.chain);
                let level = chain.level(chain.node_level).name.clone();
                if let Some(node) = node {
                    return Some((self.topology.nodes[node.at()].name.clone(), level));
                }
            }
        }
        None
    }

    fn shortage(
        &mut self,
        request: &GroupRequest,
        checked: &Checked,
        ask: &Ask<'_>,
        targets: &[Target],
        scope: Scope,
    ) -> WaitReason {
        let asker = checked.asker;
        let most = self.furthest(asker);
        // The chain that has most free, of those that could ever hold the group.
        let best = targets.iter().max_by_key(|target| {
            let could = capacity(&self.topology, checked, target).0 >= target.need.leaves;
            (could, self.free_leaves(asker, target, most))
        });
        let Some(target) = best else {
            let leaf_type = match request.leaf_cell_type.as_str() {
                "" => "any".to_string(),
                one => one.to_string(),
            };
            let cause = WaitCause::NoChain { why: self.why_no_target(request, checked, ask) };
            return WaitReason { scope, level: leaf_type, cause };
        };
        let free = self.free_leaves(asker, target, most);
        let chain = self.topology.chain(target.chain).clone();
        let asked = target.need.leaves;
        if free < asked {
            let cause = WaitCause::TooFewLeaves { asked, free };
            return WaitReason { scope, level: chain.leaf_type().to_string(), cause };
        }
        let reach = self.reach(asker, target, &target.need, ask);
        if reach.exhausted {
            let steps = u32::try_from(count_pods(&target.need)).unwrap_or(u32::MAX);
            return WaitReason { scope, level: String::new(), cause: WaitCause::SearchLimit { steps } };
        }
        if let Some(level) = target.need.within {
            let largest_free = self.largest_free(asker, target, level);
            if largest_free < asked {
                let cause = WaitCause::NoCellForGroup { asked, largest_free };
                return WaitReason { scope, level: chain.level(level).name.clone(), cause };
            }
        }
        let leaves_each = reach.stuck.map_or(1, |need| need.leaves);
        let fits = |level: &&crate::topology::LevelType| level.leaves >= leaves_each;
        let level = chain.levels.iter().find(fits).map(|level| level.name.clone()).unwrap_or_default();
        let pods = u32::try_from(count_pods(&target.need)).unwrap_or(u32::MAX);
        let fitting = u32::try_from(reach.pods).unwrap_or(u32::MAX);
        WaitReason { scope, level, cause: WaitCause::NoCellForPods { pods, fitting, leaves_each } }
    }

    fn why_no_target(&self, request: &GroupRequest, checked: &Checked, ask: &Ask<'_>) -> String {
        let elsewhere = targets(&self.topology, request, checked, None);
        if elsewhere.is_empty() {
            return no_chain(&self.topology, request, checked);
        }
        let has: BTreeSet<&str> =
            elsewhere.iter().map(|target| self.topology.clusters[target.cluster.at()].as_str()).collect();
        let has: Vec<&str> = has.into_iter().collect();
        let may = ask.clusters.map(|names| names.join(", ")).filter(|names| !names.is_empty());
        format!(
            "its cells are in {}; it may run in {}",
            has.join(", "),
            may.as_deref().unwrap_or("no cluster now")
        )
    }

    fn reach(&mut self, asker: Asker, target: &Target, need: &GroupNeed, ask: &Ask<'_>) -> Reach {
        let filter = Filter::new(&self.topology, &self.state, false, Names::default());
        let pass = self.furthest(asker);
        let place = (target.chain, target.cluster);
        let mut search = Search::new(
            &self.topology,
            &mut self.state,
            &self.groups,
            &filter,
            asker,
            place,
            (pass, Manner::FIRST),
            ask.now_ms,
        );
        let mark = search.mark();
        search.run(need);
        let (pods, stuck) = search.reached;
        let exhausted = search.exhausted;
        search.roll_back(mark);
        self.state.forget_journal();
        Reach { pods, stuck, exhausted }
    }

    /// The pass that finds most.
    fn furthest(&self, asker: Asker) -> Pass {
        let preempts = asker.priority >= 0 && self.state.has_lower(asker.vc, asker.priority);
        if preempts { Pass::Preempt } else { Pass::Free }
    }

    /// Leaves of a target that the group could get in a pass.
    pub(crate) fn free_leaves(&self, asker: Asker, target: &Target, pass: Pass) -> u64 {
        let topology = &self.topology;
        if asker.priority < 0 {
            let chain = topology.chain(target.chain);
            let tops = chain.level(chain.top()).cells.iter();
            let own = tops.filter(|cell| topology.cell(**cell).cluster == target.cluster);
            return own.map(|cell| u64::from(self.state.free(topology, *cell))).sum();
        }
        let slots = topology.vc(asker.vc).slots.iter().filter(|slot| match asker.pin {
            Some(pin) => **slot == pin,
            None => topology.slot(**slot).chain == target.chain && topology.slot(**slot).pinned.is_none(),
        });
        slots
            .map(|slot| match self.state.slot_cell(*slot) {
                None => u64::from(topology.chain(target.chain).level(topology.slot(*slot).level).leaves),
                Some(cell) if topology.cell(cell).cluster != target.cluster => 0,
                Some(cell) if pass == Pass::Free => u64::from(self.state.virtually_free(topology, cell)),
                Some(cell) => {
                    topology.leaves_of(cell).filter(|leaf| self.takeable(asker.priority, *leaf)).count()
                        as u64
                }
            })
            .sum()
    }

    fn takeable(&self, priority: i16, leaf: crate::topology::LeafNo) -> bool {
        self.state.leaf(leaf).holder().is_none_or(|holder| holder.priority < priority)
    }

    fn largest_free(&self, asker: Asker, target: &Target, level: Level) -> u64 {
        let topology = &self.topology;
        let cells = topology.chain(target.chain).level(level).cells.iter();
        let own = cells.filter(|cell| topology.cell(**cell).cluster == target.cluster);
        if asker.priority < 0 {
            return own.map(|cell| u64::from(self.state.free(topology, *cell))).max().unwrap_or(0);
        }
        let bound = own
            .filter(|cell| {
                self.state.slot_over(topology, **cell).is_some_and(|slot| match asker.pin {
                    Some(pin) => slot == pin,
                    None => topology.slot(slot).vc == asker.vc && topology.slot(slot).pinned.is_none(),
                })
            })
            .map(|cell| {
                topology.leaves_of(*cell).filter(|leaf| self.takeable(asker.priority, *leaf)).count() as u64
            });
        let unbound = self.unbound_sizes(asker, target.chain, level);
        bound.chain(unbound).max().unwrap_or(0)
    }

    fn unbound_sizes(&self, asker: Asker, chain: ChainNo, level: Level) -> Vec<u64> {
        if asker.pin.is_some() {
            return Vec::new();
        }
        let unbound = self.state.vc(asker.vc).unbound.range((chain, 0)..=(chain, Level::MAX));
        unbound
            .filter(|(_, slots)| !slots.is_empty())
            .map(|((_, promised), _)| {
                u64::from(self.topology.chain(chain).level((*promised).min(level)).leaves)
            })
            .collect()
    }
}

fn scope(request: &GroupRequest, asker: Asker) -> Scope {
    match asker.pin {
        Some(_) => Scope::PinnedCell { vc: request.vc.clone(), pin: request.pinned_cell_id.clone() },
        None if asker.priority >= 0 => Scope::VirtualCluster(request.vc.clone()),
        None => Scope::PhysicalCluster,
    }
}

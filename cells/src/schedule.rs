//! One decision: where a group goes, which groups it preempts, or why it waits.

use std::collections::BTreeSet;

use crate::{
    cells::Cells,
    decision::{Ask, CommitPlan, Decision, NewGroup, Phase, Proposal, Step},
    group::{Group, GroupState, Groups},
    leaf::LeafState,
    reason::{Refusal, WaitCause, WaitReason},
    request::{self, Asker, Checked, GroupNeed, GroupRequest},
    search::{Filter, Manner, NEWCOMER, Names, Pass, Search, SearchResult, Trial, reprieve},
    state::State,
    topology::{ChainNo, ClusterNo, GroupNo, SlotNo, Topology},
};

/// A chain and cluster to search, with the group's needs there.
pub(crate) struct Target {
    pub chain: ChainNo,
    pub cluster: ClusterNo,
    pub need: GroupNeed,
}

impl Cells {
    /// Decides about a group. It has one side effect: in phase Preempting, a group gives up reservations on nodes
    /// that are bad or no longer suggested. A group that has its cells gets the same answer again.
    pub fn schedule(&mut self, request: &GroupRequest, ask: &Ask<'_>) -> Decision {
        let checked = match request::check(&self.topology, request) {
            Ok(checked) => checked,
            Err(refusal) => return Decision::Refuse(refusal),
        };
        if let Some((number, group)) = self.groups.named(request.name()) {
            if let Some(field) = changed(&group.request, request) {
                let group = request.name().to_string();
                return Decision::Refuse(Refusal::ChangedGroup { group, field });
            }
            match group.state {
                GroupState::Allocated => return Decision::Place(self.again(number, Step::Nothing, ask)),
                GroupState::BeingPreempted => return Decision::Wait(self.being_preempted(number)),
                GroupState::Preempting => {
                    if ask.phase == Phase::Filtering || self.reservation_usable(number, ask) {
                        return self.reserved(number, ask);
                    }
                    self.cancel(number);
                }
            }
        }
        self.place(request, &checked, ask)
    }

    fn place(&mut self, request: &GroupRequest, checked: &Checked, ask: &Ask<'_>) -> Decision {
        let filter = Filter::new(&self.topology, &self.state, true, Names::of(request, ask));
        let targets = targets(&self.topology, request, checked, ask.clusters);
        let found = trials(checked.asker).into_iter().find_map(|trial| {
            targets.iter().find_map(|target| self.attempt(checked.asker, target, &filter, trial, ask.now_ms))
        });
        let Some(found) = found else {
            return Decision::Wait(self.diagnose(request, checked, ask, &targets));
        };
        let proposal = self.propose(request, checked, found, ask);
        if proposal.victims.is_empty() { Decision::Place(proposal) } else { Decision::Preempt(proposal) }
    }

    /// One search, if it may find what those before it did not; its changes are undone.
    pub(crate) fn attempt(
        &mut self,
        asker: Asker,
        target: &Target,
        filter: &Filter,
        trial: Trial,
        now_ms: i64,
    ) -> Option<SearchResult> {
        let (pass, manner) = trial;
        if pass == Pass::Preempt && !self.state.has_lower(asker.vc, asker.priority) {
            return None;
        }
        if manner != Manner::FIRST && self.free_leaves(asker, target, pass) < target.need.leaves {
            return None;
        }
        let place = (target.chain, target.cluster);
        let mut search =
            Search::new(&self.topology, &mut self.state, &self.groups, filter, asker, place, trial, now_ms);
        let mark = search.mark();
        let found = search.run(&target.need).then(|| SearchResult::new(&search, Vec::new()));
        search.roll_back(mark);
        let found = match found {
            Some(found) if pass == Pass::Preempt => {
                let found = reprieve(&mut search, &target.need, found);
                Some(lazily(&mut search, &target.need, found))
            }
            found => found,
        };
        self.state.forget_journal();
        found
    }

    fn propose(
        &self,
        request: &GroupRequest,
        checked: &Checked,
        found: SearchResult,
        ask: &Ask<'_>,
    ) -> Proposal {
        let mut pods = vec![(Vec::new(), None); checked.pods as usize];
        let (mut victims, mut cancels) = (BTreeSet::new(), BTreeSet::new());
        for pick in found.picks {
            for leaf in &pick.leaves {
                let state = self.state.leaf(*leaf);
                if !crate::faults::leaf_given_twice() {
                    victims.extend(state.occupant().map(|holder| holder.group));
                }
                cancels.extend(state.reserver().map(|holder| holder.group));
            }
            pods[pick.pod as usize] = (pick.leaves, pick.slot);
        }
        let new = NewGroup {
            chain: found.chain,
            priority: checked.asker.priority,
            pods,
            binds: found.binds,
            lazy: found.lazy,
            cancels: cancels.into_iter().collect(),
            victims: victims.into_iter().collect(),
        };
        let leaves: Vec<_> = new.pods.iter().map(|(leaves, slot)| (leaves.as_slice(), *slot)).collect();
        Proposal {
            placement: self.placement_of(new.chain, &leaves),
            victims: new.victims.iter().filter_map(|group| self.victim(*group, ask.now_ms)).collect(),
            lazily_preempted: new.lazy.iter().map(|group| self.groups.name(*group)).collect(),
            cancelled: new.cancels.iter().map(|group| self.groups.name(*group)).collect(),
            plan: CommitPlan {
                generation: self.generation,
                request: request.clone(),
                now_ms: ask.now_ms,
                step: Step::New(new),
            },
        }
    }

    /// The proposal for a group that already has or has reserved its cells.
    fn again(&self, number: GroupNo, step: Step, ask: &Ask<'_>) -> Proposal {
        let group = self.groups.get(number);
        Proposal {
            placement: group.map(|group| self.group_placement(group)).unwrap_or_default(),
            victims: Vec::new(),
            lazily_preempted: Vec::new(),
            cancelled: Vec::new(),
            plan: CommitPlan {
                generation: self.generation,
                request: group
                    .map(|group| group.request.clone())
                    .unwrap_or_else(|| GroupRequest::new("", "", 0, 1, 1)),
                now_ms: ask.now_ms,
                step,
            },
        }
    }

    fn reserved(&self, number: GroupNo, ask: &Ask<'_>) -> Decision {
        let victims = self.victims_of(number);
        if victims.is_empty() {
            return Decision::Place(self.again(number, Step::TakeReserved(number), ask));
        }
        let mut proposal = self.again(number, Step::Nothing, ask);
        proposal.victims = victims.iter().filter_map(|victim| self.victim(*victim, ask.now_ms)).collect();
        Decision::Preempt(proposal)
    }

    fn reservation_usable(&self, number: GroupNo, ask: &Ask<'_>) -> bool {
        let Some(group) = self.groups.get(number) else { return false };
        let filter = Filter::new(&self.topology, &self.state, true, Names::of(&group.request, ask));
        group.leaves().all(|leaf| filter.usable(&self.state, self.topology.leaf(leaf).node))
    }

    fn being_preempted(&self, number: GroupNo) -> WaitReason {
        let group = self.groups.get(number);
        let by = group
            .into_iter()
            .flat_map(Group::leaves)
            .find_map(|leaf| match self.state.leaf(leaf) {
                LeafState::Reserving { victim, by } if victim.group == number => Some(by.group),
                _ => None,
            })
            .map(|by| self.groups.name(by))
            .unwrap_or_default();
        let vc = group.map(|group| group.request.vc.clone()).unwrap_or_default();
        let scope = crate::reason::Scope::VirtualCluster(vc);
        WaitReason { scope, level: String::new(), cause: WaitCause::BeingPreempted { by } }
    }

    /// Groups that still run on cells that a group has reserved.
    pub(crate) fn victims_of(&self, number: GroupNo) -> BTreeSet<GroupNo> {
        let group = self.groups.get(number);
        let leaves = group.into_iter().flat_map(Group::leaves);
        leaves
            .filter_map(|leaf| match self.state.leaf(leaf) {
                LeafState::Reserving { victim, by } if by.group == number => Some(victim.group),
                _ => None,
            })
            .collect()
    }
}

/// The searches for a group: a guaranteed one first looks for a placement without preemption in its VC, and spares
/// opportunistic groups if it can.
pub(crate) fn trials(asker: Asker) -> Vec<Trial> {
    if asker.priority < 0 {
        return vec![(Pass::Free, Manner::FIRST)];
    }
    let passes = [Pass::Free, Pass::Preempt].into_iter();
    passes.flat_map(|pass| Manner::ALL.map(|manner| (pass, manner))).collect()
}

/// Lazy preemption: displaced groups that allow it become opportunistic in place, and the same promises are bound
/// to other cells if there are any; other promises are, if so fewer groups are displaced.
fn lazily(search: &mut Search<'_>, need: &GroupNeed, found: SearchResult) -> SearchResult {
    let displaced: BTreeSet<GroupNo> = found
        .picks
        .iter()
        .flat_map(|pick| &pick.was)
        .filter_map(|was| was.occupant())
        .filter(|holder| holder.guaranteed() && holder.group != NEWCOMER)
        .map(|holder| holder.group)
        .collect();
    let allowed = |group: &GroupNo| {
        search.groups.get(*group).is_some_and(|group| {
            group.request.lazy_preemption_enable
                && group.state == GroupState::Allocated
                && group.priority >= 0
        })
    };
    let lazy: Vec<GroupNo> = displaced.into_iter().filter(allowed).collect();
    if lazy.is_empty() {
        return found;
    }
    let mark = search.mark();
    for group in &lazy {
        search.downgrade(*group);
    }
    let picked = found.picks.iter().filter_map(|pick| pick.slot).collect();
    let mut better = among(search, need, &lazy, Some(picked));
    // What they give back may be what another promise needs, for which fewer groups have to go.
    let going = better.as_ref().unwrap_or(&found).guaranteed();
    let going = going.iter().filter(|group| !lazy.contains(group)).count();
    if going > 0
        && let Some(other) = among(search, need, &lazy, None).filter(|other| other.guaranteed().len() < going)
    {
        better = Some(other);
    }
    search.roll_back(mark);
    better.unwrap_or(found)
}

/// A search after the downgrade of these groups, among some promises if they are named.
fn among(
    search: &mut Search<'_>,
    need: &GroupNeed,
    lazy: &[GroupNo],
    only: Option<BTreeSet<SlotNo>>,
) -> Option<SearchResult> {
    search.only = only;
    [Pass::Free, Pass::Preempt].into_iter().find_map(|pass| {
        search.pass = pass;
        let mark = search.mark();
        let found = search.run(need).then(|| SearchResult::new(search, lazy.to_vec()));
        search.roll_back(mark);
        found
    })
}

/// Chains and clusters for a group, in the order in which they are tried.
pub(crate) fn targets(
    topology: &Topology,
    request: &GroupRequest,
    checked: &Checked,
    clusters: Option<&[String]>,
) -> Vec<Target> {
    let asker = checked.asker;
    if let Some(pin) = asker.pin.and_then(|pin| topology.slot(pin).pinned) {
        let (chain, cluster) = (topology.cell(pin).chain, topology.cell(pin).cluster);
        let named = |names: &[String]| names.contains(&topology.clusters[cluster.at()]);
        if clusters.is_some_and(|clusters| !named(clusters)) {
            return Vec::new();
        }
        let need = request::needs(topology, chain, &checked.root);
        return need.map(|need| Target { chain, cluster, need }).into_iter().collect();
    }
    let guaranteed = asker.priority >= 0;
    let types = match request.leaf_cell_type.as_str() {
        "" if guaranteed => request::own_leaf_types(topology, asker.vc),
        "" => topology.leaf_types(),
        one => vec![one],
    };
    let mut targets = Vec::new();
    for leaf_type in types {
        for chain in topology.chains_of_type(leaf_type) {
            if guaranteed && topology.vc(asker.vc).levels(chain).next().is_none() {
                continue;
            }
            let Some(need) = request::needs(topology, chain, &checked.root) else { continue };
            for cluster in ordered_clusters(topology, chain, clusters) {
                targets.push(Target { chain, cluster, need: need.clone() });
            }
        }
    }
    targets
}

fn ordered_clusters(topology: &Topology, chain: ChainNo, wanted: Option<&[String]>) -> Vec<ClusterNo> {
    let own = &topology.chain(chain).clusters;
    match wanted {
        None => own.clone(),
        Some(names) => {
            let find = |name: &String| own.iter().find(|cluster| topology.clusters[cluster.at()] == *name);
            names.iter().filter_map(find).copied().collect()
        }
    }
}

/// A field of the request that has changed since the allocation.
fn changed(old: &GroupRequest, new: &GroupRequest) -> Option<&'static str> {
    if old.vc != new.vc {
        return Some("virtualCluster");
    }
    if old.affinity_group.root != new.affinity_group.root {
        return Some("affinityGroup");
    }
    (old.priority != new.priority).then_some("priority")
}

/// A search on an empty state.
pub(crate) fn fits_empty(topology: &Topology, state: &mut State, asker: Asker, targets: &[Target]) -> bool {
    let groups = Groups::default();
    let filter = Filter::new(topology, state, true, Names::default());
    let free = trials(asker).into_iter().filter(|(pass, _)| *pass == Pass::Free);
    let mut all = free.flat_map(|trial| targets.iter().map(move |target| (trial, target)));
    all.any(|(trial, target)| {
        let place = (target.chain, target.cluster);
        let mut search = Search::new(topology, state, &groups, &filter, asker, place, trial, 0);
        let mark = search.mark();
        let fits = search.run(&target.need);
        search.roll_back(mark);
        state.forget_journal();
        fits
    })
}

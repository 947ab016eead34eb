//! What must hold of decisions, judged without the search.

use std::collections::{BTreeMap, BTreeSet};

use super::stock::{self, Stock};
use crate::{
    Ask, BoundGroup, Cells, Decision, Difference, GroupRequest, GroupState, GroupStatus, PromiseLost,
    Proposal,
    decision::{NewGroup, Step},
    leaf::LeafState,
    topology::{ChainNo, Level, NodeName, SlotNo},
};

/// (1) For each chain and level, cells that can be obtained are at least the unbound promises.
pub(super) fn obtainable(cells: &Cells) -> Result<(), String> {
    for (position, chain) in cells.topology.chains.iter().enumerate() {
        let number = ChainNo::of(position);
        let obtainable = cells.state.obtainable(&cells.topology, number);
        for (level, (all, bad)) in obtainable.into_iter().enumerate() {
            let key = (number, Level::try_from(level + 1).unwrap_or(0));
            let states =
                (0..cells.topology.vcs.len()).map(|vc| cells.state.vc(crate::topology::VcNo::of(vc)));
            let promised: usize = states.filter_map(|vc| vc.unbound.get(&key)).map(BTreeSet::len).sum();
            if all < promised as u64 || bad > all {
                let name = &chain.levels[level].name;
                return Err(format!(
                    "{promised} cells of {name} promised, {all} cannot be bound more, {bad} bad"
                ));
            }
        }
    }
    Ok(())
}

pub(super) fn decision(
    before: &Cells,
    after: &Cells,
    request: &GroupRequest,
    ask: &Ask<'_>,
    decision: &Decision,
) -> Result<(), String> {
    unchanged(before, after, request, decision)?;
    match decision {
        Decision::Place(proposal) | Decision::Preempt(proposal) => {
            victims(after, request, proposal)?;
            minimal(before, request, ask, proposal)?;
            nodes_allowed(after, request, ask, proposal)
        }
        Decision::Wait(reason) => never_blocked(before, request, ask, &reason.to_string()),
        Decision::Refuse(_) => Ok(()),
    }
}

/// A question changes nothing, but a reservation that cannot be used is given up.
fn unchanged(
    before: &Cells,
    after: &Cells,
    request: &GroupRequest,
    decision: &Decision,
) -> Result<(), String> {
    let own = |cells: &Cells| cells.group(request.name()).map(|group| group.state);
    let given_up = own(before) == Some(GroupState::Preempting) && own(after).is_none();
    if !given_up && (before.groups() != after.groups() || before.state.differs_from(&after.state).is_some()) {
        return Err(format!("asking about {} changed the state: {decision:?}", request.name()));
    }
    if !given_up && before.physical_cells() != after.physical_cells() {
        return Err(format!("asking about {} changed cells", request.name()));
    }
    Ok(())
}

/// (7) Guaranteed groups evict nobody of another VC but opportunistic ones; equal priority evicts nobody.
/// Whoever is evicted had a cell that the group gets.
fn victims(cells: &Cells, request: &GroupRequest, proposal: &Proposal) -> Result<(), String> {
    let wanted: BTreeSet<(String, i32)> = devices(&proposal.placement);
    for victim in &proposal.victims {
        let Some(group) = cells.group(&victim.group) else {
            return Err(format!("{} is not there", victim.group));
        };
        if request.priority < 0 || victim.priority >= request.priority {
            return Err(format!("{} at {} evicts {}", request.name(), request.priority, victim.group));
        }
        if victim.priority >= 0 && victim.vc != request.vc {
            return Err(format!("{} evicts {} of another VC", request.name(), victim.group));
        }
        if devices(&group.placement).is_disjoint(&wanted) {
            return Err(format!("{} evicts {} for nothing", request.name(), victim.group));
        }
    }
    for lazy in &proposal.lazily_preempted {
        let Some(group) = cells.group(lazy) else { return Err(format!("{lazy} is not there")) };
        if group.vc != request.vc
            || group.priority >= request.priority
            || group.lazy_preemption_status.is_some()
        {
            return Err(format!("{} downgrades {lazy}", request.name()));
        }
    }
    for cancelled in &proposal.cancelled {
        let Some(group) = cells.group(cancelled) else { return Err(format!("{cancelled} is not there")) };
        if group.state != GroupState::Preempting
            || group.priority >= request.priority
            || group.vc != request.vc
        {
            return Err(format!("{} cancels {cancelled}", request.name()));
        }
    }
    Ok(())
}

fn devices(placement: &crate::Placement) -> BTreeSet<(String, i32)> {
    let pods = placement.pods.iter();
    pods.flat_map(|pod| pod.leaf_cells.iter().map(|leaf| (pod.node.clone(), *leaf))).collect()
}

fn nodes_allowed(
    cells: &Cells,
    request: &GroupRequest,
    ask: &Ask<'_>,
    proposal: &Proposal,
) -> Result<(), String> {
    if cells.group(request.name()).is_some() {
        return Ok(());
    }
    for pod in &proposal.placement.pods {
        let node = NodeName::new(&proposal.placement.cluster, &pod.node);
        if !cells.is_good(&node) {
            return Err(format!("{} is to run on bad node {node}", request.name()));
        }
        let suggested = if request.ignore_k8s_suggested_nodes { None } else { ask.suggested };
        if suggested.is_some_and(|suggested| !suggested.contains(&node)) {
            return Err(format!("{} is to run on node {node}, which is not suggested", request.name()));
        }
        if ask.excluded.is_some_and(|excluded| excluded.contains(&node)) {
            return Err(format!("{} is to run on node {node}, which is excluded", request.name()));
        }
    }
    Ok(())
}

/// (2) A guaranteed group never waits because of other VCs. It would wait as well if their groups, and all that have no
/// guarantee, were not there; and the free cells of its VC do not hold it. Bad hardware is outside the guarantee. In a
/// fleet of several clusters it waits only if its promises cannot be bound in one of those that it may use, in whatever
/// order: others may have theirs there.
fn never_blocked(before: &Cells, request: &GroupRequest, ask: &Ask<'_>, reason: &str) -> Result<(), String> {
    if request.priority < 0 || !is_sound(before, request, ask) {
        return Ok(());
    }
    let name = request.name();
    let mut alone = before.clone();
    for group in before.groups() {
        if group.vc != request.vc || group.priority < 0 {
            alone.release(&group.name);
        }
    }
    let clusters = ask.clusters.unwrap_or(&before.topology.clusters);
    for cluster in clusters {
        if stock::holds(before, request, cluster) {
            return Err(format!("{name} waits, but free cells of its VC in {cluster:?} hold it: {reason}"));
        }
        let (mut alone, one) = (alone.clone(), std::slice::from_ref(cluster));
        let found = match alone.schedule(request, &Ask { clusters: Some(one), ..*ask }) {
            Decision::Place(proposal) | Decision::Preempt(proposal) => proposal,
            Decision::Wait(_) | Decision::Refuse(_) => continue,
        };
        if can_bind(before, &found, cluster) {
            let placement = &found.placement;
            return Err(format!(
                "{name} waits for others than its own VC, alone it gets {placement:?}: {reason}"
            ));
        }
    }
    Ok(())
}

/// Whether the promises that a placement uses can all be bound in the cluster. In one cluster they always can.
fn can_bind(cells: &Cells, proposal: &Proposal, cluster: &str) -> bool {
    let Step::New(NewGroup { chain, pods, .. }) = &proposal.plan.step else { return true };
    if !several_clusters(cells) {
        return true;
    }
    let stock = Stock::of(cells, *chain, cluster);
    let mut promises = stock.none();
    let slots: BTreeSet<SlotNo> = pods.iter().filter_map(|(_, slot)| *slot).collect();
    for slot in slots.into_iter().filter(|slot| cells.state.slot_cell(*slot).is_none()) {
        promises[usize::from(cells.topology.slot(slot).level) - 1] += 1;
    }
    stock.can_bind(&promises)
}

/// The request is new, and all hardware may be used.
fn is_sound(cells: &Cells, request: &GroupRequest, ask: &Ask<'_>) -> bool {
    may_use_all(request, ask)
        && cells.nodes().all(|node| cells.is_good(node))
        && cells.group(request.name()).is_none()
}

fn may_use_all(request: &GroupRequest, ask: &Ask<'_>) -> bool {
    let suggestions = ask.suggested.is_some() && !request.ignore_k8s_suggested_nodes;
    !suggestions && ask.excluded.is_none_or(BTreeSet::is_empty)
}

fn several_clusters(cells: &Cells) -> bool {
    cells.topology.clusters.len() > 1
}

/// (8) Each guaranteed group that is displaced (evicted, lazily preempted, or its reservation cancelled) has to be: with
/// all the others gone, the group still cannot be placed in that cluster without displacing a guaranteed one. To its VC
/// the cells of opportunistic groups are free, so there may be more of these than necessary. A promise that is bound to a
/// cell with a bad node stays there; if its group were gone, it could be bound to a better one.
fn minimal(before: &Cells, request: &GroupRequest, ask: &Ask<'_>, proposal: &Proposal) -> Result<(), String> {
    let all = displaced(proposal);
    if !may_use_all(request, ask)
        || before.group(request.name()).is_some()
        || all.iter().any(|name| has_bad_cell(before, name))
    {
        return Ok(());
    }
    // One that was lazily preempted before is opportunistic, whatever it asked for.
    let guaranteed = |name: &String| {
        before.group(name).is_some_and(|group| group.priority >= 0 && group.lazy_preemption_status.is_none())
    };
    let one = [proposal.placement.cluster.clone()];
    for kept in all.iter().filter(|name| guaranteed(name)) {
        let mut fewer = before.clone();
        for other in all.iter().filter(|other| *other != kept) {
            fewer.release(other);
        }
        let found = match fewer.schedule(request, &Ask { clusters: Some(&one), ..*ask }) {
            Decision::Place(found) | Decision::Preempt(found) => found,
            Decision::Wait(_) | Decision::Refuse(_) => continue,
        };
        if !displaced(&found).iter().any(guaranteed) {
            let (name, placement) = (request.name(), &found.placement);
            return Err(format!("{name} displaces {all:?}, but {kept} may stay: {placement:?}"));
        }
    }
    Ok(())
}

/// Whether a promise of the group is bound to a cell with a bad node.
fn has_bad_cell(cells: &Cells, name: &str) -> bool {
    let group = cells.groups.named(name).map(|(_, group)| group);
    let bound =
        group.into_iter().flat_map(|group| group.slots()).filter_map(|slot| cells.state.slot_cell(slot));
    bound.into_iter().any(|cell| cells.state.bad_nodes(&cells.topology, cell) > 0)
}

fn displaced(proposal: &Proposal) -> BTreeSet<String> {
    let victims = proposal.victims.iter().map(|victim| &victim.group);
    victims.chain(&proposal.lazily_preempted).chain(&proposal.cancelled).cloned().collect()
}

/// A bad node hides where it can: while every promise can get a good cell, a group that gets its own takes none of the
/// last ones. Suggestions may leave no other choice, and so may a fleet of several clusters. A group that gives up a
/// reservation on a bad node returns a bad cell first.
pub(super) fn hidden(
    before: &Cells,
    after: &Cells,
    request: &GroupRequest,
    ask: &Ask<'_>,
    proposal: &Proposal,
) -> Result<(), String> {
    let others = !proposal.lazily_preempted.is_empty() || !proposal.cancelled.is_empty();
    let returns = before.group(request.name()).is_some();
    if !may_use_all(request, ask) || others || returns || several_clusters(before) {
        return Ok(());
    }
    for position in 0..before.topology.chains.len() {
        let chain = ChainNo::of(position);
        let left = before.state.good_left(&before.topology, chain, 0);
        let then = after.state.good_left(&after.topology, chain, 0);
        if left.iter().all(|left| *left >= 0) && then.iter().any(|left| *left < 0) {
            let name = request.name();
            return Err(format!(
                "{name} takes the last good cell of a promise: left by level {left:?}, then {then:?}"
            ));
        }
    }
    Ok(())
}

/// (4) All pods of the group have all their cells.
pub(super) fn placed(cells: &Cells, request: &GroupRequest, proposal: &Proposal) -> Result<(), String> {
    let Some(group) = cells.group(request.name()) else { return Err("a placed group is not there".into()) };
    if group.state != GroupState::Allocated || group.placement != proposal.placement {
        return Err(format!("{} was placed and is {group:?}", request.name()));
    }
    complete(cells, request, &group.placement)
}

/// (4) A group that has its cells keeps them when it is asked about again: a reconfiguration may have left it fewer.
pub(super) fn unmoved(had: &GroupStatus, cells: &Cells) -> Result<(), String> {
    match cells.group(&had.name) {
        Some(has) if has == *had => Ok(()),
        has => Err(format!("{} was asked about and is {has:?}, was {had:?}", had.name)),
    }
}

pub(super) fn reserved(cells: &Cells, request: &GroupRequest, proposal: &Proposal) -> Result<(), String> {
    let Some(group) = cells.group(request.name()) else {
        return Err("a preempting group is not there".into());
    };
    let victims: BTreeSet<&String> = proposal.victims.iter().map(|victim| &victim.group).collect();
    if group.state != GroupState::Preempting || group.victims.iter().collect::<BTreeSet<_>>() != victims {
        return Err(format!("{} preempts {victims:?} and is {group:?}", request.name()));
    }
    complete(cells, request, &group.placement)
}

fn complete(cells: &Cells, request: &GroupRequest, placement: &crate::Placement) -> Result<(), String> {
    let mut sizes = Vec::new();
    let chain = cells.topology.chains.iter().find(|chain| chain.name == placement.cell_chain);
    let leaves_of = |cell_type: &str| {
        let level = chain.and_then(|chain| Some(chain.level(chain.level_of(cell_type)?)));
        level.map_or(1, |level| level.leaves as usize)
    };
    asked(&request.affinity_group.root, &leaves_of, &mut sizes);
    let placed: Vec<usize> = placement.pods.iter().map(|pod| pod.leaf_cells.len()).collect();
    // A pod that was given back before is empty; the whole group is asked for only once.
    let same = sizes.len() == placed.len() && sizes.iter().zip(&placed).all(|(a, b)| a == b || *b == 0);
    let distinct: usize = placed.iter().sum();
    if !same || devices(placement).len() != distinct {
        return Err(format!("{} asked for {sizes:?} and has {placed:?}", request.name()));
    }
    Ok(())
}

fn asked(group: &crate::PodGroup, leaves_of: &impl Fn(&str) -> usize, sizes: &mut Vec<usize>) {
    for member in &group.members {
        let each = leaves_of(&member.cell_type) * member.leaf_cell_number as usize;
        sizes.extend(std::iter::repeat_n(each, member.pod_number as usize));
    }
    for child in &group.child_groups {
        asked(child, leaves_of, sizes);
    }
}

/// (6) A replay of what is bound gives the same places.
pub(super) fn same_places(before: &[BoundGroup], after: &[BoundGroup]) -> Result<(), String> {
    let by_name = |groups: &[BoundGroup]| -> BTreeMap<String, BoundGroup> {
        groups.iter().map(|group| (group.request.name().to_string(), group.clone())).collect()
    };
    let (before, after) = (by_name(before), by_name(after));
    if before == after { Ok(()) } else { Err(format!("bound before {before:?}, after {after:?}")) }
}

/// (9) A reconfiguration keeps all that runs where it runs; who loses a promise is named.
pub(super) fn kept(before: &[BoundGroup], cells: &Cells, difference: &Difference) -> Result<(), String> {
    for group in before {
        let name = group.request.name();
        let Some(after) = cells.bound_group(name) else { return Err(format!("{name} is gone")) };
        let report = difference.groups.iter().find(|report| report.group == name);
        let lost: BTreeSet<(String, i32)> = report
            .into_iter()
            .flat_map(|report| report.unknown_cells.iter().chain(&report.taken_cells))
            .map(|(node, leaf)| (node.node.clone(), *leaf))
            .collect();
        let expected: BTreeSet<_> = devices(&group.placement).difference(&lost).cloned().collect();
        if devices(&after.placement) != expected {
            return Err(format!("{name} was moved from {:?} to {:?}", group.placement, after.placement));
        }
        let opportunistic = after.lazily_preempted.is_some() && group.lazily_preempted.is_none();
        let named: Option<PromiseLost> = report.and_then(|report| report.promise_lost);
        if opportunistic != named.is_some() {
            return Err(format!("{name} lost its promise: {opportunistic}, said: {named:?}"));
        }
    }
    let reserved = (0..cells.topology.leaves.len()).any(|leaf| {
        let state = cells.state.leaf(crate::topology::LeafNo::of(leaf));
        matches!(state, LeafState::Reserved(_) | LeafState::Reserving { .. })
    });
    if reserved { Err("a reservation outlived a reconfiguration".into()) } else { Ok(()) }
}

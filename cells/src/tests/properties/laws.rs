//! What must hold of decisions, judged without the search.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Ask, BoundGroup, Cells, Decision, Difference, GroupRequest, GroupState, PromiseLost, Proposal,
    leaf::LeafState,
    topology::{ChainNo, Level, NodeName},
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
            nodes_allowed(after, request, ask, proposal)
        }
        Decision::Wait(reason) => never_blocked(after, request, ask, &reason.to_string()),
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
/// (8) Whoever is displaced had a cell that the group gets.
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
    }
    Ok(())
}

/// (2) A pod that fits its VC's own cells on good hardware never waits, whatever other VCs do.
fn never_blocked(cells: &Cells, request: &GroupRequest, ask: &Ask<'_>, reason: &str) -> Result<(), String> {
    let members = &request.affinity_group.root.members;
    let single = members.len() == 1 && members[0].pod_number == 1 && members[0].cell_type.is_empty();
    let plain = request.affinity_group.root.child_groups.is_empty()
        && request.affinity_group.root.within_one_cell.is_empty()
        && request.pinned_cell_id.is_empty();
    let suggestions = ask.suggested.is_some() && !request.ignore_k8s_suggested_nodes;
    let all_good = cells.nodes().all(|node| cells.is_good(node));
    if request.priority < 0
        || !single
        || !plain
        || suggestions
        || !all_good
        || cells.group(request.name()).is_some()
    {
        return Ok(());
    }
    let leaves = u32::try_from(members[0].leaf_cell_number).unwrap_or(u32::MAX);
    let Some(vc) = cells.topology.vc_numbers.get(&request.vc) else { return Ok(()) };
    for slot in &cells.topology.vc(*vc).slots {
        let promise = cells.topology.slot(*slot);
        let chain = cells.topology.chain(promise.chain);
        if promise.pinned.is_some() {
            continue;
        }
        let room = match cells.state.slot_cell(*slot) {
            None => chain.level(promise.level.min(chain.node_level)).leaves,
            Some(cell) => {
                let views = if cells.topology.at_or_below_node(cell) {
                    vec![cell]
                } else {
                    cells.topology.nodes_of(cell).to_vec()
                };
                let free = |cell| {
                    let leaves = cells.topology.leaves_of(cell);
                    leaves
                        .filter(|leaf| {
                            let holder = cells.state.leaf(*leaf).holder();
                            holder.is_none_or(|holder| i32::from(holder.priority) < request.priority)
                        })
                        .count() as u32
                };
                views.into_iter().map(free).max().unwrap_or(0)
            }
        };
        if room >= leaves {
            return Err(format!("{} fits promise {} but waits: {reason}", request.name(), promise.index));
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
    complete(request, &group.placement)
}

pub(super) fn reserved(cells: &Cells, request: &GroupRequest, proposal: &Proposal) -> Result<(), String> {
    let Some(group) = cells.group(request.name()) else {
        return Err("a preempting group is not there".into());
    };
    let victims: BTreeSet<&String> = proposal.victims.iter().map(|victim| &victim.group).collect();
    if group.state != GroupState::Preempting || group.victims.iter().collect::<BTreeSet<_>>() != victims {
        return Err(format!("{} preempts {victims:?} and is {group:?}", request.name()));
    }
    complete(request, &group.placement)
}

fn complete(request: &GroupRequest, placement: &crate::Placement) -> Result<(), String> {
    let mut sizes = Vec::new();
    asked(&request.affinity_group.root, &mut sizes);
    let placed: Vec<usize> = placement.pods.iter().map(|pod| pod.leaf_cells.len()).collect();
    // A pod that was given back before is empty; the whole group is asked for only once.
    let same = sizes.len() == placed.len() && sizes.iter().zip(&placed).all(|(a, b)| a == b || *b == 0);
    let distinct: usize = placed.iter().sum();
    if !same || devices(placement).len() != distinct {
        return Err(format!("{} asked for {sizes:?} and has {placed:?}", request.name()));
    }
    Ok(())
}

fn asked(group: &crate::PodGroup, sizes: &mut Vec<usize>) {
    for member in &group.members {
        let each = if member.cell_type == "socket" { 2 } else { 1 } * member.leaf_cell_number as usize;
        sizes.extend(std::iter::repeat_n(each, member.pod_number as usize));
    }
    for child in &group.child_groups {
        asked(child, sizes);
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

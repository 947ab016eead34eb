//! Requests: an affinity group, in the terms of HiveD's pod scheduling specification (version 1; of version 2
//! `withinOneCell`, nested groups, and cells that are not leaves).

use serde::{Deserialize, Serialize};

use crate::{
    reason::Refusal,
    topology::{Chain, ChainNo, Level, SlotNo, Topology, VcNo},
};

pub const OPPORTUNISTIC: i32 = -1;
pub const MAX_PRIORITY: i32 = 1000;
/// Most pods of one group; it bounds every list made from a request.
pub const MAX_PODS: u32 = 100_000;
/// How deep groups may be nested.
const MAX_DEPTH: usize = 16;

/// A group that is placed as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRequest {
    #[serde(rename = "virtualCluster")]
    pub vc: String,
    /// -1 is opportunistic, 0 to 1000 guaranteed.
    pub priority: i32,
    /// Use this pinned cell of the VC; the leaf cell type is that of the pinned cell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pinned_cell_id: String,
    /// Empty: any type.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leaf_cell_type: String,
    pub affinity_group: AffinityGroup,
    /// The group may become opportunistic in place, if its VC needs its cells for a higher priority.
    #[serde(default)]
    pub lazy_preemption_enable: bool,
    #[serde(default = "yes")]
    pub ignore_k8s_suggested_nodes: bool,
    /// Cells stay with the group until all its pods are gone, as in HiveD; `false`: the cells of each pod are
    /// released with it.
    #[serde(default = "yes")]
    pub gang_release_enable: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityGroup {
    pub name: String,
    #[serde(flatten)]
    pub root: PodGroup,
}

/// Pods and groups; if it names a type, all must be within one cell of that type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodGroup {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub within_one_cell: String,
    #[serde(default)]
    pub members: Vec<Member>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_groups: Vec<PodGroup>,
}

/// Pods with the same request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub pod_number: i64,
    /// Cells of one pod: leaves, or cells of `cell_type`.
    pub leaf_cell_number: i64,
    /// Not empty: each pod gets this many whole cells of this type.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cell_type: String,
}

impl GroupRequest {
    /// A guaranteed group of one member, for any leaf type.
    #[must_use]
    pub fn new(name: &str, vc: &str, priority: i32, pods: i64, leaves: i64) -> Self {
        let member = Member { pod_number: pods, leaf_cell_number: leaves, cell_type: String::new() };
        Self {
            vc: vc.to_string(),
            priority,
            pinned_cell_id: String::new(),
            leaf_cell_type: String::new(),
            affinity_group: AffinityGroup {
                name: name.to_string(),
                root: PodGroup { members: vec![member], ..PodGroup::default() },
            },
            lazy_preemption_enable: false,
            ignore_k8s_suggested_nodes: true,
            gang_release_enable: true,
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.affinity_group.name
    }
}

/// The group that a search is for, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub vc: VcNo,
    pub priority: i16,
    pub pin: Option<SlotNo>,
}

/// A valid request: pods are numbered in the order of members, a group's own before those of its children.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub asker: Asker,
    pub root: CheckedGroup,
    pub pods: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CheckedGroup {
    pub within: Option<String>,
    pub pods: Vec<CheckedPod>,
    pub children: Vec<CheckedGroup>,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckedPod {
    pub number: u32,
    pub cells: u32,
    /// Type of the cells, if they are not leaves.
    pub cell_type: Option<String>,
}

/// The request of one pod in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub pod: u32,
    pub cells: u32,
    pub level: Level,
    pub leaves: u32,
}

/// A group's needs in a chain, largest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupNeed {
    pub within: Option<Level>,
    pub pods: Vec<Need>,
    pub children: Vec<GroupNeed>,
    /// Leaves of all pods below.
    pub leaves: u64,
}

/// Checks a request against the configuration; not whether it fits.
pub(crate) fn check(topology: &Topology, request: &GroupRequest) -> Result<Checked, Refusal> {
    if request.name().is_empty() {
        return Err(Refusal::GroupNameEmpty);
    }
    if request.vc.is_empty() {
        return Err(Refusal::VcEmpty);
    }
    let priority = i16::try_from(request.priority)
        .ok()
        .filter(|priority| (OPPORTUNISTIC..=MAX_PRIORITY).contains(&i32::from(*priority)))
        .ok_or(Refusal::Priority { found: request.priority })?;
    let Some(vc) = topology.vc_numbers.get(&request.vc).copied() else {
        let known = topology.vc_numbers.keys().cloned().collect();
        return Err(Refusal::UnknownVc { vc: request.vc.clone(), known });
    };
    let mut pods = 0;
    let root = check_group(topology, &request.affinity_group.root, &mut pods, 1)?;
    if pods == 0 {
        return Err(Refusal::NoPods);
    }
    let pin = check_pin(topology, request, vc, priority)?;
    if pin.is_none() {
        check_leaf_type(topology, request, vc, priority)?;
    }
    Ok(Checked { asker: Asker { vc, priority, pin }, root, pods })
}

fn check_pin(
    topology: &Topology,
    request: &GroupRequest,
    vc: VcNo,
    priority: i16,
) -> Result<Option<SlotNo>, Refusal> {
    let id = &request.pinned_cell_id;
    if id.is_empty() {
        return Ok(None);
    }
    let pins = &topology.vc(vc).pins;
    let Some(slot) = pins.get(id).copied() else {
        let known = pins.keys().cloned().collect();
        return Err(Refusal::UnknownPin { vc: request.vc.clone(), pin: id.clone(), known });
    };
    if i32::from(priority) == OPPORTUNISTIC {
        return Err(Refusal::OpportunisticPin { pin: id.clone() });
    }
    Ok(Some(slot))
}

fn check_leaf_type(
    topology: &Topology,
    request: &GroupRequest,
    vc: VcNo,
    priority: i16,
) -> Result<(), Refusal> {
    let leaf_type = &request.leaf_cell_type;
    if leaf_type.is_empty() {
        return Ok(());
    }
    let names = |types: Vec<&str>| types.into_iter().map(str::to_string).collect::<Vec<_>>();
    let all = topology.leaf_types();
    if !all.contains(&leaf_type.as_str()) {
        return Err(Refusal::UnknownLeafType { leaf_type: leaf_type.clone(), known: names(all) });
    }
    let own = own_leaf_types(topology, vc);
    if i32::from(priority) > OPPORTUNISTIC && !own.contains(&leaf_type.as_str()) {
        let (vc, leaf_type) = (request.vc.clone(), leaf_type.clone());
        return Err(Refusal::LeafTypeNotInVc { vc, leaf_type, known: names(own) });
    }
    Ok(())
}

/// Leaf types of the promised cells of a VC that are not pinned, by name.
pub(crate) fn own_leaf_types(topology: &Topology, vc: VcNo) -> Vec<&str> {
    let chains = topology.vc(vc).by_level.keys().map(|(chain, _)| *chain);
    let mut types: Vec<_> = chains.map(|chain| topology.chain(chain).leaf_type()).collect();
    types.sort_unstable();
    types.dedup();
    types
}

fn check_group(
    topology: &Topology,
    group: &PodGroup,
    pods: &mut u32,
    depth: usize,
) -> Result<CheckedGroup, Refusal> {
    if depth > MAX_DEPTH {
        return Err(Refusal::TooDeep { most: MAX_DEPTH });
    }
    let within = (!group.within_one_cell.is_empty()).then(|| group.within_one_cell.clone());
    if let Some(cell_type) = &within {
        known_type(topology, cell_type)
            .map_err(|known| Refusal::UnknownWithin { cell_type: cell_type.clone(), known })?;
    }
    let mut checked = CheckedGroup { within, ..CheckedGroup::default() };
    for member in &group.members {
        if member.pod_number <= 0 {
            return Err(Refusal::PodNumber { found: member.pod_number });
        }
        let cells = u32::try_from(member.leaf_cell_number).ok().filter(|cells| *cells > 0);
        let Some(cells) = cells else {
            return Err(number_refused(&member.cell_type, member.leaf_cell_number));
        };
        let cell_type = (!member.cell_type.is_empty()).then(|| member.cell_type.clone());
        if let Some(cell_type) = &cell_type {
            known_type(topology, cell_type)
                .map_err(|known| Refusal::UnknownCellType { cell_type: cell_type.clone(), known })?;
            in_one_node(topology, cell_type)?;
        }
        if member.pod_number > i64::from(MAX_PODS - (*pods).min(MAX_PODS)) {
            return Err(Refusal::TooManyPods { most: MAX_PODS });
        }
        for _ in 0..member.pod_number {
            checked.pods.push(CheckedPod { number: *pods, cells, cell_type: cell_type.clone() });
            *pods += 1;
        }
    }
    for child in &group.child_groups {
        checked.children.push(check_group(topology, child, pods, depth + 1)?);
    }
    Ok(checked)
}

/// The number of cells under the name that it has beside a type.
pub(crate) fn number_refused(cell_type: &str, found: i64) -> Refusal {
    let field = if cell_type.is_empty() { "leafCellNumber" } else { "cellNumber" };
    Refusal::LeafCellNumber { field, found }
}

/// The types that there are, if this is none of them.
fn known_type(topology: &Topology, cell_type: &str) -> Result<(), Vec<String>> {
    if topology.chains.iter().any(|chain| chain.level_of(cell_type).is_some()) {
        return Ok(());
    }
    let mut known: Vec<String> = topology
        .chains
        .iter()
        .flat_map(|chain| chain.levels.iter().map(|level| level.name.clone()))
        .collect();
    known.sort();
    known.dedup();
    Err(known)
}

/// A pod cannot span nodes.
fn in_one_node(topology: &Topology, cell_type: &str) -> Result<(), Refusal> {
    let in_node = |chain: &Chain| chain.level_of(cell_type).is_some_and(|level| level <= chain.node_level);
    if topology.chains.iter().any(in_node) {
        return Ok(());
    }
    let of_node = |chain: &Chain| {
        let levels = chain.levels.iter().take(usize::from(chain.node_level));
        levels.map(|level| level.name.clone()).collect::<Vec<_>>()
    };
    let mut known: Vec<String> = topology.chains.iter().flat_map(of_node).collect();
    known.sort();
    known.dedup();
    Err(Refusal::AboveNodeLevel { cell_type: cell_type.to_string(), known })
}

/// What a group needs in a chain; none if the chain lacks a type that it names.
pub(crate) fn needs(topology: &Topology, chain: ChainNo, group: &CheckedGroup) -> Option<GroupNeed> {
    let levels = topology.chain(chain);
    let within = match &group.within {
        Some(cell_type) => Some(levels.level_of(cell_type)?),
        None => None,
    };
    let mut need = GroupNeed { within, ..GroupNeed::default() };
    for pod in &group.pods {
        let level = match &pod.cell_type {
            Some(cell_type) => levels.level_of(cell_type)?,
            None => 1,
        };
        let leaves = pod.cells.saturating_mul(levels.level(level).leaves);
        need.leaves += u64::from(leaves);
        need.pods.push(Need { pod: pod.number, cells: pod.cells, level, leaves });
    }
    for child in &group.children {
        let child = needs(topology, chain, child)?;
        need.leaves += child.leaves;
        need.children.push(child);
    }
    // Largest first, so that small pods fill what large ones leave; whole cells before single leaves.
    need.pods.sort_by_key(|pod| (std::cmp::Reverse((pod.leaves, pod.level)), pod.pod));
    need.children.sort_by_key(|child| std::cmp::Reverse(child.leaves));
    Some(need)
}

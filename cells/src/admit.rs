//! Admission at submission: whether a group could ever be placed, if everything were free and good; if not, why.

use std::collections::BTreeSet;

use crate::{
    cells::Cells,
    reason::Refusal,
    request::{self, Checked, CheckedGroup, GroupNeed, GroupRequest},
    schedule::{Target, fits_empty, targets},
    search::count_pods,
    state::State,
    topology::{ChainNo, Topology},
};

/// Types that a message names.
const LISTED: usize = 16;

impl Cells {
    /// Refuses a group that can never run: an invalid request, a pod larger than any node, cells of the VC that do
    /// not combine, more than the VC was promised.
    ///
    /// # Errors
    /// Why the group can never be placed.
    pub fn admit(&mut self, request: &GroupRequest) -> Result<(), Refusal> {
        let checked = request::check(&self.topology, request)?;
        let targets = targets(&self.topology, request, &checked, None);
        let topology = &self.topology;
        let pristine = self.pristine.get_or_insert_with(|| Box::new(State::new(topology, true)));
        if fits_empty(topology, pristine, checked.asker, &targets) {
            return Ok(());
        }
        Err(Refusal::NeverFits(why_never(topology, request, &checked, &targets)))
    }

    /// Whether a group could be placed in a cluster, if everything there were free and good.
    pub fn could_hold(&mut self, request: &GroupRequest, cluster: &str) -> bool {
        let Ok(checked) = request::check(&self.topology, request) else { return false };
        let targets = targets(&self.topology, request, &checked, Some(&[cluster.to_owned()]));
        let topology = &self.topology;
        let pristine = self.pristine.get_or_insert_with(|| Box::new(State::new(topology, true)));
        fits_empty(topology, pristine, checked.asker, &targets)
    }
}

fn why_never(topology: &Topology, request: &GroupRequest, checked: &Checked, targets: &[Target]) -> String {
    let group = request.name();
    let owner = owner(request, checked);
    let most = targets.iter().max_by_key(|target| capacity(topology, checked, target).0);
    let Some(target) = most else {
        return format!("group {group} can never run: {}", no_chain(topology, request, checked));
    };
    let (total, largest) = capacity(topology, checked, target);
    let chain = topology.chain(target.chain);
    let leaf = chain.leaf_type();
    let asked = target.need.leaves;
    if asked > total {
        let all = all_chains(topology, checked, targets);
        let one = match (all > total, checked.asker.priority) {
            (false, _) => String::new(),
            (true, 0..) => format!(" in one chain, {all} in all"),
            (true, _) => format!(" in one chain of one cluster, {all} in all"),
        };
        return format!(
            "group {group} can never run: it asks for {asked} cells of type {leaf}, {owner} has at most {total}{one}"
        );
    }
    let pod = largest_pod(&target.need);
    let node = chain.level(chain.node_level);
    if pod > node.leaves {
        return format!(
            "group {group} can never run: a pod asks for {pod} cells of type {leaf}, one node ({}) has {}",
            node.name, node.leaves
        );
    }
    if pod > largest {
        return format!(
            "group {group} can never run: a pod asks for {pod} cells of type {leaf}; {owner} has {total}, but they \
             do not combine: the largest cell it was promised has {largest}"
        );
    }
    if let Some(level) = target.need.within {
        let within = &chain.level(level).name;
        return format!(
            "group {group} can never run: its {} pods of {asked} cells of type {leaf} do not fit within one {within} \
             of {owner}",
            count_pods(&target.need)
        );
    }
    let clusters = if chain.clusters.len() > 1 { ", and a group cannot span clusters" } else { "" };
    format!(
        "group {group} can never run: its {} pods do not fit side by side into the cells of {owner}; a pod cannot \
         span nodes or promised cells{clusters}",
        count_pods(&target.need)
    )
}

fn owner(request: &GroupRequest, checked: &Checked) -> String {
    match (checked.asker.pin, checked.asker.priority) {
        (Some(_), _) => format!("pinned cell {} of VC {}", request.pinned_cell_id, request.vc),
        (None, 0..) => format!("VC {}", request.vc),
        (None, _) => "the cluster".to_string(),
    }
}

/// Why no chain can be searched for a group: its VC has no cells, or none of its chains has all the types that the group
/// names.
pub(crate) fn no_chain(topology: &Topology, request: &GroupRequest, checked: &Checked) -> String {
    let (asker, owner) = (checked.asker, owner(request, checked));
    let own = topology.vc(asker.vc);
    if asker.pin.is_none() && asker.priority >= 0 && own.by_level.is_empty() {
        let pins = match own.pins.keys().cloned().collect::<Vec<_>>() {
            pins if pins.is_empty() => "it was promised none".to_string(),
            pins => format!("its jobs name one of its pinned cells: {}", pins.join(", ")),
        };
        return format!("{owner} has no cells for any job; {pins}");
    }
    let mut types: BTreeSet<&str> = BTreeSet::new();
    if asker.pin.is_none() && !request.leaf_cell_type.is_empty() {
        types.insert(&request.leaf_cell_type);
    }
    named_types(&checked.root, &mut types);
    let chains: BTreeSet<ChainNo> = match asker.pin.and_then(|pin| topology.slot(pin).pinned) {
        Some(pin) => BTreeSet::from([topology.cell(pin).chain]),
        None if asker.priority >= 0 => own.by_level.keys().map(|(chain, _)| *chain).collect(),
        None => (0..topology.chains.len()).map(ChainNo::of).collect(),
    };
    let has = |chain: &ChainNo, name: &str| topology.chain(*chain).level_of(name).is_some();
    let (there, absent): (Vec<&str>, Vec<&str>) =
        types.into_iter().partition(|name| chains.iter().any(|chain| has(chain, name)));
    if absent.is_empty() {
        return format!(
            "it asks for cells of the types {}, which no chain of {owner} has together, and all pods of a group are \
             in one chain; allowed: a group for each",
            there.join(" and ")
        );
    }
    let known = chains.iter().flat_map(|chain| &topology.chain(*chain).levels);
    let known: BTreeSet<&str> = known.map(|level| level.name.as_str()).collect();
    let more = match known.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let known: Vec<&str> = known.into_iter().take(LISTED).collect();
    format!(
        "it asks for cells of type {}, of which {owner} has none; allowed: {}{more}",
        absent.join(" and "),
        known.join(", ")
    )
}

fn named_types<'g>(group: &'g CheckedGroup, into: &mut BTreeSet<&'g str>) {
    into.extend(group.within.as_deref());
    into.extend(group.pods.iter().filter_map(|pod| pod.cell_type.as_deref()));
    for child in &group.children {
        named_types(child, into);
    }
}

/// Leaves of all chains and clusters that a group of one of them could use.
fn all_chains(topology: &Topology, checked: &Checked, targets: &[Target]) -> u64 {
    if checked.asker.priority < 0 {
        return targets.iter().map(|target| capacity(topology, checked, target).0).sum();
    }
    let mut chains: Vec<_> = targets.iter().map(|target| (target.chain, target)).collect();
    // The promises of a chain are counted over its clusters already.
    chains.sort_by_key(|(chain, _)| *chain);
    chains.dedup_by_key(|(chain, _)| *chain);
    chains.into_iter().map(|(_, target)| capacity(topology, checked, target).0).sum()
}

fn largest_pod(need: &GroupNeed) -> u32 {
    let own = need.pods.iter().map(|pod| pod.leaves).max().unwrap_or(0);
    need.children.iter().map(largest_pod).fold(own, u32::max)
}

/// All leaves of a target that the group could use, and the most in one cell that is no larger than a node.
pub(crate) fn capacity(topology: &Topology, checked: &Checked, target: &Target) -> (u64, u32) {
    let chain = topology.chain(target.chain);
    let node = chain.level(chain.node_level).leaves;
    let asker = checked.asker;
    if asker.priority < 0 {
        let tops = chain.level(chain.top()).cells.iter().map(|cell| topology.cell(*cell));
        let total =
            tops.filter(|cell| cell.cluster == target.cluster).map(|cell| u64::from(cell.leaves)).sum();
        return (total, node);
    }
    let slots = topology.vc(asker.vc).slots.iter().filter(|slot| match asker.pin {
        Some(pin) => **slot == pin,
        None => topology.slot(**slot).chain == target.chain && topology.slot(**slot).pinned.is_none(),
    });
    let sizes = slots.map(|slot| chain.level(topology.slot(*slot).level).leaves);
    sizes.fold((0, 0), |(total, largest), size| (total + u64::from(size), largest.max(size.min(node))))
}

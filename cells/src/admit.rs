//! Admission at submission: whether a group could ever be placed, if everything were free and good; if not, why.

use crate::{
    cells::Cells,
    reason::Refusal,
    request::{self, Checked, GroupNeed, GroupRequest},
    schedule::{Target, fits_empty, targets},
    search::count_pods,
    state::State,
    topology::Topology,
};

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
    let owner = match (checked.asker.pin, checked.asker.priority) {
        (Some(_), _) => format!("pinned cell {} of VC {}", request.pinned_cell_id, request.vc),
        (None, 0..) => format!("VC {}", request.vc),
        (None, _) => "the cluster".to_string(),
    };
    let most = targets.iter().max_by_key(|target| capacity(topology, checked, target).0);
    let Some(target) = most else {
        let own = topology.vc(checked.asker.vc);
        if checked.asker.pin.is_none() && checked.asker.priority >= 0 && own.by_level.is_empty() {
            let pins = match own.pins.keys().cloned().collect::<Vec<_>>() {
                pins if pins.is_empty() => "it was promised none".to_string(),
                pins => format!("its jobs name one of its pinned cells: {}", pins.join(", ")),
            };
            return format!("group {group} can never run: {owner} has no cells for any job; {pins}");
        }
        return format!(
            "group {group} can never run: {owner} has no cells with all the types that it asks for"
        );
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
fn capacity(topology: &Topology, checked: &Checked, target: &Target) -> (u64, u32) {
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

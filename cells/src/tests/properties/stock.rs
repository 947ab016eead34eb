//! What the free cells of a virtual cluster hold, counted without the search.

use crate::{
    Cells, GroupRequest,
    topology::{CellNo, Chain, ChainNo, Level, SlotNo, VcNo},
};

/// Steps after which a count of places gives up.
const STEPS: u32 = 50_000;

/// The free cells of a chain in one cluster. Index 0 is level 1.
pub(super) struct Stock {
    free: Vec<u64>,
    /// Cells that may be split, over all clusters: more would break a promise.
    splits: Vec<u64>,
    /// Parts of a cell.
    parts: Vec<u64>,
}

impl Stock {
    pub(super) fn of(cells: &Cells, chain: ChainNo, cluster: &str) -> Self {
        let (topology, state) = (&cells.topology, &cells.state);
        let is_there = |cell: CellNo| topology.clusters[topology.cell(cell).cluster.at()] == cluster;
        let levels = 1..=topology.chain(chain).top();
        let free =
            levels.map(|level| state.blocks(chain, level).iter().filter(|key| is_there(key.3)).count());
        Self {
            free: free.map(|free| free as u64).collect(),
            splits: state.left(topology, chain).into_iter().map(|left| left.max(0) as u64).collect(),
            parts: topology.chain(chain).levels.iter().map(|level| u64::from(level.children)).collect(),
        }
    }

    /// Whether so many promises of each level can be bound there, in whatever order: what is not free at a level is split
    /// off the level above, and the sum of all splits counts.
    pub(super) fn can_bind(&self, promises: &[u64]) -> bool {
        let mut split = 0;
        for (level, own) in promises.iter().enumerate() {
            if split > self.splits[level] {
                return false;
            }
            let missing = (own + split).saturating_sub(self.free[level]);
            split = match self.parts.get(level + 1) {
                Some(parts) => missing.div_ceil(*parts),
                None => missing,
            };
        }
        // Nothing is above the top.
        split == 0
    }

    pub(super) fn none(&self) -> Vec<u64> {
        vec![0; self.free.len()]
    }
}

/// Pods, largest first, and where they may go.
struct Places<'a> {
    stock: Stock,
    chain: &'a Chain,
    pods: Vec<u32>,
    /// Promises that are not in use, by level.
    unused: Vec<u64>,
    steps: u32,
}

/// Whether the VC's free cells in a cluster hold a group of plain pods, without preemption: nodes of promises in use, or
/// promises that can be bound there.
pub(super) fn holds(cells: &Cells, request: &GroupRequest, cluster: &str) -> bool {
    let root = &request.affinity_group.root;
    let plain = root.within_one_cell.is_empty()
        && root.child_groups.is_empty()
        && root.members.iter().all(|member| member.cell_type.is_empty());
    let Some(vc) = cells.topology.vc_numbers.get(&request.vc).copied().filter(|_| plain) else {
        return false;
    };
    let mut pods: Vec<u32> = Vec::new();
    for member in &root.members {
        let size = u32::try_from(member.leaf_cell_number).unwrap_or(u32::MAX);
        pods.extend((0..member.pod_number).map(|_| size));
    }
    pods.sort_unstable_by(|a, b| b.cmp(a));
    (0..cells.topology.chains.len()).map(ChainNo::of).any(|chain| {
        let leaf_type = cells.topology.chain(chain).leaf_type();
        let named = &request.leaf_cell_type;
        let pinned = !request.pinned_cell_id.is_empty();
        if !pinned && !named.is_empty() && named != leaf_type {
            return false;
        }
        let stock = Stock::of(cells, chain, cluster);
        let (bins, unused) = free_cells(cells, request, vc, chain, cluster, &stock);
        let chain = cells.topology.chain(chain);
        let mut places = Places { stock, chain, pods: pods.clone(), unused, steps: 0 };
        let bound = places.stock.none();
        places.fit(0, &bins, &bound)
    })
}

/// Free leaves of each node of a promise in use, and promises not in use by level.
fn free_cells(
    cells: &Cells,
    request: &GroupRequest,
    vc: VcNo,
    chain: ChainNo,
    cluster: &str,
    stock: &Stock,
) -> (Vec<u32>, Vec<u64>) {
    let (topology, state) = (&cells.topology, &cells.state);
    let pin = topology.vc(vc).pins.get(&request.pinned_cell_id).copied();
    let own = |slot: &SlotNo| match pin {
        Some(pin) => *slot == pin && topology.slot(pin).chain == chain,
        None => topology.slot(*slot).chain == chain && topology.slot(*slot).pinned.is_none(),
    };
    let (mut bins, mut unused) = (Vec::new(), stock.none());
    for slot in topology.vc(vc).slots.iter().copied().filter(own) {
        let Some(cell) = state.slot_cell(slot) else {
            unused[usize::from(topology.slot(slot).level) - 1] += 1;
            continue;
        };
        if topology.clusters[topology.cell(cell).cluster.at()] != cluster {
            continue;
        }
        if topology.at_or_below_node(cell) {
            bins.push(state.virtually_free(topology, cell));
        } else {
            bins.extend(topology.nodes_of(cell).iter().map(|node| state.virtually_free(topology, *node)));
        }
    }
    (bins, unused)
}

impl Places<'_> {
    /// Every way for one pod after the other: a node with as many free leaves as others is tried once.
    fn fit(&mut self, pod: usize, bins: &[u32], bound: &[u64]) -> bool {
        let Some(size) = self.pods.get(pod).copied() else { return true };
        self.steps += 1;
        if self.steps > STEPS {
            return false;
        }
        let mut tried = Vec::new();
        for (at, free) in bins.iter().enumerate() {
            if *free < size || tried.contains(free) {
                continue;
            }
            tried.push(*free);
            let mut bins = bins.to_vec();
            bins[at] -= size;
            if self.fit(pod + 1, &bins, bound) {
                return true;
            }
        }
        for level in 1..=self.chain.top() {
            let at = usize::from(level) - 1;
            let (node, nodes) = self.nodes(level);
            if node < size || bound[at] == self.unused[at] {
                continue;
            }
            let mut bound = bound.to_vec();
            bound[at] += 1;
            if !self.stock.can_bind(&bound) {
                continue;
            }
            let mut bins = bins.to_vec();
            bins.push(node - size);
            bins.extend((1..nodes).map(|_| node));
            if self.fit(pod + 1, &bins, &bound) {
                return true;
            }
        }
        false
    }

    /// Leaves of a node (or part of one) in a promise of a level, and how many of these there are.
    fn nodes(&self, level: Level) -> (u32, u32) {
        let node = self.chain.level(level.min(self.chain.node_level)).leaves;
        (node, self.chain.level(level).leaves / node)
    }
}

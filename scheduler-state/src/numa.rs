//! Whole cpus of one NUMA node: where the kubelet's topology manager accepts a pod.
//!
//! Pure. Input: the NUMA cells of a node with their free cpus, and the request of each container. Output: cpus by
//! cell, or that the kubelet would refuse the pod. Only containers of guaranteed pods that request whole cpus
//! count.
//! Source: the kubelet's policies best-effort, restricted and single-numa-node with the static cpu manager as the
//! only hint provider. Deliberately absent: cores and sockets, devices.

/// Most cells of a node; the kubelet has the same limit.
pub const MAX_CELLS: usize = 8;

/// The alignment of containers that a node enforces, or a pod requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumaPolicy {
    #[default]
    None,
    BestEffort,
    Restricted,
    SingleNumaNode,
}

impl NumaPolicy {
    /// As pods and kubelets write it; anything else: none.
    pub fn read(text: &str) -> Self {
        match text {
            "best-effort" => Self::BestEffort,
            "restricted" => Self::Restricted,
            "single-numa-node" => Self::SingleNumaNode,
            _ => Self::None,
        }
    }
}

/// Cpus of one NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaCell {
    pub capacity: i64,
    /// Given to no container, as the node's exporter reports.
    pub free: i64,
}

/// A node's report of its cpus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numa {
    pub policy: NumaPolicy,
    /// Containers get exclusive whole cpus (cpu manager policy `static`).
    pub exclusive: bool,
    /// At most [`MAX_CELLS`].
    pub cells: Vec<NumaCell>,
}

/// The request of a guaranteed pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaAsk {
    /// Nodes must have this policy; `None`: any.
    pub policy: NumaPolicy,
    /// Of each container that requests whole cpus.
    pub cpus: Vec<i64>,
}

/// Cpus that a pod was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// By cell.
    pub cpus: Vec<i64>,
    /// The node's report already counts them.
    pub reported: bool,
}

/// Cpus by cell for containers that request `cpus` each, on cells with `free` of `capacity`; `None`: the kubelet
/// would refuse the pod.
pub fn give(policy: NumaPolicy, capacity: &[i64], free: &[i64], cpus: &[i64]) -> Option<Vec<i64>> {
    let mut left = free.to_vec();
    let mut given = vec![0; free.len()];
    for asked in cpus.iter().copied().filter(|asked| *asked > 0) {
        let mask = best_mask(policy, capacity, &left, asked)?;
        let mut cells: Vec<usize> = (0..left.len()).filter(|cell| mask & (1 << cell) != 0).collect();
        // Wholly free cells first, as the kubelet takes them.
        cells.sort_by_key(|cell| (std::cmp::Reverse(left[*cell]), *cell));
        let mut rest = asked;
        for cell in cells {
            let part = rest.min(left[cell].max(0));
            left[cell] -= part;
            given[cell] += part;
            rest -= part;
        }
    }
    Some(given)
}

/// The cells that the kubelet would choose: the fewest that could ever be enough, if they have the cpus now; else
/// the fewest that are enough now.
fn best_mask(policy: NumaPolicy, capacity: &[i64], free: &[i64], asked: i64) -> Option<u32> {
    let cells = free.len().min(MAX_CELLS);
    let sum = |of: &[i64], mask: u32| -> i64 {
        (0..cells).filter(|cell| mask & (1 << cell) != 0).map(|cell| of[cell].max(0)).sum()
    };
    let masks = || 1_u32..(1 << cells);
    let least = masks().filter(|mask| sum(capacity, *mask) >= asked).map(u32::count_ones).min()?;
    let fitting = masks().filter(|mask| sum(free, *mask) >= asked);
    // Narrowest first, then lowest: the order of the topology manager.
    let best = fitting.min_by_key(|mask| (mask.count_ones(), *mask))?;
    let preferred = best.count_ones() == least;
    let admitted = match policy {
        NumaPolicy::None | NumaPolicy::BestEffort => true,
        NumaPolicy::Restricted => preferred,
        NumaPolicy::SingleNumaNode => best.count_ones() == 1,
    };
    admitted.then_some(best)
}

//! Plugin numa-aware: pods with whole cpus go where the kubelet's topology manager accepts them.
//!
//! Pure. Input: the NUMA cells of a node with their free cpus, and the request of each container. Output: cpus by
//! cell, or that the kubelet would refuse the pod. Only containers of guaranteed pods that request whole cpus
//! count, on nodes that an exporter reports (Numatopology). Cpus given to pods since the last report are kept here.
//! Source: the kubelet's policies best-effort, restricted and single-numa-node with the static cpu manager as the
//! only hint provider, and Volcano's plugin of that name. Deliberately absent: cores and sockets, devices.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::config::{ArgumentError, Hook, Plugin, read_int};
use crate::index::{Fit, Misfit};
use crate::node::NodeId;
use crate::pod::{Class, Extras, PodId, Status};
use crate::score::FULL;

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

/// The plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaAware {
    filters: bool,
    /// Weight among node scores; 0: off.
    weight: i64,
}

impl NumaAware {
    pub(crate) fn compile(plugin: &Plugin) -> Result<Self, ArgumentError> {
        let weight = read_int(plugin, "weight", "a whole number")?.unwrap_or(1);
        let scores = plugin.hooks.has(Hook::NodeOrder);
        Ok(Self { filters: plugin.hooks.has(Hook::Predicate), weight: if scores { weight } else { 0 } })
    }
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

impl Cluster {
    /// Sets the exporter's report of a node; `None`: none any more. It includes what running pods were given.
    pub fn set_numa(&mut self, node: &str, numa: Option<Numa>) {
        let id = self.nodes.intern(node);
        if self.nodes.get(id).numa.as_deref() == numa.as_ref() {
            return;
        }
        for pod in self.nodes.get(id).pods.clone() {
            let started =
                !matches!(self.pod(pod).status, Status::Binding | Status::Bound | Status::Pipelined);
            if started && let Some(given) = &mut self.pod_mut(pod).given {
                given.reported = true;
            }
        }
        self.nodes.state_mut(id).numa = numa.map(Arc::new);
        self.nodes.note(id);
        self.freed();
    }

    /// The request of the class, if the plugin handles it.
    pub(crate) fn whole_cpus<'c>(&self, class: &'c Class) -> Option<&'c NumaAsk> {
        self.policy.numa.as_ref().filter(|policy| policy.filters)?;
        class.extras()?.numa.as_ref()
    }

    /// Pods of the class depend on amounts and nodes alone.
    pub(crate) fn is_plain(&self, class: &Class) -> bool {
        class.extras().is_none_or(Extras::is_whole_cpus_alone) && self.whole_cpus(class).is_none()
    }

    /// Cpus by cell for one more pod of the class; `None`: the node has no exclusive cpus, or no topology policy.
    pub(crate) fn choose_cpus(
        &self,
        class: &Class,
        node: NodeId,
        fit: Fit,
    ) -> Result<Option<Vec<i64>>, Misfit> {
        let Some(ask) = self.whole_cpus(class) else { return Ok(None) };
        let state = self.nodes.get(node);
        let aligned = |numa: &&Arc<Numa>| numa.exclusive && numa.policy != NumaPolicy::None;
        let Some(numa) = state.numa.as_ref().filter(aligned) else {
            return if ask.policy == NumaPolicy::None { Ok(None) } else { Err(Misfit::NumaPolicy) };
        };
        if ask.policy != NumaPolicy::None && ask.policy != numa.policy {
            return Err(Misfit::NumaPolicy);
        }
        let capacity: Vec<i64> = numa.cells.iter().map(|cell| cell.capacity).collect();
        let mut free: Vec<i64> = numa.cells.iter().map(|cell| cell.free).collect();
        for pod in state.pods.iter().map(|pod| self.pod(*pod)) {
            let Some(given) = &pod.given else { continue };
            let leaves = fit == Fit::Future && pod.status == Status::Releasing;
            let sign = i64::from(leaves && given.reported) - i64::from(!leaves && !given.reported);
            free.iter_mut().zip(&given.cpus).for_each(|(free, cpus)| *free += sign * cpus);
        }
        give(numa.policy, &capacity, &free, &ask.cpus).map(Some).ok_or(Misfit::NumaCells)
    }

    /// The cpus that a pod gets when it comes to a node.
    pub(crate) fn given_to(&self, id: PodId, status: Status, node: Option<NodeId>) -> Option<Box<Given>> {
        let class = self.class(self.pod(id).class);
        let fit = if status == Status::Pipelined { Fit::Future } else { Fit::Now };
        let cpus = self.choose_cpus(class, node?, fit).ok()??;
        Some(Box::new(Given { cpus, reported: false }))
    }

    /// Points of a node by the number of cells that the pod would use, for pods that name a policy.
    pub(crate) fn numa_score(&self, class: &Class, node: NodeId) -> i64 {
        let Some(policy) = self.policy.numa.as_ref().filter(|policy| policy.weight != 0) else { return 0 };
        if self.whole_cpus(class).is_none_or(|ask| ask.policy == NumaPolicy::None) {
            return 0;
        }
        let Ok(Some(cpus)) = self.choose_cpus(class, node, Fit::Now) else { return 0 };
        let cells = cpus.iter().filter(|cpus| **cpus > 0).count() as i64;
        policy.weight * if cells > 0 { FULL / cells } else { 0 }
    }
}

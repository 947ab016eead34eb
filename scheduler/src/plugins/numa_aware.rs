//! Plugin numa-aware: pods with whole cpus go where the kubelet's topology manager accepts them.
//!
//! Only containers of guaranteed pods that request whole cpus count, on nodes that an exporter reports
//! (Numatopology). Cpus given to pods since the last report are kept here.

use std::sync::Arc;

use super::rules::Rules;
use crate::ids::{NodeId, PodId};
use crate::misfit::{Fit, Misfit};
use crate::numa::{Given, Numa, NumaAsk, NumaPolicy, give};
use crate::pod::{Class, Reserved, Status};
use crate::score::FULL;
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

const NUMA_POLICY: Misfit = Misfit::Rule("didn't report the pod's NUMA policy");
const NUMA_CELLS: Misfit = Misfit::Rule("had not enough free cpus close together");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaAware {
    /// Weight among node scores; 0: off.
    weight: i64,
}

impl Rules for NumaAware {
    const NAME: &'static str = "numa-aware";
    const ARGUMENTS: &'static [&'static str] = &["weight"];
    const HOOKS: &'static [Hook] = &[Hook::Predicate, Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let weight = settings.weight("weight", 1)?;
        // Without the filter, pods get no cpus by which nodes could be compared.
        Ok(Self { weight: if settings.hooks.has(Hook::Predicate) { weight } else { 0 } })
    }

    fn fits(&self, state: &State, class: &Class, node: NodeId, fit: Fit) -> Result<(), Misfit> {
        choose_cpus(state, class, node, fit).map(drop)
    }

    fn is_sensitive(&self, class: &Class) -> bool {
        whole_cpus(class).is_some()
    }

    /// By the number of cells that the pod would use, for pods that name a policy.
    fn node_score(&self, state: &State, class: &Class, node: NodeId) -> i64 {
        if self.weight == 0 || whole_cpus(class).is_none_or(|ask| ask.policy == NumaPolicy::None) {
            return 0;
        }
        let Ok(Some(cpus)) = choose_cpus(state, class, node, Fit::Now) else { return 0 };
        let cells = cpus.iter().filter(|cpus| **cpus > 0).count() as i64;
        self.weight * if cells > 0 { FULL / cells } else { 0 }
    }

    fn reserve(&self, state: &State, pod: PodId, status: Status, node: NodeId, reserved: &mut Reserved) {
        let class = state.class(state.pod(pod).class);
        let fit = if status == Status::Pipelined { Fit::Future } else { Fit::Now };
        if let Ok(Some(cpus)) = choose_cpus(state, class, node, fit) {
            reserved.cpus = Some(Box::new(Given { cpus, reported: false }));
        }
    }
}

fn whole_cpus(class: &Class) -> Option<&NumaAsk> {
    class.extras()?.numa.as_ref()
}

/// Cpus by cell for one more pod of the class; `None`: the node has no exclusive cpus, or no topology policy.
fn choose_cpus(state: &State, class: &Class, node: NodeId, fit: Fit) -> Result<Option<Vec<i64>>, Misfit> {
    let Some(ask) = whole_cpus(class) else { return Ok(None) };
    let node = state.nodes.get(node);
    let aligned = |numa: &&Arc<Numa>| numa.exclusive && numa.policy != NumaPolicy::None;
    let Some(numa) = node.numa.as_ref().filter(aligned) else {
        return if ask.policy == NumaPolicy::None { Ok(None) } else { Err(NUMA_POLICY) };
    };
    if ask.policy != NumaPolicy::None && ask.policy != numa.policy {
        return Err(NUMA_POLICY);
    }
    let capacity: Vec<i64> = numa.cells.iter().map(|cell| cell.capacity).collect();
    let mut free: Vec<i64> = numa.cells.iter().map(|cell| cell.free).collect();
    for pod in node.pods.iter().map(|pod| state.pod(*pod)) {
        let Some(given) = &pod.reserved.cpus else { continue };
        let leaves = fit == Fit::Future && pod.status == Status::Releasing;
        let sign = i64::from(leaves && given.reported) - i64::from(!leaves && !given.reported);
        free.iter_mut().zip(&given.cpus).for_each(|(free, cpus)| *free += sign * cpus);
    }
    give(numa.policy, &capacity, &free, &ask.cpus).map(Some).ok_or(NUMA_CELLS)
}

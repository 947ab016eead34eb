//! Plugin usage: nodes are chosen by measured load, and a node over a threshold takes no pods.
//!
//! Between two measurements, pods placed on a node are added to its load, so that a burst of pods does not go to
//! the one node that was idle when it was last measured. Deliberately absent: where measurements come from.

use super::rules::Rules;
use crate::amounts::{CPU, MEMORY};
use crate::ids::NodeId;
use crate::misfit::Misfit;
use crate::node::NodeState;
use crate::pod::Class;
use crate::score::{FULL, parts};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;
use crate::usage::BUSY;

const BUSY_CPU: Misfit = Misfit::Rule("were over the threshold of measured cpu load");
const BUSY_MEMORY: Misfit = Misfit::Rule("were over the threshold of measured memory load");
const DEFAULT_THRESHOLD: i64 = 80 * BUSY / 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Weight among node scores; 0: off.
    pub weight: i64,
    pub cpu_weight: i64,
    pub memory_weight: i64,
    /// Parts of [`BUSY`] above which a node takes no pods.
    pub cpu_threshold: i64,
    pub memory_threshold: i64,
}

impl Rules for Usage {
    const NAME: &'static str = "usage";
    const ARGUMENTS: &'static [&'static str] =
        &["usage.weight", "cpu.weight", "memory.weight", "thresholds.cpu", "thresholds.mem"];
    const HOOKS: &'static [Hook] = &[Hook::Predicate, Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let threshold = |name: &str| -> Result<i64, ArgumentError> {
            let percent = settings.percent(name)?;
            Ok(percent.map_or(DEFAULT_THRESHOLD, |thousandths| thousandths * (BUSY / 100_000)))
        };
        Ok(Self {
            weight: settings.from_zero("usage.weight", 5)?,
            cpu_weight: settings.from_zero("cpu.weight", 1)?,
            memory_weight: settings.from_zero("memory.weight", 1)?,
            cpu_threshold: threshold("thresholds.cpu")?,
            memory_threshold: threshold("thresholds.mem")?,
        })
    }

    fn admits(&self, _: &Class, node: &NodeState) -> Result<(), Misfit> {
        self.refuses(node).map_or(Ok(()), Err)
    }

    /// By the idle part of the node; none without a measurement.
    fn node_score(&self, state: &State, _: &Class, node: NodeId) -> i64 {
        let Some(measured) = state.nodes.get(node).measured else { return 0 };
        let weights = self.cpu_weight + self.memory_weight;
        if self.weight == 0 || weights == 0 {
            return 0;
        }
        let idle = |place: usize, load: i64, used: i64| {
            let cell = state.nodes.cell(node, place);
            let since = (cell.used - used).clamp(0, cell.allocatable.max(0));
            let since = if since == 0 { 0 } else { parts(since, cell.allocatable) };
            (FULL - load.clamp(0, BUSY) * (FULL / BUSY) - since).max(0)
        };
        let [cpu_used, memory_used] = measured.used;
        let cpu = idle(CPU, measured.load.cpu, cpu_used);
        let memory = idle(MEMORY, measured.load.memory, memory_used);
        self.weight * ((cpu * self.cpu_weight + memory * self.memory_weight) / weights)
    }
}

impl Usage {
    /// Why the node takes no pods while it is so busy.
    pub(crate) fn refuses(&self, node: &NodeState) -> Option<Misfit> {
        let load = node.measured?.load;
        match () {
            () if load.cpu > self.cpu_threshold => Some(BUSY_CPU),
            () if load.memory > self.memory_threshold => Some(BUSY_MEMORY),
            () => None,
        }
    }
}

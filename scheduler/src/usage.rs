//! Plugin usage: nodes are chosen by measured load, and a node over a threshold takes no pods.
//!
//! Between two measurements, pods placed on a node are added to its load, so that a burst of pods does not go to
//! the one node that was idle when it was last measured. Source: Volcano's plugin of that name (`usage.weight`,
//! `cpu.weight`, `memory.weight`, `thresholds.cpu`, `thresholds.mem`). Deliberately absent: where measurements come
//! from.

use crate::amounts::{CPU, MEMORY};
use crate::cluster::Cluster;
use crate::config::{ArgumentError, Hook, Plugin, read_int, read_percent};
use crate::index::Misfit;
use crate::node::{NodeId, NodeState};
use crate::score::{FULL, parts};

/// A measurement older than this many seconds is ignored.
pub const STALE_AFTER_S: i64 = 300;
/// The load of a fully busy node.
pub const BUSY: i64 = 1_000_000;

/// The plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsagePolicy {
    /// Nodes over a threshold take no pods (`enablePredicate`).
    pub filters: bool,
    /// Weight among node scores; 0: off.
    pub weight: i64,
    pub cpu_weight: i64,
    pub memory_weight: i64,
    /// Parts of [`BUSY`] above which a node takes no pods.
    pub cpu_threshold: i64,
    pub memory_threshold: i64,
}

const WEIGHT: &str = "a whole number from 0";
const DEFAULT_THRESHOLD: i64 = 80 * BUSY / 100;

impl UsagePolicy {
    pub(crate) fn compile(plugin: &Plugin) -> Result<Self, ArgumentError> {
        let weight = |name: &str, default: i64| -> Result<i64, ArgumentError> {
            let found = read_int(plugin, name, WEIGHT)?;
            match found {
                Some(below) if below < 0 => {
                    Err(crate::config::error(plugin, name, &below.to_string(), WEIGHT))
                }
                found => Ok(found.unwrap_or(default)),
            }
        };
        let threshold = |name: &str| -> Result<i64, ArgumentError> {
            let percent = read_percent(plugin, name)?;
            Ok(percent.map_or(DEFAULT_THRESHOLD, |thousandths| thousandths * (BUSY / 100_000)))
        };
        let usage = weight("usage.weight", 5)?;
        Ok(Self {
            filters: plugin.hooks.has(Hook::Predicate),
            weight: if plugin.hooks.has(Hook::NodeOrder) { usage } else { 0 },
            cpu_weight: weight("cpu.weight", 1)?,
            memory_weight: weight("memory.weight", 1)?,
            cpu_threshold: threshold("thresholds.cpu")?,
            memory_threshold: threshold("thresholds.mem")?,
        })
    }

    fn refuses(&self, load: &Load) -> Option<Misfit> {
        match () {
            () if !self.filters => None,
            () if load.cpu > self.cpu_threshold => Some(Misfit::BusyCpu),
            () if load.memory > self.memory_threshold => Some(Misfit::BusyMemory),
            () => None,
        }
    }
}

/// Measured load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Parts of [`BUSY`].
    pub cpu: i64,
    /// Parts of [`BUSY`].
    pub memory: i64,
    /// When, in seconds since the epoch.
    pub at: i64,
}

/// A measurement, and the requests of the node's pods at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    pub load: Load,
    used: [i64; 2],
}

impl Cluster {
    /// Sets the measured load of a known node.
    pub fn set_load(&mut self, node: &str, load: Load) {
        let Some(id) = self.nodes.find(node) else { return };
        let used = [CPU, MEMORY].map(|place| self.nodes.cell(id, place).used);
        self.oldest_load = Some(self.oldest_load.map_or(load.at, |oldest| oldest.min(load.at)));
        self.measured(id, Some(Measured { load, used }));
    }

    /// Drops measurements that are too old.
    pub(crate) fn forget_old_loads(&mut self, now: i64) {
        let stale = |at: i64| at + STALE_AFTER_S < now;
        if !self.oldest_load.is_some_and(stale) {
            return;
        }
        self.oldest_load = None;
        for id in self.nodes.ids() {
            match self.nodes.get(id).measured.map(|measured| measured.load.at) {
                Some(at) if stale(at) => self.measured(id, None),
                Some(at) => self.oldest_load = Some(self.oldest_load.map_or(at, |oldest| oldest.min(at))),
                None => {}
            }
        }
    }

    fn measured(&mut self, id: NodeId, measured: Option<Measured>) {
        let refused = self.overloaded(self.nodes.get(id)).is_some();
        let state = self.nodes.state_mut(id);
        state.measured = measured;
        state.version += 1;
        self.nodes.note(id);
        if refused && self.overloaded(self.nodes.get(id)).is_none() {
            self.freed();
        }
    }

    /// Why the node takes no pods while it is so busy.
    pub(crate) fn overloaded(&self, node: &NodeState) -> Option<Misfit> {
        self.policy.usage.as_ref()?.refuses(&node.measured?.load)
    }

    /// Points of a node by its idle part; none without a measurement.
    pub(crate) fn usage_score(&self, node: NodeId) -> i64 {
        let Some(policy) = self.policy.usage.as_ref().filter(|policy| policy.weight != 0) else { return 0 };
        let Some(measured) = self.nodes.get(node).measured else { return 0 };
        let weights = policy.cpu_weight + policy.memory_weight;
        if weights == 0 {
            return 0;
        }
        let idle = |place: usize, load: i64, used: i64| {
            let cell = self.nodes.cell(node, place);
            let since = (cell.used - used).clamp(0, cell.allocatable.max(0));
            let since = if since == 0 { 0 } else { parts(since, cell.allocatable) };
            (FULL - load.clamp(0, BUSY) * (FULL / BUSY) - since).max(0)
        };
        let [cpu_used, memory_used] = measured.used;
        let cpu = idle(CPU, measured.load.cpu, cpu_used);
        let memory = idle(MEMORY, measured.load.memory, memory_used);
        policy.weight * ((cpu * policy.cpu_weight + memory * policy.memory_weight) / weights)
    }
}

//! Measured loads of nodes, as they come and grow old.

use super::Cluster;
use crate::amounts::{CPU, MEMORY};
use crate::ids::NodeId;
use crate::plugins::rules::On;
use crate::settings::Hook;
use crate::usage::{Load, Measured, STALE_AFTER_S};

impl Cluster {
    /// Sets the measured load of a known node.
    pub fn set_load(&mut self, node: &str, load: Load) {
        let Some(id) = self.nodes.find(node) else { return };
        let used = [CPU, MEMORY].map(|place| self.nodes.cell(id, place).used);
        self.oldest_load = Some(self.oldest_load.map_or(load.at, |oldest| oldest.min(load.at)));
        self.measured(id, Some(Measured { load, used }));
        let period =
            self.policy.plugins.rescheduling.as_ref().and_then(|plugin| plugin.rules.metrics_period_s());
        keep(&mut self.nodes.state_mut(id).recent, load, period);
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
                Some(at) if stale(at) => {
                    self.measured(id, None);
                    self.nodes.state_mut(id).recent.clear();
                }
                Some(at) => self.oldest_load = Some(self.oldest_load.map_or(at, |oldest| oldest.min(at))),
                None => {}
            }
        }
    }

    fn measured(&mut self, id: NodeId, measured: Option<Measured>) {
        let refused = self.is_overloaded(id);
        let node = self.nodes.state_mut(id);
        node.measured = measured;
        node.version += 1;
        self.nodes.note(id);
        if refused && !self.is_overloaded(id) {
            self.freed();
        }
    }

    fn is_overloaded(&self, id: NodeId) -> bool {
        let usage = On::at(&self.policy.plugins.usage, Hook::Predicate);
        usage.is_some_and(|usage| usage.refuses(self.nodes.get(id)).is_some())
    }
}

/// Readings that are kept for one period; of more, some are left out.
const KEPT: i64 = 60;

fn keep(recent: &mut Vec<Load>, load: Load, period_s: Option<i64>) {
    let Some(period_s) = period_s else { return recent.clear() };
    recent.retain(|known| known.at > load.at - period_s);
    let step = (period_s / KEPT).max(1);
    if recent.last().is_none_or(|last| last.at + step <= load.at) {
        recent.push(load);
    }
}

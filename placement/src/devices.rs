//! Sharing of devices.
//!
//! Devices are counted in thousandths ([`DeviceNode`], [`DeviceTask`]), or as cards with memory and cores
//! ([`Card`], [`Ask`]). `fragments` says how much of the free capacity of a node the usual tasks could not use.
//! [`least_fragments`] places a task where that grows least. [`choose`] chooses cards of one node; with
//! [`Choice::Usable`] by the same measure.

mod cards;
mod fragments;
#[cfg(test)]
mod tests;
mod usual;

pub use cards::{
    ALL_CORES, Ask, Card, Choice, Load, Loads, MOST_CARDS, Part, Sharing, cards_by_memory, choose,
    count_parts,
};
pub use fragments::{Demand, Growth, Measure, first_by_fragments, least_fragments};
pub use usual::Usual;

/// One whole device.
pub const WHOLE: i64 = 1000;

/// What is free on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNode {
    /// Millicores.
    pub cpu: i64,
    /// In any unit, the same as the tasks'.
    pub memory: i64,
    /// Thousandths of each device.
    pub devices: Vec<i64>,
    pub model: String,
}

/// The request of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceTask {
    pub cpu: i64,
    pub memory: i64,
    /// Number of devices.
    pub count: usize,
    /// Thousandths of each; below [`WHOLE`] only for a single one.
    pub share: i64,
    /// Models it may run on; empty: any.
    pub models: Vec<String>,
}

impl DeviceTask {
    /// Thousandths in all.
    pub fn total(&self) -> i64 {
        self.share * i64::try_from(self.count).unwrap_or(i64::MAX)
    }

    fn admits(&self, model: &str) -> bool {
        self.count == 0 || self.models.is_empty() || self.models.iter().any(|allowed| allowed == model)
    }
}

impl DeviceNode {
    /// Whether the task could start here now.
    pub fn fits(&self, task: &DeviceTask) -> bool {
        self.cpu >= task.cpu
            && self.memory >= task.memory
            && task.admits(&self.model)
            && self.devices.iter().filter(|free| **free >= task.share).count() >= task.count
    }

    /// Thousandths free on all devices.
    pub fn free(&self) -> i64 {
        self.devices.iter().sum()
    }

    /// Uses the capacity of these devices (by position) for a task.
    ///
    /// # Panics
    /// A position outside the node's devices.
    pub fn take(&mut self, task: &DeviceTask, devices: &[usize]) {
        self.cpu -= task.cpu;
        self.memory -= task.memory;
        for device in devices {
            self.devices[*device] -= task.share;
        }
    }

    /// The fullest devices with enough capacity: the positions that a packing of parts uses. `None` if the task
    /// does not fit.
    pub fn tightest(&self, task: &DeviceTask) -> Option<Vec<usize>> {
        if !self.fits(task) {
            return None;
        }
        let mut open: Vec<usize> =
            (0..self.devices.len()).filter(|device| self.devices[*device] >= task.share).collect();
        open.sort_by_key(|device| (self.devices[*device], *device));
        open.truncate(task.count);
        Some(open)
    }
}

//! Fragmentation of devices, and placement by its gradient: Weng et al., "Beware of Fragmentation", ATC'23.
//!
//! What is free of a node's devices is a fragment for a task that cannot start there (all of it), or that can
//! start but finds a device too full (that device). Weighted by how often each kind of task comes, this is
//! what the node is expected to waste; a task goes where it makes that grow least.

use std::collections::BTreeMap;

use super::{DeviceNode, DeviceTask, WHOLE};

/// What counts as a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The paper's: what the next task of a kind cannot use.
    Next,
    /// What is left after the node has been filled with tasks of the kind: it sees that a node will run out of
    /// processors while devices are free, before the last task that fits has come.
    Filled,
}

/// By how much a task makes fragments grow on a node, and the devices on which it grows least.
pub type Growth = (i64, Vec<usize>);

/// The kinds of tasks that come, and how often.
#[derive(Clone, Debug)]
pub struct Demand {
    kinds: Vec<(DeviceTask, i64)>,
    sum: i64,
    measure: Measure,
}

impl Demand {
    /// Counts the tasks by what they ask of processors and devices.
    pub fn of<'t>(measure: Measure, tasks: impl IntoIterator<Item = &'t DeviceTask>) -> Self {
        let mut kinds: BTreeMap<DeviceTask, i64> = BTreeMap::new();
        for task in tasks {
            // Memory decides where a task fits, not what is a fragment of a device.
            *kinds.entry(DeviceTask { memory: 0, ..task.clone() }).or_default() += 1;
        }
        Self::weighted(measure, kinds)
    }

    /// Kinds of tasks, each with how often it comes.
    pub fn weighted(measure: Measure, kinds: impl IntoIterator<Item = (DeviceTask, i64)>) -> Self {
        let kinds: Vec<(DeviceTask, i64)> = kinds.into_iter().collect();
        let sum = kinds.iter().map(|(_, weight)| weight).sum();
        Self { kinds, sum, measure }
    }

    /// Thousandths of devices that the usual tasks are expected to leave unused, times [`Self::weight`].
    pub fn fragments(&self, node: &DeviceNode) -> i64 {
        let free = node.free();
        self.kinds
            .iter()
            .map(|(task, weight)| {
                let wasted = if task.count == 0 || !node.fits(task) {
                    free
                } else if self.measure == Measure::Filled {
                    free - fillable(node, task)
                } else {
                    node.devices.iter().filter(|device| **device < task.share.min(WHOLE)).sum()
                };
                wasted * weight
            })
            .sum()
    }

    /// The sum of all weights.
    pub fn weight(&self) -> i64 {
        self.sum
    }

    /// The devices of this node on which the task makes fragments grow least, and by how much (negative:
    /// they shrink). `None` when it does not fit.
    pub fn growth(&self, node: &DeviceNode, task: &DeviceTask) -> Option<Growth> {
        if !node.fits(task) {
            return None;
        }
        let before = self.fragments(node);
        let grown = |devices: &[usize]| {
            let mut after = node.clone();
            after.take(task, devices);
            self.fragments(&after) - before
        };
        if task.count != 1 || task.share == WHOLE {
            let devices = node.tightest(task)?;
            return Some((grown(&devices), devices));
        }
        let mut best: Option<Growth> = None;
        for device in 0..node.devices.len() {
            // Devices that are equally free are one choice.
            let free = node.devices[device];
            if free < task.share || node.devices[..device].contains(&free) {
                continue;
            }
            let growth = grown(&[device]);
            if best.as_ref().is_none_or(|(known, _)| growth < *known) {
                best = Some((growth, vec![device]));
            }
        }
        best
    }
}

/// Thousandths that a node can give to tasks of one kind, which asks for devices and fits.
fn fillable(node: &DeviceNode, task: &DeviceTask) -> i64 {
    let count = i64::try_from(task.count).unwrap_or(i64::MAX);
    let by_devices = node.devices.iter().map(|free| free / task.share.max(1)).sum::<i64>() / count;
    let by_processors = if task.cpu > 0 { node.cpu / task.cpu } else { i64::MAX };
    by_devices.min(by_processors) * task.total()
}

/// Where the task makes fragments grow least: the node's position and devices. Ties go to the fullest node.
pub fn least_fragments(
    nodes: &[DeviceNode],
    task: &DeviceTask,
    growth: &mut dyn FnMut(&DeviceNode, &DeviceTask) -> Option<Growth>,
) -> Option<(usize, Vec<usize>)> {
    let fitting = nodes.iter().enumerate().filter_map(|(position, node)| {
        let (grown, devices) = growth(node, task)?;
        Some(((grown, node.free(), node.cpu), position, devices))
    });
    let best = fitting.min_by(|a, b| a.0.cmp(&b.0));
    best.map(|(_, position, devices)| (position, devices))
}

/// The first node with the most points of a hundred, on a logistic curve of how much fragments shrink there for each unit of
/// the demand's `weight`: FGD as the simulator of the paper's authors scores it. A growth that differs by less than a point
/// is the same there, and pods without devices, which are usual ones too, move where on the curve the others stand.
pub fn first_by_fragments(
    nodes: &[DeviceNode],
    task: &DeviceTask,
    weight: i64,
    growth: &mut dyn FnMut(&DeviceNode, &DeviceTask) -> Option<Growth>,
) -> Option<(usize, Vec<usize>)> {
    let whole = (weight * WHOLE) as f64;
    let mut best: Option<(i64, usize, Vec<usize>)> = None;
    for (position, node) in nodes.iter().enumerate() {
        let Some((grown, devices)) = growth(node, task) else { continue };
        let points = (100.0 / (1.0 + (grown as f64 / whole).exp())) as i64;
        if best.as_ref().is_none_or(|(most, ..)| points > *most) {
            best = Some((points, position, devices));
        }
    }
    best.map(|(_, position, devices)| (position, devices))
}

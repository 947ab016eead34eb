//! Which classes wait for which limit, shape or reservation.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::ClusterName;
use crate::queues::{ClassId, Queues, Stop};
use fleet_quota_tree::NodeId;

/// Classes by what stopped them. Entries may be out of date; the class itself is the truth.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// By limit of the ledger and the capacity needed under it.
    pub bounds: BTreeMap<(usize, i64), BTreeSet<ClassId>>,
    /// By shape that no cluster can hold now.
    pub shapes: BTreeMap<u64, Vec<ClassId>>,
    /// Shapes that no cluster could hold until places were freed in these.
    pub opened: BTreeMap<u64, BTreeSet<ClusterName>>,
    /// Classes against which capacity is reserved.
    pub kept: Vec<ClassId>,
}

impl Index {
    pub fn is_placeless(&self, shape: u64) -> bool {
        self.shapes.contains_key(&shape)
    }

    /// Number of shapes that no cluster can hold now.
    pub fn placeless(&self) -> usize {
        self.shapes.len()
    }

    /// Records what stopped a class.
    pub fn stop(&mut self, queues: &mut Queues, id: ClassId, stop: Stop) {
        let Some(class) = queues.class_mut(id) else { return };
        // A class that quota does not stop is not listed: whoever frees quota walks what is.
        let listed = match &stop {
            Stop::Quota { bound, need } => Some((*bound, *need)),
            _ => None,
        };
        let before = std::mem::replace(&mut class.listed, listed);
        if before != listed {
            if let Some(classes) = before.and_then(|key| self.bounds.get_mut(&key)) {
                classes.remove(&id);
            }
            if let Some(key) = listed {
                self.bounds.entry(key).or_default().insert(id);
            }
        }
        match &stop {
            Stop::None | Stop::Quota { .. } => {}
            Stop::Place => {
                self.opened.remove(&class.key.shape);
                self.shapes.entry(class.key.shape).or_default().push(id);
            }
            Stop::Kept(_) => self.kept.push(id),
        }
        class.stop = stop;
    }

    /// Leaves of classes that a limit no longer stops.
    pub fn under(&mut self, queues: &Queues, bound: usize, room: i64) -> Vec<NodeId> {
        let mut leaves: Vec<NodeId> = Vec::new();
        let mut empty = Vec::new();
        for (key, classes) in self.bounds.range_mut((bound, i64::MIN)..=(bound, room)) {
            classes.retain(|id| {
                let class = queues.class(*id).filter(|class| class.listed == Some(*key));
                if let Some(class) = class.filter(|class| matches!(class.stop, Stop::Quota { .. }))
                    && leaves.last() != Some(&class.key.leaf)
                {
                    leaves.push(class.key.leaf);
                }
                class.is_some()
            });
            if classes.is_empty() {
                empty.push(*key);
            }
        }
        for key in empty {
            self.bounds.remove(&key);
        }
        leaves
    }
}

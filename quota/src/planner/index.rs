//! What can be unblocked by what: an event looks at the leaves found here only.

use std::collections::{BTreeMap, BTreeSet};

use super::Planner;
use crate::ledger::{AdmittedJob, JobId};
use crate::places::{ClusterName, Places};
use crate::queues::{ClassId, Queues, Stop};
use crate::tree::NodeId;

/// Classes by what stopped them. Entries may be out of date: the class knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// By bound of the ledger and the room needed there.
    bounds: BTreeMap<(usize, i64), Vec<ClassId>>,
    /// By shape that no cluster holds now.
    shapes: BTreeMap<u64, Vec<ClassId>>,
    /// Shapes that no cluster held until places became free in these.
    opened: BTreeMap<u64, BTreeSet<ClusterName>>,
    /// Those from whom room is kept.
    kept: Vec<ClassId>,
}

impl Index {
    pub fn is_placeless(&self, shape: u64) -> bool {
        self.shapes.contains_key(&shape)
    }

    /// Shapes that no cluster holds now.
    pub fn placeless(&self) -> usize {
        self.shapes.len()
    }

    /// Writes down what stopped a class.
    pub fn stop(&mut self, queues: &mut Queues, id: ClassId, stop: Stop) {
        let Some(class) = queues.class_mut(id) else { return };
        match &stop {
            Stop::None => {}
            Stop::Quota { bound, need } => {
                let key = (*bound, *need);
                if class.listed != Some(key) {
                    class.listed = Some(key);
                    self.bounds.entry(key).or_default().push(id);
                }
            }
            Stop::Place => {
                self.opened.remove(&class.key.shape);
                self.shapes.entry(class.key.shape).or_default().push(id);
            }
            Stop::Kept(_) => self.kept.push(id),
        }
        class.stop = stop;
    }

    /// Leaves of classes that a bound no longer stops.
    fn under(&mut self, queues: &Queues, bound: usize, room: i64) -> Vec<NodeId> {
        let mut leaves = Vec::new();
        let mut empty = Vec::new();
        for (key, classes) in self.bounds.range_mut((bound, i64::MIN)..=(bound, room)) {
            classes.retain(|id| {
                let class = queues.class(*id).filter(|class| class.listed == Some(*key));
                if let Some(class) = class.filter(|class| matches!(class.stop, Stop::Quota { .. })) {
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

impl Planner {
    pub(super) fn look_at(&mut self, leaf: NodeId) {
        self.dirty.insert(leaf);
        self.touched.insert(leaf);
    }

    /// A job came into the ledger.
    pub(super) fn room_shrank(&mut self, leaf: NodeId) {
        self.version += 1;
        self.takers.insert(leaf);
        self.contest.used_changed(&self.ledger, leaf);
        self.dirty.extend(self.contest.now_borrowing(&self.ledger, leaf));
    }

    /// A job left the ledger.
    pub(super) fn room_grew(&mut self, job: &AdmittedJob) {
        self.version += 1;
        let tree = self.ledger.tree().clone();
        let request = tree.request(&job.request);
        for bound in self.ledger.bounds_of(job.leaf, &request) {
            // Where part of a min is not lent, what a job needs depends on more.
            let room = if tree.keeps_back() { i64::MAX } else { self.ledger.room_under(bound) };
            self.dirty.extend(self.index.under(&self.queues, bound, room));
        }
        self.contest.used_changed(&self.ledger, job.leaf);
        self.dirty.extend(self.contest.now_inside(&self.ledger, job.leaf));
        self.watch_takers(job.leaf);
        self.wake_kept();
    }

    /// The leaf uses less: it, and whom a node above lends its min to, may be
    /// inside min again.
    fn watch_takers(&mut self, leaf: NodeId) {
        self.takers.insert(leaf);
        let tree = self.ledger.tree().clone();
        let lender = tree.path_to_root(leaf).filter(|node| crate::victims::lends_min(&tree, *node)).last();
        let mut open: Vec<NodeId> = lender.into_iter().collect();
        while let Some(node) = open.pop() {
            open.extend(&tree.node(node).children);
            if tree.node(node).is_leaf() {
                self.takers.insert(node);
            }
        }
    }

    /// What is kept from others may have become less.
    pub(super) fn wake_kept(&mut self) {
        let kept = std::mem::take(&mut self.index.kept);
        self.wake(kept, &Stop::Kept(JobId::new("")));
    }

    /// What stopped these classes does so no more, if it is of that kind.
    fn wake(&mut self, classes: Vec<ClassId>, kind: &Stop) {
        for id in classes {
            let Some(class) = self.queues.class_mut(id) else { continue };
            if std::mem::discriminant(&class.stop) == std::mem::discriminant(kind) {
                class.stop = Stop::None;
                self.dirty.insert(class.key.leaf);
                self.touched.insert(class.key.leaf);
            }
        }
    }

    /// More is kept from others; from some less, as the victims of one more taker leave room beside it: the
    /// next plan asks these again.
    pub(super) fn holds_grew(&mut self) {
        self.version += 1;
        self.ask_kept_again();
    }

    pub(super) fn ask_kept_again(&mut self) {
        self.dirty.extend(self.contest.leaves_below(self.ledger.tree(), NodeId::ROOT));
        self.kept_changed = true;
    }

    /// The job starts or leaves: nothing is kept for it any more.
    pub(super) fn drop_holds(&mut self, id: &JobId) {
        let took = self.holds.end_taking(id);
        let claim = self.holds.claims.iter().find(|(_, claim)| claim.job == *id).map(|(leaf, _)| *leaf);
        if let Some(leaf) = claim {
            self.holds.claims.remove(&leaf);
            self.watches.claim_again(leaf);
        }
        if took || claim.is_some() {
            self.version += 1;
            self.wake_kept();
        }
    }

    /// The last job of a shape may have left.
    pub(super) fn forget_shape(&mut self, shape: u64) {
        if !self.queues.has_shape(shape) {
            self.index.shapes.remove(&shape);
            self.index.opened.remove(&shape);
        }
    }

    /// Places were taken: shapes that fitted only there may fit nowhere again. One question a shape, where each
    /// leaf would find it out for itself.
    pub(super) fn close_shapes(&mut self, places: &mut dyn Places) {
        let queues = &self.queues;
        let closed = self.index.opened.extract_if(.., |shape, clusters| {
            let job = queues.one_of_shape(*shape);
            !job.is_some_and(|job| clusters.iter().any(|cluster| places.fits_without(&[job], cluster, &[])))
        });
        for (shape, _) in closed {
            self.index.shapes.entry(shape).or_default();
        }
    }

    /// Jobs whose pause is over are in the running again.
    pub(super) fn end_pauses(&mut self, now_ms: i64) {
        while let Some((until_ms, id)) = self.pauses.first().cloned() {
            if until_ms > now_ms {
                break;
            }
            self.pauses.pop_first();
            if self.holds.of(&id) {
                continue;
            }
            self.queues.set_running(&id);
            if let Some(leaf) = self.queues.get(&id).map(|job| job.leaf) {
                self.look_at(leaf);
                self.takers.insert(leaf);
            }
        }
    }

    /// Jobs that rested after taking may take again.
    pub(super) fn end_rests(&mut self, now_ms: i64) {
        for id in self.retakes.end(now_ms) {
            if let Some(job) = self.queues.get(&id) {
                self.takers.insert(job.leaf);
                self.version += 1;
            }
        }
    }

    /// Jobs that were protected may be taken: whoever would is asked again.
    pub(super) fn end_protections(&mut self, now_ms: i64) {
        while self.protections.first().is_some_and(|until_ms| *until_ms <= now_ms) {
            self.protections.pop_first();
            self.version += 1;
        }
    }

    /// Asks those anew from whom room is kept, where takings began in the last plan.
    pub(super) fn read_kept(&mut self) {
        if std::mem::take(&mut self.kept_changed) {
            self.wake_kept();
        }
    }

    /// Asks once a shape whether a cluster with free places holds it now.
    pub(super) fn read_freed(&mut self, places: &mut dyn Places) {
        let freed = std::mem::take(&mut self.freed);
        let all = std::mem::take(&mut self.places_changed);
        if freed.is_empty() && !all {
            return;
        }
        self.wake_kept();
        self.watches.places_changed(all);
        if all {
            self.drop_lost_claims(places);
        }
        if all {
            self.index.opened.clear();
        } else {
            self.index.opened.values_mut().for_each(|clusters| clusters.extend(freed.iter().cloned()));
        }
        let shapes: Vec<u64> = self.index.shapes.keys().copied().collect();
        for shape in shapes {
            let Some(job) = self.queues.one_of_shape(shape) else {
                self.index.shapes.remove(&shape);
                continue;
            };
            let mut holds = |cluster: &&ClusterName| places.fits_without(&[job], cluster, &[]);
            let open: BTreeSet<ClusterName> = match all {
                true => BTreeSet::new(),
                false => freed.iter().filter(&mut holds).cloned().collect(),
            };
            if !all && open.is_empty() {
                continue;
            }
            if !all {
                self.index.opened.insert(shape, open);
            }
            if let Some(classes) = self.index.shapes.remove(&shape) {
                self.wake(classes, &Stop::Place);
            }
        }
    }
}

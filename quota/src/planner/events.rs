//! Which event can unblock which leaves: an event marks only the leaves found here.

use std::collections::BTreeSet;

use super::state::Planner;
use crate::ledger::AdmittedJob;
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::queues::{ClassId, Stop};
use fleet_quota_tree::NodeId;

impl Planner {
    pub(super) fn look_at(&mut self, leaf: NodeId) {
        self.dirty.insert(leaf);
        self.touched.insert(leaf);
    }

    /// A job was added to the ledger.
    pub(super) fn room_shrank(&mut self, leaf: NodeId) {
        self.version += 1;
        self.preemptors.insert(leaf);
        self.contest.used_changed(&self.ledger, leaf);
        self.dirty.extend(self.contest.now_borrowing(&self.ledger, leaf));
    }

    /// A job left the ledger.
    pub(super) fn room_grew(&mut self, job: &AdmittedJob) {
        self.version += 1;
        let tree = self.ledger.tree().clone();
        let request = tree.request(&job.request);
        for bound in self.ledger.bounds_of(job.leaf, &request) {
            // If part of a min is not lent, a job's need depends on other nodes.
            let room = if tree.keeps_back() { i64::MAX } else { self.ledger.room_under(bound) };
            self.dirty.extend(self.index.under(&self.queues, bound, room));
        }
        self.contest.used_changed(&self.ledger, job.leaf);
        self.dirty.extend(self.contest.now_inside(&self.ledger, job.leaf));
        self.watch_preemptors(job.leaf);
        self.wake_kept();
    }

    /// The leaf uses less: its jobs, and those to which a node above lends its min, may be inside min again.
    fn watch_preemptors(&mut self, leaf: NodeId) {
        self.preemptors.insert(leaf);
        let tree = self.ledger.tree().clone();
        let lender = tree.path_to_root(leaf).filter(|node| tree.node(*node).lends_min).last();
        let mut open: Vec<NodeId> = lender.into_iter().collect();
        while let Some(node) = open.pop() {
            open.extend(&tree.node(node).children);
            if tree.node(node).is_leaf() {
                self.preemptors.insert(node);
            }
        }
    }

    /// Less may be reserved now.
    pub(super) fn wake_kept(&mut self) {
        let kept = std::mem::take(&mut self.index.kept);
        self.wake(kept, &Stop::Kept(JobId::new("")));
    }

    /// Wakes the classes that are still stopped by this kind of reason.
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

    /// More is reserved now. For some jobs it is less, because victims of one more preemptor leave capacity beside
    /// it. The next plan considers these again.
    pub(super) fn holds_grew(&mut self) {
        self.version += 1;
        self.ask_kept_again();
    }

    pub(super) fn ask_kept_again(&mut self) {
        self.dirty.extend(self.contest.leaves_below(self.ledger.tree(), NodeId::ROOT));
        self.kept_changed = true;
    }

    /// The job starts or leaves: its reservations end.
    pub(super) fn drop_holds(&mut self, id: &JobId) {
        let preempted = self.holds.end_preemption(id);
        let claim = self.holds.claims.iter().find(|(_, claim)| claim.job == *id).map(|(leaf, _)| *leaf);
        if let Some(leaf) = claim {
            self.holds.claims.remove(&leaf);
            self.watches.claim_again(leaf);
            self.unclaimed.extend(self.queues.lines().map(|(leaf, _)| leaf));
        }
        if preempted || claim.is_some() {
            self.version += 1;
            self.wake_kept();
        }
    }

    /// The last job of a shape may have left.
    pub(super) fn forget_shape(&mut self, shape: u64) {
        if !self.queues.has_shape(shape) {
            self.index.shapes.remove(&shape);
            self.index.opened.remove(&shape);
            self.watches.forget_nowhere(shape);
        }
    }

    /// Places were taken: shapes that fitted only there may fit nowhere again. Asks once for each shape, instead of
    /// once for each leaf.
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

    /// Jobs whose back-off is over are candidates again.
    pub(super) fn end_pauses(&mut self, now_ms: i64) {
        while let Some((until_ms, id)) = self.pauses.first().cloned() {
            if until_ms > now_ms {
                break;
            }
            self.pauses.pop_first();
            if !self.holds.of(&id) {
                self.search_again(&id);
            }
        }
    }

    /// Jobs that backed off after a preemption may preempt again.
    pub(super) fn end_backoffs(&mut self, now_ms: i64) {
        for id in self.backoffs.end(now_ms) {
            if let Some(job) = self.queues.get(&id) {
                self.preemptors.insert(job.leaf);
                self.version += 1;
            }
        }
    }

    /// Protected jobs became candidates: jobs that could preempt them are considered again.
    pub(super) fn end_protections(&mut self, now_ms: i64) {
        while self.protections.first().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            let Some((_, id)) = self.protections.pop_first() else { return };
            if let Some(class) = self.queues.class_mut(id) {
                class.missed = None;
                self.preemptors.insert(class.key.leaf);
            }
        }
    }

    /// Considers the classes again against which capacity is reserved, if preemptions began in the last plan.
    pub(super) fn read_kept(&mut self) {
        if std::mem::take(&mut self.kept_changed) {
            self.wake_kept();
        }
    }

    /// Asks once for each shape whether a cluster with freed places can hold it now.
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
            if !all {
                let holds = |cluster: &&ClusterName| places.fits_without(&[job], cluster, &[]);
                let open: BTreeSet<ClusterName> = freed.iter().filter(holds).cloned().collect();
                if open.is_empty() {
                    continue;
                }
                self.index.opened.insert(shape, open);
            }
            if let Some(classes) = self.index.shapes.remove(&shape) {
                self.wake(classes, &Stop::Place);
            }
        }
    }
}

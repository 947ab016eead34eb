//! Replacing the quota tree under running and waiting jobs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::holds::{Claiming, Holds, Preemption};
use super::starts::evicted_key;
use super::state::Planner;
use super::watches::Watches;
use crate::ledger::{AdmittedJob, Ledger};
use crate::names::JobId;
use crate::queues::{Queues, WaitingJob};
use fleet_quota_tree::{NodeId, QuotaTree};

/// The effects of an edit of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeEdit {
    /// Paths of deleted leaves that stay until their jobs have ended.
    pub draining: Vec<String>,
    /// Waiting jobs that have no leaf now; they no longer wait.
    pub homeless: Vec<WaitingJob>,
}

impl Planner {
    /// Puts a new tree in force at once. `leaf_of` gives a job's leaf in it, by label and namespace. An admitted
    /// job without a leaf counts where it was: the deleted leaf stays as a draining leaf, without min and max,
    /// below its nearest ancestor that still exists. Preemptions and claims go on if the new tree could ever admit
    /// their jobs. Victims that are ending still end.
    pub fn set_tree(
        &mut self,
        tree: QuotaTree,
        leaf_of: &mut dyn FnMut(&QuotaTree, &JobId) -> Option<NodeId>,
    ) -> TreeEdit {
        let mut tree = tree;
        let mut edit = TreeEdit::default();
        let old = Arc::clone(self.ledger.tree());
        let mut running = Vec::new();
        for job in self.ledger.jobs() {
            let leaf = leaf_of(&tree, &job.id).unwrap_or_else(|| tree.drain(&old.node(job.leaf).path));
            running.push(AdmittedJob { leaf, ..job.clone() });
        }
        edit.draining =
            tree.ids().filter(|id| tree.node(*id).draining).map(|id| tree.node(id).path.clone()).collect();
        let tree = Arc::new(tree);
        let queues = std::mem::take(&mut self.queues);
        let passed: Vec<(JobId, i64)> = self.watches.passed().collect();
        let mut fresh = Self::new(Arc::clone(&tree));
        fresh.ledger = Ledger::new(Arc::clone(&tree));
        fresh.watches = Watches::new(tree.len());
        for job in running {
            fresh.admit(job);
        }
        fresh.ending = std::mem::take(&mut self.ending);
        let evicted = self.evicted.iter().filter_map(|(.., id)| fresh.ledger.job(id));
        fresh.evicted = evicted.map(evicted_key).collect();
        fresh.backoffs = std::mem::take(&mut self.backoffs);
        fresh.fresh = std::mem::take(&mut self.fresh);
        (fresh.started, fresh.started_at_ms) = (std::mem::take(&mut self.started), self.started_at_ms);
        fresh.places_changed = true;
        fresh.version = self.version + 1;
        fresh.keep_policies(&old, &queues);
        for job in queues.jobs() {
            match leaf_of(&tree, &job.id).filter(|leaf| !tree.node(*leaf).draining) {
                Some(leaf) => fresh.enqueue(WaitingJob { leaf, ..job.clone() }),
                None => edit.homeless.push(job.clone()),
            }
        }
        fresh.carry_holds(&old, std::mem::take(&mut self.holds));
        fresh.shared = std::mem::take(&mut self.shared);
        let behind = std::mem::take(&mut self.behind).into_iter();
        fresh.behind = behind.filter(|(id, _)| fresh.queues.get(id).is_some()).collect();
        for (id, past) in self.watches.all_past() {
            if fresh.queues.get(id).is_some() {
                fresh.watches.set_past(id, past);
            }
        }
        for (id, since_ms) in passed {
            if let Some(job) = fresh.queues.get(&id) {
                fresh.watches.carry(&tree, job, since_ms);
            }
        }
        *self = fresh;
        edit
    }

    /// Where to count a job that was admitted in a leaf of an older tree, at `path`. If necessary a draining leaf
    /// is made for it. It stays until its jobs have ended.
    pub fn drain(&mut self, path: &str) -> NodeId {
        let old = Arc::clone(self.ledger.tree());
        let mut tree = QuotaTree::clone(&old);
        let leaf = tree.drain(path);
        if tree.len() > old.len() {
            // Existing nodes keep their ids.
            let running = self.ledger.jobs().map(|job| (job.id.clone(), job.leaf));
            let waiting = self.queues.jobs().map(|job| (job.id.clone(), job.leaf));
            let leaves: BTreeMap<JobId, NodeId> = running.chain(waiting).collect();
            self.set_tree(tree, &mut |_, id| leaves.get(id).copied());
        }
        leaf
    }

    /// A draining leaf has no job left: setting the tree again removes it.
    pub fn has_drained(&self) -> bool {
        let tree = self.ledger.tree();
        tree.ids().any(|id| tree.node(id).draining && self.ledger.job_count(id) == 0)
    }

    fn carry_holds(&mut self, old: &QuotaTree, holds: Holds) {
        for preemption in holds.preemptions() {
            let Some(job) = self.queues.get(&preemption.job.id).filter(|job| !self.is_hopeless(job)).cloned()
            else {
                continue;
            };
            let left = preemption.left.iter().filter(|id| self.ledger.job(id).is_some()).cloned().collect();
            let request = self.ledger.tree().request(&job.request);
            self.queues.set_aside(&job.id, None);
            let preemption = Preemption { job, request, left, ..preemption.clone() };
            self.holds.begin_preemption(&self.ledger, preemption);
        }
        for claim in holds.claims.into_values() {
            let Some(job) = self.queues.get(&claim.job).filter(|job| !self.is_hopeless(job)).cloned() else {
                continue;
            };
            let tree = self.ledger.tree();
            let request = tree.request(&job.request);
            let idle = by_index(old, tree, &claim.idle);
            let idled = by_index(old, tree, &claim.idled);
            if let Entry::Vacant(slot) = self.holds.claims.entry(job.leaf) {
                slot.insert(Claiming { leaf: job.leaf, request, tried_at: None, idle, idled, ..claim });
                self.queues.set_aside(&job.id, None);
            }
        }
    }

    pub(super) fn is_hopeless(&self, job: &WaitingJob) -> bool {
        let request = self.ledger.tree().request(&job.request);
        self.ledger.is_hopeless(job.leaf, &request, job.preemptible)
    }

    fn keep_policies(&mut self, old: &QuotaTree, queues: &Queues) {
        let tree = Arc::clone(self.ledger.tree());
        for (leaf, line) in queues.lines() {
            if let Some(same) = tree.find(&old.node(leaf).path) {
                self.set_policy(same, line.policy);
            }
        }
    }
}

/// Amounts by the resource index of another tree. Resources that it does not name are left out.
fn by_index<A: Copy>(old: &QuotaTree, new: &QuotaTree, amounts: &[(usize, A)]) -> Vec<(usize, A)> {
    let names = old.resources();
    let known =
        amounts.iter().filter_map(|(r, amount)| Some((new.resource_index(names[*r].as_str())?, *amount)));
    known.collect()
}

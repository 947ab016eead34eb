//! Whose jobs make room for a job that may take it.
//!
//! Three rules, tried in this order. *Reclaim*: a job inside its leaf's min
//! takes from siblings of its path that are above theirs. *FairShare* (where
//! the root says so): a job above min takes from siblings that keep the larger
//! dominant share. *InQueuePriority*: in its own leaf, from lower priorities.
//! The search releases victims in the ledger, asks whether the job fits, puts
//! back whom it does not need, and restores the ledger before it answers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::{AdmittedJob, JobId, Ledger};
use crate::plan::{TakeRule, Victim};
use crate::queues::WaitingJob;
use crate::share::Share;
use crate::tree::{JOBS, NodeId, QuotaTree, Request};

/// On a leaf: from whom its jobs may reclaim: Any (default), LowerPriority, Never.
const RECLAIM: &str = "fleet.dev/reclaim";
/// On an inner node: `Subtree` lends its own min to any job below it.
const GUARANTEE: &str = "fleet.dev/guarantee";
/// On the root: `FairShare` lets borrowers take from larger borrowers.
const SHARE_PREEMPTION: &str = "fleet.dev/share-preemption";
/// On a leaf: LowerPriority (default), LowerOrNewerEqualPriority, Never.
const WITHIN: &str = "fleet.dev/preempt-within";

/// What taking a job costs, told by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VictimCost {
    /// Work since its last checkpoint, in milliseconds.
    pub lost_work_ms: i64,
}

/// The smallest ordered set of victims after which the quota path has room for
/// `taker`; `None` where no right leads there. The ledger is the same after the
/// call. `ending` are jobs on their way out: they come first.
pub fn find_victims(
    ledger: &mut Ledger,
    taker: &WaitingJob,
    ending: &BTreeSet<JobId>,
    cost: &dyn Fn(&AdmittedJob) -> VictimCost,
) -> Option<Vec<Victim>> {
    let request = ledger.tree().request(&taker.request);
    let mut search = Search {
        tree: std::sync::Arc::clone(ledger.tree()),
        running: candidates(ledger, ending, cost),
        ledger,
        taker,
        request,
    };
    let found = search.with_own(false).or_else(|| search.with_own(true));
    found.filter(|victims| !victims.is_empty())
}

/// Preemptible jobs by leaf, those to be taken first in front.
fn candidates(
    ledger: &Ledger,
    ending: &BTreeSet<JobId>,
    cost: &dyn Fn(&AdmittedJob) -> VictimCost,
) -> BTreeMap<NodeId, Vec<AdmittedJob>> {
    let mut by_leaf: BTreeMap<NodeId, Vec<AdmittedJob>> = BTreeMap::new();
    for job in ledger.jobs().filter(|job| job.preemptible) {
        by_leaf.entry(job.leaf).or_default().push(job.clone());
    }
    for jobs in by_leaf.values_mut() {
        jobs.sort_by_cached_key(|job| {
            let alive = !ending.contains(&job.id);
            (alive, job.priority, cost(job), Reverse(job.admitted_at_ms), job.id.clone())
        });
    }
    by_leaf
}

struct Search<'s> {
    tree: std::sync::Arc<QuotaTree>,
    ledger: &'s mut Ledger,
    taker: &'s WaitingJob,
    request: Request,
    running: BTreeMap<NodeId, Vec<AdmittedJob>>,
}

impl Search<'_> {
    /// One set, without or with victims in the taker's own leaf. Own victims
    /// count as gone from the start, so that they lower the taker's own use.
    fn with_own(&mut self, own: bool) -> Option<Vec<Victim>> {
        let own = if own { self.own_candidates() } else { Vec::new() };
        for job in &own {
            self.ledger.release(&job.id);
        }
        let mut taken: Vec<(AdmittedJob, TakeRule)> = Vec::new();
        while !self.fits() {
            let Some((job, rule)) = self.next() else { break };
            self.ledger.release(&job.id);
            taken.push((job, rule));
        }
        let fits = self.fits();
        taken.extend(own.into_iter().map(|job| (job, TakeRule::InQueuePriority)));
        let mut kept = Vec::new();
        for (job, rule) in taken.into_iter().rev() {
            self.ledger.admit(job.clone());
            if fits && !self.fits() {
                self.ledger.release(&job.id);
                kept.push((job, rule));
            }
        }
        kept.reverse();
        for (job, _) in &kept {
            self.ledger.admit(job.clone());
        }
        fits.then(|| {
            kept.into_iter().map(|(job, rule)| Victim { job: job.id, rule, lost_work_ms: 0 }).collect()
        })
    }

    fn fits(&self) -> bool {
        self.ledger.check_request(self.taker.leaf, &self.request, self.taker.preemptible).is_ok()
    }

    fn own_candidates(&self) -> Vec<AdmittedJob> {
        let within = self.attribute(self.taker.leaf, WITHIN);
        let jobs = self.running.get(&self.taker.leaf).into_iter().flatten();
        jobs.filter(|job| match within {
            "Never" => false,
            "LowerOrNewerEqualPriority" => {
                (job.priority, Reverse(job.admitted_at_ms))
                    < (self.taker.priority, Reverse(self.taker.enqueued_at_ms))
            }
            _ => job.priority < self.taker.priority,
        })
        .cloned()
        .collect()
    }

    fn next(&self) -> Option<(AdmittedJob, TakeRule)> {
        if let Some(job) = self.next_reclaimed() {
            return Some((job, TakeRule::Reclaim));
        }
        let job = self.next_by_share()?;
        Some((job, TakeRule::FairShare))
    }

    fn next_reclaimed(&self) -> Option<AdmittedJob> {
        let right = self.attribute(self.taker.leaf, RECLAIM);
        let may_take = |job: &AdmittedJob| right != "LowerPriority" || job.priority < self.taker.priority;
        let mut guaranteed = right != "Never" && self.ledger.node_inside_min(self.taker.leaf, &self.request);
        for node in self.tree.path_to_root(self.taker.leaf) {
            let subtree = node != NodeId::ROOT && self.attribute(node, GUARANTEE) == "Subtree";
            guaranteed |= right != "Never" && subtree && self.ledger.node_inside_min(node, &self.request);
            if !guaranteed {
                continue;
            }
            for sibling in self.siblings(node) {
                if let Some(job) = self.first_below(sibling, &may_take) {
                    return Some(job);
                }
            }
        }
        None
    }

    /// Those whose share stays at least the taker's after the victim left; only
    /// when there is none, those whose share is larger before.
    fn next_by_share(&self) -> Option<AdmittedJob> {
        let on = self.attribute(NodeId::ROOT, SHARE_PREEMPTION) == "FairShare";
        if !on || self.ledger.node_inside_min(self.taker.leaf, &self.request) {
            return None;
        }
        let none = Request::default();
        let path = || self.tree.path_to_root(self.taker.leaf).filter(|node| *node != NodeId::ROOT);
        let own = |node| Share::after(self.ledger, node, &self.request, 1);
        for node in path() {
            for sibling in self.siblings(node) {
                let stays_larger = |job: &AdmittedJob| {
                    let leaving = self.tree.request(&job.request);
                    Share::after(self.ledger, sibling, &leaving, -1) >= own(node)
                };
                if let Some(job) = self.first_below(sibling, &stays_larger) {
                    return Some(job);
                }
            }
        }
        for node in path() {
            for sibling in self.siblings(node) {
                if Share::after(self.ledger, sibling, &none, 0) > own(node)
                    && let Some(job) = self.first_below(sibling, &|_| true)
                {
                    return Some(job);
                }
            }
        }
        None
    }

    /// The node's siblings above their min, the largest share first.
    fn siblings(&self, node: NodeId) -> Vec<NodeId> {
        let Some(parent) = self.tree.node(node).parent else {
            return Vec::new();
        };
        let children = self.tree.node(parent).children.iter().copied();
        self.largest_first(children.filter(|child| *child != node))
    }

    fn largest_first(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let mut found: Vec<NodeId> = nodes.filter(|node| self.is_above_min(*node)).collect();
        found.sort_by(|a, b| {
            let share = |node| Share::after(self.ledger, node, &Request::default(), 0);
            share(*b).cmp(&share(*a)).then_with(|| self.tree.node(*a).path.cmp(&self.tree.node(*b).path))
        });
        found
    }

    /// In a resource that the taker needs.
    fn is_above_min(&self, node: NodeId) -> bool {
        let asked = self.request.amounts.iter().filter(|(r, _)| *r != JOBS);
        asked.into_iter().any(|(r, _)| self.ledger.used_at(node, *r) > self.tree.min_at(node, *r))
    }

    /// The first job below `node` that may be taken, in children above their
    /// min only. The stack holds nodes, next on top.
    fn first_below(&self, node: NodeId, may_take: &dyn Fn(&AdmittedJob) -> bool) -> Option<AdmittedJob> {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let jobs = self.running.get(&node).into_iter().flatten();
            let mut left = jobs.filter(|job| self.ledger.job(&job.id).is_some() && self.helps(job));
            if let Some(job) = left.find(|job| may_take(job)) {
                return Some(job.clone());
            }
            let children = self.largest_first(self.tree.node(node).children.iter().copied());
            open.extend(children.into_iter().rev());
        }
        None
    }

    /// It holds something that the taker needs.
    fn helps(&self, job: &AdmittedJob) -> bool {
        let names = self.tree.resources();
        let asked = self.request.amounts.iter().filter(|(r, _)| *r != JOBS);
        asked.into_iter().any(|(r, _)| job.request.get(names[*r].as_str()) > 0)
    }

    fn attribute(&self, node: NodeId, name: &str) -> &str {
        self.tree.node(node).attributes.get(name).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests;

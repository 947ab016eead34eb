//! Candidates for preemption by reclaim and by share, best victim first.

use super::rights::{Rights, attribute, lends_min};
use super::search::{Goal, Lack, MayPreempt, Search, VictimOrder};
use crate::ledger::AdmittedJob;
use crate::plan::TakeRule;
use crate::share::Share;
use crate::tree::{JOBS, NodeId, RECLAIM, Request};

impl<'s> Search<'s> {
    pub(super) fn next(&mut self, goal: &Goal, lack: &Lack) -> Option<(AdmittedJob, TakeRule)> {
        if lack.hopeless {
            return None;
        }
        if let Some(job) = self.next_reclaimed(goal, lack) {
            return Some((job, TakeRule::Reclaim));
        }
        let job = self.next_by_share(goal, lack)?;
        Some((job, TakeRule::FairShare))
    }

    /// The nodes of the path whose siblings' jobs can help: those below the node that is short.
    fn levels(&self, lack: &Lack) -> Vec<NodeId> {
        let path = self.tree.path_to_root(self.preemptor.leaf);
        path.take_while(|node| Some(*node) != lack.quota_at && *node != NodeId::ROOT).collect()
    }

    /// Computes where the min of the preemptor's side reaches, and its shares. Only victims of its own leaf count
    /// as gone: a victim in one sibling gives no right to another one's, because it may be reprieved.
    pub(super) fn compute_rights(&mut self) {
        let mut guaranteed = self.ledger.node_inside_min(self.preemptor.leaf, &self.request);
        let path = self.tree.path_to_root(self.preemptor.leaf).filter(|node| *node != NodeId::ROOT);
        (self.guaranteed, self.shares) = (Vec::new(), Vec::new());
        for node in path {
            guaranteed |= lends_min(&self.tree, node) && self.ledger.node_inside_min(node, &self.request);
            if guaranteed {
                self.guaranteed.push(node);
            }
            if Rights::fair_share(&self.tree) {
                self.shares.push((node, Share::after(self.ledger, node, &self.request, 1)));
            }
        }
    }

    fn next_reclaimed(&mut self, goal: &Goal, lack: &Lack) -> Option<AdmittedJob> {
        let right = attribute(&self.tree, self.preemptor.leaf, RECLAIM).to_owned();
        if right == "Never" {
            return None;
        }
        let priority = self.preemptor.priority;
        let may_preempt: MayPreempt<'_, 's> =
            &move |_, _, job| right != "LowerPriority" || job.priority < priority;
        let levels = self.levels(lack);
        let mut levels = levels.into_iter().filter(|node| self.guaranteed.contains(node)).collect::<Vec<_>>();
        levels.drain(..).find_map(|node| self.first_of(self.siblings(node), None, goal, lack, may_preempt))
    }

    /// Jobs whose share stays at least the preemptor's after they leave. If there is none: jobs whose share is
    /// larger before they leave.
    fn next_by_share(&mut self, goal: &Goal, lack: &Lack) -> Option<AdmittedJob> {
        if self.ledger.node_inside_min(self.preemptor.leaf, &self.request) {
            return None;
        }
        let levels: Vec<(NodeId, Share)> = {
            let levels = self.levels(lack);
            let shares =
                self.shares.iter().filter(|(node, _)| levels.contains(node) && !self.has_just_given(*node));
            shares.copied().collect()
        };
        // A start that can be taken back costs nothing, so running jobs come after those.
        for standing in [false, true] {
            for (node, own) in &levels {
                let stays_larger: MayPreempt<'_, 's> = &|search, sibling, job| {
                    let leaving = search.tree.request(&job.request);
                    (standing || search.is_open(job))
                        && Share::after(search.ledger, sibling, &leaving, -1) >= *own
                        && !search.is_protected(job)
                        && !search.would_lose_too_much(job)
                };
                let found = self.first_of(self.siblings(*node), None, goal, lack, stays_larger);
                if found.is_some() {
                    return found;
                }
            }
            let none = Request::default();
            for (node, own) in &levels {
                let mut larger = self.siblings(*node);
                larger.retain(|sibling| Share::after(self.ledger, *sibling, &none, 0) > *own);
                let anyone: MayPreempt<'_, 's> = &|search, _, job| {
                    (standing || search.is_open(job))
                        && !search.is_protected(job)
                        && !search.would_lose_too_much(job)
                };
                let found = self.first_of(larger, None, goal, lack, anyone);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn siblings(&self, node: NodeId) -> Vec<NodeId> {
        let Some(parent) = self.tree.node(node).parent else { return Vec::new() };
        self.tree.node(parent).children.iter().copied().filter(|child| *child != node).collect()
    }

    /// The node uses more than its min of a resource that is short. If the number of jobs is short, for which there
    /// is no min: of any resource that the preemptor requests.
    fn lends(&self, node: NodeId, lack: &Lack) -> bool {
        self.lent(lack).any(|r| self.is_above_min(node, r))
    }

    fn lent<'l>(&'l self, lack: &'l Lack) -> impl Iterator<Item = usize> + 'l {
        let jobs_only = lack.short.iter().all(|r| *r == JOBS);
        let asked = self.request.amounts.iter().map(|(r, _)| *r);
        asked.filter(move |r| *r != JOBS && (jobs_only || lack.short.contains(r)))
    }

    fn is_above_min(&self, node: NodeId, r: usize) -> bool {
        self.ledger.used_at(node, r) > self.tree.min_at(node, r)
    }

    /// The first job below these nodes that helps and may be preempted: largest share first, then the first job's
    /// order, so that names decide last.
    fn first_of(
        &mut self,
        nodes: Vec<NodeId>,
        sibling: Option<NodeId>,
        goal: &Goal,
        lack: &Lack,
        may_preempt: MayPreempt<'_, 's>,
    ) -> Option<AdmittedJob> {
        let none = Request::default();
        let lenders = nodes.into_iter().filter(|node| self.lends(*node, lack));
        let mut ranked: Vec<(Share, NodeId)> =
            lenders.map(|node| (Share::after(self.ledger, node, &none, 0), node)).collect();
        ranked.sort_by(|a, b| b.cmp(a));
        for equals in ranked.chunk_by(|a, b| a.0 == b.0) {
            let mut first: Option<(VictimOrder, AdmittedJob)> = None;
            for (_, node) in equals {
                let top = sibling.unwrap_or(*node);
                let Some(job) = self.first_below(*node, top, goal, lack, may_preempt) else { continue };
                let order = self.order_of(&job);
                if first.as_ref().is_none_or(|(known, _)| order < *known) {
                    first = Some((order, job));
                }
            }
            if let Some((_, job)) = first {
                return Some(job);
            }
        }
        None
    }

    /// Only in children above their min.
    fn first_below(
        &mut self,
        node: NodeId,
        sibling: NodeId,
        goal: &Goal,
        lack: &Lack,
        may_preempt: MayPreempt<'_, 's>,
    ) -> Option<AdmittedJob> {
        if !self.tree.node(node).is_leaf() {
            let children = self.tree.node(node).children.clone();
            return self.first_of(children, Some(sibling), goal, lack, may_preempt);
        }
        self.visit(node);
        let jobs = self.by_leaf.get(&node).into_iter().flatten();
        let mut left = jobs.filter(|job| {
            self.ledger.job(&job.id).is_some()
                && self.helps(node, job, goal, lack)
                && !self.is_spared(job)
                && may_preempt(self, sibling, job)
                && !self.just_started(job)
        });
        left.next().cloned()
    }

    /// It uses something that is short and that its leaf only borrows. If only places are short: it uses some of
    /// the cluster.
    fn helps(&self, leaf: NodeId, job: &AdmittedJob, goal: &Goal, lack: &Lack) -> bool {
        let names = self.tree.resources();
        let borrowed =
            self.lent(lack).any(|r| self.is_above_min(leaf, r) && job.request.get(names[r].as_str()) > 0);
        borrowed && (!lack.places || self.cluster_of(&job.id).as_ref() == Some(&goal.cluster))
    }

    fn is_spared(&self, job: &AdmittedJob) -> bool {
        self.spared.iter().any(|(leaf, priority, request)| {
            *leaf == job.leaf && *priority == job.priority && *request == job.request
        })
    }
}

//! Candidates for preemption by reclaim and by share, best victim first.

use std::rc::Rc;

use super::lineup::Standing;
use super::search::{Goal, Lack, Search};
use crate::ledger::AdmittedJob;
use crate::plan::TakeRule;
use crate::share::Share;
use fleet_quota_tree::{JOBS, NodeId, Reclaim};

/// Which jobs a rule may preempt, and what for.
struct Wanted<'w, 's> {
    rule: TakeRule,
    /// The node is the sibling of the preemptor's path above the job. Has no effects.
    may_preempt: &'w dyn Fn(&Search<'s>, NodeId, &Standing) -> bool,
    goal: &'w Goal<'w>,
    lack: &'w Lack,
}

/// Which of some ranked nodes are looked at.
#[derive(Clone, Copy)]
enum Side {
    /// All but this one; each is the sibling of its jobs.
    SiblingsOf(NodeId),
    /// All: they are below this sibling.
    Below(NodeId),
}

/// A job of a leaf's lineup.
type LineupJob = (Rc<[Standing]>, usize);

impl<'s> Search<'s> {
    pub(super) fn next(&self, goal: &Goal, lack: &Lack) -> Option<(AdmittedJob, TakeRule)> {
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
            guaranteed |= self.tree.node(node).lends_min && self.ledger.node_inside_min(node, &self.request);
            if guaranteed {
                self.guaranteed.push(node);
            }
            if self.tree.preempts_by_share() {
                self.shares.push((node, Share::after(self.ledger, node, &self.request, 1)));
            }
        }
    }

    fn next_reclaimed(&self, goal: &Goal, lack: &Lack) -> Option<AdmittedJob> {
        if self.guaranteed.is_empty() {
            return None;
        }
        let right = self.tree.node(self.preemptor.leaf).reclaim;
        if right == Reclaim::Never {
            return None;
        }
        let priority = self.preemptor.priority;
        let may_preempt = |_: &Self, _: NodeId, job: &Standing| {
            right != Reclaim::LowerPriority || job.job().priority < priority
        };
        let wanted = Wanted { rule: TakeRule::Reclaim, may_preempt: &may_preempt, goal, lack };
        let levels = self.levels(lack).into_iter().filter(|node| self.guaranteed.contains(node));
        levels.into_iter().find_map(|node| self.first_sibling(node, |_| true, &wanted))
    }

    /// Jobs whose share stays at least the preemptor's after they leave. If there is none: jobs whose share is
    /// larger before they leave.
    fn next_by_share(&self, goal: &Goal, lack: &Lack) -> Option<AdmittedJob> {
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
        let passes: &[bool] = if self.known.any_open { &[false, true] } else { &[true] };
        for standing in passes {
            for (node, own) in &levels {
                let stays_larger = |search: &Self, sibling: NodeId, job: &Standing| {
                    (*standing || job.is_open())
                        && Share::after(search.ledger, sibling, job.request(), -1) >= *own
                };
                let wanted = Wanted { rule: TakeRule::FairShare, may_preempt: &stays_larger, goal, lack };
                // A share that is smaller before the job leaves is smaller afterwards.
                let found = self.first_sibling(*node, |share| share >= own, &wanted);
                if found.is_some() {
                    return found;
                }
            }
            for (node, own) in &levels {
                let anyone = |_: &Self, _: NodeId, job: &Standing| *standing || job.is_open();
                let wanted = Wanted { rule: TakeRule::FairShare, may_preempt: &anyone, goal, lack };
                let found = self.first_sibling(*node, |share| share > own, &wanted);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The first job below the siblings of the node whose shares are large enough.
    fn first_sibling(
        &self,
        node: NodeId,
        large_enough: impl Fn(&Share) -> bool,
        wanted: &Wanted<'_, 's>,
    ) -> Option<AdmittedJob> {
        let parent = self.tree.node(node).parent?;
        let ranked = self.lineups.ranked(self.ledger, parent);
        let enough = ranked.partition_point(|(share, _)| large_enough(share));
        let (jobs, at) = self.first_of(&ranked[..enough], Side::SiblingsOf(node), wanted)?;
        Some(jobs[at].job().clone())
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
    fn first_of(&self, ranked: &[(Share, NodeId)], side: Side, wanted: &Wanted<'_, 's>) -> Option<LineupJob> {
        for equals in ranked.chunk_by(|a, b| a.0 == b.0) {
            let mut first: Option<LineupJob> = None;
            for (_, node) in equals {
                let top = match side {
                    Side::SiblingsOf(own) if own == *node => continue,
                    Side::SiblingsOf(_) => *node,
                    Side::Below(top) => top,
                };
                if !self.lends(*node, wanted.lack) {
                    continue;
                }
                let Some(found) = self.first_below(*node, top, wanted) else { continue };
                let order = |(jobs, at): &LineupJob| jobs[*at].order();
                if first.as_ref().is_none_or(|known| order(&found) < order(known)) {
                    first = Some(found);
                }
            }
            if first.is_some() {
                return first;
            }
        }
        None
    }

    /// Only in children above their min.
    fn first_below(&self, node: NodeId, sibling: NodeId, wanted: &Wanted<'_, 's>) -> Option<LineupJob> {
        if !self.tree.node(node).is_leaf() {
            let ranked = self.lineups.ranked(self.ledger, node);
            return self.first_of(&ranked, Side::Below(sibling), wanted);
        }
        let jobs = self.lineup(node);
        let by_share = wanted.rule == TakeRule::FairShare;
        // What costs least comes first. Protections are noted only of jobs that would be victims without.
        let at = jobs.iter().position(|job| {
            !(by_share && self.adds_nothing(job))
                && (wanted.may_preempt)(self, sibling, job)
                && self.ledger.job(&job.job().id).is_some()
                && self.helps(node, sibling, job, wanted)
                && !self.is_spared(job.job())
                && !(by_share && (self.is_protected(job) || self.would_lose_too_much(job)))
                && !self.just_started(job)
        });
        Some((jobs, at?))
    }

    /// It uses something that is short, which its leaf and all above it up to the sibling only borrow. If only places
    /// are short: it uses some of the cluster.
    fn helps(&self, leaf: NodeId, sibling: NodeId, job: &Standing, wanted: &Wanted<'_, 's>) -> bool {
        let mut used = self.lent(wanted.lack).filter(|r| job.request().amount(*r) > 0);
        let side = || self.tree.path_to_root(leaf).take_while(|node| self.tree.is_below(*node, sibling));
        used.any(|r| side().all(|node| self.is_above_min(node, r)))
            && (!wanted.lack.places || self.cluster_of(&job.job().id).as_ref() == Some(&wanted.goal.cluster))
    }

    fn is_spared(&self, job: &AdmittedJob) -> bool {
        self.spared.iter().any(|(leaf, priority, request)| {
            *leaf == job.leaf && *priority == job.priority && *request == job.request
        })
    }
}

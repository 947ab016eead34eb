//! Two checks of a set of victims: each is still preempted by a right after reprieves, and none could preempt the
//! preemptor in turn at once.

use std::cmp::Reverse;
use std::sync::Arc;

use super::lineup::Lineups;
use super::rights::own_candidates;
use super::search::{Goal, Lack, Released, Search, VictimSet};
use crate::ledger::AdmittedJob;
use crate::names::{ClusterName, JobId};
use crate::places::AnyPlace;
use crate::plan::TakeRule;
use crate::queues::WaitingJob;
use crate::share::Share;
use fleet_quota_tree::{NodeId, Request};

/// The time when the victims have left and the preemptor runs.
#[derive(Clone, Copy)]
struct Afterwards<'a> {
    goal: &'a Goal<'a>,
    gone: &'a [AdmittedJob],
    /// The preemptor.
    runs: &'a AdmittedJob,
}

impl Search<'_> {
    /// Whether the preemptor may still preempt each job in `released`, one after the other: a reprieved job of its
    /// own leaf counts for its side again. All of them are out of the ledger, before and after.
    pub(super) fn stay_rightful(&mut self, released: &[Released]) -> bool {
        let others: Vec<(AdmittedJob, TakeRule)> = released
            .iter()
            .filter_map(|(job, rule)| Some((job.clone(), (*rule)?)))
            .filter(|(_, rule)| *rule != TakeRule::InQueuePriority)
            .collect();
        for (job, _) in &others {
            self.ledger.admit(job.clone());
        }
        let mut rightful = true;
        for (job, rule) in &others {
            rightful = rightful && self.has_right(job, *rule);
            self.ledger.release(&job.id);
        }
        rightful
    }

    fn has_right(&self, victim: &AdmittedJob, rule: TakeRule) -> bool {
        let below = |node: &NodeId| !self.tree.is_below(victim.leaf, *node);
        let side: Vec<NodeId> = self.tree.path_to_root(self.preemptor.leaf).take_while(below).collect();
        let Some(node) = side.last().copied() else { return true };
        match rule {
            TakeRule::InQueuePriority | TakeRule::VirtualCluster => true,
            TakeRule::Reclaim => {
                self.ledger.node_inside_min(self.preemptor.leaf, &self.request)
                    || side.iter().any(|node| {
                        self.tree.node(*node).lends_min && self.ledger.node_inside_min(*node, &self.request)
                    })
            }
            TakeRule::FairShare => {
                let not_sibling =
                    |other: &NodeId| self.tree.node(*other).parent != self.tree.node(node).parent;
                let mut path = self.tree.path_to_root(victim.leaf).skip_while(not_sibling);
                let Some(sibling) = path.next() else { return true };
                let own = Share::after(self.ledger, node, &self.request, 1);
                let leaving = self.tree.request(&victim.request);
                Share::after(self.ledger, sibling, &leaving, -1) >= own
                    || Share::after(self.ledger, sibling, &Request::default(), 0) > own
            }
        }
    }

    /// The first victim that could preempt the preemptor when it waits again. That is possible by share only: a
    /// preemptor that reclaims is inside min, out of reach.
    pub(super) fn preempts_back(&mut self, goal: &Goal, found: &VictimSet) -> Option<AdmittedJob> {
        if !self.preemptor.preemptible
            || found.victims.iter().all(|victim| victim.rule != TakeRule::FairShare)
        {
            return None;
        }
        self.after(goal, found, |search, then| {
            let back = then.gone.iter().find(|victim| {
                search.could_preempt(victim, then) || search.could_preempt_after_others(victim, then)
            });
            back.cloned()
        })
    }

    /// The first victim with a larger share that would then preempt lower priorities in its own leaf: those might
    /// as well be the victims.
    pub(super) fn hands_on(&mut self, goal: &Goal, found: &VictimSet) -> Option<AdmittedJob> {
        let by_share = |id: &JobId| {
            found.victims.iter().any(|victim| victim.job == *id && victim.rule == TakeRule::FairShare)
        };
        if found.victims.iter().all(|victim| victim.rule != TakeRule::FairShare) {
            return None;
        }
        self.after(goal, found, |search, then| {
            let hands_on = |victim: &&AdmittedJob| {
                let back = waiting_again(victim);
                let own: Vec<AdmittedJob> = own_candidates(search.ledger, &back).cloned().collect();
                search.own_are_enough(&back, &own, then)
            };
            then.gone.iter().filter(|job| by_share(&job.id)).find(hands_on).cloned()
        })
    }

    /// Evaluates a question for the time when the victims have left and the preemptor runs.
    fn after<T>(
        &mut self,
        goal: &Goal,
        found: &VictimSet,
        ask: impl FnOnce(&mut Self, Afterwards) -> T,
    ) -> T {
        // Ending jobs do not count: a victim that waits again does not count on them either.
        let gone = found.victims.iter().map(|victim| &victim.job).chain(self.known.ending);
        let gone: Vec<AdmittedJob> = gone.filter_map(|id| self.ledger.release(id)).collect();
        // It has only just started, so no earlier preemption protects it.
        let runs = AdmittedJob { preemptions: 0, ..self.preemptor.admitted(self.preemptor.enqueued_at_ms) };
        self.ledger.admit(runs.clone());
        let answer = ask(self, Afterwards { goal, gone: &gone, runs: &runs });
        self.ledger.release(&runs.id);
        for job in gone {
            self.ledger.admit(job);
        }
        answer
    }

    /// The same after other jobs in `gone` have started again. Those on the preemptor's side, below its common
    /// ancestor with `victim`, make that side's share larger.
    fn could_preempt_after_others(&mut self, victim: &AdmittedJob, then: Afterwards) -> bool {
        let (tree, runs) = (Arc::clone(&self.tree), then.runs);
        let meet = |leaf: NodeId| tree.path_to_root(runs.leaf).find(|node| tree.is_below(leaf, *node));
        let side_of =
            |node: NodeId| meet(victim.leaf).is_some_and(|at| node != at && tree.is_below(node, at));
        let mut of_side: Vec<&AdmittedJob> =
            then.gone.iter().filter(|other| meet(other.leaf).is_some_and(side_of)).collect();
        of_side.sort_by_key(|job| (Reverse(job.priority), job.enqueued_at_ms));
        let mut back: Vec<&JobId> = Vec::new();
        for other in of_side {
            let request = tree.request(&other.request);
            if self.ledger.first_short(other.leaf, &request, other.preemptible, |_| 0).is_none() {
                self.ledger.admit(other.clone());
                back.push(&other.id);
            }
        }
        let takes = !back.is_empty() && self.could_preempt(victim, then);
        for id in back {
            self.ledger.release(id);
        }
        takes
    }

    /// Whether `victim`, if it waited, could preempt the preemptor.
    fn could_preempt(&mut self, victim: &AdmittedJob, then: Afterwards) -> bool {
        let runs = then.runs;
        let back = waiting_again(victim);
        let own: Vec<AdmittedJob> = own_candidates(self.ledger, &back).cloned().collect();
        if own.iter().any(|job| job.id == runs.id) {
            return true;
        }
        let enough = self.own_are_enough(&back, &own, then);
        let mut places = AnyPlace;
        // No other candidates.
        let lineups = Lineups::of_one(self.ledger, &places, self.known.times(), runs);
        let cluster = ClusterName::new(AnyPlace::NAME);
        let mut search = Search::new(self.ledger, &mut places, &back, self.known, &lineups);
        search.compute_rights();
        let goal = Goal::of(&cluster);
        let lack = Lack { places: true, short: search.asked(), ..Lack::default() };
        if search.next(&goal, &lack).is_some() {
            return true;
        }
        if enough {
            return false;
        }
        // As in a search, jobs of its own leaf may be victims, too.
        for job in &own {
            search.ledger.release(&job.id);
        }
        search.compute_rights();
        let takes = search.next(&goal, &lack).is_some();
        for job in own {
            search.ledger.admit(job);
        }
        takes
    }

    /// Whether jobs of its own leaf are enough victims for a victim that waits again: then it preempts nobody else.
    fn own_are_enough(&mut self, back: &WaitingJob, own: &[AdmittedJob], then: Afterwards) -> bool {
        if own.is_empty() {
            return false;
        }
        let request = self.tree.request(&back.request);
        let released: Vec<AdmittedJob> = own.iter().filter_map(|job| self.ledger.release(&job.id)).collect();
        let short = self.ledger.first_short(back.leaf, &request, back.preemptible, |_| 0);
        for job in released {
            self.ledger.admit(job);
        }
        if short.is_some() {
            return false;
        }
        let left = own.iter().chain(then.gone).map(|job| &job.id);
        let left: Vec<JobId> = left.chain(&then.goal.gone).chain(&then.goal.waited).cloned().collect();
        let mut jobs = then.goal.preemptors.clone();
        jobs.extend(then.goal.holders.iter().copied().chain([self.preemptor, back]));
        self.places.will_fit_without(&jobs, &then.goal.cluster, &left)
    }
}

fn waiting_again(victim: &AdmittedJob) -> WaitingJob {
    WaitingJob {
        id: victim.id.clone(),
        name: victim.id.as_str().into(),
        leaf: victim.leaf,
        request: victim.request.clone(),
        preemptible: true,
        priority: victim.priority,
        enqueued_at_ms: victim.enqueued_at_ms,
        not_before_ms: 0,
        run_time_ms: None,
        shape: 0,
        preemptions: 0,
    }
}

//! Which jobs a job may preempt.
//!
//! Three rules, tried in this order:
//!
//! - *Reclaim*: a job inside its leaf's min preempts jobs of siblings of its path that are above theirs.
//! - *FairShare* (if the root says so): a job above min preempts jobs of siblings whose dominant share stays
//!   larger.
//! - *InQueuePriority*: a job preempts jobs of lower priority in its own leaf.
//!
//! The search releases candidates in the ledger and asks whether the job fits tree and cluster. It reprieves the
//! victims that are not needed, and restores the ledger.

mod candidates;
mod lineup;
mod rights;
mod search;
mod stability;
mod worth;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::ledger::{AdmittedJob, Ledger};
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::plan::{TakeRule, Victim};
use crate::planner::StartEnd;
use crate::queues::WaitingJob;
use crate::share::Share;
use fleet_quota_tree::{NodeId, Request};
use rights::own_candidates;
use search::{Lack, Released, Search};

pub(crate) use lineup::Lineups;
pub(crate) use rights::Rights;
pub(crate) use search::{Goal, Known, Searched, VictimSet};

/// Most clusters whose victims are compared; the best come first.
const CLUSTERS_COMPARED: usize = 128;
/// Most sets of victims tried in one cluster.
const SETS_TRIED: usize = 16;
/// Most victims of one preemptor.
const MAX_VICTIMS: usize = 1024;

/// The cheapest set of victims after which `preemptor` fits its path and one of `goals`; none if no rule leads
/// there. Other preemptors count as started and their victims as gone in the ledger. Jobs in `ending` come first.
/// The ledger is the same after the call.
pub(crate) fn search(
    ledger: &mut Ledger,
    places: &mut dyn Places,
    preemptor: &WaitingJob,
    known: Known,
    lineups: &Lineups,
    goals: &[Goal],
) -> Searched {
    let mut search = Search::new(ledger, places, preemptor, known, lineups);
    let found = search.best(goals);
    // Places of ended jobs may count twice until a report shows them. Victims must help without those; otherwise
    // the search is repeated once the report is there.
    let found = found.filter(|(goal, found)| found.victims.is_empty() || search.helps_for_sure(goal, found));
    Searched { found: found.map(|(_, found)| found), ..search.without_result() }
}

/// The result of [`search`], if it is plain without a cluster: quota is short, and no right leads to a first victim
/// for it, even if all victims in its own leaf are gone. That is how most searches end where leaves preempt by share.
pub(crate) fn rule_out(
    ledger: &mut Ledger,
    places: &mut dyn Places,
    preemptor: &WaitingJob,
    known: Known,
    lineups: &Lineups,
) -> Option<Searched> {
    if !known.ending.is_empty() {
        return None;
    }
    let mut search = Search::new(ledger, places, preemptor, known, lineups);
    if !search.finds_nobody() {
        return None;
    }
    let own = search.own_in_order();
    let state = search.ledger.state();
    let own: Vec<AdmittedJob> = own.into_iter().filter_map(|job| search.ledger.release(&job.id)).collect();
    let nobody = own.is_empty() || search.finds_nobody();
    for job in own {
        search.ledger.admit(job);
    }
    search.ledger.restored(state);
    nobody.then(|| search.without_result())
}

/// The cost of a set of victims: the last of them in the order of rules and shares, the highest priority among them,
/// the work lost, their number.
type Cost = (Option<Rank>, i64, i64, usize);

/// The order of victims by the rule, whether the start stands, the distance in the tree, and the shares from the
/// sibling of the preemptor's path down to the leaf, largest first.
type Rank = (TakeRule, bool, usize, Vec<Reverse<Share>>);

impl<'s> Search<'s> {
    /// Quota is short, and nobody is a first victim for it, whichever the cluster.
    fn finds_nobody(&mut self) -> bool {
        let Some(lack) = self.lack_of_quota() else { return false };
        self.compute_rights();
        self.next(&Goal::of(&ClusterName::new("")), &lack).is_none()
    }

    fn best<'g>(&mut self, goals: &'g [Goal<'g>]) -> Option<(&'g Goal<'g>, VictimSet)> {
        let goals = &goals[..goals.len().min(CLUSTERS_COMPARED)];
        if goals.is_empty() {
            return None;
        }
        // Without victims in its own leaf the sets would be the same again.
        let tries: &[bool] = if self.own_in_order().is_empty() { &[false] } else { &[false, true] };
        // If it fits there now, only quota is needed.
        for goal in goals {
            let going: Vec<JobId> = self.known.ending.iter().chain(&goal.gone).cloned().collect();
            if self.fits_in(goal, &going) {
                let found = tries.iter().copied().find_map(|own| self.without_swap(goal, own));
                return found.map(|(_, found)| (goal, found));
            }
        }
        tries.iter().copied().find_map(|own| {
            let found = goals.iter().filter_map(|goal| {
                let (cost, found) = self.without_swap(goal, own)?;
                Some((cost, goal, found))
            });
            // Of equal costs the first, which is the preferred cluster.
            found.min_by(|a, b| a.0.cmp(&b.0)).map(|(_, goal, found)| (goal, found))
        })
    }

    fn helps_for_sure(&mut self, goal: &Goal, found: &VictimSet) -> bool {
        let victims = found.victims.iter().map(|victim| &victim.job);
        let gone: Vec<JobId> = victims.chain(&found.awaited).chain(&goal.gone).cloned().collect();
        let mut jobs = goal.preemptors.clone();
        jobs.push(self.preemptor);
        self.places.fits_without(&jobs, &goal.cluster, &gone)
    }

    /// A set of victims of which none could preempt the preemptor in turn. A victim that could is excluded, and the
    /// search is repeated. The same holds for a victim that would only preempt others instead, unless there is no
    /// other set.
    fn without_swap(&mut self, goal: &Goal, own: bool) -> Option<(Cost, VictimSet)> {
        self.spared.clear();
        let mut handing_on = None;
        for _ in 0..SETS_TRIED {
            let Some((cost, found)) = self.with_own(goal, own) else { break };
            let worth = !self.costs_too_much(&found);
            let spared = match self.preempts_back(goal, &found) {
                Some(job) => job,
                None => match self.hands_on(goal, &found) {
                    None if worth => return Some((cost, found)),
                    None => break,
                    Some(job) => {
                        handing_on = handing_on.or(worth.then_some((cost, found)));
                        job
                    }
                },
            };
            self.spared.push((spared.leaf, spared.priority, spared.request));
        }
        handing_on
    }

    /// One set, with or without victims in the preemptor's own leaf. The first victims may use up what may be taken
    /// from their queue, and not help: then sets without them are tried.
    fn with_own(&mut self, goal: &Goal, own: bool) -> Option<(Cost, VictimSet)> {
        let (spared, mut left) = (self.spared.len(), MAX_VICTIMS);
        let mut found = None;
        for _ in 0..SETS_TRIED {
            match self.one_set(goal, own) {
                Ok(set) => {
                    found = Some(self.found(goal, set));
                    break;
                }
                Err(Some((first, size))) if size < left => {
                    left -= size;
                    self.spared.push((first.leaf, first.priority, first.request));
                }
                Err(_) => break,
            }
        }
        self.spared.truncate(spared);
        found
    }

    /// Own victims count as gone from the start, because they lower the leaf's use.
    ///
    /// # Errors
    /// The first victim of a set that is not valid and the size of the set, if another one may be valid without it.
    fn one_set(&mut self, goal: &Goal, own: bool) -> Result<Vec<Released>, Option<(AdmittedJob, usize)>> {
        let own: Vec<AdmittedJob> = if own { self.own_in_order() } else { Vec::new() };
        let mut released: Vec<Released> = Vec::new();
        for id in self.known.ending {
            released.extend(self.ledger.release(id).map(|job| (job, None)));
        }
        let going = released.len();
        for job in &own {
            self.ledger.release(&job.id);
        }
        self.compute_rights();
        let lack = self.release_in_order(goal, &mut released, &own);
        let first = released.get(going).cloned();
        let reclaims = first.as_ref().is_some_and(|(_, rule)| *rule == Some(TakeRule::Reclaim));
        // What a share may lose does not depend on which jobs it loses, but places do.
        let size = released.len() - going;
        let others = (reclaims || lack.places).then(|| first.map(|(job, _)| (job, size))).flatten();
        released.extend(own.into_iter().map(|job| (job, Some(TakeRule::InQueuePriority))));
        let kept = self.put_back(goal, released, lack.is_nothing());
        if !lack.is_nothing() {
            return Err(others);
        }
        self.spare_those_of_no_use(goal, kept).ok_or(others)
    }

    /// Releases the best victims one after the other until the preemptor fits or there is none left. What it lacks
    /// then.
    fn release_in_order(&mut self, goal: &Goal, released: &mut Vec<Released>, own: &[AdmittedJob]) -> Lack {
        loop {
            let lack = self.lack(goal, released.iter().map(|(job, _)| job).chain(own));
            if lack.is_nothing() || released.len() > MAX_VICTIMS {
                return lack;
            }
            let Some((job, rule)) = self.next(goal, &lack) else { return lack };
            self.ledger.release(&job.id);
            released.push((job, Some(rule)));
        }
    }

    /// Restores the ledger, and reprieves victims that are not needed, last added first.
    fn put_back(&mut self, goal: &Goal, mut released: Vec<Released>, fits: bool) -> Vec<Released> {
        let mut kept: Vec<Released> = Vec::new();
        while let Some((job, rule)) = released.pop() {
            self.ledger.admit(job.clone());
            if !fits {
                continue;
            }
            let gone = released.iter().chain(&kept).map(|(job, _)| job);
            let lack = self.lack(goal, gone);
            let own = rule == Some(TakeRule::InQueuePriority);
            if !lack.is_nothing() || (own && !self.stay_rightful(&released)) {
                self.ledger.release(&job.id);
                kept.push((job, rule));
            }
        }
        kept.reverse();
        for (job, _) in &kept {
            self.ledger.admit(job.clone());
        }
        kept
    }

    /// Victims of the preemptor's own leaf that gave it a right but no capacity are not evicted: they would start
    /// again at once. The preemptor would run beside them, outside its min or with a larger share, so such a set is
    /// not valid.
    fn spare_those_of_no_use(&mut self, goal: &Goal, kept: Vec<Released>) -> Option<Vec<Released>> {
        if kept.iter().all(|(_, rule)| *rule != Some(TakeRule::InQueuePriority)) {
            return Some(kept);
        }
        for (job, _) in &kept {
            self.ledger.release(&job.id);
        }
        let (mut needed, mut spared) = (kept.clone(), false);
        for (job, _) in kept.iter().rev().filter(|(_, rule)| *rule == Some(TakeRule::InQueuePriority)) {
            self.ledger.admit(job.clone());
            let gone = needed.iter().map(|(job, _)| job).filter(|other| other.id != job.id);
            let gone: Vec<AdmittedJob> = gone.cloned().collect();
            if self.lack(goal, gone.iter()).is_nothing() {
                needed.retain(|(other, _)| other.id != job.id);
                spared = true;
            } else {
                self.ledger.release(&job.id);
            }
        }
        let rightful = !spared || self.stay_rightful(&needed);
        for (job, _) in &needed {
            self.ledger.admit(job.clone());
        }
        let by_share = needed.iter().any(|(_, rule)| *rule == Some(TakeRule::FairShare));
        (rightful && (!spared || !by_share)).then_some(needed)
    }

    fn found(&self, goal: &Goal, kept: Vec<Released>) -> (Cost, VictimSet) {
        let mut found = VictimSet { cluster: goal.cluster.clone(), victims: Vec::new(), awaited: Vec::new() };
        let mut cost: Cost = (None, i64::MIN, 0, 0);
        for (job, rule) in kept {
            let Some(rule) = rule else {
                found.awaited.push(job.id);
                continue;
            };
            let lost_work_ms = self.places.lost_work_ms(&job.id);
            let rank = Some(self.rank(&job, rule));
            let lost_ms = cost.2.saturating_add(lost_work_ms);
            cost = (cost.0.max(rank), cost.1.max(job.priority), lost_ms, cost.3 + 1);
            found.victims.push(Victim { job: job.id, rule, lost_work_ms });
        }
        (cost, found)
    }

    fn rank(&self, victim: &AdmittedJob, rule: TakeRule) -> Rank {
        let ours = |node: &NodeId| self.tree.is_below(self.preemptor.leaf, *node);
        let none = Request::default();
        let theirs = self.tree.path_to_root(victim.leaf).take_while(|node| !ours(node));
        let mut shares: Vec<Reverse<Share>> =
            theirs.map(|node| Reverse(Share::after(self.ledger, node, &none, 0))).collect();
        shares.reverse();
        let below = |node: &NodeId| !self.tree.is_below(victim.leaf, *node);
        let distance = self.tree.path_to_root(self.preemptor.leaf).take_while(below).count();
        let started = self.known.started.get(&victim.id);
        let stands = started.is_none_or(|started| started.end == StartEnd::Stands);
        (rule, rule == TakeRule::FairShare && stands, distance, shares)
    }

    fn own_in_order(&self) -> Vec<AdmittedJob> {
        let ids: BTreeSet<&JobId> = own_candidates(self.ledger, self.preemptor).map(|job| &job.id).collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let jobs = self.lineup(self.preemptor.leaf);
        let own = jobs.iter().filter(|standing| {
            let id = &standing.job().id;
            ids.contains(id)
                && !self.known.ending.contains(id)
                && !self.is_protected(standing)
                && !self.just_started(standing)
        });
        own.map(|standing| standing.job().clone()).collect()
    }
}

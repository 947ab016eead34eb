//! The searches for victims of one plan. They share what they read of jobs and shares, and most of them end before a
//! cluster is asked.

use std::collections::{BTreeMap, BTreeSet};

use super::holds::{Claims, Holds, Visitor};
use super::starts::StartEnd;
use super::state::Planner;
use crate::ledger::{AdmittedJob, JobId, Ledger, State};
use crate::places::{ClusterName, Places};
use crate::plan::PlanLimits;
use crate::queues::ClassId;
use crate::tree::NodeId;
use crate::victims::{Goal, Known, Lineups, Rights, Searched, rule_out, search};

/// Preemptions by share in this time are counted, in the whole tree.
const SHARE_WINDOW_MS: i64 = 6 * 3_600_000;
/// From so many of them on, jobs that would lose much work are spared for a while.
const SHARE_BURST: usize = 20;

/// What the searches of one plan share.
pub(super) struct Round {
    now_ms: i64,
    lineups: Lineups,
    /// Some starts of the plan can be taken back.
    any_open: bool,
    /// Searches that found nobody at a glance, with the state of the ledger.
    ruled_out: BTreeMap<ClassId, (State, Searched)>,
}

/// How far a search goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Until a job is found that may be preempted.
    Glance,
    Whole,
}

impl Planner {
    pub(super) fn begin_round(&mut self, now_ms: i64) -> Round {
        while self.shared.front().is_some_and(|at_ms| at_ms.saturating_add(SHARE_WINDOW_MS) <= now_ms) {
            self.shared.pop_front();
        }
        let any_open = self.started.values().any(|started| started.end != StartEnd::Stands);
        Round { now_ms, lineups: Lineups::default(), any_open, ruled_out: BTreeMap::new() }
    }

    /// Whether none of the classes may preempt anybody, seen at a glance. Their searches are recorded then.
    pub(super) fn rules_all_out(
        &mut self,
        lines: &BTreeMap<NodeId, Vec<ClassId>>,
        round: &mut Round,
        limits: &mut PlanLimits,
        places: &mut dyn Places,
    ) -> bool {
        let mut open: Vec<(ClassId, NodeId, JobId)> = Vec::new();
        for (leaf, classes) in lines {
            let Some(line) = self.queues.line_of(*leaf) else { continue };
            for (id, class, front) in classes.iter().filter_map(|id| self.preempting(line, *id, round.now_ms))
            {
                match class.missed.as_ref().filter(|missed| missed.version == self.version) {
                    // It counts as started for all that follow.
                    Some(missed) if missed.fits_behind => return false,
                    Some(_) => {}
                    None => open.push((id, *leaf, front.id.clone())),
                }
            }
        }
        if open.len() > limits.searches {
            return false;
        }
        let state = self.ledger.state();
        for (class, _, id) in &open {
            let Some(searched) = self.look_for(id, Depth::Glance, round, places) else { return false };
            round.ruled_out.insert(*class, (state, searched));
        }
        limits.searches -= open.len();
        for (class, leaf, id) in open {
            let Some((_, searched)) = round.ruled_out.remove(&class) else { continue };
            self.note_behind(&id, &searched, round.now_ms);
            self.miss(class, leaf, searched, None);
        }
        true
    }

    /// Searches victims for the first job of a class.
    pub(super) fn search_for(
        &mut self,
        class: ClassId,
        id: &JobId,
        round: &mut Round,
        places: &mut dyn Places,
    ) -> Searched {
        match round.ruled_out.remove(&class) {
            Some((state, searched)) if state == self.ledger.state() => searched,
            _ => self.look_for(id, Depth::Whole, round, places).unwrap_or_default(),
        }
    }

    /// `None` if the search would have to go deeper.
    fn look_for(
        &mut self,
        id: &JobId,
        depth: Depth,
        round: &Round,
        places: &mut dyn Places,
    ) -> Option<Searched> {
        let Some(job) = self.queues.get(id) else { return Some(Searched::default()) };
        let request = self.ledger.tree().request(&job.request);
        let holds = &self.holds;
        let visitor = Visitor::of(job, &request, round.now_ms, holds);
        let ending: BTreeSet<JobId> = self.ending.iter().filter(|id| !holds.counts_on(id)).cloned().collect();
        let reclaims = Rights::reclaim(&self.ledger, job.leaf, &request);
        // A reclaim inside min waits for no claim, but for those inside theirs.
        let two = reclaims && !holds.claims.is_empty();
        let passes = if two { &[Claims::All, Claims::InsideMin][..] } else { &[Claims::All] };
        let mut found = Searched::default();
        for claims in passes.iter().copied() {
            let kept = kept(&mut self.ledger, holds, &visitor, &ending, claims);
            let known = Known {
                ending: &ending,
                started: &self.started,
                fresh: &self.fresh,
                any_open: round.any_open,
                saves_work: self.shared.len() >= SHARE_BURST,
                behind_since_ms: self.behind.get(id).copied(),
                given: &self.given,
                now_ms: round.now_ms,
                kept: &kept,
            };
            let ruled_out =
                (!two).then(|| rule_out(&mut self.ledger, places, job, known, &round.lineups)).flatten();
            let ledger = &self.ledger;
            let is_open = |cluster: &&ClusterName| {
                holds.may_preempt_in(cluster) && (reclaims || !holds.is_claimed(ledger, &visitor, cluster))
            };
            let goals = |open: &[ClusterName]| -> Vec<Goal> {
                let goal = |cluster: &ClusterName| {
                    let (mut preemptors, mut gone) = holds.preemptors_in(cluster, Some(id));
                    let (holders, waited) = holds.claims_in(ledger, &self.queues, &visitor, cluster, claims);
                    preemptors.extend(holders);
                    gone.extend(waited);
                    Goal { cluster: cluster.clone(), preemptors, gone }
                };
                open.iter().filter(is_open).map(goal).collect()
            };
            if let Some(searched) = ruled_out {
                // Without a cluster in which to start there is nothing to wait for.
                let open = searched.again_ms.is_none()
                    || round.lineups.open_to(places, job).iter().any(|cluster| is_open(&cluster));
                let searched = if open { searched } else { Searched::default() };
                #[cfg(test)]
                {
                    let goals = goals(&round.lineups.open_to(places, job));
                    let whole = search(&mut self.ledger, places, job, known, &Lineups::default(), &goals);
                    assert_eq!(whole, searched, "the whole search for {id} finds what was seen at a glance");
                }
                return Some(searched);
            }
            if depth == Depth::Glance {
                return None;
            }
            let goals = goals(&round.lineups.open_to(places, job));
            let searched = search(&mut self.ledger, places, job, known, &round.lineups, &goals);
            let takes = searched.found.as_ref().is_some_and(|found| !found.victims.is_empty());
            if claims == Claims::All || takes {
                found = searched;
            }
            if found.found.is_some() {
                break;
            }
        }
        Some(found)
    }
}

/// What claims keep from the preemptor. What becomes free by itself is for the claims as well.
fn kept(
    ledger: &mut Ledger,
    holds: &Holds,
    visitor: &Visitor,
    ending: &BTreeSet<JobId>,
    claims: Claims,
) -> BTreeMap<usize, i64> {
    let going: Vec<AdmittedJob> = ending.iter().filter_map(|id| ledger.release(id)).collect();
    let kept = holds.kept_by_claims(ledger, visitor, claims);
    for job in going {
        ledger.admit(job);
    }
    kept
}

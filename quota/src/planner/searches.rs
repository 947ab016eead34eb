//! The searches for victims of one plan. They share what they read of jobs and shares, and most of them end before a
//! cluster is asked.

use std::collections::{BTreeMap, BTreeSet};

use super::holds::{Claims, Holds, Visitor};
use super::starts::StartEnd;
use super::state::Planner;
use crate::ledger::{AdmittedJob, Ledger, State};
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::plan::PlanLimits;
use crate::queues::{Behind, ClassId, Queues, WaitingJob};
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
                    // It counts as started for all that follow, or another one did for it.
                    Some(missed) if !missed.in_any_order() => return false,
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
            self.miss(class, leaf, searched, None, &Behind::default());
        }
        true
    }

    /// Searches victims for the first job of a class.
    pub(super) fn search_for(
        &mut self,
        class: ClassId,
        id: &JobId,
        round: &mut Round,
        limits: &mut PlanLimits,
        places: &mut dyn Places,
    ) -> Searched {
        limits.searches -= 1;
        self.searched.insert(class);
        let searched = match round.ruled_out.remove(&class) {
            Some((state, searched)) if state == self.ledger.state() => searched,
            _ => self.look_for(id, Depth::Whole, round, places).unwrap_or_default(),
        };
        self.note_behind(id, &searched, round.now_ms);
        searched
    }

    /// `None` if the search would have to go deeper.
    fn look_for(
        &mut self,
        id: &JobId,
        depth: Depth,
        round: &Round,
        places: &mut dyn Places,
    ) -> Option<Searched> {
        let Self { ledger, queues, holds, .. } = self;
        let Some(job) = queues.get(id) else { return Some(Searched::default()) };
        let request = ledger.tree().request(&job.request);
        let ending: BTreeSet<JobId> = self.ending.iter().filter(|id| !holds.counts_on(id)).cloned().collect();
        let visitor = Visitor::of(job, &request, round.now_ms, holds);
        let reclaims = Rights::reclaim(ledger, job.leaf, &request);
        // A reclaim inside min waits for no claim, but for those inside theirs.
        let two = reclaims && !holds.claims.is_empty();
        let tries = if two { &[Claims::All, Claims::InsideMin][..] } else { &[Claims::All] };
        let mut first = None;
        for claims in tries.iter().copied() {
            let kept = kept(ledger, holds, &visitor, &ending, claims);
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
            let quest = Quest { job, holds, queues, visitor: &visitor, reclaims, claims, known };
            if !two && let Some(searched) = quest.at_a_glance(ledger, places, &round.lineups) {
                return Some(searched);
            }
            if depth == Depth::Glance {
                return None;
            }
            let searched = quest.whole(ledger, places, &round.lineups);
            let takes = searched.found.as_ref().is_some_and(|found| !found.victims.is_empty());
            if searched.found.is_some() && (claims == Claims::All || takes) {
                return Some(searched);
            }
            first.get_or_insert(searched);
        }
        first
    }
}

/// One search for the victims of a job, beside some of the claims.
struct Quest<'q> {
    job: &'q WaitingJob,
    holds: &'q Holds,
    queues: &'q Queues,
    visitor: &'q Visitor<'q>,
    /// It has a right by its min.
    reclaims: bool,
    claims: Claims,
    known: Known<'q>,
}

impl<'q> Quest<'q> {
    /// The result, if it is plain before a cluster is asked.
    fn at_a_glance(
        &self,
        ledger: &mut Ledger,
        places: &mut dyn Places,
        lineups: &Lineups,
    ) -> Option<Searched> {
        let searched = rule_out(ledger, places, self.job, self.known, lineups)?;
        // Without a cluster in which to start there is nothing to wait for.
        let waits = searched.again_ms.is_none()
            || lineups.open_to(places, self.job).iter().any(|cluster| self.is_open(ledger, cluster));
        let searched = if waits { searched } else { Searched::default() };
        #[cfg(test)]
        assert_eq!(
            self.whole(ledger, places, &Lineups::default()),
            searched,
            "the whole search for {} finds what was seen at a glance",
            self.job.id
        );
        Some(searched)
    }

    fn whole(&self, ledger: &mut Ledger, places: &mut dyn Places, lineups: &Lineups) -> Searched {
        let open = lineups.open_to(places, self.job);
        let goals = open.iter().filter(|cluster| self.is_open(ledger, cluster));
        let goals: Vec<Goal> = goals.map(|cluster| self.goal(ledger, cluster)).collect();
        search(ledger, places, self.job, self.known, lineups, &goals)
    }

    /// In a cluster with a claim only a min preempts.
    fn is_open(&self, ledger: &Ledger, cluster: &ClusterName) -> bool {
        self.holds.may_preempt_in(cluster)
            && (self.reclaims || !self.holds.is_claimed(ledger, self.visitor, cluster))
    }

    /// Beside the other preemptors of the cluster and the holders of its claims.
    fn goal(&self, ledger: &Ledger, cluster: &ClusterName) -> Goal<'q> {
        let (preemptors, gone) = self.holds.preemptors_in(cluster, Some(&self.job.id));
        let (holders, waited) = self.holds.claims_in(ledger, self.queues, self.visitor, cluster, self.claims);
        Goal { cluster: cluster.clone(), preemptors, gone, holders, waited }
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

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
use crate::victims::{Goal, Known, Lineups, Rights, Searched, rule_out, search};
use fleet_quota_tree::NodeId;

/// Preemptions by share in this time are counted, in the whole tree.
const SHARE_WINDOW_MS: i64 = 6 * 3_600_000;
/// From so many of them on, jobs that would lose much work are spared for a while.
const SHARE_BURST: usize = 20;

/// For each search that a plan may make, so many more that end before a cluster is asked.
const GLANCES: usize = 32;

/// What the searches of one plan share.
pub(super) struct Round {
    now_ms: i64,
    lineups: Lineups,
    /// Some starts of the plan can be taken back.
    any_open: bool,
    /// How many searches may still end at a glance.
    glances: usize,
    /// A search that found somebody, with the state of the ledger.
    found: Option<(ClassId, State, Searched)>,
}

impl Planner {
    pub(super) fn begin_round(&mut self, limits: &PlanLimits, now_ms: i64) -> Round {
        while self.shared.front().is_some_and(|at_ms| at_ms.saturating_add(SHARE_WINDOW_MS) <= now_ms) {
            self.shared.pop_front();
        }
        let any_open = self.started.values().any(|started| started.end != StartEnd::Stands);
        let glances = limits.searches.saturating_mul(GLANCES);
        Round { now_ms, lineups: Lineups::default(), any_open, glances, found: None }
    }

    /// Searches for each class as if it were the first. As long as none finds anybody, that is the result in any order. Returns
    /// whether a limit was reached before the last one, or `None` if the order matters.
    pub(super) fn all_miss(
        &mut self,
        lines: &BTreeMap<NodeId, Vec<ClassId>>,
        round: &mut Round,
        limits: &mut PlanLimits,
        places: &mut dyn Places,
    ) -> Option<bool> {
        let mut open: Vec<(ClassId, NodeId, JobId)> = Vec::new();
        for (leaf, classes) in lines {
            let Some(line) = self.queues.line_of(*leaf) else { continue };
            for (id, class, front) in classes.iter().filter_map(|id| self.preempting(line, *id, round.now_ms))
            {
                match class.missed.as_ref().filter(|missed| missed.version == self.version) {
                    // It counts as started for all that follow, or another one did for it.
                    Some(missed) if !missed.in_any_order() => return None,
                    Some(_) => {}
                    None => open.push((id, *leaf, front.id.clone())),
                }
            }
        }
        for (class, leaf, id) in open {
            let Some(searched) = self.search_for(class, &id, round, limits, places) else {
                return Some(true);
            };
            if searched.found.is_some() {
                round.found = Some((class, self.ledger.state(), searched));
                return None;
            }
            self.miss(class, leaf, searched, None, &Behind::default());
        }
        Some(false)
    }

    /// Searches victims for the first job of a class. `None` if the limit of searches is reached.
    pub(super) fn search_for(
        &mut self,
        class: ClassId,
        id: &JobId,
        round: &mut Round,
        limits: &mut PlanLimits,
        places: &mut dyn Places,
    ) -> Option<Searched> {
        let state = self.ledger.state();
        if let Some((.., searched)) = round.found.take_if(|(of, at, _)| *of == class && *at == state) {
            return Some(searched);
        }
        let searched = self.look_for(class, id, round, limits, places);
        self.ledger.restored(state);
        let searched = searched?;
        self.searched.insert(class);
        self.note_behind(id, &searched, round.now_ms);
        Some(searched)
    }

    fn look_for(
        &mut self,
        class: ClassId,
        id: &JobId,
        round: &mut Round,
        limits: &mut PlanLimits,
        places: &mut dyn Places,
    ) -> Option<Searched> {
        let Self { ledger, queues, holds, .. } = self;
        let Some(class) = queues.class(class) else { return Some(Searched::default()) };
        let Some(job) = queues.get(id) else { return Some(Searched::default()) };
        let visitor = Visitor::of(job, &class.request, round.now_ms, holds);
        let reclaims = Rights::reclaim(ledger, job.leaf, &class.request);
        // In a cluster with a claim only a min preempts.
        let is_open = |cluster: &&ClusterName| {
            holds.may_preempt_in(cluster) && (reclaims || !holds.is_claimed(ledger, &visitor, cluster))
        };
        let could_hold = round.lineups.open_to(places, job);
        let open: Vec<&ClusterName> = could_hold.iter().filter(is_open).collect();
        if open.is_empty() {
            return Some(Searched::default());
        }
        let ending: BTreeSet<JobId> = self.ending.iter().filter(|id| !holds.counts_on(id)).cloned().collect();
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
            let quest = Quest { job, holds, queues, visitor: &visitor, open: &open, claims, known };
            if !two && round.glances > 0 {
                round.glances -= 1;
                if let Some(searched) = quest.at_a_glance(ledger, places, &round.lineups) {
                    return Some(searched);
                }
            }
            if first.is_none() {
                limits.searches = limits.searches.checked_sub(1)?;
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
    /// Clusters where it may preempt.
    open: &'q [&'q ClusterName],
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
        let goals: Vec<Goal> = self.open.iter().map(|cluster| self.goal(ledger, cluster)).collect();
        search(ledger, places, self.job, self.known, lineups, &goals)
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

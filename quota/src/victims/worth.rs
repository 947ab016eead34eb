//! When a victim is worth it: jobs that were preempted again and again are protected for a while, a leaf may
//! protect its jobs when they have started, and the root may bound the work that is lost for what is gained.
//!
//! None of this holds against a reclaim: who stays inside min gets it back at once.

use std::cell::{Cell, RefCell};

use super::{Found, Search};
use crate::ledger::{AdmittedJob, JobId};
use crate::plan::TakeRule;
use crate::planner::{FRESH_MS, StartEnd};

/// From this preemption on a job is protected after each start. The first two follow the rules alone: where that
/// is all there is, nobody waits longer for it.
const PROTECTED_FROM: u32 = 3;
/// What it has to run before that one; twice as long before each further one.
const FIRST_RUN_MS: i64 = 10_000;
const LONGEST_RUN_MS: i64 = 3_600_000;

/// For how long a job runs undisturbed once it has started, after so many preemptions.
pub(crate) fn run_before_next_ms(preemptions: u32) -> i64 {
    let Some(doublings) = (preemptions + 1).checked_sub(PROTECTED_FROM) else { return 0 };
    FIRST_RUN_MS.saturating_mul(1 << doublings.min(20)).min(LONGEST_RUN_MS)
}

/// Jobs that would have been looked at and are protected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protected {
    /// The first whose protection ends.
    first: RefCell<Option<(i64, JobId)>>,
    /// When one may be taken that has started at this very moment.
    started: Cell<Option<i64>>,
}

impl Protected {
    pub fn first(&self) -> Option<(i64, JobId)> {
        self.first.borrow().clone()
    }

    /// When a search that found nobody is to be made again.
    pub fn again_ms(&self) -> Option<i64> {
        self.first().map(|(until_ms, _)| until_ms).into_iter().chain(self.started.get()).min()
    }

    fn note(&self, until_ms: i64, job: &JobId) {
        let mut first = self.first.borrow_mut();
        if first.as_ref().is_none_or(|(known, _)| until_ms < *known) {
            *first = Some((until_ms, job.clone()));
        }
    }
}

impl Search<'_> {
    /// Whether the job has started at this very moment, and that stands: whoever has a right to it takes it when
    /// a moment has passed.
    pub(super) fn just_started(&self, job: &AdmittedJob) -> bool {
        let stands = self.known.started.get(&job.id).is_some_and(|started| started.end == StartEnd::Stands);
        if stands {
            self.protected.started.set(Some(self.known.now_ms.saturating_add(1)));
        }
        stands
    }

    /// Whether the present plan has started the job and can still take that back.
    pub(super) fn is_open(&self, job: &AdmittedJob) -> bool {
        self.known.started.get(&job.id).is_some_and(|started| started.end != StartEnd::Stands)
    }

    /// Whether the job has not run for long enough to be taken by priority or by share.
    pub(super) fn is_protected(&self, job: &AdmittedJob) -> bool {
        let min_ms = run_before_next_ms(job.preemptions).max(self.tree.node(job.leaf).min_runtime_ms);
        if self.known.started.contains_key(&job.id) {
            // Its start can be taken back now and it is safe from the next moment on: others are asked for then.
            if min_ms > 0 || self.fresh_for_ms(job) > 0 {
                self.protected.started.set(Some(self.known.now_ms.saturating_add(1)));
            }
            return false;
        }
        let left_ms = if min_ms > 0 { min_ms.saturating_sub(self.places.ran_ms(&job.id)) } else { 0 };
        let left_ms = left_ms.max(self.fresh_for_ms(job));
        if left_ms > 0 {
            self.protected.note(self.known.now_ms.saturating_add(left_ms), &job.id);
        }
        left_ms > 0
    }

    /// For how much longer the job is safe from the taker because that waited already when it started.
    fn fresh_for_ms(&self, job: &AdmittedJob) -> i64 {
        let Some(started_ms) = self.known.fresh.get(&job.id) else { return 0 };
        let waited = self.taker.enqueued_at_ms < *started_ms;
        if waited { started_ms.saturating_add(FRESH_MS).saturating_sub(self.known.now_ms) } else { 0 }
    }

    /// Whether more GPU time is lost than the root allows for what the taker gains.
    pub(super) fn costs_too_much(&self, found: &Found) -> bool {
        let Some(limit_milli) = self.tree.max_loss_milli() else { return false };
        if found.victims.iter().any(|victim| victim.rule == TakeRule::Reclaim) {
            return false;
        }
        let Some(run_ms) = self.taker.run_time_ms else { return false };
        let gpus = |request: &fleet_resources::Resources| -> i128 {
            request.iter().filter(|(name, _)| name.as_str().ends_with(GPU)).map(|(_, n)| i128::from(n)).sum()
        };
        let lost = found.victims.iter().filter_map(|victim| {
            Some(gpus(&self.ledger.job(&victim.job)?.request) * i128::from(victim.lost_work_ms))
        });
        let gained = gpus(&self.taker.request) * i128::from(run_ms);
        lost.sum::<i128>() * 1000 > gained * i128::from(limit_milli)
    }
}

/// The suffix that the name of every GPU resource ends with.
const GPU: &str = "/gpu";

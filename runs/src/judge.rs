//! What becomes of a run: it goes on, the job has ended, or the run ends before its job.
//!
//! A condition that must last for some time (a failure, a lost cluster) is recorded by the caller when it is first
//! seen, so that a restart neither forgets nor shortens it.

use fleet_policies::{
    Outcome,
    reason::Reason,
    spec::{Failover, PurgeMode},
};

use crate::{Limits, after_s, attempts, earliest};

/// How long a cluster that answers again has to report what has happened meanwhile.
const REPORT_MS: i64 = 60_000;

/// What the rules need to know of the job.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub failover: Option<&'a Failover>,
    /// All pods are in one cluster, all or nothing: only such a run is ever evicted.
    pub is_gang: bool,
    /// It ends by itself, and its start can be late.
    pub is_batch: bool,
    /// The policy suspends dispatching: no start is expected.
    pub is_suspended: bool,
    /// The job's own limit for its start.
    pub start_timeout_ms: Option<i64>,
    /// Earlier runs that failed by the job's own fault.
    pub failures: usize,
    /// How long its queue has admitted the run for, if the job has declared a run time.
    pub admitted_ms: Option<i64>,
}

/// What the caller has recorded of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When it was first seen bound.
    pub since_ms: i64,
    /// When it was first seen running.
    pub started_at_ms: Option<i64>,
    /// When its cluster was first seen lost; `None` again once the cluster is heard.
    pub lost_since_ms: Option<i64>,
    /// When it was first seen failed or unhealthy, under a policy that tolerates that for a time.
    pub unhealthy_since_ms: Option<i64>,
    /// When its job was first seen suspended.
    pub suspended_since_ms: Option<i64>,
}

/// What the member reports of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub outcome: Option<Outcome>,
    pub is_running: bool,
    pub is_unhealthy: bool,
    /// The member was told that the job is suspended by its owner.
    pub is_suspended: bool,
    /// The member cannot take the run as it is.
    pub refused: Option<Eviction>,
}

/// What is known of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster<'a> {
    pub name: &'a str,
    /// An administrator declared it gone.
    pub is_gone: bool,
    /// It has been silent for so long that its agent has stopped the jobs that may move.
    pub is_lost: bool,
    /// Since when it answers; `Some(None)`: always.
    pub ready_since_ms: Option<Option<i64>>,
    /// A taint that the policy does not tolerate, or only for a time.
    pub taint: Option<NotTolerated>,
    /// A new run may start although the end of this one was not seen.
    pub may_leave: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTolerated {
    pub key: String,
    pub until_ms: i64,
}

/// A run that ends before its job, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub reason: Reason,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoesOn,
    /// Failed or unhealthy since then, and still tolerated.
    Tolerated {
        since_ms: i64,
    },
    /// The job has ended.
    Ended(Outcome),
    Evict(Eviction),
}

/// The judgement of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// When time alone may change the verdict.
    pub wake_ms: Option<i64>,
    /// Only the missing mark of loss on the cluster's lease keeps the run there.
    pub wants_mark: bool,
}

/// The record of a run, updated by this report.
pub fn standing(known: Run, report: &Report, cluster: &Cluster, now_ms: i64) -> Run {
    let mut run = known;
    if run.started_at_ms.is_none() && (report.is_running || report.outcome.is_some()) {
        run.started_at_ms = Some(now_ms);
    }
    if report.is_suspended {
        run.suspended_since_ms.get_or_insert(now_ms);
    }
    // Between lost and ready, as after a restart, nothing is known: the record stands.
    if cluster.is_lost && run.lost_since_ms.is_none() {
        run.lost_since_ms = Some(now_ms);
    } else if !cluster.is_lost && cluster.ready_since_ms.is_some() {
        run.lost_since_ms = None;
    }
    run
}

/// Judges a run. `asked`: it has to end now for another reason (preempted, drained).
pub fn judge(
    job: &Job,
    run: &Run,
    report: &Report,
    cluster: &Cluster,
    asked: Option<&Eviction>,
    limits: &Limits,
    now_ms: i64,
) -> Judgement {
    let mut judge = Judge { job, run, report, cluster, limits, now_ms, wake_ms: None, wants_mark: false };
    let verdict = judge.verdict(asked);
    Judgement { verdict, wake_ms: judge.wake_ms, wants_mark: judge.wants_mark }
}

struct Judge<'a> {
    job: &'a Job<'a>,
    run: &'a Run,
    report: &'a Report,
    cluster: &'a Cluster<'a>,
    limits: &'a Limits,
    now_ms: i64,
    wake_ms: Option<i64>,
    wants_mark: bool,
}

impl Judge<'_> {
    fn verdict(&mut self, asked: Option<&Eviction>) -> Verdict {
        if let Some(outcome) = self.report.outcome {
            return self.ended(outcome);
        }
        if !self.job.is_gang {
            return Verdict::GoesOn;
        }
        let over = asked
            .cloned()
            .or_else(|| self.gone())
            .or_else(|| self.tainted())
            .or_else(|| self.lost())
            .or_else(|| self.report.refused.clone())
            .or_else(|| self.time_over())
            .or_else(|| self.not_started());
        match over {
            Some(over) => Verdict::Evict(over),
            None => self.health(),
        }
    }

    /// Whether that time has come; if not, judge again then.
    fn is_due(&mut self, at_ms: i64) -> bool {
        let due = self.now_ms >= at_ms;
        if !due {
            self.wake_ms = earliest(self.wake_ms, Some(at_ms));
        }
        due
    }

    /// A job that ended: for good, or to run again elsewhere.
    fn ended(&mut self, outcome: Outcome) -> Verdict {
        if outcome == Outcome::Succeeded || !self.job.is_gang {
            return Verdict::Ended(outcome);
        }
        let application = self.job.failover.and_then(|failover| failover.application.as_ref());
        let Some(application) = application else { return Verdict::Ended(outcome) };
        if self.job.failures + 1 >= attempts::limit(self.job.failover, self.limits) {
            return Verdict::Ended(outcome);
        }
        self.tolerate(application.toleration_s(), "the job failed")
    }

    /// A job that runs on, perhaps unhealthy.
    fn health(&mut self) -> Verdict {
        let Some(failover) = self.job.failover else { return Verdict::GoesOn };
        let Some(application) = &failover.application else { return Verdict::GoesOn };
        // Its pods may be alive: the policy must accept a second run beside them.
        let stays = failover.application_purge() == PurgeMode::Never && failover.allow_two_runs != Some(true);
        if !self.report.is_unhealthy || stays {
            return Verdict::GoesOn;
        }
        self.tolerate(application.toleration_s(), "the job was unhealthy")
    }

    fn tolerate(&mut self, toleration_s: i64, what: &str) -> Verdict {
        let since_ms = self.run.unhealthy_since_ms.unwrap_or(self.now_ms);
        if !self.is_due(after_s(since_ms, toleration_s)) {
            return Verdict::Tolerated { since_ms };
        }
        let message = format!("{what} and stayed so for {toleration_s} s");
        Verdict::Evict(Eviction { reason: Reason::ApplicationFailure, message })
    }

    fn gone(&self) -> Option<Eviction> {
        let message = format!("cluster {} was declared gone", self.cluster.name);
        self.cluster.is_gone.then_some(Eviction { reason: Reason::ClusterGone, message })
    }

    /// A `NoExecute` taint that the policy does not tolerate, or no longer.
    fn tainted(&mut self) -> Option<Eviction> {
        let taint = self.cluster.taint.as_ref()?;
        if !self.is_due(taint.until_ms) {
            return None;
        }
        let message = format!("taint {} of {} is not tolerated", taint.key, self.cluster.name);
        Some(Eviction { reason: Reason::TaintUntolerated, message })
    }

    /// The cluster is lost, and has been for as long as the policy tolerates it.
    fn lost(&mut self) -> Option<Eviction> {
        if !self.cluster.is_lost {
            return None;
        }
        let policy = self.job.failover.and_then(|failover| failover.cluster.as_ref())?;
        if !self.is_due(after_s(self.run.lost_since_ms?, policy.toleration_s())) {
            return None;
        }
        if !self.cluster.may_leave {
            self.wants_mark = true;
            return None;
        }
        let message = format!("cluster {} was lost for {} s", self.cluster.name, policy.toleration_s());
        Some(Eviction { reason: Reason::ClusterLost, message })
    }

    /// A run may have passed jobs with a claim because it ends in time. Its controller counts no time while the job is
    /// suspended, and all of it anew afterwards. So the run of a job that was suspended ends here.
    fn time_over(&mut self) -> Option<Eviction> {
        self.run.suspended_since_ms?;
        let admitted_ms = self.job.admitted_ms?;
        // The run may have ended in a cluster that does not answer, and one that is back reports that first.
        let back_ms = self.cluster.ready_since_ms?;
        let since_ms = self.run.started_at_ms.unwrap_or(self.run.since_ms);
        let heard_ms = back_ms.map_or(since_ms, |back_ms| back_ms.saturating_add(REPORT_MS));
        if !self.is_due(since_ms.saturating_add(admitted_ms).max(heard_ms)) {
            return None;
        }
        let admitted_s = admitted_ms / 1000;
        let message = format!(
            "the job was suspended, and the {admitted_s} s for which its run was admitted have passed since the start"
        );
        Some(Eviction { reason: Reason::RunTimeOver, message })
    }

    /// A gang that has not started in time releases its places.
    fn not_started(&mut self) -> Option<Eviction> {
        if self.run.started_at_ms.is_some() || self.job.is_suspended || !self.job.is_batch {
            return None;
        }
        // If the cluster does not answer, nothing is known; if it is back, the gang gets its time again.
        let back_ms = self.cluster.ready_since_ms?;
        let since_ms = back_ms.map_or(self.run.since_ms, |back_ms| self.run.since_ms.max(back_ms));
        let timeout_ms = self.job.start_timeout_ms.filter(|ms| *ms > 0);
        let timeout_ms = timeout_ms.unwrap_or(self.limits.start_timeout_ms);
        if !self.is_due(since_ms.saturating_add(timeout_ms)) {
            return None;
        }
        let message = format!("the gang had not started {} s after it was bound", timeout_ms / 1000);
        Some(Eviction { reason: Reason::GangNotStarted, message })
    }
}

#[cfg(test)]
mod tests;

//! What becomes of a run: it goes on, the job has ended, or the run is over before its job.
//!
//! Whatever has to last some time before it counts (a failure, a lost cluster) is kept by the caller from when it
//! was first seen, so that a restart neither forgets nor shortens the wait.

use fleet_policies::{
    Outcome,
    reason::Reason,
    spec::{Failover, PurgeMode},
};

use crate::{Limits, after_s, attempts, earliest};

/// What the rules ask of the job.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub failover: Option<&'a Failover>,
    /// All pods on one cluster, all or nothing: only such a run is ever taken back.
    pub is_gang: bool,
    /// It ends by itself, and has a start that can be late.
    pub is_batch: bool,
    /// The policy suspends dispatching: no start is expected.
    pub is_suspended: bool,
    /// The job's own limit for its start.
    pub start_timeout_ms: Option<i64>,
    /// Earlier runs that failed by the job's own fault.
    pub failures: usize,
}

/// What is remembered of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When it was first seen bound.
    pub since_ms: i64,
    /// When it was first seen running.
    pub started_at_ms: Option<i64>,
    /// When its cluster was first seen lost; `None` again when the cluster is heard.
    pub lost_since_ms: Option<i64>,
    /// When it was first seen failed or unhealthy under a policy that tolerates that for a time.
    pub unhealthy_since_ms: Option<i64>,
}

/// What its member says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub outcome: Option<Outcome>,
    pub is_running: bool,
    pub is_unhealthy: bool,
    /// The member cannot take the run as it is.
    pub refused: Option<Eviction>,
}

/// What is known of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster<'a> {
    pub name: &'a str,
    /// An administrator has taken it out of the fleet.
    pub is_gone: bool,
    /// It has been silent for so long that its agent has stopped the jobs that may move.
    pub is_lost: bool,
    /// Since when it answers; `Some(None)`: always.
    pub ready_since_ms: Option<Option<i64>>,
    /// A taint that the policy does not tolerate, or not for ever.
    pub taint: Option<NotTolerated>,
    /// A new run may start although this one was not seen to end.
    pub may_leave: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTolerated {
    pub key: String,
    pub until_ms: i64,
}

/// A run that is over before its job, and why.
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

/// What a look at a run comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub verdict: Verdict,
    /// When time alone may change the verdict.
    pub wake_ms: Option<i64>,
    /// Only the mark of loss on the cluster's lease keeps the run from leaving it.
    pub wants_mark: bool,
}

/// What is remembered of a run, with what this look adds.
pub fn standing(known: Run, report: &Report, cluster: &Cluster, now_ms: i64) -> Run {
    let mut run = known;
    if run.started_at_ms.is_none() && (report.is_running || report.outcome.is_some()) {
        run.started_at_ms = Some(now_ms);
    }
    // Between the two, after a restart, nothing is known: what was noted stands.
    if cluster.is_lost && run.lost_since_ms.is_none() {
        run.lost_since_ms = Some(now_ms);
    } else if !cluster.is_lost && cluster.ready_since_ms.is_some() {
        run.lost_since_ms = None;
    }
    run
}

/// Judges a run. `asked`: somebody wants it to end now (preempted, drained).
pub fn judge(
    job: &Job,
    run: &Run,
    report: &Report,
    cluster: &Cluster,
    asked: Option<&Eviction>,
    limits: &Limits,
    now_ms: i64,
) -> Look {
    let mut judge = Judge { job, run, report, cluster, limits, now_ms, wake_ms: None, wants_mark: false };
    let verdict = judge.verdict(asked);
    Look { verdict, wake_ms: judge.wake_ms, wants_mark: judge.wants_mark }
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
            .or_else(|| self.not_started());
        match over {
            Some(over) => Verdict::Evict(over),
            None => self.health(),
        }
    }

    /// Whether that time has come; if not, it is when to look again.
    fn is_due(&mut self, at_ms: i64) -> bool {
        let due = self.now_ms >= at_ms;
        if !due {
            self.wake_ms = earliest(self.wake_ms, Some(at_ms));
        }
        due
    }

    /// A job that ended: for good, or to be run again elsewhere.
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
        // Its pods may be alive: a second run beside them has to be accepted.
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
        let message = format!("cluster {} was taken out of the fleet", self.cluster.name);
        self.cluster.is_gone.then_some(Eviction { reason: Reason::ClusterGone, message })
    }

    /// A taint with effect NoExecute that the policy does not tolerate, or not for so long.
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

    /// A gang that has not started in time gives its places back.
    fn not_started(&mut self) -> Option<Eviction> {
        if self.run.started_at_ms.is_some() || self.job.is_suspended || !self.job.is_batch {
            return None;
        }
        // Of a cluster that does not answer nothing is known, and one that is back gets its time.
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

//! What becomes of a run: it goes on, the job has ended, or the run is over before its job.
//!
//! Whatever has to last some time before it counts (a failure, a lost cluster) is noted in the binding when it
//! is first seen, so that a restart neither forgets nor shortens the wait.

use fleet_api::mutation::{self, Mutation};
use fleet_api::{Cluster, binding::RunStatus};
use fleet_policies::{
    reason::Reason,
    spec::PurgeMode,
    workload::{self, Health, Outcome},
};
use jiff::{SignedDuration, Timestamp};

use super::{
    Step,
    attempts::{self, Over},
    fence,
    report::Item,
    taints,
};
use crate::{
    binding::BindingEntry,
    options::Options,
    planner::earliest,
    status::{find_condition, rfc3339},
    world::{Key, Object, World, ready},
};

/// Annotation on a job: longest time from its binding to its start, such as `15m`.
const START_TIMEOUT_ANNOTATION: &str = "fleet.dev/start-timeout";

/// All that one look at a run needs.
pub(super) struct Look<'a> {
    pub world: &'a World,
    pub key: &'a Key,
    pub entry: &'a BindingEntry,
    pub object: &'a Object,
    pub items: &'a [Item<'a>],
    pub options: &'a Options,
    pub now: Timestamp,
}

pub(super) enum Ending {
    None,
    /// Failed or unhealthy since then (RFC 3339), and still tolerated.
    Watch {
        since: String,
    },
    Result(Outcome),
    Evict(Over),
}

pub(super) fn job_outcome(entry: &BindingEntry, items: &[Item]) -> Option<Outcome> {
    if !entry.workload.is_job() || items.len() != entry.object.spec.clusters.len() {
        return None;
    }
    let outcomes: Vec<Outcome> =
        items.iter().map(|item| workload::outcome(entry.workload, item.status?)).collect::<Option<_>>()?;
    let failed = outcomes.contains(&Outcome::Failed);
    Some(if failed { Outcome::Failed } else { Outcome::Succeeded })
}

impl Look<'_> {
    fn cluster(&self) -> Option<&Cluster> {
        self.world.clusters.get(self.target()?)
    }

    fn target(&self) -> Option<&str> {
        self.entry.object.spec.clusters.first().map(|target| target.name.as_str())
    }

    /// What is remembered of the present run, with what this look adds.
    pub fn run(&self) -> RunStatus {
        let epoch = self.entry.object.spec.epoch;
        let known = self.entry.object.status.as_ref().and_then(|status| status.run.clone());
        let fresh = || RunStatus { epoch, since: rfc3339(self.now), ..RunStatus::default() };
        let mut run = known.filter(|run| run.epoch == epoch).unwrap_or_else(fresh);
        let started = |item: &Item| {
            item.status.is_some_and(|status| {
                workload::is_running(self.entry.workload, status)
                    || workload::outcome(self.entry.workload, status).is_some()
            })
        };
        if run.started_at.is_none() && self.items.iter().any(started) {
            run.started_at = Some(rfc3339(self.now));
        }
        let lost = self.target().is_some_and(|target| self.world.lost.contains(target));
        // Between the two, after a restart, nothing is known: what was noted stands.
        if lost && run.lost_since.is_none() {
            run.lost_since = Some(rfc3339(self.now));
        } else if !lost && self.cluster().is_some_and(ready) {
            run.lost_since = None;
        }
        run
    }

    pub fn judge(&self, run: &RunStatus, step: &mut Step) -> Ending {
        if let Some(outcome) = job_outcome(self.entry, self.items) {
            return self.ended(outcome, step);
        }
        if !self.entry.is_gang() {
            return Ending::None;
        }
        let epoch = self.entry.object.spec.epoch;
        if let Some(asked) = self.world.evictions.get(self.key).filter(|asked| asked.epoch == epoch) {
            return Ending::Evict(Over { reason: asked.reason, message: asked.message.clone() });
        }
        let over = self
            .gone()
            .or_else(|| self.tainted(step))
            .or_else(|| self.lost(run, step))
            .or_else(|| self.refused())
            .or_else(|| self.not_started(run, step));
        match over {
            Some(over) => Ending::Evict(over),
            None => self.health(step),
        }
    }

    /// A job that ended: for good, or to be run again elsewhere.
    fn ended(&self, outcome: Outcome, step: &mut Step) -> Ending {
        if outcome == Outcome::Succeeded || !self.entry.is_gang() {
            return Ending::Result(outcome);
        }
        let Some(failover) = self.entry.failover.as_ref().and_then(|failover| failover.application.as_ref())
        else {
            return Ending::Result(outcome);
        };
        if attempts::failures(self.entry) + 1 >= attempts::limit(self.entry, self.options) {
            return Ending::Result(outcome);
        }
        self.tolerate(failover.toleration_s(), "the job failed", step)
    }

    /// A job that runs on, perhaps unhealthy.
    fn health(&self, step: &mut Step) -> Ending {
        let Some(failover) = &self.entry.failover else { return Ending::None };
        let Some(application) = &failover.application else { return Ending::None };
        let unhealthy = self.items.iter().any(|item| {
            item.status.is_some_and(|s| workload::health(self.entry.workload, s) == Health::Unhealthy)
        });
        // Its pods may be alive: a second run beside them has to be accepted.
        let stays = failover.application_purge() == PurgeMode::Never && failover.allow_two_runs != Some(true);
        if !unhealthy || stays {
            return Ending::None;
        }
        self.tolerate(application.toleration_s(), "the job was unhealthy", step)
    }

    fn tolerate(&self, toleration_s: i64, what: &str, step: &mut Step) -> Ending {
        let noted = self.entry.object.status.as_ref().and_then(|status| status.unhealthy_since.clone());
        let noted = noted.filter(|_| !mutation::is_on(Mutation::TolerationForgotten));
        let since = noted.unwrap_or_else(|| rfc3339(self.now));
        let until = self.after(&since, toleration_s);
        if self.now < until {
            step.wake_at(until);
            return Ending::Watch { since };
        }
        Ending::Evict(Over {
            reason: Reason::ApplicationFailure,
            message: format!("{what} and stayed so for {toleration_s} s"),
        })
    }

    fn after(&self, since: &str, seconds: i64) -> Timestamp {
        let since: Timestamp = since.parse().unwrap_or(self.now);
        since.saturating_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(Timestamp::MAX)
    }

    /// An administrator has taken the cluster out of the fleet.
    fn gone(&self) -> Option<Over> {
        let target = self.target().filter(|target| fence::is_gone(self.world, target))?;
        let message = format!("cluster {target} was taken out of the fleet");
        Some(Over { reason: Reason::ClusterGone, message })
    }

    /// A taint with effect NoExecute that the policy does not tolerate, or not for so long.
    fn tainted(&self, step: &mut Step) -> Option<Over> {
        let limit = taints::limit(self.cluster()?, &self.entry.placement)?;
        if self.now < limit.until {
            step.wake_at(limit.until);
            return None;
        }
        let message =
            format!("taint {} of {} is not tolerated", limit.taint, self.target().unwrap_or_default());
        Some(Over { reason: Reason::TaintUntolerated, message })
    }

    /// The cluster is lost, and has been for as long as the policy tolerates it.
    fn lost(&self, run: &RunStatus, step: &mut Step) -> Option<Over> {
        let target = self.target().filter(|target| self.world.lost.contains(*target))?;
        let policy = self.entry.failover.as_ref().and_then(|failover| failover.cluster.as_ref())?;
        let until = self.after(run.lost_since.as_ref()?, policy.toleration_s());
        if self.now < until {
            step.wake_at(until);
            return None;
        }
        if !fence::may_leave(self.world, self.entry, target) {
            fence::ask_for_mark(self.world, self.entry, target, step);
            return None;
        }
        let message = format!("cluster {target} was lost for {} s", policy.toleration_s());
        Some(Over { reason: Reason::ClusterLost, message })
    }

    /// The member cannot take the run as it is.
    fn refused(&self) -> Option<Over> {
        self.items.iter().find_map(|item| {
            let conditions = &item.work.status.as_ref()?.conditions;
            let applied = find_condition(conditions, "Applied").filter(|c| c.status == "False")?;
            let reason = match applied.reason.as_str() {
                "NameTaken" => Reason::NameTaken,
                "NotPermitted" => Reason::NotPermitted,
                "StaleEpoch" if item.work.spec.epoch == self.entry.object.spec.epoch => Reason::RunRefused,
                _ => return None,
            };
            Some(Over { reason, message: format!("{}: {}", item.cluster, applied.message) })
        })
    }

    /// A gang that has not started in time gives its places back.
    fn not_started(&self, run: &RunStatus, step: &mut Step) -> Option<Over> {
        let suspended =
            self.entry.object.spec.suspension.as_ref().is_some_and(|s| s.dispatching == Some(true));
        if run.started_at.is_some() || suspended || !self.entry.workload.is_job() {
            return None;
        }
        // Of a cluster that does not answer nothing is known, and one that is back gets its time.
        let cluster = self.cluster().filter(|cluster| ready(cluster))?;
        let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let back = find_condition(conditions, "Ready").map(|ready| ready.last_transition_time.0);
        let since: Timestamp = run.since.parse().unwrap_or(self.now);
        let since = back.map_or(since, |back| since.max(back));
        let timeout = self.start_timeout();
        let until = since.saturating_add(timeout).unwrap_or(Timestamp::MAX);
        if self.now < until {
            step.wake_at(until);
            return None;
        }
        let message = format!("the gang had not started {} s after it was bound", timeout.as_secs());
        Some(Over { reason: Reason::GangNotStarted, message })
    }

    fn start_timeout(&self) -> SignedDuration {
        let said = self.object.value["metadata"]["annotations"][START_TIMEOUT_ANNOTATION].as_str();
        said.and_then(|text| text.parse::<SignedDuration>().ok())
            .filter(SignedDuration::is_positive)
            .unwrap_or_else(|| SignedDuration::try_from(self.options.start_timeout).unwrap_or_default())
    }
}

impl Step {
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = earliest(self.wake, Some(at));
    }
}

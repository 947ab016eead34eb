//! Judges a run by the rules in `fleet_runs`: converts objects of the hub to facts, and the verdict to
//! writes.
//!
//! A condition that must last for some time (a failure, a lost cluster) is recorded in the binding when it is
//! first seen, so a restart neither forgets nor shortens the wait.

use fleet_api::mutation::{self, Mutation};
use fleet_api::{Cluster, binding::RunStatus, policy::RunningEdits};
use fleet_policies::{
    reason::Reason,
    workload::{self, Health, Outcome},
};
use fleet_runs::{Cluster as Place, Eviction, Job, NotTolerated, Report, Run, Verdict};
use jiff::{SignedDuration, Timestamp};

use super::{attempts, ending, fence, report::Item, step::Step, taints};
use crate::{
    binding::BindingEntry,
    intents::Intents,
    manifests,
    options::Options,
    run_time,
    status::{find_condition, rfc3339},
    world::{Key, Object, World, ready},
};

/// Annotation on a job: longest time from its binding to its start, such as `15m`.
const START_TIMEOUT_ANNOTATION: &str = "fleet.dev/start-timeout";

/// Everything about a run that one reconcile needs.
pub(super) struct RunContext<'a> {
    pub world: &'a World,
    pub intents: &'a Intents,
    pub key: &'a Key,
    pub entry: &'a BindingEntry,
    pub object: &'a Object,
    pub items: &'a [Item<'a>],
    pub options: &'a Options,
    pub now: Timestamp,
}

pub(super) enum Ending {
    None,
    /// Failed or unhealthy since this time (RFC 3339), and still tolerated.
    Watch {
        since: String,
    },
    Result(Outcome),
    Evict(Eviction),
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

/// A run that is not what its job asks for any more is given up, if the policy says so.
pub(super) fn or_edited(ending: Ending, entry: &BindingEntry, pending: &[String]) -> Ending {
    let gives_up = entry.is_gang()
        && !pending.is_empty()
        && entry.object.spec.running_edits == Some(RunningEdits::Requeue);
    match ending {
        Ending::None | Ending::Watch { .. } if gives_up => Ending::Evict(Eviction {
            reason: Reason::Edited,
            message: format!("{} changed while the job ran", pending.join(", ")),
        }),
        ending => ending,
    }
}

impl RunContext<'_> {
    fn cluster(&self) -> Option<&Cluster> {
        self.world.clusters.get(self.target()?)
    }

    fn target(&self) -> Option<&str> {
        self.entry.object.spec.clusters.first().map(|target| target.name.as_str())
    }

    /// The recorded state of the current run, with the additions of this reconcile.
    pub fn run(&self) -> RunStatus {
        let epoch = self.entry.object.spec.epoch;
        let known = self.entry.object.status.as_ref().and_then(|status| status.run.clone());
        let fresh = || RunStatus { epoch, since: rfc3339(self.now), ..RunStatus::default() };
        let known = known.filter(|run| run.epoch == epoch).unwrap_or_else(fresh);
        let was = self.remembered(&known);
        let is = fleet_runs::standing(was, &self.report(), &self.place(), self.now.as_millisecond());
        let now = rfc3339(self.now);
        RunStatus {
            started_at: known.started_at.or(is.started_at_ms.map(|_| now.clone())),
            suspended_since: known.suspended_since.or(is.suspended_since_ms.map(|_| now.clone())),
            lost_since: is.lost_since_ms.and(known.lost_since.or(Some(now))),
            ..known
        }
    }

    pub fn judge(&self, run: &RunStatus, step: &mut Step) -> Ending {
        let epoch = self.entry.object.spec.epoch;
        let asked = self.intents.evictions.get(self.key).filter(|asked| asked.epoch == epoch);
        let asked = asked.map(|asked| Eviction { reason: asked.reason, message: asked.message.clone() });
        let now_ms = self.now.as_millisecond();
        let limits = self.options.run_limits();
        let (known, report, place) = (self.remembered(run), self.report(), self.place());
        let found = fleet_runs::judge(&self.job(), &known, &report, &place, asked.as_ref(), &limits, now_ms);
        if let Some(at) = found.wake_ms {
            step.wake_at_ms(at);
        }
        if found.wants_mark {
            fence::ask_for_mark(self.world, self.entry, place.name, step);
        }
        match found.verdict {
            Verdict::GoesOn => Ending::None,
            Verdict::Tolerated { since_ms } => {
                let noted = self.unhealthy_since().filter(|_| known.unhealthy_since_ms == Some(since_ms));
                Ending::Watch { since: noted.unwrap_or_else(|| rfc3339(self.now)) }
            }
            Verdict::Ended(outcome) => Ending::Result(outcome),
            Verdict::Evict(over) => Ending::Evict(over),
        }
    }

    fn unhealthy_since(&self) -> Option<String> {
        self.entry.object.status.as_ref()?.unhealthy_since.clone()
    }

    /// The job in the form of the rules.
    fn job(&self) -> Job<'_> {
        let suspension = self.entry.object.spec.suspension.as_ref();
        let said = self.object.value["metadata"]["annotations"][START_TIMEOUT_ANNOTATION].as_str();
        let timeout = said.and_then(|text| text.parse::<SignedDuration>().ok());
        Job {
            failover: self.entry.failover.as_ref(),
            is_gang: self.entry.is_gang(),
            is_batch: self.entry.workload.is_job(),
            is_suspended: suspension.is_some_and(|s| s.dispatching == Some(true)),
            start_timeout_ms: timeout.map(|timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX)),
            failures: attempts::failures(self.entry),
            admitted_ms: run_time::admitted_ms(self.entry),
        }
    }

    fn remembered(&self, run: &RunStatus) -> Run {
        let read = |text: &String| text.parse::<Timestamp>().unwrap_or(self.now).as_millisecond();
        let unhealthy = self.unhealthy_since().filter(|_| !mutation::is_on(Mutation::TolerationForgotten));
        Run {
            since_ms: read(&run.since),
            started_at_ms: run.started_at.as_ref().map(read),
            lost_since_ms: run.lost_since.as_ref().map(read),
            unhealthy_since_ms: unhealthy.as_ref().map(read),
            suspended_since_ms: run.suspended_since.as_ref().map(read),
        }
    }

    /// The members' reports on the run.
    fn report(&self) -> Report {
        let workload = self.entry.workload;
        let any = |rule: &dyn Fn(&serde_json::Value) -> bool| {
            self.items.iter().any(|item| item.status.is_some_and(rule))
        };
        Report {
            outcome: job_outcome(self.entry, self.items),
            is_running: any(&|status| {
                workload::is_running(workload, status) || workload::outcome(workload, status).is_some()
            }),
            is_unhealthy: any(&|status| workload::health(workload, status) == Health::Unhealthy),
            is_suspended: manifests::running(self.world, self.key, self.entry)
                .is_some_and(|sent| workload::is_suspended(workload, sent)),
            refused: self.refused().or_else(|| ending::lost_cells(self.world, self.entry)),
        }
    }

    /// The state of the run's cluster.
    fn place(&self) -> Place<'_> {
        let Some(target) = self.target() else { return Place::default() };
        let cluster = self.cluster();
        let taint = cluster.and_then(|cluster| taints::limit(cluster, &self.entry.placement));
        Place {
            name: target,
            is_gone: fence::is_gone(self.world, target),
            is_lost: self.world.lost.contains(target),
            ready_since_ms: cluster.filter(|cluster| ready(cluster)).map(|cluster| {
                let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
                find_condition(conditions, "Ready").map(|ready| ready.last_transition_time.0.as_millisecond())
            }),
            taint: taint
                .map(|limit| NotTolerated { key: limit.taint, until_ms: limit.until.as_millisecond() }),
            may_leave: fence::may_leave(self.world, self.entry, target),
        }
    }

    /// The member cannot accept the run as it is.
    fn refused(&self) -> Option<Eviction> {
        self.items.iter().find_map(|item| {
            let conditions = &item.work.status.as_ref()?.conditions;
            let applied = find_condition(conditions, "Applied").filter(|c| c.status == "False")?;
            let reason = match applied.reason.as_str() {
                "NameTaken" => Reason::NameTaken,
                "NotPermitted" => Reason::NotPermitted,
                "StaleEpoch" if item.work.spec.epoch == self.entry.object.spec.epoch => Reason::RunRefused,
                _ => return None,
            };
            Some(Eviction { reason, message: format!("{}: {}", item.cluster, applied.message) })
        })
    }
}

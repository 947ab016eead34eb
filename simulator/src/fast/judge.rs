//! What becomes of a bound run, by the rules of `fleet_runs`, and how a run that was given up leaves its member.
//!
//! If a member cannot be reached, the hub learns nothing new of it: only its loss is judged.

use fleet_planner::{Counted, Held, Job, JobPhase};
use fleet_policies::{Outcome, reason::Reason, spec::PurgeMode};
use fleet_quota::JobId;
use fleet_runs::{Cluster, Eviction, Report, Verdict, purge::Stay as Purge};

use super::{
    engine::{PastRun, Phase, Sim, Tick},
    member::Run,
};
use crate::scenario::log::{Ending, NodesOf};

impl Sim<'_> {
    /// The hub judges a bound job's run: it goes on, the job has ended, or the run has ended before its job.
    pub fn judge(&mut self, job: usize) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        if !self.hub_up {
            return;
        }
        if self.members[member].link.reachable()
            && let Some(taking) = self.jobs[job].ending.take()
        {
            return self.preempt(job, taking);
        }
        let report = self.report(job, member);
        let name = self.members[member].name.clone();
        let link = &self.members[member].link;
        let cluster = Cluster {
            name: &name,
            is_gone: false,
            is_lost: link.lost,
            ready_since_ms: link.reachable().then_some(link.ready_since_ms),
            taint: None,
            may_leave: link.lost,
        };
        let known = &self.jobs[job];
        let facts = fleet_runs::Job {
            failover: known.spec.failover.as_ref(),
            is_gang: true,
            is_batch: true,
            is_suspended: known.spec.suspended,
            start_timeout_ms: None,
            failures: fleet_runs::attempts::failures(known.attempts.iter().map(PastRun::as_attempt)),
            admitted_ms: known.spec.declared_ms.filter(|_| known.spec.queued),
        };
        let run = fleet_runs::standing(known.run, &report, &cluster, self.now_ms);
        let look = fleet_runs::judge(&facts, &run, &report, &cluster, None, &self.times.runs, self.now_ms);
        let epoch = known.epoch;
        if let Some(at_ms) = look.wake_ms {
            self.push(at_ms, Tick::Judge { job, epoch });
        }
        self.jobs[job].run = run;
        match look.verdict {
            Verdict::GoesOn => self.jobs[job].run.unhealthy_since_ms = None,
            Verdict::Tolerated { since_ms } => self.jobs[job].run.unhealthy_since_ms = Some(since_ms),
            Verdict::Ended(Outcome::Succeeded) => self.finished(job, Ending::Succeeded),
            Verdict::Ended(Outcome::Failed) => self.finished(job, Ending::Failed),
            Verdict::Evict(over) => self.take_back(job, over),
        }
    }

    /// What the member says of the run; nothing where it cannot be reached.
    fn report(&self, job: usize, member: usize) -> Report {
        let known = &self.members[member];
        let stay = known.stays.get(&job).filter(|_| known.link.reachable());
        let Some(stay) = stay else { return Report::default() };
        let refused = (stay.run == Run::Waits && self.name_is_taken(job, member)).then(|| Eviction {
            reason: Reason::NameTaken,
            message: format!("{}: an object of that name is not Fleet's", known.name),
        });
        Report {
            outcome: match stay.run {
                Run::Ended { well: true } => Some(Outcome::Succeeded),
                Run::Ended { well: false } => Some(Outcome::Failed),
                _ => None,
            },
            is_running: matches!(stay.run, Run::Runs { .. }),
            is_unhealthy: matches!(stay.run, Run::Broken { .. }),
            is_suspended: stay.run == Run::Suspended,
            refused,
        }
    }

    /// Lets a run that was given up go: now, later, or never, as its policy says. What cannot be told stays until
    /// its member is back.
    pub fn leave(&mut self, job: usize, member: usize) {
        match self.left_alone(job, member) {
            None if self.members[member].link.reachable() => {
                self.members[member].release(job);
                self.start_waiting(member);
            }
            None => {}
            Some(until_ms) => {
                self.hold_for_old_run(job, member);
                if let Some(at_ms) = until_ms {
                    self.push(at_ms, Tick::Purge { job, member });
                }
            }
        }
    }

    /// Whether an older run of the job is left alone in that member, and until when (`None`: until it ends).
    pub fn left_alone(&self, job: usize, member: usize) -> Option<Option<i64>> {
        let epoch = self.members[member].stays.get(&job)?.epoch;
        let known = &self.jobs[job];
        let past = known.attempts.iter().find(|past| past.epoch == epoch)?;
        let replaced = known.epoch > epoch && known.run.started_at_ms.is_some();
        let failover = known.spec.failover.as_ref();
        match fleet_runs::purge::stay(past.purge, failover, past.ended_at_ms, replaced, self.now_ms) {
            Purge::No => None,
            Purge::Until(until_ms) => Some(until_ms),
        }
    }

    /// What an older run still uses counts, as a job of its own that ends.
    fn hold_for_old_run(&mut self, job: usize, member: usize) {
        let Some(stay) = self.members[member].stays.get(&job) else { return };
        let (epoch, nodes) = (stay.epoch, NodesOf::clone(&stay.nodes));
        let held = Held::here(&self.members[member].name, Counted::ByPlanner);
        let held = Held { nodes, ending: true, ..held };
        let known = self.planner_job(job, JobPhase::Holds(held));
        let id = old_run_id(&known.id, epoch);
        let old = Job { id, queued: false, preemptible: false, started_at_ms: None, ..known };
        self.planner.set_job(old, self.now_ms);
    }

    /// The time of an older run is over.
    pub fn purge(&mut self, job: usize, member: usize) {
        let Some(stay) = self.members[member].stays.get(&job) else { return };
        let (epoch, ended) = (stay.epoch, matches!(stay.run, Run::Ended { .. }));
        let current = self.jobs[job].phase == Phase::Bound { member } && self.jobs[job].epoch == epoch;
        if current || !(ended || self.left_alone(job, member).is_none()) {
            return;
        }
        self.planner.remove_job(&old_run_id(&self.jobs[job].id, epoch), self.now_ms);
        if self.members[member].link.reachable() {
            self.members[member].release(job);
            self.start_waiting(member);
        }
        self.reread(job);
    }

    /// A run that was left alone until the next one starts goes now.
    pub fn purge_replaced(&mut self, job: usize, started_in: usize) {
        let graceful = |past: &&PastRun| past.purge == PurgeMode::Gracefully;
        let left: Vec<String> =
            self.jobs[job].attempts.iter().filter(graceful).map(|past| past.cluster.clone()).collect();
        for cluster in left {
            let member = self.member_of.get(&cluster).copied();
            if let Some(member) = member.filter(|member| *member != started_in) {
                self.purge(job, member);
            }
        }
    }
}

/// The job that stands in the planner for an older run.
fn old_run_id(job: &JobId, epoch: i64) -> JobId {
    JobId::new(&format!("{job}#{epoch}"))
}

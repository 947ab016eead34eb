//! A job's runs: bound, started, ended, evicted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_placement::Places;
use fleet_planner::{self as planner, Counted, Held, Job, JobPhase};
use fleet_policies::reason::Reason;
use fleet_runs::{Avoid, Eviction};

use super::{
    engine::{MakesRoom, PastRun, Phase, Sim, Tick},
    hub::RunPlans,
    member::Run,
};
use crate::{
    run_plan::{Ending as PlanEnding, Nature, RunTime, run_plan},
    scenario::log::{Ending, NodesOf, What},
};

impl Sim<'_> {
    /// The job as the planner knows it.
    pub fn planner_job(&mut self, job: usize, phase: JobPhase) -> Job {
        let (avoided, barred) = match phase {
            JobPhase::Waits => self.obstacles(job),
            JobPhase::Holds(_) => Default::default(),
        };
        let known = &self.jobs[job];
        let attempts = known.attempts.iter().map(PastRun::as_attempt);
        Job {
            id: known.id.clone(),
            shape: Arc::clone(&known.spec.shape),
            quota_labels: known.spec.quota_labels.clone(),
            last_leaf: None,
            queued: known.spec.queued,
            left_queue: false,
            priority: known.spec.priority,
            preemptible: known.spec.preemptible,
            preemptions: fleet_runs::attempts::preemptions(attempts),
            enqueued_at_ms: known.place_ms(),
            avoided,
            blocked: self.blocked(job),
            phase,
            runtime_ms: known.spec.declared_ms,
            started_at_ms: known.run.started_at_ms,
            checkpoint_at_ms: None,
            cells: None,
            barred,
        }
    }

    /// Clusters chosen last for a waiting job, and those that it may not go to, for what its earlier runs met there.
    fn obstacles(&mut self, job: usize) -> (BTreeSet<String>, BTreeMap<String, planner::Waiting>) {
        let (mut avoided, mut barred) = (BTreeSet::new(), BTreeMap::new());
        let mut rereads = Vec::new();
        let known = &self.jobs[job];
        let clusters: BTreeSet<&String> = known.attempts.iter().map(|past| &past.cluster).collect();
        for cluster in clusters {
            let attempts = known.attempts.iter().map(PastRun::as_attempt);
            match fleet_runs::attempts::avoidance(attempts, cluster, &self.times.runs, self.now_ms) {
                Avoid::No => {}
                Avoid::Last { until_ms } => {
                    rereads.push(until_ms);
                    avoided.insert(cluster.clone());
                }
                Avoid::Until { until_ms, why } => {
                    rereads.push(until_ms);
                    barred.insert(cluster.clone(), planner::Waiting::new(why.reason, why.message));
                }
            }
            let stays = self.member_of.get(cluster).is_some_and(|member| {
                self.members[*member].stays.contains_key(&job) && self.left_alone(job, *member).is_some()
            });
            if stays {
                let message = format!("an older run of this name still stands in {cluster}");
                barred.insert(cluster.clone(), planner::Waiting::new(Reason::Backoff, message));
            }
        }
        for at_ms in rereads {
            self.push(at_ms, Tick::Reread { job });
        }
        (avoided, barred)
    }

    /// What was held against a cluster has faded.
    pub fn reread(&mut self, job: usize) {
        if self.jobs[job].phase == Phase::Waits && self.alive.contains_key(&self.jobs[job].id) {
            let known = self.planner_job(job, JobPhase::Waits);
            self.planner.set_job(known, self.now_ms);
        }
    }

    /// Quota is taken.
    pub fn admitted(&mut self, job: usize) {
        let queued = self.jobs[job].spec.queued;
        let (queue, name) = (Arc::clone(&self.jobs[job].queue), Arc::clone(&self.jobs[job].name));
        if let Some(leaf) = self.leaf_of(job).map(str::to_string) {
            let request = self.jobs[job].spec.shape.total.clone();
            if queued {
                self.checker.take(job, &name, &leaf, &request, self.now_ms);
            }
        }
        if queued {
            self.record(job, What::Admitted { queue });
        }
        self.jobs[job].told = None;
    }

    /// The target is set under a new epoch, and the Work goes out.
    pub fn bind(&mut self, job: usize, member: usize, placed: Option<(NodesOf, (u64, Places))>) {
        let known = &mut self.jobs[job];
        known.phase = Phase::Bound { member };
        known.epoch += 1;
        known.run = fleet_runs::Run { since_ms: self.now_ms, ..fleet_runs::Run::default() };
        let (epoch, components) = (known.epoch, Arc::clone(&known.spec.components));
        let shape = Arc::clone(&known.spec.shape);
        let cluster = Arc::clone(&self.members[member].name);
        self.record(job, What::Bound { cluster, epoch, components });
        let broken = self.members[member].admit(job, epoch, shape, placed);
        self.over_used(job, member, broken);
        self.start_when_placed(job, member);
    }

    /// A gang with places starts; one without waits in the member for them. One whose name a job of the member's own
    /// users has goes elsewhere.
    fn start_when_placed(&mut self, job: usize, member: usize) {
        if !self.members[member].link.reachable() {
            return;
        }
        if self.name_is_taken(job, member) {
            let epoch = self.jobs[job].epoch;
            return self.push(self.now_ms, Tick::Judge { job, epoch });
        }
        if self.jobs[job].spec.components.values().any(|count| *count > 0) {
            if let Some(broken) = self.members[member].place_waiting(job) {
                self.over_used(job, member, broken);
            }
            if self.members[member].stays.get(&job).is_some_and(|stay| stay.nodes.is_empty()) {
                return self.judge(job);
            }
        }
        if self.is_paused(job) {
            return self.follow(job, member);
        }
        self.start(job, member);
    }

    pub fn name_is_taken(&self, job: usize, member: usize) -> bool {
        let own = &self.members[member].own;
        !own.is_empty()
            && own.contains(&(self.jobs[job].spec.kind.to_string(), self.jobs[job].name.to_string()))
    }

    /// The whole gang runs.
    pub fn start(&mut self, job: usize, member: usize) {
        self.starts += 1;
        let start = self.starts;
        let (takes_ms, _) = self.plan_of(job, member);
        let ends_ms = takes_ms.map(|ms| self.now_ms.saturating_add(ms));
        let Some(stay) = self.members[member].stays.get_mut(&job) else { return };
        (stay.run, stay.start) = (Run::Runs { ends_ms }, start);
        let (epoch, nodes) = (stay.epoch, Arc::clone(&stay.nodes));
        if let Some(at) = ends_ms {
            self.push(at, Tick::RunEnds { member, job, start });
        }
        let cluster = Arc::clone(&self.members[member].name);
        self.check_start(job, member, &nodes);
        self.jobs[job].run.started_at_ms.get_or_insert(self.now_ms);
        self.tell_planner_of_start(job, member);
        self.record(job, What::Started { cluster, epoch, nodes });
        self.purge_replaced(job, member);
        let whole =
            self.members[member].stays.get(&job).is_none_or(|stay| self.members[member].is_whole(stay));
        if !whole {
            self.break_run(job, member);
        }
    }

    /// What a run loses when it is ended, and when it is over, is counted from its start.
    fn tell_planner_of_start(&mut self, job: usize, member: usize) {
        if !self.preempts || self.jobs[job].phase != (Phase::Bound { member }) {
            return;
        }
        let nodes = self.members[member].stays.get(&job).map(|stay| NodesOf::clone(&stay.nodes));
        let held = Held::here(&self.members[member].name, Counted::ByPlanner);
        let held = Held { nodes: nodes.unwrap_or_default(), ..held };
        let known = self.planner_job(job, JobPhase::Holds(held));
        self.planner.set_job(known, self.now_ms);
    }

    /// The run was deleted in its member: what has not ended is made anew.
    pub fn run_again(&mut self, job: usize, member: usize) {
        let runs =
            self.members[member].stays.get(&job).is_some_and(|stay| matches!(stay.run, Run::Runs { .. }));
        if runs {
            self.start(job, member);
        }
    }

    /// Gangs that wait in the member, oldest first.
    pub fn start_waiting(&mut self, member: usize) {
        let waiting: Vec<usize> = self.members[member]
            .stays
            .iter()
            .filter(|(_, stay)| stay.run == Run::Waits)
            .map(|(job, _)| *job)
            .collect();
        for job in waiting {
            self.start_when_placed(job, member);
        }
    }

    /// How long a run on this member takes (`None`: for ever), and whether it ends well.
    fn plan_of(&self, job: usize, member: usize) -> (Option<i64>, bool) {
        match &self.jobs[job].spec.plan {
            RunPlans::For(ms) => (Some(*ms), true),
            RunPlans::Annotated { job, pods } => {
                let cluster = &self.members[member].name;
                let plans =
                    pods.iter().map(|pod| run_plan(pod, job, Nature::Batch, cluster, RunTime::Forever));
                let mut takes = Some(0);
                let mut well = true;
                for plan in plans {
                    takes = match (takes, plan.run_time) {
                        (Some(ms), RunTime::For(time)) => {
                            Some(ms.max(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
                        }
                        _ => None,
                    };
                    well &= plan.ending == PlanEnding::Succeeds;
                }
                (takes, well)
            }
        }
    }

    pub fn run_ends(&mut self, member: usize, job: usize, start: u64) {
        let (_, well) = self.plan_of(job, member);
        let Some(stay) = self.members[member].stays.get_mut(&job) else { return };
        if stay.start != start || !matches!(stay.run, Run::Runs { .. }) {
            return;
        }
        stay.run = Run::Ended { well };
        if self.jobs[job].phase == (Phase::Bound { member }) {
            self.judge(job);
        } else if self.left_alone(job, member).is_some() {
            self.purge(job, member);
        }
    }

    /// Nodes of the run are away: it stands still.
    pub fn break_run(&mut self, job: usize, member: usize) {
        let now_ms = self.now_ms;
        let Some(stay) = self.members[member].stays.get_mut(&job) else { return };
        if let Run::Runs { ends_ms } = stay.run {
            stay.run = Run::Broken { left_ms: ends_ms.map(|at| at - now_ms) };
            self.judge(job);
        }
    }

    /// Its nodes are back: the run goes on.
    pub fn mend_run(&mut self, job: usize, member: usize) {
        let (now_ms, start) = (self.now_ms, self.starts + 1);
        let Some(stay) = self.members[member].stays.get_mut(&job) else { return };
        if let Run::Broken { left_ms } = stay.run {
            self.starts = start;
            let ends_ms = left_ms.map(|left| now_ms.saturating_add(left));
            (stay.run, stay.start) = (Run::Runs { ends_ms }, start);
            if let Some(at) = ends_ms {
                self.push(at, Tick::RunEnds { member, job, start });
            }
            self.jobs[job].run.unhealthy_since_ms = None;
        }
    }

    /// The run is over before its job, for a fault.
    pub fn take_back(&mut self, job: usize, over: Eviction) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        let (cluster, epoch) = (Arc::clone(&self.members[member].name), self.jobs[job].epoch);
        let reason = over.reason;
        self.record(job, What::Evicted { cluster, epoch, reason: reason.to_string() });
        self.give_up(job, member, over);
        let known = &self.jobs[job];
        let attempts = known.attempts.iter().map(PastRun::as_attempt);
        let last = known.attempts.last().map(PastRun::as_attempt);
        let failover = known.spec.failover.as_ref();
        let is_final = last
            .and_then(|last| fleet_runs::attempts::final_reason(attempts, last, failover, &self.times.runs));
        match is_final {
            Some(_) => self.finished(job, Ending::Failed),
            None => self.wait_again(job, reason),
        }
    }

    /// Notes the run among those that ended before the job, and lets it go as the policy says.
    fn give_up(&mut self, job: usize, member: usize, over: Eviction) {
        let failover = self.jobs[job].spec.failover.as_ref();
        let past = PastRun {
            cluster: self.members[member].name.to_string(),
            epoch: self.jobs[job].epoch,
            purge: fleet_runs::purge::mode(failover, over.reason),
            reason: over.reason,
            message: over.message,
            ended_at_ms: self.now_ms,
        };
        let known = &mut self.jobs[job];
        let forgotten = fleet_runs::attempts::to_forget(known.attempts.iter().map(PastRun::as_attempt));
        if let Some(oldest) = forgotten {
            known.attempts.remove(oldest);
        }
        known.attempts.push(past);
        self.leave(job, member);
    }

    /// The run is preempted by another job.
    pub fn preempt(&mut self, job: usize, taking: MakesRoom) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        let (cluster, epoch) = (Arc::clone(&self.members[member].name), self.jobs[job].epoch);
        let MakesRoom { by, rule, lost_ms } = taking;
        let message = format!("made room for {by}");
        self.record(job, What::Preempted { cluster, epoch, by, reason: rule, lost_ms });
        self.give_up(job, member, Eviction { reason: Reason::Preempted, message });
        self.wait_again(job, Reason::Preempted);
    }

    /// A run is to be preempted by another job's; at once, if its member can be reached.
    pub fn make_room(&mut self, job: usize, taking: MakesRoom) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        if self.members[member].link.reachable() {
            self.preempt(job, taking);
            return;
        }
        self.jobs[job].ending = Some(taking);
        let held = Held { ending: true, ..Held::here(&self.members[member].name, Counted::ByPlanner) };
        let known = self.planner_job(job, JobPhase::Holds(held));
        self.planner.set_job(known, self.now_ms);
    }

    /// Back in line, holding nothing.
    pub fn wait_again(&mut self, job: usize, reason: Reason) {
        self.jobs[job].phase = Phase::Waits;
        self.jobs[job].run = fleet_runs::Run::default();
        self.checker.give_back(job);
        let is_edited = self.take_edit(job);
        let waits = self.planner_job(job, JobPhase::Waits);
        self.planner.set_job(waits, self.now_ms);
        if is_edited {
            self.jobs[job].queue = self.queue_of(job);
        }
        self.requeued(job, reason);
    }

    pub fn requeued(&mut self, job: usize, reason: Reason) {
        self.jobs[job].told = None;
        if self.jobs[job].spec.queued {
            let queue = Arc::clone(&self.jobs[job].queue);
            self.record(job, What::Requeued { queue, reason: reason.to_string() });
        }
    }

    /// The end is on the hub; what the job held is free.
    pub fn finished(&mut self, job: usize, result: Ending) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        let cluster = Arc::clone(&self.members[member].name);
        let epoch = self.jobs[job].epoch;
        let before = self.jobs[job].attempts.iter().filter(|past| past.epoch != epoch).count();
        let attempts = before as i64 + 1;
        self.record(job, What::Finished { cluster, epoch, result, attempts });
        self.close(job);
        if self.left_alone(job, member).is_none() {
            self.members[member].release(job);
            self.start_waiting(member);
        }
    }

    /// The hub is done with the job.
    pub fn close(&mut self, job: usize) {
        let id = self.jobs[job].id.clone();
        self.jobs[job].phase = Phase::Over;
        self.alive.remove(&id);
        self.checker.give_back(job);
        self.planner.remove_job(&id, self.now_ms);
        self.check_over(job);
    }
}

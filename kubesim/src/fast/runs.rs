//! A job's runs: bound, started, ended, taken back.

use std::sync::Arc;

use fleet_controller::planner::{self, Counted, Held, Job, Stand};
use fleet_placement::Places;
use fleet_policies::reason::Reason;

use super::{
    engine::{MakesRoom, Phase, Sim, Tick},
    hub::RunPlans,
    member::Run,
};
use crate::{
    run_plan::{Ending as PlanEnding, Nature, RunTime, run_plan},
    scenario::log::{Ending, NodesOf, What},
};

impl Sim<'_> {
    /// The job as the planner knows it.
    pub fn planner_job(&self, job: usize, stand: Stand) -> Job {
        let known = &self.jobs[job];
        let failed = |reason: &Reason| {
            matches!(reason, Reason::ApplicationFailure | Reason::GangNotStarted | Reason::ClusterLost)
        };
        Job {
            id: known.id.clone(),
            shape: Arc::clone(&known.spec.shape),
            quota_labels: known.spec.quota_labels.clone(),
            last_leaf: None,
            queued: known.spec.queued,
            priority: known.spec.priority,
            preemptible: known.spec.preemptible,
            preemptions: known.attempts.iter().filter(|(_, reason)| *reason == Reason::Preempted).count()
                as u32,
            enqueued_at_ms: known.submitted_ms,
            avoided: known
                .attempts
                .iter()
                .filter(|(_, reason)| failed(reason))
                .map(|(cluster, _)| cluster.clone())
                .collect(),
            blocked: known
                .spec
                .suspended
                .then(|| planner::Waiting::new(Reason::Suspended, "the policy suspends dispatching")),
            stand,
            runtime_ms: known.spec.declared_ms,
            started_at_ms: known.started_ms,
            checkpoint_at_ms: None,
            barred: known
                .attempts
                .iter()
                .filter(|(_, reason)| *reason == Reason::NameTaken)
                .map(|(cluster, reason)| {
                    let message = format!("an object of that name in {cluster} is not Fleet's");
                    (cluster.clone(), planner::Waiting::new(*reason, message))
                })
                .collect(),
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
        known.bound_ms = self.now_ms;
        known.unhealthy_since_ms = None;
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
                let epoch = self.jobs[job].epoch;
                self.push(self.jobs[job].bound_ms + self.times.start_timeout_ms, Tick::Judge { job, epoch });
                return;
            }
        }
        self.start(job, member);
    }

    fn name_is_taken(&self, job: usize, member: usize) -> bool {
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
        self.tell_planner_of_start(job, member);
        self.record(job, What::Started { cluster, epoch, nodes });
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
        self.jobs[job].started_ms = Some(self.now_ms);
        let nodes = self.members[member].stays.get(&job).map(|stay| NodesOf::clone(&stay.nodes));
        let held = Held::here(&self.members[member].name, Counted::ByPlanner);
        let held = Held { nodes: nodes.unwrap_or_default(), ..held };
        let known = self.planner_job(job, Stand::Holds(held));
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
            self.jobs[job].unhealthy_since_ms = None;
        }
    }

    /// The hub looks at a bound job's run: it goes on, the job has ended, or the run is over before its job.
    pub fn judge(&mut self, job: usize) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        if !self.hub_up {
            return;
        }
        let link = &self.members[member].link;
        if !link.reachable() {
            if let (true, Some(since)) = (link.lost, link.lost_since_ms) {
                self.judge_lost(job, since);
            }
            return;
        }
        if let Some(taking) = self.jobs[job].ending.take() {
            self.preempt(job, taking);
            return;
        }
        let Some(run) = self.members[member].stays.get(&job).map(|stay| stay.run.clone()) else { return };
        match run {
            Run::Ended { well: true } => self.finished(job, Ending::Succeeded),
            Run::Ended { well: false } => self.judge_failed(job),
            Run::Broken { .. } => {
                if self.application_toleration(job).is_some() {
                    self.tolerate(job);
                }
            }
            Run::Waits if self.name_is_taken(job, member) => self.take_back(job, Reason::NameTaken),
            Run::Waits if self.now_ms >= self.jobs[job].bound_ms + self.times.start_timeout_ms => {
                if self.failures(job) + 1 >= self.attempts_limit(job) {
                    self.finished(job, Ending::Failed);
                } else {
                    self.take_back(job, Reason::GangNotStarted);
                }
            }
            Run::Waits | Run::Runs { .. } | Run::Stopped => {}
        }
    }

    fn application_toleration(&self, job: usize) -> Option<i64> {
        let failover = self.jobs[job].spec.failover.as_ref()?.application.as_ref()?;
        Some(failover.toleration_s().max(0).saturating_mul(1000))
    }

    fn judge_failed(&mut self, job: usize) {
        if self.application_toleration(job).is_none() || self.failures(job) + 1 >= self.attempts_limit(job) {
            self.finished(job, Ending::Failed);
        } else {
            self.tolerate(job);
        }
    }

    /// Runs that count towards the limit.
    fn failures(&self, job: usize) -> usize {
        let counted = |reason: &Reason| matches!(reason, Reason::ApplicationFailure | Reason::GangNotStarted);
        self.jobs[job].attempts.iter().filter(|(_, reason)| counted(reason)).count()
    }

    fn attempts_limit(&self, job: usize) -> usize {
        let asked = self.jobs[job].spec.backoff_limit;
        asked.and_then(|limit| usize::try_from(limit).ok()).map_or(self.times.attempts_limit, |n| n.max(1))
    }

    /// Failed or unhealthy, and still tolerated.
    fn tolerate(&mut self, job: usize) {
        let Some(toleration_ms) = self.application_toleration(job) else { return };
        let since = *self.jobs[job].unhealthy_since_ms.get_or_insert(self.now_ms);
        let until = since.saturating_add(toleration_ms);
        if self.now_ms >= until {
            self.take_back(job, Reason::ApplicationFailure);
        } else {
            let epoch = self.jobs[job].epoch;
            self.push(until, Tick::Judge { job, epoch });
        }
    }

    fn judge_lost(&mut self, job: usize, since_ms: i64) {
        let failover = self.jobs[job].spec.failover.as_ref().and_then(|failover| failover.cluster.as_ref());
        if failover.is_none() {
            return;
        }
        let toleration_s = self.jobs[job].spec.lost_toleration_s.max(0);
        let until = since_ms.saturating_add(toleration_s.saturating_mul(1000));
        if self.now_ms >= until {
            self.take_back(job, Reason::ClusterLost);
        } else {
            let epoch = self.jobs[job].epoch;
            self.push(until, Tick::Judge { job, epoch });
        }
    }

    /// The run is over before its job, for a fault.
    pub fn take_back(&mut self, job: usize, reason: Reason) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        let (cluster, epoch) = (Arc::clone(&self.members[member].name), self.jobs[job].epoch);
        self.record(job, What::Evicted { cluster: Arc::clone(&cluster), epoch, reason: reason.to_string() });
        self.leave(job, member);
        self.jobs[job].attempts.push((cluster.to_string(), reason));
        self.wait_again(job, reason);
    }

    /// The run makes room for another job.
    pub fn preempt(&mut self, job: usize, taking: MakesRoom) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        let (cluster, epoch) = (Arc::clone(&self.members[member].name), self.jobs[job].epoch);
        let MakesRoom { by, rule, lost_ms } = taking;
        let cluster_name = Arc::clone(&cluster);
        self.record(job, What::Preempted { cluster: cluster_name, epoch, by, reason: rule, lost_ms });
        self.leave(job, member);
        self.jobs[job].attempts.push((cluster.to_string(), Reason::Preempted));
        self.wait_again(job, Reason::Preempted);
    }

    /// A run is to make room for another job's; at once, when its member can be told.
    pub fn make_room(&mut self, job: usize, taking: MakesRoom) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        if self.members[member].link.reachable() {
            self.preempt(job, taking);
            return;
        }
        self.jobs[job].ending = Some(taking);
        let held = Held { ending: true, ..Held::here(&self.members[member].name, Counted::ByPlanner) };
        let known = self.planner_job(job, Stand::Holds(held));
        self.planner.set_job(known, self.now_ms);
    }

    /// The old run is gone before a new one starts. What cannot be told stays until its member is back.
    fn leave(&mut self, job: usize, member: usize) {
        if self.members[member].link.reachable() {
            self.members[member].release(job);
            self.start_waiting(member);
        }
    }

    /// Back in line, holding nothing.
    pub fn wait_again(&mut self, job: usize, reason: Reason) {
        self.jobs[job].phase = Phase::Waits;
        self.jobs[job].unhealthy_since_ms = None;
        self.jobs[job].started_ms = None;
        self.checker.give_back(job);
        let waits = self.planner_job(job, Stand::Waits);
        self.planner.set_job(waits, self.now_ms);
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
    fn finished(&mut self, job: usize, result: Ending) {
        let Phase::Bound { member } = self.jobs[job].phase else { return };
        let cluster = Arc::clone(&self.members[member].name);
        let attempts = self.jobs[job].attempts.len() as i64 + 1;
        let epoch = self.jobs[job].epoch;
        self.record(job, What::Finished { cluster, epoch, result, attempts });
        self.close(job);
        self.members[member].release(job);
        self.start_waiting(member);
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

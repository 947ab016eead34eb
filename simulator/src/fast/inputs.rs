//! Inputs: events of the file, jobs, reports of members; and the invariants over all of it.

use std::sync::Arc;

use fleet_planner::{self as planner, JobPhase};
use fleet_policies::reason::Reason;
use fleet_quota::JobId;
use fleet_quota_tree::QuotaTree;

use super::{
    engine::{Phase, RunError, Sim, SimJob},
    hub::{Applied, JobSpec},
    member::Run,
};
use crate::{
    scenario::{
        Action, Event, Manifest, ObjectName, ScenarioError,
        log::{NodesOf, What},
    },
    traces::TraceJob,
};

/// Gangs up to which everything is checked after each step; a larger fleet is at its end.
const CHECKED_WHOLE: usize = 512;

impl Sim<'_> {
    pub fn event(&mut self, event: &Event) -> Result<(), RunError> {
        match &event.action {
            Action::Apply(manifest) => self.apply(manifest)?,
            Action::Delete(name) => self.delete(name),
            Action::ApplyInMember { cluster, manifest } => {
                self.in_member(cluster, &manifest.kind, &manifest.namespace, &manifest.name, true);
            }
            Action::DeleteInMember { cluster, name } => {
                self.in_member(cluster, &name.kind, &name.namespace, &name.name, false);
            }
            Action::Credentials { cluster, valid } => self.credentials(cluster, *valid),
            Action::Node { cluster, name, ready } => self.node(cluster, name, *ready),
            Action::Partition { cluster } => self.partition(cluster),
            Action::Heal { cluster } => self.heal(cluster),
            Action::Crash { process, restart_after } => {
                let after = restart_after.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
                self.crash(process, after);
            }
        }
        self.check_all();
        Ok(())
    }

    /// Applies an object, as a user would.
    pub fn apply(&mut self, manifest: &Manifest) -> Result<(), RunError> {
        let applied = self.objects.apply(manifest, self.now_ms).map_err(|found| ScenarioError {
            file: self.file.to_string(),
            line: manifest.line.max(1),
            field: format!("{} {}", manifest.kind, manifest.name),
            found,
            allowed: format!("a {} as {} defines it", manifest.kind, manifest.api_version),
        })?;
        match applied {
            Applied::Job(spec, binding) => {
                let (spec, Manifest { namespace, name, .. }) = (Arc::from(*spec), manifest);
                match self.alive.get(&JobId::new(&format!("{namespace}/{name}"))).copied() {
                    Some(job) if !manifest.is_new && *self.jobs[job].spec.kind == *manifest.kind => {
                        self.edit(job, (spec, binding));
                    }
                    Some(_) => {}
                    None => {
                        let job = self.jobs.len();
                        self.submit(namespace, name, spec);
                        self.jobs[job].binding = Some(binding);
                    }
                }
            }
            Applied::Rejected { kind, reason, message } => {
                self.reject(&manifest.namespace, &manifest.name, kind, reason, message);
            }
            Applied::Rules => self.rules(),
            Applied::Cluster(facts) => {
                if let Some(member) = self.member_of.get(&facts.name).copied() {
                    self.members[member].facts = facts;
                    self.tell_planner_of(member);
                }
            }
            Applied::Ignored => {}
        }
        Ok(())
    }

    /// Somebody in a member makes an object there or deletes one.
    fn in_member(&mut self, cluster: &str, kind: &str, namespace: &str, name: &str, made: bool) {
        let Some(member) = self.member_of.get(cluster).copied() else { return };
        let (kind, name) = (kind.to_string(), format!("{namespace}/{name}"));
        let here = self.members[member].stays.keys().copied().find(|job| {
            let job = &self.jobs[*job];
            *job.name == *name && *job.spec.kind == *kind
        });
        match (made, here) {
            // It stands already: the change of somebody else is put right.
            (true, Some(_)) => {}
            (true, None) => drop(self.members[member].own.insert((kind, name))),
            (false, _) if self.members[member].own.remove(&(kind, name)) => {}
            // The agent holds what has ended until the hub knows, and makes anew what has not.
            (false, Some(job)) => self.run_again(job, member),
            (false, None) => {}
        }
    }

    fn rules(&mut self) {
        if let Some(change) = self.objects.tree_change() {
            self.planner.set_tree_trouble(self.objects.tree_trouble());
            self.set_tree(change);
        }
        for (path, policy) in self.objects.queue_policies() {
            self.planner.set_policy(&path, policy);
        }
    }

    pub fn set_tree(&mut self, tree: Option<Arc<QuotaTree>>) {
        self.planner.set_tree(tree.clone(), self.now_ms);
        let mut alive: Vec<usize> = self.alive.values().copied().collect();
        alive.sort_unstable();
        for job in alive {
            self.jobs[job].queue = self.queue_of(job);
        }
        let leaves: std::collections::BTreeMap<usize, String> =
            self.checker.holders().filter_map(|job| Some((job, self.leaf_of(job)?.to_string()))).collect();
        self.checker.set_tree(tree, |job| leaves.get(&job).cloned());
    }

    /// What the planner is to know of a member: the nodes that are ready, with nothing on them.
    pub fn tell_planner_of(&mut self, member: usize) {
        let known = &self.members[member];
        let (shapes, node_names) = known.empty_shapes();
        let facts =
            fleet_policies::affinity::ClusterFacts { ready: !known.link.not_ready, ..known.facts.clone() };
        let told = planner::Member {
            facts,
            reserves: known.reserves,
            serves: Default::default(),
            shapes,
            node_names,
            sequence: 1,
        };
        self.planner.set_cluster(&known.name.clone(), told);
    }

    fn job(&mut self, namespace: &str, name: &str, spec: Arc<JobSpec>) -> usize {
        let name: Arc<str> = Arc::from(format!("{namespace}/{name}"));
        let job = self.jobs.len();
        self.jobs.push(SimJob {
            id: JobId::new(&name),
            name,
            submitted_ms: self.now_ms,
            queue: Arc::from(""),
            phase: Phase::Waits,
            epoch: 0,
            attempts: Vec::new(),
            run: fleet_runs::Run::default(),
            ending: None,
            told: None,
            spec,
            binding: None,
            next: None,
        });
        job
    }

    fn submit(&mut self, namespace: &str, name: &str, spec: Arc<JobSpec>) {
        let id = JobId::new(&format!("{namespace}/{name}"));
        // A second job of the name changes nothing.
        if self.alive.contains_key(&id) {
            return;
        }
        let job = self.job(namespace, name, spec);
        let spec = &self.jobs[job].spec;
        let submitted = What::Submitted {
            kind: Arc::clone(&spec.kind),
            gpus: spec.gpus,
            components: Arc::clone(&spec.components),
            priority: spec.priority,
        };
        self.record(job, submitted);
        self.alive.insert(id, job);
        let waits = self.planner_job(job, JobPhase::Waits);
        self.planner.set_job(waits, self.now_ms);
        self.jobs[job].queue = self.queue_of(job);
        if self.jobs[job].spec.queued {
            let reason = Reason::Enqueued;
            let queue = Arc::clone(&self.jobs[job].queue);
            let message = "waits for its turn".to_string();
            self.record(job, What::Queued { queue, reason: reason.to_string(), message });
        }
    }

    pub fn submit_traced(&mut self, job: &TraceJob) {
        self.submit(&job.namespace, &job.name, Arc::clone(&job.spec));
    }

    fn reject(&mut self, namespace: &str, name: &str, kind: Arc<str>, reason: Reason, message: String) {
        let spec = JobSpec { kind: Arc::clone(&kind), ..JobSpec::default() };
        let job = self.job(namespace, name, Arc::new(spec));
        self.record(job, What::Submitted { kind, gpus: 0, components: Arc::default(), priority: 0 });
        self.record(job, What::Rejected { reason: reason.to_string(), message });
        self.jobs[job].phase = Phase::Over;
    }

    fn delete(&mut self, name: &ObjectName) {
        let id = JobId::new(&format!("{}/{}", name.namespace, name.name));
        let job = self.alive.get(&id).copied().filter(|job| *self.jobs[*job].spec.kind == *name.kind);
        let Some(job) = job else {
            self.objects.delete(name);
            self.rules();
            return;
        };
        self.record(job, What::Deleted {});
        let bound = self.jobs[job].phase;
        self.close(job);
        if let Phase::Bound { member } = bound
            && self.members[member].link.reachable()
        {
            self.members[member].release(job);
            self.start_waiting(member);
        }
    }

    fn node(&mut self, cluster: &str, name: &str, ready: bool) {
        let Some(member) = self.member_of.get(cluster).copied() else { return };
        let touched = self.members[member].set_ready(name, ready);
        self.tell_planner_of(member);
        for job in touched {
            let whole =
                self.members[member].stays.get(&job).is_some_and(|stay| self.members[member].is_whole(stay));
            if whole {
                self.mend_run(job, member);
            } else {
                self.break_run(job, member);
            }
        }
        self.start_waiting(member);
    }

    /// After a restart of the hub: what was due while it was away.
    pub fn catch_up(&mut self) {
        let mut alive: Vec<usize> = self.alive.values().copied().collect();
        alive.sort_unstable();
        for job in alive {
            self.judge(job);
        }
        self.rules();
    }

    /// The planner has something new to say of a waiting job.
    pub fn tell(&mut self, id: &JobId) {
        let Some(job) = self.alive.get(id).copied() else { return };
        let Some(waiting) = self.planner.waiting(id) else { return };
        let reason = waiting.reason;
        // Queuing is what Queued has said already.
        if self.jobs[job].told == Some(reason) || reason == Reason::Queuing {
            return;
        }
        let message = waiting.message.clone();
        self.jobs[job].told = Some(reason);
        let queue = Arc::clone(&self.jobs[job].queue);
        self.record(job, What::Pending { queue, reason: reason.to_string(), message });
    }

    pub fn queue_of(&self, job: usize) -> Arc<str> {
        Arc::from(self.planner.leaf_path(&self.jobs[job].id).unwrap_or_default())
    }

    /// Path of the leaf that the job's use is counted in.
    pub fn leaf_of(&self, job: usize) -> Option<&str> {
        self.planner.leaf_path(&self.jobs[job].id)
    }

    pub fn over_used(&mut self, job: usize, member: usize, broken: Vec<String>) {
        for what in broken {
            let objects = vec![self.jobs[job].name.to_string(), self.members[member].name.to_string()];
            self.checker.broken(3, self.now_ms, objects, what);
        }
    }

    /// 1 and 2 when a gang starts.
    pub fn check_start(&mut self, job: usize, member: usize, nodes: &NodesOf) {
        let name = self.jobs[job].name.to_string();
        let placed: i64 = nodes.values().map(|nodes| nodes.len() as i64).sum();
        let wanted = self.jobs[job].spec.shape.gang.pods();
        if placed < wanted {
            let what = format!("{placed} of {wanted} pods started");
            self.checker.broken(2, self.now_ms, vec![name.clone()], what);
        }
        for other in (0..self.members.len()).filter(|other| *other != member) {
            let Some(stay) = self.members[other].stays.get(&job) else { continue };
            let alive = matches!(stay.run, Run::Runs { .. } | Run::Broken { .. });
            // A purge that leaves the old run alone was asked for, with two runs at once.
            if alive && self.left_alone(job, other).is_none() && self.is_covered(job, other) {
                let epoch = stay.epoch;
                let (here, there) = (self.members[member].name.clone(), self.members[other].name.clone());
                let what = format!("starts on {here} while epoch {epoch} runs on {there}");
                self.checker.broken(1, self.now_ms, vec![name.clone(), there.to_string()], what);
            }
        }
    }

    /// Whether the job's fencing level promises that the old run has stopped.
    fn is_covered(&self, job: usize, member: usize) -> bool {
        use fleet_policies::spec::Fencing;
        let failover = self.jobs[job].spec.failover.as_ref().and_then(|failover| failover.cluster.as_ref());
        match failover.map(|failover| failover.fencing()) {
            Some(Fencing::None) => false,
            Some(Fencing::Lease) => !self.members[member].link.agent_away,
            Some(Fencing::Watchdog) | None => true,
        }
    }

    /// 5: what is over holds nothing, where the hub can reach it.
    pub fn check_over(&mut self, job: usize) {
        if self.checker.holds(job) {
            let name = self.jobs[job].name.to_string();
            self.checker.broken(5, self.now_ms, vec![name], "holds quota after its end".to_string());
        }
    }

    /// 5 over everything.
    pub fn check_all(&mut self) {
        if self.members.iter().map(|member| member.stays.len()).sum::<usize>() > CHECKED_WHOLE {
            return;
        }
        self.check_holds();
    }

    fn check_holds(&mut self) {
        let mut broken = Vec::new();
        for (at, member) in self.members.iter().enumerate().filter(|(_, member)| member.link.reachable()) {
            for (job, stay) in &member.stays {
                let known = &self.jobs[*job];
                if self.left_alone(*job, at).is_some() {
                    continue;
                }
                if self.hub_up && (known.phase != Phase::Bound { member: at } || known.epoch != stay.epoch) {
                    let objects = vec![known.name.to_string(), member.name.to_string()];
                    broken.push((objects, format!("places of epoch {} are held for nothing", stay.epoch)));
                }
            }
            if member.stays.is_empty() && !member.used().is_zero() {
                broken.push((vec![member.name.to_string()], format!("{} in use by nobody", member.used())));
            }
        }
        for (objects, what) in broken {
            self.checker.broken(5, self.now_ms, objects, what);
        }
    }

    /// 4 and 5 at the end: each job has ended, runs, or says why it waits.
    pub fn check_end(&mut self) {
        self.check_holds();
        let mut alive: Vec<usize> = self.alive.values().copied().collect();
        alive.sort_unstable();
        for job in alive {
            let known = &self.jobs[job];
            if self.hub_up && known.phase == Phase::Waits && self.planner.waiting(&known.id).is_none() {
                let name = known.name.to_string();
                self.checker.broken(4, self.now_ms, vec![name], "waits without a reason".to_string());
            }
        }
    }
}

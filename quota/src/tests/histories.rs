//! Laws over longer histories: jobs of mixed priorities come, run and end, trees are edited, room is claimed, and
//! victims that have ended wait again. The planner is asked whenever something happens and whenever it said it would
//! wake. `cargo xtask laws` plays 100,000 of each.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const LEAVES: [&str; 5] = ["a/1", "a/2", "b/1", "b/2", "c"];
/// Trees that take turns: the same leaves under other bounds and rights; and without some of them, with one more, or with
/// one renamed (see `home`).
const TREES: [&str; 9] = [
    "root 20-20 @share-preemption=FairShare; a 8-14 @guarantee=Subtree; a/1 3-8 @max-bypass=1m; a/2 3-20; b 6-10; b/1 \
     2-10 w=2 @max-bypass=2m @max-claim=3m; b/2 2-5 @reclaim=LowerPriority; c 0-20 w=0 @max-bypass=1m @max-claim=2m",
    "root 18-18; a 6-18; a/1 3-18 @max-bypass=1m @max-claim=2m; a/2 3-18; b 6-18 jobs=4; b/1 4-18 @max-bypass=1m; b/2 \
     2-18 @max-bypass=1m @max-claim=0s; c 4-18 @max-bypass=1m",
    "root 20-20 @share-preemption=FairShare; a 6-20; a/1 0-20 @max-bypass=1m @max-claim=5m; a/2 6-20 \
     @preempt-within=LowerOrNewerEqualPriority; b 2-20; b/1 1-20; b/2 1-20 @max-bypass=1m; c 6-20 @max-bypass=1m",
    "root 20-20; a 8-14; a/1 3-8; a/2 5-20 lend=1; b 6-10; b/1 4-10 @max-bypass=1m; b/2 2-5; c 0-20 @min-runtime=30s",
    "root 20-20 jobs=7 @share-preemption=FairShare @max-gpu-loss=0.5; a 4-20 jobs=4 @guarantee=Subtree; a/1 2-12 \
     @min-runtime=1m @max-bypass=30s @max-claim=1m; a/2 2-20 @min-runtime=20s; b 8-20; b/1 4-20 jobs=2 @max-bypass=0s \
     @max-claim=1m; b/2 0-9 @preempt-within=Never; c 2-20 w=3 @min-runtime=5m",
    "root 16-20 @max-gpu-loss=1; a 4-20; a/1 4-20 @min-runtime=40s @max-bypass=10s @max-claim=30s; a/2 0-20 \
     @preempt-within=LowerOrNewerEqualPriority @min-runtime=10s; b 6-20 lend=2 jobs=5; b/1 3-20 @reclaim=Never \
     @max-bypass=10s; b/2 3-20 @max-bypass=10s @max-claim=10s; c 6-6 @max-bypass=10s",
    "root 20-20 @share-preemption=FairShare; a 8-20; a/1 4-20 @max-bypass=1m; b 6-20 @guarantee=Subtree; b/2 4-20; c 4-20 \
     @max-bypass=30s @max-claim=1m",
    "root 20-20; a 6-20; a/1 2-20 @max-bypass=1m; a/2 2-20; b 6-20; b/1 3-20; b/2 3-20 @max-bypass=1m; d 4-20; e 4-20",
    "root 20-20 @share-preemption=FairShare; a 10-20 @max-bypass=1m @max-claim=1m; c 6-20 @max-bypass=1m",
];
const CLUSTERS: &str = "east 11, west 9";

/// The leaf of jobs that were sent for `name`: `c` is called `d` in one tree. No leaf, if it was removed.
fn home(tree: &QuotaTree, name: &str) -> Option<NodeId> {
    let find = |name: &str| tree.find(&format!("root/{name}")).filter(|node| tree.node(*node).is_leaf());
    find(name).or_else(|| find("d").filter(|_| name == "c"))
}

#[derive(Clone, Debug)]
enum Event {
    Submit {
        leaf: usize,
        cores: i64,
        priority: i64,
        run_ms: Option<i64>,
        preemptible: bool,
    },
    /// The nth running job ends well.
    End(usize),
    /// The nth waiting job leaves.
    Leave(usize),
    /// The first n victims are gone, and wait again.
    Evicted(usize),
    /// All that ends by its declared run time ends in this time, and the planner is asked when it said so.
    Wait(i64),
    Edit(usize),
    /// The nth waiting job pauses.
    Pause(usize, i64),
    /// The leaf gets another policy.
    Policy(usize, QueuePolicy),
}

fn histories(count: usize) -> impl Strategy<Value = Vec<Event>> {
    let submit = (0_usize..5, 1_i64..9, -1_i64..3, proptest::option::of(1_000_i64..400_000), 0_u8..7);
    let submit = submit.prop_map(|(leaf, cores, priority, run_ms, firm)| Event::Submit {
        leaf,
        cores,
        priority,
        run_ms,
        preemptible: firm > 0,
    });
    let policy = prop_oneof![
        2 => Just(QueuePolicy::Priority),
        1 => Just(QueuePolicy::Block),
        1 => Just(QueuePolicy::Intelligent { threshold: 1 }),
    ];
    let event = prop_oneof![
        8 => submit,
        4 => (0_usize..20).prop_map(Event::End),
        1 => (0_usize..20).prop_map(Event::Leave),
        5 => (1_usize..5).prop_map(Event::Evicted),
        3 => (1_i64..180_000).prop_map(Event::Wait),
        1 => (0_usize..TREES.len()).prop_map(Event::Edit),
        1 => (0_usize..20, 1_i64..90_000).prop_map(|(n, ms)| Event::Pause(n, ms)),
        1 => (0_usize..5, policy).prop_map(|(leaf, policy)| Event::Policy(leaf, policy)),
    ];
    proptest::collection::vec(event, 1..count)
}

/// What a preemptor was promised.
#[derive(Clone, Debug)]
struct Promise {
    cluster: ClusterName,
    /// Victims that have not ended.
    left: BTreeSet<JobId>,
    /// The tree was edited since.
    edited: bool,
}

/// A promise that ended in the last plan.
#[derive(Clone, Debug)]
struct Ended {
    preemptor: JobId,
    promise: Promise,
    /// Where the preemptor started; `None`: it gave up.
    started: Option<ClusterName>,
    /// The tree, as it was before the plan, would have admitted it into what its victims leave.
    fits: bool,
}

/// Use and places before a plan.
struct Before {
    ledger: Ledger,
    clusters: Clusters,
}

struct World {
    fleet: Fleet,
    jobs: BTreeMap<JobId, WaitingJob>,
    leaves: BTreeMap<JobId, &'static str>,
    /// Asked to go, and not gone yet.
    victims: Vec<JobId>,
    /// By preemptor.
    promises: BTreeMap<JobId, Promise>,
    /// Promises that ended in the last plan.
    ended: Vec<Ended>,
    /// Promises that an edit ended since.
    lost_by_edit: Vec<Ended>,
    /// What was decided, for a reader of a failure.
    log: Vec<String>,
}

impl World {
    fn new() -> Self {
        Self {
            fleet: Fleet::new(TREES[0], CLUSTERS),
            jobs: BTreeMap::new(),
            leaves: BTreeMap::new(),
            victims: Vec::new(),
            promises: BTreeMap::new(),
            ended: Vec::new(),
            lost_by_edit: Vec::new(),
            log: Vec::new(),
        }
    }

    fn happen(&mut self, event: &Event) {
        let Fleet { planner, now_ms, .. } = &mut self.fleet;
        self.log.push(format!("{now_ms}: {event:?}"));
        match event {
            Event::Submit { leaf, cores, priority, run_ms, preemptible } => {
                let Some(home) = home(planner.tree(), LEAVES[*leaf]) else { return };
                let id = format!("j{:03}", self.jobs.len());
                let path = planner.tree().node(home).path["root/".len()..].to_owned();
                let mut job = waiting(planner.tree(), &id, &path, *cores, *priority, *now_ms);
                (job.run_time_ms, job.preemptible) = (*run_ms, *preemptible);
                // What is lost and gained is counted in GPUs, which no tree bounds.
                job.request.set("nvidia.com/gpu", *cores);
                self.leaves.insert(job.id.clone(), LEAVES[*leaf]);
                self.jobs.insert(job.id.clone(), job.clone());
                planner.enqueue(job);
            }
            Event::End(n) => {
                let running: Vec<JobId> = planner.ledger().jobs().map(|job| job.id.clone()).collect();
                if let Some(id) = running.get(n % running.len().max(1)) {
                    self.end(&id.clone());
                }
            }
            Event::Leave(n) => {
                let waiting: Vec<JobId> =
                    self.jobs.keys().filter(|id| planner.queues().get(id).is_some()).cloned().collect();
                if let Some(id) = waiting.get(n % waiting.len().max(1)) {
                    planner.remove(id);
                    self.promises.remove(id);
                }
            }
            Event::Evicted(n) => {
                for id in self.victims.drain(..(*n).min(self.victims.len())).collect::<Vec<_>>() {
                    self.end(&id);
                    let known = self.jobs.get_mut(&id).unwrap();
                    known.preemptions += 1;
                    if let Some(leaf) = home(self.fleet.planner.tree(), self.leaves[&id]) {
                        self.fleet.planner.enqueue(WaitingJob { leaf, ..known.clone() });
                    }
                }
            }
            // See `play`.
            Event::Wait(_) => {}
            Event::Pause(n, ms) => {
                let waiting: Vec<JobId> =
                    self.jobs.keys().filter(|id| planner.queues().get(id).is_some()).cloned().collect();
                if let Some(id) = waiting.get(n % waiting.len().max(1)) {
                    planner.back_off(id, *now_ms + ms);
                }
            }
            Event::Policy(at, policy) => {
                if let Some(leaf) = home(planner.tree(), LEAVES[*at]) {
                    planner.set_policy(leaf, *policy);
                }
            }
            Event::Edit(n) => self.edit(TREES[*n]),
        }
    }

    /// Whoever waits and has no leaf any more is gone. Whoever runs stays, and drains where it has no leaf.
    fn edit(&mut self, text: &str) {
        let planner = &mut self.fleet.planner;
        let leaves = &self.leaves;
        let running: Vec<JobId> = planner.ledger().jobs().map(|job| job.id.clone()).collect();
        let tree = QuotaTree::build(&tree_spec(text)).unwrap().0;
        let edit = planner.set_tree(tree, &mut |tree, id| home(tree, leaves.get(id)?));
        for job in &edit.homeless {
            self.promises.remove(&job.id);
        }
        assert!(running.iter().eq(planner.ledger().jobs().map(|job| &job.id)), "an edit ends no job");
        for job in planner.ledger().jobs() {
            let (node, home) = (planner.tree().node(job.leaf), home(planner.tree(), leaves[&job.id]));
            // A node that has lost all its leaves is one itself, and takes their jobs.
            let above = || format!("root/{}", leaves[&job.id]).starts_with(&format!("{}/", node.path));
            assert!(home.map_or_else(|| node.draining || above(), |home| home == job.leaf), "{}", node.path);
        }
        self.promises.values_mut().for_each(|promise| promise.edited = true);
        let before = Before { ledger: planner.ledger().clone(), clusters: self.fleet.clusters.clone() };
        self.ended.clear();
        self.forget_hopeless(&before);
        self.lost_by_edit.append(&mut self.ended);
    }

    /// A job that an edited tree could never admit says so, and preempts for nothing no longer.
    fn forget_hopeless(&mut self, before: &Before) {
        let planner = &self.fleet.planner;
        let hopeless = |(id, promise): &(&JobId, &Promise)| {
            let says_so = || matches!(planner.reason(id), Some(WaitReason::Quota(_)));
            promise.edited && !planner.holds_room(id) && says_so()
        };
        let hopeless: Vec<JobId> = self.promises.iter().filter(hopeless).map(|(id, _)| id.clone()).collect();
        self.give_up(&hopeless, before);
    }

    /// The job as it waits or would, in the tree of now.
    fn job(&self, id: &JobId) -> WaitingJob {
        let leaf = home(self.fleet.planner.tree(), self.leaves[id]).expect("it waits, so it has a leaf");
        WaitingJob { leaf, ..self.jobs[id].clone() }
    }

    /// These preemptors start no more. Each is judged by the ledger before, without its victims, and with those in it that
    /// keep their promises.
    fn give_up(&mut self, preemptors: &[JobId], before: &Before) {
        let lost: Vec<(JobId, Promise)> =
            preemptors.iter().filter_map(|id| Some((id.clone(), self.promises.remove(id)?))).collect();
        for (preemptor, promise) in lost {
            let mut ledger = before.ledger.clone();
            let others = self.promises.values().flat_map(|promise| &promise.left);
            let gone: Vec<JobId> = promise.left.iter().chain(others).cloned().collect();
            gone.iter().for_each(|victim| drop(ledger.release(victim)));
            let mut taken = Vec::new();
            let kept: Vec<(WaitingJob, &ClusterName)> =
                self.promises.iter().map(|(id, kept)| (self.job(id), &kept.cluster)).collect();
            for (job, cluster) in &kept {
                admit_to(&mut ledger, job);
                taken.extend((**cluster == promise.cluster).then_some(job));
            }
            let job = self.job(&preemptor);
            let together: Vec<&WaitingJob> = taken.into_iter().chain([&job]).collect();
            let fits = ledger.check(job.leaf, &job.request, job.preemptible).is_ok()
                && before.clusters.clone().fits_without(&together, &promise.cluster, &gone);
            self.ended.push(Ended { preemptor, promise, started: None, fits });
        }
    }

    fn end(&mut self, id: &JobId) {
        self.victims.retain(|victim| victim != id);
        self.fleet.clusters.ends.remove(id);
        if self.fleet.planner.ledger().job(id).is_some() {
            self.fleet.end(id.as_str());
        }
        for promise in self.promises.values_mut() {
            promise.left.remove(id);
        }
    }

    /// Lets an event happen and asks the planner, as often as it says while time goes by; `judge` sees each plan.
    fn play(
        &mut self,
        event: &Event,
        limits: PlanLimits,
        judge: &mut dyn FnMut(&mut Self, &QuotaPlan) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        self.happen(event);
        let until_ms = self.fleet.now_ms + if let Event::Wait(ms) = event { *ms } else { 0 };
        loop {
            let plan = self.plan(limits);
            judge(self, &plan)?;
            let now_ms = self.fleet.now_ms;
            let end_ms = self.fleet.clusters.ends.values().min().copied();
            let next_ms =
                plan.wake_at_ms.into_iter().chain(end_ms).min().filter(|next_ms| *next_ms <= until_ms);
            let Some(next_ms) = next_ms.or(plan.more.then_some(now_ms + 1)) else { break };
            // A plan is made a millisecond after this.
            self.fleet.now_ms = now_ms.max(next_ms - 1);
            let over = self.fleet.clusters.ends.iter().filter(|(_, end_ms)| **end_ms <= next_ms);
            for id in over.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                self.end(&id);
            }
        }
        self.fleet.now_ms = self.fleet.now_ms.max(until_ms);
        Ok(())
    }

    fn plan(&mut self, limits: PlanLimits) -> QuotaPlan {
        self.fleet.now_ms += 1;
        let Fleet { planner, clusters, now_ms } = &mut self.fleet;
        clusters.now_ms = *now_ms;
        let before = Before { ledger: planner.ledger().clone(), clusters: clusters.clone() };
        self.ended = std::mem::take(&mut self.lost_by_edit);
        let plan = planner.plan(*now_ms, limits, clusters);
        self.log.extend(plan.decisions.iter().map(|decision| format!("{now_ms}: {}", said(decision))));
        // Who starts in this plan keeps its promise beside those who give up.
        let gives_up = |d: &&Decision| matches!(d.outcome, Outcome::Wait(WaitReason::Backoff { .. }));
        let lost: Vec<JobId> = plan.decisions.iter().filter(gives_up).map(|d| d.job.clone()).collect();
        self.give_up(&lost, &before);
        self.forget_hopeless(&before);
        let clusters = &mut self.fleet.clusters;
        let now_ms = &self.fleet.now_ms;
        for (id, cluster) in plan.admitted() {
            clusters.started.insert(id.clone(), *now_ms);
            if let Some(run_ms) = self.jobs[id].run_time_ms {
                clusters.ends.insert(id.clone(), *now_ms + run_ms);
            }
            self.ended.extend(self.promises.remove(id).map(|promise| Ended {
                preemptor: id.clone(),
                promise,
                started: Some(cluster.clone()),
                fits: true,
            }));
        }
        for (id, take) in plan.takes() {
            self.victims.extend(take.victims.iter().map(|victim| victim.job.clone()));
            let counted =
                take.victims.iter().map(|victim| victim.job.clone()).chain(take.awaited.iter().cloned());
            let promise = Promise { cluster: take.cluster.clone(), left: counted.collect(), edited: false };
            self.promises.insert(id.clone(), promise);
        }
        plan
    }
}

fn admit_to(ledger: &mut Ledger, job: &WaitingJob) {
    ledger.admit(AdmittedJob {
        id: job.id.clone(),
        leaf: job.leaf,
        request: job.request.clone(),
        preemptible: job.preemptible,
        priority: job.priority,
        enqueued_at_ms: job.enqueued_at_ms,
        admitted_at_ms: 0,
        preemptions: job.preemptions,
    });
}

/// As many as a developer waits for, or as `PROPTEST_CASES` says.
pub fn cases(some: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    let cases = if asked.cases == DEFAULT_CASES { some } else { asked.cases };
    ProptestConfig { cases, max_shrink_iters: 20_000, ..asked }
}

/// What proptest takes where nothing is asked for.
const DEFAULT_CASES: u32 = 256;

proptest! {
    #![proptest_config(cases(96))]

    /// With nothing new a bounded number of plans comes to rest, however few searches each may make, and a plan
    /// at rest decides nothing.
    #[test]
    fn the_planner_comes_to_rest(events in histories(40), searches in 1_usize..4) {
        let mut world = World::new();
        let limits = PlanLimits { searches, ..PlanLimits::default() };
        for event in &events {
            world.happen(event);
            if let Event::Wait(ms) = event {
                world.play(event, limits, &mut |_, _| Ok(()))?;
                prop_assert!(*ms > 0);
            }
            let waiting = world.fleet.planner.queues().len();
            let mut plans = 0;
            let mut at_rest = false;
            while !at_rest {
                let plan = world.plan(limits);
                plans += 1;
                prop_assert!(plans <= 3 * (waiting + 1) * (waiting + 1), "{} wait, no rest", waiting);
                // A pause or a protection may end meanwhile.
                let later = plan.wake_at_ms.is_none_or(|wake_ms| wake_ms > world.fleet.now_ms + 1);
                at_rest = later && !plan.more && plan.decisions.is_empty();
            }
            let plan = world.plan(limits);
            prop_assert_eq!(&plan.decisions, &Vec::new(), "{}", world.log.join("\n"));
            prop_assert!(!plan.more && plan.wake_at_ms.is_none_or(|wake_ms| wake_ms > world.fleet.now_ms));
        }
    }

    /// Who is evicted is evicted for one who then starts, at once when all victims have ended, whatever else has happened in
    /// the meantime: in that cluster, unless other victims that it counts on are still ending there. Only after an edit of
    /// the tree may the preemptor give up instead, and says so: when the tree as edited does not admit it even without its
    /// victims.
    #[test]
    fn nobody_is_evicted_for_nothing(events in histories(60)) {
        let mut world = World::new();
        for event in &events {
            world.play(event, PlanLimits::default(), &mut |world, _| {
                for Ended { preemptor: id, promise, started, fits } in &world.ended {
                    match started {
                        Some(cluster) if *cluster == promise.cluster => {}
                        // Where its victims were, others are still ending on whom it counts.
                        Some(_) => {
                            let job = &world.jobs[id];
                            let fits = world.fleet.clusters.fits_without(&[job], &promise.cluster, &[]);
                            prop_assert!(!fits, "{} starts elsewhere\n{}", id, world.log.join("\n"));
                        }
                        None => prop_assert!(
                            promise.edited && !fits,
                            "{} gives up, edited {}, fits {}\n{}", id, promise.edited, fits, world.log.join("\n")
                        ),
                    }
                }
                let planner = &world.fleet.planner;
                // A preemptor may count on what others take as well.
                if planner.ending_jobs().next().is_none() {
                    let due = world.promises.iter().find(|(_, promise)| promise.left.is_empty());
                    prop_assert!(due.is_none(), "{:?} waits: {:?}\n{}", due, due.map(|(id, _)| planner.reason(id)), world.log.join("\n"));
                }
                Ok(())
            })?;
        }
    }

    /// A claim ends when it said it would at the latest, whatever happens: when its start was foreseen then, or
    /// `fleet.dev/max-claim` after. Where nothing is known of its start a job claims until one bound, however often an
    /// edit takes its claim away, and each time it has given up it waits longer than before; what its claim keeps idle
    /// is at most what it asks for.
    #[test]
    fn no_claim_idles_beyond_its_bound(events in histories(60)) {
        let mut world = World::new();
        // By job: since when it claims and until when it may; how often it gave up and when; until when it may claim
        // blindly.
        let mut claims: BTreeMap<JobId, (i64, i64)> = BTreeMap::new();
        let mut given_up: BTreeMap<JobId, (u32, i64)> = BTreeMap::new();
        let mut blind: BTreeMap<JobId, i64> = BTreeMap::new();
        for event in &events {
            world.play(event, PlanLimits::default(), &mut |world, plan| {
                let (planner, now_ms) = (&world.fleet.planner, world.fleet.now_ms);
                for decision in &plan.decisions {
                    let (id, log) = (&decision.job, || world.log.join("\n"));
                    match &decision.outcome {
                        Outcome::Claim(claim) => {
                            let max_ms = planner.tree().node(decision.leaf).max_claim_ms;
                            let bound_ms = claim.start_ms.unwrap_or(now_ms).max(now_ms) + max_ms;
                            prop_assert!(claim.until_ms <= bound_ms, "{id} claims until {}\n{}", claim.until_ms, log());
                            if let Some((times, at_ms)) = given_up.get(id) {
                                let backoff_ms = max_ms.max(planner.tree().node(decision.leaf).max_bypass_ms);
                                let backoff_ms = backoff_ms << (times - 1).min(20);
                                prop_assert!(now_ms >= at_ms + backoff_ms, "{id} claims again too soon\n{}", log());
                            }
                            if claim.start_ms.is_none() {
                                let until_ms = *blind.entry(id.clone()).or_insert(claim.until_ms);
                                prop_assert!(claim.until_ms <= until_ms, "{id} claims blindly again\n{}", log());
                                prop_assert!(!given_up.contains_key(id), "{id} claims blindly again\n{}", log());
                            }
                            claims.insert(id.clone(), (now_ms, claim.until_ms));
                        }
                        Outcome::GiveUp(_) => {
                            let times = given_up.get(id).map_or(0, |(times, _)| *times);
                            given_up.insert(id.clone(), (times + 1, now_ms));
                        }
                        // It waited for its turn no longer: what comes after is another wait.
                        Outcome::Admit { .. } => {
                            given_up.remove(id);
                            blind.remove(id);
                        }
                        _ => {}
                    }
                }
                let held: BTreeMap<&JobId, Claim> = planner.claims().collect();
                claims.retain(|id, _| held.contains_key(id));
                for (id, claim) in held {
                    let (since_ms, until_ms) = claims[id];
                    prop_assert!(now_ms < until_ms && claim.until_ms <= until_ms, "{id} claims for too long\n{}", world.log.join("\n"));
                    prop_assert_eq!(claim.since_ms, since_ms);
                    let asked = planner.queues().get(id).unwrap().request.get("cpu");
                    let idled = claim.idled.get("cpu");
                    prop_assert!(idled <= asked * (now_ms - since_ms) / 1000, "{} idled {} of {}", id, idled, asked);
                }
                Ok(())
            })?;
        }
    }

    /// A job that started is not evicted for what was known when it did: with nothing new no later plan of the same
    /// moment takes from it, nor one a moment after. Only a min may take at once, in two cases. Who was promised its start, as a
    /// preemptor or by a claim, may lose it, and others beside it that alone would not be enough: a promise is kept before a
    /// min is taken back, and may be all that the promised start was good for. And the limit on searches may have left out
    /// the job whose min it is, in the plan of the start and in all since: neither does the start wait for that search, nor
    /// the min for something new.
    #[test]
    fn nobody_is_evicted_for_what_was_known_when_it_started(events in histories(40), searches in 1_usize..4) {
        let mut world = World::new();
        let limits = PlanLimits { searches, ..PlanLimits::default() };
        for event in events.iter().filter(|event| !matches!(event, Event::Wait(_))) {
            world.happen(event);
            // By job that started: those for whom no plan has searched since.
            let mut started: BTreeMap<JobId, BTreeSet<JobId>> = BTreeMap::new();
            let mut promised = BTreeSet::<JobId>::new();
            for _ in 0..200 {
                let planner = &world.fleet.planner;
                let held: BTreeSet<JobId> =
                    world.jobs.keys().filter(|id| planner.holds_room(id)).cloned().collect();
                let plan = world.plan(limits);
                for (preemptor, take) in plan.takes() {
                    let reclaims = |victim: &&Victim| victim.rule == TakeRule::Reclaim;
                    let by_promise =
                        take.victims.iter().filter(reclaims).any(|victim| promised.contains(&victim.job));
                    let early = take.victims.iter().find(|victim| {
                        started.get(&victim.job).is_some_and(|unsearched| {
                            !reclaims(victim) || !(by_promise || unsearched.contains(preemptor))
                        })
                    });
                    prop_assert!(early.is_none(), "{} preempts {:?}\n{}", preemptor, early, world.log.join("\n"));
                }
                let unsearched = world.fleet.planner.unsearched();
                started.values_mut().for_each(|ids| ids.retain(|id| unsearched.contains(id)));
                started.extend(plan.admitted().map(|(id, _)| (id.clone(), unsearched.clone())));
                promised.extend(plan.admitted().map(|(id, _)| id.clone()).filter(|id| held.contains(id)));
                if !plan.more && plan.decisions.is_empty() {
                    break;
                }
            }
        }
    }

    /// Nobody is evicted in the plan that starts it.
    #[test]
    fn nobody_is_evicted_as_it_starts(events in histories(60)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            let plan = world.plan(PlanLimits::default());
            let started: BTreeSet<&JobId> = plan.admitted().map(|(id, _)| id).collect();
            for (preemptor, take) in plan.takes() {
                for victim in &take.victims {
                    prop_assert!(!started.contains(&victim.job), "{} starts and is preempted by {}", victim.job, preemptor);
                    prop_assert!(world.fleet.planner.ledger().job(&victim.job).is_some());
                }
            }
        }
    }
}

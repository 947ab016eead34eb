//! Laws over longer histories: jobs of mixed priorities come, run and end, trees are edited, room is claimed, and
//! victims that have ended wait again.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const LEAVES: [&str; 5] = ["a/1", "a/2", "b/1", "b/2", "c"];
/// Trees that take turns: the same leaves under other bounds and rights.
const TREES: [&str; 4] = [
    "root 20-20 @share-preemption=FairShare; a 8-14 @guarantee=Subtree; a/1 3-8 @max-bypass=1m; a/2 3-20; b 6-10; b/1 \
     2-10 w=2 @max-bypass=2m; b/2 2-5 @reclaim=LowerPriority; c 0-20 w=0 @max-bypass=1m",
    "root 18-18; a 6-18; a/1 3-18 @max-bypass=1m; a/2 3-18; b 6-18 jobs=4; b/1 4-18 @max-bypass=1m; b/2 2-18 \
     @max-bypass=1m; c 4-18 @max-bypass=1m",
    "root 20-20 @share-preemption=FairShare; a 6-20; a/1 0-20 @max-bypass=1m; a/2 6-20 \
     @preempt-within=LowerOrNewerEqualPriority; b 2-20; b/1 1-20; b/2 1-20 @max-bypass=1m; c 6-20 @max-bypass=1m",
    "root 20-20; a 8-14; a/1 3-8; a/2 5-20 lend=1; b 6-10; b/1 4-10 @max-bypass=1m; b/2 2-5; c 0-20 @min-runtime=30s",
];
const CLUSTERS: &str = "east 11, west 9";

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
    /// All that ends by its declared run time has ended after this.
    Wait(i64),
    Edit(usize),
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
    let event = prop_oneof![
        8 => submit,
        4 => (0_usize..20).prop_map(Event::End),
        1 => (0_usize..20).prop_map(Event::Leave),
        5 => (1_usize..5).prop_map(Event::Evicted),
        3 => (1_i64..180_000).prop_map(Event::Wait),
        1 => (0_usize..TREES.len()).prop_map(Event::Edit),
    ];
    proptest::collection::vec(event, 1..count)
}

struct World {
    fleet: Fleet,
    jobs: BTreeMap<JobId, WaitingJob>,
    leaves: BTreeMap<JobId, &'static str>,
    /// Asked to go, and not gone yet.
    victims: Vec<JobId>,
    /// By taker, the victims it was promised.
    promises: BTreeMap<JobId, BTreeSet<JobId>>,
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
            log: Vec::new(),
        }
    }

    fn happen(&mut self, event: &Event) {
        let Fleet { planner, now_ms, .. } = &mut self.fleet;
        self.log.push(format!("{now_ms}: {event:?}"));
        match event {
            Event::Submit { leaf, cores, priority, run_ms, preemptible } => {
                let id = format!("j{:03}", self.jobs.len());
                let mut job = waiting(planner.tree(), &id, LEAVES[*leaf], *cores, *priority, *now_ms);
                (job.run_time_ms, job.preemptible) = (*run_ms, *preemptible);
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
                    let leaf = leaf(self.fleet.planner.tree(), self.leaves[&id]);
                    self.fleet.planner.enqueue(WaitingJob { leaf, ..known.clone() });
                }
            }
            Event::Wait(ms) => {
                *now_ms += ms;
                let now_ms = *now_ms;
                let over = self.fleet.clusters.ends.iter().filter(|(_, end)| **end <= now_ms);
                for id in over.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                    self.end(&id);
                }
            }
            Event::Edit(n) => {
                let leaves = &self.leaves;
                let tree = QuotaTree::build(&tree_spec(TREES[*n])).unwrap().0;
                planner.set_tree(tree, &mut |tree, id| Some(leaf(tree, leaves.get(id)?)));
            }
        }
    }

    fn end(&mut self, id: &JobId) {
        self.victims.retain(|victim| victim != id);
        self.fleet.clusters.ends.remove(id);
        if self.fleet.planner.ledger().job(id).is_some() {
            self.fleet.end(id.as_str());
        }
        for victims in self.promises.values_mut() {
            victims.remove(id);
        }
    }

    fn plan(&mut self, limits: PlanLimits) -> Plan {
        self.fleet.now_ms += 1;
        let Fleet { planner, clusters, now_ms } = &mut self.fleet;
        clusters.now_ms = *now_ms;
        let plan = planner.plan(*now_ms, limits, clusters);
        self.log.extend(plan.decisions.iter().map(|decision| format!("{now_ms}: {}", said(decision))));
        for (id, _) in plan.admitted() {
            clusters.started.insert(id.clone(), *now_ms);
            if let Some(run_ms) = self.jobs[id].run_time_ms {
                clusters.ends.insert(id.clone(), *now_ms + run_ms);
            }
            self.promises.remove(id);
        }
        for (id, take) in plan.takes() {
            self.victims.extend(take.victims.iter().map(|victim| victim.job.clone()));
            let counted =
                take.victims.iter().map(|victim| victim.job.clone()).chain(take.awaited.iter().cloned());
            self.promises.insert(id.clone(), counted.collect());
        }
        plan
    }
}

/// As many as a developer waits for.
fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(96)
}

proptest! {
    #![proptest_config(cases())]

    /// With nothing new a bounded number of plans comes to rest, however few searches each may make, and a plan
    /// at rest decides nothing.
    #[test]
    fn the_planner_comes_to_rest(events in histories(40), searches in 1_usize..4) {
        let mut world = World::new();
        let limits = PlanLimits { searches, ..PlanLimits::default() };
        for event in &events {
            world.happen(event);
            let waiting = world.fleet.planner.queues().len();
            let mut plans = 0;
            while world.plan(limits).more {
                plans += 1;
                prop_assert!(plans <= 2 * (waiting + 1) * (waiting + 1), "{} wait, no rest", waiting);
            }
            // Somebody may take who was looked at before another one took.
            for _ in 0..=waiting {
                while world.plan(limits).more {}
            }
            let plan = world.plan(limits);
            prop_assert_eq!(&plan.decisions, &Vec::new());
            prop_assert!(plan.wake_at_ms.is_none_or(|wake_ms| wake_ms > world.fleet.now_ms));
        }
    }

    /// Once its victims have ended a taker starts, whatever else has happened in the meantime, unless the tree
    /// was edited so that it no longer may.
    #[test]
    fn nobody_is_evicted_for_nothing(events in histories(60)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.plan(PlanLimits::default());
            // A taker may count on what others take as well.
            if world.fleet.planner.ending_jobs().next().is_some() {
                continue;
            }
            let due = world.promises.iter().filter(|(_, victims)| victims.is_empty()).map(|(id, _)| id.clone());
            for id in due.collect::<Vec<_>>() {
                let planner = &world.fleet.planner;
                let Some(job) = planner.queues().get(&id) else { continue };
                let kept = planner.ledger().check(job.leaf, &job.request, job.preemptible);
                prop_assert!(kept.is_err() && edited(&events),
                    "{} took, and waits: {:?}\n{}", id, planner.reason(&id), world.log.join("\n"));
                world.promises.remove(&id);
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
            for (taker, take) in plan.takes() {
                for victim in &take.victims {
                    prop_assert!(!started.contains(&victim.job), "{} starts and is taken by {}", victim.job, taker);
                    prop_assert!(world.fleet.planner.ledger().job(&victim.job).is_some());
                }
            }
        }
    }
}

fn edited(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::Edit(_)))
}

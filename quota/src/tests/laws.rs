//! Laws over random histories on small trees, some against a slow oracle.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const LAW_TREE: &str = "root 20-20 jobs=9 @share-preemption=FairShare; a 8-14 jobs=6 @guarantee=Subtree; a/1 3-8; \
                        a/2 3-20 lend=1; b 6-10; b/1 2-10 w=2; b/2 2-5 @reclaim=LowerPriority; c 0-20 w=0";
/// Without weights, lend limits, job counts and rights withheld.
const PLAIN_TREE: &str = "root 16-16; a 6-16; a/1 3-16; a/2 3-16; b 6-16; b/1 4-16; b/2 2-16; c 4-16";
const LEAVES: [&str; 5] = ["a/1", "a/2", "b/1", "b/2", "c"];

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Event {
    Submit {
        leaf: usize,
        cores: i64,
        priority: i64,
        run_ms: Option<i64>,
        preemptible: bool,
    },
    /// The nth running job ends.
    End(usize),
    /// The nth waiting job leaves.
    Leave(usize),
    /// The nth waiting job pauses.
    Pause(usize, i64),
    /// Victims that were asked to go are gone, the first n.
    Evicted(usize),
    Wait(i64),
}

pub fn events(count: usize) -> impl Strategy<Value = Vec<Event>> {
    let submit = (0_usize..5, 1_i64..6, -1_i64..2, proptest::option::of(1_i64..400), 0_u8..6).prop_map(
        |(leaf, cores, priority, run_ms, firm)| Event::Submit {
            leaf,
            cores,
            priority,
            run_ms,
            preemptible: firm > 0,
        },
    );
    let event = prop_oneof![
        6 => submit,
        3 => (0_usize..10).prop_map(Event::End),
        1 => (0_usize..10).prop_map(Event::Leave),
        1 => (0_usize..10, 1_i64..300).prop_map(|(n, ms)| Event::Pause(n, ms)),
        3 => (1_usize..4).prop_map(Event::Evicted),
        1 => (1_i64..200).prop_map(Event::Wait),
    ];
    proptest::collection::vec(event, 1..count)
}

/// A fleet to which events happen; victims end when the history says so.
pub struct History {
    pub fleet: Fleet,
    victims: Vec<JobId>,
    jobs: BTreeMap<JobId, WaitingJob>,
}

impl History {
    pub fn new(tree_text: &str, clusters: &str) -> Self {
        Self { fleet: Fleet::new(tree_text, clusters), victims: Vec::new(), jobs: BTreeMap::new() }
    }

    pub fn happen(&mut self, event: &Event) {
        match event {
            Event::Submit { leaf, cores, priority, run_ms, preemptible } => {
                let id = format!("j{:03}", self.jobs.len());
                let now_ms = self.fleet.now_ms;
                let tree = self.fleet.planner.tree();
                let mut job = waiting(tree, &id, LEAVES[*leaf], *cores, *priority, now_ms);
                (job.run_time_ms, job.preemptible) = (*run_ms, *preemptible);
                self.jobs.insert(job.id.clone(), job.clone());
                self.fleet.planner.enqueue(job);
            }
            Event::End(n) => {
                let running: Vec<JobId> =
                    self.fleet.planner.ledger().jobs().map(|job| job.id.clone()).collect();
                if let Some(id) = running.get(n % running.len().max(1)) {
                    self.victims.retain(|victim| victim != id);
                    self.fleet.end(id.as_str());
                }
            }
            Event::Leave(n) => {
                if let Some(id) = self.nth_waiting(*n) {
                    self.fleet.planner.remove(&id);
                }
            }
            Event::Pause(n, ms) => {
                if let Some(id) = self.nth_waiting(*n) {
                    let until_ms = self.fleet.now_ms + ms;
                    self.fleet.planner.back_off(&id, until_ms);
                }
            }
            Event::Evicted(n) => {
                for id in self.victims.drain(..(*n).min(self.victims.len())).collect::<Vec<_>>() {
                    self.fleet.end(id.as_str());
                    self.fleet.planner.enqueue(self.jobs[&id].clone());
                }
            }
            Event::Wait(ms) => self.fleet.now_ms += ms,
        }
    }

    fn nth_waiting(&self, n: usize) -> Option<JobId> {
        let waiting: Vec<&JobId> =
            self.jobs.keys().filter(|id| self.fleet.planner.queues().get(id).is_some()).collect();
        waiting.get(n % waiting.len().max(1)).map(|id| (*id).clone())
    }

    pub fn plan(&mut self) -> QuotaPlan {
        self.fleet.now_ms += 1;
        let fleet = &mut self.fleet;
        let plan = fleet.planner.plan(fleet.now_ms, PlanLimits::default(), &mut fleet.clusters);
        self.victims.extend(plan.takes().flat_map(|(_, take)| take.victims.iter().map(|v| v.job.clone())));
        plan
    }

    pub fn waiting(&self) -> impl Iterator<Item = &WaitingJob> {
        self.jobs.keys().filter_map(|id| self.fleet.planner.queues().get(id))
    }
}

/// The slow way to know what a node's subtree uses.
fn used_below(planner: &Planner, node: NodeId, name: &str) -> i64 {
    let tree = planner.tree();
    let below =
        planner.ledger().jobs().filter(|job| tree.path_to_root(job.leaf).any(|on_path| on_path == node));
    below.map(|job| if name == MAX_JOBS { 1 } else { job.request.get(name) }).sum()
}

proptest! {
    #![proptest_config(super::histories::cases(64))]

    #[test]
    fn nothing_is_ever_over_max_and_use_is_the_sum_of_jobs(events in events(40)) {
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        for event in &events {
            history.happen(event);
            history.plan();
            let planner = &history.fleet.planner;
            for node in planner.tree().ids() {
                for name in planner.tree().resources() {
                    let used = used_below(planner, node, name.as_str());
                    prop_assert_eq!(planner.ledger().used(node).get(name.as_str()), used);
                    prop_assert!(planner.tree().max(node, name.as_str()).is_none_or(|max| used <= max));
                }
            }
            for job in planner.ledger().jobs() {
                prop_assert!(history.fleet.clusters.cluster_of(&job.id).is_some(), "{} holds no places", job.id);
            }
        }
    }

    #[test]
    fn a_plan_after_events_is_the_plan_from_nothing(events in events(40), every in 1_usize..4) {
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        for (i, event) in events.iter().enumerate() {
            history.happen(event);
            if i % every > 0 {
                continue;
            }
            let (mut again, mut clusters) = (history.fleet.planner.clone(), history.fleet.clusters.clone());
            again.look_again();
            let fresh = again.plan(history.fleet.now_ms + 1, PlanLimits::default(), &mut clusters);
            // Who is asked about again what is reserved stands for its leaf until it is refused again. Others may go in another
            // order meanwhile; it is refused all the same.
            let (mut asked, mut clusters_asked) = (history.fleet.planner.clone(), history.fleet.clusters.clone());
            let kept = asked.forget_kept();
            asked.look_again();
            let asked = asked.plan(history.fleet.now_ms + 1, PlanLimits::default(), &mut clusters_asked);
            let plan = history.plan();
            let starts = |plan: &QuotaPlan, id: &JobId| plan.admitted().any(|(started, _)| started == id);
            let wrongly = kept.iter().find(|id| starts(&asked, id) && !starts(&plan, id));
            prop_assert!(wrongly.is_none(), "{:?} was refused, and starts when it is asked about again", wrongly);
            // Of several things that stop a job any may be the one that is told.
            let acts = |plan: &QuotaPlan| {
                let told = |d: &&Decision| !matches!(d.outcome, Outcome::Wait(_));
                plan.decisions.iter().filter(told).cloned().collect::<Vec<_>>()
            };
            prop_assert_eq!(acts(&plan), acts(&fresh));
            prop_assert_eq!(plan.more, fresh.more);
            // A job that has just started is safe for a while. Who asked before it stood knows already that it does not
            // help, and wakes for nobody's sake then; who asks anew wakes for nothing.
            if plan.wake_at_ms != fresh.wake_at_ms {
                let wake_ms = fresh.wake_at_ms.unwrap_or(i64::MAX);
                prop_assert!(plan.wake_at_ms.is_none_or(|known_ms| wake_ms < known_ms));
                let (mut early, mut clusters) = (again.clone(), clusters.clone());
                let plan = early.plan(wake_ms, PlanLimits::default(), &mut clusters);
                prop_assert_eq!(acts(&plan), Vec::new());
            }
            // What is kept for preemptors is asked anew in the next plan.
            if plan.takes().next().is_some() {
                continue;
            }
            for job in history.waiting() {
                let waits = |planner: &Planner| planner.reason(&job.id).is_some();
                prop_assert_eq!(waits(&history.fleet.planner), waits(&again), "{}", job.id);
            }
        }
    }

    #[test]
    fn every_job_that_waits_has_a_reason_that_holds(events in events(40)) {
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        for event in &events {
            history.happen(event);
            while history.plan().more {}
            let Fleet { planner, clusters, .. } = &mut history.fleet;
            for id in history.jobs.keys().filter(|id| planner.queues().get(id).is_some()) {
                let job = planner.queues().get(id).unwrap();
                match planner.reason(id) {
                    Some(WaitReason::Quota(_)) =>
                        prop_assert!(planner.ledger().check(job.leaf, &job.request, job.preemptible).is_err()),
                    Some(WaitReason::NoPlace) => {
                        let open = clusters.could_hold(job);
                        prop_assert!(!open.iter().any(|cluster| clusters.fits_without(&[job], cluster, &[])), "{}", id);
                    }
                    Some(_) => {}
                    None => prop_assert!(false, "{} waits without a reason", id),
                }
            }
        }
    }

    #[test]
    fn a_plan_is_the_same_in_one_step_and_in_many(events in events(30)) {
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        for event in events.iter().filter(|event| matches!(event, Event::Submit { .. })) {
            history.happen(event);
        }
        let (mut planner, mut clusters) = (history.fleet.planner.clone(), history.fleet.clusters.clone());
        let whole = planner.plan(1000, PlanLimits { searches: 0, ..PlanLimits::default() }, &mut clusters);
        let mut steps = Vec::new();
        let limits = PlanLimits { admissions: 1, searches: 0, ..PlanLimits::default() };
        loop {
            let Fleet { planner, clusters, .. } = &mut history.fleet;
            let plan = planner.plan(1000, limits, clusters);
            steps.extend(plan.admitted().map(|(id, cluster)| (id.clone(), cluster.clone())));
            if !plan.more {
                break;
            }
        }
        let whole: Vec<_> = whole.admitted().map(|(id, cluster)| (id.clone(), cluster.clone())).collect();
        prop_assert_eq!(steps, whole);
    }

    /// Once victims have ended, in whatever order and with plans in between, and nothing else has happened,
    /// the preemptor starts.
    #[test]
    fn nobody_is_evicted_without_the_preemptor_starting(events in events(40), turn in 0_usize..8, together in 1_usize..4) {
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        for event in &events {
            history.happen(event);
            let plan = history.plan();
            let (mut planner, mut clusters) = (history.fleet.planner.clone(), history.fleet.clusters.clone());
            let mut preemptors: BTreeSet<JobId> = plan.takes().map(|(id, _)| id.clone()).collect();
            if preemptors.is_empty() {
                continue;
            }
            loop {
                let mut going: Vec<JobId> = planner.ending_jobs().cloned().collect();
                if going.is_empty() {
                    break;
                }
                let first = turn % going.len();
                going.rotate_left(first);
                for id in going.into_iter().take(together) {
                    planner.release(&id);
                    let cluster = clusters.end(&id).unwrap();
                    planner.places_freed(&cluster);
                }
                let plan = planner.plan(history.fleet.now_ms, PlanLimits::default(), &mut clusters);
                for (id, _) in plan.admitted() {
                    preemptors.remove(id);
                }
            }
            prop_assert!(preemptors.is_empty(), "{:?} preempted and did not start", preemptors);
        }
    }

    /// No victim is one too many: without it the preemptor would not start.
    #[test]
    fn every_victim_is_needed(events in events(40)) {
        let mut history = History::new(PLAIN_TREE, "any 1000");
        for event in &events {
            history.happen(event);
            let before = history.fleet.planner.clone();
            let plan = history.plan();
            let takes: Vec<(&JobId, &Take)> = plan.takes().collect();
            // Others that are to start use room that a victim then makes up for, in this plan or in the next.
            let others = plan.admitted().next().is_some() || plan.more;
            if takes.len() != 1 || before.ending_jobs().next().is_some() || others {
                continue;
            }
            let (id, take) = takes[0];
            let preemptor = before.queues().get(id).unwrap();
            for spared in &take.victims {
                let mut ledger = before.ledger().clone();
                for victim in take.victims.iter().filter(|victim| victim.job != spared.job) {
                    ledger.release(&victim.job);
                }
                prop_assert!(ledger.check(preemptor.leaf, &preemptor.request, preemptor.preemptible).is_err(), "{:?}", take);
            }
        }
    }

    /// Quota only: whoever is inside the min of its whole path starts or takes, at the latest a moment after a start that
    /// was promised, whether it may be preempted or not.
    /// Jobs that may not be preempted are inside their own min, so they hold no room against it.
    #[test]
    fn inside_min_nobody_waits_while_someone_borrows(events in events(40)) {
        let mut history = History::new(PLAIN_TREE, "any 1000");
        for event in &events {
            if let Event::Pause(..) = event {
                continue;
            }
            history.happen(event);
            let plan = history.plan();
            // Who was promised its start keeps it for a moment, against a min as well.
            if plan.wake_at_ms.is_some_and(|wake_ms| wake_ms <= history.fleet.now_ms + 1) {
                history.plan();
            }
            let planner = &history.fleet.planner;
            let takes = |job: &WaitingJob| {
                matches!(planner.reason(&job.id), Some(WaitReason::WaitingForVictims { .. }))
            };
            // Who has taken and not started yet cannot be taken from: that comes next.
            if history.waiting().any(takes) {
                continue;
            }
            for job in history.waiting() {
                let inside = planner.ledger().is_inside_min(job.leaf, &job.request);
                prop_assert!(!inside, "{} waits", job.id);
            }
        }
    }

    /// A victim that comes back does not take its room back from the preemptor.
    #[test]
    fn no_swaps(events in events(30)) {
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        for event in &events {
            history.happen(event);
            let plan = history.plan();
            let preemptors = history.waiting().filter(|job| {
                matches!(history.fleet.planner.reason(&job.id), Some(WaitReason::WaitingForVictims { .. }))
            });
            // Where several take at once, those that have not started yet keep room as well.
            if preemptors.count() != 1 {
                continue;
            }
            for (preemptor, take) in plan.takes() {
                let (mut planner, mut clusters) = (history.fleet.planner.clone(), history.fleet.clusters.clone());
                for victim in &take.victims {
                    planner.release(&victim.job);
                    planner.places_freed(&clusters.end(&victim.job).unwrap());
                    planner.enqueue(history.jobs[&victim.job].clone());
                }
                let ids: BTreeSet<&JobId> = take.victims.iter().map(|victim| &victim.job).collect();
                for _ in 0..3 {
                    let plan = planner.plan(history.fleet.now_ms, PlanLimits::default(), &mut clusters);
                    // What a third one takes changes the shares that the victim reckons with.
                    if plan.takes().any(|(id, _)| !ids.contains(id)) {
                        break;
                    }
                    for (id, back) in plan.takes() {
                        prop_assert!(back.victims.iter().all(|victim| victim.job != *preemptor), "{} swaps with {}", id, preemptor);
                    }
                }
            }
        }
    }

    /// When nothing comes from outside any more, victims that wait again at once do not make preemptions go on and
    /// on: in a day there are no more than what one circle of every job's preemptions leaves, each rest twice the
    /// one before.
    #[test]
    fn preemption_comes_to_an_end(events in events(30)) {
        const DAY_MS: i64 = 86_400_000;
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        for event in &events {
            history.happen(event);
            history.plan();
        }
        let end_ms = history.fleet.now_ms + DAY_MS;
        let (mut reclaims, mut others) = (0_usize, BTreeMap::<JobId, usize>::new());
        while history.fleet.now_ms < end_ms {
            history.happen(&Event::Evicted(usize::MAX));
            let plan = history.plan();
            for (id, take) in plan.takes() {
                match take.victims.iter().all(|victim| victim.rule == TakeRule::Reclaim) {
                    true => reclaims += 1,
                    false => *others.entry(id.clone()).or_default() += 1,
                }
            }
            if plan.takes().next().is_none() && plan.admitted().next().is_none() {
                let Some(wake_ms) = plan.wake_at_ms else { break };
                history.fleet.now_ms = history.fleet.now_ms.max(wake_ms - 1);
            }
        }
        // Ten seconds doubled nine times are an hour, and then one each hour.
        prop_assert!(others.values().all(|count| *count <= 10 + 24 + 6), "{:?}", others);
        // A reclaim waits for no back-off. It answers what another job has taken since.
        let driven = others.values().sum::<usize>() + events.len();
        prop_assert!(reclaims <= driven, "{} reclaims, {:?}", reclaims, others);
    }

    /// Leaves of one parent with other names get what they got before.
    #[test]
    fn names_do_not_change_shares(events in events(30), shift in 1_usize..4) {
        let text = "root 12-12 @share-preemption=FairShare; w 2-12; x 2-12; y 2-12; z 2-12";
        let names = ["w", "x", "y", "z"];
        let run = |shift: usize| {
            let mut fleet = Fleet::new(text, "any 1000");
            let submits = events.iter().filter_map(|event| match event {
                Event::Submit { leaf, cores, .. } => Some((leaf % 4, *cores)),
                _ => None,
            });
            for (i, (at, cores)) in submits.enumerate() {
                fleet.now_ms = i as i64;
                fleet.submit(&format!("j{i:02}"), names[(at + shift) % 4], cores, 0);
            }
            let plan = fleet.planner.plan(1000, PlanLimits::default(), &mut fleet.clusters);
            plan.admitted().map(|(id, _)| id.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(0), run(shift));
    }

    #[test]
    fn releasing_everything_restores_an_empty_ledger(events in events(30)) {
        let mut history = History::new(LAW_TREE, "east 9, west 6");
        let empty = format!("{:?}", history.fleet.planner.ledger());
        for event in &events {
            history.happen(event);
            history.plan();
        }
        let running: Vec<JobId> = history.fleet.planner.ledger().jobs().map(|job| job.id.clone()).collect();
        for id in running {
            history.fleet.planner.release(&id);
        }
        prop_assert_eq!(format!("{:?}", history.fleet.planner.ledger()), empty);
    }
}

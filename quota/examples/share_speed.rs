//! Prints what fair-share preemption costs: 10,000 jobs of mixed sizes, priorities and run times in 20 leaves of one
//! tree, played on a virtual clock. Fixed inputs; run with `--release`. `share_speed 2000` takes fewer jobs.

mod loads;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Instant;

use fleet_quota::{ClusterName, JobId, Outcome, Places, PlanLimits, Planner, WaitingJob};
use fleet_quota_tree::{NodeSpec, QuotaTree};
use fleet_resources::Resources;
use loads::{Draw, LEAVES};

const CORES: i64 = 400;

/// One cluster that is a number of free cores.
struct OneCluster {
    free: i64,
    held: BTreeMap<JobId, i64>,
    started_ms: BTreeMap<JobId, i64>,
    now_ms: i64,
}

impl Places for OneCluster {
    fn take(&mut self, job: &WaitingJob, avoid: &BTreeSet<ClusterName>) -> Option<ClusterName> {
        let asked = job.request.get("cpu");
        (asked <= self.free && avoid.is_empty()).then(|| {
            self.free -= asked;
            self.held.insert(job.id.clone(), asked);
            self.started_ms.insert(job.id.clone(), self.now_ms);
            ClusterName::new("east")
        })
    }

    fn put_back(&mut self, job: &WaitingJob, _: &ClusterName) {
        self.free += self.held.remove(&job.id).unwrap_or(0);
    }

    fn could_hold(&mut self, _: &WaitingJob) -> Vec<ClusterName> {
        vec![ClusterName::new("east")]
    }

    fn fits_without(&mut self, jobs: &[&WaitingJob], _: &ClusterName, gone: &[JobId]) -> bool {
        let freed: i64 = gone.iter().filter_map(|id| self.held.get(id)).sum();
        jobs.iter().map(|job| job.request.get("cpu")).sum::<i64>() <= self.free + freed
    }

    fn cluster_of(&self, job: &JobId) -> Option<ClusterName> {
        self.held.contains_key(job).then(|| ClusterName::new("east"))
    }

    fn running_in(&self, _: &ClusterName) -> Vec<JobId> {
        self.held.keys().cloned().collect()
    }

    fn ends_at_ms(&self, _: &JobId) -> Option<i64> {
        None
    }

    fn lost_work_ms(&self, job: &JobId) -> i64 {
        self.started_ms.get(job).map_or(0, |started_ms| self.now_ms - started_ms)
    }
}

fn tree() -> Arc<QuotaTree> {
    let cores = |n: i64| [("cpu".to_owned(), n.to_string())].into();
    let leaf = |n: u64| NodeSpec { name: format!("l{n:02}"), min: cores(10), ..NodeSpec::default() };
    let attributes = [("fleet.dev/share-preemption".to_owned(), "FairShare".to_owned())].into();
    let children = (0..LEAVES).map(leaf).collect();
    let root = NodeSpec { max: cores(CORES), min: cores(CORES), attributes, children, ..NodeSpec::default() };
    Arc::new(QuotaTree::build(&root).expect("the tree above is valid").0)
}

fn jobs(count: u64) -> Vec<(WaitingJob, i64)> {
    let (tree, mut draw, mut at_ms) = (tree(), Draw::new(), 0);
    let leaves: Vec<_> = tree.leaves().collect();
    let job = |n: u64| {
        at_ms += draw.below(8_000) as i64;
        let cores = draw.of(&[1, 1, 2, 4, 8, 16]);
        let leaf = leaves[draw.leaf() as usize];
        let run_ms = draw.of(&[60_000, 300_000, 900_000, 3_600_000]);
        let name = format!("team/train-{n:05}");
        let job = WaitingJob {
            id: JobId::new(&name),
            name: name.as_str().into(),
            leaf,
            request: Resources::from_pairs([("cpu", cores * 1000)]),
            preemptible: true,
            priority: draw.below(3) as i64 - 1,
            enqueued_at_ms: at_ms,
            not_before_ms: 0,
            run_time_ms: None,
            preemptions: 0,
            shape: cores as u64,
        };
        (job, run_ms)
    };
    (0..count).map(job).collect()
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let jobs = jobs(count);
    let mut planner = Planner::new(tree());
    let mut places =
        OneCluster { free: CORES * 1000, held: BTreeMap::new(), started_ms: BTreeMap::new(), now_ms: 0 };
    let runs: BTreeMap<JobId, (WaitingJob, i64)> =
        jobs.iter().map(|(job, run)| (job.id.clone(), (job.clone(), *run))).collect();
    let mut preempted: BTreeMap<JobId, u32> = BTreeMap::new();
    let mut due: BinaryHeap<Reverse<(i64, u8, usize, JobId)>> = jobs
        .iter()
        .enumerate()
        .map(|(n, (job, _))| Reverse((job.enqueued_at_ms, 0, n, job.id.clone())))
        .collect();
    let (mut plans, mut preemptions, mut used_ms, mut lost_ms, mut told, mut ended) =
        (0, 0, 0_i64, 0_i64, 0, 0);
    let mut starts: BTreeMap<JobId, usize> = BTreeMap::new();
    // By rule: victims, those that had started at most a millisecond before, work lost.
    let mut by_rule: BTreeMap<&str, (usize, usize, i64)> = BTreeMap::new();
    let mut slowest = 0.0_f64;
    let begin = Instant::now();
    let mut wake: Option<i64> = None;
    loop {
        let next = due.peek().map(|Reverse((at_ms, ..))| *at_ms);
        let Some(now_ms) = next.into_iter().chain(wake).min() else { break };
        places.now_ms = now_ms;
        while let Some(Reverse((at_ms, kind, n, id))) = due.peek().cloned() {
            if at_ms > now_ms {
                break;
            }
            due.pop();
            if kind == 0 {
                planner.enqueue(runs[&id].0.clone());
            } else if starts.get(&id) == Some(&n) && planner.release(&id).is_some() {
                let cores = places.held.remove(&id).unwrap_or(0);
                places.free += cores;
                used_ms += runs[&id].1 * cores;
                ended += 1;
                planner.places_freed(&ClusterName::new("east"));
            }
        }
        loop {
            let clock = Instant::now();
            let plan =
                planner.plan(now_ms, PlanLimits { admissions: 256, probes: 4096, searches: 16 }, &mut places);
            slowest = slowest.max(clock.elapsed().as_secs_f64());
            plans += 1;
            let mut victims = Vec::new();
            for decision in plan.decisions {
                match decision.outcome {
                    Outcome::Admit { .. } => {
                        let n = starts.entry(decision.job.clone()).or_default();
                        *n += 1;
                        let run_ms = runs[&decision.job].1;
                        due.push(Reverse((now_ms + run_ms, 1, *n, decision.job)));
                    }
                    Outcome::Take(take) => victims.extend(take.victims),
                    Outcome::Wait(_) => told += 1,
                    Outcome::Claim(_) | Outcome::GiveUp(_) => {}
                }
            }
            for victim in &victims {
                let cores = places.held.remove(&victim.job).unwrap_or(0);
                let sum = by_rule.entry(victim.rule.as_str()).or_default();
                sum.0 += 1;
                sum.1 += usize::from(victim.lost_work_ms <= 1);
                sum.2 += victim.lost_work_ms * cores;
                places.free += cores;
                lost_ms += victim.lost_work_ms * cores;
                used_ms += victim.lost_work_ms * cores;
                preemptions += 1;
                *starts.entry(victim.job.clone()).or_default() += 1;
                let times = preempted.entry(victim.job.clone()).or_default();
                *times += 1;
                planner.enqueue(WaitingJob { preemptions: *times, ..runs[&victim.job].0.clone() });
                planner.places_freed(&ClusterName::new("east"));
            }
            wake = plan.wake_at_ms;
            if victims.is_empty() && !plan.more {
                break;
            }
        }
        wake = wake.map(|at_ms| at_ms.max(now_ms + 1)).filter(|_| !due.is_empty());
    }
    println!(
        "{count} jobs, {ended} ended: {:.2} s, {plans} plans, slowest {:.1} ms; {preemptions} preemptions, {:.2} % of \
         the work lost; {told} reasons told",
        begin.elapsed().as_secs_f64(),
        slowest * 1000.0,
        lost_ms as f64 * 100.0 / used_ms.max(1) as f64,
    );
    for (rule, (count, as_started, lost_ms)) in by_rule {
        println!(
            "{rule}: {count} preemptions, {as_started} of a job as it started, {:.2} % of the work lost",
            lost_ms as f64 * 100.0 / used_ms.max(1) as f64
        );
    }
}

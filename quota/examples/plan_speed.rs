//! Prints what a plan costs over deep queues: from nothing, and after one job
//! has ended, once as it is (only what the event can unblock is looked at) and
//! once the old way (everything is looked at again). Fixed inputs; run with
//! `--release`. `plan_speed 1000` takes 1,000 jobs a leaf instead of 100.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use fleet_quota::{ClusterName, JobId, Outcome, Places, PlanLimits, Planner, WaitingJob};
use fleet_quota_tree::{NodeSpec, QuotaTree};
use fleet_resources::Resources;

const PARENTS: usize = 10;
const LEAVES: usize = 100;
const CLUSTERS: usize = 100;
const STEPS: usize = 1000;
/// Steps of the old way, which are slow.
const OLD_STEPS: usize = 100;

/// Clusters that are one number of free cores each.
struct Clusters {
    names: Vec<ClusterName>,
    free: BTreeMap<ClusterName, i64>,
    capacity: i64,
    held: BTreeMap<JobId, (ClusterName, i64)>,
}

impl Clusters {
    fn new(cores: i64) -> Self {
        let names: Vec<ClusterName> = (0..CLUSTERS).map(|i| ClusterName::new(&format!("c{i:03}"))).collect();
        let free = names.iter().map(|name| (name.clone(), cores * 1000)).collect();
        Self { names, free, capacity: cores * 1000, held: BTreeMap::new() }
    }

    fn end(&mut self, id: &JobId) -> Option<ClusterName> {
        let (cluster, asked) = self.held.remove(id)?;
        *self.free.get_mut(&cluster)? += asked;
        Some(cluster)
    }
}

impl Places for Clusters {
    fn take(&mut self, job: &WaitingJob, avoid: &BTreeSet<ClusterName>) -> Option<ClusterName> {
        let asked = job.request.get("cpu");
        let mut open = self.names.iter().filter(|name| !avoid.contains(*name));
        let found = open.find(|name| self.free[*name] >= asked)?.clone();
        *self.free.get_mut(&found)? -= asked;
        self.held.insert(job.id.clone(), (found.clone(), asked));
        Some(found)
    }

    fn put_back(&mut self, job: &WaitingJob, _: &ClusterName) {
        self.end(&job.id);
    }

    fn could_hold(&mut self, job: &WaitingJob) -> Vec<ClusterName> {
        if job.request.get("cpu") <= self.capacity { self.names.clone() } else { Vec::new() }
    }

    fn fits_without(&mut self, jobs: &[&WaitingJob], cluster: &ClusterName, gone: &[JobId]) -> bool {
        let held = gone.iter().filter_map(|id| self.held.get(id)).filter(|(there, _)| there == cluster);
        let asked: i64 = jobs.iter().map(|job| job.request.get("cpu")).sum();
        asked <= self.free[cluster] + held.map(|(_, amount)| amount).sum::<i64>()
    }

    fn cluster_of(&self, job: &JobId) -> Option<ClusterName> {
        self.held.get(job).map(|(cluster, _)| cluster.clone())
    }

    fn running_in(&self, cluster: &ClusterName) -> Vec<JobId> {
        self.held.iter().filter(|(_, (there, _))| there == cluster).map(|(id, _)| id.clone()).collect()
    }

    fn ends_at_ms(&self, _: &JobId) -> Option<i64> {
        None
    }

    fn lost_work_ms(&self, _: &JobId) -> i64 {
        0
    }
}

fn node(name: &str, min: i64, max: i64, children: Vec<NodeSpec>) -> NodeSpec {
    let amount = |n: i64| [("cpu".to_owned(), n.to_string())].into();
    NodeSpec { name: name.to_owned(), min: amount(min), max: amount(max), children, ..NodeSpec::default() }
}

/// Leaves of min 20 and max 120 under ten parents; `root` cores in all.
fn tree(root: i64) -> Arc<QuotaTree> {
    let parents = (0..PARENTS).map(|p| {
        let leaves = (0..LEAVES).map(|l| node(&format!("l{p}-{l}"), 20, 120, vec![])).collect();
        node(&format!("p{p}"), 2_000, 6_000, leaves)
    });
    let spec = node("root", root, root, parents.collect());
    Arc::new(QuotaTree::build(&spec).expect("the tree above is valid").0)
}

/// Three sizes of jobs in each leaf; `kinds` shapes of each.
fn fill(planner: &mut Planner, per_leaf: i64, kinds: i64) {
    let leaves: Vec<_> = planner.tree().leaves().collect();
    for (n, leaf) in leaves.into_iter().enumerate() {
        for i in 0..per_leaf {
            let (cores, priority) = [(1, 50), (5, 100), (20, 200)][(i % 3) as usize];
            let name = format!("team-{n:04}/train-{i:05}");
            planner.enqueue(WaitingJob {
                id: JobId::new(&name),
                name: name.as_str().into(),
                leaf,
                request: Resources::from_pairs([("cpu", cores * 1000), ("memory", cores << 30)]),
                preemptible: true,
                priority,
                enqueued_at_ms: i,
                not_before_ms: 0,
                run_time_ms: None,
                preemptions: 0,
                shape: (cores * 1000 + i % kinds) as u64,
            });
        }
    }
}

/// Milliseconds; sorted.
struct Times(Vec<f64>);

impl Times {
    fn at(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share) as usize]
    }
}

/// One running job after the other ends, victims first, else a random one; `old` looks at everything.
fn ends(planner: &mut Planner, clusters: &mut Clusters, steps: usize, old: bool) -> (Times, usize) {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut times = Vec::new();
    let mut decisions = 0;
    let mut victims: VecDeque<JobId> = VecDeque::new();
    for step in 0..steps {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let at = (seed % clusters.held.len() as u64) as usize;
        let random = || clusters.held.keys().nth(at).expect("in range").clone();
        let id = victims.pop_front().unwrap_or_else(random);
        let cluster = clusters.end(&id).expect("it holds places");
        let start = Instant::now();
        planner.release(&id);
        planner.places_freed(&cluster);
        if old {
            planner.places_changed();
            planner.look_again();
        }
        let plan = planner.plan(2_000 + step as i64, PlanLimits::default(), clusters);
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        decisions += plan.decisions.len();
        for decision in plan.decisions {
            if let Outcome::Take(take) = decision.outcome {
                victims.extend(take.victims.into_iter().map(|victim| victim.job));
            }
        }
    }
    times.sort_by(f64::total_cmp);
    (Times(times), decisions)
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn run(what: &str, root: i64, cores: i64, per_leaf: i64, kinds: i64) {
    let mut planner = Planner::new(tree(root));
    let mut clusters = Clusters::new(cores);
    fill(&mut planner, per_leaf, kinds);
    let start = Instant::now();
    let plan =
        planner.plan(1_000, PlanLimits { admissions: 100_000, ..PlanLimits::default() }, &mut clusters);
    let nothing = start.elapsed().as_secs_f64() * 1000.0;
    let admitted = plan.admitted().count();
    let (new, told) = ends(&mut planner, &mut clusters, STEPS, false);
    let (old, _) = ends(&mut planner, &mut clusters, OLD_STEPS, true);
    println!(
        "{what:<28} {:>9} {admitted:>8} {nothing:>9.1} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>7.1} {told:>7} {:>7}",
        planner.queues().len(),
        new.at(0.5),
        new.at(0.99),
        old.at(0.5),
        old.at(0.99),
        old.at(0.5) / new.at(0.5),
        resident_mib(),
    );
}

fn main() {
    let per_leaf = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    println!("{} leaves, {CLUSTERS} clusters; milliseconds", PARENTS * LEAVES);
    println!(
        "{:<28} {:>9} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7}",
        "", "waiting", "started", "nothing", "median", "p99", "old med", "old p99", "ratio", "told", "MiB"
    );
    run("quota is short", 20_000, 1_000, per_leaf, 1);
    run("places are short", 60_000, 200, per_leaf, 1);
    run("places are short, 30 shapes", 60_000, 200, per_leaf, 10);
    run("both, every job its own", 20_000, 200, per_leaf, 1_000_000);
}

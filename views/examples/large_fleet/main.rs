//! Prints the processor time that each view of a fleet of 100,000 jobs and 10,000 nodes takes:
//! `cargo run --release -p fleet-views --example large_fleet`. Nothing is asserted: machines differ.

use std::{collections::BTreeMap, hint::black_box};

use fleet_views::{
    BindingFacts, ClusterFacts, End, JobQuery, Known, NodeGroup, QuotaFacts, RunFacts, Said, Sight, Sort,
    State, TreeFacts, UnitFacts, amounts::GPU, clusters, home, jobs, queue, queues,
};

const JOBS: i64 = 100_000;
const CLUSTERS: i64 = 20;
const NODES: i64 = 10_000;
const LEAVES: i64 = 200;
const NAMESPACES: i64 = 500;
/// Processor time over which the mean is taken.
const ENOUGH_MS: f64 = 500.0;
const NOW_S: i64 = 1_000_000;

fn main() {
    let mut known = fleet();
    println!("{JOBS} jobs, {NODES} nodes of {CLUSTERS} clusters");
    let all = Sight::all();
    let some = Sight {
        jobs: fleet_views::Namespaces::Only((0..20).map(|index| format!("team-{index}")).collect()),
        ..Sight::all()
    };
    let query = |change: &dyn Fn(&mut JobQuery)| {
        let mut query = JobQuery { limit: 100, ..JobQuery::default() };
        change(&mut query);
        query
    };
    let lists = [
        ("/jobs", query(&|_| {})),
        ("/jobs?state=Waiting", query(&|query| query.state = Some(State::Waiting))),
        ("/jobs?text=job-0499", query(&|query| query.text = "job-0499".to_owned())),
        ("/jobs?user=user-7", query(&|query| query.user = "user-7".to_owned())),
        ("/jobs?queue=root/team-3", query(&|query| query.queue = "root/team-3".to_owned())),
        ("/jobs?sort=name", query(&|query| query.sort = Sort::Name)),
        ("/jobs?sort=gpus", query(&|query| query.sort = Sort::Gpus)),
    ];
    for (who, sight) in [("all namespaces", &all), ("20 namespaces", &some)] {
        println!("who sees {who}:");
        for (name, query) in &lists {
            tell(name, || drop(black_box(jobs(&known, sight, query))));
        }
        tell("/", || drop(black_box(home(&known, sight, "user-7", NOW_S))));
        tell("/queues", || drop(black_box(queues(&known, sight))));
        tell("/queues/root", || drop(black_box(queue(&known, sight, "root", None, 200))));
        tell("/queues/root/team-3", || drop(black_box(queue(&known, sight, "root/team-3", None, 200))));
        tell("/clusters", || drop(black_box(clusters(&known, sight))));
    }
    let mut index = 0;
    tell("a change of one job", || {
        index = (index + 7_919) % JOBS;
        put(&mut known, index);
    });
}

/// Processor time of this thread, in milliseconds.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a thread of Linux");
    let ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds");
    ns / 1e6
}

fn tell(name: &str, mut make: impl FnMut()) {
    let (began, mut times) = (cpu_ms(), 0);
    while times < 3 || cpu_ms() - began < ENOUGH_MS {
        make();
        times += 1;
    }
    println!("  {name:26} {:8.2} ms", (cpu_ms() - began) / f64::from(times));
}

fn fleet() -> Known {
    let mut known = Known::default();
    let gpus = |amount: i64| BTreeMap::from([(GPU.to_owned(), amount)]);
    let leaf = |index: i64| QuotaFacts {
        name: format!("team-{index}"),
        namespaces: vec![format!("team-{index}")],
        min: gpus(300),
        max: gpus(2_000),
        used: gpus(index * 3),
        ..QuotaFacts::default()
    };
    let root = QuotaFacts {
        name: "root".to_owned(),
        max: gpus(NODES * 8),
        children: (0..LEAVES).map(leaf).collect(),
        ..QuotaFacts::default()
    };
    known.set_tree(TreeFacts { root: Some(root), problems: Vec::new() });
    for index in 0..CLUSTERS {
        let group = |free: i64| NodeGroup {
            count: NODES / CLUSTERS / 9,
            gpus: 8,
            gpus_free: free,
            domain: format!("rack-{}", free % 4),
            ..NodeGroup::default()
        };
        let facts = ClusterFacts {
            ready: Some(true),
            nodes: NODES / CLUSTERS,
            nodes_ready: NODES / CLUSTERS,
            groups: (0..9).map(group).collect(),
            ..ClusterFacts::default()
        };
        known.set_cluster(&format!("cluster-{index}"), Some(facts));
    }
    (0..JOBS).for_each(|index| put(&mut known, index));
    known
}

/// A third waits, a third runs, a third has ended.
fn put(known: &mut Known, index: i64) {
    let namespace = format!("team-{}", index % NAMESPACES);
    let id = (namespace, format!("job-{index:06}-pytorchjob"));
    let cluster = format!("cluster-{}", index % CLUSTERS);
    let said = Said {
        reason: "InsufficientQuotaInParent".to_owned(),
        message: format!(
            "Insufficient quota({GPU}) in parent quota root: request 16, max 80000, used 79990; wait for running jobs to complete"
        ),
        since_s: index,
    };
    let mut binding = BindingFacts {
        api_version: "kubeflow.org/v1".to_owned(),
        kind: "PyTorchJob".to_owned(),
        resource: "pytorchjobs.kubeflow.org".to_owned(),
        name: format!("job-{index:06}"),
        is_job: true,
        user: format!("user-{}", index % 1_000),
        created_s: index,
        requests: BTreeMap::from([(GPU.to_owned(), 1 + index % 64)]),
        pods: 4,
        ..BindingFacts::default()
    };
    let unit = UnitFacts {
        queue: format!("root/team-{}", index % LEAVES),
        priority: (index % 7) as i32,
        created_s: index,
        waits: index % 3 == 0,
        runs: index % 3 == 1,
        said: (index % 3 == 0).then_some(said),
        ..UnitFacts::default()
    };
    match index % 3 {
        0 => {}
        1 => {
            binding.clusters = vec![cluster];
            binding.run = Some(RunFacts { started_s: Some(index), ..RunFacts::default() });
        }
        _ => {
            let end = End { is_success: index % 2 == 0, cluster, at_s: index + 60, ..End::default() };
            binding.end = Some(end);
        }
    }
    known.set_binding(id.clone(), Some(binding));
    known.set_unit(id, Some(unit).filter(|_| index % 3 < 2));
}

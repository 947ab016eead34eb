//! Prints the processor time that each view of a fleet of 100,000 jobs and 10,000 nodes takes:
//! `cargo run --release -p fleet-views --example large_fleet`. Nothing is asserted: machines differ.

mod fleet;

use std::hint::black_box;

use fleet::{CLUSTERS, JOBS, NODES, fleet, put};
use fleet_views::{JobQuery, Sight, Sort, State, clusters, home, jobs, queue, queues};

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
